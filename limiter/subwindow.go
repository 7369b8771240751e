package limiter

// sliding_window: a ring of counts of sub-windows. Word 0 is the position of
// the newest; the counts follow, two to a word.

func subWords(subs int) int { return 1 + (subs+1)/2 }

func subCount(words []uint64, i int) uint32 {
	return uint32(words[1+i>>1] >> (32 * uint(i&1)))
}

func setSubCount(words []uint64, i int, n uint32) {
	shift := 32 * uint(i&1)
	w := &words[1+i>>1]
	*w = *w&^(0xffffffff<<shift) | uint64(n)<<shift
}

func (s *State) sum() uint64 { return uint64(s.B)<<32 | uint64(s.A) }

func (s *State) setSum(n uint64) { s.A, s.B = uint32(n), uint32(n>>32) }

func (l *Limit) rollSubs(s *State, words []uint64, now Tick) {
	sum := s.sum()
	if sum == 0 {
		// All counts are zero, wherever the ring stands.
		if now >= s.Time+l.sub || now < s.Time {
			s.Time = now - now%l.sub
		}
		return
	}
	if now < s.Time+l.sub {
		return
	}
	steps := (now - s.Time) / l.sub
	s.Time += steps * l.sub
	head := int(words[0])
	for range min(steps, Tick(l.subs)) {
		if head++; head == l.subs {
			head = 0
		}
		sum -= uint64(subCount(words, head))
		setSubCount(words, head, 0)
	}
	words[0] = uint64(head)
	s.setSum(sum)
}

func chargeSubs(s *State, words []uint64, n uint32) {
	head := int(words[0])
	was := subCount(words, head)
	is := addSat(was, n)
	setSubCount(words, head, is)
	s.setSum(s.sum() + uint64(is-was))
}

// subAt returns the ring position of the sub-window that is age steps older
// than the newest, 0 <= age < subs.
func (l *Limit) subAt(words []uint64, age int) int {
	i := int(words[0]) - age
	if i < 0 {
		i += l.subs
	}
	return i
}

func (l *Limit) subsAdmitAt(s *State, words []uint64, n uint64) Tick {
	sum, steps := s.sum(), 0
	for sum+n > l.limit && steps < l.subs {
		steps++
		sum -= uint64(subCount(words, l.subAt(words, l.subs-steps)))
	}
	return s.Time + Tick(steps)*l.sub
}

func (l *Limit) subsEmptyAt(s *State, words []uint64) Tick {
	if s.sum() == 0 {
		return 0
	}
	age := 0
	for age < l.subs-1 && subCount(words, l.subAt(words, age)) == 0 {
		age++
	}
	return s.Time + Tick(l.subs-age)*l.sub
}

func (l *Limit) refundSubs(s *State, words []uint64, at Tick, n uint32) {
	if s.sum() == 0 {
		return
	}
	age := Tick(0)
	if at < s.Time {
		age = (s.Time - at + l.sub - 1) / l.sub
	}
	if age >= Tick(l.subs) {
		return
	}
	i := l.subAt(words, int(age))
	was := subCount(words, i)
	if l.saturated(was) {
		return
	}
	is := was - min(was, n)
	setSubCount(words, i, is)
	s.setSum(s.sum() - uint64(was-is))
}
