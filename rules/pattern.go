package rules

import (
	"regexp"
	"regexp/syntax"
	"strings"
	"sync"
	"unicode"
)

// Bounds of patterns, in instructions of the compiled program: a repetition such as
// (.{99}){99} is short to write and slow to run.
const (
	maxProgram  = 10_000    // of one pattern
	maxPrograms = 1_000_000 // of all patterns of a file
)

// pattern is a pattern of paths or attributes, analysed so that the regular expression is needed as
// rarely as possible. Exactly one of begins and loose is set.
type pattern struct {
	text string
	// begins lists the texts with which a matching path begins, if the pattern has any
	// ("^/towns"); several are alternatives.
	begins []beginning
	// loose is how paths are matched by a pattern that may match anywhere.
	loose looseKind
	// need is text that every matching path contains; it may be empty.
	need string
	// re decides if the other fields do not; nil if they always do.
	re *regexp.Regexp
	// auto does the same in less time, once it is made; nil if it would be too large.
	auto func() *automaton
	// tree is the pattern without what cannot matter.
	tree *syntax.Regexp
	// paths is an upper bound of the number of matching paths, at most endless. folds
	// reports that letters match in upper and lower case.
	paths int
	folds bool
	// size is an upper bound of the instructions of re.
	size int
}

// beginning is text with which a path begins, and what that proves.
type beginning struct {
	text   string
	proves proof
}

// proof is what follows from a path that begins with some text.
type proof uint8

const (
	provesMatch    proof = iota // the pattern matches
	provesWhole                 // it matches if the path ends there
	provesLine                  // it matches if the path has no line break
	provesPossible              // it may match: ask the regular expression
)

type looseKind uint8

const (
	notLoose      looseKind = iota
	looseAll                // every path
	looseContains           // paths that contain need
	looseSuffix             // paths that end in need
	looseRegexp             // ask the regular expression if need is contained
)

// String returns the pattern as the file has it; empty if there is none.
func (p *pattern) String() string {
	if p == nil {
		return ""
	}
	return p.text
}

// anywhere reports whether a pattern without a beginning matches.
func (p *pattern) anywhere(path string) bool {
	switch p.loose {
	case looseAll:
		return true
	case looseContains:
		return strings.Contains(path, p.need)
	case looseSuffix:
		return strings.HasSuffix(path, p.need)
	}
	return p.regexpMatches(path)
}

// regexpMatches runs the regular expression, or what stands for it, unless need is absent.
func (p *pattern) regexpMatches(path string) bool {
	if p.need != "" && !strings.Contains(path, p.need) {
		return false
	}
	if auto := p.auto(); auto != nil {
		return auto.run(path, 1) != 0
	}
	return p.re.MatchString(path)
}

// matches reports whether a text matches. For the paths of many patterns at a time, see
// index.
func (p *pattern) matches(text string) bool {
	if p.loose != notLoose {
		return p.anywhere(text)
	}
	for i := range p.begins {
		rest, ok := strings.CutPrefix(text, p.begins[i].text)
		if !ok {
			continue
		}
		switch p.begins[i].proves {
		case provesMatch:
			return true
		case provesWhole:
			if rest == "" {
				return true
			}
		case provesLine:
			if strings.IndexByte(text, '\n') < 0 || p.regexpMatches(text) {
				return true
			}
		case provesPossible:
			if p.regexpMatches(text) {
				return true
			}
		}
	}
	return false
}

// newPattern compiles a pattern. size is that of its program; if it exceeds the bound,
// the pattern is nil.
func newPattern(text string) (p *pattern, size int, err error) {
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, 0, err
	}
	if size = programSize(tree); size > maxProgram {
		return nil, size, nil
	}
	p = &pattern{text: text, size: size}
	p.paths, p.folds = paths(tree)
	p.tree = trimHead(trimTail(strip(tree.Simplify())))
	if p.prefilter(p.tree) {
		p.re, err = regexp.Compile(text)
		p.auto = sync.OnceValue(func() *automaton { return newAutomaton([]*syntax.Regexp{p.tree}) })
	}
	return p, size, err
}

// programSize returns an upper bound of the instructions that a tree compiles to.
func programSize(re *syntax.Regexp) int {
	size := len(re.Rune) / 8
	if re.Op == syntax.OpLiteral {
		size = len(re.Rune) - 1
	}
	for _, sub := range re.Sub {
		size += programSize(sub)
	}
	if re.Op == syntax.OpRepeat {
		times := re.Max
		if times < 0 {
			times = re.Min + 1
		}
		size *= max(1, times)
	}
	size++
	return min(size, 1<<20) // so that nested repetitions cannot overflow
}

// pattern decodes a pattern; what names the field.
func (d *decoder) pattern(n *node, what string) *pattern {
	switch {
	case !d.scalar(n, what):
		return nil
	case len(n.Text) > maxPattern:
		d.add(n, "%s: the pattern has %d bytes; at most %d are allowed", what, len(n.Text), maxPattern)
		return nil
	case strings.ContainsFunc(n.Text, unicode.IsControl):
		d.add(n, "%s: the pattern contains a control character such as a line break; write it as \\n, for example, in "+
			"single quotes", what)
		return nil
	}
	p, size, err := newPattern(n.Text)
	if err != nil {
		why := strings.TrimPrefix(err.Error(), "error parsing regexp: ")
		d.add(n, "%s: %s is not a valid regular expression (RE2): %s", what, quote(n.Text), clip(why))
		return nil
	}
	if p == nil {
		d.add(n, "%s: the pattern is too large: it takes %d steps, at most %d are allowed; lower its repetition counts", what,
			size, maxProgram)
		return nil
	}
	if d.size += size; d.size > maxPrograms {
		d.add(n, "%s: the patterns up to here take %d steps together, at most %d are allowed", what, d.size, maxPrograms)
		return nil
	}
	return p
}
