//go:build linux

package scenario

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/chaos/fleet"
	"github.com/weirlimit/weir/chaos/history"
	"github.com/weirlimit/weir/chaos/report"
	"github.com/weirlimit/weir/metrics"
)

// A number that a node does not say is an error, and not a leak that never grows.
func TestSampleOf(t *testing.T) {
	all := map[string]float64{
		"go_goroutines": 50, "process_open_fds": 30, "process_resident_memory_bytes": 2e7, "weir_checks_parked": 0,
		"weir_replies_withheld":   1,
		"weir_operations_waiting": 2, "weir_frames_queued": 3, "weir_replication_unacknowledged_cost": 4,
		`weir_partitions{state="sealed"}`: 5,
		"weir_table_keys":                 6, "weir_table_copied_keys": 8, "weir_fallback_keys": 7,
	}
	want := report.Sample{Goroutines: 50, FDs: 30, Bytes: 2e7, Withheld: 1, Waiting: 2, Queued: 3, Unacknowledged: 4,
		Sealed: 5, Keys: 14, Fallback: 7}
	if s, err := sampleOf(all); err != nil || s != want {
		t.Errorf("%+v, %v", s, err)
	}
	for name, value := range all {
		delete(all, name)
		if _, err := sampleOf(all); err == nil || !strings.Contains(err.Error(), "no "+name) {
			t.Errorf("without %s: %v", name, err)
		}
		all[name] = value
	}
}

// A node says all that trials read, by these names and labels.
func TestNodesSayWhatIsRead(t *testing.T) {
	r := metrics.NewRegistry()
	o := metrics.Options{
		Table: func() metrics.TableStats {
			return metrics.TableStats{}
		}, Cluster: func() metrics.ClusterStats { return metrics.ClusterStats{} }, Runtime: true,
	}
	if _, err := metrics.New(r, o); err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	metrics.Handler(r).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	said := fleet.ParseMetrics(w.Body.String())
	if _, err := sampleOf(said); err != nil {
		t.Error(err)
	}
	for _, name := range []string{overflow, `weir_members{state="active"}`, `weir_rules_reloads_total{result="failure"}`} {
		if _, ok := said[name]; !ok {
			t.Errorf("a node says no %s", name)
		}
	}
}

// What grows from the first third to the last is named; what stays is not.
func TestGrown(t *testing.T) {
	var same, more []report.Sample
	for i := range 9 {
		s := report.Sample{At: time.Duration(i) * time.Minute, Goroutines: 100, FDs: 30, Bytes: 50 << 20}
		same = append(same, s)
		s.Goroutines += 10 * float64(i)
		more = append(more, s)
	}
	if err := Grown(same); err != nil {
		t.Error(err)
	}
	if err := Grown(more); err == nil || !strings.Contains(err.Error(), "from 110 to 170 goroutines within 8m0s") {
		t.Errorf("goroutines that grow: %v", err)
	}
	if Grown(same[:5]) == nil {
		t.Error("five samples are taken for enough")
	}
}

// soaked is a soak of 142 mixes, as one was measured: 39 MB after the first, 45 after the
// last, and in between a few more or less each time.
func soaked() []report.Sample {
	rng := rand.New(rand.NewPCG(1, 2))
	var out []report.Sample
	for i := range 142 {
		out = append(out, report.Sample{
			At: time.Duration(i) * 13 * time.Second, Goroutines: float64(45 + rng.IntN(7)), FDs: float64(17 + rng.IntN(5)),
			Bytes: (39 + 6*float64(i)/141 + 6*rng.Float64() - 3) * 1e6, Keys: float64(20 * i), Fallback: float64(3 * i),
		})
	}
	return out
}

// TestALeakIsNoticed: of 128 kB with each mix, of one of whatever may wait in half an hour,
// and of a goroutine or a file descriptor in every tenth mix or so.
func TestALeakIsNoticed(t *testing.T) {
	if err := Grown(soaked()); err != nil {
		t.Errorf("nothing leaks: %v", err)
	}
	for what, leak := range map[string]func(s *report.Sample, i int){
		"bytes of memory":      func(s *report.Sample, i int) { s.Bytes += 128 << 10 * float64(i) },
		"goroutines":           func(s *report.Sample, i int) { s.Goroutines += float64(i / 8) },
		"file descriptors":     func(s *report.Sample, i int) { s.FDs += float64(i / 12) },
		"parked checks":        func(s *report.Sample, i int) { s.Parked += float64(i / 70) },
		"withheld replies":     func(s *report.Sample, i int) { s.Withheld += float64(i / 70) },
		"waiting operations":   func(s *report.Sample, i int) { s.Waiting += float64(i / 70) },
		"queued frames":        func(s *report.Sample, i int) { s.Queued += float64(i / 70) },
		"units without a copy": func(s *report.Sample, i int) { s.Unacknowledged += float64(i / 70) },
		"sealed partitions":    func(s *report.Sample, i int) { s.Sealed += float64(i / 70) },
	} {
		samples := soaked()
		for i := range samples {
			leak(&samples[i], i)
		}
		if err := Grown(samples); err == nil || !strings.Contains(err.Error(), " "+what+" within") ||
			strings.Count(err.Error(), "within") != 1 {
			t.Errorf("%s leak: %v", what, err)
		}
	}
}

// A mix that ends because the run is ended is none; one that fails is told as far as it
// came.
func TestTheLastMixOfASoak(t *testing.T) {
	for _, interrupted := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		told := 0
		samples, err := mixes(ctx, 1, time.Hour, func(seed uint64) (*history.Result, error) {
			r := &history.Result{History: new(history.History)}
			if seed < 3 {
				return r, nil
			}
			if interrupted {
				cancel()
			}
			return r, errors.New("it went no further")
		}, func(*history.Result) { told++ }, func() (report.Sample, error) { return report.Sample{}, nil })
		cancel()
		want := 3
		if interrupted {
			want = 2
		}
		if told != want || len(samples) != 2 || err == nil {
			t.Errorf("interrupted %v: %d mixes told, %d looks, %v; want %d, 2 and an error", interrupted, told, len(samples),
				err, want)
		}
	}
}
