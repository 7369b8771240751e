package sim

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/cluster/mesh"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// liar is mallory as a member with everything that a member has, who turned hostile: she says that she owns what
// others own, that she has merged what they push then, and that she has more counters than there can be.
type liar struct {
	*hostile
	rng     *rand.Rand
	victim  *key           // whose counter she inflates
	counter uint64         // of her false epochs
	limits  []peer.Limit   // of what she sends
	first   *limiter.Limit // the first of these
	copies  bool           // as a false owner she also sends copies
	granted bool           // she has her false claims granted first
}

const maxKeysOfLiar = 400

// lies delivers a round of lies to all members: of counters, and if claims is set of owners.
func (l *liar) lies(claims bool) {
	for _, n := range l.live() {
		f := &peer.Frame{From: mallory, To: n.inst, Limits: l.limits}
		g := &peer.Frame{From: mallory, To: n.inst}
		for _, id := range l.parts {
			info, _ := n.core.Partition(id)
			l.counter = max(l.counter, info.Owner.Counter) + 1
			e := peer.Epoch{Counter: l.counter, Instance: mallory}
			heir := mallory
			if live := l.live(); l.rng.IntN(2) == 0 {
				heir = live[l.rng.IntN(len(live))].inst
			}
			if claims && l.rng.IntN(2) == 0 {
				f.Announces = append(f.Announces, peer.Announce{Partition: uint16(id), Epoch: e, Heir: heir})
			}
			if claims && l.rng.IntN(4) == 0 {
				f.Revokes = append(f.Revokes, peer.Revoke{Partition: uint16(id), Epoch: e, Appointment: 9, Drop: true})
			}
			if claims && l.granted { // a renewal: owners grant it, too
				c := peer.Claim{Partition: uint16(id), Kind: peer.Renew, Round: 1, Counter: e.Counter, For: mallory}
				g.Claims = append(g.Claims, c)
			}
			l.pushes(f, uint16(id), e, claims)
		}
		n.core.Deliver(g)
		n.core.Deliver(f)
		l.merges(n)
	}
}

// pushes adds counters to a frame, as an owner that was fenced would push them, or an owner copy them: of keys that
// nobody asks about, and one of the victim with a thousand times what its limit can hold.
func (l *liar) pushes(f *peer.Frame, id uint16, e peer.Epoch, claims bool) {
	b := peer.Batch{Partition: id, Kind: peer.Push, Epoch: peer.Epoch{Counter: 1, Instance: mallory}, First: true,
		Last: true, Seq: 1}
	if claims && l.copies && l.rng.IntN(3) == 0 {
		b.Kind, b.Epoch = peer.Snapshot, e
	}
	add := func(h arith.Hash, s arith.State) {
		b.Keys++
		f.Entries = append(f.Entries, peer.Entry{Hi: h.Hi, Lo: h.Lo ^ arith.NameID(l.first), First: true,
			Time: int64(s.Time), A: s.A, B: s.B})
	}
	for _, k := range l.keys {
		for range 100 {
			if h := (arith.Hash{Hi: l.rng.Uint64(), Lo: k.hash.Lo}); k.part == int(id) {
				add(h, arith.State{Time: int64State(1)})
			}
		}
	}
	if l.victim.part == int(id) && b.Kind == peer.Push { // a copy of an owner is believed up to the bound of debts
		add(l.victim.hash, arith.State{Time: int64State(1000)})
	}
	f.Batches = append(f.Batches, b)
}

// int64State returns the level of a bucket that is so many times full, as it travels.
func int64State(times int) limiter.Tick { return limiter.Tick(times) * 5 * limiter.Second }

// merges has her acknowledge what a node says to her: that she has merged what it pushes.
func (l *liar) merges(n *Node) {
	var acks []peer.Ack
	for f := n.core.Take(mallory, true); f != nil; f = n.core.Take(mallory, true) {
		for i := range f.Batches {
			if b := &f.Batches[i]; b.Kind == peer.Push && b.Last {
				acks = append(acks, peer.Ack{Partition: b.Partition, Status: peer.Merged, Epoch: b.Epoch, Ping: b.Ping,
					Owner: peer.Epoch{Counter: l.counter, Instance: mallory}})
			}
		}
		n.core.Release(f)
	}
	if len(acks) > 0 {
		n.core.Deliver(&peer.Frame{From: mallory, To: n.inst, Acks: acks})
	}
}

// TestAHostileMember has a member say that it owns what others own and that it has merged what they push, flood them
// with keys and inflate a counter, for ten seconds, while clients ask. Then it is expelled or ends. 10 s later every
// key is decided by its owner, new keys find room, and the victim is allowed again. Owners have granted each key its
// limit, D for each of three changes of owner. Where false owners also sent copies, they have granted the limit once
// more: these replaced what members held.
func TestAHostileMember(t *testing.T) {
	worlds(t)
	for seed := range seeds(t, 20) {
		for _, expelled := range []bool{true, false} {
			if err := amongThem(uint64(seed), expelled); err != nil {
				t.Errorf("seed %d, expelled %v: %v", seed, expelled, err)
			}
		}
	}
}

func amongThem(seed uint64, expelled bool) error {
	w := newWorld(seed)
	w.lenient, w.size, w.crowd.maxKeys = true, 3, maxKeysOfLiar
	rules := w.plainKeys()
	burst, err := limiter.NewLimit(limiter.Spec{Algorithm: limiter.GCRA, Name: "burst", Limit: 100,
		Window: 5 * time.Second})
	if err != nil {
		return err
	}
	r := &limiter.Rule{Name: "burst", Limits: []*limiter.Limit{burst}, OnUnreachable: limiter.UnreachableLocal}
	rules[r.Name] = r
	victim := &key{rule: r, hash: arith.Hash{Hi: 77, Lo: w.keys[2].hash.Lo}, policy: r.OnUnreachable,
		byPolicy: map[string]int{}, part: w.keys[2].part}
	for i, name := range []string{"a", "b", "c"} {
		w.start(name, i == 0, rules, 3)
	}
	if err := w.run(5*limiter.Second, w.sound); err != nil {
		return err
	}
	h := &hostile{World: w, left: 1 << 20}
	h.mallory(true)
	l := &liar{hostile: h, rng: rand.New(rand.NewPCG(seed, 21)), victim: victim, first: burst,
		limits: mesh.Definition(r).Limits[:1], copies: seed%4 == 3, granted: seed%8 > 4}
	granted := make([]int, len(w.keys))
	ask := func(times int, all ...*key) error {
		for range times {
			for _, k := range all {
				d := h.check(w.live()[l.rng.IntN(3)], k)
				if err := w.run(20*ms, w.sound); err != nil {
					return err
				}
				for i := range w.keys {
					if w.keys[i] == k && d.Allowed && d.Source < limiter.SourceFallbackOpen {
						granted[i]++
					}
				}
			}
		}
		return w.run(limiter.Second, w.sound)
	}
	if err := ask(60, w.keys...); err != nil {
		return err
	}
	for i := range 10 {
		l.lies(i >= 5 && seed%2 == 1) // owners merge only while they own, and false ones lose what they have merged
		if err := ask(1, w.keys[l.rng.IntN(len(w.keys))]); err != nil {
			return err
		}
	}
	if expelled {
		if err := w.live()[0].core.Expel("mallory", false); err != nil {
			return err
		}
	}
	h.mallory(false)
	for range 10 { // clients go on asking
		if err := ask(1, w.keys...); err != nil {
			return err
		}
	}
	return l.judge(granted, 100+15+100*int(seed%4/3), ask)
}

// judge looks whether the promises hold.
func (l *liar) judge(granted []int, most int, ask func(int, ...*key) error) error {
	w := l.World
	if err := w.settled(); err != nil {
		return fmt.Errorf("%w%s", err, l.describe())
	}
	if err := ask(120, w.keys...); err != nil {
		return err
	}
	for i, k := range w.keys {
		if granted[i] > most || granted[i] < 100-15 {
			return fmt.Errorf("of the 100 of %s, partition %d, %d were granted by owners, want at most %d%s", k.rule.Name,
				k.part, granted[i], most, l.describe())
		}
	}
	for i := range maxKeysOfLiar / 4 {
		fresh := &key{rule: l.victim.rule, hash: arith.Hash{Hi: uint64(i) + 1<<40, Lo: w.keys[i%len(w.keys)].hash.Lo},
			policy: l.victim.policy, byPolicy: map[string]int{}}
		answer := l.check(w.live()[i%3], fresh)
		if err := w.run(400*ms, w.sound); err != nil {
			return err
		}
		if !answer.Allowed || answer.Limit(0).Overflow {
			return fmt.Errorf("new user %d is denied: %v, overflow %v", i, answer.Source, answer.Limit(0).Overflow)
		}
	}
	if answer := l.check(w.live()[0], l.victim); w.run(limiter.Second, w.sound) != nil || !answer.Allowed {
		return fmt.Errorf("the victim is denied for %v more", answer.RetryAfter)
	}
	return nil
}
