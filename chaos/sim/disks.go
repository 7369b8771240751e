package sim

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weirlimit/weir/diskstore"
	"github.com/weirlimit/weir/internal/cluster"
	"github.com/weirlimit/weir/internal/disk"
	"github.com/weirlimit/weir/internal/disk/disktest"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// Nodes with disks, in runs in which all of them, or most, end at once and start anew with what they had synced.

const (
	persistEvery = limiter.Second
	syncWithin   = 40 * ms // longest time that a sync takes
	restoreWait  = 8 * limiter.Second
	backWithin   = 4 * limiter.Second // all are back after that
)

// disks are the disks of a run, by the names of nodes.
type disks struct {
	of       map[string]*disktest.Memory
	before   map[string]*disktest.Memory // what they had at olderAt
	olderAt  limiter.Tick
	savedAt  limiter.Tick            // when the oldest that one of them has was saved, after the last outage
	cut      bool                    // all nodes end, or have ended, at once
	empty    bool                    // partitions may start empty: the run has not settled yet
	lost     map[int]limiter.Tick    // when all who had a partition had ended, until it is restored
	late     limiter.Tick            // how late the timers of a node were at most
	away     map[string]bool         // who ended in an outage and is not back; true: it had just joined, or left
	joinedAt map[string]limiter.Tick // when they started first
	lostAt   limiter.Tick            // when one was lost, or became older; 0 if none was
	endedAt  limiter.Tick            // when the last outage began
	holders  map[int]held            // who has each partition
	unsaved  map[int]limiter.Tick    // when both who had it had surely saved it last, if not when the last outage began
	twice    bool                    // then another node ended before partitions were together again
	forgot   bool                    // then one was forgotten whose disk may have been the only one left
	emptied  map[int]int             // how often a partition started empty since the disk that has it was not there
	segment  int64                   // how large segments become at least, 0: as ever
	damaged  map[string]bool         // whose disks may have damages
	told     []error                 // those that they told
}

// held is who has a partition, as its owner and as its heir, when one of them was another one, or none, last, and when
// it was last that two had had it for so long that both had saved it.
type held struct {
	a, b         peer.Instance
	since, saved limiter.Tick
}

// spreadOver is how long it takes until all have ended.
const spreadOver = 400 * ms

// lingers is how long a node that has left waits for gossip to say so, at most.
const lingers = 2 * limiter.Second

// ended notes that a node has ended, with the disk that is the only one left perhaps.
func (d *disks) ended(now limiter.Tick) {
	since := now - d.lostAt
	d.twice = d.twice || d.lostAt != 0 && since > spreadOver && since < backWithin+restoreWait
}

// newDisks gives all nodes of a run of the kind Outages disks.
func (w *World) newDisks(kind Kind) {
	if kind == Outages {
		w.disks = &disks{of: make(map[string]*disktest.Memory), before: make(map[string]*disktest.Memory),
			joinedAt: make(map[string]limiter.Tick), lost: make(map[int]limiter.Tick), emptied: make(map[int]int), empty: true,
			holders: make(map[int]held), unsaved: make(map[int]limiter.Tick)}
	}
}

// nodeDisk is the open disk of one run of a node.
type nodeDisk struct {
	n     *Node
	store cluster.Store
	core  *cluster.Disk
	bytes []byte
	read  int  // records at the start
	knows bool // another member, by these: it had met one when it saved last
}

// configure makes a node keep what it holds on its disk.
func (d *disks) configure(n *Node, c *cluster.Config) {
	if d == nil {
		return
	}
	if d.joinedAt[n.name] == 0 {
		d.joinedAt[n.name] = n.w.now
	}
	d.back(n)
	memory := d.of[n.name]
	if memory == nil {
		memory = new(disktest.Memory)
		d.of[n.name] = memory
	}
	store, err := diskstore.OpenConfig(d.config(n.name, memory))
	if err != nil {
		panic(err)
	}
	n.disk = &nodeDisk{n: n, store: store}
	c.SaveEvery, c.Promises, c.RestoreWait = persistEvery, n.disk, restoreWait
}

// back notes that a node starts, whoever has it start.
func (d *disks) back(n *Node) {
	if _, ok := d.away[n.name]; !ok {
		return
	}
	if delete(d.away, n.name); len(d.away) == 0 {
		d.forgetLeft(n.w)
	}
}

// waited returns how many members are not back that the disks of others know of: who had just joined was not saved, and
// who left while the others ended need not be waited for.
func (d *disks) waited() (n int) {
	for _, joined := range d.away {
		if !joined {
			n++
		}
	}
	return n
}

// config returns how a node opens its disk.
func (d *disks) config(name string, files disk.Files) disk.Config {
	return disk.Config{Files: files, Segment: d.segment, Identity: disk.Identity{Cluster: "sim", Member: name}}
}

// restore reads the disk of a node that starts.
func (d *nodeDisk) restore() {
	if d == nil {
		return
	}
	w, last := d.n.w, limiter.Tick(0)
	d.core = cluster.NewDisk(d.n.core)
	for _, err := range d.store.Read(func(r *peer.Record) error {
		last = max(last, limiter.Tick(r.At))
		d.read++
		var failed error
		err := w.codec.Read(r.Data, func(f *peer.Frame) {
			r.Refused, failed = d.core.Restore(f, limiter.Tick(r.At), r.Keys)
			d.knows = d.knows || slices.ContainsFunc(f.Known, func(k peer.Known) bool { return k.Name != d.n.name })
			scribble(f)
		})
		if err == nil {
			err = failed
		}
		return err
	}) {
		if w.disks.damaged[d.n.name] {
			w.disks.told = append(w.disks.told, err)
		} else if !errors.Is(err, peer.ErrTorn) {
			w.fail(fmt.Errorf("%s reads its disk: %w", d.n.name, err))
		}
	}
	d.n.clock.skew += max(0, last-d.n.Now()) // no window twice
	d.core.Restored(true)
	d.n.After(w.between(0, persistEvery), d.save)
}

func (d *nodeDisk) append(f *peer.Frame, at limiter.Tick, keys []peer.RecordKey) (err error) {
	if d.bytes, err = d.n.w.codec.Append(d.bytes[:0], f); err != nil {
		return err
	}
	return d.store.Append(&peer.Record{At: int64(at), Keys: keys, Data: d.bytes})
}

// save saves what has changed. It lasts when the disk has synced it.
func (d *nodeDisk) save() {
	complete := d.write()
	d.sync(complete, func() {})
	d.n.After(persistEvery, d.save)
}

// end saves what has changed when a node ends in good order.
func (d *nodeDisk) end() {
	if d == nil {
		return
	}
	if err := d.store.Sync(d.write()); err != nil {
		d.n.w.fail(err)
	}
}

// write hands over to the disk what has changed.
func (d *nodeDisk) write() (complete bool) {
	d.n.w.near.lending.note(d.n.w)
	complete, err := d.core.Save(d.store.Aged(), func(key uint32, counters int) bool {
		return d.store.Needed(key) > int64(2*(512+56*counters))
	}, d.append)
	if err != nil {
		d.n.w.fail(err)
	}
	return complete
}

func (d *nodeDisk) sync(complete bool, then func()) {
	d.n.After(d.n.w.between(0, syncWithin), func() {
		if err := d.store.Sync(complete); err != nil {
			d.n.w.fail(err)
		}
		then()
	})
}

// Keep implements cluster.Promises.
func (d *nodeDisk) Keep(a peer.Answer, kept func()) {
	f, keys := d.n.core.PromiseRecord(a)
	if err := d.append(f, d.n.Now(), keys); err != nil {
		d.n.w.fail(err)
	}
	d.sync(false, kept)
}

// crashed ends a node's disk: of what was not synced a part is there.
func (d *nodeDisk) crashed() {
	if d != nil {
		w := d.n.w
		w.disks.ended(w.now)
		w.disks.of[d.n.name].Crash(float64(w.rng.IntN(3)) / 2)
	}
}

// isLate notes that the timers of a node are late.
func (d *disks) isLate(by limiter.Tick) {
	if d != nil {
		d.late = max(d.late, by)
	}
}

// sample notes what every key was admitted, so that it is known how much of it is on disk when all end, and who has
// each partition.
func (w *World) sample() {
	w.disks.holding(w)
	for _, k := range w.keys {
		k.samples = append(k.samples, k.admitted)
	}
	w.after(100*ms, w.sample)
}

// holding notes who has each partition.
func (d *disks) holding(w *World) {
	for _, id := range w.parts {
		var owner, heir peer.Instance
		for _, n := range w.live() {
			switch role, _, _, _ := n.core.Claim(id); role {
			case peer.Owned:
				owner = n.inst
			case peer.Heir:
				heir = n.inst
			}
		}
		was := d.holders[id]
		now := held{min(owner, heir), max(owner, heir), was.since, was.saved}
		if now.a != was.a || now.b != was.b || now.a == 0 {
			now.since = w.now
		}
		if now.since <= w.now-d.interval() {
			now.saved = w.now
		}
		d.holders[id] = now
	}
}

// interval is how long ago everything was synced for sure: the save before the last began after that. Of a node that is
// late the timers of a save and of its sync are, too.
func (d *disks) interval() limiter.Tick { return persistEvery + 2*syncWithin + 2*d.late }

// forgets notes that a partition has lost its owner and its heir. What its keys were admitted since the last save
// may be admitted again once it is restored, and resets since then may be undone.
func (d *disks) forgets(part int, now limiter.Tick) { d.lost[part] = now }

// restored notes that a partition that was lost has an owner again. What its last owner had granted may have been
// answered after that had ended. Where a disk is lost, what is restored is of a member that ended earlier: at most as
// early as the outage began, or as of when two had saved it last, or from the older disk.
func (d *disks) restored(w *World, part int) {
	if d == nil || d.lost[part] == 0 {
		return
	}
	ended := d.lost[part]
	delete(d.lost, part)
	if d.lostAt != 0 {
		ended = min(ended, d.endedAt)
		if saved, not := d.unsaved[part]; not {
			ended = min(ended, saved, d.savedAt)
		}
	}
	before := (w.now-ended+d.interval()+99*ms)/(100*ms) + 1 // the samples since are not older
	for _, k := range w.keys {
		if k.part != part {
			continue
		}
		k.anew += k.admitted
		if n := len(k.samples) - int(before); n >= 0 {
			k.anew -= k.samples[n]
		}
		k.stands = k.stands && w.now-k.began > before*100*ms
		w.near.lending.restored(w, k, w.now-before*100*ms)
	}
}

// outage ends all nodes at once, most of them, or all one after the other, and starts them anew with what they had
// synced. One of them may have lost its disk, or have got an older one, and clocks may have gone back.
func (w *World) outage(rules map[string]*limiter.Rule) {
	d := w.disks
	all := slices.DeleteFunc(w.live(), func(n *Node) bool { return n.leftAt != 0 })
	which, spread := w.rng.IntN(4), limiter.Tick(0)
	if which == 3 && len(all) > 2 { // a majority
		w.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		all = all[:len(all)/2+1]
	} else {
		d.cut = true
		if which == 2 {
			spread = spreadOver
		}
	}
	d.away, d.endedAt, d.savedAt = make(map[string]bool), w.now, w.now
	d.holding(w)
	clear(d.unsaved)
	for id, p := range d.holders {
		if p.saved < w.now {
			d.unsaved[id] = p.saved
		}
	}
	changed := w.rng.IntN(len(all))
	what := w.rng.IntN(4)
	for i, n := range all {
		d.away[n.name] = d.joinedAt[n.name] > w.now-limiter.Second-d.interval() // others hear of it within a second
		after := limiter.Tick(0)
		if spread > 0 {
			after = w.between(0, spread)
		}
		w.after(after, func() {
			d.away[n.name] = d.away[n.name] || n.leftAt != 0
			n.crash(false)
			if i == changed && what == 0 {
				w.logf("the disk of %s is lost", n.name)
				delete(d.of, n.name)
				d.lostAt = w.now
			}
			if i == changed && what == 1 && d.before[n.name] != nil {
				w.logf("%s gets an older disk", n.name)
				d.lostAt = w.now // of what changed since
				d.of[n.name] = d.before[n.name].Copy()
				d.of[n.name].Crash(0)
				d.savedAt = d.olderAt
			}
		})
		w.after(spread+w.between(100*ms, backWithin-spread), func() { w.start(n.name, false, rules, w.size) })
	}
}

// forgetLeft has an operator forget who left since the last save of what the disks have: they have the members of
// before, so closed partitions wait for it, as promised. Who left earlier must not be waited for. Who starts with an
// older disk tells the others of its members, and they wait, too.
func (d *disks) forgetLeft(w *World) {
	w.after(limiter.Second, func() {
		for _, n := range w.nodes {
			stays := func(o *Node) bool { return o.name == n.name && o.leftAt == 0 }
			if n.leftAt < d.savedAt-d.interval() || slices.ContainsFunc(w.live(), stays) {
				continue
			}
			for _, at := range w.live() { // not all of them know of it
				at.do(func() { at.members.Forget(n.name) })
				w.logf("%s is told to forget %s, which left", at.name, n.name)
			}
			d.forgot = d.forgot || d.lostAt != 0 && n.leftAt >= d.endedAt-d.interval()
		}
	})
}

// older keeps what the disks have now, for who gets an older one.
func (d *disks) older(now limiter.Tick) {
	d.olderAt = now
	for name, m := range d.of {
		d.before[name] = m.Copy()
	}
}

// startsEmpty fails the run if a partition starts empty though what it had is on disks: that of the owner or of the
// heir is there. Where it may, what was granted is granted again.
func (w *World) startsEmpty(n *Node, part int) {
	d := w.disks
	if d == nil || d.empty || !d.cut && part < table.Partitions {
		return
	}
	d.emptied[part]++
	if d.forgot {
		return
	}
	knows := func(o *Node) bool { return o.disk.knows && n.core.View().Has(o.inst) }
	if d.lostAt != 0 && !slices.ContainsFunc(w.live(), knows) {
		// Nobody whom it has met knows of others: one has lost its disk, and who had just begun saved before it met one.
		return
	}
	if _, not := d.unsaved[part]; d.lostAt != 0 && (not || !d.cut) {
		return // its owner or its heir may have ended before it saved what it had, and those that go on have dropped theirs
	}
	if part < table.Partitions && (d.twice || d.lostAt != 0 && len(d.away) > 0) {
		return // the only disk that has it is not there, and those that are there know of none
	}
	w.fail(fmt.Errorf("%s starts partition %d empty", n.name, part))
}

// again returns how many limits of a key may be granted again since disks are lost, beside what was granted since the
// last save: one for each time that its partition started empty, and one where another member ended, or was forgotten,
// before what a lost disk had was together again.
func (d *disks) again(k *key) float64 {
	switch {
	case d == nil:
		return 0
	case d.forgot || d.twice && !closed(k):
		return float64(max(1, d.emptied[k.part]))
	}
	return float64(d.emptied[k.part])
}

// continues fails the run if a closed partition goes on from what was read from disks before all members are back that
// the disks know of. One that has not ended with the others may go on without its last owner, as ever.
func (w *World) continues(n *Node, part int) {
	if d := w.disks; d != nil && part >= table.Partitions && d.waited() > 0 && (d.cut || n.disk.read > 0) {
		w.fail(fmt.Errorf("%s goes on with partition %d, and %d members are not back", n.name, part, d.waited()))
	}
}
