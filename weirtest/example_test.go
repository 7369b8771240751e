package weirtest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/weirlimit/weir/middleware/httplimit"
	"github.com/weirlimit/weir/weirtest"
)

// A handler of a program behind a middleware: after the wait that the denial names, and
// not a second earlier, the request passes. In a test, t is its *testing.T.
func Example() {
	t := new(test)
	defer t.end()
	node := weirtest.New(t, `{version: 1, rules: [{name: all, limits: [{limit: 1, window: minute, algorithm: gcra}]}]}`)
	limited, err := httplimit.New(node)
	if err != nil {
		t.Fatalf("%v", err)
	}
	handler := limited(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "a town") }))
	get := func() {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/towns", http.NoBody))
		fmt.Printf("%d %q\n", w.Code, w.Header().Get("Retry-After"))
	}

	get()
	get()
	node.Advance(59 * time.Second)
	get()
	node.Advance(time.Second)
	get()
	// Output:
	// 200 ""
	// 429 "60"
	// 429 "1"
	// 200 ""
}

// test stands for the *testing.T of a test.
type test struct{ cleanups []func() }

func (*test) Helper()                           {}
func (*test) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (t *test) Cleanup(f func())                { t.cleanups = append(t.cleanups, f) }

func (t *test) end() {
	for _, f := range t.cleanups {
		f()
	}
}
