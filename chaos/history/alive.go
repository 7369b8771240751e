package history

import "fmt"

// What a run must show of a cluster that works: so many checks in all, and so many
// once all is settled, if that is a second before the end.
const (
	leastChecks  = 50
	leastSettled = 20
)

// Alive returns where nothing was decided that could be held against the promises:
// hardly any checks were made, or once all had settled owners and heirs decided fewer
// than half of them, or allowed none.
func (h *History) Alive() []error {
	if len(h.Ops) < leastChecks {
		return []error{fmt.Errorf("only %d checks were made, which shows nothing: at least %d", len(h.Ops), leastChecks)}
	}
	settled := Micros(0)
	for i := range h.Faults {
		settled = max(settled, h.Faults[i].Settled)
	}
	if settled == 0 {
		return nil
	}
	asked, decided, allowed := 0, 0, 0
	for i := range h.Ops {
		o := &h.Ops[i]
		if o.Call < settled {
			continue
		}
		asked++
		if o.Counted() {
			decided++
			if o.Outcome == Allowed {
				allowed++
			}
		}
	}
	switch {
	case asked < leastSettled && h.End-settled >= 1_000_000:
		return []error{fmt.Errorf("only %d checks were made after all had settled: at least %d", asked, leastSettled)}
	case asked >= leastSettled && 2*decided < asked:
		return []error{fmt.Errorf("of %d checks after all had settled owners and heirs decided only %d", asked, decided)}
	case asked >= leastSettled && allowed == 0:
		return []error{fmt.Errorf("of %d checks after all had settled none was allowed", asked)}
	}
	return nil
}
