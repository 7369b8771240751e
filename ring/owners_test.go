package ring

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden file of owners anew")

// goldenSets are the members whose owners are kept.
func goldenSets() [][]string {
	return [][]string{
		nodes(3), nodes(4), nodes(16),
		{"weir-0.weir.default.svc:7946", "weir-1.weir.default.svc:7946", "weir-2.weir.default.svc:7946"},
		{"a", "b", "日本", "with blank"},
	}
}

// Whoever owns a partition must not change from one version of Weir to the next,
// or nodes of both, in one cluster during an upgrade, would never agree. If this
// fails, the ring is wrong and not the file.
func TestGoldenOwners(t *testing.T) {
	var b bytes.Buffer
	b.WriteString("# partition: owner/successor, by index into the sorted members\n")
	for _, names := range goldenSets() {
		r := build(t, names)
		fmt.Fprintf(&b, "\nmembers %q\n", r.Members())
		for p := range Partitions {
			if p%16 == 0 {
				fmt.Fprintf(&b, "%4d:", p)
			}
			fmt.Fprintf(&b, " %d/%d", r.Owner(p), r.Successor(p))
			if p%16 == 15 || p == Partitions-1 {
				b.WriteByte('\n')
			}
		}
	}
	file := filepath.Join("testdata", "owners.txt")
	if *update {
		if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got, old := strings.Split(b.String(), "\n"), strings.Split(string(want), "\n")
	for i := range max(len(got), len(old)) {
		if i >= len(got) || i >= len(old) || got[i] != old[i] {
			t.Fatalf("line %d differs from %s:\n got %q\nwant %q", i+1, file, at(got, i), at(old, i))
		}
	}
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return ""
}

// The same owners, computed slowly from the description of the method alone.
func TestOwnersAgainstTheDescription(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 7, 16, 40} {
		r, slow := build(t, nodes(n)), describe(nodes(n))
		for p := range Partitions {
			if got := owner(r, p); got != slow[p] {
				t.Fatalf("among %d members partition %d is owned by %s, want %s", n, p, got, slow[p])
			}
		}
	}
}

// describe is consistent hashing with bounded loads in words: each partition, in
// order, walks from its own place on the circle to the first point of a member
// that has room.
func describe(names []string) []string {
	type place struct {
		hash uint64
		name string
	}
	var circle []place
	for _, name := range names {
		for i := range 160 {
			circle = append(circle, place{hasher{}.Sum64(fmt.Appendf(nil, "%d:%s", i, name)), name})
		}
	}
	slices.SortFunc(circle, func(a, b place) int {
		if a.hash < b.hash {
			return -1
		}
		return 1
	})
	room, most := map[string]int{}, int(math.Ceil(1021.0/float64(len(names))*1.25))
	owners := make([]string, 1021)
	for p := range owners {
		at := hasher{}.Sum64(binary.LittleEndian.AppendUint64(nil, uint64(p)))
		i := 0
		for i < len(circle) && circle[i].hash < at {
			i++
		}
		for room[circle[i%len(circle)].name] == most {
			i++
		}
		owners[p] = circle[i%len(circle)].name
		room[owners[p]]++
	}
	return owners
}

// moved returns the fraction of the partitions that change owners from one ring to
// another, and the fraction of these that one member gets.
func moved(from, to *Ring, joiner string) (part, toJoiner float64) {
	var all, joiners float64
	for p := range Partitions {
		if owner(from, p) != owner(to, p) {
			all++
			if owner(to, p) == joiner {
				joiners++
			}
		}
	}
	return all / Partitions, joiners / all
}

// The figures that the documentation gives, as means over clusters of other
// names. Ideally a joiner takes its share and nothing else moves; bounded loads
// move a little more.
func TestHowMuchMoves(t *testing.T) {
	inWire(t)
	for _, c := range []struct {
		members, clusters int
		part, tolerance   float64 // of the partitions
		toJoiner          float64 // of what moves, at least
	}{
		{members: 3, clusters: 40, part: 0.250, tolerance: 0.01, toJoiner: 0.98},
		{members: 32, clusters: 10, part: 0.033, tolerance: 0.004, toJoiner: 0.85},
	} {
		var part, toJoiner float64
		for i := range c.clusters {
			names := nodes(c.members + 1)
			for j := range names {
				names[j] = fmt.Sprintf("cluster-%d-%s", i, names[j])
			}
			p, j := moved(build(t, names[:c.members]), build(t, names), names[c.members])
			part, toJoiner = part+p/float64(c.clusters), toJoiner+j/float64(c.clusters)
		}
		t.Logf("%d to %d members: %.1f %% of the partitions move, %.0f %% of them to the joiner", c.members, c.members+1,
			100*part, 100*toJoiner)
		if math.Abs(part-c.part) > c.tolerance {
			t.Errorf("%d to %d members: %.3f of the partitions move, want %.3f +- %.3f", c.members, c.members+1, part, c.part,
				c.tolerance)
		}
		if toJoiner < c.toJoiner {
			t.Errorf("%d to %d members: %.2f of what moves goes to the joiner, want %.2f", c.members, c.members+1, toJoiner,
				c.toJoiner)
		}
	}
}

func TestHowEqualTheSharesAre(t *testing.T) {
	for n, want := range map[int]float64{3: 1.12, 4: 1.15, 16: 1.25, 33: 1.27} {
		r := build(t, nodes(n))
		least, most := float64(n), 0.0
		for i := range n {
			least, most = min(least, r.Share(i)*float64(n)), max(most, r.Share(i)*float64(n))
		}
		t.Logf("%d members: from %.2f to %.2f of the mean", n, least, most)
		if most > want {
			t.Errorf("%d members: the largest share is %.2f of the mean, more than %.2f", n, most, want)
		}
		if least < 0.6 {
			t.Errorf("%d members: the least share is %.2f of the mean", n, least)
		}
	}
}

func BenchmarkNew(b *testing.B) {
	for _, n := range []int{3, 33, 256} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			names := nodes(n)
			for b.Loop() {
				build(b, names)
			}
		})
	}
}

func BenchmarkPrepare(b *testing.B) {
	for _, n := range []int{3, 33, 256} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r := build(b, nodes(n))
			for i := 0; b.Loop(); i++ {
				r.without(i % n)
			}
		})
	}
}
