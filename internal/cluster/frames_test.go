package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// The parts of a snapshot come in several frames, and the link reuses a frame after its
// delivery: the contents are overwritten before the next part comes.
func TestASnapshotKeepsNothingOfItsFrames(t *testing.T) {
	spec := limiter.Spec{Algorithm: limiter.SlidingLog, Limit: 10, Window: 24 * time.Hour}
	sender, from, h, charge := limited(t, spec)
	d := new(limiter.Decision)
	for range 3 {
		if err := sender.Check(t.Context(), charge, d); err != nil {
			t.Fatal(err)
		}
		h.now += limiter.Millisecond
	}
	receiver, to, _, _ := limited(t, spec)
	receiver.config.Rule = sender.config.Rule
	put(receiver, to, replica.Fixture{})
	tn := sender.begin()
	from.mu.Lock()
	tn.Out.Batch(other, &peer.Batch{
		Partition: from.id, Kind: peer.Snapshot, Epoch: peer.Epoch{Counter: 9, Instance: third}, Seq: 7, First: true,
		Last: true,
	}, []uint64{charge.Key(0).Hash.Hi}, table.NoIDs, tn.At)
	from.mu.Unlock()
	tn.end()
	var f *peer.Frame
	for got := sender.Take(other, true); got != nil; got = sender.Take(other, true) {
		if len(got.Entries) > 0 {
			f = got
		}
	}
	if f == nil || len(f.Entries) != 1 || len(f.Entries[0].Words) == 0 {
		t.Fatalf("there is no entry with words in %+v", f)
	}
	f.From, f.To = third, self
	first, second := f.Clone(), f.Clone()
	first.Batches[0].Last = false
	second.Batches[0].First, second.Batches[0].Base, second.Batches[0].Keys, second.Entries = false, 1, 0, nil
	receiver.Deliver(first)
	for i := range first.Entries[0].Words {
		first.Entries[0].Words[i] = 0xdead_beef
	}
	receiver.Deliver(second)
	if i := look(to); i.Role != peer.Copy || i.Seq != 7 {
		t.Fatalf("the snapshot is not kept: role %v, sequence %d", i.Role, i.Seq)
	}
	want := fmt.Sprint(f.Entries[0].Words)
	n := 0
	tn = receiver.begin()
	drain(receiver)
	tn.Out.Batch(third, &peer.Batch{Partition: to.id, Kind: peer.Push}, []uint64{charge.Key(0).Hash.Hi},
		table.NoIDs, tn.At)
	got := receiver.Take(third, true)
	for _, e := range got.Entries {
		n++
		if fmt.Sprint(e.Words) != want {
			t.Errorf("the log is %x, want %s", e.Words, want)
		}
	}
	if n != 1 {
		t.Errorf("%d counters are kept, want 1", n)
	}
	tn.end()
}
