package cluster_test

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/cluster"
	core "github.com/weirlimit/weir/internal/cluster"
	"github.com/weirlimit/weir/internal/disk"
	"github.com/weirlimit/weir/internal/disk/disktest"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/internal/peerlink"
)

// oneMember returns the configuration of a member that is alone and has a store, and its log.
func oneMember(s cluster.Store) (weir.Config, *lines) {
	c, log := memberConfig("alone", twoClasses), new(lines)
	c.Logger = slog.New(slog.NewTextHandler(log, nil))
	part(c).Store, part(c).PersistInterval = s, time.Second
	part(c).Deadline = 30 * time.Second // no policy answers
	return c, log
}

func ready(t *testing.T, n *weir.Node) {
	t.Helper()
	until(t, "it is ready", func() bool { return n.Ready() == nil })
}

// A member ends though its disk stands still, and says so.
func TestADiskThatHangsHoldsNothingUp(t *testing.T) {
	m := new(disktest.Memory)
	c, log := oneMember(inMemory{m})
	n := cluster.OpenImpatient(t, c, 50*time.Millisecond)
	ready(t, n)
	release, hangs := make(chan struct{}), make(chan struct{}, 100)
	m.SetFail(func(o string) error {
		if o == "sync" {
			hangs <- struct{}{}
			<-release
		}
		return nil
	})
	defer close(release)
	check(t, n, weir.Request{Path: "/open", User: "ada"})
	<-hangs
	if d := check(t, n, weir.Request{Path: "/open", User: "ada"}); !d.Allowed {
		t.Errorf("while the disk hangs: %+v", d)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "the data directory does not answer") {
		t.Errorf("the log says %q", log)
	}
}

// A disk that stands still is told while it does, and in the metrics, and so is that it goes on.
func TestADiskThatStandsStillIsTold(t *testing.T) {
	m := new(disktest.Memory)
	c, log := oneMember(inMemory{m})
	n := cluster.OpenImpatient(t, c, 50*time.Millisecond)
	defer n.Close()
	ready(t, n)
	release, hangs := make(chan struct{}), make(chan struct{}, 100)
	m.SetFail(func(o string) error {
		if o == "sync" {
			hangs <- struct{}{}
			<-release
		}
		return nil
	})
	<-hangs
	store := func() *weir.StoreStats { s, _ := n.Cluster().Stats(); return s.Store }
	until(t, "it fails", func() bool { return store().Failing && store().Failures > 0 })
	until(t, "it is told", func() bool { return strings.Contains(log.String(), "the data directory stands still") })
	if d := check(t, n, weir.Request{Path: "/open", User: "ada"}); !d.Allowed {
		t.Errorf("while the disk stands still: %+v", d)
	}
	if w := n.Warnings(); len(w) != 1 || !strings.Contains(w[0], "the data directory cannot be written") {
		t.Errorf("the node warns of %q", w)
	}
	close(release)
	until(t, "it goes on", func() bool { return !store().Failing && n.Warnings() == nil })
	if text := log.String(); strings.Count(text, "stands still") != 1 || !strings.Contains(text, "is written again") {
		t.Errorf("the log says %s", text)
	}
}

// faulty is a store that panics in some calls.
type faulty struct {
	inMemory
	panics *atomic.Int64 // so many times
}

func (f faulty) Open(cluster, member, secret, second string) (core.Store, error) {
	s, err := f.inMemory.Open(cluster, member, secret, second)
	return faultyStore{s, f.panics}, err
}

type faultyStore struct {
	core.Store
	panics *atomic.Int64
}

func (f faultyStore) Append(r *peer.Record) error {
	if f.panics.Load() > 0 {
		f.panics.Add(-1)
		panic("planted")
	}
	return f.Store.Append(r)
}

// After an internal error saving begins again, with everything. After several in a row it is given up. Both are told,
// and decisions go on.
func TestSavingPanics(t *testing.T) {
	m := new(disktest.Memory)
	f := faulty{inMemory{m}, new(atomic.Int64)}
	c, log := oneMember(f)
	n := open(t, c)
	ready(t, n)
	stats := func() weir.StoreStats { s, _ := n.Cluster().Stats(); return *s.Store }
	saves := cluster.Saves(n)
	until(t, "it saves", func() bool { return cluster.Saves(n) > saves })
	f.panics.Store(2)
	check(t, n, weir.Request{Path: "/open", User: "ada"})
	until(t, "it panics", func() bool { return stats().Failures >= 2 })
	saves = cluster.Saves(n)
	until(t, "it saves again", func() bool { return cluster.Saves(n) >= saves+2 && !stats().Failing })
	image := m.Copy()
	image.Crash(0)
	f.panics.Store(1 << 40)
	check(t, n, weir.Request{Path: "/open", User: "ada"})
	until(t, "it is given up", func() bool { return strings.Contains(log.String(), "is given up") })
	if !stats().Failing {
		t.Error("it is given up, and does not say so")
	}
	if d := check(t, n, weir.Request{Path: "/open", User: "ada"}); d.Limit(0).Remaining != 97 {
		t.Errorf("decisions: %+v", d)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	c.Cluster.(*cluster.Config).Store = inMemory{image}
	again := open(t, c)
	ready(t, again)
	if d := check(t, again, weir.Request{Path: "/open", User: "ada"}); d.Limit(0).Remaining != 98 {
		t.Errorf("after the panics that ended %d remain, want 98", d.Limit(0).Remaining)
	}
	again.Close()
}

// What a program keeps beside counters is saved when it changes, and read at the next start. What cannot be kept leaves
// what was.
func TestKept(t *testing.T) {
	m := new(disktest.Memory)
	run := func(now func(name string) ([]byte, error), want string) {
		t.Helper()
		c, log := oneMember(inMemory{m})
		kept := new(cluster.Kept)
		part(c).Kept = kept
		n := open(t, c)
		ready(t, n)
		if got := fmt.Sprintf("%s %s", kept.Restored("a"), kept.Restored("b")); got != want {
			t.Errorf("%q was kept, want %q; %s", got, want, log)
		}
		if now != nil {
			for _, name := range []string{"b", "a"} {
				if err := kept.Keep(name, func() ([]byte, error) { return now(name) }); err != nil {
					t.Fatal(err)
				}
			}
			saves := cluster.Saves(n)
			until(t, "it saves", func() bool { return cluster.Saves(n) >= saves+2 })
		}
		image := m.Copy()
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		m = image
		m.Crash(0)
	}
	value := func(of string) func(string) ([]byte, error) {
		return func(name string) ([]byte, error) { return []byte(name + of), nil }
	}
	run(value("1"), " ")
	run(nil, "a1 b1") // nobody asks for it, and it stays
	run(value("2"), "a1 b1")
	run(func(name string) ([]byte, error) {
		if name == "a" {
			return nil, errors.New("not now")
		}
		return make([]byte, cluster.MaxKept+1), nil
	}, "a2 b2")
	run(nil, "a2 b2")
	var k cluster.Kept
	for i := range 8 {
		if err := k.Keep(fmt.Sprint(i), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.Keep("ninth", nil); !errors.Is(err, weir.ErrInvalid) {
		t.Errorf("a ninth name: %v", err)
	}
}

// A member whose directory had counters says so if partitions start empty all the same, and does not after a start that
// finds all that it saved.
func TestPartitionsThatStartEmptyAreTold(t *testing.T) {
	m := new(disktest.Memory)
	run := func(level string) (emptied uint64) {
		c, log := oneMember(inMemory{m})
		n := cluster.OpenImpatient(t, c, 5*time.Second)
		ready(t, n)
		check(t, n, weir.Request{Path: "/open", User: "ada"})
		defer func() {
			if text := log.String(); strings.Contains(text, "are lost") || !strings.Contains(text, "go to its data directory") {
				t.Errorf("at its end it says %s", text)
			}
		}()
		until(t, "it owns everything", func() bool { s, _ := n.Cluster().Stats(); return s.Unsettled == 0 })
		if level != "" {
			told := "level=" + level + ` msg="partitions start empty`
			until(t, "it is told", func() bool { return strings.Contains(log.String(), told) })
		}
		s, _ := n.Cluster().Stats()
		if err := errors.Join(n.Cluster().Leave(t.Context()), n.Close()); err != nil {
			t.Error(err)
		}
		return s.Events["emptied"]
	}
	if n := run("INFO"); n == 0 {
		t.Error("nothing starts empty at the first start")
	}
	if n := run(""); n != 0 {
		t.Errorf("%d partitions start empty, and the directory had all", n)
	}
	all, err := m.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		b := m.Bytes(name)
		clear(b[len(b)/2:])
	}
	if n := run("WARN"); n == 0 {
		t.Error("nothing starts empty, and half of the directory is gone")
	}
}

// noted is a store in memory that remembers whose it is.
type noted struct {
	inMemory
	identity *disk.Identity
}

func (n noted) Open(cluster, member, secret, second string) (core.Store, error) {
	*n.identity = disk.Identity{Cluster: cluster, Member: member, Secret: secret}
	return n.inMemory.Open(cluster, member, secret, second)
}

// forge appends a record of an instant.
func (n noted) forge(t *testing.T, at int64) {
	t.Helper()
	data, err := peerlink.NewCodec().Append(nil, &peer.Frame{From: 1})
	if err != nil {
		t.Fatal(err)
	}
	s, err := disk.Open(disk.Config{Files: n.Memory, Identity: *n.identity})
	if err != nil {
		t.Fatal(err)
	}
	s.Read(func(*peer.Record) error { return nil })
	r := peer.Record{At: at, Keys: []peer.RecordKey{{Key: 1 << 13, Replaces: true, Weight: 1}}, Data: data} // the members
	if err := errors.Join(s.Append(&r), s.Sync(false), s.Close()); err != nil {
		t.Fatal(err)
	}
}

// A record of an instant that cannot be true is told with its place and left out, and no clock goes on from it.
func TestForgedInstantsAreTold(t *testing.T) {
	s := noted{inMemory{new(disktest.Memory)}, new(disk.Identity)}
	for used, at := range []int64{0, math.MaxInt64, math.MinInt64, -1, time.Now().AddDate(2, 0, 0).UnixMicro()} {
		c, log := oneMember(s)
		if at != 0 {
			s.forge(t, at)
		}
		n := open(t, c)
		ready(t, n)
		if d := check(t, n, weir.Request{Path: "/open", User: "ada"}); int(d.Limit(0).Remaining) != 99-used {
			t.Errorf("instant %d: %d remain, want %d", at, d.Limit(0).Remaining, 99-used)
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		told := strings.Count(log.String(), "cannot be read: it is left out")
		if at != 0 && (told != 1 || !strings.Contains(log.String(), ".seg at byte ")) || at == 0 && told > 0 ||
			strings.Contains(log.String(), "clock is behind") {
			t.Errorf("instant %d: the log says %s", at, log)
		}
	}
}
