package weir

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/rules"
)

// apart returns a warning without its position, which changes with other rules.
func apart(w rules.Warning) rules.Warning {
	w.Line, w.Column = 0, 0
	return w
}

// maxLoggedRules bounds the warnings, and the names of removed rules, that are logged
// for one rules file. Beyond it only the number is logged.
const maxLoggedRules = 50

// logRules logs warnings about rules of a file that have just come into force, and which
// rules are gone. Of warnings that were logged for before it logs the number, since a file
// may be reloaded often. before is nil at the start.
func logRules(log *slog.Logger, file string, before, now *rules.Set) {
	warnings := now.Warnings()
	if before != nil {
		known := make(map[rules.Warning]bool)
		for _, w := range before.Warnings() {
			known[apart(w)] = true
		}
		all := len(warnings)
		warnings = slices.DeleteFunc(warnings, func(w rules.Warning) bool { return known[apart(w)] })
		if n := all - len(warnings); n > 0 {
			log.Warn("the rules file has probable mistakes that were logged before", "file", file, "mistakes", n)
		}
	}
	for i, w := range warnings {
		if i == maxLoggedRules {
			log.Warn("the rules file has more warnings", "file", file, "more", len(warnings)-i)
			break
		}
		log.Warn("the rules file has a probable mistake",
			slog.String("file", file), slog.Int("line", w.Line), slog.Int("column", w.Column), slog.String("rule", w.Rule),
			slog.String("warning", w.Text), slog.String("instead", w.Instead))
	}
	if before == nil {
		return
	}
	logBeginnings(log, file, before, now)
	gone := slices.DeleteFunc(names(before), func(name string) bool { return now.Rule(name) != nil })
	if len(gone) > 0 {
		log.Warn("the new rules file lacks rules or quotas that were in force: restore them if the file was cut off",
			"file", file, "gone", len(gone), "names", gone[:min(len(gone), maxLoggedRules)], "rules", now.Len())
	}
}

// names returns the names of all rules and quotas of a set.
func names(set *rules.Set) (out []string) {
	for _, r := range set.Rules() {
		out = append(out, r.Rule.Name)
	}
	for _, q := range set.Quotas() {
		out = append(out, q.Rule.Name)
	}
	return out
}

// warningsOnly is a handler of log records that leaves out what is not at least a warning.
type warningsOnly struct{ slog.Handler }

func (h warningsOnly) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && h.Handler.Enabled(ctx, l)
}

func (h warningsOnly) WithAttrs(a []slog.Attr) slog.Handler {
	return warningsOnly{h.Handler.WithAttrs(a)}
}

func (h warningsOnly) WithGroup(name string) slog.Handler {
	return warningsOnly{h.Handler.WithGroup(name)}
}

// counted is what identifies the counters of a rule or a quota, beside its name.
type counted struct {
	rule *limiter.Rule
	keys []string
}

// countersOf returns what each rule and quota of a set counts by.
func countersOf(set *rules.Set) map[string]counted {
	out := make(map[string]counted)
	add := func(r *limiter.Rule, keys [][]string) {
		c := counted{rule: r}
		for _, parts := range keys {
			c.keys = append(c.keys, "["+strings.Join(parts, ", ")+"]")
		}
		out[r.Name] = c
	}
	for _, r := range set.Rules() {
		add(r.Rule, r.Keys)
	}
	for _, q := range set.Quotas() {
		add(q.Rule, q.Keys)
	}
	return out
}

// logBeginnings logs for each rule and quota of two files which of its counters begin anew: each caller then has the
// whole limit once more in its window.
func logBeginnings(log *slog.Logger, file string, before, now *rules.Set) {
	had, logged := countersOf(before), 0
	have := countersOf(now)
	warn := func(text string, facts ...any) {
		if logged++; logged <= maxLoggedRules {
			log.Warn(text, facts...)
		}
	}
	for _, name := range names(now) {
		b, ok := had[name]
		n := have[name]
		if !ok || len(b.keys) == 0 || len(n.keys) == 0 {
			continue
		}
		facts := slices.Clip([]any{"file", file, "rule", name})
		limits := limitTexts(n.rule.Limits)
		fresh := slices.DeleteFunc(slices.Clone(n.keys), func(k string) bool { return slices.Contains(b.keys, k) })
		switch {
		case len(fresh) > 0:
			warn("the key of a rule has changed, so its counters begin anew: each caller has the whole limit once more",
				append(facts, "before", b.keys, "now", n.keys, "limits", limits)...)
			continue
		case b.rule.Class() != n.rule.Class():
			warn("on_unreachable of a rule has changed to or from closed, so its counters begin anew: each caller has the "+
				"whole limit once more", append(facts, "limits", limits)...)
			continue
		}
		named := func(all []*Limit, name string) *Limit {
			i := slices.IndexFunc(all, func(l *Limit) bool { return l.Name() == name })
			if i < 0 {
				return nil
			}
			return all[i]
		}
		lost := slices.ContainsFunc(b.rule.Limits, func(l *Limit) bool { return named(n.rule.Limits, l.Name()) == nil })
		for _, l := range n.rule.Limits {
			switch old := named(b.rule.Limits, l.Name()); {
			case old == nil && lost:
				warn("a limit of a rule has another name, so it counts anew: keep the name of the limit that it replaces",
					append(facts, "limit", l.Name(), "before", limitTexts(b.rule.Limits), "now", limits)...)
			case old != nil && l.Spec().Align == limiter.AlignFirstHit && old.Spec().Align == limiter.AlignFirstHit &&
				l.Window() != old.Window():
				warn("windows from the first hit have another length: those that are open begin anew with what was used in them",
					append(facts, "limit", l.Name(), "before", old.Window(), "now", l.Window())...)
			}
		}
	}
}

// limitTexts returns limits in the spelling of a rules file.
func limitTexts(all []*Limit) (out []string) {
	for _, l := range all {
		out = append(out, strconv.FormatUint(l.Limit(), 10)+"/"+l.Period())
	}
	return out
}
