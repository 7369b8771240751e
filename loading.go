package weir

import (
	"log/slog"
	"slices"

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
