package limitertest

import (
	"cmp"
	"math/big"
	"slices"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// settle settles the id of a charge, whose costs are what was used.
func (o *holdOracle) settle(now Tick, c *arith.Charge, a limiter.Amend) (out limiter.Amended) {
	o.expire(now)
	known, held := 0, 0
	unlike, lacks, whole := o.shape(c)
	var compared []int // the keys whose estimates must be one
	for i := range c.Len() {
		k := c.Key(i)
		id := o.key(k).ids[c.ID.ID]
		switch {
		case id == nil:
			continue
		case !id.held && id.cost != k.Cost:
			return limiter.Amended{State: limiter.AmendSettled, First: id.cost}
		case id.held:
			if held++; held == 1 {
				out.Estimate = id.cost
			}
			rate := slices.ContainsFunc(k.Rule.Limits, func(l *limiter.Limit) bool {
				return l.Algorithm() != limiter.Concurrency
			})
			if rate && !k.Rule.Shadow && k.Cost > 0 && !a.Named {
				compared = append(compared, i)
			}
		}
		known++
	}
	switch {
	case a.Lacks && lacks:
		return limiter.Amended{State: limiter.AmendLacks}
	case len(compared) > 0 && unlike:
		return limiter.Amended{State: limiter.AmendDiffers, Estimate: o.key(c.Key(compared[0])).ids[c.ID.ID].cost}
	}
	for _, i := range compared { // one number for rules that have reserved different ones
		first := c.Key(compared[0])
		was, of := o.key(c.Key(i)).ids[c.ID.ID].cost, o.key(first).ids[c.ID.ID].cost
		alike := new(big.Int).Mul(new(big.Int).SetUint64(was), new(big.Int).SetUint64(first.Cost)).
			Cmp(new(big.Int).Mul(new(big.Int).SetUint64(of), new(big.Int).SetUint64(c.Key(i).Cost))) == 0
		if c.Key(i).Rule.Name != first.Rule.Name && !alike {
			return limiter.Amended{State: limiter.AmendDiffers, Estimate: of, First: was}
		}
	}
	// One number settles what the check has charged, and nothing else; a repetition charges nothing.
	a.IgnoreUnknown = a.IgnoreUnknown || !a.Named && known > 0 && (held == 0 || whole)
	charged := false
	for i := range c.Len() {
		k := c.Key(i)
		key := o.key(k)
		id := key.ids[c.ID.ID]
		switch {
		case id == nil && k.Rule.Shadow && known > 0:
		case id == nil && !a.IgnoreUnknown && k.Cost > 0:
			charged = true
			out.Over = max(out.Over, key.overdraw(now, k.Cost))
			key.ids[c.ID.ID] = &knownID{until: now + limiter.Span(c.ID.Life), cost: k.Cost}
		case id != nil && id.held:
			id.letGo(now)
			switch {
			case id.free: // nothing is charged, and nothing comes back
			case k.Cost > id.cost:
				out.Over = max(out.Over, key.overdraw(now, k.Cost-id.cost))
			default:
				id.giveBack(now, id.cost-k.Cost)
			}
			key.ids[c.ID.ID] = &knownID{until: now + limiter.Span(c.ID.Life), cost: k.Cost}
		}
	}
	switch {
	case charged:
		out.State = limiter.AmendCharged
	case held > 0:
	case known > 0:
		out.State = limiter.AmendRepeated
	default:
		out.State = limiter.AmendUnknown
	}
	return out
}

// shape reports whether the check that a charge's id names had draws of different costs on one key, and whether
// it had more keys in force than the charge names, or as many as are known.
func (o *holdOracle) shape(c *arith.Charge) (unlike, lacks, whole bool) {
	inForce, keys, some := 0, 0, false
	for i := range c.Len() {
		id := o.key(c.Key(i)).ids[c.ID.ID]
		if id == nil {
			continue
		}
		if !c.Key(i).Rule.Shadow {
			inForce++
		}
		if id.held {
			keys, unlike, some = max(keys, id.shape.Keys()), unlike || id.shape.Unlike(), some || id.shape != 0
		}
	}
	return unlike, inForce < keys, some && inForce == keys
}

// overdraw charges units to all limits, whatever they have left, and returns the most by which
// that is too much.
func (k *heldKey) overdraw(now Tick, n uint64) (over uint64) {
	for _, l := range k.limits {
		if _, ok := l.model.(*concurrencyModel); ok {
			continue // what was used is held no more
		}
		left := l.unblocked(now)
		over = max(over, n-min(n, left))
		if log, ok := l.model.(*logModel); ok {
			log.add(now, min(n, limiter.MaxLogUnits), limiter.MaxLogUnits) // forgets nothing up to that
		} else {
			l.model.charge(n, now)
		}
	}
	return over
}

// giveBack gives units of a hold back to each limit, of its latest charges first.
func (i *knownID) giveBack(now Tick, n uint64) {
	left := map[*oracleLimit]uint64{}
	for _, p := range slices.Backward(i.parts) {
		if _, began := left[p.limit]; !began {
			left[p.limit] = n
		}
		if back := min(left[p.limit], p.cost); back > 0 {
			p.giveBack(back, now)
			left[p.limit] -= back
		}
	}
}

// extend lets the hold of a charge's id last longer, with the costs as new estimates if they are
// higher.
func (o *holdOracle) extend(now Tick, c *arith.Charge, lacks bool) (out limiter.Amended) {
	o.expire(now)
	known := 0
	var raised []int
	more := c.Clone()
	for i := range c.Len() {
		id := o.key(c.Key(i)).ids[c.ID.ID]
		switch {
		case id == nil:
			continue
		case !id.held:
			return limiter.Amended{State: limiter.AmendSettled, First: id.cost}
		case c.Key(i).Cost > id.cost:
			raised = append(raised, i)
			more.Key(i).Cost -= id.cost
		}
		known++
	}
	if known == 0 {
		return limiter.Amended{State: limiter.AmendUnknown}
	}
	if _, more, _ := o.shape(c); lacks && more {
		return limiter.Amended{State: limiter.AmendLacks}
	}
	if len(raised) > 0 {
		if d := decide(now, false, o.turns(more, raised)); !d.Allowed {
			retry := d.RetryAfter
			for _, i := range raised {
				if o.key(c.Key(i)).ids[c.ID.ID].end <= now+retry {
					retry = 0 // there is nothing to extend any more then
				}
			}
			return limiter.Amended{State: limiter.AmendDenied, RetryAfter: retry.Duration()}
		}
	}
	for i := range c.Len() {
		k := o.key(c.Key(i))
		id := k.ids[c.ID.ID]
		if id == nil {
			continue
		}
		if slices.Contains(raised, i) {
			o.add(now, k, id, more.Key(i).Cost)
			id.cost = c.Key(i).Cost
		}
		o.lengthen(now, id, c.ID)
		out.Estimate = cmp.Or(out.Estimate, id.cost)
	}
	return out
}
