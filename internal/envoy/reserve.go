package envoy

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/limiter"
)

// held is what an item is about a reservation.
type held uint8

const (
	notHeld held = iota
	// reserves: it asks with an id and no hits, and reserves an estimate.
	reserves
	// reserved: it has, for the first time.
	reserved
	// settles: it says what was used.
	settles
)

// reserver reserves and settles for requests with an id.
type reserver struct {
	hold    time.Duration
	allowed bool // there are reservations
}

func newReserver(o *Options, front *frontend.Frontend) reserver {
	return reserver{cmp.Or(o.Hold, 10*time.Minute), o.ID != "" && front.Allows(frontend.ActionRefund) == nil}
}

// concern fills in what an item is about a reservation of a request with an id. A limit that
// comes with a request has none.
func (v *reserver) concern(it *item, id, domain string, override bool) error {
	if id == "" || override || it.back || !v.allowed || it.limit.Form.Estimate == 0 {
		return nil
	}
	it.held, it.id = reserves, id // also if the two requests have other descriptors beside this one
	if it.hits > 0 {
		it.held = settles
	}
	for _, a := range []frontend.Action{frontend.ActionCheck, frontend.ActionRefund} {
		if err := it.by.may(a, domain); err != nil {
			return err
		}
	}
	return nil
}

// settle settles, and returns what was settled.
func (v *reserver) settle(ctx context.Context, items []item) (settled []*item, err error) {
	for i := range items {
		it := &items[i]
		if it.counter == nil || it.held != settles {
			continue
		}
		_, err := it.by.session.Settle(ctx, request(it), int64(it.hits))
		if err != nil {
			return settled, err
		}
		settled = append(settled, it)
	}
	return settled, nil
}

// looks returns the questions whether there is room for what is to be reserved.
func (v *reserver) looks(items []item) *batch {
	var b batch
	for i := range items {
		if it := &items[i]; it.counter != nil && it.held == reserves {
			b.ask(it, uint64(it.limit.Form.Estimate), true)
		}
	}
	return &b
}

// reserve reserves what fits.
func (v *reserver) reserve(ctx context.Context, items []item) error {
	for i := range items {
		it := &items[i]
		if it.counter == nil || it.held != reserves || it.over {
			continue
		}
		r := request(it)
		r.Cost, r.Hold = limiter.Units(int64(it.limit.Form.Estimate)), v.hold
		var d limiter.Decision
		if err := it.by.session.Check(ctx, &r, &d, false); err != nil {
			return err
		}
		it.told(&d)
		if it.charged = (limiter.Receipt{}); d.Allowed && !d.Repeated {
			it.held = reserved
		}
	}
	return nil
}

// cancel cancels what was reserved for a request that is denied after all. It does so also if the caller
// has gone, within a second.
func (v *reserver) cancel(ctx context.Context, items []item) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	var errs []error
	for i := range items {
		it := &items[i]
		if it.held != reserved {
			continue
		}
		if _, err := it.by.session.Settle(ctx, request(it), 0, limiter.IgnoreUnknown()); err != nil {
			errs = append(errs, err)
		}
		it.remaining += it.limit.Form.Estimate
	}
	return errors.Join(errs...)
}
