package transport_test

import (
	"strings"
	"testing"

	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// TestWideUnits: limits and costs up to the largest are counted exactly and told exactly, over
// gRPC, in columns and in JSON. A cost above is an error that says the range.
func TestWideUnits(t *testing.T) {
	s := newServer(t, "version: 1\nrules: [{name: all, key: [user], limits: [{limit: 9007199254740991, window: 1m, "+
		"algorithm: fixed_window}]}]", nil)
	const cost = int64(5_000_000_000_000_001)
	left := limiter.MaxUnits - uint64(cost)
	stream, err := s.api.CheckStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&weirv1.CheckColumns{Keys: []byte("ada"), UserLengths: []uint32{3}, Costs: []int64{cost},
		EveryLimit: true}); err != nil {
		t.Fatal(err)
	}
	m, err := stream.Recv()
	if err != nil || len(m.GetRemaining()) != 1 || m.GetRemaining()[0] != left ||
		m.GetEveryLimit().GetCosts()[0] != uint64(cost) || m.GetLimits()[0].GetLimit() != limiter.MaxUnits {
		t.Fatalf("in columns: %v, %v", m, err)
	}
	one := cost
	d, err := s.api.Check(t.Context(), &weirv1.CheckRequest{User: "bob", Cost: &one})
	if err != nil || !d.GetAllowed() || d.GetLimits()[0].GetRemaining() != left ||
		d.GetLimits()[0].GetCost() != uint64(cost) {
		t.Fatalf("over gRPC: %v, %v", d, err)
	}
	got := s.post(t, "/v1/check", `{"user":"bob","cost":4007199254740989}`)
	if want := `"limit":9007199254740991,"remaining":1,`; got.status != 200 || !strings.Contains(got.body, want) {
		t.Errorf("in JSON: %d %s, want %s", got.status, got.body, want)
	}
	for body, want := range map[string]string{
		`{"user":"eve","cost":9007199254740991}`: `"allowed":true`,
		`{"user":"eve","cost":9007199254740992}`: "cost 9007199254740992 is out of range: give 0 (a peek) to " +
			"9007199254740991 units",
		`{"user":"eve","cost":9223372036854775808}`: "cost is 9223372036854775808",
	} {
		if got := s.post(t, "/v1/check", body); !strings.Contains(got.body, want) {
			t.Errorf("%s: %d %s, want %s", body, got.status, got.body, want)
		}
	}
}
