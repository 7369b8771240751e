package transport_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/transport"
)

// hall is a directory of two members.
type hall struct {
	forgot []string
	bad    error // of a reload
}

func (*hall) Members() []transport.Member {
	return []transport.Member{
		{Name: "a", Address: "h:1", Instance: "01", State: "active", Share: 1, RulesHash: "0a",
			Self: &transport.MemberSelf{Keys: 3}},
		{Name: "b", Address: "h:2", Instance: "02", State: "dead", RulesHash: "0a"},
	}
}

func (h *hall) Forget(name string) error {
	if name != "b" {
		return fmt.Errorf("%w: no such member", limiter.ErrInvalid)
	}
	h.forgot = append(h.forgot, name)
	return nil
}

func (h *hall) Expel(name string) error   { return h.Forget(name) }
func (h *hall) Readmit(name string) error { return h.Forget(name) }

// Members and top lists have the JSON that openapi.yaml describes. Only requests from
// this machine can forget a member.
func TestDirectory(t *testing.T) {
	h := &hall{}
	s := serveApart(t, transport.NewAdmin(transport.AdminOptions{Directory: h,
		Top: func(_ string, n int) (hottest, denied []transport.TopKey) {
			lent := transport.Lent{Holders: 2, Units: 40, Rate: 9, Until: time.Unix(0, 0).UTC()}
			return []transport.TopKey{{Key: "/:ada", Count: uint64(n), Error: 1}}, []transport.TopKey{{Key: "/:bo", Lent: lent}}
		}, Reload: func(context.Context) (transport.Reloaded, error) {
			if h.bad != nil {
				return transport.Reloaded{}, h.bad
			}
			return transport.Reloaded{RulesHash: "00aa", Rules: 2,
				Warnings: []transport.RuleWarning{{Line: 1, Column: 2, Text: "odd", Instead: "even"}}}, nil
		}}))
	file := loadSpec(t, s)
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/v1/members", "", 200, `"name":"b"`},
		{"GET", "/v1/top", "", 200, `{"hottest":[{"key":"/:ada","count":20,"error":1}],"denied":[{"key":"/:bo",` +
			`"count":0,"error":0,"lent":{"holders":2,"units":40,"rate":9,"until":"1970-01-01T00:00:00Z"}}]}`},
		{"GET", "/v1/top?n=7", "", 200, `"count":7`},
		{"GET", "/v1/top?n=0", "", 400, "n must be 1 to 1000"},
		{"POST", "/v1/reload", "", 200,
			`{"rules_hash":"00aa","rules":2,"warnings":[{"line":1,"column":2,"text":"odd","instead":"even"}]}`},
		{"POST", "/v1/members/forget", `{"name":"b"}`, 200, `"name":"a"`},
		{"POST", "/v1/members/forget", `{"name":"c"}`, 400, "no such member"},
		{"POST", "/v1/members/forget", `{"nam":"b"}`, 400, "the body must be"},
		{"POST", "/v1/members/forget", `{}`, 400, "the body must be"},
		{"POST", "/v1/members/forget", `{"name":"b"} {}`, 400, "the body must be"},
		{"POST", "/v1/members/forget", `{"name":"a","name":"b"}`, 400, "the body must be"},
	} {
		got := s.do(t, c.method, c.path, "application/json", c.body)
		file.holdsReply(t, c.method, c.path, got)
		if got.status != c.status || !strings.Contains(got.body, c.want) {
			t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, got.status, got.body)
		}
	}
	h.bad = fmt.Errorf("%w: rules.yaml:3:5: odd", limiter.ErrInvalid)
	if got := s.do(t, "POST", "/v1/reload", "application/json", ""); got.status != 400 ||
		!strings.Contains(got.body, "the old rules stay in force: invalid: rules.yaml:3:5") {
		t.Errorf("%+v", got)
	}
	if len(h.forgot) != 1 {
		t.Errorf("forgotten: %v", h.forgot)
	}
}
