package redisstore_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/redisstore"
)

// An explanation changes nothing in Redis, not even a counter whose limit has changed.
func TestAnExplanationWritesNothing(t *testing.T) {
	srv := startServer(t)
	store := openStore(t, redisstore.Config{Addrs: []string{srv.addr()}})
	now := time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC)
	rules := func(limit string) []byte {
		return []byte("version: 1\nrules: [{name: a, key: [user], limits: [{name: main, " + limit + "}]}]\n")
	}
	n, err := weir.Open(context.Background(), weir.Config{Rules: rules("limit: 9, window: 1h, algorithm: fixed_window"),
		Backend: store, Now: func() time.Time { return now }, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	r := weir.Request{User: "ada"}
	if d, err := n.Check(t.Context(), r); err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	if err := n.SetRules(rules("limit: 9, window: 1m, algorithm: sliding_log")); err != nil {
		t.Fatal(err)
	}
	before := values(t, srv)
	e, err := n.Explain(t.Context(), r)
	if err != nil || len(before) == 0 || e.Decision.Limit(0).Remaining != 8 {
		t.Fatalf("%+v, %v; %d keys", e, err, len(before))
	}
	after := values(t, srv)
	for key, value := range before {
		if after[key] != value || len(after) != len(before) {
			t.Errorf("the value of %s was %q, and is %q after an explanation; %d keys were %d", key, value, after[key],
				len(after), len(before))
		}
	}
}

// values returns the values of all keys of a server.
func values(t *testing.T, srv *server) map[string]string {
	t.Helper()
	client := srv.client()
	defer client.Close()
	out := make(map[string]string)
	for _, key := range client.Keys(t.Context(), "*").Val() {
		out[key] = client.Dump(t.Context(), key).Val()
	}
	return out
}
