package cluster

import (
	"testing"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter/table"
)

// Before a batch is applied, the ids of all batches up to half of table.Ahead later have been prefetched, each once. A
// frame may name more ids than it has, and partitions that do not exist.
func TestIDsArePrefetchedBeforeTheirBatch(t *testing.T) {
	f := &peer.Frame{IDs: make([]peer.ID, 200)}
	for i := range 40 {
		f.Batches = append(f.Batches, peer.Batch{Partition: uint16(1800 * i), IDs: uint32(i % 11)})
	}
	f.Batches[39].IDs = 1 << 31
	l, sum, next := lookahead{table: table.New(table.Config{}), frame: f}, 0, 0
	for i := range f.Batches {
		l.nextIDs(i)
		for ; next < len(f.Batches) && next <= i+table.Ahead/2; next++ {
			sum = min(sum+int(f.Batches[next].IDs), len(f.IDs))
		}
		if l.ids != sum {
			t.Fatalf("before batch %d, %d ids are prefetched, want %d", i, l.ids, sum)
		}
	}
	if sum != len(f.IDs) {
		t.Fatalf("premise: only %d ids", sum)
	}
}
