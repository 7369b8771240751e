package console

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/weirlimit/weir/internal/denials"
	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/transport"
)

// compared is what another rules file would change.
type compared struct {
	File     string                  `json:"-"`
	Problems []string                `json:"problems,omitempty"`
	Changes  []string                `json:"changes,omitempty"`
	Warnings []transport.RuleWarning `json:"warnings,omitempty"`
	Rows     []comparedRow           `json:"rows,omitempty"`
	// Allowed and Refused are how many of the recorded refusals would have been allowed, and how many not.
	Allowed uint64 `json:"newly_allowed"`
	Refused uint64 `json:"still_refused"`
}

// comparedRow is a key with its recorded refusals, and what the other file would have done with them.
type comparedRow struct {
	Key     string `json:"key"`
	Rule    string `json:"rule"`
	Count   uint64 `json:"refused"`
	NewRule string `json:"new_rule"`
	Allowed uint64 `json:"newly_allowed"`
	Says    string `json:"says"`
}

// errComparing bounds what comparing takes: one is made at a time.
var errComparing = fmt.Errorf("%w: another file is being compared: try again in a second", frontend.ErrBudget)

// maxFileBytes bounds a pasted rules file.
const maxFileBytes = 256 << 10

// serveCompare shows what a pasted rules file would change. It reads only.
func (c *Console) serveCompare(w http.ResponseWriter, r *http.Request, by transport.AdminCaller) {
	err := by.Err
	if err == nil {
		err = by.MayAll()
	}
	if err != nil {
		c.page(w, r, &by, "sign-in", statusOf(err), err.Error())
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, 3*maxFileBytes)
	err = r.ParseForm()
	if err == nil {
		err = c.marked(r, &by)
	}
	if err == nil {
		if !c.comparing.TryLock() {
			err = errComparing
		} else {
			defer c.comparing.Unlock()
		}
	}
	file := r.PostForm.Get("file")
	if err == nil && len(file) > maxFileBytes {
		err = invalid("the file has %d bytes: at most %d are compared", len(file), maxFileBytes)
	}
	p := pageNamed("rules")
	var l *look
	if err == nil {
		l, err = c.fill(r.Context(), p, nil, &by)
	}
	if err == nil {
		l.Rules.Compare, err = c.compare(r, strings.ReplaceAll(file, "\r\n", "\n"))
	}
	if err != nil {
		c.page(w, r, &by, "problem", http.StatusBadRequest, err.Error())
		return
	}
	c.write(w, http.StatusOK, p.name, c.shownOf(r, &by, p, l))
}

func (c *Console) compare(r *http.Request, file string) (*compared, error) {
	out := &compared{File: file}
	set, err := rules.Parse("pasted", []byte(file), rules.Options{})
	if err != nil {
		var all *rules.Error
		if errors.As(err, &all) {
			out.Problems = strings.Split(strings.TrimPrefix(err.Error(), limiter.ErrInvalid.Error()+": "), "\n")
			return out, nil
		}
		return nil, err
	}
	out.Changes = changes(linesOf(c.config.Node().Rules()), linesOf(set.Rules()))
	if set.Hash() == c.config.Node().RulesHash() {
		out.Changes = []string{"nothing: it means the same"}
	}
	for _, w := range set.Warnings() {
		out.Warnings = append(out.Warnings, transport.RuleWarning{Line: w.Line, Text: w.Text})
	}
	d, err := c.recent(r.Context())
	if err != nil {
		return nil, err
	}
	minutes := 0
	for i := range d.Keys {
		minutes += len(d.Keys[i].Minutes)
	}
	each := uint64(min(maxReplayed, maxReplayedInAll/max(1, minutes)))
	for i := range d.Keys {
		if err := r.Context().Err(); err != nil {
			return nil, err
		}
		if row, ok := again(set, &d.Keys[i], max(1, each)); ok {
			out.Rows = append(out.Rows, row)
			out.Allowed += row.Allowed
			out.Refused += row.Count - row.Allowed
		}
	}
	return out, nil
}

// again decides the recorded minutes of a key anew, by other rules. In each minute with refusals it is taken that the
// key asked evenly: for what was refused, and before that for what the limit in force admits. most bounds the checks
// of each minute.
func again(set *rules.Set, k *denials.Key, most uint64) (row comparedRow, ok bool) {
	if len(k.Samples) == 0 || k.Samples[0].Path == "" {
		return row, false // without names nothing can be decided again
	}
	s := &k.Samples[len(k.Samples)-1]
	row = comparedRow{Key: k.Key, Rule: k.Rule, Count: k.Count}
	var charge arith.Charge
	m, err := set.Resolve(&limiter.Request{Path: s.Path, Method: s.Method, User: s.User, IP: s.IP, Tenant: k.Tenant},
		&charge)
	switch {
	case err != nil:
		row.Says = "the request would be an error"
		return row, true
	case m.Outcome.Has(rules.Denied):
		row.NewRule, row.Says = m.Rule, "denied by the rule"
		return row, true
	case charge.Len() == 0:
		row.NewRule, row.Allowed, row.Says = m.Rule, k.Count, "no limit"
		return row, true
	}
	row.NewRule = m.Rule
	for _, minute := range k.Minutes {
		row.Allowed += minuteAgain(&charge, minute, s, most)
	}
	row.Allowed = min(row.Allowed, k.Count)
	switch row.Allowed {
	case 0:
		row.Says = "still refused"
	case k.Count:
		row.Says = "all allowed"
	default:
		row.Says = "some allowed"
	}
	return row, true
}

// Bounds of the checks that are made again: of a minute, and of one comparison.
const (
	maxReplayed      = 20_000
	maxReplayedInAll = 2_000_000
)

// mostAsked bounds what a member says of a minute.
const mostAsked = 1 << 40

// minuteAgain returns how many more checks of a minute the limits of a charge admit than were admitted.
func minuteAgain(charge *arith.Charge, m denials.Minute, s *denials.Taken, most uint64) uint64 {
	asked := min(m.Count, mostAsked) + min(max(1, s.Capacity), mostAsked)
	n := min(asked, most)
	var all []*arith.Counter
	for i := range charge.Len() {
		if charge.Key(i).Rule.Shadow {
			continue
		}
		for _, l := range charge.Key(i).Rule.Limits {
			if l.Algorithm() != limiter.Concurrency {
				all = append(all, arith.NewCounter(l))
			}
		}
	}
	var d limiter.Decision
	admitted := uint64(0)
	for i := range n {
		now := limiter.TickOf(m.At) + limiter.Tick(i)*limiter.Minute/limiter.Tick(n)
		may := true
		for _, c := range all {
			c.Peek(now, max(1, s.Cost), &d)
			may = may && d.Allowed
		}
		if !may {
			continue
		}
		admitted++
		for _, c := range all {
			c.Check(now, max(1, s.Cost), &d)
		}
	}
	admitted = admitted * asked / n
	if was := max(1, s.Capacity); admitted > was {
		return admitted - was
	}
	return 0
}

// Total is how many refusals were decided again.
func (c *compared) Total() uint64 { return c.Allowed + c.Refused }
