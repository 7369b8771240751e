// Package cli is the operator's tool: its commands, flags, messages and exit
// statuses. It takes its streams and its clock as parameters, so that tests run
// it as a person would.
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
)

// Exit statuses, of all commands.
const (
	// ExitOK: done; for `weir check`: allowed.
	ExitOK = 0
	// ExitFailed: something that was given cannot be used, or failed.
	ExitFailed = 1
	// ExitUsage: the command line makes no sense, or names a node that cannot be
	// asked.
	ExitUsage = 2
	// ExitDenied: `weir check` was answered, and the answer is no.
	ExitDenied = 3
)

// Streams are what a program is connected to.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	// OutStyle and ErrStyle tell what Out and Err can show.
	OutStyle, ErrStyle term.Style
	// Now is the wall clock.
	Now func() time.Time
}

// Run runs the command line args, without the program's name, and returns the
// exit status. All that is to be said has been said when it returns.
func Run(ctx context.Context, args []string, s Streams) int {
	a := &app{s}
	root := a.root()
	root.SetArgs(args)
	return a.report(root.ExecuteContext(ctx))
}

// app is one run of the program.
type app struct{ Streams }

// usageError marks an error as one of the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// usage returns an error of the command line that points to the help of cmd.
func usage(cmd *cobra.Command, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	where := `; see "` + cmd.CommandPath() + ` --help"`
	if strings.HasSuffix(err.Error(), "?") {
		where = ` See "` + cmd.CommandPath() + ` --help"`
	}
	return usageError{fmt.Errorf("%w%s", err, where)}
}

// errDenied is returned by check after it said so.
var errDenied = errors.New("denied")

// errReported is returned by commands that have said already what is wrong.
var errReported = errors.New("reported")

// report says what went wrong, if anything did, and returns the exit status.
func (a *app) report(err error) int {
	var wrong usageError
	var away unreachableError
	switch {
	case err == nil:
		return ExitOK
	case errors.Is(err, errDenied):
		return ExitDenied
	case errors.Is(err, errReported):
		return ExitFailed
	case errors.As(err, &wrong), errors.As(err, &away):
		a.complain(err)
		return ExitUsage
	}
	a.complain(err)
	return ExitFailed
}

// complain writes an error for people. Text in it may come from a file.
func (a *app) complain(err error) {
	a.say("weir: %s\n", term.Clean(inOneLine(err)))
}

// inOneLine is what an error says, with semicolons between errors that were joined,
// for which the library has newlines.
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

// note writes something worth knowing that is no error.
func (a *app) note(format string, args ...any) {
	a.say("weir: note: %s\n", term.Clean(fmt.Sprintf(format, args...)))
}

// say writes to standard error. Where that fails there is nobody left to tell.
func (a *app) say(format string, args ...any) { _, _ = fmt.Fprintf(a.Err, format, args...) }

// print writes a finished report to standard output, in one piece.
func (a *app) print(report []byte) error {
	if _, err := a.Out.Write(report); err != nil {
		return fmt.Errorf("the report cannot be written: %w", bare(err))
	}
	return nil
}

// printJSON writes a value to standard output.
func (a *app) printJSON(v any) error {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false) // keys hold & and <, and nobody puts this into a page
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("the report cannot be written: %w", err)
	}
	return a.print(buf.Bytes())
}

// oneOrAll returns the element of a list that has only one, else the list.
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
		Long: `Weir's tool for operators: try a rules file before it is in force, and see what
the members of a cluster are at.

Exit status: 0 done, 1 failed, 2 wrong usage; "weir check" adds 3, denied.`,
		Example: `  weir validate rules.yaml
  weir replay --rules rules.yaml /var/log/nginx/access.log
  weir check /towns --user ada --rules rules.yaml --explain
  weir members`,
		Version:       version(),
		Args:          cobra.ArbitraryArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return usage(cmd, "there is no command %q%s", args[0], didYouMean(cmd, args[0]))
		},
	}
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	root.SetFlagErrorFunc(flagError)
	root.SetVersionTemplate("{{.Version}}\n")
	root.AddCommand(a.replayCommand(), a.validateCommand(), a.checkCommand(), a.membersCommand(), a.topCommand(), a.benchCommand(), a.versionCommand())
	root.SetHelpCommand(helpCommand(root))
	strictCompletion(root)
	return root
}

// helpCommand is the library's, but for refusing a command that does not exist.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Tell how a command is used",
		Example: "  weir help replay",
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return usage(root, "there is no command %q%s", strings.Join(args, " "), didYouMean(root, strings.Join(args, " ")))
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, typed string) (names []string, _ cobra.ShellCompDirective) {
			for _, c := range root.Commands() {
				if len(args) == 0 && c.IsAvailableCommand() && strings.HasPrefix(c.Name(), typed) {
					names = append(names, c.Name())
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}

// strictCompletion makes the library's completion command refuse a shell that
// it does not know, rather than print its help as if nothing were wrong.
func strictCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() != "completion" {
			continue
		}
		c.Short = "Print the completion of commands and flags for a shell"
		c.Args = cobra.ArbitraryArgs
		c.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage(cmd, "there is no completion for %q: give bash, zsh, fish or powershell", args[0])
			}
			return cmd.Help()
		}
	}
}

// didYouMean names the command that is nearest to what was typed.
func didYouMean(cmd *cobra.Command, typed string) string {
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(typed); len(near) > 0 {
		return fmt.Sprintf(": did you mean %q?", near[0])
	}
	return ""
}

// flagError says what is wrong with a flag, and which one was probably meant.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return usage(cmd, "%w", err)
	}
	if name := strings.ToUpper(unknown.GetSpecifiedName()); slices.Contains(strings.Fields(cmd.Use), name) {
		return usage(cmd, "there is no flag --%s: %s is given as it is, as in %s", unknown.GetSpecifiedName(), name, cmd.CommandPath()+strings.TrimPrefix(cmd.Use, cmd.Name()))
	}
	// The flags are dressed as commands, for which the library knows how to
	// find the one that was meant.
	known := &cobra.Command{}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		known.AddCommand(&cobra.Command{Use: "--" + f.Name, Run: func(*cobra.Command, []string) {}})
	})
	typed := "--" + unknown.GetSpecifiedName()
	return usage(cmd, "there is no flag %s%s", typed, strings.ReplaceAll(didYouMean(known, typed), `"`, ""))
}
