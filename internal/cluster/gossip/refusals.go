package gossip

import (
	"strings"
	"sync"
)

// Bounds of refusals.
const (
	maxRefusals = 32 // that are remembered
	maxTold     = 16 // that wait to be told
	// maxHeld bounds the refusals that are held back while a node opens; further ones are
	// not logged.
	maxHeld = 32
)

// refusals are the last nodes that were refused, to find out why a join failed, and the reasons that are to be told. It
// is safe for concurrent use.
type refusals struct {
	told chan error // reasons, for OnRefused

	mu      sync.Mutex
	last    []refusal
	opening bool
	held    []func() // log calls to make unless Open fails: its error then has the reason
}

func newRefusals() *refusals { return &refusals{told: make(chan error, maxTold), opening: true} }

// keep remembers a refusal, and passes its reason on.
func (r *refusals) keep(one refusal) {
	r.tell(one)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.last) >= maxRefusals {
		r.last = r.last[1:]
	}
	r.last = append(r.last, one)
}

// tell passes a reason on. If the queue is full, one more would say nothing new.
func (r *refusals) tell(why error) {
	select {
	case r.told <- why:
	default:
	}
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
