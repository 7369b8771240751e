package rules

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Warning is a part of a valid rules file that probably does not do what its author
// meant. It has no effect: the file is in force as written.
type Warning struct {
	// Line and Column are its position, counted from 1. Column counts characters.
	Line, Column int
	// Rule is the name of the rule or quota concerned; empty if it is about the defaults.
	Rule string
	// Text states what the file does, and what to write instead.
	Text string
	// Instead is the line to write, such as "key: [rule, user]"; empty if there is
	// nothing to write, but something to remove or to move.
	Instead string
	// Incomplete is set if the file is too large to look for all warnings in it. Strict
	// does not count that as an error.
	Incomplete bool
}

// Warnings returns the warnings of the file, in its order. The caller owns the slice.
func (s *Set) Warnings() []Warning { return slices.Clone(s.warnings) }

// Doubtful reports whether the file has warnings that Strict makes errors.
func (s *Set) Doubtful() bool {
	return slices.ContainsFunc(s.warnings, func(w Warning) bool { return !w.Incomplete })
}

// newWarning returns a warning about a rule, at a node.
func newWarning(r *definition, at *node, instead, format string, args ...any) Warning {
	return Warning{Line: at.Line, Column: at.Column, Rule: r.name, Instead: instead, Text: fmt.Sprintf(format, args...)}
}

// warnings returns the warnings of valid rules and quotas, and of the defaults in outer.
func warnings(rules, quotas []definition, outer *definition) (out []Warning) {
	out = slices.Concat(outer.notes(), undrawn(quotas, rules), spellings(outer, quotas, rules), unfolded(quotas, rules))
	for i := range quotas {
		out = append(out, quotas[i].ownWarnings(quotas)...)
	}
	for i := range rules {
		out = append(out, rules[i].ownWarnings(quotas)...)
	}
	reached, slash, host, gaps := effort{left: maxEffort}, effort{left: maxEffort}, effort{left: maxEffort},
		effort{left: maxEffort}
	out = slices.Concat(out, neverReached(rules, &reached), switchedOff(rules, &reached), nothingFollows(rules, &reached),
		unusedCosts(rules, outer, &reached), slashes(rules, &slash), anyHost(rules, &host), unlistedValues(rules, &gaps))
	return inOrder(append(out, incomplete(&reached, &slash, &host, &gaps)...))
}

func inOrder(all []Warning) []Warning {
	slices.SortStableFunc(all, func(a, b Warning) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return all
}

// ownWarnings returns the warnings about a rule or a quota, whatever other rules there are.
func (r *definition) ownWarnings(quotas []definition) (out []Warning) {
	if r.quota {
		return slices.Concat(fixedLengths(r), r.notes(), pairsOfCallers(r), keysWithin(r), partsAsAttributes(r), zoneInKey(r),
			neverFirst(r), neverLent(r))
	}
	if w, ok := openEnded(r); ok {
		out = append(out, w)
	}
	return slices.Concat(out, r.notes(), fixedLengths(r), freesTooMuch(r), unanchored(r), pairsOfCallers(r), keysWithin(r),
		crossed(r), lacking(r), partsAsAttributes(r), asksForUser(r), zoneInKey(r), lackingQuota(r, quotas), neverFirst(r),
		costsTooMuch(r, quotas), neverLent(r))
}

// withWarnings adds to the error of a file the warnings about what has no problem. If the
// defaults have one, nothing that inherits from them is known well enough.
func (d *decoder) withWarnings(err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok || d.outer.flawed {
		return err
	}
	e.Warnings = d.outer.notes()
	for _, all := range [][]definition{d.quotas, d.rules} {
		for i := range all {
			if !all[i].flawed {
				e.Warnings = append(e.Warnings, all[i].ownWarnings(d.quotas)...)
			}
		}
	}
	e.Warnings = inOrder(append(e.Warnings, spellings(&d.outer, d.quotas, d.rules)...))
	return err
}

// openEnded warns about a rule that matches an unlimited number of paths and counts
// each of them separately, only because the file sets no other key. /towns/1, /towns/2
// and so on then have a whole limit each, so a caller who varies the path is not
// limited.
func openEnded(r *definition) (Warning, bool) {
	if len(r.limits) == 0 || r.keyGiven || !r.countsByPath() {
		return Warning{}, false
	}
	const instead = "key: [rule, user]"
	which := "it has no pattern, so it matches every path"
	if p := r.match.path; p != nil {
		switch {
		case p.paths > manyPaths:
			which = fmt.Sprintf("pattern %s matches any number of paths", quote(p.text))
			if p.paths != endless {
				which = fmt.Sprintf("pattern %s matches more than %d paths", quote(p.text), manyPaths)
			}
		case p.folds:
			which = fmt.Sprintf("pattern %s matches paths in upper and lower case", quote(p.text))
		default:
			return Warning{}, false
		}
	}
	return newWarning(r, r.at, instead, "rule %s has no key, and %s: each path has a limit of its own for each user; "+
		"write %q to count all its paths together, or \"key: [path, user]\" to keep one counter for each path",
		quote(r.name), which, instead), true
}

// countsByPath reports whether a key of the rule contains the path.
func (r *definition) countsByPath() bool {
	return slices.ContainsFunc(r.keys, func(parts []part) bool {
		return slices.ContainsFunc(parts, func(p part) bool { return p.kind == partPath })
	})
}
