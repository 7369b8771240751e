package rules

import "regexp/syntax"

// Numbers of paths that a pattern can match.
const (
	// manyPaths is the most paths of a pattern that seems to list them.
	manyPaths = 100
	// endless stands for an unlimited number of paths, and for large numbers.
	endless = 1 << 20
)

// extent is what a tree matches: an upper bound of the number of texts, at most
// [endless], and whether each match starts where the path starts and ends where it
// ends.
type extent struct {
	texts        int
	begins, ends bool
	folds        bool // letters match in upper and lower case
}

// paths returns an upper bound of the number of paths that a pattern matches. It is
// endless for a pattern that is not anchored at both ends, since any text may precede
// or follow the match.
func paths(re *syntax.Regexp) (n int, folds bool) {
	x := extentOf(re)
	if !x.begins || !x.ends {
		return endless, x.folds
	}
	return x.texts, x.folds
}

func extentOf(re *syntax.Regexp) extent {
	switch re.Op {
	case syntax.OpNoMatch:
		return extent{begins: true, ends: true}
	case syntax.OpEmptyMatch, syntax.OpBeginLine, syntax.OpEndLine, syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return extent{texts: 1} // the start of a line need not be that of the path
	case syntax.OpBeginText:
		return extent{texts: 1, begins: true}
	case syntax.OpEndText:
		return extent{texts: 1, ends: true}
	case syntax.OpLiteral:
		return literalExtent(re)
	case syntax.OpCharClass:
		x := extent{}
		for i := 0; i+1 < len(re.Rune); i += 2 {
			x.texts = min(endless, x.texts+int(re.Rune[i+1]-re.Rune[i])+1)
		}
		return x
	case syntax.OpCapture:
		return extentOf(re.Sub[0])
	case syntax.OpConcat:
		x := extent{texts: 1}
		for _, sub := range re.Sub {
			y := extentOf(sub)
			// An anchor within a sequence applies to all of it: what is beyond the
			// anchor can only be empty.
			x = extent{times(x.texts, y.texts), x.begins || y.begins, x.ends || y.ends, x.folds || y.folds}
		}
		return x
	case syntax.OpAlternate:
		x := extent{begins: true, ends: true}
		for _, sub := range re.Sub {
			y := extentOf(sub)
			x = extent{min(endless, x.texts+y.texts), x.begins && y.begins, x.ends && y.ends, x.folds || y.folds}
		}
		return x
	case syntax.OpQuest:
		x := extentOf(re.Sub[0])
		return extent{texts: min(endless, x.texts+1), folds: x.folds}
	case syntax.OpRepeat:
		if re.Max >= 0 {
			return repeated(extentOf(re.Sub[0]), re.Min, re.Max)
		}
	}
	return extent{texts: endless} // x*, x+, x{2,}, any character
}

func literalExtent(re *syntax.Regexp) extent {
	for _, r := range re.Rune {
		if !exact(r, re.Flags) {
			return extent{texts: 1, folds: true}
		}
	}
	return extent{texts: 1}
}

// repeated returns the extent of x{least,most}.
func repeated(x extent, least, most int) extent {
	out := extent{begins: x.begins && least > 0, ends: x.ends && least > 0, folds: x.folds}
	power := 1
	for n := 0; n <= most && out.texts < endless; n++ {
		if n >= least {
			out.texts = min(endless, out.texts+power)
		}
		power = times(power, x.texts)
	}
	return out
}

func times(a, b int) int { return min(endless, a*b) }
