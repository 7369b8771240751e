package rules

import (
	"encoding/binary"
	"regexp/syntax"
	"slices"
	"unicode"
	"unicode/utf8"
)

// Bounds of an automaton.
const (
	maxTogether = 64      // patterns, each a bit of a word
	maxTable    = 1 << 14 // transitions, so that the table stays in a processor's first caches
	maxClasses  = 256
	maxSteps    = 2000 // instructions of its patterns, so that its states are small
)

// automaton matches patterns in one pass over a text. A character takes one look-up, whatever the patterns and the
// text are, where a regular expression takes as many steps as it has instructions. So a long path that a caller
// chooses costs nanoseconds a byte. It is immutable.
//
// It is made of all states before the first text, unless there are too many: then there is none.
type automaton struct {
	ascii [utf8.RuneSelf]uint8 // the class of a character
	// kinds[i] is the class of the other characters from from[i] on, up to from[i+1].
	from  []rune
	kinds []uint8

	// A state is the index of its first transition, and has one for each class. State 0 matches nothing any more. The
	// states from marked on have found patterns.
	classes, first, marked uint16
	next                   []uint16
	found, ends            []uint64 // by state/classes: which patterns match, and do if the text ends there
}

// run returns which patterns match a text, as bits. It may end when it has found all that are wanted.
func (a *automaton) run(text string, wanted uint64) uint64 {
	state, hits := a.first, a.found[a.first/a.classes]
	for i := 0; i < len(text); {
		var class uint16
		if c := text[i]; c < utf8.RuneSelf {
			class, i = uint16(a.ascii[c]), i+1
		} else {
			r, n := utf8.DecodeRuneInString(text[i:])
			at, exact := slices.BinarySearch(a.from, r)
			if !exact {
				at--
			}
			class, i = uint16(a.kinds[at]), i+n
		}
		if state = a.next[state+class]; state-1 >= a.marked-1 { // marked, or 0
			if state == 0 {
				return hits
			}
			if hits |= a.found[state/a.classes]; hits&wanted == wanted {
				return hits
			}
		}
	}
	return hits | a.ends[state/a.classes]
}

// machine builds an automaton. A state is a set of instructions of the patterns' programs that wait for the next
// character. Those that wait in each state, since a match may begin anywhere, are apart and in none.
type machine struct {
	insts   []syntax.Inst
	takes   []uint16 // by instruction: the characters for which it waits, an index of sorts
	starts  []uint32
	sorts   []sort
	classes int
	auto    *automaton

	states map[string]uint16 // by what waits in them and what they have found
	sets   []waiting         // of the states, by number
	rows   []uint16          // their transitions: the numbers of states
	always waiting           // in each state
	each   []bool            // by instruction: whether it waits in each state
	out    []waiting         // what follows from that, by class

	seen  []uint32 // the round in which an instruction was met last
	round uint32
	stack []uint32
	next  waiting // for reuse
	key   []byte
}

// sort is characters for which instructions wait: pairs of the first and the last.
type sort struct {
	pairs   []rune
	classes [(maxClasses + 63) / 64]uint64 // as bits
}

// waiting has the instructions that wait in a state, which patterns are found, and which are if the text ends.
type waiting struct {
	insts       []uint32
	found, ends uint64
}

// newAutomaton returns an automaton of the patterns, nil if it would be too large or a pattern looks at more than one
// character. That of several patterns has at most twice as many states as they have instructions: where each may be
// found beside each other one it would have all their combinations.
func newAutomaton(trees []*syntax.Regexp) *automaton {
	m := machine{states: map[string]uint16{}, auto: &automaton{}}
	for i, tree := range trees {
		prog, err := syntax.Compile(tree)
		if err != nil || looksAround(tree) || len(m.insts)+len(prog.Inst) > maxSteps {
			return nil
		}
		m.add(prog, uint32(i))
	}
	most := maxTable
	if len(trees) > 1 {
		most = 2 * len(m.insts)
	}
	if !m.classify() || !m.explore(most) {
		return nil
	}
	return m.auto
}

func (m *machine) add(prog *syntax.Prog, pattern uint32) {
	base := uint32(len(m.insts))
	for _, in := range prog.Inst {
		switch in.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			in.Arg += base
		case syntax.InstMatch:
			in.Arg = pattern
		}
		in.Out += base
		m.insts = append(m.insts, in)
	}
	m.starts = append(m.starts, base+uint32(prog.Start))
}

// looksAround reports whether a pattern asks for the characters beside one: for lines or words.
func looksAround(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpBeginLine, syntax.OpEndLine, syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return true
	}
	return slices.ContainsFunc(re.Sub, looksAround)
}

// pairs returns the characters for which an instruction waits, nil for one that waits for none.
func pairs(in *syntax.Inst) []rune {
	switch in.Op {
	case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
	default:
		return nil
	}
	if len(in.Rune) != 1 {
		return in.Rune
	}
	r := in.Rune[0]
	out := []rune{r, r}
	if in.Op == syntax.InstRune && syntax.Flags(in.Arg)&syntax.FoldCase != 0 {
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			out = append(out, f, f)
		}
	}
	return out
}

// classify divides all characters into classes that no instruction tells apart. It returns false if they are too many.
func (m *machine) classify() bool {
	from, known := []rune{0, utf8.RuneSelf}, map[string]uint16{}
	m.takes = make([]uint16, len(m.insts))
	for i := range m.insts {
		list, key := pairs(&m.insts[i]), m.key[:0]
		for _, r := range list {
			key = binary.AppendVarint(key, int64(r))
		}
		m.key = key
		n, is := known[string(key)]
		if !is {
			n = uint16(len(m.sorts))
			known[string(key)], m.sorts = n, append(m.sorts, sort{pairs: list})
			for j := 0; j+1 < len(list); j += 2 {
				from = append(from, list[j], min(unicode.MaxRune, list[j+1])+1)
			}
		}
		m.takes[i] = n
	}
	slices.Sort(from)
	from = slices.Compact(from)
	kinds, n := make([]int, len(from)), 1
	for i := range m.sorts {
		split := map[int]int{}
		m.sorts[i].each(from, func(at int) {
			if _, known := split[kinds[at]]; !known {
				split[kinds[at]] = n
				n++
			}
			kinds[at] = split[kinds[at]]
		})
	}
	return m.number(from, kinds)
}

// each calls f with the intervals that it has, given where intervals begin.
func (s *sort) each(from []rune, f func(at int)) {
	for j := 0; j+1 < len(s.pairs); j += 2 {
		at, _ := slices.BinarySearch(from, s.pairs[j])
		for ; at < len(from) && from[at] <= s.pairs[j+1]; at++ {
			f(at)
		}
	}
}

// number numbers the classes that are in use.
func (m *machine) number(from []rune, kinds []int) bool {
	numbers := map[int]uint8{}
	for i, k := range kinds {
		c, known := numbers[k]
		if !known {
			if len(numbers) == maxClasses {
				return false
			}
			c = uint8(len(numbers))
			numbers[k] = c
		}
		if from[i] >= utf8.RuneSelf {
			m.auto.from, m.auto.kinds = append(m.auto.from, from[i]), append(m.auto.kinds, c)
			continue
		}
		for r := from[i]; r < from[i+1]; r++ {
			m.auto.ascii[r] = c
		}
	}
	for i := range m.sorts {
		m.sorts[i].each(from, func(at int) {
			c := numbers[kinds[at]]
			m.sorts[i].classes[c/64] |= 1 << (c % 64)
		})
	}
	m.classes, m.auto.classes = len(numbers), uint16(len(numbers))
	return true
}

// explore makes all states. It returns false if they are more than most.
func (m *machine) explore(most int) bool {
	m.seen, m.each = make([]uint32, len(m.insts)), make([]bool, len(m.insts))
	m.round++
	m.follow(&m.always, m.starts, false)
	m.end(&m.always, false)
	for _, pc := range m.always.insts {
		m.each[pc] = true
	}
	m.out = make([]waiting, m.classes)
	for c := range m.out {
		m.round++
		m.step(&m.out[c], m.always.insts, c)
		m.out[c].insts = slices.DeleteFunc(m.out[c].insts, func(pc uint32) bool { return m.each[pc] })
	}
	m.sets, m.rows = []waiting{{}}, make([]uint16, m.classes)
	if len(m.always.insts) == 0 && m.always.found == 0 {
		m.state(&waiting{})
	}
	var begin waiting
	m.round++
	m.follow(&begin, m.starts, true)
	m.end(&begin, true)
	first := m.state(&begin)
	for at := 1; at < len(m.sets); at++ {
		for c := range m.classes {
			next := &m.next
			next.insts, next.found, next.ends = append(next.insts[:0], m.out[c].insts...), m.out[c].found, 0
			m.round++
			for _, pc := range next.insts {
				m.seen[pc] = m.round
			}
			m.step(next, m.sets[at].insts, c)
			m.end(next, false)
			m.rows = append(m.rows, m.state(next))
			if len(m.sets) > most || len(m.sets)*m.classes > maxTable {
				return false
			}
		}
	}
	m.write(first)
	return true
}

// state returns the number of the state in which these wait, beside what always does.
func (m *machine) state(w *waiting) uint16 {
	w.insts = slices.DeleteFunc(w.insts, func(pc uint32) bool { return m.each[pc] })
	w.found, w.ends = w.found|m.always.found, w.ends|m.always.ends
	slices.Sort(w.insts)
	m.key = binary.AppendUvarint(binary.AppendUvarint(m.key[:0], w.found), w.ends)
	for _, pc := range w.insts {
		m.key = binary.AppendUvarint(m.key, uint64(pc))
	}
	n, known := m.states[string(m.key)]
	if known {
		return n
	}
	if len(w.insts) > 0 || w.found|w.ends|m.always.ends != 0 || len(m.always.insts) > 0 {
		n = uint16(len(m.sets))
		m.sets = append(m.sets, waiting{slices.Clone(w.insts), w.found, w.ends})
	}
	m.states[string(m.key)] = n
	return n
}

// step adds what waits after one of the instructions took a character of a class.
func (m *machine) step(w *waiting, insts []uint32, class int) {
	for _, pc := range insts {
		if m.sorts[m.takes[pc]].classes[class/64]&(1<<(class%64)) != 0 {
			m.follow(w, []uint32{m.insts[pc].Out}, false)
		}
	}
}

// follow adds what waits from instructions on, without a character. begin: no character came before.
func (m *machine) follow(w *waiting, from []uint32, begin bool) {
	for m.stack = append(m.stack[:0], from...); len(m.stack) > 0; {
		pc, fresh := m.pop()
		if !fresh {
			continue
		}
		switch in := &m.insts[pc]; in.Op {
		case syntax.InstMatch:
			w.found |= 1 << in.Arg
		case syntax.InstEmptyWidth:
			if syntax.EmptyOp(in.Arg) == syntax.EmptyEndText {
				w.insts = append(w.insts, pc)
			} else if begin {
				m.stack = append(m.stack, in.Out)
			}
		default:
			if !m.pass(in) && in.Op != syntax.InstFail {
				w.insts = append(w.insts, pc)
			}
		}
	}
}

// end adds which patterns are found if the text ends where the instructions wait.
func (m *machine) end(w *waiting, begin bool) {
	m.round++
	for m.stack = append(m.stack[:0], w.insts...); len(m.stack) > 0; {
		pc, fresh := m.pop()
		if !fresh {
			continue
		}
		switch in := &m.insts[pc]; in.Op {
		case syntax.InstMatch:
			w.ends |= 1 << in.Arg
		case syntax.InstEmptyWidth:
			if syntax.EmptyOp(in.Arg) == syntax.EmptyEndText || begin {
				m.stack = append(m.stack, in.Out)
			}
		default:
			m.pass(in)
		}
	}
}

// pop takes an instruction from the stack, and reports whether this round has not met it yet.
func (m *machine) pop() (pc uint32, fresh bool) {
	pc, m.stack = m.stack[len(m.stack)-1], m.stack[:len(m.stack)-1]
	fresh = m.seen[pc] != m.round
	m.seen[pc] = m.round
	return pc, fresh
}

// pass puts on the stack what follows an instruction that asks for nothing, and reports whether it does not.
func (m *machine) pass(in *syntax.Inst) bool {
	switch in.Op {
	case syntax.InstAlt, syntax.InstAltMatch:
		m.stack = append(m.stack, in.Out, in.Arg)
	case syntax.InstCapture, syntax.InstNop:
		m.stack = append(m.stack, in.Out)
	default:
		return false
	}
	return true
}

// write writes the table: the states that have found something come last.
func (m *machine) write(first uint16) {
	a, order := m.auto, make([]uint16, 0, len(m.sets))
	for _, marked := range []bool{false, true} {
		if marked {
			a.marked = uint16(len(order)) * a.classes
		}
		for n := range m.sets {
			if (m.sets[n].found != 0) == marked {
				order = append(order, uint16(n))
			}
		}
	}
	places := make([]uint16, len(order))
	for place, n := range order {
		places[n] = uint16(place) * a.classes
	}
	a.first, a.next = places[first], make([]uint16, 0, len(m.rows))
	for _, n := range order {
		for _, next := range m.rows[int(n)*m.classes:][:m.classes] {
			a.next = append(a.next, places[next])
		}
		a.found, a.ends = append(a.found, m.sets[n].found), append(a.ends, m.sets[n].ends)
	}
}
