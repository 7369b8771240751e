package load

import (
	"bytes"
	"strings"
	"testing"
)

// FuzzParseMetrics: metrics of a server are either refused, or contain the processor
// time used.
func FuzzParseMetrics(f *testing.F) {
	all := "# HELP x y\nprocess_cpu_seconds_total 1.5\ngo_memstats_mallocs_total 2e+06\ngo_memstats_alloc_bytes_total " +
		"3\n" +
		"go_gc_duration_seconds_count 4\ngo_gc_duration_seconds_sum 0.5\nprocess_start_time_seconds 1.7e9\n"
	f.Add([]byte(all))
	f.Add([]byte("process_cpu_seconds_total 1"))
	f.Add([]byte("process_cpu_seconds_total NaN\ngo_memstats_mallocs_total -Inf\n"))
	f.Add([]byte("process_cpu_seconds_total 1e300\nprocess_cpu_seconds_total x\n"))
	f.Add([]byte("process_cpu_seconds_total -1\n"))
	f.Add([]byte("process_cpu_seconds_total one\n"))
	f.Add([]byte("go_memstats_mallocs_total\n"))
	f.Add([]byte(strings.Repeat("x", 1<<20+1)))
	f.Fuzz(func(t *testing.T, text []byte) {
		u, err := parseMetrics("there", bytes.NewReader(text))
		if err != nil {
			return
		}
		if !bytes.Contains(text, []byte("process_cpu_seconds_total")) || u.cpu < 0 {
			t.Errorf("%q says %+v", text, u)
		}
		for _, n := range []float64{u.mallocs, u.bytes, u.cycles, u.paused, u.began} {
			if !(n >= 0 && n <= mostMetric) {
				t.Errorf("%q says %+v", text, u)
			}
		}
		// The result of a run is JSON, which has finite numbers only.
		p := Point{Checks: 1}
		p.cost([]usage{u}, []usage{u})
		if len(p.Servers) != 1 || p.Servers[0].Unknown != "" {
			t.Errorf("%q and the same again: %+v", text, p.Servers)
		}
	})
}
