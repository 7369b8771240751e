package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/cmd/weir/internal/accesslog"
	"github.com/weirlimit/weir/cmd/weir/internal/term"
	"github.com/weirlimit/weir/rules"
)

// maxRulesBytes bounds a rules file: hundreds of rules take some 100 KB.
const maxRulesBytes = 16 << 20

// rulesFile is a valid rules file.
type rulesFile struct {
	name string
	data []byte
	set  *rules.Set
}

// bare drops the operation and the path from a file's error: the message names
// the file already.
func bare(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// stdinOnce refuses a command line that wants standard input for two things.
func stdinOnce(cmd *cobra.Command, names ...string) error {
	first := slices.Index(names, accesslog.Stdin)
	if first >= 0 && slices.Contains(names[first+1:], accesslog.Stdin) {
		return usage(cmd, `"-" is named twice, but standard input can be read only once`)
	}
	return nil
}

// readRules reads a rules file, "-" being standard input.
func (a *app) readRules(name string) ([]byte, error) {
	if name == accesslog.Stdin {
		return readRulesFrom(a.In, name)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("rules file %s cannot be opened: %w", name, bare(err))
	}
	if info, err := f.Stat(); err == nil && info.IsDir() {
		err = fmt.Errorf("rules file %s is a directory; name one file in it", name)
		return nil, errors.Join(err, f.Close())
	}
	data, err := readRulesFrom(f, name)
	return data, errors.Join(err, f.Close())
}

func readRulesFrom(in io.Reader, name string) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(in, maxRulesBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("rules file %s cannot be read: %w", name, bare(err))
	case len(data) > maxRulesBytes:
		return nil, fmt.Errorf("rules file %s is larger than %d MiB, which no rules file needs; is it another file?", name, maxRulesBytes>>20)
	}
	return data, nil
}

// loadRules reads and parses rules files. Everything wrong with all of them is
// reported before it returns.
func (a *app) loadRules(names []string) ([]rulesFile, error) {
	var out []rulesFile
	var failed error
	for _, name := range names {
		f, err := a.loadRulesFile(name)
		if err != nil {
			failed = errReported
			a.complainOfRules(name, f.data, err)
			continue
		}
		out = append(out, f)
	}
	return out, failed
}

func (a *app) loadRulesFile(name string) (rulesFile, error) {
	f := rulesFile{name: name}
	var err error
	if f.data, err = a.readRules(name); err != nil {
		return f, err
	}
	f.set, err = rules.Parse(name, f.data, rules.Options{})
	return f, err
}

// complainOfRules writes a line for each problem of a rules file, with the line
// it is about where a person watches.
func (a *app) complainOfRules(name string, data []byte, err error) {
	var invalid *rules.Error
	if !errors.As(err, &invalid) {
		a.complain(err)
		return
	}
	lines := strings.Split(string(data), "\n")
	for _, p := range invalid.Problems {
		at := fmt.Sprintf("%s:%d:%d:", name, p.Line, p.Column)
		a.say("%s %s\n", a.ErrStyle.Bold(term.Clean(at)), term.Clean(p.Text))
		if a.ErrStyle.Terminal && p.Line >= 1 && p.Line <= len(lines) {
			a.say("%s", excerpt(lines[p.Line-1], p.Column, a.ErrStyle))
		}
	}
	a.complain(fmt.Errorf("rules file %s is not valid: %s", name, term.Plural(len(invalid.Problems), "problem")))
}

// excerpt returns a source line with a mark under a column, which is counted in
// characters from 1. A long line is cut around the column.
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
		if !unicode.IsPrint(r) { // one column each, so that the mark stays in place
			runes[i] = ' '
		}
	}
	return indent + string(runes) + "\n" + indent + strings.Repeat(" ", at) + s.Red("^") + "\n"
}
