package history

import "fmt"

// What a run must show of a cluster that works: so many checks in all, and so many
// once all is settled, if that is a second before the end.
const (
	leastChecks  = 50
	leastSettled = 20
)

// alive is what became of checks.
type alive struct{ asked, decided, allowed int }

func (a *alive) add(o *Op) {
	a.asked++
	if o.Counted() {
		a.decided++
		if o.Outcome == Allowed {
			a.allowed++
		}
	}
}

// wrong returns what is wrong with checks after all had settled, nil if that cannot be
// told of so few.
func (a *alive) wrong(what string) error {
	switch {
	case a.asked < leastSettled:
		return nil
	case 2*a.decided < a.asked:
		return fmt.Errorf("of %d checks%s after all had settled owners and heirs decided only %d", a.asked, what, a.decided)
	case a.allowed == 0:
		return fmt.Errorf("of %d checks%s after all had settled none was allowed", a.asked, what)
	}
	return nil
}

// Alive returns where nothing was decided that could be held against the promises:
// hardly any checks were made, or once all had settled owners and heirs decided fewer
// than half of them, or allowed none, of all or of those of one rule. What is allowed of
// a rule is judged where a window has passed since, since it may have been full.
func (c judges) Alive() []error {
	if len(c.Ops) < leastChecks {
		return []error{fmt.Errorf("only %d checks were made, which shows nothing: at least %d", len(c.Ops), leastChecks)}
	}
	if err := c.unasked(); err != nil {
		return []error{err}
	}
	settled := c.settled()
	if settled == 0 {
		return nil
	}
	var all alive
	of := make(map[string]*alive)
	for i := range c.Ops {
		o := &c.Ops[i]
		if o.Call < settled {
			continue
		}
		all.add(o)
		if of[o.Rule] == nil {
			of[o.Rule] = new(alive)
		}
		of[o.Rule].add(o)
	}
	if all.asked < leastSettled && c.End-settled >= 1_000_000 {
		return []error{fmt.Errorf("only %d checks were made after all had settled: at least %d", all.asked, leastSettled)}
	}
	if err := all.wrong(""); err != nil {
		return []error{err}
	}
	var out []error
	for i := range c.Rules {
		r := &c.Rules[i]
		if of[r.Name] == nil || !r.Once && c.End-settled <= r.Window {
			continue
		}
		if err := of[r.Name].wrong(" of " + r.Name); err != nil {
			out = append(out, err)
		}
	}
	return out
}

// leastEach is how many checks of each rule there must be on average for all rules to be
// asked about: clients draw each time which.
const leastEach = 50

// unasked returns that nobody asked about a rule, of which nothing is shown then.
func (c judges) unasked() error {
	if len(c.Ops) < leastEach*len(c.Rules) {
		return nil
	}
	asked := make(map[string]bool)
	for i := range c.Ops {
		asked[c.Ops[i].Rule] = true
	}
	for i := range c.Rules {
		if name := c.Rules[i].Name; !asked[name] {
			return fmt.Errorf("none of %d checks was of %s, of which nothing is shown", len(c.Ops), name)
		}
	}
	return nil
}

// settled is when all that was broken had settled, 0 if that was not seen.
func (h *History) settled() Micros {
	settled := Micros(0)
	for i := range h.Faults {
		settled = max(settled, h.Faults[i].Settled)
	}
	return settled
}
