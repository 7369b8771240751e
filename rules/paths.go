package rules

import "regexp/syntax"

// Numbers of paths that a pattern matches.
const (
	// manyPaths is how many paths a pattern may match and still seem to list them.
	manyPaths = 100
	// endless stands for any number of paths, and for numbers nobody counts to.
	endless = 1 << 20
)

// extent is what a tree matches: how many texts, counted from above and at most
// [endless], and whether each match begins where the path begins and ends where it
// ends.
type extent struct {
	texts        int
	begins, ends bool
	folds        bool // it matches letters in upper and lower case
}

// paths returns how many paths a pattern matches, counted from above. A pattern that
// is not anchored at both ends matches any number: what is before or after may be
// anything.
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
		return extent{texts: 1} // the beginning of a line need not be that of the path
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
			// An anchor anywhere in a sequence holds for all of it: what is on its far
			// side can only be empty.
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

// repeated is the extent of x{least,most}.
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
