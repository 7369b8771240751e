//go:build linux

package scenario

import (
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/chaos/report"
)

// A number that a node does not say is an error, and not a leak that never grows.
func TestSampleOf(t *testing.T) {
	all := map[string]float64{
		"go_goroutines": 50, "process_open_fds": 30, "process_resident_memory_bytes": 2e7, "weir_checks_parked": 0, "weir_replies_withheld": 1,
	}
	if s, err := sampleOf(all); err != nil || s != (report.Sample{Goroutines: 50, FDs: 30, Bytes: 2e7, Withheld: 1}) {
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
