package httplimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/middleware/httplimit"
)

// slow is a decider that answers after three seconds, or when the context ends.
type slow struct{}

func (slow) CheckInto(ctx context.Context, _ *limiter.Request, d *limiter.Decision) error {
	d.Clear()
	d.Allowed = true
	select {
	case <-time.After(3 * time.Second):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A check takes no longer than the client of Connect waits. It chooses that time, so it does
// not pass uncounted where others do while the decider fails.
func TestConnectTimeout(t *testing.T) {
	for _, x := range []struct {
		fields []string
		status int
		took   time.Duration
	}{
		{[]string{"500"}, 503, 500 * time.Millisecond},
		{[]string{"0"}, 503, 0},
		{[]string{"3500"}, 200, 3 * time.Second},
		{[]string{"9999999999"}, 200, 3 * time.Second},
		{nil, 200, 3 * time.Second},
		{[]string{"00000000001"}, 200, 3 * time.Second}, // that and the rest are not valid
		{[]string{"-1"}, 200, 3 * time.Second},
		{[]string{"1s"}, 200, 3 * time.Second},
		{[]string{"1", "1"}, 200, 3 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			limit, err := httplimit.New(slow{}, httplimit.FailOpen())
			if err != nil {
				t.Fatal(err)
			}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/towns.v1.Towns/Get", http.NoBody)
			r.Header["Connect-Timeout-Ms"] = x.fields
			w, begin := httptest.NewRecorder(), time.Now()
			limit(http.HandlerFunc(func(_ http.ResponseWriter, got *http.Request) {
				if got != r {
					t.Error("the service got another request")
				}
			})).ServeHTTP(w, r)
			if w.Code != x.status || time.Since(begin) != x.took {
				t.Errorf("%q: status %d after %v", x.fields, w.Code, time.Since(begin))
			}
		})
	}
}
