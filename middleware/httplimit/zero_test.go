package httplimit_test

import (
	"net/http"
	"testing"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/middleware/httplimit"
)

// A request with cost 0, from any source, is answered and charges nothing: neither the
// limit, nor a block where denials begin one.
func TestCostZeroOnlyPeeks(t *testing.T) {
	const rules = `  - {name: all, key: [ip], limits: [{limit: 2, window: hour, count_rejected: all, block: 1h}]}`
	free := func(*http.Request) limiter.Cost { return limiter.Units(0) }
	for name, c := range map[string]struct {
		rules string
		opts  []httplimit.Option
	}{
		"by method": {rules, []httplimit.Option{httplimit.CostByMethod(map[string]int64{"HEAD": 0})}},
		"by a function": {rules, []httplimit.Option{httplimit.CostFunc(func(r *http.Request) limiter.Cost {
			if r.Method == http.MethodHead {
				return free(r)
			}
			return limiter.Cost{}
		})}},
		"by the rule": {`  - {name: all, key: [ip], cost: {default: 1, HEAD: 0}, limits: [{limit: 2, window: hour, ` +
			`count_rejected: all, block: 1h}]}`, nil},
	} {
		h := limited(t, node(t, nil, c.rules), c.opts...)
		for used := range 3 {
			want := http.StatusOK
			if used == 2 { // a peek tells what a check would
				want = http.StatusTooManyRequests
			}
			for range 20 {
				if w := get(h, "/", method(http.MethodHead)); w.Code != want {
					t.Fatalf("%s: a cost of 0 after %d of 2 got %d, want %d", name, used, w.Code, want)
				}
			}
			if w := get(h, "/"); used < 2 && w.Code != http.StatusOK {
				t.Errorf("%s: request %d of 2 got %d", name, used+1, w.Code)
			}
		}
	}
}
