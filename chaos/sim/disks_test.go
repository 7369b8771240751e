package sim

import (
	"testing"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// TestAPartitionWaitsForWhomOneDiskKnows: all members end, and the heir's disk is lost. The heir, the third member and
// a new one start: only the third one knows of the owner, and of three members that answer two know nothing. The closed
// partition waits for the owner, and goes on with what that has on its disk. Forgotten by the one, it starts empty.
func TestAPartitionWaitsForWhomOneDiskKnows(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		w := newWorld(seed)
		w.newDisks(Outages)
		d := directIn(t, w, 3, limitOfDirected, limiter.UnreachableClosed, limiter.ReplicationLag)
		owner, heir := d.holder(peer.Owned), d.holder(peer.Heir)
		third := d.others(owner, heir)[0]
		d.demandAt(owner, 20, ms)
		d.pass(3 * limiter.Second)
		for _, n := range d.live() {
			n.crash(false)
		}
		delete(w.disks.of, heir.name)
		w.disks.lostAt, w.disks.empty, w.disks.cut = w.now, false, true
		start := func(name string) { w.start(name, false, owner.rules, 3) }
		start("y")
		start(heir.name)
		d.pass(limiter.Second)
		start(third.name)
		d.pass(10 * limiter.Second)
		for _, n := range d.live() {
			if info, _ := n.core.Partition(d.key.part); info.Role > peer.Copy {
				d.fails("the partition does not wait: %s has the role %d", n.name, info.Role)
			}
		}
		if seed%2 > 0 {
			w.disks.empty = true // it may now
			for _, n := range d.live() {
				n.do(func() { n.members.Forget(owner.name) })
			}
		} else {
			start(owner.name)
		}
		d.pass(10 * limiter.Second)
		before := len(d.given)
		d.demandAt(d.holder(peer.Owned), limitOfDirected, ms)
		d.pass(limiter.Second)
		if n, want := len(d.given)-before, limitOfDirected-20*int(1-seed%2); n != want {
			d.fails("%d are admitted then, want %d", n, want)
		}
	})
}

// TestWhoIsBackIsNotWaitedFor: a member that leaves when all end is started by who had it leave, and not by the outage.
// It ends once, so the disk of its next run stays whole.
func TestWhoIsBackIsNotWaitedFor(t *testing.T) {
	w := newWorld(1)
	w.newDisks(Outages)
	d := directIn(t, w, 2, limitOfDirected, limiter.UnreachableClosed, limiter.ReplicationLag)
	d.disks.away = map[string]bool{"a": false, "b": false, "y": true}
	for i, n := range d.live() {
		n.crash(false)
		if got := d.disks.waited(); got != 2-i {
			t.Errorf("%d are waited for, want %d", got, 2-i)
		}
		d.start(n.name, false, n.rules, 2)
		n.crash(true)
		if _, err := d.disks.of[n.name].Lock(); err == nil {
			t.Errorf("the end of the former run of %s unlocks the disk of the present one", n.name)
		}
	}
	if got := d.disks.waited(); got != 0 || len(d.disks.away) != 1 {
		t.Errorf("%d are waited for, %d are away: want none, and who had just joined", got, len(d.disks.away))
	}
}

// TestWhatIsGrantedAgain: of a partition that is restored from disks what was admitted since the last save before its
// last owner ended, and what that had granted and was answered later. Where a disk is lost, the interval is that before
// the outage. A reset of that time may be undone.
func TestWhatIsGrantedAgain(t *testing.T) {
	const part = 7
	for name, test := range map[string]struct {
		reset  limiter.Tick // how long before the owner ended
		lost   bool
		older  limiter.Tick // how long before the outage an older disk is saved, the only one that has it
		saved  limiter.Tick // how long before the outage two had saved it last, before another one became the heir
		anew   int
		stands bool
	}{
		"all disks":            {reset: 1500 * ms, anew: 12 + 4 + 3, stands: true},
		"a disk is lost":       {reset: 2 * limiter.Second, lost: true, anew: 12 + 4 + 3 + 4, stands: true},
		"an older disk":        {reset: 2500 * ms, lost: true, older: 800 * ms, anew: 12 + 4 + 3 + 4 + 8, stands: true},
		"a new heir":           {reset: 2500 * ms, lost: true, saved: 800 * ms, anew: 12 + 4 + 3 + 4 + 8, stands: true},
		"a reset":              {reset: 900 * ms, anew: 12 + 4 + 3},
		"a reset, a disk less": {reset: 1500 * ms, lost: true, anew: 12 + 4 + 3 + 4},
	} {
		w := newWorld(1)
		w.disks = &disks{lost: make(map[int]limiter.Tick)}
		k, other := &key{part: part, reset: reset{stands: true}}, &key{part: part + 1}
		w.keys = append(w.keys, k, other)
		pass := func(tenths int) { // one unit is admitted in each
			for range tenths {
				k.samples = append(k.samples, k.admitted)
				w.now += 100 * ms
				k.admitted++
			}
		}
		w.now += limiter.Minute
		pass(30)
		k.began = w.now + 400*ms - test.reset
		w.disks.endedAt = w.now
		pass(4)
		if test.lost {
			w.disks.lostAt = w.now
			if w.disks.savedAt = w.disks.endedAt - test.older; test.older+test.saved > 0 {
				w.disks.unsaved = map[int]limiter.Tick{part: w.disks.endedAt - test.saved}
			}
		}
		k.admitted += 4 // of this instant
		w.disks.forgets(part, w.now)
		pass(3) // answers to come
		if w.tookOver(part); k.anew != test.anew || k.stands != test.stands || other.anew != 0 {
			t.Errorf("%s: %d may be granted again and a reset stands: %v, want %d, %v", name, k.anew, k.stands, test.anew,
				test.stands)
		}
		if w.tookOver(part); k.anew != test.anew {
			t.Errorf("%s: %d are granted again by another takeover", name, k.anew)
		}
	}
}

// TestWhatAnOwnerAnswersAlone: what was admitted since an owner answers in place of its silent heir may be lost, if it
// is taken over before that is over.
func TestWhatAnOwnerAnswersAlone(t *testing.T) {
	for after, want := range map[limiter.Tick]int{underWay - 1: 5, underWay: 0} {
		w := newWorld(1)
		k, other := &key{part: 7, admitted: 10}, &key{part: 8, admitted: 10}
		w.now, w.keys = limiter.Minute, append(w.keys, k, other)
		w.outcome.raised(w, 7)
		k.admitted, other.admitted, w.now = 15, 15, w.now+after
		w.tookOver(7)
		w.tookOver(7)
		if got, beside := w.outcome.alone[k].lost, w.outcome.alone[other].lost; got != want || beside != 0 {
			t.Errorf("taken over %v after: %d may be lost, want %d; of another partition %d", after.Duration(), got, want,
				beside)
		}
	}
}
