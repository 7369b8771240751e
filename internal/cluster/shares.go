package cluster

import (
	"sync"

	"github.com/weirlimit/weir/limiter"
)

// maxScaled is how many shares of rules are kept.
const maxScaled = 4096

// shares caches the shares of rules that a minority, or a policy, applies. It is cleared
// at its bound. It is safe for concurrent use.
type shares struct {
	mu     sync.Mutex
	scaled map[scaledKey]*limiter.Rule
}

type scaledKey struct {
	rule     *limiter.Rule
	num, den uint64
}

// of returns a rule with num/den of each limit, at least 1 each.
func (b *shares) of(r *limiter.Rule, num, den uint64) *limiter.Rule {
	key := scaledKey{r, num, den}
	b.mu.Lock()
	defer b.mu.Unlock()
	if s, ok := b.scaled[key]; ok {
		return s
	}
	if len(b.scaled) >= maxScaled {
		clear(b.scaled)
	}
	s := &limiter.Rule{Name: r.Name, Shadow: r.Shadow, OnUnreachable: r.OnUnreachable, Replication: r.Replication, MaxShare: r.MaxShare}
	for _, l := range r.Limits {
		s.Limits = append(s.Limits, limiter.Scaled(l, num, den))
	}
	b.scaled[key] = s
	return s
}
