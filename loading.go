package weir

import (
	"log/slog"

	"github.com/weirlimit/weir/rules"
)

// maxLoggedRules bounds the warnings, and the names of removed rules, that are logged
// for one rules file. Beyond it only the number is logged.
const maxLoggedRules = 50

// logRules logs warnings about rules that have just come into force, and which rules
// are gone. before is nil at the start.
func (n *Node) logRules(before, now *rules.Set) {
	warnings := now.Warnings()
	for i, w := range warnings {
		if i == maxLoggedRules {
			n.log.Warn("the rules file has more warnings", "file", n.file, "more", len(warnings)-i)
			break
		}
		n.log.Warn("the rules file has a probable mistake",
			slog.String("file", n.file), slog.Int("line", w.Line), slog.Int("column", w.Column), slog.String("rule", w.Rule),
			slog.String("warning", w.Text), slog.String("instead", w.Instead))
	}
	if before == nil {
		return
	}
	var gone []string
	for _, r := range before.Rules() {
		if now.Rule(r.Rule.Name) == nil {
			gone = append(gone, r.Rule.Name)
		}
	}
	if len(gone) > 0 {
		n.log.Warn("the new rules file lacks rules that were in force: restore them if the file was cut off",
			"file", n.file, "gone", len(gone), "names", gone[:min(len(gone), maxLoggedRules)], "rules", now.Len())
	}
}
