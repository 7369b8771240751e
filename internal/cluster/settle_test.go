package cluster

import (
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// A settlement over several owners is first one of the first key's owner, which so decides between two with
// different numbers. What that one refuses, or does not answer, changes nothing at the others.
func TestSettlementsAskTheFirstOwnerFirst(t *testing.T) {
	for what, row := range map[string]struct {
		first limiter.AmendState
		mute  bool
		asked int
		want  route.Outcome
	}{
		"it settles":                       {first: limiter.AmendDone, asked: 1, want: route.Outcome{Amended: &limiter.Amended{State: limiter.AmendDone}}},
		"it has settled with that number":  {first: limiter.AmendRepeated, asked: 1, want: route.Outcome{Amended: &limiter.Amended{State: limiter.AmendDone}}},
		"it knows nothing of it":           {first: limiter.AmendUnknown, asked: 1, want: route.Outcome{Amended: &limiter.Amended{State: limiter.AmendDone}}},
		"it has settled with another one":  {first: limiter.AmendSettled, want: route.Outcome{Amended: &limiter.Amended{State: limiter.AmendSettled, First: 3}}},
		"it does not answer, nor its heir": {mute: true, want: route.Outcome{Unanswered: 3, Maybe: 1}},
	} {
		c, _, h, like := single(t, limiter.UnreachableLocal)
		charge := spread(c, like, third, other)
		charge.ID = &limiter.Idempotency{ID: 7, Life: time.Minute}
		var got *route.Outcome
		Amend(c, charge, limiter.Amend{}, func(o route.Outcome) { got = &o })
		out := drain(c)
		if len(out[third].Refunds) != 1 || len(out[other].Refunds) != 0 {
			t.Fatalf("%s: at once %d and %d are asked", what, len(out[third].Refunds), len(out[other].Refunds))
		}
		reply := func(from peer.Instance, id uint64, state limiter.AmendState) {
			c.Deliver(&peer.Frame{From: from, To: self, Replies: []peer.Reply{{ID: id, Status: peer.Done}}, Amended: []peer.Amended{{ID: id, State: uint8(state), First: row.want.Amended.First}}})
		}
		if row.mute {
			h.pass(2 * limiter.Second)
		} else {
			reply(third, out[third].Refunds[0].ID, row.first)
		}
		second := slices.DeleteFunc(drain(c)[other].Refunds, func(r peer.Refund) bool { return r.Heir }) // of the first key
		if len(second) != row.asked {
			t.Fatalf("%s: then %d of the other owner are asked", what, len(second))
		}
		if row.asked > 0 {
			if got != nil {
				t.Fatalf("%s: it ends before the other owner has answered", what)
			}
			reply(other, second[0].ID, limiter.AmendDone)
		}
		switch w := row.want; {
		case got == nil:
			t.Errorf("%s: there is no outcome", what)
		case got.Unanswered != w.Unanswered || got.Maybe&2 != 0 || (got.Amended == nil) != (w.Amended == nil):
			t.Errorf("%s: %+v", what, *got)
		case w.Amended != nil && *got.Amended != *w.Amended:
			t.Errorf("%s: %+v", what, *got.Amended)
		}
	}
}
