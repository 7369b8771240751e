package gubernator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/limiter"
	pb "github.com/weirlimit/weir/proto/gubernator/v1"
)

// run decides the rate limits of one message, in their order: those that follow one another
// as one batch, as far as they are checks and looks.
type run struct {
	of   *Service
	by   *frontend.Session
	now  time.Time
	self string // the name of the node

	items    []item // of the batch
	requests []limiter.Request
	peeks    []bool
	drains   map[key]bool // keys of items of the batch that may be drained afterwards

	became [frontend.Actions]outcomes // of the items, for the audit
}

// outcomes is what became of the items that ask for one action.
type outcomes struct {
	refused, done, failed int
	why                   string // the first was refused, or failed
}

type key struct {
	name, unique string
	algorithm    pb.Algorithm
}

// add decides an item, or adds it to the batch.
func (r *run) add(ctx context.Context, in *pb.RateLimitReq, out *pb.RateLimitResp) {
	it, err := r.of.newItem(in, out, r.now)
	if err != nil {
		r.fail(&it, err)
		return
	}
	action := actionOf(&it)
	err = r.of.front.Allows(frontend.ActionLimits)
	if err == nil {
		err = r.by.Admit(&it.request, action)
	}
	if err != nil {
		r.refuse(&it, err)
		return
	}
	switch {
	case it.limit == nil:
		it.uncounted()
	case action == frontend.ActionReset:
		r.decide(ctx)
		r.forget(ctx, &it)
	case action == frontend.ActionRefund:
		r.decide(ctx)
		r.credit(ctx, &it)
	default:
		r.check(ctx, &it)
	}
}

func actionOf(it *item) frontend.Action {
	switch hits := it.in.GetHits(); {
	case it.has(pb.Behavior_RESET_REMAINING):
		return frontend.ActionReset
	case hits < 0:
		return frontend.ActionRefund
	case hits == 0:
		return frontend.ActionPeek
	default:
		return frontend.ActionCheck
	}
}

// check adds a check or a look to the batch.
func (r *run) check(ctx context.Context, it *item) {
	k := key{it.in.GetName(), it.in.GetUniqueKey(), it.in.GetAlgorithm()}
	if r.drains[k] {
		r.decide(ctx) // the drain of the one before comes first
	}
	if it.has(pb.Behavior_DRAIN_OVER_LIMIT) && it.in.GetHits() > 0 {
		if r.drains == nil {
			r.drains = make(map[key]bool)
		}
		r.drains[k] = true
	}
	hits := it.in.GetHits()
	look := hits == 0 || hits > limiter.MaxUnits // no limit is so large
	if look {
		hits = 0
	}
	it.request.Cost = limiter.Units(hits)
	r.items, r.requests, r.peeks = append(r.items, *it), append(r.requests, it.request), append(r.peeks, look)
}

// decide decides the batch, answers its items, and begins another one.
func (r *run) decide(ctx context.Context) {
	n := len(r.items)
	if n == 0 {
		return
	}
	ds := make([]limiter.Decision, n)
	err := r.by.Decide(ctx, r.requests, ds, r.peeks)
	some, partly := errors.AsType[*limiter.BatchError](err)
	failed := 0
	for i := range r.items {
		it, why := &r.items[i], err
		if partly {
			why = nil
			if failed < len(some.Index) && some.Index[failed] == i {
				why = some.Errs[failed]
				failed++
			}
		}
		if why != nil {
			r.failed(it, why)
			continue
		}
		r.answer(ctx, it, &ds[i])
	}
	clear(r.drains)
	r.items, r.requests, r.peeks = r.items[:0], r.requests[:0], r.peeks[:0]
}

// answer answers an item of the batch, and drains its counter if it is to.
func (r *run) answer(ctx context.Context, it *item, d *limiter.Decision) {
	hits := it.in.GetHits()
	over := hits > 0 && (!d.Allowed || hits > limiter.MaxUnits)
	it.answer(d, over, r.of.options.Now(), &r.of.ends)
	r.owner(it, d)
	if over && it.has(pb.Behavior_DRAIN_OVER_LIMIT) && it.out.GetRemaining() > 0 {
		r.drain(ctx, it)
	}
}

// owner tells which other member has decided.
func (r *run) owner(it *item, d *limiter.Decision) {
	if d.Len() == 0 {
		return
	}
	if name := d.Limit(0).Owner; name != "" && name != r.self {
		it.out.Metadata = map[string]string{"owner": name}
	}
}

// maxDrains is how often what seemed to remain is tried to be taken, while others charge the
// same key.
const maxDrains = 5

// drain takes what remains of a key.
func (r *run) drain(ctx context.Context, it *item) {
	q := it.request
	for range maxDrains {
		left := it.out.GetRemaining()
		q.Cost = limiter.Units(left)
		d, err := r.ask(ctx, q, false)
		if err != nil {
			r.failed(it, err)
			return
		}
		it.answer(d, true, r.of.options.Now(), &r.of.ends)
		if d.Allowed {
			return
		}
		if it.out.GetRemaining() == 0 {
			return
		}
	}
}

// ask asks about one request.
func (r *run) ask(ctx context.Context, q limiter.Request, look bool) (*limiter.Decision, error) {
	ds := make([]limiter.Decision, 1)
	err := r.by.Decide(ctx, []limiter.Request{q}, ds, []bool{look})
	if some, ok := errors.AsType[*limiter.BatchError](err); ok {
		err = some.Errs[0]
	}
	return &ds[0], err
}

// forget resets the counter of a key. The hits are ignored.
func (r *run) forget(ctx context.Context, it *item) {
	if _, err := r.by.Reset(ctx, it.request); err != nil {
		r.failed(it, err)
		return
	}
	r.became[frontend.ActionReset].done++
	r.of.ends.forget(it)
	it.forgotten()
}

// credit takes hits back, and answers with what remains then.
func (r *run) credit(ctx context.Context, it *item) {
	q := it.request
	q.Cost = limiter.Units(-max(it.in.GetHits(), -limiter.MaxUnits))
	err := r.by.Refund(ctx, q, limiter.Credit())
	if err != nil {
		r.failed(it, err)
		return
	}
	r.became[frontend.ActionRefund].done++
	q.Cost = limiter.Units(0)
	d, err := r.ask(ctx, q, true)
	if err != nil {
		r.failed(it, err)
		return
	}
	it.answer(d, false, r.of.options.Now(), &r.of.ends)
	r.owner(it, d)
}

// failed answers an item that the node did not decide.
func (r *run) failed(it *item, err error) {
	if errors.Is(err, limiter.ErrForbidden) {
		r.refuse(it, err)
		return
	}
	if of := &r.became[actionOf(it)]; !errors.Is(err, limiter.ErrInvalid) { // that text has parts of the item
		of.failed, of.why = of.failed+1, cmp.Or(of.why, err.Error())
	} else {
		of.failed++
	}
	// The member asked may be the node itself: clients know the text.
	r.fail(it, fmt.Errorf("while fetching rate limit '%.100s_%.100s' from peer: %w", it.in.GetName(), it.in.GetUniqueKey(),
		err))
}

// refuse answers an item that the caller may not send.
func (r *run) refuse(it *item, err error) {
	action := actionOf(it)
	if action == frontend.ActionPeek {
		action = frontend.ActionCheck // as over HTTP
	}
	of := &r.became[action]
	of.refused, of.why = of.refused+1, cmp.Or(of.why, frontend.AuditText(err))
	r.fail(it, err)
}

// fail answers an item with an error. The other fields say nothing then.
func (r *run) fail(it *item, err error) {
	it.out.Reset()
	it.out.Error = strings.ToValidUTF8(err.Error(), "\ufffd")
}

// account tells the audit of the message.
func (r *run) account() {
	tell := func(a frontend.Action, outcome string, parts int, why string) {
		r.by.Tell(frontend.AuditEvent{Action: a.String(), Outcome: outcome, Count: parts, Why: why})
	}
	for action := range frontend.Actions {
		of := &r.became[action]
		if of.refused > 0 {
			tell(action, frontend.AuditRefused, of.refused, of.why)
		}
		if action != frontend.ActionReset && action != frontend.ActionRefund {
			continue
		}
		if of.done > 0 {
			tell(action, frontend.AuditDone, 0, "")
		}
		if of.failed > 0 {
			tell(action, frontend.AuditFailed, 0, of.why)
		}
	}
}
