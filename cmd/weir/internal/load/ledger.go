package load

import (
	"fmt"
	"sync/atomic"
)

// answer is what became of one check.
type answer uint8

// The answers. A check that failed, or was answered by a rule's policy, may have
// been charged or not.
const (
	failed answer = iota
	allowed
	denied
	policyAllowed
	policyDenied
)

// ledger keeps account of what was asked and answered for each key, and knows what
// should have been. It is safe for concurrent use.
type ledger struct {
	keys *keys
	// asked counts checks before they are sent, allowed and open when they are
	// answered: open those of which nobody knows whether they were charged.
	asked, allowed, open []atomic.Uint32

	total, granted, refused, failed, policy, heir atomic.Uint64
	// over counts checks that were allowed beyond the limit, early those that were
	// denied when the limit had not been asked for yet.
	over, early atomic.Uint64
}

func newLedger(k *keys) *ledger {
	n := k.n
	return &ledger{keys: k, asked: make([]atomic.Uint32, n), allowed: make([]atomic.Uint32, n), open: make([]atomic.Uint32, n)}
}

// ask takes note that key n is about to be asked for.
func (l *ledger) ask(n uint32) {
	l.asked[n].Add(1)
	l.total.Add(1)
}

// answer takes note of an answer, and looks whether it can be right.
func (l *ledger) answer(n uint32, a answer) {
	switch a {
	case allowed:
		l.granted.Add(1)
		if now := l.allowed[n].Add(1); l.keys.isLimited(n) && now > limit {
			l.over.Add(1)
		}
	case denied:
		l.refused.Add(1)
		if !l.keys.isLimited(n) || l.asked[n].Load() <= limit {
			l.early.Add(1)
		}
	case policyAllowed, policyDenied:
		l.open[n].Add(1)
		l.policy.Add(1)
	default:
		l.open[n].Add(1)
		l.failed.Add(1)
	}
}

// Decisions is what was answered, against what should have been.
type Decisions struct {
	Allowed uint64 `json:"allowed"`
	Denied  uint64 `json:"denied"`
	// Failed checks had no answer; what they charged is not known. Of checks that
	// a rule's policy answered, since who counts could not, neither: they are
	// counted in ByPolicy and not in Allowed and Denied.
	Failed   uint64 `json:"failed"`
	ByPolicy uint64 `json:"by_policy"`
	// ByHeir are those of Allowed and Denied that the owner's heir answered.
	ByHeir uint64 `json:"by_heir"`
	// KeysHit is how many different keys were asked for.
	KeysHit int `json:"keys_hit"`
	// AllowedLeast and AllowedMost is how many had to be allowed: for each key as many
	// as were asked for, and no more than its limit. They differ where checks
	// failed, or a policy answered.
	AllowedLeast uint64 `json:"allowed_least"`
	AllowedMost  uint64 `json:"allowed_most"`
	// Over is how many checks too many were allowed, each key for itself, Under how
	// many too few, and Early how many were denied before the key's limit had been
	// asked for. All are 0 in a right run.
	Over  uint64 `json:"over"`
	Under uint64 `json:"under"`
	Early uint64 `json:"early"`
}

// Wrong tells what is wrong with the decisions, nil if they are right.
func (d *Decisions) Wrong() error {
	if d.Over == 0 && d.Under == 0 && d.Early == 0 && d.Allowed >= d.AllowedLeast && d.Allowed <= d.AllowedMost {
		return nil
	}
	return fmt.Errorf("decisions are wrong: %d checks were allowed beyond their key's limit, %d were not that should have been, and %d were denied before the limit was reached; %d were allowed, and should be %d to %d",
		d.Over, d.Under, d.Early, d.Allowed, d.AllowedLeast, d.AllowedMost)
}

// conclude compares, when all is answered.
func (l *ledger) conclude() Decisions {
	d := Decisions{
		Allowed: l.granted.Load(), Denied: l.refused.Load(), Failed: l.failed.Load(), ByPolicy: l.policy.Load(),
		ByHeir: l.heir.Load(), Over: l.over.Load(), Early: l.early.Load(),
	}
	for n := range l.asked {
		asked := l.asked[n].Load()
		if asked == 0 {
			continue
		}
		d.KeysHit++
		most := asked
		if l.keys.isLimited(uint32(n)) {
			most = min(most, limit)
		}
		least := most - min(most, l.open[n].Load())
		d.AllowedMost += uint64(most)
		d.AllowedLeast += uint64(least)
		if got := l.allowed[n].Load(); got < least {
			d.Under += uint64(least - got)
		}
	}
	return d
}
