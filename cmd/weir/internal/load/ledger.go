package load

import (
	"fmt"
	"sync/atomic"
)

// answer is the result of one check.
type answer uint8

// The results. A check that failed, or that a rule's policy answered, may or may not
// have been charged.
const (
	failed answer = iota
	allowed
	denied
	policyAllowed
	policyDenied
	// An heir answers once the owner was silent, which may have charged the check, too.
	heirAllowed
	heirDenied
)

// ledger records what was sent and answered for each key, and computes what is correct.
// It is safe for concurrent use.
type ledger struct {
	keys *keys
	// asked counts checks before they are sent. allowed and open count them when they
	// are answered; open are those that may or may not have been charged, twice those that
	// may have been charged twice.
	asked, allowed, open, twice []atomic.Uint32

	total, granted, refused, failed, policy, heir atomic.Uint64
	// over counts checks that were allowed beyond the limit; early those that were
	// denied before as many checks as the limit had been sent.
	over, early atomic.Uint64
}

func newLedger(k *keys) *ledger {
	n := k.n
	return &ledger{
		keys: k, asked: make([]atomic.Uint32, n), allowed: make([]atomic.Uint32, n),
		open: make([]atomic.Uint32, n), twice: make([]atomic.Uint32, n),
	}
}

// ask records that key n is about to be checked.
func (l *ledger) ask(n uint32) {
	l.asked[n].Add(1)
	l.total.Add(1)
}

// answer records an answer, and verifies that it is possible.
func (l *ledger) answer(n uint32, a answer) {
	if a >= heirAllowed {
		l.twice[n].Add(1)
		l.heir.Add(1)
		a -= heirAllowed - allowed
	}
	switch a {
	case allowed:
		l.granted.Add(1)
		if now := l.allowed[n].Add(1); l.keys.isLimited(n) && now > limit {
			l.over.Add(1)
		}
	case denied:
		l.refused.Add(1)
		if !l.keys.isLimited(n) || l.asked[n].Load()+l.twice[n].Load() <= limit {
			l.early.Add(1)
		}
	case policyAllowed, policyDenied: // owner and heir were silent, and either may have charged it
		l.open[n].Add(1)
		l.twice[n].Add(1)
		l.policy.Add(1)
	default:
		l.open[n].Add(1)
		l.failed.Add(1)
	}
}

// Decisions compares the answers with the correct ones.
type Decisions struct {
	Allowed uint64 `json:"allowed"`
	Denied  uint64 `json:"denied"`
	// Failed checks had no answer; their charges are not known. Nor are those of checks
	// that a rule's policy answered because the owner could not be reached. These are
	// counted in ByPolicy, and not in Allowed and Denied.
	Failed   uint64 `json:"failed"`
	ByPolicy uint64 `json:"by_policy"`
	// ByHeir counts the answers among Allowed and Denied that the owner's heir gave.
	ByHeir uint64 `json:"by_heir"`
	// KeysHit is the number of different keys that were checked.
	KeysHit int `json:"keys_hit"`
	// AllowedLeast and AllowedMost bound the correct number of allowed checks: for each
	// key as many as were sent, up to its limit. They differ if checks failed, or a
	// policy or an heir answered.
	AllowedLeast uint64 `json:"allowed_least"`
	AllowedMost  uint64 `json:"allowed_most"`
	// Over is how many checks too many were allowed, summed over keys; Under how many
	// too few. Early is how many were denied before as many checks of the key as its
	// limit had been sent. All are 0 in a correct run.
	Over  uint64 `json:"over"`
	Under uint64 `json:"under"`
	Early uint64 `json:"early"`
}

// Wrong returns what is wrong with the decisions, nil if they are correct.
func (d *Decisions) Wrong() error {
	if d.Over == 0 && d.Under == 0 && d.Early == 0 && d.Allowed >= d.AllowedLeast && d.Allowed <= d.AllowedMost {
		return nil
	}
	return fmt.Errorf("decisions are wrong: %d checks were allowed beyond their key's limit, %d were not that should "+
		"have been, and %d were denied before the limit was reached; %d were allowed, and should be %d to %d",
		d.Over, d.Under, d.Early, d.Allowed, d.AllowedLeast, d.AllowedMost)
}

// conclude compares the counts when all checks have been answered.
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
		least := most - min(most, l.open[n].Load()+l.twice[n].Load())
		d.AllowedMost += uint64(most)
		d.AllowedLeast += uint64(least)
		if got := l.allowed[n].Load(); got < least {
			d.Under += uint64(least - got)
		}
	}
	return d
}
