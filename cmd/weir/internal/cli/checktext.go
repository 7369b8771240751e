package cli

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir/cmd/weir/internal/term"
	"github.com/weirlimit/weir/limiter"
)

func (a *app) printChecks(all []checked, o checkOptions) error {
	if o.json {
		if o.explain {
			list := make([]*limiter.Explanation, len(all))
			for i, c := range all {
				list[i] = c.explanation
			}
			return a.printJSON(oneOrAll(list))
		}
		list := make([]limiter.Answer, len(all))
		for i, c := range all {
			list[i] = c.answer
		}
		return a.printJSON(oneOrAll(list))
	}
	var out bytes.Buffer
	for i, c := range all {
		if i > 0 && o.explain {
			out.WriteByte('\n')
		}
		w := checkWriter{out: &out, style: a.OutStyle}
		if len(all) > 1 {
			w.line("%s", w.style.Dim(fmt.Sprintf("check %d at %s", i+1, c.at.UTC().Format("2006-01-02T15:04:05.000000Z"))))
		}
		if c.explanation != nil {
			w.explanation(c.explanation)
		}
		w.answer(&c.answer)
	}
	if path := o.path; len(all) > 0 && !strings.HasPrefix(path, "/") && all[len(all)-1].answer.Rule == "" {
		a.say("note: the path %q does not begin with /, as those of HTTP do: did you mean /%s?\n", term.Clean(path),
			term.Clean(path))
	}
	return a.print(out.Bytes())
}

type checkWriter struct {
	out   *bytes.Buffer
	style term.Style
}

func (w *checkWriter) line(format string, args ...any) { fmt.Fprintf(w.out, format+"\n", args...) }

// answer writes one line for the decision and one for each limit.
func (w *checkWriter) answer(a *limiter.Answer) {
	verdict := w.verdict(a)
	if a.Repeated {
		verdict += "; its id was used before, so nothing was charged"
	}
	w.line("%s", verdict)
	if a.ZoneDefault != "" {
		w.line("  %s is counted by its default time zone, since the attribute of the request names none of the time zone "+
			"database", a.ZoneDefault)
	}
	for _, l := range a.Limits {
		text := fmt.Sprintf("  %s  %s  %d of %d left", term.Clean(l.Key), l.Name, l.Remaining, cmp.Or(l.Capacity, l.Limit))
		switch {
		case l.Overflow:
			w.line("  %s  %s  not counted: %s", term.Clean(l.Key), l.Name, noRoom(a, &l))
			continue
		case l.InForce != 0 && l.Capacity != 0: // the burst is scaled like the limit
			text = fmt.Sprintf("  %s  %s  %d left, by a share: %d of %d per window", term.Clean(l.Key), l.Name, l.Remaining,
				l.InForce, l.Limit)
		case l.InForce != 0:
			text = fmt.Sprintf("  %s  %s  %d of %d left, a share of %d", term.Clean(l.Key), l.Name, l.Remaining, l.InForce,
				l.Limit)
		}
		if l.ResetAfterMs > 0 {
			text += ", full again in " + millis(l.ResetAfterMs)
		}
		w.line("%s", text+w.notes(&l))
	}
}

// noRoom says why a counter of a check could not be kept, and what became of the check.
func noRoom(a *limiter.Answer, l *limiter.LimitAnswer) string {
	const text = "the node's table is full (--max-keys, --max-bytes, max_share)"
	switch {
	case a.Allowed:
		return text + ", and it allows new keys"
	case l.RetryAfterMs != nil:
		return text + "; room is expected in " + millis(*l.RetryAfterMs)
	}
	return text
}

// full reports whether a check was denied only because a table is full.
func full(a *limiter.Answer) bool {
	return slices.ContainsFunc(a.Limits, func(l limiter.LimitAnswer) bool { return l.Name == a.BlockedBy && l.Overflow })
}

func (w *checkWriter) verdict(a *limiter.Answer) string {
	switch {
	case a.Allowed && a.Rule == "":
		return w.style.Green("allowed") + ": no rule matches"
	case a.Overridden && a.Allowed && len(a.Limits) == 0:
		return fmt.Sprintf("%s by an override of rule %s, without a limit", w.style.Green("allowed"), a.Rule)
	case a.Overridden && a.Deny != nil:
		return fmt.Sprintf("%s by an override of rule %s, with status %d", w.style.Red("denied"), a.Rule, a.Deny.Status)
	case a.Allowed && len(a.Limits) == 0:
		return fmt.Sprintf("%s by rule %s, which has no limits", w.style.Green("allowed"), a.Rule)
	case a.ShadowDenied && a.Allowed:
		return fmt.Sprintf("%s by rule %s; a shadow rule would deny it", w.style.Green("allowed"), a.Rule)
	case a.Allowed:
		return fmt.Sprintf("%s by rule %s", w.style.Green("allowed"), a.Rule)
	case a.Deny != nil:
		text := fmt.Sprintf("%s by rule %s, which denies each request that it matches, with status %d", w.style.Red("denied"),
			a.Rule, a.Deny.Status)
		if a.Deny.Reason != "" {
			text += ": " + a.Deny.Reason
		}
		return text
	case a.Never:
		return fmt.Sprintf("%s by %s: it can never be allowed, because it costs more than the limit holds",
			w.style.Red("denied"), blocker(a))
	}
	if full(a) {
		return fmt.Sprintf("%s: the table has no room for a new counter of %s", w.style.Red("denied"), blocker(a))
	}
	text := fmt.Sprintf("%s by %s", w.style.Red("denied"), blocker(a))
	if a.RetryAfterMs != nil {
		text += ", retry in " + millis(*a.RetryAfterMs)
	}
	return text
}

// blocker names the limit that denied, and for a quota the rule that draws on it.
func blocker(a *limiter.Answer) string {
	if a.DrawnBy == "" {
		return a.BlockedBy
	}
	return a.BlockedBy + ", a quota on which rule " + a.DrawnBy + " draws"
}

// notes returns remarks on a limit's answer.
func (w *checkWriter) notes(l *limiter.LimitAnswer) string {
	var notes []string
	if l.RetryAfterMs != nil {
		notes = append(notes, "retry in "+millis(*l.RetryAfterMs))
	}
	if l.Never {
		notes = append(notes, "never")
	}
	if l.Blocked {
		notes = append(notes, "blocked")
	}
	if l.Shadow {
		notes = append(notes, "in shadow")
	}
	if len(notes) == 0 {
		return ""
	}
	return "; " + strings.Join(notes, ", ")
}

// explanation writes the state of each counter and the deciding comparison.
func (w *checkWriter) explanation(e *limiter.Explanation) {
	for _, l := range e.Limits {
		w.line("%s  %s  %s", w.style.Bold(term.Clean(l.Key)), term.Clean(l.Name), term.Clean(l.Limit))
		switch {
		case l.Owner != "" && l.ToldBy != l.Owner:
			w.line("  owned by %s; told by %s, its heir", term.Clean(l.Owner), term.Clean(l.ToldBy))
		case l.Owner != "":
			w.line("  owned and told by %s", term.Clean(l.Owner))
		}
		if !l.Known {
			w.line("  nothing counted yet")
		}
		for _, f := range l.State {
			w.line("  %s: %s", term.Clean(f.Name), term.Clean(f.Value))
		}
		for _, c := range l.Counts {
			if c.Count > 0 {
				w.line("  %s  %d", c.Start.Time().Format("2006-01-02T15:04:05.000000Z"), c.Count)
			}
		}
		w.line("  %s", term.Clean(l.Arithmetic))
	}
	for _, c := range e.Commands {
		w.line("%s", w.style.Bold("the same decision, by a shell:"))
		for line := range strings.Lines(c) {
			if w.style.Terminal {
				line = term.Clean(strings.TrimSuffix(line, "\n")) + "\n"
			}
			w.out.WriteString(line)
		}
		w.out.WriteByte('\n')
	}
}

func millis(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }
