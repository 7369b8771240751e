package cluster

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weirlimit/weir/internal/cluster/mesh"
	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// Promises makes what this node grants last. Its method is called under a partition's lock, and must not wait.
type Promises interface {
	// Keep writes a promise, and calls kept once: when it lasts, or when it is not to be waited for any longer.
	Keep(a peer.Answer, kept func())
}

// The keys of what is saved, see [peer.Record]: the state of a partition, what was promised of it, and the members.
const (
	promisesOf = 1 << 12
	membersKey = 1 << 13
	endedKey   = 1<<14 - 1 // of a mark, see [Disk.Mark]
)

// promiseWeight is roughly how many bytes the promises of one partition take.
const promiseWeight = 60

// Disk is a core's side towards its disk. It is used by one goroutine at a time.
type Disk struct {
	c     *Core
	saved []peer.Known  // the members that were saved last
	ended peer.Instance // of the mark, if that was read last
	// Lacks means that the last Save has left out a partition, whose state was replaced again and again.
	Lacks bool
}

// NewDisk returns it. The core must have been made with [Config.SaveEvery].
func NewDisk(c *Core) *Disk { return &Disk{c: c} }

// Save calls put with what the disk lacks of the partitions that this node owns or has copies of. The frame and the
// keys are valid until put returns. keys are those that must be saved in whole, so that earlier records are needed no
// more; so are those for which large returns true, which gets the number of the partition's counters. After an error,
// which is that of put, the next call saves everything. It reports whether everything is saved that the disk is to
// have, so that what was written before the start or an error may be deleted.
//
// Changes are saved with the counters as they are when the frame is filled, which is not before they were made. Each
// partition's lock is held for 128 keys at a time, or fewer whose counters take 16 KiB, or a look at 1,024.
func (d *Disk) Save(keys []uint32, large func(key uint32, counters int) bool, put func(*peer.Frame, limiter.Tick,
	[]peer.RecordKey) error) (complete bool, err error) {
	c := d.c
	d.Lacks = false
	s := saver{d: d, c: c, put: put, frame: mesh.Collector{Counters: c.table}, complete: true}
	defer func() {
		if err != nil {
			d.SaveAll()
		}
	}()
	for _, p := range c.partitions.parts {
		whole := slices.Contains(keys, uint32(p.id)) || large(uint32(p.id), c.table.Count(int(p.id)))
		if err := s.partition(p, whole); err != nil {
			return false, err
		}
		if err := s.promises(p, slices.Contains(keys, promisesOf+uint32(p.id))); err != nil {
			return false, err
		}
	}
	if err := s.members(slices.Contains(keys, membersKey)); err != nil {
		return false, err
	}
	return s.complete, s.flush()
}

// SaveAll makes the next Save save everything.
func (d *Disk) SaveAll() {
	c := d.c
	d.saved = nil
	t := c.begin()
	defer t.end()
	defer t.Catch()
	c.partitions.each(t, func(r *replica.Replica, _ *replica.Step) { r.OnDisk().SaveAll() })
}

// saver is one call of Save.
type saver struct {
	d     *Disk
	c     *Core
	put   func(*peer.Frame, limiter.Tick, []peer.RecordKey) error
	frame mesh.Collector
	at    limiter.Tick // of the frame; valid if it has anything
	keys  []peer.RecordKey
	// complete is false once old records are needed.
	complete bool
}

// step runs a step of a partition in a turn of its own.
func (s *saver) step(p *partition, f func(t *turn, r *replica.Replica, st *replica.Step)) {
	t := s.c.begin()
	defer t.end()
	defer t.Catch()
	if len(s.keys) == 0 {
		s.at = t.At
	}
	p.run(t, func(r *replica.Replica, st *replica.Step) { f(t, r, st) })
}

// key adds to the keys of the frame.
func (s *saver) key(key uint32, replaces bool, weight int) {
	if n := len(s.keys); n > 0 && s.keys[n-1].Key == key && !replaces {
		s.keys[n-1].Weight += uint32(weight)
		return
	}
	s.keys = append(s.keys, peer.RecordKey{Key: key, Replaces: replaces, Weight: uint32(weight)})
}

// recordBytes is about how large a record becomes: so much a damage costs.
const recordBytes = 16 << 10

func (s *saver) full() error {
	if s.frame.Size()+promiseWeight*len(s.frame.Frame.Answers) < recordBytes && len(s.keys) < 1<<8 {
		return nil
	}
	return s.flush()
}

func (s *saver) flush() error {
	if len(s.keys) == 0 {
		return nil
	}
	s.frame.Frame.From = s.c.self
	err := s.put(&s.frame.Frame, s.at, s.keys)
	s.frame.Clear()
	s.keys = s.keys[:0]
	return err
}

// savedAtOnce is how many keys are exported under a partition's lock at a time.
const savedAtOnce = 128

// savedAgain is how often a partition is saved anew at once whose state is replaced by another one meanwhile.
const savedAgain = 3

// partition saves the state of a partition.
func (s *saver) partition(p *partition, whole bool) error {
	for range 1 + savedAgain {
		done, err := s.state(p, whole)
		if done || err != nil {
			return err
		}
		if err := s.flush(); err != nil { // no record has two states of a partition
			return err
		}
	}
	s.complete, s.d.Lacks = false, true // what the disk had before is kept until the next save
	return nil
}

// state saves the state of a partition. It reports false if another state has taken its place meanwhile.
func (s *saver) state(p *partition, whole bool) (done bool, err error) {
	var saved replica.Saved
	from, more := uint64(0), true
	for i := 0; ; i++ {
		n, had, same, some := 0, len(s.frame.Frame.Entries), false, true
		part := peer.Batch{}
		s.step(p, func(_ *turn, r *replica.Replica, st *replica.Step) {
			switch disk := r.OnDisk(); {
			case i == 0:
				if whole {
					disk.SaveState()
				}
				if saved, some = disk.Save(st); !some || saved.Nothing {
					return
				}
				if saved.Batch.Kind == peer.Snapshot {
					s.c.table.ExportIDs(int(p.id), 0, s.at, func(e table.ID) { saved.Keys = append(saved.Keys, e.Hi) })
				}
			case !disk.Saving(&saved.Batch):
				disk.Unfinished()
				return
			}
			n, from, more = s.export(p, &saved, from)
			part = saved.Batch
			part.First, part.Last = i == 0, !more
			switch {
			case part.Kind == peer.Snapshot:
				part.Base = uint64(i)
			case more: // the state is that of the batch when all of its parts are there
				part.Epoch, part.Seq = part.BaseEpoch, part.Base
			}
			s.frame.Batch(part, n)
			same = true
		})
		switch {
		case !some:
			s.complete = s.complete && !saved.Old
			return true, nil
		case saved.Nothing:
			s.key(uint32(p.id), true, 0)
			return true, s.full()
		case !same: // also after a panic
			s.frame.Cut(had)
			return false, nil
		}
		s.key(uint32(p.id), part.Kind == peer.Snapshot && part.First, 40+60*n)
		if err := s.full(); err != nil || part.Last {
			return true, err
		}
	}
}

// export adds counters of a partition to the frame: of the keys that are listed, which it takes off the list, and then
// of those that were charged, or of all, from a place on. It returns of how many, and where to go on if there are more.
func (s *saver) export(p *partition, saved *replica.Saved, from uint64) (n int, next uint64, more bool) {
	if listed := saved.Keys[:min(len(saved.Keys), savedAtOnce)]; len(listed) > 0 {
		n = s.frame.Keys(p.id, listed, s.at, recordBytes)
		saved.Keys = saved.Keys[n:]
	}
	if len(saved.Keys) > 0 || n == savedAtOnce {
		return n, from, true
	}
	others, next, more := s.frame.Charged(p.id, from, saved.Batch.Kind == peer.Snapshot, s.at, savedAtOnce-n, recordBytes)
	return n + others, next, more
}

// promises saves what this node has promised of a partition.
func (s *saver) promises(p *partition, whole bool) error {
	s.step(p, func(_ *turn, r *replica.Replica, _ *replica.Step) {
		if whole {
			r.OnDisk().SavePromises()
		}
		if a, some := r.OnDisk().Promises(); some {
			s.frame.Frame.Answers = append(s.frame.Frame.Answers, a)
			s.key(promisesOf+uint32(p.id), true, promiseWeight)
		}
	})
	return s.full()
}

// members saves which members count, this node included.
func (s *saver) members(whole bool) error {
	var known []peer.Known
	for _, k := range s.c.registry.All(s.c.config.Scheduler.Now()) {
		if !k.Gone {
			known = append(known, peer.Known{Name: k.Name, Instance: k.Instance, Path: k.Path})
		}
	}
	if slices.EqualFunc(known, s.d.saved, peer.Known.Equal) && !whole {
		return nil
	}
	s.d.saved = known
	if len(s.keys) == 0 {
		s.at = s.c.config.Scheduler.Now()
	}
	s.frame.Frame.Known = known
	s.key(membersKey, true, 64*len(known))
	return s.flush()
}

// PromiseRecord returns the frame and the keys of one promise.
func (c *Core) PromiseRecord(a peer.Answer) (*peer.Frame, []peer.RecordKey) {
	return &peer.Frame{From: c.self, Answers: []peer.Answer{a}},
		[]peer.RecordKey{{Key: promisesOf + uint32(a.Partition), Replaces: true, Weight: promiseWeight}}
}

// Mark returns the frame and the keys of a mark. The last record of a member that has saved everything when it ends in
// good order says so. The next start takes it back before anything is decided.
func (d *Disk) Mark(ended bool) (*peer.Frame, []peer.RecordKey) {
	f := new(peer.Frame)
	if ended {
		f.From = d.c.self
	}
	return f, []peer.RecordKey{{Key: endedKey, Replaces: true}}
}

var errRestore = errors.New("a value that is not possible")

// Restore takes in what Save has saved, in its order, before the first view: at is the instant at which it was saved,
// keys are those of its parts that are to be taken. What is not possible is left out, and is an error; refused are its
// keys.
func (d *Disk) Restore(f *peer.Frame, at limiter.Tick, keys []peer.RecordKey) (refused []uint32, err error) {
	c := d.c
	t := c.begin()
	defer t.end()
	t.At = at
	wants := func(key uint32) bool {
		return slices.ContainsFunc(keys, func(k peer.RecordKey) bool { return k.Key == key })
	}
	for _, k := range keys {
		if k.Replaces && k.Weight == 0 && int(k.Key) < len(c.partitions.byID) {
			c.partitions.at(t, uint16(k.Key), func(r *replica.Replica, s *replica.Step) { r.OnDisk().RestoreNothing(s) })
		}
	}
	may := credibleAt(t.Now)
	refused, err = c.intake.restore(t, f, &may, wants)
	for i := range f.Answers {
		a := &f.Answers[i]
		if !may.answer(a) || !wants(promisesOf+uint32(a.Partition)) {
			refused, err = append(refused, promisesOf+uint32(a.Partition)), fmt.Errorf("%w: a promise", errRestore)
			continue
		}
		c.partitions.at(t, a.Partition, func(r *replica.Replica, s *replica.Step) { r.OnDisk().RestorePromises(s, a) })
	}
	if wants(membersKey) {
		c.registry.Restore(f.Known, t.Now)
	}
	if d.ended = 0; wants(endedKey) {
		d.ended = f.From
	}
	return refused, err
}

// restore takes in the batches of a frame. Those that cannot be taken cost no others.
func (in *intake) restore(t *turn, f *peer.Frame, may *credible, wants func(key uint32) bool) (refused []uint32,
	err error) {
	limits := make([]*limiter.Limit, len(f.Limits))
	for i := range f.Limits {
		limits[i], _ = in.rules.Limit(&f.Limits[i]) // entries of none are refused
	}
	rest := f.Entries
	for i := range f.Batches {
		b := &f.Batches[i]
		if !wants(uint32(b.Partition)) {
			rest = rest[entriesOf(rest, int(b.Keys)):]
			continue
		}
		keys, left, ok := t.scratch.split(rest, int(b.Keys), limits, 0)
		if !ok {
			left = rest[entriesOf(rest, int(b.Keys)):]
		}
		rest = left
		if !ok || !may.saved(b) || !known(keys) || !may.entries(b.Partition, keys) {
			refused, err = append(refused, uint32(b.Partition)), fmt.Errorf("%w: a batch of partition %d", errRestore,
				b.Partition)
			continue
		}
		in.parts.at(t, b.Partition, func(r *replica.Replica, s *replica.Step) {
			if !r.OnDisk().Restore(s, b, keys) {
				refused, err = append(refused, uint32(b.Partition)),
					fmt.Errorf("%w: a batch of partition %d does not follow the one before", errRestore, b.Partition)
			}
		})
	}
	return refused, err
}

// known reports whether the limit of each counter could be read.
func known(keys []replica.Entries) bool {
	for i := range keys {
		for j := range keys[i].List {
			if keys[i].List[j].Limit == nil {
				return false
			}
		}
	}
	return true
}

// Restored ends a restore. all says that everything could be read; else no mark counts. It reports whether there is a
// mark to be taken back.
func (d *Disk) Restored(all bool) (marked bool) {
	c := d.c
	t := c.begin()
	defer t.end()
	c.partitions.node.RestoreUntil = t.Now + c.config.RestoreWait
	if all {
		c.partitions.node.Ended = d.ended
	}
	c.partitions.each(t, func(r *replica.Replica, s *replica.Step) { r.OnDisk().Restored(s) })
	return d.ended != 0
}
