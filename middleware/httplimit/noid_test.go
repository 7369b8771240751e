package httplimit_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/middleware/httplimit"
)

// A rule with "any" takes no ids. A middleware that gives ids to its requests is badly configured, which its callers
// are not told: the requests are treated as while the decider fails, and that is logged once.
func TestARuleThatTakesNoIDs(t *testing.T) {
	n, err := weir.Open(t.Context(), weir.Config{Rules: []byte(`
version: 1
quotas: [{name: own, key: [ip], limits: [10/day]}, {name: pool, key: [rule], limits: [90/day]}]
rules: [{name: either, quotas: [{any: [own, pool]}]}]
`)})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if _, err := n.Check(t.Context(), limiter.Request{IP: "192.0.2.1", ID: "1"}); !errors.Is(err, limiter.ErrNoID) ||
		!errors.Is(err, limiter.ErrInvalid) {
		t.Fatal(err)
	}
	settle := httplimit.Settle(time.Minute, func(*http.Request, *httplimit.Response) limiter.Cost {
		return limiter.Units(1)
	})
	id := httplimit.ID(func(*http.Request) string { return "1" })
	for name, test := range map[string]struct {
		options []httplimit.Option
		want    int
	}{
		"Settle": {[]httplimit.Option{settle}, 503}, "ID": {[]httplimit.Option{id}, 503},
		"Settle, open": {[]httplimit.Option{settle, httplimit.FailOpen()}, 200},
		"ID, open":     {[]httplimit.Option{id, httplimit.FailOpen()}, 200},
		"neither":      {nil, 200},
		"OnError": {[]httplimit.Option{settle, httplimit.OnError(func(w http.ResponseWriter, _ *http.Request,
			err error) bool {
			if errors.Is(err, limiter.ErrInvalid) {
				t.Errorf("%v blames the request", err)
			}
			w.WriteHeader(http.StatusTeapot)
			return false
		})}, 418},
	} {
		var log bytes.Buffer
		before := slog.Default()
		slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
		h := limited(t, n, test.options...)
		for range 3 {
			if got := get(h, "/"); got.Code != test.want {
				t.Errorf("%s: status %d, want %d", name, got.Code, test.want)
			}
		}
		slog.SetDefault(before)
		lines := strings.Count(log.String(), "a rule takes no ids")
		if want := min(len(test.options), 1); lines != want ||
			want > 0 && !strings.Contains(log.String(), "leave out the id") {
			t.Errorf("%s: %d lines, want %d:\n%s", name, lines, want, log.String())
		}
	}
	// A request that is not valid in another way is still its sender's doing.
	bad := limited(t, refusing{limiter.ErrInvalid}, httplimit.FailOpen())
	if got := get(bad, "/"); got.Code != http.StatusBadRequest {
		t.Errorf("status %d", got.Code)
	}
}

type refusing struct{ err error }

func (f refusing) CheckInto(context.Context, *limiter.Request, *limiter.Decision) error { return f.err }
