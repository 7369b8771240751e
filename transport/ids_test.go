package transport_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/weirwire"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// A check with an id counts once, whichever protocol the repetitions come by, and each of
// them tells that it is one.
func TestIDs(t *testing.T) {
	s := newServer(t, refundable, nil)
	ctx := t.Context()
	stream, err := s.api.CheckStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	of := func(m *weirv1.CheckResponse) (bool, uint64) {
		return weirwire.AnswerOf(m).Repeated, m.GetLimits()[0].GetRemaining()
	}
	answer := func(got reply) (bool, uint64) {
		var out limiter.Answer
		if err := json.Unmarshal([]byte(got.body), &out); err != nil || got.status != 200 {
			t.Fatal(got, err)
		}
		return out.Repeated, out.Limits[0].Remaining
	}
	over := map[string]func(id string) (repeated bool, left uint64){
		"gRPC": func(id string) (bool, uint64) {
			m, err := s.api.Check(ctx, &weirv1.CheckRequest{User: "ada", Id: id, IdTtlUs: 50_000_000})
			if err != nil {
				t.Fatal(err)
			}
			return of(m)
		},
		"gRPC with attributes": func(id string) (bool, uint64) {
			m, err := s.api.Check(ctx, &weirv1.CheckRequest{User: "ada", Id: id, Attributes: map[string]string{"a": "b"}})
			if err != nil {
				t.Fatal(err)
			}
			return of(m)
		},
		"a batch of gRPC": func(id string) (bool, uint64) {
			m, err := s.api.CheckBatch(ctx, &weirv1.CheckBatchRequest{Checks: []*weirv1.CheckRequest{{User: "bob"},
				{User: "ada", Id: id}}})
			if err != nil {
				t.Fatal(err)
			}
			return of(m.GetResults()[1].GetDecision())
		},
		"columns": func(id string) (bool, uint64) {
			if err := stream.Send(&weirv1.CheckColumns{
				Keys: []byte("bobada"), UserLengths: []uint32{3, 3}, Ids: []byte(id), IdLengths: []uint32{0, uint32(len(id))},
				IdTtlUs: 50_000_000,
			}); err != nil {
				t.Fatal(err)
			}
			m, err := stream.Recv()
			if err != nil || m.GetError() != nil || m.GetFlags()[1]&byte(weirv1.DecisionFlag_DECISION_FLAG_ALLOWED) == 0 {
				t.Fatal(m, err)
			}
			return m.GetFlags()[1]&byte(weirv1.DecisionFlag_DECISION_FLAG_REPEATED) != 0, m.GetRemaining()[1]
		},
		"POST": func(id string) (bool, uint64) {
			return answer(s.post(t, "/v1/check", fmt.Sprintf(`{"user":"ada","id":%q,"id_ttl_ms":50000}`, id)))
		},
		"GET": func(id string) (bool, uint64) { return answer(s.get(t, "/v1/check?user=ada&id_ttl_ms=50000&id="+id)) },
	}
	want := uint64(10)
	for first, ask := range over {
		want--
		id := fmt.Sprint("id-", want)
		if repeated, left := ask(id); repeated || left != want {
			t.Fatalf("%s: repeated %t, %d left, want %d", first, repeated, left, want)
		}
		for again, ask := range over {
			if repeated, _ := ask(id); !repeated {
				t.Errorf("%s, and again by %s: not repeated", first, again)
			}
		}
		if d := s.get(t, "/v1/check?user=ada&peek=true"); !strings.Contains(d.body, fmt.Sprintf(`"remaining":%d`, want)) {
			t.Fatalf("%s: %s, want %d left", first, d.body, want)
		}
	}
}

// Bad ids are refused with what to give instead, and nothing is counted.
func TestBadIDs(t *testing.T) {
	s := newServer(t, refundable, nil)
	long := strings.Repeat("x", 65)
	for body, want := range map[string]string{
		`{"user":"ada","id":""}`:                       "the id is empty: give 1 to 64 bytes",
		`{"user":"ada","id":7}`:                        "id is 7; it must be a string",
		`{"user":"ada","id":"` + long + `"}`:           "the id has 65 bytes; at most 64 are allowed",
		`{"user":"ada","id":"7","id_ttl_ms":0}`:        "id_ttl_ms is 0; it must be 1 to 86400000",
		`{"user":"ada","id":"7","id_ttl_ms":86400001}`: "id_ttl_ms is 86400001; it must be 1 to 86400000",
		`{"user":"ada","id":"7","id_ttl_ms":1.5}`:      "id_ttl_ms is 1.5; it must be a whole number of milliseconds",
		`{"user":"ada","id_ttl_ms":5}`:                 "has no id: give it one",
	} {
		if got := s.post(t, "/v1/check", body); got.status != 400 || !strings.Contains(got.body, want) {
			t.Errorf("%s: %+v, want %s", body, got, want)
		}
	}
	for query, want := range map[string]string{"id=": "the id is empty", "id=7&id_ttl_ms=x": "id_ttl_ms is",
		"id=" + long: "the id has 65 bytes"} {
		if got := s.get(t, "/v1/check?user=ada&"+query); got.status != 400 || !strings.Contains(got.body, want) {
			t.Errorf("%s: %+v, want %s", query, got, want)
		}
	}
	for _, m := range []*weirv1.CheckRequest{
		{User: "ada", Id: long}, {User: "ada", IdTtlUs: 5000}, {User: "ada", Id: "7", IdTtlUs: 1 << 62},
		{User: "ada", Id: "7", IdTtlUs: -1},
		{User: "ada", Id: "7", IdTtlUs: 1 << 62, Attributes: map[string]string{"a": "b"}},
	} {
		if _, err := s.api.Check(t.Context(), m); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", m, err)
		}
	}
	if _, err := s.api.Check(t.Context(), &weirv1.CheckRequest{User: "ada", Id: "7",
		IdTtlUs: 90_000_000_000}); err == nil || !strings.Contains(err.Error(), "for 25h0m0s, which is out of range") {
		t.Error(err)
	}
	if got := s.get(t, "/v1/check?user=ada&peek=true"); !strings.Contains(got.body, `"remaining":10`) {
		t.Errorf("%s", got.body)
	}
}

// A refund that names the id of its check forgets it, so that the request can be made again.
func TestRefundForgetsID(t *testing.T) {
	s := newServer(t, refundable, allowRefunds)
	for name, refund := range map[string]func(receipt string) error{
		"gRPC": func(receipt string) error {
			_, err := s.api.Refund(t.Context(), &weirv1.RefundRequest{User: "ada", Receipt: receipt, Id: "7"})
			return err
		},
		"HTTP": func(receipt string) error {
			if got := s.post(t, "/v1/refund", fmt.Sprintf(`{"user":"ada","receipt":%q,"id":"7"}`, receipt)); got.status != 200 {
				return fmt.Errorf("%+v", got)
			}
			return nil
		},
	} {
		receipt := ""
		for i := range 2 { // a repetition has the receipt of the first check
			m, err := s.api.Check(t.Context(), &weirv1.CheckRequest{User: "ada", Id: "7", Receipt: true})
			if err != nil || m.GetRepeated() != (i == 1) || m.GetLimits()[0].GetRemaining() != 9 || m.GetReceipt() == "" {
				t.Fatalf("%s, check %d: %v, %v", name, i, m, err)
			}
			receipt = m.GetReceipt()
		}
		if err := refund(receipt); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if m, err := s.api.Check(t.Context(), &weirv1.CheckRequest{User: "ada", Id: "7"}); err != nil || m.GetRepeated() ||
		m.GetLimits()[0].GetRemaining() != 9 {
		t.Errorf("%v, %v", m, err)
	}
}
