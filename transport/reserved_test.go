package transport

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/frontend/overgrpc"
	"github.com/weirlimit/weir/internal/weirwire"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// reserving is a decider that keeps what it was asked of a reservation.
type reserving struct {
	stub
	asked  *limiter.Request
	actual int64
	ignore bool
	named  map[string]int64
}

func (*reserving) SealReceipt(*limiter.Request, *limiter.Decision) (r limiter.Receipt) { return r }

func (*reserving) Refund(context.Context, limiter.Request, limiter.Receipt) error { return nil }

func (d *reserving) Settle(_ context.Context, r limiter.Request, actual int64,
	opts ...limiter.SettleOption) (limiter.Amended, error) {
	how := limiter.Settlement(opts...)
	d.asked, d.actual, d.ignore, d.named = &r, actual, how.IgnoreUnknown, how.Actual
	return limiter.Amended{}, nil
}

func (d *reserving) Extend(_ context.Context, r limiter.Request) (limiter.Amended, error) {
	d.asked = &r
	return limiter.Amended{}, nil
}

// What was used of an attribute is a number that is said once: a null would be 0, which gives all back.
func TestActualOfAttributes(t *testing.T) {
	s := front{service: newService(Options{Decider: new(reserving), AllowRefunds: true})}
	for actual, want := range map[string]string{
		`{"tokens":null}`:         `actual of "tokens" is null`,
		`{"tokens":8,"tokens":7}`: `field "tokens" is given twice`,
		`{"tokens":8,"cents":0}`:  "",
	} {
		q, err := parseQuestion([]byte(`{"id":"1","actual":`+actual+`}`), s.settleFields())
		if err != nil && want == "" || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", actual, err, want)
		}
		if want == "" && (q.amend.named["tokens"] != 8 || len(q.amend.named) != 2) {
			t.Errorf("%s: %v", actual, q.amend.named)
		}
	}
}

// FuzzReservationJSON: whatever body comes to settle, cancel or extend a reservation, it is refused
// with an error that has a status, or means what encoding/json makes of it.
func FuzzReservationJSON(f *testing.F) {
	for _, s := range []string{
		`{"user":"ada","id":"1","actual":750}`, `{"path":"/a","id":"1","actual":0,"if_unknown":"ignore","id_ttl_ms":5}`,
		`{"id":"1","actual":-1,"if_unknown":"charge"}`, `{"id":"1","actual":1e3}`,
		`{"id":"1","actual":{"tokens":8,"udollars":0}}`, `{"id":"1","actual":{"tokens":-8}}`, `{"id":"1","actual":{}}`,
		`{"id":"1","actual":null}`,
		`{"id":"","actual":1}`,
		`{"user":"ada","id":"1"}`, `{"user":"ada","id":"1","hold_ms":90000,"cost":700}`, `{"id":"1","hold_ms":0}`,
		`{"id":"1","cost":null}`,
		`{"key":"k","limits":[{"limit":5,"window":"1m"}],"id":"1","actual":1}`, `{"id":"1","if_unknown":"die"}`, `{"Id":"1"}`,
	} {
		for call := range byte(3) {
			f.Add(call, []byte(s))
		}
	}
	f.Fuzz(func(t *testing.T, call byte, body []byte) {
		d := new(reserving)
		s := front{service: newService(Options{Decider: d, AllowRequestLimits: true, AllowRefunds: true})}
		fields, do := s.settleFields(), settle
		switch call % 3 {
		case 1:
			fields, do = s.cancelFields(), cancel
		case 2:
			fields, do = s.extendFields(), extend
		}
		var q *question
		var err error
		bytes := allocated(func() { q, err = parseQuestion(body, fields) })
		if bound := (weightOfByte+weightOfJSON)*len(body) + slack; bytes > bound {
			t.Fatalf("%d bytes were allocated for %d, more than %d", bytes, len(body), bound)
		}
		if err == nil {
			by := s.service.front.Anyone(nil)
			_, err = do(t.Context(), &by, q)
		}
		if err != nil {
			if !errors.Is(err, limiter.ErrInvalid) || d.asked != nil {
				t.Fatalf("%v wraps no ErrInvalid, or came after %+v", err, d.asked)
			}
			return
		}
		var o struct {
			User      string
			ID        string
			IDTTL     int64 `json:"id_ttl_ms"`
			Hold      int64 `json:"hold_ms"`
			Actual    any
			Cost      *int64
			IfUnknown string `json:"if_unknown"`
		}
		if err := json.Unmarshal(body, &o); err != nil {
			t.Fatalf("%q was read, but: %v", body, err)
		}
		cost := limiter.Cost{}
		if o.Cost != nil {
			cost = limiter.Units(*o.Cost)
		}
		r, ms := d.asked, time.Millisecond
		if r.User != o.User || r.ID != o.ID || r.Cost != cost || r.IDTTL != time.Duration(o.IDTTL)*ms ||
			r.Hold != time.Duration(o.Hold)*ms {
			t.Fatalf("%q became %+v", body, r)
		}
		var actual struct {
			Actual *int64
			Named  map[string]int64
		}
		if _, named := o.Actual.(map[string]any); !named {
			_ = json.Unmarshal(body, &actual)
		} else if text, err := json.Marshal(o.Actual); err == nil {
			_ = json.Unmarshal(text, &actual.Named)
			actual.Actual = new(int64)
		}
		if call%3 == 0 && (actual.Actual == nil || d.actual != *actual.Actual || !maps.Equal(d.named, actual.Named) ||
			d.ignore != (o.IfUnknown == "ignore")) ||
			call%3 == 1 && (d.actual != 0 || !d.ignore) {
			t.Fatalf("%q settles with %d, ignores unknown ids: %t", body, d.actual, d.ignore)
		}
	})
}

// FuzzReservation: of the same bytes as a message of each of the three calls, each is refused as invalid,
// or asks for what it says.
func FuzzReservation(f *testing.F) {
	for _, m := range []proto.Message{
		&weirv1.SettleRequest{}, &weirv1.SettleRequest{User: "u", Id: "1", IdTtlUs: 5, Actual: proto.Int64(-4), IfUnknown: 1},
		&weirv1.SettleRequest{Path: "/a", Attributes: map[string]string{"a": "b"}, Id: "1", Actual: proto.Int64(4),
			IfUnknown: 7},
		&weirv1.CancelRequest{User: "u", Id: "1", Limits: []*weirv1.Limit{{Limit: 3, WindowUs: 60e6},
			{Limit: 3, WindowUs: -1}}},
		&weirv1.ExtendRequest{User: "u", Id: "1", HoldUs: 5, Cost: proto.Int64(9)},
		&weirv1.ExtendRequest{Id: "1", HoldUs: -1 << 63},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		d := new(reserving)
		s := newService(Options{Decider: d, AllowRequestLimits: true, AllowRefunds: true})
		var settle weirv1.SettleRequest
		var cancel weirv1.CancelRequest
		var extend weirv1.ExtendRequest
		asks := func(m aboutReservation, err error) bool {
			if err != nil && (overgrpc.Code(err) != codes.InvalidArgument || d.asked != nil) {
				t.Errorf("%v: %v", m, err)
			} else if err == nil && (d.asked.User != m.GetUser() || d.asked.IDTTL != weirwire.IDTime(m.GetIdTtlUs()) ||
				len(d.asked.Limits) != len(m.GetLimits())) {
				t.Errorf("%v became %+v", m, d.asked)
			}
			return err == nil && !t.Failed()
		}
		if proto.Unmarshal(b, &settle) == nil {
			if _, err := s.reservation(t.Context(), &settle); asks(&settle, err) &&
				(d.asked.ID != settle.GetId() || settle.Actual == nil || d.actual != settle.GetActual() ||
					d.ignore != (settle.GetIfUnknown() == weirv1.IfUnknown_IF_UNKNOWN_IGNORE)) {
				t.Errorf("%v settles %+v with %d, %t", &settle, d.asked, d.actual, d.ignore)
			}
		}
		if d.asked = nil; proto.Unmarshal(b, &cancel) == nil {
			if _, err := s.reservation(t.Context(), &cancel); asks(&cancel, err) &&
				(d.asked.ID != cancel.GetId() || d.actual != 0 || !d.ignore) {
				t.Errorf("%v settles %+v with %d, %t", &cancel, d.asked, d.actual, d.ignore)
			}
		}
		if d.asked = nil; proto.Unmarshal(b, &extend) == nil {
			if _, err := s.reservation(t.Context(), &extend); asks(&extend, err) &&
				(d.asked.ID != extend.GetId() || d.asked.Hold != weirwire.IDTime(extend.GetHoldUs()) ||
					d.asked.Cost.Given() != (extend.Cost != nil)) {
				t.Errorf("%v extends %+v", &extend, d.asked)
			}
		}
	})
}
