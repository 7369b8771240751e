package cluster

import (
	"errors"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// The parts of a snapshot are collected before they replace the state held. A sender may
// never send the last part, so the collected parts are bounded, for all partitions
// together, and are dropped if no further part comes. The owner sends a snapshot that
// does not fit again.
const (
	maxStaged = 512 << 20 // bytes, of all partitions together
	stagedFor = 5 * limiter.Second
)

var errStaged = errors.New("too much of other snapshots that are not complete is here")

// stageMore adds keys to the collected parts. It reports false if there is no room, or
// if no snapshot was begun; nothing stays collected then.
func (p *part) stageMore(t *turn, keys []entries) bool {
	if p.staged == nil {
		return false
	}
	more := int64(0)
	for _, k := range keys {
		for i := range k.list {
			more += 128 + 8*int64(len(k.list[i].Words))
		}
	}
	p.stagedBytes += more
	if p.c.staged.Add(more) > maxStaged {
		p.unstage()
		p.c.complain("a snapshot of a partition cannot be kept", errStaged)
		return false
	}
	for _, k := range keys {
		p.staged = append(p.staged, k.list...)
	}
	p.stagedAt = t.now
	return true
}

// unstage drops the collected parts.
func (p *part) unstage() {
	p.c.staged.Add(-p.stagedBytes)
	p.staged, p.stagedBytes = nil, 0
}

// beginStage begins to collect a snapshot with the given sequence.
func (p *part) beginStage(seq uint64) {
	p.unstage()
	p.staged, p.stagedSeq, p.stagedNext = []table.Entry{}, seq, 0
}

// tickStage drops a snapshot that got no part for stagedFor, and reports whether one is
// being collected.
func (p *part) tickStage(t *turn) bool {
	if p.staged != nil && t.now-p.stagedAt >= stagedFor {
		p.unstage()
	}
	return p.staged != nil
}
