package cluster

import (
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
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
		"it settles": {first: limiter.AmendDone, asked: 1,
			want: route.Outcome{Amended: &limiter.Amended{State: limiter.AmendDone}}},
		"it has settled with that number": {first: limiter.AmendRepeated, asked: 1,
			want: route.Outcome{Amended: &limiter.Amended{State: limiter.AmendDone}}},
		"it knows nothing of it": {first: limiter.AmendUnknown, asked: 1,
			want: route.Outcome{Amended: &limiter.Amended{State: limiter.AmendDone}}},
		"it has settled with another one": {first: limiter.AmendSettled,
			want: route.Outcome{Amended: &limiter.Amended{State: limiter.AmendSettled, First: 3}}},
		"it does not answer, nor its heir": {mute: true, want: route.Outcome{Unanswered: 3, Maybe: 1}},
	} {
		c, _, h, like := single(t, limiter.UnreachableLocal)
		charge := spread(c, like, third, other)
		charge.ID = &arith.Idempotency{ID: 7, Life: time.Minute}
		var got *route.Outcome
		c.Amend(charge, limiter.Amend{}, func(o route.Outcome) { got = &o })
		reply := func(from peer.Instance, id uint64, state limiter.AmendState) {
			first := uint64(0)
			if row.want.Amended != nil {
				first = row.want.Amended.First
			}
			c.Deliver(&peer.Frame{From: from, To: self, Replies: []peer.Reply{{ID: id, Status: peer.Done}},
				Amended: []peer.Amended{{ID: id, State: uint8(state), First: first}}})
		}
		for from, f := range drain(c) { // each is asked what the id stands for
			if len(f.Refunds) != 1 || !f.Holds[0].Back {
				t.Fatalf("%s: %d is asked %+v, %+v", what, from, f.Refunds, f.Holds)
			}
			reply(from, f.Refunds[0].ID, limiter.AmendUnknown)
		}
		out := drain(c)
		if len(out[third].Refunds) != 1 || len(out[other].Refunds) != 0 {
			t.Fatalf("%s: then %d and %d are asked", what, len(out[third].Refunds), len(out[other].Refunds))
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

// A settlement over several owners asks each what is reserved, before any of them settles: what
// one has settled is not taken back. Without all answers it settles nothing.
func TestSettlementsOfSeveralRulesAskForEstimates(t *testing.T) {
	for what, row := range map[string]struct {
		estimates [2]uint64 // of the two keys; 0 if the answer has none
		mute      bool
		settles   bool
		want      route.Outcome
	}{
		"the same": {estimates: [2]uint64{5, 5}, settles: true},
		"different ones": {estimates: [2]uint64{5, 2000},
			want: route.Outcome{Amended: &limiter.Amended{State: limiter.AmendDiffers, Estimate: 5, First: 2000}}},
		"one has none, or does not tell":    {estimates: [2]uint64{0, 2000}, settles: true},
		"one does not answer, nor its heir": {estimates: [2]uint64{5, 5}, mute: true, want: route.Outcome{Unanswered: 3}},
	} {
		c, _, h, like := single(t, limiter.UnreachableLocal)
		charge := spread(c, like, third, other)
		rule := *charge.Key(1).Rule
		rule.Name = "another"
		charge.Key(1).Rule, charge.ID = &rule, &arith.Idempotency{ID: 7, Life: time.Minute}
		var got *route.Outcome
		c.Amend(charge, limiter.Amend{}, func(o route.Outcome) { got = &o })
		out := drain(c)
		for i, from := range []peer.Instance{third, other} {
			f := out[from]
			if len(f.Refunds) != 1 || len(f.Holds) != 1 || !f.Holds[0].Back || f.Holds[0].End != 1 {
				t.Fatalf("%s: %d is asked %+v, %+v", what, from, f.Refunds, f.Holds)
			}
			id := f.Refunds[0].ID
			if !row.mute || from == third {
				c.Deliver(&peer.Frame{From: from, To: self, Replies: []peer.Reply{{ID: id, Status: peer.Done}},
					Amended: []peer.Amended{{ID: id, State: uint8(limiter.AmendUnknown), Estimate: row.estimates[i]}}})
			}
		}
		if row.mute {
			h.pass(2 * limiter.Second)
		}
		settled := 0
		for _, f := range drain(c) {
			for _, held := range f.Holds {
				if !held.Back {
					settled++
				}
			}
		}
		switch w := row.want; {
		case row.settles:
			if settled != 1 || got != nil {
				t.Errorf("%s: %d members settle at first, outcome %+v", what, settled, got)
			}
		case settled != 0 || got == nil:
			t.Errorf("%s: %d members settle, outcome %+v", what, settled, got)
		case got.Unanswered != w.Unanswered || got.Maybe != 0 || (got.Amended == nil) != (w.Amended == nil):
			t.Errorf("%s: %+v", what, *got)
		case w.Amended != nil && *got.Amended != *w.Amended:
			t.Errorf("%s: %+v", what, *got.Amended)
		}
	}
}
