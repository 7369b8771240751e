package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// StoreStats is the state of what keeps a node's counters on disk.
type StoreStats struct {
	// Bytes is how many bytes it takes, Needed how many of them are needed, and Written how many were written.
	Bytes, Needed, Written int64
	// SavedAt is when everything was saved last.
	SavedAt time.Time
	// Failing reports that nothing can be saved now. Failures is how often that was so.
	Failing  bool
	Failures uint64
	// UnsavedGrants is how many grants did not wait for the disk.
	UnsavedGrants uint64
}

// storeDescs describe the metrics of a store. They are absent without one.
type storeDescs struct {
	bytes, written, saved, failing, failures, grants *prometheus.Desc
}

func newStoreDescs(of *described) *storeDescs {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return of.desc("store_"+name, help, labels...)
	}
	return &storeDescs{
		bytes:    desc("bytes", "Bytes of the data directory: all, and those that are needed.", "state"),
		written:  desc("written_bytes_total", "Bytes written to the data directory."),
		saved:    desc("saved_timestamp_seconds", "When all changes were saved last."),
		failing:  desc("failing", "Whether changes cannot be saved now: 1 or 0."),
		failures: desc("failures_total", "How often changes could not be saved."),
		grants:   desc("unsaved_grants_total", "Grants given before they were saved, as the disk is slow or fails."),
	}
}

func (d *storeDescs) collect(out chan<- prometheus.Metric, s *StoreStats) {
	if s == nil {
		return
	}
	send(out, d.bytes, prometheus.GaugeValue, float64(s.Bytes), "all")
	send(out, d.bytes, prometheus.GaugeValue, float64(s.Needed), "needed")
	send(out, d.written, prometheus.CounterValue, float64(s.Written))
	if !s.SavedAt.IsZero() {
		send(out, d.saved, prometheus.GaugeValue, float64(s.SavedAt.UnixMilli())/1000)
	}
	send(out, d.failing, prometheus.GaugeValue, bit(s.Failing))
	send(out, d.failures, prometheus.CounterValue, float64(s.Failures))
	send(out, d.grants, prometheus.CounterValue, float64(s.UnsavedGrants))
}
