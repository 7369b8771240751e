package rules

import (
	"math"
)

// costsTooMuch warns about costs above a limit that they are charged to: such a request
// is never allowed.
func costsTooMuch(r *definition, quotas []definition) (out []Warning) {
	check := func(c *costs, n *definition, at *node, upTo uint8) []Warning {
		if c.at != nil {
			at = c.at
		}
		if n.shadow {
			return nil
		}
		most := c.most()
		for i, l := range n.limits {
			s := n.choosing.highest(i, l).Spec()
			admits, raise := burstOfAny(s), map[bool]string{true: "burst", false: "limit"}[isBucket(s.Algorithm)]
			if upTo > 0 {
				admits, raise = max(1, math.Floor(admits*float64(upTo)/100)), "up_to of the draw, or the "+raise
			}
			if most > 0 && float64(most) > admits {
				return []Warning{newWarning(r, at, "",
					"rule %s: a request that costs %d is never allowed, since limit %s of %s admits at most %d at once: lower the "+
						"cost, or raise the %s",
					quote(r.name), most, quote(l.Name()), n.title(), uint64(admits), raise)}
			}
		}
		return nil
	}
	if len(r.limits) > 0 {
		out = check(&r.costs, r, r.at, 0)
	}
	var tried []Warning // of alternatives, of which one that admits is enough
	admitted := false
	for _, w := range r.draws {
		c := &r.costs
		if w.given {
			c = &w.costs
		}
		bad := check(c, &quotas[w.quota], w.at, w.upTo)
		if w.any == 0 {
			out = append(out, bad...)
			continue
		}
		tried, admitted = append(tried, bad...), admitted || bad == nil
	}
	if !admitted {
		out = append(out, tried...)
	}
	return out
}
