package gossip

import (
	"strings"
	"sync"
)

// Bounds of refusals.
const (
	maxRefusals = 32 // that are remembered
	// maxHeld bounds the refusals that are held back while a node opens; further ones are
	// not logged.
	maxHeld = 32
)

// refusals are the last nodes that were refused, to find out why a join failed. It is safe for concurrent use.
type refusals struct {
	mu      sync.Mutex
	last    []refusal
	opening bool
	held    []func() // log calls to make unless Open fails: its error then has the reason
}

// keep remembers a refusal.
func (r *refusals) keep(one refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.last) >= maxRefusals {
		r.last = r.last[1:]
	}
	r.last = append(r.last, one)
}

// in returns the last refusal that an error of memberlist quotes; nil if it
// quotes none.
func (r *refusals) in(text string) *refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := len(r.last) - 1; i >= 0; i-- {
		if one := r.last[i]; strings.Contains(text, one.Error()) {
			return &one
		}
	}
	return nil
}

// log logs a refusal by calling lor. While the node opens, it holds the call back:
// if no node lets this one in, the error of Open has the reason already.
func (r *refusals) log(write func()) {
	r.mu.Lock()
	hold := r.opening
	if hold && len(r.held) < maxHeld {
		r.held = append(r.held, write)
	}
	r.mu.Unlock()
	if !hold {
		write()
	}
}

// release makes the calls that were held back.
func (r *refusals) release() {
	r.mu.Lock()
	held := r.held
	r.opening, r.held = false, nil
	r.mu.Unlock()
	for _, log := range held {
		log()
	}
}
