package httplimit_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/middleware/httplimit"
)

// TestLongParts refuses parts that are too long, from any source, even if the limiter
// fails open.
func TestLongParts(t *testing.T) {
	n := node(t, nil, `  - {name: all, key: [rule], limits: [100/minute]}`)
	long := "/" + strings.Repeat("a", limiter.MaxFieldBytes)
	named := httplimit.Path(func(*http.Request) string { return long })
	user := httplimit.User(httplimit.FromHeader("X-User"))
	for name, c := range map[string]struct {
		path string
		user string
		opt  httplimit.Option
		want int
	}{
		"path":                        {path: long, opt: user, want: http.StatusRequestURITooLong},
		"path that is encoded":        {path: "/%61%2Fb" + long, opt: user, want: http.StatusRequestURITooLong},
		"path of an option":           {path: "/", opt: named, want: http.StatusRequestURITooLong},
		"user":                        {path: "/", user: long, opt: user, want: http.StatusBadRequest},
		"path of the greatest length": {path: long[:limiter.MaxFieldBytes], opt: user, want: http.StatusOK},
	} {
		h := limited(t, n, c.opt, httplimit.FailOpen())
		if w := get(h, c.path, header("X-User", c.user)); w.Code != c.want {
			t.Errorf("%s: status %d, want %d: %s", name, w.Code, c.want, w.Body)
		}
	}
}
