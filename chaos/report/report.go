// Package report writes what came of runs of chaos, for people: a page of
// Markdown with a table of all faults, and a picture of one trial of each.
package report

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir/chaos/history"
)

// Report collects the trials of a run. It is not safe for concurrent use.
type Report struct {
	// Title, and what is to be said of machine and command.
	Title, About string
	// Left is what the ground did not allow, and why.
	Left []Left
	// Soak is what one node needed over time, where one was soaked.
	Soak []Sample
	// Ended is why the run was not made to its end, empty if it was, and Missed are the
	// scenarios that were not, or not wholly, tried then.
	Ended  string
	Missed []string
	rows   []*row
}

// Empty tells that there is nothing to report.
func (r *Report) Empty() bool { return len(r.rows) == 0 && len(r.Soak) == 0 && r.Ended == "" }

// Left is scenarios that were left out for one reason.
type Left struct {
	Why   string
	Names []string
}

// LeaveOut adds a scenario that was left out.
func (r *Report) LeaveOut(name, why string) {
	for i := range r.Left {
		if r.Left[i].Why == why {
			r.Left[i].Names = append(r.Left[i].Names, name)
			return
		}
	}
	r.Left = append(r.Left, Left{Why: why, Names: []string{name}})
}

// Sample is what a node needed at an instant of a soak.
type Sample struct {
	At                     time.Duration
	Goroutines, FDs, Bytes float64
	// Parked checks, Withheld replies, Waiting operations and Queued frames wait for
	// something, as do the Unacknowledged cost of a key and Sealed partitions.
	Parked, Withheld, Waiting, Queued, Unacknowledged, Sealed float64
	// Keys are all counters, copies included, Fallback those of policies. They grow with
	// each mix, whose keys last for a day.
	Keys, Fallback float64
}

// row is the trials of one scenario.
type row struct {
	name, about string
	trials      []trial
	shown       *history.Result // the trial that is drawn
}

// trial is what is kept of one.
type trial struct {
	seed                        uint64
	figures                     history.Figures
	over, may, used             int
	useJudged                   bool
	worst                       []history.Worst
	keys, undecided, violations int
	wrong                       []string // the first of the violations
	void                        string
	stalled                     bool
}

// Add adds a trial of a scenario.
func (r *Report) Add(name, about string, of *history.Result) {
	i := slices.IndexFunc(r.rows, func(w *row) bool { return w.name == name })
	if i < 0 {
		i = len(r.rows)
		r.rows = append(r.rows, &row{name: name, about: about})
	}
	w := r.rows[i]
	t := trial{
		seed: of.Seed, figures: of.Figures, worst: of.Worst, keys: of.Linear.Keys, undecided: of.Linear.Undecided,
		violations: len(of.Violations), stalled: of.Stood(),
	}
	t.used, t.useJudged = of.LeastUsed()
	for _, v := range of.Violations[:min(mostTold, len(of.Violations))] {
		t.wrong = append(t.wrong, v.Error())
	}
	t.void = of.Void
	t.over, t.may = of.Over()
	if w.shown == nil || t.violations > 0 {
		w.shown = of
	}
	w.trials = append(w.trials, t)
}

// Write writes the page, and the pictures beside it in a directory of its name.
func (r *Report) Write(page string) error {
	pictures := page[:len(page)-len(filepath.Ext(page))]
	if err := os.MkdirAll(pictures, 0o755); err != nil {
		return err
	}
	for _, w := range r.rows {
		if err := toFile(filepath.Join(pictures, w.name+".svg"), func(to io.Writer) error {
			return draw(to, w.shown)
		}); err != nil {
			return err
		}
	}
	return toFile(page, func(to io.Writer) error { return r.page(to, filepath.Base(pictures)) })
}

func toFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		_ = f.Close() // the first error says more
		return err
	}
	return f.Close()
}

// page writes the Markdown.
func (r *Report) page(to io.Writer, pictures string) error {
	p := &printer{to: to}
	p.f("# %s\n\n%s\n\n", r.Title, r.About)
	if r.Ended != "" {
		p.f("**The run was not made to its end**: %s.\n\n", oneLine(r.Ended))
	}
	if len(r.Missed) > 0 {
		p.f("Not, or not wholly, tried: %s.\n\n", strings.Join(r.Missed, ", "))
	}
	r.sums(p)
	for _, l := range r.Left {
		p.f("Left out, since %s: %s.\n\n", l.Why, strings.Join(l.Names, ", "))
	}
	if len(r.rows) > 0 {
		r.table(p)
	}
	r.broken(p)
	r.soak(p)
	for _, w := range r.rows {
		p.f("## %s\n\n%s. Drawn is seed %d: %s.\n\n![%s](%s/%s.svg)\n\n", w.name, w.about, w.shown.Seed, w.shown.What(),
			w.name, pictures, w.name)
		w.worst(p)
	}
	return p.err
}

// sums writes what the trials came to, and how much they can tell.
func (r *Report) sums(p *printer) {
	var trials, bad, stalled, mostly, keys, undecided int
	for _, w := range r.rows {
		for i := range w.trials {
			t := &w.trials[i]
			trials++
			keys += t.keys
			undecided += t.undecided
			if t.violations > 0 {
				bad++
			}
			if t.stalled {
				stalled++
			}
			if t.figures.Excused > 50 {
				mostly++
			}
		}
	}
	p.f("%d trials, %d in which a promise was broken. In %d the machine or a node had no processor time for 50 ms or "+
		"more,\nwhat was slow then is excused; in %d of them "+
		"that is more than half of the time, and they show little but bounds.\nAn order in which one counter could have "+
		"decided them was looked for of the checks of %d keys", trials, bad, stalled, mostly, keys)
	if undecided > 0 {
		p.f("; of %d that took too long to tell", undecided)
	}
	p.f(".\n\n")
	for _, w := range r.rows {
		for i := range w.trials {
			if t := &w.trials[i]; t.void != "" {
				p.f("Void is `%s-%d`, of which little is shown: %s.\n\n", w.name, t.seed, oneLine(t.void))
			}
		}
	}
}

// mostTold is how many broken promises of one trial are written out.
const mostTold = 8

// broken writes what was, with the names of the histories.
func (r *Report) broken(p *printer) {
	first := true
	for _, w := range r.rows {
		for i := range w.trials {
			t := &w.trials[i]
			if t.violations == 0 {
				continue
			}
			if first {
				p.f("## What was broken\n\nThe histories and logs are beside this page, by these names.\n\n")
				first = false
			}
			p.f("- `%s-%d`\n", w.name, t.seed)
			for _, v := range t.wrong {
				p.f("  - %s\n", oneLine(v))
			}
			if n := t.violations - len(t.wrong); n > 0 {
				p.f("  - and %d more, which `-judge` tells\n", n)
			}
		}
	}
	if !first {
		p.f("\n")
	}
}

// oneLine makes a line of a text of several.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// table writes a line for each scenario.
func (r *Report) table(p *printer) {
	p.f("| fault | trials | broken | over by | of | by policy | unknown | refused | fault latency | recovered | " +
		"converged | used | excused | checks |\n")
	p.f("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, w := range r.rows {
		w.line(p)
	}
	p.f("\n%s\n", legend)
}

// soak writes what a node needed over time.
func (r *Report) soak(p *printer) {
	if len(r.Soak) == 0 {
		return
	}
	p.f("## What one node needed over time\n\nA node whose process was never ended, after each mix, when all had " +
		"settled and nobody asked.\n\n")
	p.f("| after | goroutines | file descriptors | MB of memory | checks parked | replies withheld | operations waiting " +
		"| frames queued | unacknowledged | sealed | counters | of policies |\n")
	p.f("|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, s := range r.Soak {
		p.f("| %v | %.0f | %.0f | %.1f | %.0f | %.0f | %.0f | %.0f | %.0f | %.0f | %.0f | %.0f |\n", s.At.Round(time.Second),
			s.Goroutines, s.FDs, s.Bytes/1e6,
			s.Parked, s.Withheld, s.Waiting, s.Queued, s.Unacknowledged, s.Sealed, s.Keys, s.Fallback)
	}
	p.f("\n")
}

const legend = `*Over by*: the most units that owners and heirs admitted to one key in one window beyond what is promised without
faults, and *of* how many units that key may be over by, given the faults and the takeovers that were seen. *By policy*, *unknown*
and *refused*: checks that a policy answered (which has its own bound), that were never answered, and that a node did not
take. *Fault latency*: until when after the fault's beginning a check at a node that it did not touch had no answer, or a policy's.
*Recovered* and *converged*: until when after the fault's end any check had, and until all nodes saw each other and held
what they should. *Used*: what was admitted while nothing was broken, of what one counter of each key would have admitted
of the same checks, of the rule where that is least, and in how many trials enough was asked for to tell of half of the
rules, if not in all; "-" if in none. *Excused*: the part of the time in which less is held against the nodes, since
they or the machine stood still, in the trial where it is most. Each is the worst of the trials, the counts are the sums.
`

// line writes the scenario's line of the table.
func (w *row) line(p *printer) {
	var sum history.Figures
	over, may, bad := 0, 0, 0
	used, judged := 100, 0
	for i := range w.trials {
		t := &w.trials[i]
		sum.Asked += t.figures.Asked
		sum.ByPolicy += t.figures.ByPolicy
		sum.Unknown += t.figures.Unknown
		sum.Refused += t.figures.Refused
		sum.FaultLatency = max(sum.FaultLatency, t.figures.FaultLatency)
		sum.Recovered = max(sum.Recovered, t.figures.Recovered)
		sum.Converged = max(sum.Converged, t.figures.Converged)
		sum.Excused = max(sum.Excused, t.figures.Excused)
		if t.useJudged {
			used = min(used, t.used)
			judged++
		}
		if i == 0 || t.over > over || t.over == over && t.may < may {
			over, may = t.over, t.may
		}
		if t.violations > 0 {
			bad++
		}
	}
	of := "-"
	switch {
	case judged == len(w.trials):
		of = fmt.Sprintf("%d %%", used)
	case judged > 0:
		of = fmt.Sprintf("%d %% in %d", used, judged)
	}
	p.f("| [%s](#%s) | %d | %d | %d | %d | %d | %d | %d | %v | %v | %v | %s | %d %% | %d |\n", w.name, w.name,
		len(w.trials), bad, over, may,
		sum.ByPolicy, sum.Unknown, sum.Refused, short(sum.FaultLatency), short(sum.Recovered), short(sum.Converged), of,
		sum.Excused, sum.Asked)
}

// worst writes, for each rule, the key that came nearest to its bound.
func (w *row) worst(p *printer) {
	var all []history.Worst
	for _, t := range w.trials {
		for _, x := range t.worst {
			i := slices.IndexFunc(all, func(y history.Worst) bool { return y.Rule == x.Rule })
			switch {
			case i < 0:
				all = append(all, x)
			case x.Admitted-x.Bound > all[i].Admitted-all[i].Bound:
				all[i] = x
			}
		}
	}
	slices.SortFunc(all, func(a, b history.Worst) int { return cmp.Compare(a.Rule, b.Rule) })
	p.f("| rule | admitted in the worst window | without faults | bound | takeovers seen |\n|---|--:|--:|--:|--:|\n")
	for _, x := range all {
		p.f("| %s | %d | %d | %d | %d |\n", x.Rule, x.Admitted, x.Promised, x.Bound, x.Takeovers)
	}
	p.f("\n")
}

// printer keeps the first error.
type printer struct {
	to  io.Writer
	err error
}

func (p *printer) f(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.to, format, args...)
	}
}

func short(m history.Micros) time.Duration { return m.Duration().Round(time.Millisecond) }
