package transport

import (
	"encoding/json"
	"errors"
	"maps"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// FuzzCheckJSON: whatever body comes, it is refused with an error that has a
// status, or means what encoding/json makes of it.
func FuzzCheckJSON(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"user":"ada","path":"/towns","cost":3,"peek":true}`, `{"attributes":{"plan":"free"},"group":"g","ip":"::1"}`,
		`{"limits":[{"limit":5,"window":"1m","algorithm":"gcra","burst":9,"weight":0.25,"block":"3s"}]}`,
		`{"usr":1}`, `{"user":"a","user":"b"}`, `{"cost":1e3}`, `[{}]`, `{"user":"\ud800"}`,
		`{"id":"7","id_ttl_ms":5,"hold_ms":9}`, `{"id":"7","hold_ms":86400001}`, `{"checks":[{}]}`, ``, `{"a":`, `{} {}`,
	} {
		f.Add([]byte(s))
	}
	s := front{service: newService(Options{Decider: noDecider{}, AllowRequestLimits: true})}
	f.Fuzz(func(t *testing.T, body []byte) {
		_, _ = parseChecks(body)
		var q *question
		var err error
		bytes := allocated(func() { q, err = parseQuestion(body, s.checkFields()) })
		if bound := (weightOfByte+weightOfJSON)*len(body) + slack; bytes > bound {
			t.Fatalf("%d bytes were allocated for %d, more than %d", bytes, len(body), bound)
		}
		if err != nil {
			if !errors.Is(err, limiter.ErrInvalid) {
				t.Fatalf("%v wraps no ErrInvalid", err)
			}
			return
		}
		var o struct {
			Path, User, IP, Group, Method, Rule string
			Attributes                          map[string]string
			Limits                              []struct{ Limit int64 }
			Cost                                *int64
			Peek                                bool
			ID                                  string
			Hold                                int64 `json:"hold_ms"`
		}
		if err := json.Unmarshal(body, &o); err != nil {
			t.Fatalf("%q was read, but: %v", body, err)
		}
		r := q.request
		if r.Path != o.Path || r.User != o.User || r.IP != o.IP || r.Group != o.Group || r.Method != o.Method ||
			r.Rule != o.Rule ||
			!maps.Equal(r.Attributes, o.Attributes) || q.peek != o.Peek || r.ID != o.ID ||
			r.Hold != time.Duration(o.Hold)*time.Millisecond || len(r.Limits) != len(o.Limits) ||
			r.Cost.Given() != (o.Cost != nil) {
			t.Fatalf("%q became %+v", body, q)
		}
		for i, l := range r.Limits {
			if int64(l.Limit()) != o.Limits[i].Limit {
				t.Fatalf("%q: limit %d is %d", body, i, l.Limit())
			}
		}
	})
}

// FuzzQuery: parameters are either refused, or read as net/url reads them.
func FuzzQuery(f *testing.F) {
	for _, s := range []string{
		"", "path=/towns&user=ada&cost=3&peek=true", "attr.plan=free&attr.x=", "usr=1", "user=a&user=b", "cost=1e3", "a;b",
		"%zz", "user=%00%ff", "attr.=1", "id=7&id_ttl_ms=5", "id=", "id=7&hold_ms=5",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		var q *question
		var err error
		bytes := allocated(func() { q, err = parseQuery(raw) })
		if bound := 256*len(raw) + slack; bytes > bound { // addresses are short, see maxHeaderBytes
			t.Fatalf("%d bytes were allocated for %d, more than %d", bytes, len(raw), bound)
		}
		if err != nil {
			if !errors.Is(err, limiter.ErrInvalid) {
				t.Fatalf("%v wraps no ErrInvalid", err)
			}
			return
		}
		v, err := url.ParseQuery(raw)
		if err != nil {
			t.Fatalf("%q was read, but: %v", raw, err)
		}
		r := q.request
		back := url.Values{}
		for name, value := range map[string]string{"path": r.Path, "user": r.User, "ip": r.IP, "group": r.Group,
			"method": r.Method, "rule": r.Rule} {
			if v.Has(name) {
				back.Set(name, value)
			}
		}
		for name, value := range r.Attributes {
			back.Set("attr."+name, value)
		}
		if v.Has("id") {
			back.Set("id", r.ID)
		}
		for name, value := range map[string]time.Duration{"id_ttl_ms": r.IDTTL, "hold_ms": r.Hold} {
			if !v.Has(name) {
				continue
			}
			back.Set(name, v.Get(name))
			if ms, err := strconv.ParseInt(v.Get(name), 10, 64); err != nil || value != time.Duration(ms)*time.Millisecond {
				t.Fatalf("%q: %s became %v", raw, name, value)
			}
		}
		if v.Has("peek") {
			back.Set("peek", strconv.FormatBool(q.peek))
		}
		if r.Cost.Given() != v.Has("cost") {
			t.Fatalf("%q became the cost %+v", raw, r.Cost)
		}
		v.Del("cost")
		if back.Encode() != v.Encode() {
			t.Fatalf("%q became %+v", raw, q)
		}
	})
}
