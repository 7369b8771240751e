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
	"github.com/weirlimit/weir/transport"
)

const refundable = `version: 1
rules: [{name: a, key: [user], limits: [{limit: 10, window: 1h, algorithm: fixed_window}]}]
`

func allowRefunds(o *transport.Options) { o.AllowRefunds = true }

// A receipt is sent where it was asked for, over each protocol, and takes its charge back
// over each, once.
func TestRefund(t *testing.T) {
	s := newServer(t, refundable, allowRefunds)
	ctx := t.Context()
	left := func() int64 {
		t.Helper()
		m, err := s.api.Check(ctx, &weirv1.CheckRequest{User: "ada", Peek: true, Receipt: true})
		if err != nil || m.GetReceipt() != "" {
			t.Fatal(m, err)
		}
		return int64(m.GetLimits()[0].GetRemaining())
	}
	answer := func(path, body string) (out limiter.Answer) {
		t.Helper()
		got := s.post(t, path, body)
		if err := json.Unmarshal([]byte(got.body), &out); err != nil || got.status != 200 {
			t.Fatal(got, err)
		}
		return out
	}
	over := map[string]func() string{
		"gRPC": func() string {
			m, err := s.api.Check(ctx, &weirv1.CheckRequest{User: "ada", Cost: new(int64(2)), Receipt: true})
			if err != nil {
				t.Fatal(err)
			}
			if a := weirwire.AnswerOf(m); a.Receipt != m.GetReceipt() {
				t.Errorf("%+v", a)
			}
			return m.GetReceipt()
		},
		"a batch of gRPC": func() string {
			m, err := s.api.CheckBatch(ctx, &weirv1.CheckBatchRequest{Checks: []*weirv1.CheckRequest{
				{User: "bob", Cost: new(int64(0))}, {User: "bob", Cost: new(int64(-1)), Receipt: true},
				{User: "ada", Cost: new(int64(2)), Receipt: true}, {User: "bob", Cost: new(int64(0)), Receipt: true},
			}})
			if err != nil || m.GetResults()[1].GetError() == nil || m.GetResults()[0].GetDecision().GetReceipt() != "" ||
				m.GetResults()[3].GetDecision().GetReceipt() != "" {
				t.Fatal(m, err)
			}
			return m.GetResults()[2].GetDecision().GetReceipt()
		},
		"POST": func() string { return answer("/v1/check", `{"user":"ada","cost":2,"receipt":true}`).Receipt },
		"GET": func() string {
			got := s.get(t, "/v1/check?user=ada&cost=2&receipt=true")
			var out limiter.Answer
			if err := json.Unmarshal([]byte(got.body), &out); err != nil {
				t.Fatal(got, err)
			}
			return out.Receipt
		},
		"a batch of HTTP": func() string {
			got := s.post(t, "/v1/check/batch",
				`{"checks":[{"user":"bob","receipt":7},{"user":"bob","cost":0},{"user":"ada","cost":2,"receipt":true}]}`)
			var out struct {
				Results []struct{ Answer *limiter.Answer }
			}
			if err := json.Unmarshal([]byte(got.body), &out); err != nil || len(out.Results) != 3 ||
				out.Results[0].Answer != nil || out.Results[1].Answer.Receipt != "" {
				t.Fatal(got, err)
			}
			return out.Results[2].Answer.Receipt
		},
	}
	for name, ask := range over {
		receipt := ask()
		if receipt == "" || len(receipt) > 128 || left() != 8 {
			t.Fatalf("%s: receipt %q, %d left", name, receipt, left())
		}
		for range 2 {
			if got := s.post(t, "/v1/refund", fmt.Sprintf(`{"user":"ada","cost":2,"receipt":%q}`, receipt)); got.status != 200 ||
				got.body != "{}\n" {
				t.Fatalf("%s: %+v", name, got)
			}
			if _, err := s.api.Refund(ctx, &weirv1.RefundRequest{User: "ada", Cost: new(int64(2)),
				Receipt: receipt}); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if left() != 10 {
			t.Fatalf("%s: %d left after a refund", name, left())
		}
	}
	receipt := over["gRPC"]()
	if _, err := s.api.Refund(ctx, &weirv1.RefundRequest{User: "ada", Cost: new(int64(2)),
		Receipt: receipt}); err != nil || left() != 10 {
		t.Errorf("over gRPC: %d left, %v", left(), err)
	}
	if a := answer("/v1/check", `{"user":"ada","cost":2}`); a.Receipt != "" {
		t.Errorf("a receipt that nobody asked for: %+v", a)
	}
	for body, want := range map[string]string{
		`{"user":"ada","cost":2}`:                                            "there is no receipt",
		`{"user":"ada","receipt":true}`:                                      "receipt is true; it must be a string",
		`{"user":"ada","cost":2,"receipt":"x"}`:                              "this text of 1 bytes is not a receipt",
		`{"user":"bob","cost":2,"receipt":"` + receipt + `"}`:                "the receipt is not of this request",
		`{"user":"ada","peek":true,"receipt":"` + receipt + `"}`:             `unknown field \"peek\"`,
		`{"user":"ada","receipt":"` + strings.Repeat("A", 76) + `"}`:         "this text of 76 bytes is not a receipt",
		`{"user":"ada","receipt":"AQ` + strings.Repeat("A", 74) + `"}`:       "the receipt is not of this request",
		`{"limits":[{"limit":1,"window":"1m"}],"receipt":"` + receipt + `"}`: "the receipt is not of this request",
	} {
		if got := s.post(t, "/v1/refund", body); got.status != 400 || !strings.Contains(got.body, want) {
			t.Errorf("%s: %+v, want %s", body, got, want)
		}
	}
	if _, err := s.api.Refund(ctx, &weirv1.RefundRequest{User: "ada",
		Receipt: "x"}); status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
	if left() != 8 {
		t.Errorf("%d left after refunds that are none", left())
	}
}

// Without permission nobody gets a receipt, or takes anything back; nothing is counted.
func TestRefundsThatAreNotAllowed(t *testing.T) {
	s := newServer(t, refundable, nil)
	ctx := t.Context()
	is := func(what string, err error) {
		t.Helper()
		if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "--allow-refunds") {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := s.api.Check(ctx, &weirv1.CheckRequest{User: "ada", Receipt: true})
	is("a check", err)
	_, err = s.api.Refund(ctx, &weirv1.RefundRequest{User: "ada", Receipt: "x"})
	is("a refund", err)
	m, err := s.api.CheckBatch(ctx,
		&weirv1.CheckBatchRequest{Checks: []*weirv1.CheckRequest{{User: "ada", Receipt: true}}})
	if err != nil || m.GetResults()[0].GetError().GetCode() != uint32(codes.PermissionDenied) {
		t.Error(m, err)
	}
	for path, body := range map[string]string{"/v1/check": `{"user":"ada","receipt":true}`,
		"/v1/refund": `{"user":"ada","receipt":"x"}`} {
		if got := s.post(t, path, body); got.status != 403 || !strings.Contains(got.body, "--allow-refunds") {
			t.Errorf("%s: %+v", path, got)
		}
	}
	d, err := s.api.Check(ctx, &weirv1.CheckRequest{User: "ada", Peek: true})
	if err != nil || d.GetLimits()[0].GetRemaining() != 10 {
		t.Error(d, err)
	}
}
