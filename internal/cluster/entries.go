package cluster

import (
	"slices"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// entries is the state of one key as it arrived in a frame.
type entries struct {
	hi   uint64
	list []table.Entry
}

// split takes the entries of the first n keys. Its result is valid until the turn splits
// again.
func (t *turn) split(from []peer.Entry, n int, limits []*limiter.Limit) (keys []entries, rest []peer.Entry, ok bool) {
	keys = t.keys[:0]
	all := slices.Grow(t.entries[:0], entriesOf(from, n)) // allocated together
	defer func() { t.keys, t.entries = keys[:0], all[:0] }()
	for i := range from {
		e := &from[i]
		if e.First {
			if len(keys) == n {
				return keys, from[i:], true
			}
			keys = append(keys, entries{hi: e.Hi})
		}
		if len(keys) == 0 {
			return nil, nil, false
		}
		if e.Gone {
			continue
		}
		if int(e.Limit) >= len(limits) {
			return nil, nil, false
		}
		all = append(all, table.Entry{
			Hi: e.Hi, Lo: e.Lo, Limit: limits[e.Limit], Words: e.Words,
			State: limiter.State{Time: limiter.Tick(e.Time), Until: limiter.Tick(e.Until), A: e.A, B: e.B},
		})
		k := &keys[len(keys)-1]
		k.list = all[len(all)-len(k.list)-1 : len(all) : len(all)]
	}
	return keys, nil, len(keys) == n
}

// entriesIn returns the number of entries of all keys.
func entriesIn(keys []entries) (n int) {
	for i := range keys {
		n += len(keys[i].list)
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

// entriesOf returns the number of entries of the first n keys.
func entriesOf(from []peer.Entry, n int) int {
	for i := range from {
		if from[i].First {
			if n--; n < 0 {
				return i
			}
		}
	}
	return len(from)
}
