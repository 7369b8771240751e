package sim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// way is one of the ways in which nodes come to terms: the sections of a frame that it
// takes, and what makes a forged frame one of that way.
type way struct {
	sections []string
	shape    func(h *hostile, f *peer.Frame)
}

func ways() map[string]way {
	batches := []string{"Batches", "Entries", "Limits"}
	kinds := func(some ...peer.BatchKind) func(*hostile, *peer.Frame) {
		return func(h *hostile, f *peer.Frame) {
			for i := range f.Batches {
				f.Batches[i].Kind = some[h.src.below(len(some))]
			}
		}
	}
	return map[string]way{
		"hello": {[]string{"Known"}, func(h *hostile, f *peer.Frame) { f.Known = h.hearsay() }},
		"claims": {[]string{"Claims"}, func(h *hostile, f *peer.Frame) {
			for i := range f.Claims {
				f.Claims[i].Kind = peer.Takeover + peer.ClaimKind(h.src.below(5))
			}
		}},
		"probes": {[]string{"Claims"}, func(_ *hostile, f *peer.Frame) {
			for i := range f.Claims {
				f.Claims[i].Kind = peer.Ask
			}
		}},
		"grants":  {[]string{"Answers"}, nil},
		"reports": {[]string{"Announces"}, nil},
		"handoff": {batches, kinds(peer.Handover, peer.Push)},
		"copies":  {batches, kinds(peer.Delta, peer.Snapshot)},
		"control": {[]string{"Revokes", "Acks"}, nil},
		"checks":  {[]string{"Checks", "Refunds", "Keys", "Rules"}, nil},
		"replies": {[]string{"Replies", "Results", "Rules"}, nil},
	}
}

// hearsay is what somebody tells of members: of some that there are, and of others.
func (h *hostile) hearsay() (known []peer.Known) {
	live := h.live()
	for range 1 + h.src.below(6) {
		k := peer.Known{Name: fmt.Sprint("ghost-", h.src.below(20)), Instance: peer.Instance(0xbad0 + h.src.below(256)),
			Gone: h.src.below(2) == 0}
		if m := live[h.src.below(len(live))]; h.src.below(2) == 0 {
			if k.Name = m.name; h.src.below(2) == 0 {
				k.Instance = m.inst
			}
		}
		known = append(known, k)
	}
	return known
}

// forged returns the bytes of a forged frame of one way; none if chance made none.
func (h *hostile) forged(n *Node, w way) []byte {
	f := new(peer.Frame)
	info, _ := n.core.Partition(h.parts[h.src.below(len(h.parts))])
	forge := forger{h, n, info.ID, info.Epoch, info.Seq, info.Owner}
	v := reflect.ValueOf(f).Elem()
	for _, name := range w.sections {
		for field := v.FieldByName(name); field.Len() == 0 && len(h.src.b) > 0; {
			forge.fill(field, "")
		}
	}
	if w.shape != nil {
		w.shape(h, f)
	}
	f.To, f.Relayed = n.inst, h.src.below(4) == 0
	if f.Relayed {
		f.From = forge.instance()
	}
	fit(f)
	b, err := h.codec.Append(nil, f)
	if err != nil {
		return nil
	}
	return b
}

// TestForgedFramesAmongHonestOnes mixes forged frames of each way with what nodes say to
// each other, while clients ask, time passes and connections break. Then it stops: after
// a while every partition is decided by its owner, nothing waits, and of each key its
// limit is admitted, not one more or less, however the nodes are asked in turn.
func TestForgedFramesAmongHonestOnes(t *testing.T) {
	worlds(t)
	all := ways()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) {
			given := 0
			for seed := range seeds(t, 3) {
				n, err := amongHonest(all[name], uint64(seed))
				if given += n; err != nil {
					t.Errorf("seed %d: %v", seed, err)
				}
			}
			if given == 0 {
				t.Error("no frame was forged")
			}
		})
	}
}

// amongHonest is one run, which returns how many frames were forged.
func amongHonest(kind way, seed uint64) (given int, err error) {
	w := newWorld(seed)
	w.lenient, w.size = true, 3
	rules := w.plainKeys()
	for i, name := range []string{"a", "b", "c"} {
		w.start(name, i == 0, rules, 3)
	}
	if err := w.run(5*limiter.Second, w.sound); err != nil {
		return 0, err
	}
	r := rand.New(rand.NewPCG(seed, 16))
	h := &hostile{World: w, src: source{make([]byte, 1<<16)}, left: 1 << 20}
	for i := range h.src.b {
		h.src.b[i] = byte(r.Uint32())
	}
	h.mallory(true)
	w.split = true
	for range 60 {
		live := w.live()
		n := live[r.IntN(len(live))]
		for range 1 + r.IntN(3) {
			if b := h.forged(n, kind); b != nil {
				h.give(n, b)
				given++
			}
		}
		h.check(live[r.IntN(len(live))], w.keys[r.IntN(len(w.keys))])
		if r.IntN(10) == 0 {
			h.snapBoth(n, live[r.IntN(len(live))])
		}
		if err := w.run(limiter.Tick(r.IntN(150))*ms, w.sound); err != nil {
			return given, err
		}
	}
	h.mallory(false)
	w.heal()
	for _, n := range w.live() { // as an operator does who finds members that there are not
		for _, k := range n.core.Registry().Dead() {
			n.members.Forget(k.Name)
		}
	}
	if err := h.recovers(); err != nil {
		return given, err
	}
	return given, h.judged()
}

// judged looks whether the promises hold again: of each key, once it is reset, its limit
// is admitted.
func (h *hostile) judged() error {
	w := h.World
	live := w.live()
	for i, k := range w.keys {
		c := new(arith.Charge)
		c.Add(k.key(live[0], 1))
		n := live[i%len(live)]
		n.do(func() {
			n.core.Reset(c, func(o route.Outcome) {
				if o != (route.Outcome{Counters: o.Counters}) {
					w.fail(fmt.Errorf("%s cannot reset %s: %+v", n.name, k.rule.Name, o))
				}
			})
		})
	}
	if err := w.run(limiter.Second, w.sound); err != nil {
		return err
	}
	const limit = 100 // of plainKeys
	admitted := make([]int, len(w.keys))
	for round := range limit + 4 {
		var answers []*limiter.Decision
		for i, k := range w.keys {
			answers = append(answers, h.check(live[(round+i)%len(live)], k))
		}
		if err := w.run(400*ms, w.sound); err != nil {
			return err
		}
		for i, d := range answers {
			if d.Allowed {
				admitted[i]++
			}
		}
	}
	for i, k := range w.keys {
		if admitted[i] != limit {
			return fmt.Errorf("after all was over %s (partition %d) admitted %d of %d", k.rule.Name, k.part, admitted[i], limit)
		}
	}
	return w.idle()
}
