package sim

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/weirlimit/weir/internal/disk"
	"github.com/weirlimit/weir/internal/disk/disktest"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// damagedRun is a run with damaged disks: members end, their disks are damaged, and they start beside members that
// live, or that have read disks that are whole. No counter may fall below what those have.
type damagedRun struct {
	*World
	rules map[string]*limiter.Rule
	of    map[*key]*tally
}

// tally is what is known of a key.
type tally struct {
	open, unsure int // units of checks without an answer, or answered by a policy: they may be taken back
	epoch        peer.Epoch
	seq          uint64
	least        int // what the best copy has that is whole, without those that may be taken back
	since        int // units that owners admitted since then
	before       int // takeovers of the partition until then
}

func newDamagedRun(seed uint64) (*damagedRun, error) {
	w := newWorld(1<<40 + seed)
	w.size = 3
	w.newDisks(Outages)
	w.disks.segment, w.disks.damaged = 2<<10, make(map[string]bool)
	d := &damagedRun{World: w, rules: make(map[string]*limiter.Rule), of: make(map[*key]*tally)}
	for i, policy := range []limiter.Unreachable{limiter.UnreachableLocal, limiter.UnreachableClosed} {
		for j, mode := range []limiter.Replication{limiter.ReplicationLag, limiter.ReplicationStrict} {
			const limit = 1000
			r := w.newRule(fmt.Sprint("r", i, j), limit, policy, mode)
			d.rules[r.Name] = r
			for range 4 {
				k := &key{rule: r, limit: limit, hash: arith.Hash{Hi: w.rng.Uint64(), Lo: w.rng.Uint64()}, d: (1 - j) * limit / 20}
				lk := k.key(nil, 1)
				k.part = table.PartitionOf(&lk)
				w.keys = append(w.keys, k)
				d.of[k] = new(tally)
				if !slices.Contains(w.parts, k.part) {
					w.parts = append(w.parts, k.part)
				}
			}
		}
	}
	for i, name := range []string{"a", "b", "c"} {
		w.start(name, i == 0, d.rules, w.size)
	}
	err := w.run(6*limiter.Second, w.invariants)
	return d, errors.Join(err, w.settled())
}

// ask has clients ask members about keys for a span.
func (d *damagedRun) ask(span limiter.Tick) {
	end := d.now + span
	var next func()
	next = func() {
		if live := d.serving(); len(live) > 0 && d.now < end {
			d.check(d.keys[d.rng.IntN(len(d.keys))], live[d.rng.IntN(len(live))])
		}
		if d.now < end {
			d.after(d.between(0, 20*ms), next)
		}
	}
	next()
}

func (d *damagedRun) check(k *key, n *Node) {
	of, answer := d.of[k], new(limiter.Decision)
	var c arith.Charge
	c.Add(k.key(n, 1))
	of.open++
	n.do(func() {
		n.core.Begin(&c, answer, 0, func() {
			switch of.open--; {
			case answer.Source.ByPolicy():
				of.unsure++
			case answer.Allowed:
				of.since++
			}
		})
	})
}

// holds notes what a member has of keys, where it is the best copy so far.
func (d *damagedRun) holds(n *Node) {
	for _, k := range d.keys {
		info, _ := n.core.Partition(k.part)
		of := d.of[k]
		if c := info.Epoch.Compare(of.epoch); info.Role < peer.Copy || c < 0 || c == 0 && info.Seq < of.seq {
			continue
		}
		of.epoch, of.seq = info.Epoch, info.Seq
		of.least = n.counts(k) - of.open - of.unsure
		of.since, of.before = 0, d.outcome.takeovers(k.part)
	}
}

// counts returns what a node's table has of a key.
func (n *Node) counts(k *key) int {
	var c arith.Charge
	c.Add(k.key(n, 0))
	c.Peek = true
	answer := new(limiter.Decision)
	if err := n.table.Decide(n.Now(), &c, answer); err != nil {
		panic(err)
	}
	return k.limit - int(answer.Limit(0).Remaining)
}

// judge fails the run if an owner has less than the best copy that was whole, or less than that and what was admitted
// since.
func (d *damagedRun) judge(admitted bool) error {
	var errs []error
	for _, n := range d.live() {
		for _, k := range d.keys {
			of := d.of[k]
			if of.epoch == (peer.Epoch{}) {
				continue // no copy that is whole is left
			}
			least := of.least
			if admitted {
				least += of.since - of.unsure - k.d*(d.outcome.takeovers(k.part)-of.before)
			}
			if used := n.used(k); used >= 0 && used < least {
				errs = append(errs, fmt.Errorf("%v: %s has %d of %s in partition %d, at least %d are left (%+v): %s",
					(d.now-epoch).Duration(), n.name, used, k.rule.Name, k.part, least, *of, n.core.Describe(k.part)))
			}
		}
	}
	return errors.Join(errs...)
}

// damage damages the disk of a member that has ended. It returns how many records were there.
func (d *damagedRun) damage(name, kind string) (records int, silent bool) {
	w, other := d.disks, "a"
	if name == other {
		other = "b"
	}
	w.damaged[name] = true
	m := w.of[name].Copy()
	store, err := disk.Open(w.config(name, w.of[name].Copy()))
	if err != nil {
		panic(err)
	}
	store.Read(func(*peer.Record) error {
		records++
		return nil
	})
	switch kind {
	case "lost":
		m = new(disktest.Memory)
	case "older":
		m = w.before[name].Copy()
	default:
		_, _, silent = m.Damage(kind, d.rng, w.before[name], w.before[other])
	}
	m.Crash(1)
	if kind == "foreign" && !silent {
		if _, err := disk.Open(w.config(name, m)); !errors.Is(err, disk.ErrForeign) {
			d.fail(fmt.Errorf("%s takes a segment of %s", name, other))
		}
		m = new(disktest.Memory) // as --discard-data does
	}
	w.of[name] = m
	return records, silent || kind == "lost" || kind == "older" || kind == "foreign"
}

// comeBack starts a member with a damaged disk, and looks at what it told.
func (d *damagedRun) comeBack(name, kind string) {
	records, silent := d.damage(name, kind)
	told := len(d.disks.told)
	d.start(name, false, d.rules, d.size)
	n := d.live()[len(d.live())-1]
	if len(d.disks.told) == told && n.disk.read < records && !silent {
		d.fail(fmt.Errorf("%s has read %d of %d records and told nothing", name, n.disk.read, records))
	}
	for _, err := range d.disks.told[told:] {
		if at := (disk.DamageError{}); !errors.As(err, &at) || at.File == "" {
			d.fail(fmt.Errorf("%s told no place: %w", name, err))
		}
	}
}

// play ends one, two or all three members, and starts them with damages.
func (d *damagedRun) play(kinds []string) error {
	d.ask(8 * limiter.Second)
	d.after(d.between(0, 7*limiter.Second), func() { d.disks.older(d.now) })
	if err := d.run(d.between(7*limiter.Second, 8*limiter.Second), d.invariants); err != nil {
		return err
	}
	members := d.live()
	d.rng.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	ends := 1 + d.rng.IntN(3)
	for _, of := range d.of {
		of.unsure = 0
	}
	for _, n := range members[:ends] {
		n.crash(false)
	}
	if ends < 3 {
		d.ask(12 * limiter.Second)
	}
	if err := d.run(d.between(0, 4*limiter.Second), d.invariants); err != nil {
		return err
	}
	whole := members[ends:]
	if ends == 3 { // one of them has a disk that is whole
		d.start(members[0].name, false, d.rules, d.size)
		whole, members = d.live(), members[1:]
		ends--
	}
	for _, n := range whole {
		d.holds(n)
	}
	for _, n := range members[:ends] {
		d.comeBack(n.name, kinds[d.rng.IntN(len(kinds))])
		if err := d.run(d.between(0, limiter.Second), d.invariants); err != nil {
			return err
		}
	}
	d.ask(12 * limiter.Second)
	for range 120 {
		if err := d.run(100*ms, d.invariants); err != nil {
			return err
		}
		if err := d.judge(false); err != nil {
			return err
		}
	}
	if err := d.run(10*limiter.Second, d.invariants); err != nil {
		return err
	}
	return errors.Join(d.settled(), d.judge(true))
}

// TestNoCounterFallsBelowALiveCopy: whatever became of a member's directory, no counter is below that of a copy which
// is whole once the member has started, at any moment; and what is not read is told with file and place.
func TestNoCounterFallsBelowALiveCopy(t *testing.T) {
	worlds(t)
	kinds := append(disktest.Damages(), "older", "lost")
	told, judged := 0, 0
	first := firstSeed(t)
	for i := range seeds(t, 40) {
		seed := uint64(first + i)
		d, err := newDamagedRun(seed)
		if err == nil {
			err = d.play(kinds)
		}
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		told += len(d.disks.told)
		for _, k := range d.keys {
			if d.of[k].least > 0 {
				judged++
			}
		}
	}
	if told < seeds(t, 40)/4 || judged < 8*seeds(t, 40) {
		t.Errorf("%d damages were told, %d counters compared: that is little", told, judged)
	}
	t.Log(told, judged)
}
