// Package commandline is what the command lines of programs have in common: errors that point to the help, suggestions
// of what was probably meant, and commands of the library that refuse what they do not know.
package commandline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/internal/spelling"
)

// UsageError marks an error as one of the command line or the environment.
type UsageError struct{ Err error }

// Unwrap returns the error that is marked.
func (e UsageError) Unwrap() error { return e.Err }

func (e UsageError) Error() string { return e.Err.Error() }

// Usage returns an error of the command line that points to the help of cmd.
func Usage(cmd *cobra.Command, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	where := `; see "` + cmd.CommandPath() + ` --help"`
	if strings.HasSuffix(err.Error(), "?") {
		where = ` See "` + cmd.CommandPath() + ` --help"`
	}
	return UsageError{fmt.Errorf("%w%s", err, where)}
}

// NoArgs returns an error if there are arguments.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usage(cmd, "%q takes no arguments, but %q was given", cmd.CommandPath(), args[0])
	}
	return nil
}

// NoCommand returns an error for a word below cmd that is no command, with the most similar one.
func NoCommand(cmd *cobra.Command, typed string) error {
	whole := strings.TrimPrefix(cmd.CommandPath()+" "+typed, cmd.Root().Name()+" ")
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(typed); len(near) > 0 {
		return Usage(cmd, "there is no command %q: did you mean %q?", whole, near[0])
	}
	return Usage(cmd, "there is no command %q", whole)
}

// Nearest returns the most similar known word, "" if none is similar.
func Nearest(typed string, known []string) string {
	// The words are wrapped in commands, because the library searches among commands.
	words := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, k := range known {
		words.AddCommand(&cobra.Command{Use: k, Run: func(*cobra.Command, []string) {}})
	}
	if near := words.SuggestionsFor(typed); len(near) > 0 {
		return near[0]
	}
	return ""
}

// Flag returns the error of an invalid flag, with a suggestion.
func Flag(cmd *cobra.Command, err error) error {
	if bad := (*pflag.InvalidValueError)(nil); errors.As(err, &bad) {
		cause := bad.Unwrap()
		return Usage(cmd, "%s%s", strings.TrimSuffix(err.Error(), cause.Error()), spelling.Want(cause))
	}
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return Usage(cmd, "%w", err)
	}
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, "--"+f.Name) })
	typed := "--" + unknown.GetSpecifiedName()
	if near := Nearest(typed, known); near != "" {
		return Usage(cmd, "there is no flag %s: did you mean %s?", typed, near)
	}
	return Usage(cmd, "there is no flag %s", typed)
}

// Strict makes the commands help and completion refuse what they do not know. Those of the library would print their
// help and succeed. noCommand returns the error for a word that is no command.
func Strict(root *cobra.Command, example string, noCommand func(root *cobra.Command, typed string) error) {
	root.SetHelpCommand(&cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Show how a command is used",
		Example: example,
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return noCommand(root, strings.Join(args, " "))
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
	})
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() != "completion" {
			continue
		}
		c.Short = "Print the completion of commands and flags for a shell"
		c.Args = cobra.ArbitraryArgs
		c.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return Usage(cmd, "there is no completion for %q: give bash, zsh, fish or powershell", args[0])
			}
			return cmd.Help()
		}
	}
}

// Execute runs a program as its ExecuteContext does. The library prints help without a look at errors of writing it;
// Execute returns the first of them.
func Execute(ctx context.Context, root *cobra.Command) error {
	out := &output{Writer: root.OutOrStdout()}
	root.SetOut(out)
	if err := root.ExecuteContext(ctx); err != nil {
		return err
	}
	if out.err != nil {
		return fmt.Errorf("standard output cannot be written: %w", out.err)
	}
	return nil
}

// output remembers the first error of writing.
type output struct {
	io.Writer
	err error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if o.err == nil {
		o.err = err
	}
	return n, err
}
