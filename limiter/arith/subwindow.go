package arith

import (
	"math"

	"github.com/weirlimit/weir/limiter"
)

// sliding_window: the state holds the newest charged sub-window, with its count in B. A
// is the sum of those before it, which are in a ring of words. So a key whose charges
// all fell into one sub-window needs no words, and further charges in that sub-window
// do not touch them.
//
// Word 0 is the ring position of the newest sub-window, whose count in the ring is 0.
// The counts follow, two in each word. While A is 0 the words are not used. The sum A
// is capped at l.maxUnits(). The true sum may then be higher, but nothing more is admitted
// in any case.

func (l *rate) subWords() int {
	if l.P.Wide {
		return 1 + l.Subs
	}
	return 1 + (l.Subs+1)/2
}

func (l *rate) subCount(words []uint64, i int) uint64 {
	if l.P.Wide {
		return words[1+i]
	}
	return words[1+i>>1] >> (32 * uint(i&1)) & math.MaxUint32
}

func (l *rate) setSubCount(words []uint64, i int, n uint64) {
	if l.P.Wide {
		words[1+i] = n
		return
	}
	shift := 32 * uint(i&1)
	w := &words[1+i>>1]
	*w = *w&^(math.MaxUint32<<shift) | n<<shift
}

// older returns the sum of the ring.
func (l *rate) older(s *Counts, words []uint64) uint64 {
	if s.A < l.maxUnits() {
		return s.A
	}
	return l.ringSum(words)
}

// maxSum bounds sums of sub-windows and of holds, so that they do not overflow. It is above each
// capacity.
const maxSum = 1 << 62

// ringSum returns the sum of the counts in the ring, at most maxSum.
func (l *rate) ringSum(words []uint64) (sum uint64) {
	for i := range l.Subs {
		sum = min(sum+l.subCount(words, i), maxSum)
	}
	return sum
}

func (l *rate) setOlder(s *Counts, n uint64) { s.A = min(n, l.maxUnits()) }

// rollSubs makes the sub-window of now the newest if there is a ring. Without a ring
// the newest stays until the next charge.
func (l *rate) rollSubs(s *Counts, words []uint64, now limiter.Tick) {
	if s.A|s.B == 0 || now < s.Time+l.Sub {
		return
	}
	steps := (now - s.Time) / l.Sub
	switch {
	case steps >= limiter.Tick(l.Subs):
		s.A, s.B = 0, 0
	case s.A > 0:
		sum := s.A + s.B
		l.setSubCount(words, int(words[0]), s.B)
		dropped := l.turn(words, int(steps))
		if sum -= min(sum, dropped); s.A == l.maxUnits() {
			sum = l.ringSum(words) // A was less than the sum
		}
		s.Time, s.B = s.Time+steps*l.Sub, 0
		l.setOlder(s, sum)
	}
}

// turn advances the newest by some steps, less than a round, and returns the sum of the
// counts that drop out of the ring.
func (l *rate) turn(words []uint64, steps int) (dropped uint64) {
	head := int(words[0])
	for range steps {
		if head++; head == l.Subs {
			head = 0
		}
		dropped += l.subCount(words, head)
		l.setSubCount(words, head, 0)
	}
	words[0] = uint64(head)
	return dropped
}

// subWordsFor returns how many words a charge at now needs.
func (l *rate) subWordsFor(s *Counts, now limiter.Tick) int {
	if s.A == 0 && (s.B == 0 || now < s.Time+l.Sub) {
		return 0
	}
	return l.subWords()
}

func (l *rate) chargeSubs(s *Counts, words []uint64, now limiter.Tick, n uint64) {
	switch {
	case s.A|s.B == 0:
		s.Time = floorTo(now, l.Sub)
	case now >= s.Time+l.Sub: // there is no ring yet
		l.newest(s, words, s.Time+(now-s.Time)/l.Sub*l.Sub)
	}
	s.B = l.addSat(s.B, n)
}

// newest makes a ring for a state without one, with the sub-window that begins at at as
// the newest. at must be less than subs sub-windows after the newest.
func (l *rate) newest(s *Counts, words []uint64, at limiter.Tick) {
	clear(words[:l.subWords()])
	l.setSubCount(words, 0, s.B)
	words[0] = uint64((at - s.Time) / l.Sub)
	s.Time, s.A, s.B = at, s.B, 0
}

// subOf returns the count of the sub-window that is age steps older than the
// newest, 0 <= age < subs.
func (l *rate) subOf(s *Counts, words []uint64, age int) uint64 {
	switch {
	case age == 0:
		return s.B
	case s.A == 0:
		return 0
	default:
		return l.subCount(words, l.subAt(words, age))
	}
}

// subAt returns the ring position of the sub-window that is age steps older
// than the newest, 0 <= age < subs.
func (l *rate) subAt(words []uint64, age int) int {
	i := int(words[0]) - age
	if i < 0 {
		i += l.Subs
	}
	return i
}

func (l *rate) subsAdmitAt(s *Counts, words []uint64, n uint64) limiter.Tick {
	steps := 0
	switch sum := s.A + s.B; {
	case s.A == 0:
		steps = l.Subs
	case s.A == l.maxUnits(): // the sum may be larger
		steps = l.Subs
		for room := l.Cap - n; steps > 0; steps-- {
			count := l.subOf(s, words, l.Subs-steps)
			if count > room {
				break
			}
			room -= count
		}
	default:
		for sum+n > l.Cap && steps < l.Subs {
			steps++
			sum -= l.subOf(s, words, l.Subs-steps)
		}
	}
	return s.Time + limiter.Tick(steps)*l.Sub
}

func (l *rate) subsEmptyAt(s *Counts, words []uint64) limiter.Tick {
	if s.A|s.B == 0 {
		return 0
	}
	age := 0
	for age < l.Subs-1 && l.subOf(s, words, age) == 0 {
		age++
	}
	return s.Time + limiter.Tick(l.Subs-age)*l.Sub
}

func (l *rate) refundSubs(s *Counts, words []uint64, at limiter.Tick, n uint64, known bool) {
	if at >= s.Time {
		// A later charge would have made its sub-window the newest.
		if at < s.Time+l.Sub && (known || !l.saturated(s.B)) {
			s.B -= min(s.B, n)
		}
		return
	}
	age := (s.Time - at + l.Sub - 1) / l.Sub
	if age >= limiter.Tick(l.Subs) || s.A == 0 {
		return
	}
	i := l.subAt(words, int(age))
	was := l.subCount(words, i)
	if !known && l.saturated(was) {
		return
	}
	less := min(was, n)
	l.setSubCount(words, i, was-less)
	sum := s.A - less
	if s.A == l.maxUnits() {
		sum = l.ringSum(words)
	}
	l.setOlder(s, sum)
}
