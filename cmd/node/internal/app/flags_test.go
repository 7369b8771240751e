package app

import (
	"slices"
	"syscall"
	"testing"
)

// A flag that does nothing by itself is no error, since nodes may share their environment, and the log says so. A
// default that is given is none.
func TestFlagsWithoutEffect(t *testing.T) {
	r := begin(t, World{Environ: []string{"WEIR_ENVOY_MODE=atomic", "WEIR_ENVOY_HOLD=10m"}}, free("--name", "a",
		"--peer-addr", "127.0.0.1:0", "--gossip-addr", "127.0.0.1:0", "--persist-interval", "7s")...)
	r.until("the node listens")
	r.signals <- syscall.SIGTERM
	r.end(ExitOK)
	var idle []any
	for _, rec := range records(t, r.err.String()) {
		if rec["msg"] == "a flag has no effect: another one is not given" {
			idle = append(idle, rec["flag"], rec["needs"])
		}
	}
	want := []any{"--persist-interval", "--data-dir", "--envoy-mode", "--envoy-addr or --rlqs-addr"}
	if !slices.Equal(idle, want) {
		t.Errorf("%v", idle)
	}
}
