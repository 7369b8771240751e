//go:build unix

package cluster_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/diskstore"
)

// BenchmarkRestart starts a member whose directory has 100,000 counters, or WEIR_RESTART_KEYS. It reports the time and
// the CPU time until the member is ready, those of saving all counters, and the memory that a counter takes before and
// after.
func BenchmarkRestart(b *testing.B) {
	keys, err := strconv.Atoi(cmp.Or(os.Getenv("WEIR_RESTART_KEYS"), "100000"))
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	start := func() *weir.Node {
		c := memberConfig("alone", twoClasses)
		c.MaxKeys = 2 * keys
		part(c).Store, part(c).PersistInterval = diskstore.Dir{Path: dir}, time.Hour
		part(c).Deadline = 30 * time.Second // no policy answers
		n, err := weir.Open(context.Background(), c)
		if err != nil {
			b.Fatal(err)
		}
		until(b, "it is ready", func() bool { return n.Ready() == nil })
		return n
	}
	memory := func() float64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc) / float64(keys)
	}
	timed := func(what string, do func()) {
		begun, used := time.Now(), cpu(b)
		do()
		b.ReportMetric(time.Since(begun).Seconds(), "s/"+what)
		b.ReportMetric((cpu(b) - used).Seconds(), "cpu-s/"+what)
	}
	n := start()
	const many = 500
	requests, answers := make([]weir.Request, many), make([]weir.Decision, many)
	for i := 0; i < keys; i += many {
		for j := range requests {
			requests[j] = weir.Request{Path: "/open", User: fmt.Sprint("user", i+j)}
		}
		if err := n.CheckBatchInto(context.Background(), requests, answers); err != nil {
			b.Fatal(err)
		}
	}
	before := memory()
	for b.Loop() {
		timed("save", func() { n.Close() })
		n = nil
		timed("restart", func() { n = start() })
		b.ReportMetric(memory(), "bytes/counter-after")
		if got := n.Stats().Keys; got != keys {
			b.Errorf("%d counters are back of %d", got, keys)
		}
	}
	b.ReportMetric(before, "bytes/counter-before")
	n.Close()
}
