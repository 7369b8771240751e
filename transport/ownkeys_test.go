package transport_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
	"github.com/weirlimit/weir/transport"
)

// Limits of a request name their keys, and a rule whose limits apply too, over gRPC and
// HTTP alike; a reset takes the same.
func TestKeysOfLimitsOverTheWire(t *testing.T) {
	s := newServer(t, "version: 1\nrules: [{name: all, match: {path: ^/never}, key: [rule], limits: [3/hour]}]\n", nil)
	const minute = 60_000_000
	keys := func(m *weirv1.CheckResponse) (out []string) {
		for _, l := range m.GetLimits() {
			out = append(out, fmt.Sprint(l.GetRule(), " ", l.GetKey(), " ", l.GetRemaining()))
		}
		return out
	}
	limits := []*weirv1.Limit{
		{Limit: 5, WindowUs: minute, Name: "u", Key: []string{"user"}},
		{Limit: 9, WindowUs: minute, Name: "p", Key: []string{"attr:plan", "ip"}}, {Limit: 7, WindowUs: minute},
	}
	m, err := s.api.Check(t.Context(), &weirv1.CheckRequest{
		Path: "/p", User: "ada", Ip: "192.0.2.1", Attributes: map[string]string{"plan": "gold"}, Rule: "all", Limits: limits,
	})
	if want := "[all all:hour 2 request ada:u 4 request gold:192.0.2.1:p 8 request /p:ada:minute 6]"; err != nil ||
		fmt.Sprint(keys(m)) != want {
		t.Errorf("%v, %v, want %s", keys(m), err, want)
	}
	const fields = `"path":"/p","user":"ada","ip":"192.0.2.1","attributes":{"plan":"gold"},"rule":"all",
		"limits":[{"limit":5,"window":"1m","name":"u","key":["user"]},{"limit":9,"window":"1m","name":"p","key":["attr:plan","ip"]},{"limit":7,"window":"1m"}]`
	var a limiter.Answer
	if got := s.post(t, "/v1/check", "{"+fields+"}"); json.Unmarshal([]byte(got.body), &a) != nil || got.status != 200 ||
		len(a.Limits) != 4 ||
		a.Limits[0].Remaining != 1 || a.Limits[1].Remaining != 3 || a.Limits[1].Key != "ada:u" ||
		a.Limits[2].Key != "gold:192.0.2.1:p" || a.Limits[3].Remaining != 5 {
		t.Errorf("%+v", got)
	}
	if got := s.post(t, "/v1/reset", "{"+fields+"}"); got.body != "{\"counters\":4}\n" {
		t.Errorf("%+v", got)
	}
	for body, want := range map[string]string{
		`{"limits":[{"limit":1,"window":"1m","key":["usr"]}]}`:                               `unknown part of a key \"usr\"`,
		`{"limits":[{"limit":1,"window":"1m","key":["a","b","c","d","e","f","g","h","i"]}]}`: "more than 8 parts of its key",
		`{"limits":[{"limit":1,"window":"1m","key":"user"}]}`: "key must be a list of " +
			"texts, not text",
		`{"limits":[{"limit":1,"window":"1m","key":[7]}]}`: "key must be a list of " +
			"texts, not number",
	} {
		if got := s.post(t, "/v1/check", body); got.status != 400 || !strings.Contains(got.body, want) {
			t.Errorf("%s: %+v", body, got)
		}
	}
	many := make([]string, 129)
	_, err = s.api.Check(t.Context(),
		&weirv1.CheckRequest{Limits: []*weirv1.Limit{{Limit: 1, WindowUs: minute, Key: many}}})
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "129 parts of keys") {
		t.Error(err)
	}
	_, err = s.api.Check(t.Context(),
		&weirv1.CheckRequest{Limits: []*weirv1.Limit{{Limit: 1, WindowUs: minute, Key: many[:9]}}})
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "has 9 parts") {
		t.Error(err)
	}
	shut := newServer(t, "", func(o *transport.Options) { o.AllowRequestLimits = false })
	if _, err := shut.api.Check(t.Context(),
		&weirv1.CheckRequest{Limits: limits}); status.Code(err) != codes.PermissionDenied {
		t.Error(err)
	}
}
