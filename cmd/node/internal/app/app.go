// Package app is the node program: its commands, flags, environment, signals and exit
// statuses. Streams and signals are parameters, so tests can run the program as a user
// would.
package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/commandline"
	"github.com/weirlimit/weir/internal/manual"
	"github.com/weirlimit/weir/rules"
)

// Exit statuses.
const (
	// ExitOK: the program was told to stop, and stopped in good order.
	ExitOK = 0
	// ExitFailed: it could not start or continue, or requests had to be cut off.
	ExitFailed = 1
	// ExitUsage: the command line or the environment is invalid. EX_USAGE of sysexits.h, since a program in Go that
	// panics ends with 2, and that one is to be started again.
	ExitUsage = 64
)

// World is the program's connection to the outside.
type World struct {
	// Name is what the program was called as: its path. As "ratelimit", without arguments, it
	// serves by the environment of envoyproxy/ratelimit. So it does with such a path as its only
	// argument, which is what "docker run IMAGE /bin/ratelimit" becomes. As "weir-node", as
	// packages install it because Node.js is "node", it calls itself that.
	Name     string
	Out, Err io.Writer
	// OutTerminal and ErrTerminal report whether Out and Err are terminals.
	OutTerminal, ErrTerminal bool
	// Environ is the environment, as NAME=VALUE.
	Environ []string
	// Signals make the program stop or reload.
	Signals <-chan os.Signal
	// After is time.After, for tests; default nil.
	After func(time.Duration) <-chan time.Time
}

// Run runs the command line args, without the program's name, and returns the exit
// status. If it returns because of a second signal, the node may still be working: end
// the process.
func Run(ctx context.Context, args []string, w World) int {
	if w.After == nil {
		w.After = time.After
	}
	a := &app{w}
	root := a.root()
	name := w.Name
	if len(args) == 1 {
		name = args[0]
	}
	if len(args) <= 1 && filepath.Base(name) == "ratelimit" {
		own, notes, err := ratelimitFlags(w.Environ)
		if err != nil {
			return a.report(commandline.UsageError{Err: err})
		}
		for _, note := range notes {
			a.printError(errors.New(note))
		}
		args = append([]string{"serve"}, own...)
	}
	root.SetArgs(args)
	return a.report(commandline.Execute(ctx, root))
}

// app is one run of the program.
type app struct{ World }

// usage returns an error of the command line that points to the help of cmd.
func usage(cmd *cobra.Command, format string, args ...any) error {
	return commandline.Usage(cmd, format, args...)
}

// errReported is returned by commands that have printed their error already.
var errReported = errors.New("reported")

// report prints an error, if there is one, and returns the exit status.
func (a *app) report(err error) int {
	var wrong commandline.UsageError
	var invalid *rules.Error
	switch {
	case err == nil:
		return ExitOK
	case errors.Is(err, errReported):
		return ExitFailed
	case errors.As(err, &wrong):
		a.printError(err)
		return ExitUsage
	case errors.As(err, &invalid):
		a.printRulesError(invalid)
		return ExitFailed
	}
	a.printError(err)
	return ExitFailed
}

func (a *app) printError(err error) { a.say("%s: %s\n", a.program(), err) }

// printRulesError prints a line for each problem of a rules file.
func (a *app) printRulesError(err *rules.Error) {
	n := "1 problem"
	if len(err.Problems) > 1 {
		n = fmt.Sprintf("%d problems", len(err.Problems))
	}
	a.say("%s\n%s: rules file %s is not valid: %s\n", err, a.program(), err.File, n)
}

// say writes to standard error. An error of writing is ignored, since there is nowhere
// to report it.
func (a *app) say(format string, args ...any) { _, _ = fmt.Fprintf(a.Err, format, args...) }

func (a *app) print(text string) error {
	if _, err := io.WriteString(a.Out, text); err != nil {
		return fmt.Errorf("standard output cannot be written: %w", err)
	}
	return nil
}

func (a *app) root() *cobra.Command {
	o := newOptions()
	root := &cobra.Command{
		Use:   a.program(),
		Short: "Run Weir, a rate limiter, as a service",
		Long: `A node of Weir: asked over gRPC or HTTP whether a request may pass, it decides
by the rules of a file, in memory. Without a command it serves.

Exit status: 0 stopped in good order, 1 failed, 64 wrong usage.`,
		Example: `  node demo
  node serve --rules rules.yaml
  node serve --rules rules.yaml --http-addr 127.0.0.1:9080 --grpc-addr 127.0.0.1:9081
  WEIR_RULES=rules.yaml node`,
		Version:       a.version(),
		Args:          cobra.ArbitraryArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return commandline.NoCommand(cmd, args[0])
			}
			return a.serve(cmd, o)
		},
	}
	o.addServeFlags(root.Flags())
	completeFlags(root)
	root.SetIn(&bytes.Buffer{})
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	root.SetFlagErrorFunc(commandline.Flag)
	root.SetVersionTemplate("{{.Version}}\n")
	root.AddCommand(a.serveCommand(), a.demoCommand(), a.healthCommand(), a.keysCommand(), a.versionCommand(),
		manual.Command(a.print))
	commandline.Strict(root, "  node help serve", commandline.NoCommand)
	for _, cmd := range append(root.Commands(), root) {
		cmd.Example = called.ReplaceAllString(cmd.Example, "${1}"+root.Name()+"${2}")
	}
	return root
}

// called matches the program's name in an example.
var called = regexp.MustCompile(`(?m)(^| )node( [a-z-]|$)`)

// program returns the name of the program: as packages install it if it was called so, else node.
func (a *app) program() string {
	if strings.TrimSuffix(filepath.Base(a.Name), ".exe") == "weir-node" {
		return "weir-node"
	}
	return "node"
}
