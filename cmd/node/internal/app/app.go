// Package app is the node program: its commands, flags, environment, signals and
// exit statuses. It takes its streams and signals as parameters, so that tests
// run it as a person would.
package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/rules"
)

// Exit statuses.
const (
	// ExitOK: it was told to stop, and has done so in good order.
	ExitOK = 0
	// ExitFailed: it could not start, could not go on, or had to be cut off.
	ExitFailed = 1
	// ExitUsage: the command line or the environment makes no sense.
	ExitUsage = 2
)

// World is what the program is connected to.
type World struct {
	Out, Err io.Writer
	// OutTerminal and ErrTerminal tell whether a person watches them.
	OutTerminal, ErrTerminal bool
	// Environ is the environment, as NAME=VALUE.
	Environ []string
	// Signals tell the program to stop or to reload.
	Signals <-chan os.Signal
}

// Run runs the command line args, without the program's name, and returns the
// exit status. When it returns because of a second signal, the node may still
// be at work: end the process.
func Run(ctx context.Context, args []string, w World) int {
	a := &app{w}
	root := a.root()
	root.SetArgs(args)
	return a.report(root.ExecuteContext(ctx))
}

// app is one run of the program.
type app struct{ World }

// usageError marks an error as one of the command line or the environment.
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

// errReported is returned by commands that have said already what is wrong.
var errReported = errors.New("reported")

// report says what went wrong, if anything did, and returns the exit status.
func (a *app) report(err error) int {
	var wrong usageError
	var invalid *rules.Error
	switch {
	case err == nil:
		return ExitOK
	case errors.Is(err, errReported):
		return ExitFailed
	case errors.As(err, &wrong):
		a.complain(err)
		return ExitUsage
	case errors.As(err, &invalid):
		a.complainOfRules(invalid)
		return ExitFailed
	}
	a.complain(err)
	return ExitFailed
}

func (a *app) complain(err error) { a.say("node: %s\n", err) }

// complainOfRules writes a line for each problem of a rules file.
func (a *app) complainOfRules(err *rules.Error) {
	n := "1 problem"
	if len(err.Problems) > 1 {
		n = fmt.Sprintf("%d problems", len(err.Problems))
	}
	a.say("%s\nnode: rules file %s is not valid: %s\n", err, err.File, n)
}

// say writes to standard error. Where that fails there is nobody left to tell.
func (a *app) say(format string, args ...any) { _, _ = fmt.Fprintf(a.Err, format, args...) }

// print writes to standard output.
func (a *app) print(text string) error {
	if _, err := io.WriteString(a.Out, text); err != nil {
		return fmt.Errorf("standard output cannot be written: %w", err)
	}
	return nil
}

func (a *app) root() *cobra.Command {
	o := newOptions()
	root := &cobra.Command{
		Use:   "node",
		Short: "Run Weir, a rate limiter, as a service",
		Long: `A node of Weir: asked over gRPC or HTTP whether a request may pass, it decides
by the rules of a file, in memory. Without a command it serves.

Exit status: 0 stopped in good order, 1 failed, 2 wrong usage.`,
		Example: `  node demo
  node serve --rules rules.yaml
  node serve --rules rules.yaml --http-addr 127.0.0.1:9080 --grpc-addr 127.0.0.1:9081
  WEIR_RULES=rules.yaml node`,
		Version:       version(),
		Args:          cobra.ArbitraryArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage(cmd, "there is no command %q%s", args[0], didYouMean(cmd, args[0]))
			}
			return a.serve(cmd, o)
		},
	}
	o.addServeFlags(root.Flags())
	completeFlags(root)
	root.SetIn(&bytes.Buffer{})
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	root.SetFlagErrorFunc(flagError)
	root.SetVersionTemplate("{{.Version}}\n")
	root.AddCommand(a.serveCommand(), a.demoCommand(), a.healthCommand(), a.keysCommand(), a.versionCommand())
	root.SetHelpCommand(helpCommand(root))
	strictCompletion(root)
	return root
}

// helpCommand is the library's, but for refusing a command that does not exist.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Tell how a command is used",
		Example: "  node help serve",
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				typed := strings.Join(args, " ")
				return usage(root, "there is no command %q%s", typed, didYouMean(root, typed))
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
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

// noArgs refuses arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage(cmd, "%q takes no arguments, but %q was given", cmd.CommandPath(), args[0])
	}
	return nil
}

// nearest returns the word that was probably meant, "" if none is near.
func nearest(typed string, known []string) string {
	// The words are dressed as commands, for which the library knows how to find
	// the one that was meant.
	words := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, k := range known {
		words.AddCommand(&cobra.Command{Use: k, Run: func(*cobra.Command, []string) {}})
	}
	if near := words.SuggestionsFor(typed); len(near) > 0 {
		return near[0]
	}
	return ""
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
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, "--"+f.Name) })
	typed := "--" + unknown.GetSpecifiedName()
	if near := nearest(typed, known); near != "" {
		return usage(cmd, "there is no flag %s: did you mean %s?", typed, near)
	}
	return usage(cmd, "there is no flag %s", typed)
}
