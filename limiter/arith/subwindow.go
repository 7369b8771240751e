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

func (l *ring) words() int {
	if l.P.Wide {
		return 1 + l.Subs
	}
	return 1 + (l.Subs+1)/2
}

func (l *ring) count(words []uint64, i int) uint64 {
	if l.P.Wide {
		return words[1+i]
	}
	return words[1+i>>1] >> (32 * uint(i&1)) & math.MaxUint32
}

func (l *ring) setCount(words []uint64, i int, n uint64) {
	if l.P.Wide {
		words[1+i] = n
		return
	}
	shift := 32 * uint(i&1)
	w := &words[1+i>>1]
	*w = *w&^(math.MaxUint32<<shift) | n<<shift
}

// older returns the sum of the ring.
func (l *ring) older(s *Counts, words []uint64) uint64 {
	if s.A < (*rate)(l).maxUnits() {
		return s.A
	}
	return l.sum(words)
}

// maxSum bounds sums of sub-windows and of holds, so that they do not overflow. It is above each
// capacity.
const maxSum = 1 << 62

// sum returns the sum of the counts in the ring, at most maxSum.
func (l *ring) sum(words []uint64) (sum uint64) {
	for i := range l.Subs {
		sum = min(sum+l.count(words, i), maxSum)
	}
	return sum
}

func (l *ring) setOlder(s *Counts, n uint64) { s.A = min(n, (*rate)(l).maxUnits()) }

// roll makes the sub-window of now the newest if there is a ring. Without a ring
// the newest stays until the next charge.
func (l *ring) roll(s *Counts, words []uint64, now limiter.Tick) {
	if s.A|s.B == 0 || now < s.Time+l.Sub {
		return
	}
	steps := (now - s.Time) / l.Sub
	switch {
	case steps >= limiter.Tick(l.Subs):
		s.A, s.B = 0, 0
	case s.A > 0:
		sum := s.A + s.B
		l.setCount(words, int(words[0]), s.B)
		dropped := l.turn(words, int(steps))
		if sum -= min(sum, dropped); s.A == (*rate)(l).maxUnits() {
			sum = l.sum(words) // A was less than the sum
		}
		s.Time, s.B = s.Time+steps*l.Sub, 0
		l.setOlder(s, sum)
	}
}

// turn advances the newest by some steps, less than a round, and returns the sum of the
// counts that drop out of the ring.
func (l *ring) turn(words []uint64, steps int) (dropped uint64) {
	head := int(words[0])
	for range steps {
		if head++; head == l.Subs {
			head = 0
		}
		dropped += l.count(words, head)
		l.setCount(words, head, 0)
	}
	words[0] = uint64(head)
	return dropped
}

// wordsFor returns how many words a charge at now needs.
func (l *ring) wordsFor(s *Counts, now limiter.Tick) int {
	if s.A == 0 && (s.B == 0 || now < s.Time+l.Sub) {
		return 0
	}
	return l.words()
}

func (l *ring) charge(s *Counts, words []uint64, now limiter.Tick, n uint64) {
	switch {
	case s.A|s.B == 0:
		s.Time = floorTo(now, l.Sub)
	case now >= s.Time+l.Sub: // there is no ring yet
		l.newest(s, words, s.Time+(now-s.Time)/l.Sub*l.Sub)
	}
	s.B = (*rate)(l).addSat(s.B, n)
}

// newest makes a ring for a state without one, with the sub-window that begins at at as
// the newest. at must be less than subs sub-windows after the newest.
func (l *ring) newest(s *Counts, words []uint64, at limiter.Tick) {
	clear(words[:l.words()])
	l.setCount(words, 0, s.B)
	words[0] = uint64((at - s.Time) / l.Sub)
	s.Time, s.A, s.B = at, s.B, 0
}

// aged returns the count of the sub-window that is age steps older than the
// newest, 0 <= age < subs.
func (l *ring) aged(s *Counts, words []uint64, age int) uint64 {
	switch {
	case age == 0:
		return s.B
	case s.A == 0:
		return 0
	default:
		return l.count(words, l.place(words, age))
	}
}

// place returns the ring position of the sub-window that is age steps older
// than the newest, 0 <= age < subs.
func (l *ring) place(words []uint64, age int) int {
	i := int(words[0]) - age
	if i < 0 {
		i += l.Subs
	}
	return i
}

func (l *ring) admitsAt(s *Counts, words []uint64, n uint64) limiter.Tick {
	steps := 0
	switch sum := s.A + s.B; {
	case s.A == 0:
		steps = l.Subs
	case s.A == (*rate)(l).maxUnits(): // the sum may be larger
		steps = l.Subs
		for room := l.Cap - n; steps > 0; steps-- {
			count := l.aged(s, words, l.Subs-steps)
			if count > room {
				break
			}
			room -= count
		}
	default:
		for sum+n > l.Cap && steps < l.Subs {
			steps++
			sum -= l.aged(s, words, l.Subs-steps)
		}
	}
	return s.Time + limiter.Tick(steps)*l.Sub
}

func (l *ring) emptyAt(s *Counts, words []uint64) limiter.Tick {
	if s.A|s.B == 0 {
		return 0
	}
	age := 0
	for age < l.Subs-1 && l.aged(s, words, age) == 0 {
		age++
	}
	return s.Time + limiter.Tick(l.Subs-age)*l.Sub
}

func (l *ring) refund(s *Counts, words []uint64, at limiter.Tick, n uint64, known bool) {
	if at >= s.Time {
		// A later charge would have made its sub-window the newest.
		if at < s.Time+l.Sub && (known || !(*rate)(l).saturated(s.B)) {
			s.B -= min(s.B, n)
		}
		return
	}
	age := (s.Time - at + l.Sub - 1) / l.Sub
	if age >= limiter.Tick(l.Subs) || s.A == 0 {
		return
	}
	i := l.place(words, int(age))
	was := l.count(words, i)
	if !known && (*rate)(l).saturated(was) {
		return
	}
	less := min(was, n)
	l.setCount(words, i, was-less)
	sum := s.A - less
	if s.A == (*rate)(l).maxUnits() {
		sum = l.sum(words)
	}
	l.setOlder(s, sum)
}
