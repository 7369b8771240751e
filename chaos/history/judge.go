package history

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// linearEach bounds the search for an order of the checks of one key, linearAll
// that of all: those that are left then are undecided.
const (
	linearEach = 5 * time.Second
	linearAll  = time.Minute
)

// Result is what is concluded from a history.
type Result struct {
	*History
	// Worst are the keys that came nearest to their bounds, one for each rule, Most
	// those that were over by most.
	Worst, Most []Worst
	Linear      Linear
	Figures     Figures
	// Uses are how much was admitted of each rule while nothing was broken.
	Uses []Used
	// Violations are promises that were broken.
	Violations []error
	// Void is why the trial shows little, empty if it does not: the nodes did not settle, and
	// the machine gave them no time to.
	Void string
}

// Over is the most that any key was admitted by owners and heirs beyond what it
// is promised without faults, and what that key may be with those of the run.
// Where several are over by as much, it is the one that may be the least.
func (r *Result) Over() (over, may int) {
	for i, w := range r.Most {
		if by := w.may(); i == 0 || w.Over() > over || w.Over() == over && by < may {
			over, may = w.Over(), by
		}
	}
	return over, may
}

// LeastUsed is the lowest percentage of what one counter would have admitted that was,
// of the rules of which that could be judged, while nothing was broken; and whether it
// could, of half of them at least.
func (r *Result) LeastUsed() (percent int, judged bool) {
	percent, of := 100, 0
	for i := range r.Uses {
		if u := &r.Uses[i]; u.Judged() {
			percent = min(percent, u.Percent())
			of++
		}
	}
	return percent, of > 0 && 2*of >= len(r.Uses)
}

// What tells what was broken.
func (r *Result) What() string {
	var all []string
	for i := range r.Faults {
		all = append(all, r.Faults[i].What)
	}
	return strings.Join(all, "; ")
}

// ErrUnsettled is among the violations of a run after or in which the nodes did not become
// one cluster again, or one of them ended by itself. No client saw it.
var ErrUnsettled = errors.New("not one cluster again")

// ErrInterrupted is among the violations of a trial that was not made to its end, of
// which nothing else that is found, or is not, says much.
var ErrInterrupted = errors.New("the trial was not made to its end")

// mostlyStood is for which part of a time, in percent, something stood still where nodes that
// did not settle in it are not to blame.
const mostlyStood = 90

// Judge draws the conclusions from a history.
func Judge(h *History) *Result { return judge(h, linearEach) }

// judges are the questions whether what is promised was kept. Each returns what was not.
type judges struct{ *analysis }

func (h *History) judges() judges { return judges{h.analysis()} }

// judge gives the search for an order of the checks of one key so long.
func judge(h *History, each time.Duration) *Result {
	all, slow := h.judges(), h.Allows.slowed(h).judges()
	r := &Result{History: h, Figures: h.Figures(), Uses: slow.Uses()}
	r.Worst, r.Most, r.Violations = all.Bounds()
	var bad []error
	r.Linear, bad = all.Linearizable(each)
	r.Violations = slices.Concat(r.Violations, bad, all.Conserved(), all.Merged(), all.Answered(), slow.FalseDenials(),
		slow.FalseDenialsOfSeveral(), all.NeedlessTakeovers(), all.Alive(), slow.Used(), all.FaultLatency(), all.Served(),
		all.Recovered(), all.Undisturbed())
	if h.Unsettled == "" || h.Interrupted == "" { // else the nodes kept the fault from being made
		r.Violations = append(r.Violations, all.FaultsSeen()...)
	}
	if stood := h.stoodSince(h.End - h.Waited); h.Unsettled != "" && h.Waited > 0 && stood >= mostlyStood {
		r.Void = fmt.Sprintf("%s, and for %d %% of that time the machine or a node stood still, or just had", h.Unsettled,
			stood)
		return r
	}
	if h.Unsettled != "" {
		r.Violations = append(r.Violations, fmt.Errorf("%w: %s", ErrUnsettled, h.Unsettled))
	}
	if h.Interrupted != "" {
		r.Violations = append(r.Violations, fmt.Errorf("%w: %s", ErrInterrupted, h.Interrupted))
	}
	return r
}

// slowed is the history by the slowest clock that nodes may have: each window lasts as much longer for clients as the
// clock goes slower, so that units may come back later, and never sooner.
func (a Allows) slowed(h *History) *History {
	if a.Slow == 0 {
		return h
	}
	slow := *h
	slow.Rules = slices.Clone(h.Rules)
	for i := range slow.Rules {
		slow.Rules[i].Window = slow.Rules[i].Window * Micros(a.Slow) / Micros(a.Slow-1)
	}
	return &slow
}
