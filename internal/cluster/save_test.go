package cluster

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/cluster/mesh"
	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/internal/peerlink"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// slowDisk keeps what it is to call when a promise lasts.
type slowDisk struct{ kept []func() }

func (d *slowDisk) Keep(_ peer.Answer, kept func()) { d.kept = append(d.kept, kept) }

// A grant of a closed partition is sent when the disk has it; an answer that grants nothing is sent at once.
func TestAGrantLeavesWhenItLasts(t *testing.T) {
	c, p, _, _ := single(t, limiter.UnreachableClosed)
	disk := new(slowDisk)
	c.config.Promises = disk
	claim := func(from peer.Instance, counter uint64) *peer.Frame {
		c.Deliver(&peer.Frame{From: from, To: self, Claims: []peer.Claim{
			{Partition: p.id, Kind: peer.Renew, Round: 1, Counter: counter, For: from},
		}})
		return drain(c)[from]
	}
	answers := func(f *peer.Frame) int {
		if f == nil {
			return 0
		}
		return len(f.Answers)
	}
	if n := answers(claim(other, 5)); n != 0 || len(disk.kept) != 1 {
		t.Fatalf("before the grant lasts %d answers are sent, %d are being kept", n, len(disk.kept))
	}
	if n := answers(claim(third, 4)); n != 1 {
		t.Errorf("a refusal waits: %d answers", n)
	}
	disk.kept[0]()
	if a := lastAnswer(t, drain(c)[other]); !a.Granted || a.Grant != 5 {
		t.Errorf("when the grant lasts: %+v", a)
	}
}

// onDisk is what a disk has of a core: frames and their keys.
type onDisk struct {
	frames [][]byte
	at     []limiter.Tick
	keys   [][]peer.RecordKey
	codec  *peerlink.Codec
}

func (o *onDisk) put(f *peer.Frame, at limiter.Tick, keys []peer.RecordKey) error {
	b, err := o.codec.Append(nil, f)
	o.frames, o.at, o.keys = append(o.frames, b), append(o.at, at), append(o.keys, slices.Clone(keys))
	return err
}

// restored returns a core that has read it.
func (o *onDisk) restored(t *testing.T) (*Core, *partition) {
	t.Helper()
	c, p, _, _ := saving(t)
	d := NewDisk(c)
	for i, b := range o.frames {
		if err := o.codec.Read(b, func(f *peer.Frame) {
			if refused, err := d.Restore(f, o.at[i], o.keys[i]); err != nil {
				t.Errorf("record %d: %v, of %v", i, err, refused)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	d.Restored(true)
	return c, p
}

// saving returns a core with a disk that has a copy of many keys.
func saving(t *testing.T) (*Core, *partition, *byHand, *arith.Charge) {
	t.Helper()
	return singleWith(t, limiter.UnreachableClosed, func(c *Config) { c.SaveEvery = limiter.Second })
}

func notLarge(uint32, int) bool { return false }

// A partition whose state is replaced while it is saved is in the same save, with the state that took its place; if
// that does not end, what the disk had before is not given up.
func TestAStateThatIsReplacedWhileItIsSaved(t *testing.T) {
	for _, replacements := range []int{0, 1, 1 + savedAgain} {
		c, p, h, charge := saving(t)
		for i := range uint64(1000) {
			var one arith.Charge
			k := *charge.Key(0)
			k.Hash.Hi = 1 + i
			one.Add(k)
			var d limiter.Decision
			if err := c.table.Decide(h.now, &one, &d); err != nil || !d.Allowed {
				t.Fatal(err, d)
			}
		}
		put(c, p, replica.Fixture{Role: peer.Copy, Epoch: peer.Epoch{Counter: 1, Instance: third},
			Owner: peer.Epoch{Counter: 1, Instance: third}})
		disk := &onDisk{codec: peerlink.NewCodec()}
		left := replacements
		counter := uint64(1)
		complete, err := NewDisk(c).Save(nil, notLarge, func(f *peer.Frame, at limiter.Tick, k []peer.RecordKey) error {
			if left > 0 && len(f.Batches) > 0 && !f.Batches[len(f.Batches)-1].Last {
				left--
				counter++
				batch := peer.Batch{Partition: p.id, Kind: peer.Snapshot, Epoch: peer.Epoch{Counter: counter, Instance: other},
					Seq: 3, First: true, Last: true}
				full := &peer.Frame{From: other, To: self, Batches: []peer.Batch{batch}}
				if replacements > 1 { // as large as the one before
					keys := mesh.Collector{Counters: c.table}
					var all []uint64
					c.table.Export(int(p.id), at, func(e table.Entry) { all = append(all, e.Hi) })
					keys.Batch(batch, keys.Keys(p.id, all, at, 1<<20))
					full.Batches, full.Entries, full.Limits = keys.Frame.Batches, keys.Frame.Entries, keys.Frame.Limits
				}
				c.Deliver(full)
				if got := look(p); got.Epoch.Counter != counter {
					t.Fatalf("the snapshot is not taken: %+v", got)
				}
			}
			return disk.put(f, at, k)
		})
		if err != nil || left != 0 {
			t.Fatalf("%v, %d replacements are left", err, left)
		}
		if want := replacements <= savedAgain; complete != want {
			t.Errorf("%d replacements: complete %t", replacements, complete)
		} else if !want {
			continue
		}
		_, q := disk.restored(t)
		if got := look(q); got.Role != peer.Copy || got.Epoch.Counter != counter {
			t.Errorf("%d replacements: the disk has %+v, want the epoch %d", replacements, got, counter)
		}
	}
}

// A mark of an end in good order holds if it is the last record, and all that was before it could be read.
func TestAMarkIsTheLastRecord(t *testing.T) {
	for name, test := range map[string]struct {
		later, damaged bool
	}{"last": {}, "not last": {later: true}, "damaged": {damaged: true}} {
		c, _, h, _ := saving(t)
		d := NewDisk(c)
		take := func(f *peer.Frame, keys []peer.RecordKey) {
			if refused, err := d.Restore(f, h.now, keys); err != nil {
				t.Fatal(err, refused)
			}
		}
		take(d.Mark(true))
		if test.later {
			take(c.PromiseRecord(peer.Answer{Partition: 1}))
		}
		marked := d.Restored(!test.damaged)
		if ended := c.partitions.node.Ended; marked == test.later || (ended == c.self) != (name == "last") {
			t.Errorf("%s: marked %t, ended %d", name, marked, ended)
		}
	}
}

// Other members are waited for from the moment at which the disk was read, however long that took.
func TestTheWaitBeginsWhenTheDiskWasRead(t *testing.T) {
	const wait = 30 * limiter.Second
	c, _, h, _ := singleWith(t, limiter.UnreachableClosed, func(c *Config) {
		c.SaveEvery, c.RestoreWait = limiter.Second, wait
	})
	d := NewDisk(c)
	h.now += limiter.Minute
	d.Restored(true)
	if until := c.partitions.node.RestoreUntil; until != h.now+wait {
		t.Errorf("others are waited for for %v, want %v", (until - h.now).Duration(), wait.Duration())
	}
}

// A batch that cannot be taken costs no other one of its record.
func TestARefusedBatchCostsNoOther(t *testing.T) {
	c, p, _, _ := saving(t)
	e := peer.Epoch{Counter: 4, Instance: third}
	bad := peer.Entry{Hi: 7, Lo: 9, First: true, Limit: 0}
	f := &peer.Frame{
		Limits:  []peer.Limit{{Algorithm: 200}},
		Entries: []peer.Entry{bad, bad, {Hi: 7, Limit: 40, First: true}},
		Batches: []peer.Batch{
			{Partition: p.id, Kind: peer.Snapshot, Epoch: e, Seq: 1, Keys: 1, First: true, Last: true},
			{Partition: p.id, Kind: peer.Delta, Epoch: e, Seq: 2, Base: 1, Keys: 1},
			{Partition: p.id, Kind: peer.Delta, Epoch: e, Seq: 2, Base: 1, Keys: 1},
			{Partition: p.id, Kind: peer.Snapshot, Epoch: e, Seq: 9, First: true, Last: true},
		},
		Answers: []peer.Answer{{Partition: p.id, Top: math.MaxUint64}, {Partition: p.id, Owner: e, Top: 4}},
	}
	keys := []peer.RecordKey{{Key: uint32(p.id), Replaces: true, Weight: 1},
		{Key: promisesOf + uint32(p.id), Replaces: true, Weight: 1}}
	refused, err := NewDisk(c).Restore(f, 1, keys)
	if !errors.Is(err, errRestore) || len(refused) != 4 {
		t.Errorf("%v, refused %v", err, refused)
	}
	if got := look(p); got.Role != peer.Copy || got.Epoch != e || got.Owner != e {
		t.Errorf("it has %+v", got)
	}
}

// However long the logs of keys are, and however many ids they remember, a record becomes little larger than it is
// to be, unless one key takes more; and all of it is there.
func TestRecordsEndByTheirSize(t *testing.T) {
	c, p, h, charge := saving(t)
	log, err := limiter.NewLimit(limiter.Spec{Algorithm: limiter.SlidingLog, Limit: 5000, Window: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	charge.Key(0).Rule.Limits = []*limiter.Limit{log}
	const keys, charges = 20, 1500
	for i := range uint64(keys) {
		for n := range charges {
			var one arith.Charge
			k := *charge.Key(0)
			k.Hash.Hi, k.Cost = 1+i, 1
			one.Add(k)
			if n == 0 {
				one.ID = &arith.Idempotency{ID: 1000 + i, Life: time.Hour}
			}
			var d limiter.Decision
			if err := c.table.Decide(h.now+limiter.Tick(n), &one, &d); err != nil || !d.Allowed {
				t.Fatal(err, d)
			}
		}
	}
	put(c, p, replica.Fixture{Role: peer.Copy, Epoch: peer.Epoch{Counter: 1, Instance: third},
		Owner: peer.Epoch{Counter: 1, Instance: third}})
	disk := &onDisk{codec: peerlink.NewCodec()}
	if _, err := NewDisk(c).Save(nil, notLarge, disk.put); err != nil {
		t.Fatal(err)
	}
	for i, b := range disk.frames {
		if len(b) > 2*recordBytes {
			t.Errorf("record %d has %d bytes", i, len(b))
		}
	}
	saved, _ := disk.restored(t)
	want, got := hashesOf(c, p), hashesOf(saved, p)
	if !slices.Equal(got, want) || len(got) < keys+5 {
		t.Errorf("the disk has %d keys and ids, want %d", len(got), len(want))
	}
}

// A save writes the keys of a partition that were charged since the one before, and no others; and what is read back
// is what the partition has.
func TestWhatWasChargedIsSaved(t *testing.T) {
	c, p, h, charge := saving(t)
	c.SetView(view.New(self, []peer.Member{{Name: "a", Instance: self, State: peer.Active}}, h, 1, 1))
	e := peer.Epoch{Counter: 2, Instance: self}
	put(c, p, replica.Fixture{Role: peer.Owned, Epoch: e, Owner: e})
	check := func(i uint64) {
		t.Helper()
		var one arith.Charge
		k := *charge.Key(0)
		k.Hash.Hi, k.Cost = i*0x9e3779b97f4a7c15, 1
		one.Add(k)
		var d limiter.Decision
		q := route.Request{Wait: replica.Wait{Charge: &one}}
		tn := c.begin()
		defer tn.end()
		if v, _ := c.decider.handle(tn, &q, &d, nil); v != route.Answered || !d.Allowed {
			t.Fatalf("%v %+v", v, d)
		}
	}
	disk, from, gone := &onDisk{codec: peerlink.NewCodec()}, NewDisk(c), []uint64(nil)
	save := func() (keys int) {
		t.Helper()
		before := len(disk.frames)
		gone = nil
		if _, err := from.Save(nil, notLarge, disk.put); err != nil {
			t.Fatal(err)
		}
		for _, b := range disk.frames[before:] {
			if err := disk.codec.Read(b, func(f *peer.Frame) {
				keys += len(f.Entries)
				for i := range f.Entries {
					if f.Entries[i].Gone {
						gone = append(gone, f.Entries[i].Hi)
					}
				}
			}); err != nil {
				t.Fatal(err)
			}
		}
		return keys
	}
	const keys = 5000
	for i := range uint64(keys) {
		check(i + 1)
	}
	if n := save(); n != keys {
		t.Errorf("%d keys are saved at first", n)
	}
	if n := save(); n != 0 {
		t.Errorf("%d keys are saved, and nothing has changed", n)
	}
	for i := range uint64(100) {
		check(1 + 7*i)
	}
	check(keys + 1)
	if n := save(); n != 101 {
		t.Errorf("%d keys are saved, and 101 were charged", n)
	}
	saved, q := disk.restored(t)
	var want, got []table.Entry
	c.table.Export(int(p.id), h.now, func(e table.Entry) { want = append(want, e) })
	saved.table.Export(int(q.id), h.now, func(e table.Entry) { got = append(got, e) })
	for _, all := range [][]table.Entry{want, got} {
		slices.SortFunc(all, func(a, b table.Entry) int { return cmp.Compare(a.Hi, b.Hi) })
	}
	if !slices.EqualFunc(got, want, func(a, b table.Entry) bool { return a.Hi == b.Hi && a.State == b.State }) {
		t.Errorf("%d counters are read back, and %d were saved", len(got), len(want))
	}

	// A shorter window lets a counter recover: it is there no more at the next save.
	long := charge.Key(0).Rule.Limits
	short, err := limiter.NewLimit(limiter.Spec{Name: long[0].Name(), Algorithm: limiter.FixedWindow, Limit: 100,
		Window: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	charge.Key(0).Rule.Limits = []*limiter.Limit{short}
	check(1)
	charge.Key(0).Rule.Limits = long
	h.now += limiter.Minute
	for i := range uint64(2 * keys) {
		check(2*keys + i)
	}
	one := uint64(0x9e3779b97f4a7c15)
	if slices.Contains(hashesOf(c, p), one) || slices.Contains(c.table.Keys(int(p.id)), one) {
		t.Fatal("the counter is still there")
	}
	if save(); !slices.Equal(gone, []uint64{one}) {
		t.Errorf("%x are written to be gone, want %x", gone, one)
	}
}

// hashesOf returns the hashes of all counters and ids of a partition.
func hashesOf(c *Core, p *partition) (all []uint64) {
	c.table.Export(int(p.id), 0, func(e table.Entry) { all = append(all, e.Hi) })
	slices.Sort(all) // each table has an order of its own
	return slices.Compact(all)
}
