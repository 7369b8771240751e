package cli

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/cmd/weir/internal/accesslog"
	"github.com/weirlimit/weir/cmd/weir/internal/term"
	"github.com/weirlimit/weir/internal/smallfile"
	"github.com/weirlimit/weir/rules"
)

// rulesFile is a valid rules file.
type rulesFile struct {
	name string
	data []byte
	set  *rules.Set

	writable []string // warnings of files that everyone may write
}

// stdinOnce returns an error if two inputs are to be read from standard input.
func stdinOnce(cmd *cobra.Command, names ...string) error {
	first := slices.Index(names, accesslog.Stdin)
	if first >= 0 && slices.Contains(names[first+1:], accesslog.Stdin) {
		return usage(cmd, `"-" is named twice, but standard input can be read only once`)
	}
	return nil
}

// read reads a file of a kind, which is no larger than a rules file; "-" is standard input.
func (a *app) read(kind, name string) ([]byte, error) {
	if name != accesslog.Stdin {
		return smallfile.Read(kind, name, smallfile.MaxRules)
	}
	data, err := io.ReadAll(io.LimitReader(a.In, smallfile.MaxRules+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s %s cannot be read: %w", kind, name, smallfile.Bare(err))
	case len(data) > smallfile.MaxRules:
		return nil, fmt.Errorf("%s %s is larger than %d MiB, which no %s needs; is it another file?", kind, name,
			smallfile.MaxRules>>20, kind)
	}
	return data, nil
}

// loadRules reads and parses rules files. It reports all problems of all files before
// it returns.
func (a *app) loadRules(names []string) ([]rulesFile, error) {
	var out []rulesFile
	var failed error
	for _, name := range names {
		f, err := a.loadRulesFile(name)
		if err != nil {
			failed = errReported
			a.printRulesError(name, f.data, err)
			continue
		}
		out = append(out, f)
	}
	return out, failed
}

func (a *app) loadRulesFile(name string) (rulesFile, error) {
	f := rulesFile{name: name}
	look := func(kind, name string) {
		if w := smallfile.Writable(kind, name); w != "" {
			f.writable = append(f.writable, w)
		}
	}
	look("rules file", name)
	var err error
	if f.data, err = a.read("rules file", name); err != nil {
		return f, err
	}
	f.data, err = rules.Expand(f.data, func(numbers string) ([]byte, error) {
		dir := filepath.Dir(name)
		if name == accesslog.Stdin {
			dir = "."
		}
		numbers = filepath.Join(dir, filepath.FromSlash(numbers))
		look("file of numbers", numbers)
		return smallfile.Read("file of numbers", numbers, smallfile.MaxRules)
	})
	if err != nil {
		return f, err
	}
	f.set, err = rules.Parse(name, f.data, rules.Options{})
	return f, err
}

// printRulesError prints a line for each problem of a rules file, on a terminal with
// the source line.
func (a *app) printRulesError(name string, data []byte, err error) {
	var invalid *rules.Error
	if !errors.As(err, &invalid) {
		a.printError(err)
		return
	}
	lines := strings.Split(string(data), "\n")
	if invalid.File != name { // a file of numbers
		name, lines = invalid.File, nil
	}
	for _, p := range invalid.Problems {
		a.pointTo(name, lines, p)
	}
	a.warnOf(name, lines, "warning", invalid.Warnings)
	a.printError(fmt.Errorf("rules file %s is not valid: %s", name, term.Plural(len(invalid.Problems), "problem")))
}

// warnOfRules prints a line for each warning of a valid rules file, and returns their
// number.
func (a *app) warnOfRules(f rulesFile) int {
	all := f.set.Warnings()
	a.warnOf(f.name, strings.Split(string(f.data), "\n"), "warning", all)
	return len(all)
}

func (a *app) warnOf(name string, lines []string, kind string, all []rules.Warning) {
	for _, w := range all {
		a.pointTo(name, lines, rules.Problem{Line: w.Line, Column: w.Column, Text: kind + ": " + w.Text})
	}
}

// pointTo prints a message about a position in a file, on a terminal with the source
// line.
func (a *app) pointTo(name string, lines []string, p rules.Problem) {
	at := fmt.Sprintf("%s:%d:%d:", name, p.Line, p.Column)
	a.say("%s %s\n", a.ErrStyle.Bold(term.Clean(at)), term.Clean(p.Text))
	if a.ErrStyle.Terminal && p.Line >= 1 && p.Line <= len(lines) {
		a.say("%s", excerpt(lines[p.Line-1], p.Column, a.ErrStyle))
	}
}

// excerpt returns a source line with a mark under a column, which counts characters
// from 1. A long line is cut around the column.
func excerpt(line string, column int, s term.Style) string {
	const indent = "    "
	runes := []rune(strings.TrimRight(line, "\r"))
	if column < 1 || column > len(runes)+1 {
		return ""
	}
	at := column - 1
	width := max(40, s.Width-len(indent)-1)
	if at >= width {
		cut := at - width/2
		runes, at = runes[cut:], at-cut
	}
	runes = runes[:min(len(runes), width)]
	for i, r := range runes {
		if !unicode.IsPrint(r) { // one column each, so that the mark stays aligned
			runes[i] = ' '
		}
	}
	return indent + string(runes) + "\n" + indent + strings.Repeat(" ", at) + s.Red("^") + "\n"
}
