package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	core "github.com/weirlimit/weir/internal/cluster"
	"github.com/weirlimit/weir/internal/cluster/gossip"
	"github.com/weirlimit/weir/internal/guard"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/internal/peerlink"
	"github.com/weirlimit/weir/internal/seldom"
	"github.com/weirlimit/weir/limiter"
)

// Store opens what keeps counters beyond the end of all members, for [Config.Store].
// [github.com/weirlimit/weir/diskstore.Dir] is one.
type Store interface {
	// Open opens it for a member. secret is a fingerprint of the secret by which keys are named, and second that of
	// [weir.Config.SecondSecret], empty for none: what was written under either is read. The error says what to do.
	Open(cluster, member, secret, second string) (core.Store, error)
}

// The defaults and bounds of [Config.PersistInterval] and [Config.RestoreWait].
const (
	DefaultPersistInterval = 5 * time.Second
	DefaultRestoreWait     = 30 * time.Second

	leastPersistInterval = time.Second
	mostPersistInterval  = time.Hour
	mostRestoreWait      = time.Hour
)

const (
	// promiseWithin is how long a grant waits for the disk. A grant that is not written in time is given all the same: a
	// member that forgets it asks the others when it starts, as one without a disk does.
	promiseWithin = 200 * time.Millisecond
	maxPromises   = 1 << 12 // grants that wait for the disk; more are given at once
	// A partition is saved in whole when its changes take more than this many times what a save in whole takes, about.
	entryBytes = 56
	overhead   = 512
	// storeTellEvery is how often a failure of the disk is logged.
	storeTellEvery = time.Minute
	// saveWithin is how long a disk may stand still before that is told and, at the end, the member ends without it.
	saveWithin = 10 * time.Second
	// mostPanics is how often in a row saving may panic before it is given up.
	mostPanics = 5
)

// keeper writes to the disk what the core must not lose: one goroutine, for which no check waits.
type keeper struct {
	m     *member
	store core.Store
	disk  *core.Disk
	codec *peerlink.Codec
	data  []byte
	kept  *Kept
	clock slowed

	promises chan promise
	stop     chan struct{}
	done     chan struct{} // closed when nothing is written any more

	filled bool // something was read at the start
	broken bool // a grant could not be written during a save
	// told and keptTold are when failures were logged last.
	told, keptTold time.Time
	refused        seldom.Lines // of records that are too large
	count          numbers
}

// numbers are what a keeper says of itself.
type numbers struct {
	failures, unsynced     atomic.Uint64
	saves, progress        atomic.Uint64
	failing, saving        atomic.Bool // saving: the disk is being waited for
	bytes, needed, written atomic.Int64
	savedAt                atomic.Int64 // in nanoseconds since 1970
}

// begin notes that the disk is waited for from now on, so not yet in vain.
func (n *numbers) begin() (waited bool) {
	n.progress.Add(1)
	return n.saving.Swap(true)
}

// moved reports whether the disk has done anything since the look before, and keeps what this one saw.
func (n *numbers) moved(seen *uint64) bool {
	now := n.progress.Load()
	was := *seen
	*seen = now
	return now != was
}

type promise struct {
	a    peer.Answer
	kept func()
}

// openKeeper opens the store, if there is one. Without one the keeper is nil, and its methods do nothing.
func openKeeper(m *member) (*keeper, error) {
	if m.config.Store == nil {
		return nil, nil
	}
	mark, second := fmt.Sprintf("%016x", gossip.SecretMark(m.Secret, m.clusterName())), ""
	if len(m.SecondSecret) > 0 {
		second = fmt.Sprintf("%016x", gossip.SecretMark(m.SecondSecret, m.clusterName()))
	}
	s, err := m.config.Store.Open(m.clusterName(), m.config.Name, mark, second)
	if err != nil {
		return nil, fmt.Errorf("weir: %w", err)
	}
	return &keeper{m: m, store: s, codec: peerlink.NewCodec(), promises: make(chan promise, maxPromises),
		kept: cmp.Or(m.config.Kept, new(Kept)), stop: make(chan struct{}), done: make(chan struct{})}, nil
}

// unless closes the store if there is an error, which it returns.
func (k *keeper) unless(err error) error {
	if err == nil || k == nil {
		return err
	}
	return errors.Join(err, k.store.Close())
}

// configure makes a core save to the store.
func (k *keeper) configure(c *core.Config) {
	if k != nil {
		k.clock.machine = c.Clock
		c.Clock, c.Promises = k.clock.at, k
		c.SaveEvery = limiter.Tick(k.m.config.PersistInterval / limiter.TickDuration)
		c.RestoreWait = limiter.Tick(k.m.config.RestoreWait / limiter.TickDuration)
	}
}

// now returns the time of counters.
func (k *keeper) now() limiter.Tick { return k.clock.at(k.m.sched.Now()) }

func (k *keeper) begin() {
	if k != nil {
		go k.run()
		go k.watch()
	}
}

// watch tells of a disk that stands still while it is waited for, once a minute.
func (k *keeper) watch() {
	within := cmp.Or(k.m.network.saveWithin, saveWithin)
	tick := time.NewTicker(within)
	defer tick.Stop()
	var told time.Time
	for seen := k.count.progress.Load(); ; {
		select {
		case <-k.done:
			return
		case <-tick.C:
		}
		if !k.count.moved(&seen) && k.count.saving.Load() {
			k.count.failing.Store(true)
			if time.Since(told) >= storeTellEvery {
				told = time.Now()
				k.count.failures.Add(1)
				k.m.log.Error("the data directory stands still: decisions go on, and what changes is lost if all members end",
					"for at least", within)
			}
		}
	}
}

// end has everything saved and ends it. It does not wait for a disk that stands still.
func (k *keeper) end() {
	if k == nil {
		return
	}
	close(k.stop)
	within := cmp.Or(k.m.network.saveWithin, saveWithin)
	tick := time.NewTicker(within)
	defer tick.Stop()
	for seen := k.count.progress.Load(); ; {
		select {
		case <-k.done:
			return
		case <-tick.C:
		}
		if !k.count.moved(&seen) {
			k.m.log.Error("the data directory does not answer: this node ends without it, and what changed since it was saved "+
				"last is not there", "waited", within)
			return
		}
	}
}

// checkStore returns an error if the times do not fit.
func (c *Config) checkStore() error {
	c.PersistInterval = cmp.Or(c.PersistInterval, DefaultPersistInterval)
	c.RestoreWait = cmp.Or(c.RestoreWait, DefaultRestoreWait)
	switch {
	case c.PersistInterval < leastPersistInterval || c.PersistInterval > mostPersistInterval:
		return fmt.Errorf("%w: Cluster.PersistInterval %v is out of range: give 1s to 1h, or 0 for %v", weir.ErrInvalid,
			c.PersistInterval, DefaultPersistInterval)
	case c.RestoreWait < 0 || c.RestoreWait > mostRestoreWait:
		return fmt.Errorf("%w: Cluster.RestoreWait %v is out of range: give up to 1h, or 0 for %v", weir.ErrInvalid,
			c.RestoreWait, DefaultRestoreWait)
	}
	return nil
}

// Keep implements core.Promises.
func (k *keeper) Keep(a peer.Answer, kept func()) {
	var once sync.Once
	late := func() { once.Do(func() { k.count.unsynced.Add(1); kept() }) }
	select {
	case k.promises <- promise{a, func() { once.Do(kept) }}:
		k.m.sched.After(limiter.Tick(promiseWithin/limiter.TickDuration), late)
	default:
		k.m.sched.After(0, late)
	}
}

// run saves once an interval until the keeper is stopped, and then everything that is left. After a panic it begins
// again, with everything, unless there are too many in a row.
func (k *keeper) run() {
	defer close(k.done)
	saves := k.count.saves.Load()
	for panics := 1; !k.loop(); panics++ {
		if now := k.count.saves.Load(); now != saves {
			saves, panics = now, 1
		}
		if panics == mostPanics {
			k.m.log.Error("saving to the data directory is given up after internal errors in a row: decisions go on, and what "+
				"changes is lost if all members end: restart this node", "errors", panics)
			<-k.stop
			return
		}
	}
}

// loop is run up to the end, or to a panic, of which it reports false.
func (k *keeper) loop() (ended bool) {
	defer func() {
		if v := recover(); v != nil {
			k.m.guard.Caught(guard.Cluster, v)
			k.panicked()
		}
	}()
	tick := time.NewTicker(k.m.config.PersistInterval)
	defer tick.Stop()
	for {
		select {
		case <-k.stop: // first: a promise may be what panics
			if k.save() && k.count.failures.Load() == 0 {
				k.mark(true)
			}
			k.report("", k.store.Close())
			return true
		default:
		}
		select {
		case p := <-k.promises:
			k.keep(p)
		case <-tick.C:
			k.save()
		case <-k.stop:
		}
	}
}

// panicked makes the next save write everything: it is not known what the last one did.
func (k *keeper) panicked() {
	defer k.m.guard.Recover(guard.Cluster, nil)
	k.report("an internal error", errPanicked)
	k.saveAll()
	k.store.GiveUp()
}

var errPanicked = errors.New("saving panicked: the log has the details")

// saveAll makes the next save write everything.
func (k *keeper) saveAll() {
	k.disk.SaveAll()
	k.kept.saveAll()
}

// mark marks the directory as that of a member that has saved everything and ended in good order, or as that of one
// that runs. After a failure it may have neither: so none of a run with failures says the former.
func (k *keeper) mark(ended bool) {
	f, keys := k.disk.Mark(ended)
	err := k.append(f, k.now(), keys)
	if err == nil {
		err = k.store.Sync(false)
	}
	k.report("how the member ends", err)
}

// save saves what the disk lacks. It reports whether the disk has everything now.
func (k *keeper) save() (all bool) {
	begun := time.Now()
	k.count.begin()
	defer k.count.saving.Store(false)
	k.broken = false
	aged := k.store.Aged()
	complete, err := k.disk.Save(aged, k.large, func(f *peer.Frame, at limiter.Tick, keys []peer.RecordKey) error {
		if err := k.append(f, at, keys); err != nil {
			return err
		}
		select {
		case p := <-k.promises:
			k.keep(p)
		default:
		}
		return nil
	})
	if err == nil && !k.broken {
		err = k.kept.save(k, aged)
	}
	if err == nil && !k.broken {
		err = k.store.Sync(complete)
		k.count.progress.Add(1)
	}
	if err != nil || k.broken { // what was saved before that is lost
		k.saveAll()
	}
	if k.broken {
		return false
	}
	k.report("changes cannot be saved", err)
	bytes, needed := k.store.Bytes()
	k.count.bytes.Store(bytes)
	k.count.needed.Store(needed)
	k.count.written.Store(k.store.Written())
	if err == nil {
		k.count.saves.Add(1)
		k.count.savedAt.Store(begun.UnixNano())
	}
	return err == nil && !k.disk.Lacks
}

// large reports whether a partition with so many counters is to be saved in whole: its changes take more than that.
func (k *keeper) large(key uint32, counters int) bool {
	whole := int64(overhead + entryBytes*counters)
	return k.store.Needed(key) > 2*whole
}

// append writes a record. One that is too large costs its own keys, and no others.
func (k *keeper) append(f *peer.Frame, at limiter.Tick, keys []peer.RecordKey) (err error) {
	if k.data, err = k.codec.Append(k.data[:0], f); err != nil {
		k.count.failures.Add(1)
		if _, due := k.refused.Due("", time.Now()); due {
			k.m.log.Error("counters cannot be written to the data directory, and are lost if all members end: a key has too "+
				"many entries in its logs", "error", err)
		}
		return nil
	}
	k.count.progress.Add(1)
	return k.store.Append(&peer.Record{At: int64(at), Keys: keys, Data: k.data})
}

// keep writes a grant, and those that came meanwhile.
func (k *keeper) keep(first promise) {
	all := []promise{first}
	for more := true; more; {
		select {
		case p := <-k.promises:
			all = append(all, p)
		default:
			more = false
		}
	}
	waited := k.count.begin()
	defer k.count.saving.Store(waited) // a save may be under way
	var err error
	for i := range all {
		f, keys := k.m.core.PromiseRecord(all[i].a)
		if err = k.append(f, k.now(), keys); err != nil {
			break
		}
	}
	if err == nil {
		err = k.store.Sync(false)
	}
	if err != nil {
		k.saveAll()
		k.broken = true
		k.count.unsynced.Add(uint64(len(all)))
		k.report("a grant cannot be saved", err)
	}
	for i := range all {
		all[i].kept()
	}
}

// stats returns the state of the store, nil without one.
func (k *keeper) stats() *weir.StoreStats {
	if k == nil {
		return nil
	}
	s := &weir.StoreStats{Bytes: k.count.bytes.Load(), Needed: k.count.needed.Load(), Written: k.count.written.Load(),
		Failing: k.count.failing.Load(), Failures: k.count.failures.Load(), UnsavedGrants: k.count.unsynced.Load()}
	if at := k.count.savedAt.Load(); at != 0 {
		s.SavedAt = time.Unix(0, at)
	}
	return s
}

// report counts a failure, and logs it once a minute, and its end.
func (k *keeper) report(what string, err error) {
	switch {
	case err == nil:
		if k.count.failing.Swap(false) && what != "" {
			k.m.log.Info("the data directory is written again: all that changed is saved")
			k.told = time.Time{}
		}
		return
	case errors.Is(err, context.Canceled):
		return
	}
	k.count.failures.Add(1)
	k.count.failing.Store(true)
	if time.Since(k.told) >= storeTellEvery {
		k.told = time.Now()
		k.m.log.Error("the data directory cannot be written: decisions go on, and what changes is lost if all members end",
			"what", what, "error", err)
	}
}
