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
	"github.com/weirlimit/weir/limiter"
)

// Store opens what keeps counters beyond the end of all members, for [Config.Store].
// [github.com/weirlimit/weir/diskstore.Dir] is one.
type Store interface {
	// Open opens it for a member. secret is a fingerprint of the secret by which keys are named. The error says what to
	// do.
	Open(cluster, member, secret string) (core.Store, error)
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
)

// keeper writes to the disk what the core must not lose: one goroutine, for which no check waits.
type keeper struct {
	m     *member
	store core.Store
	disk  *core.Disk
	codec *peerlink.Codec
	data  []byte

	promises chan promise
	stop     chan struct{}

	broken bool // a grant could not be written during a save
	told   time.Time

	failures, unsynced     atomic.Uint64
	saves                  atomic.Uint64
	failing                atomic.Bool
	bytes, needed, written atomic.Int64
	savedAt                atomic.Int64 // in nanoseconds since 1970
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
	mark := fmt.Sprintf("%016x", gossip.SecretMark(m.Secret, m.clusterName()))
	s, err := m.config.Store.Open(m.clusterName(), m.config.Name, mark)
	if err != nil {
		return nil, fmt.Errorf("weir: %w", err)
	}
	return &keeper{m: m, store: s, codec: peerlink.NewCodec(), promises: make(chan promise, maxPromises),
		stop: make(chan struct{})}, nil
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
		c.Saves, c.Promises = true, k
		c.RestoreWait = limiter.Tick(k.m.config.RestoreWait / limiter.TickDuration)
	}
}

// begin begins to save, and end has everything saved and ends it.
func (k *keeper) begin() {
	if k != nil {
		k.m.serving.Go(k.run)
	}
}

func (k *keeper) end() {
	if k != nil {
		close(k.stop)
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
	late := func() { once.Do(func() { k.unsynced.Add(1); kept() }) }
	select {
	case k.promises <- promise{a, func() { once.Do(kept) }}:
		k.m.sched.After(limiter.Tick(promiseWithin/limiter.TickDuration), late)
	default:
		k.m.sched.After(0, late)
	}
}

// restore reads what the disk has into a core that has no view yet.
func (k *keeper) restore(c *core.Core) {
	if k == nil {
		return
	}
	k.disk = core.NewDisk(c)
	begun, last, bad := time.Now(), limiter.Tick(0), 0
	damages := k.store.Read(func(r *peer.Record) error {
		var err error
		if e := k.codec.Read(r.Data, func(f *peer.Frame) {
			last = max(last, limiter.Tick(r.At))
			err = k.disk.Restore(f, limiter.Tick(r.At), r.Keys)
		}); e != nil {
			return e
		}
		return err
	})
	for _, d := range damages {
		if bad++; bad <= 20 {
			k.m.log.Error("a part of the data directory cannot be read: it is left out, and so is what builds on it",
				"error", d)
		}
	}
	if bad > 20 {
		k.m.log.Error("more parts of the data directory cannot be read", "parts", bad-20)
	}
	k.watchClock(last)
	k.disk.Restored()
	k.m.log.Info("the data directory was read", "counters", k.m.Table.Stats().Keys, "damages", bad,
		"took", time.Since(begun).Round(time.Millisecond))
}

// watchClock lets the clock of counters begin no earlier than the last instant that the disk has: so no window begins
// twice, and none ends late, whatever the machine's clock shows.
func (k *keeper) watchClock(last limiter.Tick) {
	now := k.m.sched.Now()
	switch behind := last - now; {
	case last == 0:
	case behind > 0:
		k.m.sched.start += behind
		if behind > limiter.Second {
			k.m.log.Error("this machine's clock is behind what the data directory has: counters go on from there, so that "+
				"no window begins twice; set the clock, and restart this node when it is right",
				"behind", behind.Duration().Round(time.Millisecond), "last", last.Time())
		}
	case -behind > limiter.Hour:
		k.m.log.Warn("the data directory was written long ago: if this node was not down for so long, its clock went forward",
			"ago", (-behind).Duration().Round(time.Second), "last", last.Time())
	}
}

// run saves once an interval until the keeper is stopped, and then everything that is left.
func (k *keeper) run() {
	defer k.m.guard.Recover(guard.Cluster, nil)
	tick := time.NewTicker(k.m.config.PersistInterval)
	defer tick.Stop()
	for {
		select {
		case p := <-k.promises:
			k.keep(p)
		case <-tick.C:
			k.save()
		case <-k.stop:
			k.save()
			k.report("", k.store.Close())
			return
		}
	}
}

// save saves what the disk lacks.
func (k *keeper) save() {
	begun := time.Now()
	k.broken = false
	err := k.disk.Save(k.store.Aged(), k.large, func(f *peer.Frame, at limiter.Tick, keys []peer.RecordKey) error {
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
		if err = k.store.Sync(true); err != nil {
			k.disk.SaveAll()
		}
	}
	if k.broken { // what was saved before that is lost
		k.disk.SaveAll()
		return
	}
	k.report("changes cannot be saved", err)
	all, needed := k.store.Bytes()
	k.bytes.Store(all)
	k.needed.Store(needed)
	k.written.Store(k.store.Written())
	if err == nil {
		k.saves.Add(1)
		k.savedAt.Store(begun.UnixNano())
	}
}

// large reports whether a partition with so many counters is to be saved in whole: its changes take more than that.
func (k *keeper) large(key uint32, counters int) bool {
	whole := int64(overhead + entryBytes*counters)
	return k.store.Needed(key) > 2*whole
}

func (k *keeper) append(f *peer.Frame, at limiter.Tick, keys []peer.RecordKey) (err error) {
	if k.data, err = k.codec.Append(k.data[:0], f); err != nil {
		return err
	}
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
	var err error
	for i := range all {
		f, keys := core.PromiseRecord(k.m.core, all[i].a)
		if err = k.append(f, k.m.sched.Now(), keys); err != nil {
			break
		}
	}
	if err == nil {
		err = k.store.Sync(false)
	}
	if err != nil {
		k.disk.SaveAll()
		k.broken = true
		k.unsynced.Add(uint64(len(all)))
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
	s := &weir.StoreStats{Bytes: k.bytes.Load(), Needed: k.needed.Load(), Written: k.written.Load(),
		Failing: k.failing.Load(), Failures: k.failures.Load(), UnsavedGrants: k.unsynced.Load()}
	if at := k.savedAt.Load(); at != 0 {
		s.SavedAt = time.Unix(0, at)
	}
	return s
}

// report counts a failure, and logs it once a minute, and its end.
func (k *keeper) report(what string, err error) {
	switch {
	case err == nil:
		if k.failing.Swap(false) && what != "" {
			k.m.log.Info("the data directory is written again: everything was saved anew")
			k.told = time.Time{}
		}
		return
	case errors.Is(err, context.Canceled):
		return
	}
	k.failures.Add(1)
	k.failing.Store(true)
	if time.Since(k.told) >= storeTellEvery {
		k.told = time.Now()
		k.m.log.Error("the data directory cannot be written: decisions go on, and what changes is lost if all members end",
			"what", what, "error", err)
	}
}
