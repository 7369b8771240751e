package replica

import (
	"errors"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// Entries is the state of one key as it arrived in a message.
type Entries struct {
	Hi   uint64
	List []table.Entry
}

// The parts of a snapshot are collected before they replace the state held. A sender may
// never send the last part, so the collected parts are bounded, for all partitions
// together, and are dropped if no further part comes. The owner sends a snapshot that
// does not fit again.
const (
	// MaxStaged is the most bytes of incomplete snapshots of all replicas of a node.
	MaxStaged = 512 << 20
	stagedFor = 5 * limiter.Second
)

var errStaged = errors.New("too much of other snapshots that are not complete is here")

// staging is the snapshot that is arriving in parts.
type staging struct {
	staged      []table.Entry
	stagedSeq   uint64
	stagedNext  uint64 // index of the next part
	stagedBytes int64
	stagedAt    limiter.Tick // when the last part arrived
}

// next takes in a part of a snapshot. It reports whether the snapshot is complete. It
// drops the parts if one was lost, or if there is no room.
func (p *staging) next(t *Step, node *Node, b *peer.Batch, keys []Entries) (complete bool) {
	if b.First {
		p.begin(node, b.Seq)
	} else if p.stagedSeq != b.Seq || p.staged == nil {
		return false
	}
	if b.Base != p.stagedNext {
		p.unstage(node) // a part was lost
		return false
	}
	p.stagedNext++
	if !p.more(t, node, keys) {
		return false
	}
	if !b.Last {
		t.Watch = true
		// The memory of a message is reused before the next part arrives.
		keepWords(p.staged[len(p.staged)-entriesIn(keys):])
	}
	return b.Last
}

// more adds keys to the collected parts. It reports false if there is no room, or
// if no snapshot was begun; nothing stays collected then.
func (p *staging) more(t *Step, node *Node, keys []Entries) bool {
	if p.staged == nil {
		return false
	}
	more := int64(0)
	for _, k := range keys {
		for i := range k.List {
			more += 128 + 8*int64(len(k.List[i].Words))
		}
	}
	p.stagedBytes += more
	if node.Staged.Add(more) > MaxStaged {
		p.unstage(node)
		t.problem("a snapshot of a partition cannot be kept", errStaged)
		return false
	}
	for _, k := range keys {
		p.staged = append(p.staged, k.List...)
	}
	p.stagedAt = t.Now
	return true
}

// unstage drops the collected parts.
func (p *staging) unstage(node *Node) {
	node.Staged.Add(-p.stagedBytes)
	p.staged, p.stagedBytes = nil, 0
}

// begin begins to collect a snapshot with the given sequence.
func (p *staging) begin(node *Node, seq uint64) {
	p.unstage(node)
	p.staged, p.stagedSeq, p.stagedNext = []table.Entry{}, seq, 0
}

// tick drops a snapshot that got no part for stagedFor.
func (p *staging) tick(t *Step, node *Node) {
	if p.staged != nil && t.Now-p.stagedAt >= stagedFor {
		p.unstage(node)
	}
}

// entriesIn returns the number of entries of all keys.
func entriesIn(keys []Entries) (n int) {
	for i := range keys {
		n += len(keys[i].List)
	}
	return n
}

// keepWords copies the words of the entries into memory of their own.
func keepWords(list []table.Entry) {
	n := 0
	for i := range list {
		n += len(list[i].Words)
	}
	words := make([]uint64, 0, n)
	for i := range list {
		from := len(words)
		words = append(words, list[i].Words...)
		list[i].Words = words[from:len(words):len(words)]
	}
}
