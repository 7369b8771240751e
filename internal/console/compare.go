package console

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

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
	// Allowed and Still are how many of the recorded refusals would have been allowed, and how many not. Refused is how
	// many checks of the same keys, in the same minutes, were allowed and would have been refused.
	Allowed uint64 `json:"newly_allowed"`
	Still   uint64 `json:"still_refused"`
	Refused uint64 `json:"newly_refused"`
}

// comparedRow is a key with its recorded refusals, and what the other file would have done with them.
type comparedRow struct {
	Key     string `json:"key"`
	Rule    string `json:"rule"`
	Count   uint64 `json:"refused"`
	NewRule string `json:"new_rule"`
	Allowed uint64 `json:"newly_allowed"`
	Refused uint64 `json:"newly_refused"`
	Says    string `json:"says"`
}

// errComparing bounds what comparing takes: one is made at a time.
var errComparing = fmt.Errorf("%w: another file is being compared: try again in a second", frontend.ErrBudget)

// maxFileBytes bounds a pasted rules file.
const maxFileBytes = 256 << 10

// serveCompare shows what a pasted rules file would change. It reads only.
func (s *site) serveCompare(w http.ResponseWriter, r *http.Request, by transport.AdminCaller) {
	err := by.Err
	if err == nil {
		err = by.MayAll()
	}
	if err != nil {
		s.page(w, r, &by, "sign-in", statusOf(err), err.Error())
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, 3*maxFileBytes)
	err = r.ParseForm()
	if err == nil {
		err = s.marked(r, &by)
	}
	if err == nil {
		if !s.comparing.TryLock() {
			err = errComparing
		} else {
			defer s.comparing.Unlock()
		}
	}
	file := r.PostForm.Get("file")
	if err == nil && len(file) > maxFileBytes {
		err = invalid("the file has %d bytes: at most %d are compared", len(file), maxFileBytes)
	}
	p := pageNamed("rules")
	var l *look
	if err == nil {
		l, err = s.fill(r.Context(), p, nil, &by)
	}
	if err == nil {
		l.Rules.Compare, err = s.console.compare(r, strings.ReplaceAll(file, "\r\n", "\n"))
	}
	if err != nil {
		s.page(w, r, &by, "problem", http.StatusBadRequest, err.Error())
		return
	}
	s.write(w, http.StatusOK, p.name, s.shownOf(r, &by, p, l))
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
	for _, w := range set.Warnings() {
		out.Warnings = append(out.Warnings, transport.RuleWarning{Line: w.Line, Text: w.Text})
	}
	if set.Hash() == c.config.Node().RulesHash() {
		out.Changes = []string{"nothing: it means the same"}
		return out, nil
	}
	x := replaying{set: set}
	x.had, _ = rules.Parse("rules", c.config.Node().RulesFile(), rules.Options{})
	d, err := c.recent(r.Context())
	if err != nil {
		return nil, err
	}
	minutes := 0
	for i := range d.Keys {
		minutes += len(d.Keys[i].Minutes)
	}
	x.most = uint64(max(1, min(maxReplayed, maxReplayedInAll/max(1, minutes))))
	for i := range d.Keys {
		if err := r.Context().Err(); err != nil {
			return nil, err
		}
		if row, ok := x.again(&d.Keys[i]); ok {
			out.Rows = append(out.Rows, row)
			out.Allowed += row.Allowed
			out.Still += row.Count - row.Allowed
			out.Refused += row.Refused
		}
	}
	return out, nil
}

// replaying decides recorded minutes anew, by the rules of set. had are those in force, nil if they cannot be read.
// most bounds the checks of one minute.
type replaying struct {
	set, had *rules.Set
	most     uint64
}

// again decides the recorded minutes of a key anew. In each minute with refusals it is taken that the key asked evenly:
// for what was refused, and for all that the rules in force admit.
func (x *replaying) again(k *denials.Key) (row comparedRow, ok bool) {
	if len(k.Samples) == 0 || k.Samples[0].Path == "" {
		return row, false // without names nothing can be decided again
	}
	s := &k.Samples[len(k.Samples)-1]
	row = comparedRow{Key: k.Key, Rule: k.Rule, Count: k.Count}
	q := limiter.Request{Path: s.Path, Method: s.Method, User: s.User, IP: s.IP, Tenant: k.Tenant}
	var had, then arith.Charge
	if x.had != nil {
		if _, err := x.had.Resolve(&q, &had); err != nil {
			had = arith.Charge{}
		}
	}
	m, err := x.set.Resolve(&q, &then)
	if err != nil {
		row.Says = "the request would be an error"
		return row, true
	}
	row.NewRule = m.Rule
	deny := m.Outcome.Has(rules.Denied)
	for _, minute := range k.Minutes {
		was := max(1, s.Capacity/max(1, s.Cost)) // were admitted, if the rules in force do not say better
		if n := admitted(&had, minute.At, s, x.most, x.most); had.Len() > 0 && n < x.most {
			was = n
		}
		is := uint64(0)
		if !deny {
			is = admitted(&then, minute.At, s, min(minute.Count, mostAsked)+min(was, mostAsked), x.most)
		}
		if is > was {
			row.Allowed += is - was
		} else {
			row.Refused += was - is
		}
	}
	row.Allowed = min(row.Allowed, k.Count)
	switch {
	case deny:
		row.Says = "denied by the rule"
	case then.Len() == 0:
		row.Says = "no limit"
	case row.Allowed == k.Count:
		row.Says = "all allowed"
	case row.Allowed > 0:
		row.Says = "some allowed"
	case row.Refused > 0:
		row.Says = "more refused"
	default:
		row.Says = "still refused"
	}
	if by := x.chosenBy(m.Rule); by != "" {
		row.Says += "; by the limit of else, as " + by + " is not recorded"
	}
	return row, true
}

// chosenBy returns the attribute, or group, that chooses the numbers of a rule; empty if what does is recorded.
func (x *replaying) chosenBy(rule string) string {
	for _, r := range x.set.Rules() {
		if by := r.Numbers.By; r.Rule.Name == rule && by != "user" && by != "tenant" {
			return by
		}
	}
	return ""
}

// Bounds of the checks that are made again: of a minute, and of one comparison.
const (
	maxReplayed      = 20_000
	maxReplayedInAll = 2_000_000
)

// mostAsked bounds what a member says of a minute.
const mostAsked = 1 << 40

// admitted returns how many of the checks of a minute, asked for evenly, the limits of a charge admit. At most most of
// them are made, and stand for all.
func admitted(charge *arith.Charge, at time.Time, s *denials.Taken, asked, most uint64) uint64 {
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
	admits := uint64(0)
	for i := range n {
		now := limiter.TickOf(at) + limiter.Tick(i)*limiter.Minute/limiter.Tick(n)
		may := true
		for _, c := range all {
			c.Peek(now, max(1, s.Cost), &d)
			may = may && d.Allowed
		}
		if !may {
			continue
		}
		admits++
		for _, c := range all {
			c.Check(now, max(1, s.Cost), &d)
		}
	}
	return admits * asked / max(1, n)
}

// Total is how many refusals were decided again.
func (c *compared) Total() uint64 { return c.Allowed + c.Still }
