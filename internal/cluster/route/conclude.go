package route

import (
	"slices"

	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// conclude makes one decision of the parts' answers, and commits or takes back what they have charged. The
// answer waits until the charges that the whole check does not make are taken back: a
// caller that is told of a denial finds the former state at every owner.
func (s *fanOut) conclude(t *Turn) {
	s.gather(s.answer)
	if s.mayTry(t.Now) {
		s.rest = true
		s.retreat(t)
		return
	}
	s.gatherUnnamed()
	s.open = 1                       // this function
	n := make([]int, s.charge.Len()) // index of each key's first limit
	for i, at := 0, 0; i < len(n); i++ {
		n[i] = at
		at += s.limits(i)
	}
	var parts arith.ReceiptParts
	charged := uint64(0)
	refused := false
	if s.repeated() {
		arith.Repeat(s.answer)
	} else {
		refused = s.refuse()
	}
	for _, r := range s.parts {
		undo := s.cancelled(r, n)
		s.settle(t, r, undo, !s.answer.Allowed)
		if r.answer.Repeated == s.answer.Repeated {
			parts, charged = partReceipt(parts, charged, r, undo, n)
		}
	}
	if len(parts) > 0 {
		s.answer.Receipt = arith.NewReceipt(arith.ReceiptFields{Time: parts[0].Time, Charged: charged, Parts: &parts})
	}
	if !s.answer.Allowed && !refused {
		s.unrepeated()
	}
	arith.Conclude(s.answer)
	if slices.ContainsFunc(s.parts, (*portion).spent) {
		s.answer.Repeated = true
	}
	if s.closed() {
		s.done(t)
	}
}

// retreat takes back every reservation and then starts the check anew, because it met
// other charges in doubt.
func (s *fanOut) retreat(t *Turn) {
	s.done = s.again
	s.open = 1
	for _, r := range s.parts {
		s.settle(t, r, arith.Fields(&r.answer.Receipt).Charged, true)
	}
	if s.closed() {
		s.done(t)
	}
}

// gather copies the parts' answers into one decision and settles it.
func (s *fanOut) gather(d *limiter.Decision) {
	d.Clear()
	total := 0
	for i := range s.charge.Len() {
		total += s.limits(i)
	}
	d.Grow(total)
	at := 0
	source := limiter.SourceNone
	for i := range s.charge.Len() {
		r, j := s.find(i)
		for k := range r.answer.Len() {
			if l := r.answer.Limit(k); l.Key == j {
				*d.Limit(at) = *l
				d.Limit(at).Key = i
				at++
			}
		}
		if source != limiter.SourceFallbackClosed {
			source = graver(source, r.answer.Source)
		}
	}
	d.Source = source
	arith.Combine(d, s.charge.Peek)
	arith.Conclude(d)
}

// limits returns the number of limits that answered for key i.
func (s *fanOut) limits(i int) (n int) {
	r, j := s.find(i)
	for k := range r.answer.Len() {
		if r.answer.Limit(k).Key == j {
			n++
		}
	}
	return n
}

// find returns the part with key i, and the key's index there.
func (s *fanOut) find(i int) (*portion, int) {
	for _, r := range s.parts {
		for j, k := range r.keys {
			if k == i {
				return r, j
			}
		}
	}
	return nil, 0
}

// cancelled returns the limits that a part charged and the whole check does not charge,
// one bit each. It also corrects the decision for them. first has the index of each
// key's first limit.
func (s *fanOut) cancelled(r *portion, first []int) (undo uint64) {
	if r.answer.Repeated {
		return 0 // an earlier check charged it
	}
	at := make([]int, len(r.keys)) // limits of each key seen so far
	for k := range r.answer.Len() {
		l := r.answer.Limit(k)
		i := first[r.keys[l.Key]] + at[l.Key]
		at[l.Key]++
		if !arith.Fields(&r.answer.Receipt).Has(k) {
			continue
		}
		is := s.answer.Limit(i)
		charge, _ := arith.ToCharge(s.answer, i)
		if !charge {
			undo |= 1 << k
		}
		if k >= r.idle.Len() {
			continue
		}
		switch idle := r.idle.Limit(k); {
		case !charge:
			is.Remaining, is.ResetAfter, is.RetryAfter = idle.Remaining, idle.ResetAfter, idle.RetryAfter
		case !s.answer.Allowed && r.answer.Allowed:
			// The part alone would have been allowed, so its answer has no wait.
			is.RetryAfter = max(is.RetryAfter, idle.RetryAfter)
		}
	}
	return undo
}

// prepared reports whether a member has charged something for a part, or remembers its id.
func (r *portion) prepared() bool {
	return r.call.result.by != 0 && !r.answer.Repeated &&
		(arith.Fields(&r.answer.Receipt).Charged != 0 || r.charge.ID != nil && !r.charge.Peek && r.answer.Allowed)
}

// denies reports whether an owner denied the part, and so the whole check.
func (r *portion) denies() bool {
	return r.call.result.by != 0 && !r.call.result.contests && r.call.task.prepare && !r.answer.Allowed
}

// settle ends a part's reservation at the member that made it, and takes back the
// charges that undo names. denied means that the whole check charges nothing there by its
// id, which is forgotten. Only if it takes something back is the end awaited, until the check's
// deadline, and the message sent again if no member could relay it, for as long as the owner takes it.
// If it is lost, the charge stays; nothing else goes wrong.
func (s *fanOut) settle(t *Turn, r *portion, undo uint64, denied bool) {
	if !r.prepared() {
		return
	}
	receipt := r.answer.Receipt
	arith.Fields(&receipt).Charged = undo
	c := s.c
	o := &Call{c: c, task: task{kind: KindRefund, ends: true, denied: denied, charge: &r.charge,
		answer: new(limiter.Decision), receipt: &receipt, until: s.until, exact: s.exact}}
	takes := undo != 0 || denied && r.charge.ID != nil
	awaited := takes && t.Now < s.until
	o.task.done = func(t *Turn, _ *Call) { // perhaps twice: at the deadline, and when the cancel is executed
		if awaited && s.closed() {
			s.done(t)
		}
	}
	if takes && !awaited {
		o.progress.late, o.task.until = true, s.until+replica.LateFor
	}
	o.progress.sent = o.progress.one[:0]
	if awaited {
		s.mu.Lock()
		s.open++
		s.mu.Unlock()
	}
	if r.call.result.by == c.config.Self {
		q := Request{Wait: replica.Wait{Charge: &r.charge, Until: s.until}, Kind: KindRefund, Ends: true, Denied: denied,
			Receipt: receipt}
		if awaited {
			q.Reply.Call = o
		}
		switch v := t.handle(q, nil); {
		case awaited && v == Kept: // until the partition is handed over, or open again
			c.register(t, o)
		case awaited:
			s.closed() // the caller has an end of its own to count, so this is not the last
		}
		return
	}
	o.task.holder = r.call.result.by
	if takes {
		if c.calls.add(o, t) {
			t.Tick = true
		} else if awaited {
			s.closed()
		}
	}
	endReservation(t, o)
}

// outlasts has a check be answered at its deadline although its cancel is not executed, and
// reports whether that is so now. The cancel goes on: a member may still say that it could not
// relay it.
func outlasts(t *Turn, o *Call) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.progress.ended || o.progress.late || o.task.holder == 0 {
		return false
	}
	o.progress.late, o.task.until = true, o.task.until+replica.LateFor
	o.c.calls.expect(o)
	t.ended = append(t.ended, o)
	return true
}

// endReservation has the member that made a reservation end it.
func endReservation(t *Turn, o *Call) {
	if o.task.holder == 0 {
		o.policy(t) // this node has handed over the reservation: it is void
		return
	}
	o.mu.Lock()
	o.progress.record(o.task.holder)
	o.mu.Unlock()
	o.send(t, o.task.holder, false)
}

// notEnded handles that the member that made a reservation has not ended it. If it has not heard of
// that, since the connection is silent and no member could relay it, it is asked again.
func notEnded(t *Turn, o *Call, status peer.ReplyStatus) {
	if status == peer.Lost && o.c.config.Mesh.Reachable(o.task.holder) {
		o.later(t, RetryEvery)
		return
	}
	o.policy(t) // the reservation is void or lost
}

// gatherUnnamed collects the keys whose names the parts' owners lack.
func (s *fanOut) gatherUnnamed() {
	s.charge.Unnamed = 0
	for _, r := range s.parts {
		for j, i := range r.keys {
			s.charge.Unnamed |= r.charge.Unnamed >> j & 1 << i
		}
	}
}
