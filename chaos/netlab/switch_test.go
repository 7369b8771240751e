package netlab

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"
)

func dice(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// fates tells what becomes of n frames over a link: how many arrive, how many of
// them twice, how many late, and the last instant.
func fates(l Link, seed uint64, n int) (arrived, twice, late int, last time.Time) {
	d := &direction{link: l, rng: dice(seed)}
	now := time.Unix(0, 0)
	for range n {
		at, times := d.fate(now, 1000, &flow{})
		if times == 0 {
			continue
		}
		arrived++
		if times == 2 {
			twice++
		}
		if at[0].Sub(now) > l.Delay+l.Jitter {
			late++
		}
		last = at[0]
	}
	return arrived, twice, late, last
}

func TestFateIsAsTheLinkSays(t *testing.T) {
	const n = 20_000
	arrived, twice, late, _ := fates(Link{Delay: time.Millisecond, Jitter: time.Millisecond, Loss: 0.2, Duplicate: 0.1,
		Reorder: 0.3}, 1, n)
	near := func(what string, got int, want float64) {
		if float64(got) < want*0.9 || float64(got) > want*1.1 {
			t.Errorf("%s: %d of %d, want about %.0f", what, got, n, want)
		}
	}
	near("arrived", arrived, n*0.8)
	near("twice", twice, n*0.8*0.1)
	near("late", late, n*0.8*0.3)
	if arrived, _, _, _ := fates(Link{Cut: true}, 1, n); arrived != 0 {
		t.Errorf("%d frames crossed a link that is cut", arrived)
	}
	// 10 frames of 1000 bytes at 10,000 bytes a second take a second; those that
	// would wait longer than half a second are dropped.
	arrived, _, _, last := fates(Link{Bandwidth: 10_000}, 1, 10)
	if want := time.Unix(0, 0).Add(600 * time.Millisecond); arrived != 6 || !last.Equal(want) {
		t.Errorf("%d frames arrived, the last at %v; want 6, and %v", arrived, last, want)
	}
}

func TestFateIsTheSeeds(t *testing.T) {
	l := Link{Jitter: time.Second, Loss: 0.5, Duplicate: 0.5}
	a1, b1, _, last1 := fates(l, 7, 1000)
	a2, b2, _, last2 := fates(l, 7, 1000)
	if a1 != a2 || b1 != b2 || !last1.Equal(last2) {
		t.Error("a seed does not give frames the same fate twice")
	}
	if _, _, _, last3 := fates(l, 8, 1000); last1.Equal(last3) {
		t.Error("another seed gives the same fate")
	}
}

// frame builds an IPv4 frame of UDP between two ports, to station 1.
func frame(from, to uint16) []byte {
	b := make([]byte, etherHeader+20+8)
	copy(b, []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1})
	binary.BigEndian.PutUint16(b[12:], etherIPv4)
	b[etherHeader] = 0x45
	b[etherHeader+9] = protoUDP
	binary.BigEndian.PutUint16(b[etherHeader+20:], from)
	binary.BigEndian.PutUint16(b[etherHeader+22:], to)
	return b
}

// What arrives again, and what arrives after what was sent later, is counted.
func TestCarried(t *testing.T) {
	d := &direction{}
	came := time.Now().Add(-time.Second)
	for _, w := range []waiting{{nth: 1}, {nth: 3}, {nth: 3, again: true}, {nth: 2}, {nth: 4}} {
		w.came = came
		d.carried(&w)
	}
	if c := d.counts; c.Carried != 5 || c.Twice != 1 || c.Overtaken != 1 || c.Held < 5*time.Second {
		t.Errorf("counted %+v, want 5, one of them twice, one overtaken, each a second under way", c)
	}
	// What was under way when the link was set was no matter of the new one.
	d.become(Link{Delay: time.Minute})
	d.carried(&waiting{nth: 5, came: came})
	if d.counts.Carried != 5 {
		t.Error("a frame from before the link was set counts")
	}
	d.carried(&waiting{nth: 6, came: time.Now()})
	if d.counts.Carried != 6 {
		t.Error("a frame from after the link was set counts not")
	}
}

func TestParse(t *testing.T) {
	f, ok := parse(frame(40000, 7946))
	if !ok || f.to != [6]byte{2, 0, 0, 0, 0, 2} {
		t.Fatalf("%+v, %v", f, ok)
	}
	if !f.blocked([]uint16{7946}) || !f.blocked([]uint16{40000}) || f.blocked([]uint16{7947}) {
		t.Error("a frame is blocked by its ports, and by no other")
	}
	arp := frame(1, 2)
	binary.BigEndian.PutUint16(arp[12:], 0x0806)
	if _, ok := parse(arp); ok {
		t.Error("a frame that is not IPv4 is carried")
	}
	for n := range 60 {
		parse(make([]byte, n)) // whatever a namespace sends, the switch goes on
	}
}

// FuzzParse reads whatever a namespace may send.
func FuzzParse(f *testing.F) {
	f.Add(frame(1, 2))
	f.Add(frame(1, 2)[:etherHeader+20])
	f.Fuzz(func(t *testing.T, b []byte) {
		if f, ok := parse(b); ok && f.hasPorts && !f.blocked([]uint16{f.ports[0]}) {
			t.Error("a frame is not blocked by its own port")
		}
	})
}
