package replica

import (
	"slices"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// A disk is one more member that only holds copies. What is read back is a copy: a state that an owner once had, under
// the epoch and sequence that it had. It is never heir or owner.
//
// Of what checks charge nothing is listed: the store marks the counters, and a save looks for those with marks. A key
// that is there no more has recovered, and what the disk has of it recovers no later, since a charge lets no counter
// recover sooner. What may do so is listed: resets, refunds, settlements, imports, other limits.

// saving is what the disk lacks of the state held.
type saving struct {
	// epoch and seq are those of the state that the disk has, has says whether it has one.
	epoch peer.Epoch
	seq   uint64
	has   bool
	// old means that the disk may have a state that only records have which are not counted on any more: those before
	// an error or a start, and those before a save that did not come to its end.
	old bool
	// gone is when a save first found nothing held of what the disk has; 0 if it did not.
	gone limiter.Tick
	// keys changed since, beside those that the store has marked; uncut means that such were charged after the last batch
	// of an ownership that has ended. whole means that all are to be written.
	keys  keySet
	uncut bool
	whole bool
	// replacedSince means that another state has taken the place of that of the last save.
	replacedSince bool
	// promises are what was last written of the promises.
	promises peer.Answer
}

// mostUnsaved is how many changed keys are remembered at least. With half as many more all keys are written.
const mostUnsaved = 1 << 12

// charged records that an owner has changed a key, and perhaps an id, as [Ownership.Charged] is told.
func (s *saving) charged(k *arith.Key, id *arith.Idempotency, cost uint64) {
	if s == nil {
		return
	}
	if id != nil && k.Cost > 0 {
		s.changed(table.IDOf(k, id.ID).Hi)
	}
	if cost == 0 || id != nil && (id.Hold > 0 || id.Rate > 0 || id.Lent) {
		s.changed(k.Hash.Hi)
	}
}

// forDisk notes a change that nobody gets but the disk, if there is one. No tick ends its batch: the next save does.
func forDisk(t *Step, o *Ownership) (stamp uint64) {
	if o.held.saving == nil {
		return 0
	}
	if o.dirtyAt == 0 {
		o.dirtyAt = t.Now
	}
	return o.open
}

// ended records that an ownership has ended.
func (s *saving) ended(o *changes) {
	if s != nil && o.dirtyAt != 0 {
		s.uncut = true
	}
}

// onlyForDisk reports whether the batch that an owner collects is for nobody but its disk.
func onlyForDisk(t *Step, o *Ownership) bool {
	return o.held.saving != nil && len(o.dirty.list) == 0 && !o.urgent && !o.tracks() && o.isolated(t)
}

// changed records that the disk lacks changes of a key.
func (s *saving) changed(hi uint64) {
	if s == nil || s.whole || s.keys.add(hi) {
		return
	}
	s.whole, s.keys = true, keySet{}
}

// keySet is a set of hashes: a hash table with linear probing, 0 in free slots. Its length is a power
// of two, and more than n.
type keySet struct {
	slots []uint64
	n     int
}

// add adds a hash. It reports false if there is no room.
func (k *keySet) add(hi uint64) bool {
	if hi == 0 {
		return false // as good as never
	}
	if 4*k.n >= 3*len(k.slots) {
		if len(k.slots) >= 2*mostUnsaved {
			return false
		}
		old := k.slots
		k.slots, k.n = make([]uint64, max(16, 2*len(old))), 0
		for _, x := range old {
			if x != 0 {
				k.add(x)
			}
		}
	}
	mask := uint64(len(k.slots) - 1)
	for i := hi & mask; ; i = (i + 1) & mask {
		switch k.slots[i] {
		case hi:
			return true
		case 0:
			k.slots[i] = hi
			k.n++
			return true
		}
	}
}

// take returns the hashes and empties the set. The next ones are likely to be as many, so it keeps its size, or half
// of it if few came.
func (k *keySet) take() []uint64 {
	all := make([]uint64, 0, k.n)
	for _, x := range k.slots {
		if x != 0 {
			all = append(all, x)
		}
	}
	if k.n = 0; 4*len(all) < len(k.slots) {
		k.slots = make([]uint64, len(k.slots)/2)
	} else {
		clear(k.slots)
	}
	return all
}

// replaced records that all keys must be written.
func (s *saving) replaced() {
	if s != nil {
		s.whole, s.keys, s.replacedSince = true, keySet{}, true
	}
}

// OnDisk is what a disk gets of a replica, and what it gives back.
type OnDisk struct{ p *Replica }

// OnDisk returns the replica's side towards a disk.
func (p *Replica) OnDisk() OnDisk { return OnDisk{p} }

// Saved is what a disk is to be written of a partition. Nothing means that the disk needs nothing of it any more. Old
// means that nothing is to be written, and that the disk must not delete old records either.
type Saved struct {
	Batch   peer.Batch
	Keys    []uint64 // in a delta, beside those that were charged
	Nothing bool
	Old     bool
}

// What the disk has of a partition that this node holds no more stays until the members that have it now have saved it,
// in so many of their intervals and as much again: a power cut before that leaves it here.
const (
	keptSaves    = 3
	keptSavesFor = 10 * limiter.Second
)

// Save returns what the disk lacks of the state held, and takes it to have that from then on: after an error of the
// disk, call [OnDisk.SaveAll]. It reports false if the disk lacks nothing.
func (d OnDisk) Save(t *Step) (Saved, bool) {
	p := d.p
	s := p.saving
	if s == nil {
		return Saved{}, false
	}
	if p.own != nil && p.role == peer.Owned {
		p.own.cut(&p.state)
		t.Flush, t.Watch = true, true // the heir gets the batch that ends here
	}
	if p.role < peer.Copy {
		return s.nothing(t, p)
	}
	out := Saved{Batch: peer.Batch{Partition: p.id, Kind: peer.Delta, Epoch: p.epoch, Seq: p.seq, BaseEpoch: s.epoch,
		Base: s.seq}}
	switch {
	case !s.has || s.whole:
		out.Batch = peer.Batch{Partition: p.id, Kind: peer.Snapshot, Epoch: p.epoch, Seq: p.seq}
		s.keys = keySet{}
	case s.keys.n == 0 && !s.uncut && s.epoch == p.epoch && s.seq == p.seq:
		s.keys = keySet{}
		return out, false
	default:
		out.Keys = s.keys.take()
	}
	*s = saving{epoch: p.epoch, seq: p.seq, has: true, promises: s.promises, keys: s.keys}
	return out, true
}

// nothing returns what the disk is to be written of a partition that is not held.
func (s *saving) nothing(t *Step, p *Replica) (Saved, bool) {
	switch {
	case !s.has && !s.old:
		return Saved{}, false
	case s.gone == 0:
		s.gone = t.Now
	case t.Now-s.gone >= keptSaves*p.node.SaveEvery+keptSavesFor:
		*s = saving{promises: s.promises}
		return Saved{Batch: peer.Batch{Partition: p.id}, Nothing: true}, true
	}
	return Saved{Old: s.old}, false
}

// SaveAll makes the next [OnDisk.Save] and [OnDisk.Promises] return everything.
func (d OnDisk) SaveAll() {
	p := d.p
	if s := p.saving; s != nil {
		d.Unfinished()
		s.promises = peer.Answer{}
	}
}

// Unfinished says that what the last [OnDisk.Save] returned was not saved, or only in part.
func (d OnDisk) Unfinished() {
	s := d.p.saving
	s.old, s.has = s.old || s.has, false
	s.replaced()
}

// SaveState makes the next [OnDisk.Save] return all of the state held, SavePromises the next [OnDisk.Promises] what
// was promised.
func (d OnDisk) SaveState() { d.p.saving.replaced() }

// SavePromises is described at SaveState.
func (d OnDisk) SavePromises() {
	p := d.p
	if p.saving != nil {
		p.saving.promises = peer.Answer{}
	}
}

// Saving reports whether the state held is still the one that [OnDisk.Save] returned as b, or one that came of it.
func (d OnDisk) Saving(b *peer.Batch) bool {
	p := d.p
	s := p.saving
	return s.has && !s.replacedSince && s.epoch == b.Epoch && s.seq == b.Seq
}

// Promise returns what this node must not forget of the partition, apart from the state held: what it granted, and
// the highest owner and counter.
func (d OnDisk) Promise() peer.Answer {
	p := d.p
	return peer.Answer{Partition: p.id, Owner: p.owner, Heir: p.heir, Top: max(p.top, p.grant), Grant: p.grant,
		GrantKind: p.grantKind, GrantFor: p.grantFor}
}

// Promises returns the [OnDisk.Promise] that is to be saved. It reports false if it returned the same last.
func (d OnDisk) Promises() (peer.Answer, bool) {
	p, a := d.p, d.Promise()
	if p.saving == nil || a == p.saving.promises {
		return a, false
	}
	p.saving.promises = a
	return a, true
}

// Restore takes in a batch of what the disk has, in the order in which it was written, before the first step. It
// reports false if the batch does not build on what came before; then later ones do not either, up to a snapshot.
func (d OnDisk) Restore(t *Step, b *peer.Batch, keys []Entries) bool {
	p := d.p
	fits := false
	switch {
	case b.Kind == peer.Snapshot:
		fits = p.stage(t, b, keys) || p.staging.staged != nil
	case b.Kind == peer.Delta && p.role == peer.Copy && p.epoch == b.BaseEpoch && p.seq == b.Base:
		fits = p.apply(t, Message{Batch: b, Keys: keys})
	}
	p.restored = p.role == peer.Copy
	p.point(t)
	return fits
}

// RestoreNothing drops what came before: the disk needs nothing of it any more.
func (d OnDisk) RestoreNothing(t *Step) {
	p := d.p
	p.drop()
	p.restored = false
	p.point(t)
}

// RestorePromises takes in what [OnDisk.Promises] returned. A node that has promised forgets it in no restart: it
// grants no counter again, and claims none that was used.
func (d OnDisk) RestorePromises(t *Step, a *peer.Answer) {
	p := d.p
	if a.Owner.Compare(p.owner) > 0 {
		p.owner, p.heir = a.Owner, a.Heir
	}
	if a.Grant > p.grant {
		p.vote = vote{grant: a.Grant, grantFor: a.GrantFor, grantKind: a.GrantKind}
	}
	p.top = max(p.top, a.Top, a.Grant, a.Owner.Counter)
	t.Routed = true
}

// Restored ends a restore.
func (d OnDisk) Restored(t *Step) {
	p := d.p
	p.staging.unstage(p.node)
	p.top = max(p.top, p.epoch.Counter)
	if p.saving != nil {
		p.saving.has = p.restored
		d.SaveAll()
	}
	p.point(t)
}

// FromDisk reports whether the state held was read from a disk, and no owner has confirmed it since.
func (s *state) FromDisk() bool { return s.restored && s.role == peer.Copy }

// awaits reports whether members may still come back that have more of an available partition than those that have
// answered, since the time for that is not over. So the best copy is chosen among all that come back together.
func (p *Replica) awaits(t *Step, r *claimRound) bool {
	if t.Now >= p.node.RestoreUntil {
		return false
	}
	answered := 1
	for i, w := range r.whom {
		if r.answers[i].has && t.View.Has(w) {
			answered++
		}
	}
	return answered < p.n0(t, true)+p.node.Peers.Told()
}

// anyFromDisk reports whether a copy was read from a disk: that of this node or of one that answered. It may be older
// than what another member has on its disk, which is not back.
func (p *Replica) anyFromDisk(r *claimRound) bool {
	return p.FromDisk() || slices.ContainsFunc(r.answers, func(a answer) bool { return a.has && a.FromDisk })
}

// lossless reports whether a last resort goes on from all that was charged: the last owner that is known has ended in
// good order, and so have all members that count, which have answered. One that ended otherwise may have forgotten that
// it took over. A member that is back may have claimed the partition and never owned it. Then it has nothing of that
// epoch, and the owner before it counts.
func (r *claimRound) lossless(t *Step, p *Replica) bool {
	answered, last := 1, r.base
	for i, w := range r.whom {
		if a := &r.answers[i]; a.has && a.Ended != 0 && t.View.Has(w) {
			answered++
			if w == r.base.Instance && a.Epoch != r.base {
				last = p.epoch
			}
		}
	}
	if r.base.Instance == p.node.Self {
		last = p.epoch
	}
	owner := p.node.Ended == last.Instance || slices.ContainsFunc(r.answers, func(a answer) bool {
		return a.has && a.Ended == last.Instance
	})
	return owner && p.node.Ended != 0 && p.FromDisk() && p.epoch == last &&
		answered >= p.n0(t, true)+p.node.Peers.Told()
}

// outdated reports whether a copy is of no use once the present owner has an heir: it is of an earlier epoch, or was
// read from a disk.
func (p *held) outdated() bool {
	return p.epoch.Before(p.owner) || p.FromDisk() && p.epoch == p.owner
}
