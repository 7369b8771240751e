package cluster

import (
	"errors"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// The parts of a snapshot are collected before they replace what is held. A sender may
// never send the last: what has been collected is bounded, for all partitions together,
// and dropped when nothing more comes. Snapshots that do not fit are sent again.
const (
	maxStaged = 512 << 20 // bytes
	stagedFor = 5 * limiter.Second
)

var errStaged = errors.New("too much of other snapshots that are not complete is here")

// stageMore adds to what is collected. It reports false where there is no room, or the
// snapshot was not begun; then nothing is left of it.
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

// unstage drops what is collected of a snapshot.
func (p *part) unstage() {
	p.c.staged.Add(-p.stagedBytes)
	p.staged, p.stagedBytes = nil, 0
}

// beginStage begins to collect a snapshot that leads to a sequence.
func (p *part) beginStage(seq uint64) {
	p.unstage()
	p.staged, p.stagedSeq, p.stagedNext = []table.Entry{}, seq, 0
}

// tickStage drops a snapshot of which nothing more comes, and reports whether one is
// being collected.
func (p *part) tickStage(t *turn) bool {
	if p.staged != nil && t.now-p.stagedAt >= stagedFor {
		p.unstage()
	}
	return p.staged != nil
}
