// Package cli is the operator's tool: its commands, flags, messages and exit statuses.
// Streams and clock are parameters, so tests can run it as a user would.
package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/cmd/weir/internal/term"
	"github.com/weirlimit/weir/internal/commandline"
	"github.com/weirlimit/weir/internal/manual"
	"github.com/weirlimit/weir/internal/smallfile"
)

// Exit statuses, of all commands.
const (
	// ExitOK: success; for `weir check`: allowed.
	ExitOK = 0
	// ExitFailed: an input cannot be used, or the command failed.
	ExitFailed = 1
	// ExitUsage: the command line is invalid, or names a node that cannot be reached.
	ExitUsage = 2
	// ExitDenied: `weir check` got an answer, which is a denial.
	ExitDenied = 3
)

// Streams are the program's connections to the outside.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	// OutStyle and ErrStyle are the capabilities of Out and Err.
	OutStyle, ErrStyle term.Style
	// Now is the wall clock.
	Now func() time.Time
	// Getenv returns an environment variable; nil: there are none.
	Getenv func(name string) string
}

// Run runs the command line args, without the program's name, and returns the exit
// status. All output has been written when it returns.
func Run(ctx context.Context, args []string, s Streams) int {
	a := &app{s}
	root := a.root()
	root.SetArgs(args)
	return a.report(commandline.Execute(ctx, root))
}

// app is one run of the program.
type app struct{ Streams }

// usage returns an error of the command line that points to the help of cmd.
func usage(cmd *cobra.Command, format string, args ...any) error {
	return commandline.Usage(cmd, format, args...)
}

// errDenied is returned by check after it printed the denial.
var errDenied = errors.New("denied")

// errReported is returned by commands that have printed their error already.
var errReported = errors.New("reported")

// report prints an error, if there is one, and returns the exit status.
func (a *app) report(err error) int {
	var wrong commandline.UsageError
	var away unreachableError
	switch {
	case err == nil:
		return ExitOK
	case errors.Is(err, errDenied):
		return ExitDenied
	case errors.Is(err, errReported):
		return ExitFailed
	case errors.As(err, &wrong), errors.As(err, &away):
		a.printError(err)
		return ExitUsage
	}
	a.printError(err)
	return ExitFailed
}

// printError prints an error for people. Its text may contain parts of a file, and is
// cleaned.
func (a *app) printError(err error) {
	a.say("weir: %s\n", term.Clean(inOneLine(err)))
}

// inOneLine returns the text of an error, with semicolons between joined errors, where
// the library has newlines.
func inOneLine(err error) string {
	text := err.Error()
	switch e := err.(type) { //nolint:errorlint // what this error itself wraps is asked, not what it is
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			text = strings.Replace(text, inner.Error(), inOneLine(inner), 1)
		}
	case interface{ Unwrap() []error }:
		var said, lines []string
		for _, inner := range e.Unwrap() {
			said, lines = append(said, inner.Error()), append(lines, inOneLine(inner))
		}
		if text == strings.Join(said, "\n") {
			return strings.Join(lines, "; ")
		}
		for i := range said {
			text = strings.Replace(text, said[i], lines[i], 1)
		}
	}
	return text
}

// note prints a remark that is not an error.
func (a *app) note(format string, args ...any) {
	a.say("weir: note: %s\n", term.Clean(fmt.Sprintf(format, args...)))
}

// say writes to standard error. An error of writing is ignored, since there is nowhere
// to report it.
func (a *app) say(format string, args ...any) { _, _ = fmt.Fprintf(a.Err, format, args...) }

// print writes a complete report to standard output, in one piece.
func (a *app) print(report []byte) error {
	if _, err := a.Out.Write(report); err != nil {
		return fmt.Errorf("the report cannot be written: %w", smallfile.Bare(err))
	}
	return nil
}

// show writes a value to standard output: as JSON if asked, else as text.
func (a *app) show(asJSON bool, v any, text string) error {
	if asJSON {
		return a.printJSON(v)
	}
	return a.print([]byte(text))
}

// printJSON writes a value to standard output as JSON.
func (a *app) printJSON(v any) error {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false) // keys contain & and <, and the output is not put into HTML
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("the report cannot be written: %w", err)
	}
	return a.print(buf.Bytes())
}

// oneOrAll returns the element of a list that has only one, otherwise the list.
func oneOrAll[T any](list []T) any {
	if len(list) == 1 {
		return list[0]
	}
	return list
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "weir",
		Short: "Ask Weir, a rate limiter, what it would decide",
		Long: `Weir's tool for operators: try a rules file before it is in force, and see the
state of the members of a cluster.

Exit status: 0 done, 1 failed, 2 wrong usage, or the node cannot be asked; "weir check"
adds 3, denied.`,
		Example: `  weir validate rules.yaml
  weir replay --rules rules.yaml /var/log/nginx/access.log
  weir check /towns --user ada --rules rules.yaml --explain
  weir members`,
		Version:       version(),
		Args:          cobra.ArbitraryArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          oneOf,
	}
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	root.SetFlagErrorFunc(flagError)
	root.SetVersionTemplate("{{.Version}}\n")
	root.AddCommand(a.replayCommand(), a.validateCommand(), a.testCommand(),
		a.schemaCommand(), a.envoyCommand(), a.checkCommand(),
		a.settleCommand(), a.cancelCommand(), a.extendCommand(), a.resetCommand(), a.membersCommand(), a.reloadCommand(),
		a.topCommand(), a.denialsCommand(), a.rulesCommand(), a.overrideCommand(), a.exportCommand(), a.importCommand(),
		a.benchCommand(), a.certCommand(), a.permissionsCommand(), a.versionCommand(),
		manual.Command(func(page string) error { return a.print([]byte(page)) }))
	commandline.Strict(root, "  weir help replay", noCommand)
	return root
}

// oneOf runs a command that has commands of its own: it shows its help, and refuses a word
// that is none of them.
func oneOf(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	return noCommand(cmd, args[0])
}

// noCommand returns an error for a word below cmd that is no command, with the most similar one.
func noCommand(cmd *cobra.Command, typed string) error {
	if cmd.Parent() == nil && typed == "explain" {
		return usage(cmd, `there is no command "explain": did you mean "check --explain"?`)
	}
	return commandline.NoCommand(cmd, typed)
}

// flagError returns the error of an invalid flag, with a suggestion.
func flagError(cmd *cobra.Command, err error) error {
	if cmd.Parent() == nil && cmd.Flags().NArg() > 0 { // what precedes the flag is no command
		return noCommand(cmd, cmd.Flags().Arg(0))
	}
	if unknown := (*pflag.NotExistError)(nil); errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "" {
		name := strings.ToUpper(unknown.GetSpecifiedName())
		if slices.Contains(strings.Fields(cmd.Use), name) {
			return usage(cmd, "there is no flag --%s: %s is given as it is, as in %s", unknown.GetSpecifiedName(),
				name, cmd.CommandPath()+strings.TrimPrefix(cmd.Use, cmd.Name()))
		}
	}
	return commandline.Flag(cmd, err)
}
