package metrics

import (
	"strings"
	"testing"
	"time"
)

// The state of a node in its cluster is reported, read anew at each scrape. A node
// without a cluster reports none.
func TestClusterStats(t *testing.T) {
	calls := 0
	_, r := open(t, Options{Cluster: func() ClusterStats {
		calls++
		return ClusterStats{
			Members: map[string]int{"active": 3, "dead": 1, "expelled": 5, "unmet": 4}, Unreachable: 2, Share: 0.25,
			Owned: 7, Heirs: 6, Copies: 5, Sealed: 4, Unsettled: 3,
			Withheld: 2, Parked: 1, Waiting: 14, Queued: 15, Fallback: 16, LagSeconds: 0.5, Unacknowledged: 9,
			Events: map[string]uint64{"takeover": 11, "handoff": 12}, RulesDiffer: calls == 1, ZoneDataDiffers: calls == 1,
			Minority: calls == 1,
			Store: &StoreStats{Bytes: 21, Needed: 22, Written: 23, SavedAt: time.Unix(24, 5e8), Failing: true, Failures: 25,
				UnsavedGrants: 26},
		}
	}})
	read := func() map[string]float64 {
		all, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range all {
			for _, m := range f.GetMetric() {
				name := f.GetName()
				for _, l := range m.GetLabel() {
					name += " " + l.GetValue()
				}
				got[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
		return got
	}
	got := read()
	for name, want := range map[string]float64{
		"weir_members active": 3, "weir_members dead": 1, "weir_members joining": 0, "weir_members unmet": 4,
		"weir_members expelled":    5,
		"weir_members_unreachable": 2, "weir_zone_data_differs": 1, "weir_ring_share": 0.25,
		"weir_partitions owned": 7, "weir_partitions heir": 6, "weir_partitions copy": 5, "weir_partitions sealed": 4,
		"weir_partitions_unsettled": 3, "weir_replies_withheld": 2, "weir_checks_parked": 1,
		"weir_operations_waiting": 14, "weir_frames_queued": 15, "weir_fallback_keys": 16,
		"weir_replication_lag_seconds": 0.5, "weir_replication_unacknowledged_cost": 9,
		"weir_partition_events_total takeover": 11, "weir_partition_events_total handoff": 12, "weir_rules_differ": 1,
		"weir_minority": 1, "weir_store_bytes all": 21, "weir_store_bytes needed": 22, "weir_store_written_bytes_total": 23,
		"weir_store_saved_timestamp_seconds": 24.5, "weir_store_failing": 1, "weir_store_failures_total": 25,
		"weir_store_unsaved_grants_total": 26,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v (reported: %t), want %v", name, v, ok, want)
		}
	}
	if second := read(); second["weir_rules_differ"] != 0 || second["weir_minority"] != 0 {
		t.Error("the second scrape tells what the first one did")
	}
	_, alone := open(t, Options{})
	all, err := alone.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if strings.HasPrefix(f.GetName(), "weir_partition") {
			t.Errorf("a node without a cluster reports %s", f.GetName())
		}
	}
}

// A certificate has what is left of its time, and all of it.
func TestCertificates(t *testing.T) {
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	_, r := open(t, Options{Now: func() time.Time { return now }, Validities: func() map[string]Validity {
		return map[string]Validity{"peer": {Begins: now.Add(-time.Hour), Expires: now.Add(time.Minute)}}
	}})
	want(t, r, `
# HELP weir_certificate_expiry_seconds Seconds until a certificate expires, negative after that.
# TYPE weir_certificate_expiry_seconds gauge
weir_certificate_expiry_seconds{plane="peer"} 60
# HELP weir_certificate_lifetime_seconds For how many seconds a certificate is valid in all.
# TYPE weir_certificate_lifetime_seconds gauge
weir_certificate_lifetime_seconds{plane="peer"} 3660
`, "weir_certificate_expiry_seconds", "weir_certificate_lifetime_seconds")
}
