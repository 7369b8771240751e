package envoy

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/transport"
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
	decider  Decider
	estimate uint32 // of limits without one of their own; 0: they have no reservations
	hold     time.Duration
	allowed  bool // there are reservations
}

func newReserver(o *Options) reserver {
	return reserver{o.Decider, o.Estimate, cmp.Or(o.Hold, 10*time.Minute), o.ID != "" && (o.AllowRefunds || o.Access != nil)}
}

// estimateOf returns what an item reserves, 0 if its limit has no reservations.
func (v *reserver) estimateOf(it *item) uint32 { return cmp.Or(it.limit.Form.Estimate, v.estimate) }

// concern fills in what an item is about a reservation of a request with an id. A limit that
// comes with a request has none.
func (v *reserver) concern(it *item, id, domain string, override bool) error {
	if id == "" || override || it.back || !v.allowed || v.estimateOf(it) == 0 {
		return nil
	}
	it.held, it.id = reserves, id // also if the two requests have other descriptors beside this one
	if it.hits > 0 {
		it.held = settles
	}
	for _, a := range []transport.Action{transport.ActionCheck, transport.ActionRefund} {
		if err := it.by.may(a, domain); err != nil {
			return err
		}
	}
	return nil
}

// reserve reserves and settles. It returns what was settled.
func (v *reserver) reserve(ctx context.Context, items []item) (settled []*item, err error) {
	for i := range items {
		it := &items[i]
		if it.counter == nil || it.held == notHeld {
			continue
		}
		r := request(it)
		if it.held == settles {
			a, err := v.decider.Settle(ctx, r, int64(it.hits), false)
			if err != nil {
				return settled, err
			}
			if a.State == limiter.AmendCharged && it.by != nil {
				it.by.made++
			}
			settled = append(settled, it)
			continue
		}
		r.Cost, r.Hold = limiter.Units(int64(v.estimateOf(it))), v.hold
		var d limiter.Decision
		if err := v.decider.CheckInto(ctx, &r, &d); err != nil {
			return settled, err
		}
		it.by.charged(&d)
		it.told(&d)
		if it.charged = (limiter.Receipt{}); d.Allowed && !d.Repeated {
			it.held = reserved
		}
	}
	return settled, nil
}

// cancel cancels what was reserved for a request that is denied. It does so also if the caller
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
		if _, err := v.decider.Settle(ctx, request(it), 0, true); err != nil {
			errs = append(errs, err)
		}
		it.remaining += v.estimateOf(it)
	}
	return errors.Join(errs...)
}
