package sim

import (
	"fmt"
	"io"
	"math/rand/v2"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/internal/peerlink"
	"github.com/weirlimit/weir/limiter"
)

// World is the virtual time, the network and the nodes of one run.
type World struct {
	Seed uint64
	rng  *rand.Rand
	now  limiter.Tick
	seq  int
	todo events

	size  int     // of the cluster
	nodes []*Node // every run of every node, in the order of their starts
	fence fence
	skew  limiter.Tick // how wrong clocks may be
	drift limiter.Tick // and become, per second
	conns map[pair]*conn
	split bool          // the run has splits
	exact bool          // every change of the run is graceful: nothing is lost
	cut   map[pair]bool // what one sends does not reach the other

	rolled  map[string]*limiter.Rule // the changed rules file that is rolled out, nil: there is none
	keys    []*key
	parts   []int
	outcome Outcome
	broken  int                  // how often a connection broke
	reloads int                  // how often a node read its rules file
	losses  map[int]int          // how often owner and heir were lost together, by partition
	lost    map[int][]peer.Epoch // of the owners that were lost so
	// clock is what counters see and ruleNamed where rules come from, where a
	// test says so.
	clock     func(now limiter.Tick) limiter.Tick
	ruleNamed func(name string) *limiter.Rule
	near      nearby
	crowd     crowd
	codec     *peerlink.Codec
	buffers   [][]byte // of frames, to be used again
	frames    int      // that were sent
	sent      int      // their bytes
	failed    error    // what no bound has room for
	lenient   bool     // nodes may complain
	// fault is called where a core may panic, nil: none does. See [errInjected].
	fault  func(n *Node, partition int)
	looked int // how often it was looked at what holds at any moment
	// heard are the pairs of whom gossip at the one heard that the other left. suspects are
	// those of whom it takes the other for dead.
	heard     map[pair]bool
	suspects  map[pair]bool
	slow      map[pair]limiter.Tick // what packets take longer
	faultAt   limiter.Tick          // when the last fault began or ended
	stronger  *stronger             // nil in a run of the golden file
	holders   *holders              // nil in a run without them
	broader   *broader              // nil in a run of the golden file
	disks     *disks                // nil in a run without them
	trace     []string
	tracing   bool
	record    io.Writer // takes what nodes do, nil: nobody does
	remarks   bool      // the record has the lines of the trace too
	watchPart int
}

// pair is a direction between two instances.
type pair struct{ from, to peer.Instance }

// event is something that happens at an instant; of several the first scheduled
// comes first.
type event struct {
	at  limiter.Tick
	seq int
	run func()
}

// events is a heap, the next one first. It is [container/heap] for this one type.
type events []event

func (e events) before(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}

func (e *events) push(x event) {
	*e = append(*e, x)
	h := *e
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !h.before(i, up) {
			return
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
}

func (e *events) pop() event {
	h := *e
	last := len(h) - 1
	x := h[0]
	h[0], h[last] = h[last], event{}
	h = h[:last]
	*e = h
	for i := 0; ; {
		least := i
		for down := 2*i + 1; down <= 2*i+2 && down < last; down++ {
			if h.before(down, least) {
				least = down
			}
		}
		if least == i {
			return x
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}

const epoch = 1_700_000_000 * limiter.Second

func newWorld(seed uint64) *World {
	return &World{
		Seed: seed, rng: rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15)), now: epoch, skew: 500 * ms,
		codec: peerlink.NewCodec(), losses: make(map[int]int), lost: make(map[int][]peer.Epoch),
		conns: make(map[pair]*conn), cut: make(map[pair]bool), heard: make(map[pair]bool),
		suspects: make(map[pair]bool), slow: make(map[pair]limiter.Tick),
	}
}

// after schedules something.
func (w *World) after(span limiter.Tick, run func()) {
	w.seq++
	w.todo.push(event{w.now + max(0, span), w.seq, run})
}

// often has something done again and again until an instant, first after a span, and then after those that it returns.
func (w *World) often(end, first limiter.Tick, do func() limiter.Tick) {
	var next func()
	next = func() {
		if w.now < end {
			w.after(do(), next)
		}
	}
	w.after(first, next)
}

// between returns a random span.
func (w *World) between(from, to limiter.Tick) limiter.Tick {
	return from + limiter.Tick(w.rng.Int64N(int64(to-from)+1))
}

func (w *World) between64(from, to int64) int64 { return from + w.rng.Int64N(to-from+1) }

// chance is true with the given probability in a hundred.
func (w *World) chance(percent int) bool { return w.rng.IntN(100) < percent }

// run lets the given span pass, and calls check after every event.
func (w *World) run(span limiter.Tick, check func() error) error {
	end := w.now + span
	for len(w.todo) > 0 && w.todo[0].at <= end {
		e := w.todo.pop()
		w.now = e.at
		e.run()
		if w.watchPart > 0 {
			for _, n := range w.nodes {
				if n.alive {
					if d := n.core.Describe(w.watchPart); d != n.lastDebug {
						n.lastDebug = d
						w.logf("   %s: %s", n.name, d)
					}
				}
			}
		}
		err := check()
		if w.failed != nil {
			err = w.failed
		}
		if err != nil {
			return fmt.Errorf("seed %d at %v: %w", w.Seed, (w.now - epoch).Duration(), err)
		}
	}
	w.now = end
	return nil
}

func (w *World) logf(format string, args ...any) {
	if !w.tracing && !w.remarks {
		return
	}
	line := fmt.Sprintf("%10.3f ", float64(w.now-epoch)/1000) + fmt.Sprintf(format, args...)
	if w.tracing {
		w.trace = append(w.trace, line)
	}
	if w.remarks {
		w.recordLine("#" + line)
	}
}

// faulted notes that a fault begins or ends now.
func (w *World) faulted() {
	w.faultAt = w.now
	w.near.lending.underWay(w)
}

// live returns the nodes that run, paused ones too.
func (w *World) live() []*Node {
	var out []*Node
	for _, n := range w.nodes {
		if n.alive {
			out = append(out, n)
		}
	}
	return out
}

func (w *World) node(i peer.Instance) *Node {
	for _, n := range w.nodes {
		if n.inst == i {
			return n
		}
	}
	return nil
}
