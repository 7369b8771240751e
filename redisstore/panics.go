package redisstore

import (
	"sync"

	"github.com/weirlimit/weir/internal/guard"
)

// panics counts panics of the store's goroutines. It is safe for concurrent use.
type panics struct {
	mu      sync.Mutex
	observe func(place string)
	missed  int // panics since the store opened, while nobody observes
}

func (p *panics) count(string) {
	p.mu.Lock()
	observe := p.observe
	if observe == nil {
		p.missed++
	}
	p.mu.Unlock()
	if observe != nil {
		observe(guard.Redis)
	}
}

// watch makes the store call observe with "redis" for each panic that it recovers
// from in a goroutine of its own, those since it opened included. observe is called from
// several goroutines. [weir.Open] calls it with the node's observer.
func (p *panics) watch(observe func(place string)) {
	p.mu.Lock()
	missed := p.missed
	p.observe, p.missed = observe, 0
	p.mu.Unlock()
	for range missed {
		observe(guard.Redis)
	}
}
