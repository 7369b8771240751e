package transport_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
	"github.com/weirlimit/weir/transport"
)

// The numbers of a settlement by attribute are an object in JSON, and a field of their own over gRPC.
func TestSettleByAttribute(t *testing.T) {
	s := newServer(t, `rules:
  - {name: money, continue: true, key: [user], limits: [{limit: 9000, window: 1h}], cost: {from: "attr:udollars"}}
  - {name: tokens, key: [user], limits: [{limit: 700, window: 1h}], cost: {from: "attr:tokens"}}
`, allowRefunds)
	held := `{"user":"ada","attributes":{"tokens":"200","udollars":"5000"},"id":"1","hold_ms":60000}`
	if got := s.post(t, "/v1/check", held); got.status != 200 {
		t.Fatalf("%+v", got)
	}
	for i, test := range []struct {
		actual string
		status int
		want   string
	}{
		{`80`, 409, "say how much was used of each attribute that states a cost"},
		{`{}`, 400, "the settlement names 0 attributes"},
		{`{"tokens":80}`, 400, `rule \"money\" takes its cost from attribute \"udollars\"`},
		{`{"tokens":80,"udollars":-1}`, 400, "settled with -1 of attribute"},
		{`{"tokens":80,"udollars":"5"}`, 400, "it must be whole numbers of units by attribute"},
		{`{"tokens":80,"udollars":5,"usd":1}`, 400, "name those from which they do: tokens, udollars"},
		{`{"tokens":80,"udollars":1930}`, 200, `{"state":"done","estimate":5000}`},
		{`{"tokens":80,"udollars":1930}`, 200, `{"state":"repeated"}`},
		{`{"tokens":81,"udollars":1930}`, 409, "stands for 80 units"},
	} {
		got := s.post(t, "/v1/settle", `{"user":"ada","id":"1","actual":`+test.actual+`}`)
		if got.status != test.status || !strings.Contains(got.body, test.want) {
			t.Errorf("%d: %s: %d %s, want %d %s", i, test.actual, got.status, got.body, test.status, test.want)
		}
	}
	m := &weirv1.SettleRequest{User: "ada", Id: "1", ActualByAttribute: map[string]int64{"tokens": 80, "udollars": 1930}}
	if out, err := s.api.Settle(t.Context(), m); err != nil || out.GetState() !=
		weirv1.ReservationState_RESERVATION_STATE_REPEATED {
		t.Errorf("%v, %v", out, err)
	}
	if m.Actual = new(int64(1)); true {
		if _, err := s.api.Settle(t.Context(), m); status.Code(err) != codes.InvalidArgument {
			t.Errorf("with both: %v", err)
		}
	}
	peek := `{"user":"ada","attributes":{"tokens":"1","udollars":"1"},"peek":true}`
	if got := s.post(t, "/v1/check", peek); got.status != 200 || !strings.Contains(got.body, `"remaining":7070`) ||
		!strings.Contains(got.body, `"remaining":620`) {
		t.Errorf("%+v", got)
	}
}

const reserved = "rules: [{name: tokens, key: [user], limits: [{name: hour, limit: 700, window: 1h, algorithm: " +
	"fixed_window}]}]"

// A check with hold_ms is a reservation, which is settled, cancelled and extended. What is
// refused says why, and changes nothing.
func TestReservations(t *testing.T) {
	s := newServer(t, reserved, allowRefunds)
	limits := `"key":"k","limits":[{"limit":5,"window":"1m","algorithm":"fixed_window"}]`
	for i, test := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"check", `{"user":"ada","cost":663,"id":"1","hold_ms":60000}`, 200, `"remaining":37`},
		{"check", `{"user":"ada","cost":663,"id":"1","hold_ms":60000}`, 200, `"repeated":true`},
		{"check", `{"user":"ada","cost":663,"id":"2","hold_ms":60000}`, 429, `"allowed":false`},
		{"extend", `{"user":"ada","id":"1","hold_ms":90000,"cost":700}`, 200, `{"state":"done","estimate":700}`},
		{"extend", `{"user":"ada","id":"1","hold_ms":90000,"cost":701}`, 429, `{"state":"denied"`},
		{"settle", `{"user":"ada","id":"1","actual":750}`, 200, `{"state":"done","estimate":700,"over":50}`},
		{"settle", `{"user":"ada","id":"1","actual":750}`, 200, `{"state":"repeated"}`},
		{"settle", `{"user":"ada","id":"1","actual":7}`, 409, `the id stands for 750 units for good`},
		{"cancel", `{"user":"ada","id":"1"}`, 409, `stands for 750`},
		{"extend", `{"user":"ada","id":"1","hold_ms":1000}`, 409, `stands for 750`},
		{"check", `{"user":"eve","cost":100,"id":"1","hold_ms":1000}`, 200, `"remaining":600`},
		{"cancel", `{"user":"eve","id":"1"}`, 200, `{"state":"done","estimate":100}`},
		{"check", `{"user":"eve","cost":0}`, 200, `"remaining":700`},
		{"settle", `{"user":"eve","id":"2","actual":9,"if_unknown":"ignore"}`, 200, `{"state":"unknown"}`},
		{"settle", `{"user":"eve","id":"2","actual":9,"if_unknown":"charge"}`, 200, `{"state":"charged"}`},
		{"check", `{"user":"eve","cost":0}`, 200, `"remaining":691`},
		{"extend", `{"user":"eve","id":"3","hold_ms":1000}`, 200, `{"state":"unknown"}`},
		{"check", `{` + limits + `,"cost":4,"id":"1","hold_ms":1000}`, 200, `"remaining":1`},
		{"settle", `{` + limits + `,"id":"1","actual":1}`, 200, `{"state":"done","estimate":4}`},

		{"settle", `{"user":"ada","actual":7}`, 400, "the request has no id: give that of the check"},
		{"settle", `{"user":"ada","id":"1"}`, 400, "does not say what was used: give actual"},
		{"settle", `{"user":"ada","id":"1","actual":-1}`, 400, "settled with -1: give 0 to 9007199254740991 units"},
		{"settle", `{"user":"ada","id":"1","actual":"x"}`, 400, "it must be a whole number of units"},
		{"settle", `{"user":"ada","id":"1","actual":1,"if_unknown":"die"}`, 400, `it must be \"charge\" or \"ignore\"`},
		{"settle", `{"user":"ada","id":"1","actual":1,"hold_ms":5}`, 400, `unknown field \"hold_ms\"`},
		{"settle", fmt.Sprintf(`{"user":"ada","id":%q,"actual":1}`, strings.Repeat("x", 65)), 400, "the id has 65 bytes"},
		{"cancel", `{"user":"ada","id":""}`, 400, "the id is empty"},
		{"extend", `{"user":"ada","id":"1"}`, 400, "extended by no time: give the request a hold"},
		{"check", `{"user":"ada","hold_ms":1000}`, 400, "is to be held and has no id"},
		{"check", `{"user":"ada","id":"1","hold_ms":0}`, 400, "hold_ms is 0; it must be 1 to 86400000"},
		{"check", `{"user":"ada","id":"1","hold_ms":86400001}`, 400, "hold_ms is 86400001"},
	} {
		if got := s.post(t, "/v1/"+test.path, test.body); got.status != test.status ||
			!strings.Contains(got.body, test.want) {
			t.Errorf("%d: %s %s: %d %s, want %d %s", i, test.path, test.body, got.status, got.body, test.status, test.want)
		}
	}
	if got := s.get(t, "/v1/check?user=bob&cost=10&id=1&hold_ms=5000"); got.status != 200 ||
		!strings.Contains(got.body, `"remaining":690`) {
		t.Errorf("%+v", got)
	}
	if got := s.get(t, "/v1/check?user=bob&id=1&hold_ms=x"); got.status != 400 ||
		!strings.Contains(got.body, "hold_ms is") {
		t.Errorf("%+v", got)
	}
	if n := s.node.Stats().Holds; n != 1 {
		t.Errorf("%d holds", n)
	}
	s.clock.set(limiter.TickOf(s.clock.read()) + 5*limiter.Second)
	if got := s.get(t, "/v1/check?user=bob&cost=0"); got.status != 200 || !strings.Contains(got.body, `"remaining":700`) {
		t.Errorf("after its end: %+v", got)
	}
}

// A raise beyond those that there may be is no lack of room: another attempt would not help. The
// reservation stands.
func TestRaisedTooOften(t *testing.T) {
	s := newServer(t, reserved, allowRefunds)
	if got := s.post(t, "/v1/check", `{"user":"ada","cost":1,"id":"1","hold_ms":60000}`); got.status != 200 {
		t.Fatalf("%+v", got)
	}
	for i := 2; i <= limiter.MaxHoldParts+1; i++ {
		got := s.post(t, "/v1/extend", fmt.Sprintf(`{"user":"ada","cost":%d,"id":"1","hold_ms":60000}`, i))
		if i <= limiter.MaxHoldParts && got.status != 200 || i > limiter.MaxHoldParts &&
			(got.status != 409 || !strings.Contains(got.body, "the estimate was raised too often: 63 times")) {
			t.Errorf("%d: %+v", i, got)
		}
	}
	if got := s.post(t, "/v1/settle", `{"user":"ada","id":"1","actual":7}`); got.status != 200 ||
		!strings.Contains(got.body, `"estimate":64`) {
		t.Errorf("%+v", got)
	}
}

// A node that knows no reservations says so.
func TestNoReservations(t *testing.T) {
	s := newServer(t, reserved, func(o *transport.Options) { o.Decider = struct{ transport.Decider }{o.Decider} })
	if got := s.post(t, "/v1/settle", `{"user":"ada","id":"1","actual":1}`); got.status != 400 ||
		!strings.Contains(got.body, "there are no reservations here") {
		t.Errorf("%+v", got)
	}
}

// Whoever may settle can take its charges back, and charge beyond a limit. So a server that
// allows no refunds allows no reservations, in whatever form they are asked for.
func TestReservationsNeedRefunds(t *testing.T) {
	s := newServer(t, reserved, nil)
	for _, test := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"check", `{"user":"ada","cost":663,"id":"1","hold_ms":60000}`, 403, "--allow-refunds"},
		{"check/batch", `{"checks":[{"user":"ada","cost":663,"id":"1","hold_ms":60000}]}`, 200,
			`"status":403,"detail":"receipts, refunds and reservations are not allowed here`},
		{"settle", `{"user":"ada","id":"1","actual":750}`, 403, "--allow-refunds"},
		{"cancel", `{"user":"ada","id":"1"}`, 403, "--allow-refunds"},
		{"extend", `{"user":"ada","id":"1","hold_ms":1000}`, 403, "--allow-refunds"},
		{"check", `{"user":"ada","cost":0}`, 200, `"remaining":700`},
	} {
		if got := s.post(t, "/v1/"+test.path, test.body); got.status != test.status ||
			!strings.Contains(got.body, test.want) {
			t.Errorf("%s %s: %d %s, want %d %s", test.path, test.body, got.status, got.body, test.status, test.want)
		}
	}
	if got := s.get(t, "/v1/check?user=ada&cost=10&id=1&hold_ms=5000"); got.status != 403 ||
		!strings.Contains(got.body, "--allow-refunds") {
		t.Errorf("%+v", got)
	}
}

// Units of a limit on concurrency are held by a check over HTTP until it is settled.
func TestConcurrency(t *testing.T) {
	s := newServer(t, "rules: [{name: r, key: [user], hold: 30s, limits: [{name: slots, limit: 2, algorithm: "+
		"concurrency}, {name: hour, limit: 9, window: 1h}]}]", allowRefunds)
	for i, test := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"check", `{"user":"ada"}`, 400, "give the request an id"},
		{"check", `{"user":"ada","id":"1"}`, 200, `"algorithm":"concurrency","limit":2,"remaining":1,"reset_after_ms":30000`},
		{"check", `{"user":"ada","id":"2","hold_ms":5000}`, 200, `"limit":2,"remaining":0`},
		{"check", `{"user":"ada","id":"3"}`, 429, `"retry_after_ms":5000`},
		{"settle", `{"user":"ada","id":"1","actual":1}`, 200, `{"state":"done","estimate":1}`},
		{"check", `{"user":"ada","id":"1"}`, 409, "the id is that of a reservation that is over"},
		{"check/batch", `{"checks":[{"user":"ada","id":"1"}]}`, 200, `"status":409`},
		{"check", `{"user":"ada","cost":0}`, 200, `"limit":2,"remaining":1`},
		{"check", `{"user":"ada","cost":0}`, 200, `"limit":9,"remaining":7`},
	} {
		got := s.post(t, "/v1/"+test.path, test.body)
		if got.status != test.status || !strings.Contains(got.body, test.want) {
			t.Errorf("%d: %s %s: %d %s, want %d %s", i, test.path, test.body, got.status, got.body, test.status, test.want)
		}
		if policy := got.header.Get("RateLimit-Policy"); test.path == "check" && policy != "" &&
			!strings.Contains(policy, `"r/slots";q=2, "r/hour";q=9;w=3600`) {
			t.Errorf("%d: the policy is %s", i, policy)
		}
	}
}

// Whoever gets a slot by a rule may settle it, by whichever call it checks. A caller that may only check is refused,
// and takes none. One by a rule in shadow is not refused, and takes none.
func TestWhoHoldsByARuleMaySettle(t *testing.T) {
	const slots = `rules: [{name: slots, key: [user], hold: 30s, limits: [{limit: 9, algorithm: concurrency}]}]`
	only := map[transport.Action]limiter.Scope{transport.ActionCheck: nil}
	both := map[transport.Action]limiter.Scope{transport.ActionCheck: nil, transport.ActionRefund: nil}
	for name, call := range map[string]func(t *testing.T, s *server, id string) (code int){
		"Check": func(t *testing.T, s *server, id string) int {
			_, err := s.api.Check(t.Context(), &weirv1.CheckRequest{User: "ada", Id: id})
			return int(status.Code(err))
		},
		"CheckBatch": func(t *testing.T, s *server, id string) int {
			m, err := s.api.CheckBatch(t.Context(), &weirv1.CheckBatchRequest{Checks: []*weirv1.CheckRequest{
				{User: "ada", Id: id},
			}})
			if err != nil {
				t.Fatal(err)
			}
			return int(m.GetResults()[0].GetError().GetCode())
		},
		"CheckStream": func(t *testing.T, s *server, id string) int {
			return streamed(t, s, &weirv1.CheckColumns{
				Keys: []byte("ada"), UserLengths: []uint32{3}, Ids: []byte(id), IdLengths: []uint32{uint32(len(id))},
			})
		},
		"POST check": func(t *testing.T, s *server, id string) int {
			got := s.post(t, "/v1/check", `{"user":"ada","id":"`+id+`"}`)
			return map[int]int{http.StatusOK: 0, http.StatusForbidden: int(codes.PermissionDenied)}[got.status]
		},
		"POST check/batch": func(t *testing.T, s *server, id string) int {
			got := s.post(t, "/v1/check/batch", `{"checks":[{"user":"ada","id":"`+id+`"}]}`)
			if strings.Contains(got.body, `"status":403`) {
				return int(codes.PermissionDenied)
			}
			return 0
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, slots, func(o *transport.Options) { o.Access = &borrower{may: only} })
			if got, n := call(t, s, "a"), s.node.Stats().Holds; got != int(codes.PermissionDenied) || n != 0 {
				t.Errorf("a caller that may only check: %v, and holds %d", codes.Code(got), n)
			}
			s = newServer(t, slots, func(o *transport.Options) { o.Access = &borrower{may: both} })
			if got, n := call(t, s, "a"), s.node.Stats().Holds; got != 0 || n != 1 {
				t.Errorf("a caller that may settle: %v, and holds %d", codes.Code(got), n)
			}
			s = newServer(t, strings.Replace(slots, "hold:", "shadow: true, hold:", 1), func(o *transport.Options) {
				o.Access = &borrower{may: only}
			})
			if got, n := call(t, s, "a"), s.node.Stats().Holds; got != 0 || n != 0 {
				t.Errorf("in shadow, a caller that may only check: %v, and holds %d", codes.Code(got), n)
			}
		})
	}
	s := newServer(t, slots, func(o *transport.Options) { o.Access = &borrower{may: only} })
	streamed(t, s, &weirv1.CheckColumns{
		Keys: []byte("adabob"), UserLengths: []uint32{3, 3}, Ids: []byte("a"), IdLengths: []uint32{0, 1},
	})
	if n := s.node.Stats().Holds; n != 0 {
		t.Errorf("a check with an id, behind one without, holds %d", n)
	}
}

// streamed sends a message on a stream of its own, and returns the code of the first error in the reply.
func streamed(t *testing.T, s *server, in *weirv1.CheckColumns) (code int) {
	t.Helper()
	stream, err := s.api.CheckStream(t.Context())
	if err == nil {
		err = stream.Send(in)
	}
	if err != nil {
		t.Fatal(err)
	}
	m, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if e := m.GetErrors(); len(e) > 0 {
		return int(e[0].GetCode())
	}
	return int(m.GetError().GetCode())
}
