package table

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// A partition that is exported in parts, of some keys, while others come and go, has these keys as they are, and says
// which were charged since.
func TestExportCharged(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 51))
	tab, now := New(Config{}), limiter.Tick(1767614400e6)
	two := &limiter.Rule{Name: "r"}
	for _, name := range []string{"a", "b"} {
		two.Limits = append(two.Limits, limit(t, limiter.Spec{Name: name, Limit: 1000, Window: time.Hour}))
	}
	second := limit(t, limiter.Spec{Limit: 1000, Window: time.Millisecond})
	brief := &limiter.Rule{Name: "b", Limits: []*limiter.Limit{second}}
	key := func(i uint64, rule *limiter.Rule) arith.Key {
		k := arith.Key{Hash: hash(i), Rule: rule}
		k.Hash.Lo %= 1 << 54
		return k
	}
	part := 0
	for i := range uint64(5000) {
		rule := two
		if i%10 == 9 {
			rule = brief // these have recovered
		}
		k := key(i, rule)
		part = PartitionOf(&k)
		decide(t, tab, now, charge(1, k))
	}
	now += limiter.Second
	wanted := func(hi uint64) bool { return hi%3 == 0 }
	got := map[uint64][]Entry{}
	var asked []uint64
	from, more, calls := uint64(0), true, 0
	for ; more; calls++ {
		n := 0
		from, more = tab.ExportCharged(part, from, now, func(hi uint64, is bool) (yes, stop bool) {
			if n == 100 {
				return true, true
			}
			n++
			asked = append(asked, hi)
			if !is {
				t.Fatalf("%x is not said to be charged", hi)
			}
			return wanted(hi), false
		}, func(e Entry) { got[e.Hi] = append(got[e.Hi], e) })
		k := key(10_000+uint64(r.IntN(10_000)), two) // slots move
		decide(t, tab, now, charge(1, k))
	}
	if calls < 50 {
		t.Errorf("%d calls", calls)
	}
	slices.Sort(asked)
	if len(slices.Compact(slices.Clone(asked))) != len(asked) {
		t.Error("a key was asked for twice")
	}
	for i := range uint64(5000) {
		k := key(i, two)
		if _, found := slices.BinarySearch(asked, k.Hash.Hi); !found {
			t.Fatalf("key %d was not asked for", i)
		}
		want := exportedKey(tab, part, k.Hash.Hi, now)
		if !wanted(k.Hash.Hi) {
			want = nil
		}
		have := got[k.Hash.Hi]
		if fmt.Sprint(have) != fmt.Sprint(want) || len(want) > 0 && i%10 == 9 {
			t.Fatalf("key %d: %v, want %v", i, have, want)
		}
	}
	marked := map[uint64]bool{} // who was charged, and not exported since
	for _, hi := range asked {
		marked[hi] = !wanted(hi)
	}
	for i := range uint64(50) {
		k := key(100*i, two)
		decide(t, tab, now, charge(1, k))
		marked[k.Hash.Hi] = true
	}
	for range 2 {
		tab.ExportCharged(part, 0, now, func(hi uint64, is bool) (yes, stop bool) {
			if want, asked := marked[hi]; asked && is != want {
				t.Errorf("%x: charged %t", hi, is)
			}
			yes = is && hi%5 > 0
			marked[hi] = is && !yes
			return yes, false
		}, func(Entry) {})
	}
	p := &tab.parts[part]
	for i := range p.slots.size {
		if s := p.slots.at(i); s.limit != 0 && s.class == charged {
			if p.give(s, 1, 3); s.class != charged|3 || s.sizeClass() != 3 {
				t.Fatalf("a counter that gets words has the class %x", s.class)
			}
			break
		}
	}
	if from, more := tab.ExportCharged(part+1, 0, now, nil, nil); from != 0 || more {
		t.Error("an empty partition has more")
	}
}

// No charge lets a counter recover sooner, unless its limit has changed: then the charge says so. So who has an older
// state of a counter that has recovered since knows of one that has recovered, too.
func TestAChargeLetsNoCounterRecoverSooner(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 52))
		rules := []*limiter.Rule{randomRule(t, r), randomRule(t, r)}
		tab, now := New(Config{}), limiter.Tick(1767614400e6)
		k := arith.Key{Hash: hash(seed)}
		ends := map[uint64]limiter.Tick{} // of counters
		converted := 0
		for range 2000 {
			now += limiter.Tick(r.IntN(2_000_000))
			if r.IntN(10) == 0 {
				now -= limiter.Second
			}
			if k.Rule = rules[0]; r.IntN(50) == 0 {
				k.Rule = rules[1]
			}
			c := charge(1+uint64(r.IntN(3)), k)
			decide(t, tab, now, c)
			p := &tab.parts[PartitionOf(&k)]
			for i := range p.slots.size {
				s := p.slots.at(i)
				if s.limit == 0 {
					continue
				}
				at := s.state.EmptyAt(tab.registry.limit(s.limit), tab.words(s))
				if had := ends[s.lo]; at < had && had > now && c.Converted == 0 {
					t.Fatalf("seed %d: %v recovers at %d, and before the charge at %d", seed, tab.registry.limit(s.limit), at, had)
				}
				ends[s.lo] = at
			}
			converted += int(c.Converted)
		}
		if converted == 0 {
			t.Errorf("seed %d: no limit has changed", seed)
		}
	}
}
