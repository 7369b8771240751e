package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/cmd/weir/internal/accesslog"
	"github.com/weirlimit/weir/cmd/weir/internal/ruletest"
	"github.com/weirlimit/weir/cmd/weir/internal/term"
)

type testedFile struct {
	File     string             `json:"file"`
	Rules    string             `json:"rules"`
	Passed   bool               `json:"passed"`
	Tests    int                `json:"tests"`
	Requests int                `json:"requests"`
	Problems []ruletest.Problem `json:"problems"`
}

func (a *app) testCommand() *cobra.Command {
	var rulesName string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "test FILE...",
		Short: "Run the tests of a rules file: requests at instants, and their answers",
		Long: `Reads files of tests, which a team keeps beside its rules, and decides their requests
in virtual time, each test on a node that has counted nothing. A file names its rules,
relative to its own directory, and has tests with steps:

    rules: rules.yaml
    tests:
      - name: ten logins a minute from an address
        with: {path: /login, method: POST, ip: 192.0.2.1}
        steps:
          - {user: ada, times: 12, allow_first: 10}
          - {user: bob, expect: denied, by: login, retry_after: 1m6s}
          - {user: bob, after: 2m, expect: allowed, remaining: 9}

A step is a request (path, method, user, ip, group, tenant, attributes, cost, rule, id,
hold), repeated "times" and "every" so long, "after" the step before. It expects
"allowed" or "denied", or that the first so many are allowed and the others denied; and,
if it says so, the rule that decides, the wait, and the least that limits have left,
both after the last request. The clock of a test begins at "start",
2026-01-01T12:00:00Z unless given.

Of each test the first step that differs is told, with its line.

Exit status: 0 if all tests pass, 1 if not, or if a file is not valid.`,
		Example: `  weir test policies.yaml
  weir test --rules new.yaml policies.yaml
  weir test --json tests/*.yaml`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage(cmd, "no file of tests is named")
			}
			return stdinOnce(cmd, args...)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runTests(cmd.Context(), args, rulesName, asJSON)
		},
		ValidArgsFunction: completeRules,
	}
	cmd.Flags().StringVar(&rulesName, "rules", "", "rules `FILE`, in place of those that the tests name")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print an object for one file, an array for several")
	return withRulesCompletion(cmd)
}

// runTests runs files of tests and prints what differs.
func (a *app) runTests(ctx context.Context, names []string, rulesName string, asJSON bool) error {
	var failed error
	var out bytes.Buffer
	list := make([]testedFile, len(names))
	for i, name := range names {
		f := &list[i]
		f.File, f.Problems = name, []ruletest.Problem{}
		if err := a.testFile(ctx, f, rulesName); err != nil {
			return err
		}
		f.Passed = len(f.Problems) == 0
		for _, p := range f.Problems {
			if p.Test != "" {
				p.Text = fmt.Sprintf("test %q, %s", p.Test, p.Text)
			}
			fmt.Fprintf(&out, "%s: %s\n", a.OutStyle.Bold(term.Clean(fmt.Sprintf("%s:%d:%d", name, p.Line, p.Column))),
				term.Clean(p.Text))
		}
		if !f.Passed {
			failed = errReported
			fmt.Fprintf(&out, "%s: %s: %s\n", term.Clean(name), a.OutStyle.Red("FAILED"),
				term.Plural(len(f.Problems), "problem"))
			continue
		}
		fmt.Fprintf(&out, "%s: %s: %s, %s\n", term.Clean(name), a.OutStyle.Green("OK"), term.Plural(f.Tests, "test"),
			term.Plural(f.Requests, "request"))
	}
	if asJSON {
		return errors.Join(failed, a.printJSON(oneOrAll(list)))
	}
	return errors.Join(failed, a.print(out.Bytes()))
}

// testFile runs one file of tests. Its rules may have problems, which are printed.
func (a *app) testFile(ctx context.Context, out *testedFile, rulesName string) error {
	data, err := a.read("file of tests", out.File)
	if err != nil {
		return err
	}
	file, problems := ruletest.Parse(data)
	if out.Problems = append(out.Problems, problems...); file == nil {
		return nil
	}
	if out.Rules = rulesName; rulesName == "" {
		if file.Rules == "" {
			out.Problems = append(out.Problems, ruletest.Problem{Line: 1, Column: 1,
				Text: `the tests name no rules: write "rules: rules.yaml" at the top, or give --rules FILE`})
			return nil
		}
		if out.Rules = file.Rules; !filepath.IsAbs(file.Rules) && out.File != accesslog.Stdin {
			out.Rules = filepath.Join(filepath.Dir(out.File), file.Rules)
		}
	}
	rules, err := a.loadRules([]string{out.Rules})
	if err != nil {
		return err
	}
	for i := range file.Tests {
		out.Tests++
		differs, requests, err := runTest(ctx, &file.Tests[i], rules[0])
		if out.Requests += requests; err != nil {
			return fmt.Errorf("%s: test %q: %w", out.File, file.Tests[i].Name, err)
		}
		if differs != nil {
			out.Problems = append(out.Problems, *differs)
		}
	}
	return nil
}

// runTest runs a test on a node of its own.
func runTest(ctx context.Context, t *ruletest.Test, rules rulesFile) (*ruletest.Problem, int, error) {
	now := t.Start
	n, err := weir.Open(ctx, weir.Config{
		Rules: rules.data, RulesName: rules.name, Now: func() time.Time { return now }, Secret: []byte("a trial"),
		Logger: slog.New(slog.DiscardHandler), // weir validate has the warnings, once and not for each test
	})
	if err != nil {
		return nil, 0, fmt.Errorf("rules file %s: %w", rules.name, err)
	}
	differs, requests, err := t.Run(ctx, n, func(at time.Time) { now = at })
	return differs, requests, errors.Join(err, n.Close())
}
