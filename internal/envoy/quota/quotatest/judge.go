package quotatest

import (
	"slices"
	"time"
)

// Judge counts what Envoys admit of a limit: at most its capacity, and its rate as time passes; or, if it has a window,
// at most what its rate gives for the window in any interval of that length.
type Judge struct {
	// Rate is in units a second. Limit changes it.
	Rate, Capacity float64
	Window         time.Duration
	// Over is by how many units the limit was passed at the worst.
	Over float64

	level    float64
	at       time.Duration
	lower    float64 // the rate from lowerAt on; 0: it stays
	lowerAt  time.Duration
	recent   []time.Duration // when the last window's were admitted
	admitted []float64       // by quarters of a second
	offered  []float64
}

const quarter = 250 * time.Millisecond

// NewJudge returns a judge of the limit of the cells.
func NewJudge(envoys int) Judge { return Judge{Rate: Rate, Capacity: float64(Capacity(envoys))} }

// See notes a request.
func (j *Judge) See(now time.Duration, admitted bool) {
	i := int(now / quarter)
	for len(j.offered) <= i {
		j.offered, j.admitted = append(j.offered, 0), append(j.admitted, 0)
	}
	j.offered[i]++
	if !admitted {
		return
	}
	if j.lower > 0 && now >= j.lowerAt {
		j.load(j.lowerAt, j.lower)
		j.lower = 0
	}
	j.admitted[i]++
	if j.Window > 0 {
		j.recent = append(j.recent, now)
		for j.recent[0] <= now-j.Window {
			j.recent = j.recent[1:]
		}
		j.Over = max(j.Over, float64(len(j.recent))-j.Rate*j.Window.Seconds())
		return
	}
	j.load(now, j.Rate)
	j.level++
	j.Over = max(j.Over, j.level-j.Capacity)
}

// Limit judges by another rate from now on, or by a lower one once what was assigned is over.
func (j *Judge) Limit(now time.Duration, rate float64) {
	if rate < j.Rate {
		j.lower, j.lowerAt = rate, now+TTL
	} else {
		j.load(now, rate)
	}
}

func (j *Judge) load(now time.Duration, rate float64) {
	j.level, j.at, j.Rate = max(0, j.level-j.Rate*(now-j.at).Seconds()), now, rate
}

// Used returns which part of what could be admitted was, from one instant to another.
func (j *Judge) Used(from, to time.Duration) float64 {
	could, did := 0.0, 0.0
	for i := int(from / quarter); i < int(to/quarter) && i < len(j.offered); i++ {
		could += j.offered[i]
		did += j.admitted[i]
	}
	return did / min(could, j.Rate*(to-from).Seconds())
}

// Slices are those that were lent to one stream. They tell what fast ones may admit beyond the limit: when an owner
// lowers a rate, Envoy may use the difference until it hears of it, and at most until what it was assigned before is
// over.
type Slices struct {
	given, lower []lowering
}

type lowering struct {
	by        float64
	at, until time.Duration
}

// Lent notes what the owner lends.
func (s *Slices) Lent(now time.Duration, rate float64, hold time.Duration) {
	low := lowering{at: now}
	for _, g := range s.given {
		if g.until > now && g.by > rate {
			low.by, low.until = max(low.by, g.by-rate), max(low.until, g.until)
		}
	}
	if low.by > 0 {
		s.lower = append(s.lower, low)
	}
	s.given = append(s.given, lowering{by: rate, until: now + hold})
}

// Lowered returns by how much the last lent rate that Envoy has not heard of is lower than one before; 0: it has heard
// of all.
func (s *Slices) Lowered() float64 {
	if len(s.lower) == 0 {
		return 0
	}
	return s.lower[len(s.lower)-1].by
}

// Heard notes that Envoy has what was sent at an instant, or that it is too late for that. It returns how many units
// may have been admitted beyond the limit.
func (s *Slices) Heard(sent, now time.Duration) (units float64) {
	s.lower = slices.DeleteFunc(s.lower, func(l lowering) bool {
		if l.at > sent {
			return false
		}
		units += l.by * (min(now, l.until) - l.at).Seconds()
		return true
	})
	return units
}
