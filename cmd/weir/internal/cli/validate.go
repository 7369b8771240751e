package cli

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/cmd/weir/internal/term"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/rules"
)

func (a *app) validateCommand() *cobra.Command {
	var asJSON, strict bool
	cmd := &cobra.Command{
		Use:   "validate FILE...",
		Short: "Check rules files, and report all their problems",
		Long: `Reads rules files ("-" is standard input) and reports whether each is valid.
All problems of a file are reported at once, with line and column. A warning is
about a valid part that is probably a mistake, with the line to write instead. With
--strict a file with warnings is not valid. A hint is about a limit that is right and
may surprise, and says how to write that it is meant.

Exit status: 0 if all are valid, 1 if not. Without --strict warnings do not matter.`,
		Example: `  weir validate rules.yaml
  weir validate --strict rules.yaml
  weir validate --json rules/*.yaml
  kubectl get configmap weir -o jsonpath='{.data.rules\.yaml}' | weir validate -`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage(cmd, "no rules file is named")
			}
			return stdinOnce(cmd, args...)
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if asJSON {
				return a.validateJSON(args, strict)
			}
			return a.validate(args, strict)
		},
		ValidArgsFunction: completeRules,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print an object for one file, an array for several")
	cmd.Flags().BoolVar(&strict, "strict", false, "count warnings as errors")
	return cmd
}

func completeRules(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt
}

func (a *app) validate(names []string, strict bool) error {
	files, failed := a.loadRules(names)
	var out bytes.Buffer
	for _, f := range files {
		for _, w := range f.writable {
			a.say("%s\n", term.Clean("warning: "+w))
		}
		if strict && f.set.Doubtful() {
			n := a.warnOfRules(f)
			a.printError(fmt.Errorf("rules file %s is not valid with --strict: %s", f.name, term.Plural(n, "warning")))
			failed = errReported
			continue
		}
		r, q, l := sizes(f.set)
		fmt.Fprintf(&out, "%s: %s: %s, ", term.Clean(f.name), a.OutStyle.Green("OK"), term.Plural(r, "rule"))
		if q > 0 {
			fmt.Fprintf(&out, "%s, ", term.Plural(q, "quota"))
		}
		out.WriteString(term.Plural(l, "limit"))
		out.WriteString(inShadow(f.set))
		if f.set.Concurrent() != "" {
			out.WriteString(", for nodes with --allow-refunds")
		}
		if n := a.warnOfRules(f); n > 0 {
			fmt.Fprintf(&out, ", %s", term.Plural(n, "warning"))
		}
		if hints := f.set.Hints(); len(hints) > 0 {
			a.warnOf(f.name, strings.Split(string(f.data), "\n"), "hint", hints)
			fmt.Fprintf(&out, ", %s", term.Plural(len(hints), "hint"))
		}
		out.WriteByte('\n')
	}
	return errors.Join(failed, a.print(out.Bytes()))
}

// inShadow says how many rules and quotas of a set deny nothing, after a comma; nothing if all
// of them may deny.
func inShadow(s *rules.Set) string {
	shadow, inForce := 0, 0
	count := func(r *limiter.Rule) {
		switch {
		case r.Shadow:
			shadow++
		case len(r.Limits) > 0 || r.Deny != nil:
			inForce++
		}
	}
	for _, r := range s.Rules() {
		count(r.Rule)
	}
	for _, q := range s.Quotas() {
		count(q.Rule)
	}
	switch {
	case shadow == 0:
		return ""
	case inForce == 0:
		return ", all in shadow: nothing is denied"
	}
	return fmt.Sprintf(", %d in shadow", shadow)
}

type jsonValidity struct {
	File     string        `json:"file"`
	Valid    bool          `json:"valid"`
	Rules    int           `json:"rules"`
	Quotas   int           `json:"quotas"`
	Limits   int           `json:"limits"`
	Problems []jsonProblem `json:"problems"`
	Warnings []jsonWarning `json:"warnings"`
	Hints    []jsonWarning `json:"hints"`
}

type jsonWarning struct {
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Rule    string `json:"rule"`
	Text    string `json:"text"`
	Instead string `json:"instead"`

	Incomplete bool `json:"incomplete"`
}

// jsonProblem is a problem; line and column are 0 if the file cannot be read.
type jsonProblem struct {
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Text   string `json:"text"`
}

func (a *app) validateJSON(names []string, strict bool) error {
	var failed error
	out := make([]jsonValidity, len(names))
	for i, name := range names {
		f, err := a.loadRulesFile(name)
		out[i] = jsonValidity{File: name, Valid: err == nil, Problems: jsonProblems(err), Warnings: []jsonWarning{},
			Hints: []jsonWarning{}}
		var warnings []rules.Warning
		if invalid, ok := errors.AsType[*rules.Error](err); ok {
			warnings = invalid.Warnings
		} else if err == nil {
			warnings = f.set.Warnings()
		}
		for _, w := range warnings {
			out[i].Warnings = append(out[i].Warnings, jsonWarning(w))
		}
		if err != nil {
			failed = errReported
			continue
		}
		for _, w := range f.set.Hints() {
			out[i].Hints = append(out[i].Hints, jsonWarning(w))
		}
		out[i].Rules, out[i].Quotas, out[i].Limits = sizes(f.set)
		if strict && f.set.Doubtful() {
			out[i].Valid, failed = false, errReported
		}
	}
	return errors.Join(failed, a.printJSON(oneOrAll(out)))
}

func jsonProblems(err error) []jsonProblem {
	out := []jsonProblem{}
	var invalid *rules.Error
	switch {
	case err == nil:
	case errors.As(err, &invalid):
		for _, p := range invalid.Problems {
			out = append(out, jsonProblem{p.Line, p.Column, p.Text})
		}
	default:
		out = append(out, jsonProblem{Text: err.Error()})
	}
	return out
}
