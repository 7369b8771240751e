package quotatest

import "time"

// Judge counts what Envoys admit of a limit: at most its capacity, and its rate as time passes.
type Judge struct {
	// Rate is in units a second. Load changes it.
	Rate, Capacity float64
	// Over is by how many units the limit was passed at the worst.
	Over float64

	level    float64
	at       time.Duration
	admitted []float64 // by quarters of a second
	offered  []float64
}

const quarter = 250 * time.Millisecond

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
	j.admitted[i]++
	j.Load(now, j.Rate)
	j.level++
	j.Over = max(j.Over, j.level-j.Capacity)
}

// Load judges by another rate from now on.
func (j *Judge) Load(now time.Duration, rate float64) {
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
