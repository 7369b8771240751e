package rules

import (
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode"
)

// Bounds of patterns, in instructions of the compiled program: a repetition such as
// (.{99}){99} is short to write and slow to run.
const (
	maxProgram  = 10_000    // of one pattern
	maxPrograms = 1_000_000 // of all patterns of a file
)

// pattern is a path pattern, analysed so that the regular expression is needed as
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
	// paths is an upper bound of the number of matching paths, at most endless. folds
	// reports that letters match in upper and lower case.
	paths int
	folds bool
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

// regexpMatches runs the regular expression, unless need is absent.
func (p *pattern) regexpMatches(path string) bool {
	return (p.need == "" || strings.Contains(path, p.need)) && p.re.MatchString(path)
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
	p = &pattern{text: text}
	p.paths, p.folds = paths(tree)
	if p.prefilter(trimHead(trimTail(strip(tree.Simplify())))) {
		p.re, err = regexp.Compile(text)
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

// pattern decodes a path pattern.
func (d *decoder) pattern(n *node) *pattern {
	switch {
	case !d.scalar(n, "path"):
		return nil
	case len(n.text) > maxPattern:
		d.add(n, "path: the pattern has %d bytes; at most %d are allowed", len(n.text), maxPattern)
		return nil
	case strings.ContainsFunc(n.text, unicode.IsControl):
		d.add(n, "path: the pattern contains a control character such as a line break; write it as \\n, for example, in single quotes")
		return nil
	}
	p, size, err := newPattern(n.text)
	if err != nil {
		why := strings.TrimPrefix(err.Error(), "error parsing regexp: ")
		d.add(n, "path: %s is not a valid regular expression (RE2): %s", quote(n.text), clip(why))
		return nil
	}
	if p == nil {
		d.add(n, "path: the pattern is too large: it takes %d steps, at most %d are allowed; lower its repetition counts", size, maxProgram)
		return nil
	}
	if d.size += size; d.size > maxPrograms {
		d.add(n, "path: the patterns up to here take %d steps together, at most %d are allowed", d.size, maxPrograms)
		return nil
	}
	return p
}
