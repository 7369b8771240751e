package cluster

import (
	"slices"

	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// scratch is the memory in which a turn has what members have sent.
type scratch struct {
	entries []table.Entry
	keys    []replica.Entries
	ids     []table.ID
}

// split takes the entries of the first n keys, which the member with the number source has sent. Its result is
// valid until the next call.
func (s *scratch) split(from []peer.Entry, n int, limits []*limiter.Limit, source uint8) (keys []replica.Entries,
	rest []peer.Entry, ok bool) {
	keys = s.keys[:0]
	all := slices.Grow(s.entries[:0], entriesOf(from, n)) // allocated together
	defer func() { s.keys, s.entries = keys[:0], all[:0] }()
	for i := range from {
		e := &from[i]
		if e.First {
			if len(keys) == n {
				return keys, from[i:], true
			}
			keys = append(keys, replica.Entries{Hi: e.Hi})
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
			Hi: e.Hi, Lo: e.Lo, Limit: limits[e.Limit], Words: e.Words, From: source,
			State: arith.State{Time: limiter.Tick(e.Time), Until: limiter.Tick(e.Until), A: e.A, B: e.B},
		})
		k := &keys[len(keys)-1]
		k.List = all[len(all)-len(k.List)-1 : len(all) : len(all)]
	}
	return keys, nil, len(keys) == n
}

// idsOf takes ids of a frame. Its result is valid until the next call.
func (s *scratch) idsOf(from []peer.ID) []table.ID {
	all := s.ids[:0]
	for i := range from {
		x := &from[i]
		all = append(all, table.ID{Hi: x.Hi, Lo: x.Lo,
			State: arith.State{Time: limiter.Tick(x.Time), Until: limiter.Tick(x.Until), A: x.A, B: x.B}})
	}
	s.ids = all
	return all
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
