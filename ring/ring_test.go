package ring

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/buraksezer/consistent"
)

// nodes returns the names node-1 to node-n.
func nodes(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("node-%d", i+1)
	}
	return out
}

func build(t testing.TB, names []string) *Ring {
	t.Helper()
	r, err := New(names)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// owner returns the name of a partition's owner, successor that of the next.
func owner(r *Ring, p int) string {
	if i := r.Owner(p); i >= 0 {
		return r.Members()[i]
	}
	return ""
}

func successor(r *Ring, p int) string {
	if i := r.Successor(p); i >= 0 {
		return r.Members()[i]
	}
	return ""
}

func TestNobody(t *testing.T) {
	r := build(t, nil)
	if n := len(r.Members()); n != 0 {
		t.Errorf("%d members, want none", n)
	}
	r.Prepare(0)
	for p := range Partitions {
		if r.Owner(p) != -1 || r.Successor(p) != -1 {
			t.Fatalf("partition %d of nobody has owner %d and successor %d", p, r.Owner(p), r.Successor(p))
		}
	}
}

func TestAlone(t *testing.T) {
	r := build(t, []string{"alone"})
	r.Prepare(0)
	for p := range Partitions {
		if r.Owner(p) != 0 || r.Successor(p) != -1 {
			t.Fatalf("partition %d has owner %d and successor %d, want 0 and -1", p, r.Owner(p), r.Successor(p))
		}
	}
	if s := r.Share(0); s != 1 {
		t.Errorf("the only member has a share of %v", s)
	}
}

func TestOutOfRange(t *testing.T) {
	r := build(t, nodes(3))
	for _, p := range []int{-1, math.MinInt, Partitions, math.MaxInt} {
		if r.Owner(p) != -1 || r.Successor(p) != -1 {
			t.Errorf("there is no partition %d, but it has owner %d and successor %d", p, r.Owner(p), r.Successor(p))
		}
	}
	for _, i := range []int{-1, 3, math.MaxInt} {
		r.Prepare(i)
		if s := r.Share(i); s != 0 {
			t.Errorf("there is no member %d, but it has a share of %v", i, s)
		}
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name  string
		names []string
		want  error
	}{
		{"one too many", nodes(MaxMembers + 1), ErrTooManyMembers},
		{"twice", []string{"b", "a", "b"}, ErrName},
		{"empty", []string{"a", ""}, ErrName},
		{"only an empty one", []string{""}, ErrName},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := New(c.names)
			if !errors.Is(err, c.want) || r != nil {
				t.Errorf("got %v, %v; want the error %v and no ring", r, err, c.want)
			}
		})
	}
}

// Two points of one hash would leave a hole in the library's circle when one of
// the two members is removed, and it would fall in.
func TestCollisionIsRefused(t *testing.T) {
	names := nodes(3)
	if err := distinct(names, hasher{}.Sum64); err != nil {
		t.Fatal(err)
	}
	meeting := func(b []byte) uint64 {
		if s := string(b); s == "7:node-1" || s == "159:node-3" {
			return 42
		}
		return hasher{}.Sum64(b)
	}
	if err := distinct(names, meeting); !errors.Is(err, ErrCollision) {
		t.Errorf("two points of one hash: got %v, want ErrCollision", err)
	}
}

func TestNewKeepsNothing(t *testing.T) {
	names := []string{"c", "a", "b"}
	r := build(t, names)
	if !slices.Equal(names, []string{"c", "a", "b"}) {
		t.Errorf("New sorted its caller's slice: %v", names)
	}
	names[0], names[1], names[2] = "x", "y", "z"
	if !slices.Equal(r.Members(), []string{"a", "b", "c"}) {
		t.Errorf("the members are %v, want a b c", r.Members())
	}
	_ = append(r.Members(), "d")
	if !slices.Equal(r.Members(), []string{"a", "b", "c"}) {
		t.Errorf("after an append by a caller the members are %v", r.Members())
	}
}

func TestIndex(t *testing.T) {
	r := build(t, nodes(12))
	for i, name := range r.Members() {
		if got := r.Index(name); got != i {
			t.Errorf("%s has index %d, want %d", name, got, i)
		}
	}
	for _, name := range []string{"", "node", "node-13", "zebra"} {
		if got := r.Index(name); got != -1 {
			t.Errorf("%q is no member, but has index %d", name, got)
		}
	}
}

func TestOrderDoesNotMatter(t *testing.T) {
	inWire(t)
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{2, 3, 4, 11, 16} {
		names := nodes(n)
		want := build(t, names)
		for range 3 {
			rnd.Shuffle(n, func(i, j int) { names[i], names[j] = names[j], names[i] })
			got := build(t, names)
			// Asked in another order, too.
			for _, p := range rnd.Perm(Partitions) {
				if owner(got, p) != owner(want, p) || successor(got, p) != successor(want, p) {
					t.Fatalf("%d members in another order: partition %d has owner %s and successor %s, want %s and %s",
						n, p, owner(got, p), successor(got, p), owner(want, p), successor(want, p))
				}
			}
		}
	}
}

// The successor is the owner in a ring that is built without the owner.
func TestSuccessorIsTheOwnerWithout(t *testing.T) {
	inWire(t)
	for _, n := range []int{2, 3, 4, 5, 9, 16} {
		r := build(t, nodes(n))
		for i, name := range r.Members() {
			without := build(t, slices.DeleteFunc(nodes(n), func(s string) bool { return s == name }))
			for p := range Partitions {
				if r.Owner(p) == i && successor(r, p) != owner(without, p) {
					t.Fatalf("%d members: the successor of partition %d is %s, but without %s it is owned by %s",
						n, p, successor(r, p), name, owner(without, p))
				}
			}
		}
	}
}

// Members are taken out of the circle and put back, one after the other, so
// what the last one finds must not depend on those before it.
func TestSuccessorsAmongMany(t *testing.T) {
	if raceEnabled && testing.Short() {
		t.Skip("one goroutine, many times slower under the race detector; make wire runs it")
	}
	const n = 65
	r := build(t, nodes(n))
	before := r.owners
	for i := range n {
		r.Prepare(i)
	}
	for _, i := range []int{0, 32, n - 1} {
		name := r.Members()[i]
		without := build(t, slices.DeleteFunc(nodes(n), func(s string) bool { return s == name }))
		for p := range Partitions {
			if got := r.Members()[r.heirs[i].table[p]]; got != owner(without, p) {
				t.Fatalf("without %s, partition %d is owned by %s, want %s", name, p, got, owner(without, p))
			}
		}
	}
	for p := range Partitions {
		if got := ownerIn(r.circle, p); got != before[p] {
			t.Fatalf("after all were taken out and put back, the circle gives partition %d to %d, want %d", p, got, before[p])
		}
	}
}

func TestManyAskAtOnce(t *testing.T) {
	r, alone := build(t, nodes(9)), build(t, nodes(9))
	want := make([]int, Partitions)
	for p := range want {
		want[p] = alone.Successor(p)
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range Partitions {
				p := (i + g*127) % Partitions
				if got := r.Successor(p); got != want[p] {
					t.Errorf("partition %d has successor %d, want %d", p, got, want[p])
					return
				}
			}
		})
	}
	wg.Wait()
}

// No number of members makes the library panic: it has room for all partitions. The
// test verifies that by adding one member at a time and removing them again, because
// building each size afresh would take a minute. It tries up to 48 members, and with
// WEIR_SEEDS set, as in make test-long, all numbers.
func TestEveryNumberOfMembers(t *testing.T) {
	inWire(t)
	for n := 1; n <= MaxMembers; n++ {
		// The library's own bound, from its averageLoad.
		if room := n * int(math.Ceil(float64(Partitions)/float64(n)*load)); room < Partitions {
			t.Fatalf("%d members have room for %d partitions of %d", n, room, Partitions)
		}
	}
	most := 48
	if os.Getenv("WEIR_SEEDS") != "" {
		most = MaxMembers
	}
	names := nodes(most)
	if err := distinct(names, hasher{}.Sum64); err != nil {
		t.Fatal(err)
	}
	c := newCircle(nil)
	for i := range most {
		c.Add(point{names[i], int16(i)})
		whole(t, c, i+1)
	}
	for i := range most - 1 {
		c.Remove(names[i])
		whole(t, c, most-i-1)
	}
}

func whole(t *testing.T, c *consistent.Consistent, members int) {
	t.Helper()
	loads := map[int16]int{}
	for p := range Partitions {
		loads[ownerIn(c, p)]++
	}
	if loads[-1] > 0 {
		t.Fatalf("among %d members, %d partitions are nobody's", members, loads[-1])
	}
	for i, n := range loads {
		if most := math.Ceil(Partitions / float64(members) * load); float64(n) > most {
			t.Fatalf("among %d members, number %d has %d partitions, more than %v", members, i, n, most)
		}
	}
}

func TestTheLargestRing(t *testing.T) {
	if raceEnabled && testing.Short() {
		t.Skip("one goroutine, many times slower under the race detector; make wire runs it")
	}
	r := build(t, nodes(MaxMembers))
	for p := range Partitions {
		if i := r.Owner(p); i < 0 || i >= MaxMembers {
			t.Fatalf("partition %d is owned by %d", p, i)
		}
	}
	p := 17
	if i := r.Successor(p); i < 0 || i == r.Owner(p) {
		t.Errorf("partition %d, owned by %d, has successor %d", p, r.Owner(p), i)
	}
}

func TestSharesAddUp(t *testing.T) {
	for _, n := range []int{1, 2, 3, 16, 33} {
		r := build(t, nodes(n))
		sum, owned := 0.0, make([]int, n)
		for p := range Partitions {
			owned[r.Owner(p)]++
		}
		for i := range n {
			sum += r.Share(i)
			if got := int(math.Round(r.Share(i) * Partitions)); got != owned[i] {
				t.Errorf("%d members: the share of %d is %d partitions, but it owns %d", n, i, got, owned[i])
			}
		}
		if math.Abs(sum-1) > 1e-9 {
			t.Errorf("%d members: the shares add up to %v", n, sum)
		}
	}
}

func TestConfigHash(t *testing.T) {
	// Nodes of neighbouring versions compare this number, so it must stay as long
	// as the owners stay. If it has to change, a rolling upgrade is impossible.
	if got, want := ConfigHash(), uint64(0x482c63eb2d89f47c); got != want {
		t.Errorf("the hash of the configuration is %#x, was %#x", got, want)
	}
	base := ConfigHash()
	for name, other := range map[string]uint64{
		"partitions": configHash(Partitions+2, replicas, load, hashKey0, hashKey1),
		"replicas":   configHash(Partitions, replicas+1, load, hashKey0, hashKey1),
		"load":       configHash(Partitions, replicas, load+0.01, hashKey0, hashKey1),
		"first key":  configHash(Partitions, replicas, load, hashKey0+1, hashKey1),
		"second key": configHash(Partitions, replicas, load, hashKey0, hashKey1+1),
	} {
		if other == base {
			t.Errorf("another number of %s has the same hash", name)
		}
	}
}

// A ring that is given away must not be one that can be changed.
func TestNoExportedFields(t *testing.T) {
	for f := range reflect.TypeFor[Ring]().Fields() {
		if f.IsExported() {
			t.Errorf("field %s of a ring can be set by anyone", f.Name)
		}
	}
}
