package walk

import "slices"

// becomes has the counter count by a limit with other numbers: "The counter is the same under each number". A bucket
// leaks by them from the next call on that charges it, or that looks at it if a reload has changed them. A log that
// keeps some keeps as many from the next look on.
func (c *counter) becomes(l *lim, chosen bool) {
	if c.chosen = chosen; c.lim == nil || !c.lim.bucket() && !c.lim.keepsSome() {
		c.lim = l
	} else {
		c.next = l
	}
}

// look has a call decide by the capacity that a bucket is to have: "What charges nothing changes nothing". The result
// ends the look.
func (c *counter) look(now int64) func() {
	if c.next == nil || !c.stays(now) && !(c.chosen && c.lim.bucket()) {
		c.adopt(now)
		return func() {}
	}
	seen := *c.lim
	seen.burst, seen.ceiling = c.next.burst, c.next.ceiling
	c.own, c.lim = c.lim, &seen
	return func() {
		if c.own != nil {
			c.lim, c.next, c.own = c.own, nil, nil
		}
	}
}

// become has a bucket that is charged become what it is to be. The result is by what it is charged.
func (c *counter) become(now int64) *lim {
	if c.own == nil {
		return c.lim
	}
	seen := c.lim
	if c.lim = c.own; c.stays(now) {
		c.lim = seen
		return c.own
	}
	c.own = nil
	c.adopt(now)
	return c.lim
}

// stays reports whether a bucket has more than the number that it is to have can hold: "if that can hold what
// counts".
func (c *counter) stays(now int64) bool {
	return c.next != nil && c.lim.bucket() && (c.next.units != c.lim.units || c.next.burst != c.lim.burst) &&
		c.lim.used(c.at(now), now).Cmp(c.next.highest()) > 0
}

// adopt has a bucket, or such a log, become what it is to be.
func (c *counter) adopt(now int64) {
	l := c.next
	if l == nil {
		return
	}
	if c.lim.keepsSome() && l.units != c.lim.units {
		c.left, c.changes = now, c.changes+1
		for _, p := range c.pieces {
			p.forgotten = p.forgotten || c.lim.forgets(c.pieces, now)
		}
	}
	if c.lim.bucket() && (l.units != c.lim.units || l.burst != c.lim.burst) && len(c.pieces) > 0 {
		c.pieces = append(slices.Clip(c.pieces), &piece{at: now, lim: l})
		c.left, c.changes = now, c.changes+1
	}
	c.lim, c.next = l, nil
}

// void reports whether receipts of a piece are: "if the limits of its keys have changed since". In one instant, in
// which nothing leaks, only if it changed back.
func (c *counter) void(p *piece) bool {
	return p.changes != c.changes && (p.at < c.left || p.lim.units == c.lim.units && p.lim.burst == c.lim.burst)
}

// forgets reports whether a log has so much at an instant that nothing comes back: "a log counts at most twice
// its limit".
func (l *lim) forgets(ps []*piece, at int64) bool {
	return l.keepsSome() && l.used(ps, at).Cmp(rat(2*l.units)) >= 0
}

// keepsSome reports whether the limit is a log that "counts at most twice its limit".
func (l *lim) keepsSome() bool { return l.alg == "sliding_log" && l.reject == "all" }

// giveBack takes units out of a piece of a history at an instant. A piece of which nothing is left is as if it had
// never been. Two things are of windows of the first hit only: one that is over is as it was, and a hit that was
// refunded stays one for as long as others are in its window: "another one stays a hit".
func giveBack(l *lim, ps []*piece, p *piece, units, at int64, refunded bool) []*piece {
	if l.alg != "first_hit" {
		if l.forgets(ps, at) || p.forgotten {
			return ps
		}
		if p.units -= units; p.units > 0 {
			return ps
		}
		return slices.DeleteFunc(slices.Clone(ps), func(o *piece) bool { return o == p })
	}
	opener, to := first(l, ps, p.at)
	if to <= at {
		return ps
	}
	p.units -= units
	left := int64(0)
	in := func(o *piece) bool { return o.at >= opener.at && o.at < to }
	for _, o := range ps {
		if in(o) {
			left += o.units
		}
	}
	return slices.DeleteFunc(slices.Clone(ps), func(o *piece) bool {
		return o == p && p.units == 0 && !refunded || in(o) && left == 0
	})
}
