package httplimit_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/middleware/httplimit"
)

const budget = "  - {name: budget, cost: 40, key: [ip], limits: [{limit: 100, window: 1h}]}\n"

// used settles with what the response says of itself; nothing after a panic or a hang-up, and
// leaves the estimate if it says nothing.
func used(_ *http.Request, w *httplimit.Response) limiter.Cost {
	if w.Panicked || w.Err != nil {
		return limiter.Units(0)
	}
	n, err := strconv.ParseInt(w.Header.Get("X-Used"), 10, 64)
	if err != nil {
		return limiter.Cost{}
	}
	return limiter.Units(n)
}

// left returns what remains for 203.0.113.9.
func left(t *testing.T, n *weir.Node) uint64 {
	t.Helper()
	d, err := n.Peek(t.Context(), limiter.Request{Path: "/", IP: "203.0.113.9"})
	if err != nil {
		t.Fatal(err)
	}
	return d.Limit(0).Remaining
}

// A request costs its estimate while it is answered, and then what its response says, however
// it ends.
func TestSettle(t *testing.T) {
	c := newClock()
	n := node(t, c, budget)
	var settled []limiter.Amended
	var seen []httplimit.Response
	l := limit(t, n, httplimit.Settle(time.Minute, func(r *http.Request, w *httplimit.Response) limiter.Cost {
		seen = append(seen, *w)
		return used(r, w)
	}), httplimit.OnSettled(func(_ *http.Request, a limiter.Amended, err error) {
		if err != nil {
			t.Error(err)
		}
		settled = append(settled, a)
	}))
	var answer func(w http.ResponseWriter, r *http.Request)
	h := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(w, r) }))
	says := func(use string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) {
			if got := left(t, n); got > 60 {
				t.Errorf("%d are left while a request is answered", got)
			}
			w.Header().Set("X-Used", use)
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, "done")
		}
	}
	ask := func(want uint64, edits ...edit) {
		t.Helper()
		defer func() {
			_ = recover()
			if got := left(t, n); got != want {
				t.Errorf("%d are left, want %d", got, want)
			}
		}()
		if got := get(h, "/", edits...); got.Code == http.StatusTooManyRequests {
			t.Error("denied")
		}
	}
	answer = says("10")
	ask(90)
	if w := seen[0]; w.Status != http.StatusCreated || w.Bytes != 4 || w.Err != nil || w.Panicked {
		t.Errorf("%+v", w)
	}
	answer = says("55")
	ask(35)
	if a := settled[1]; a.State != limiter.AmendDone || a.Estimate != 40 || a.Over != 0 {
		t.Errorf("%+v", a)
	}
	if got := get(h, "/"); got.Code != http.StatusTooManyRequests || len(settled) != 2 {
		t.Errorf("with 35 left: %d, %d settlements", got.Code, len(settled))
	}
	c.forward(time.Hour)
	answer = func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	ask(100)
	if w := seen[2]; w.Status != 0 || !w.Panicked {
		t.Errorf("%+v", w)
	}
	ask(100, func(r *http.Request) {
		ctx, hangUp := context.WithCancel(r.Context())
		*r = *r.WithContext(ctx)
		answer = func(http.ResponseWriter, *http.Request) { hangUp() }
	})
	if w := seen[3]; !errors.Is(w.Err, context.Canceled) || w.Status != http.StatusOK {
		t.Errorf("%+v", w)
	}
	answer = func(http.ResponseWriter, *http.Request) {} // says nothing
	ask(60)
	c.forward(time.Minute)
	if got := left(t, n); got != 100 {
		t.Errorf("after the hold %d are left", got)
	}
	if len(settled) != 4 || n.Stats().Holds != 0 {
		t.Errorf("%d settlements, %d holds", len(settled), n.Stats().Holds)
	}
}

// What reserved nothing is not settled: a request that is skipped, that no rule matches, or that
// passes since the decider fails. Check charges for good.
func TestSettleOnlyWhatIsReserved(t *testing.T) {
	n := node(t, nil, "  - {name: budget, match: {path: ^/budget}, cost: 40, key: [ip], limits: [{limit: 100, window: "+
		"1h}]}\n")
	none := httplimit.Settle(time.Minute, func(*http.Request, *httplimit.Response) limiter.Cost {
		t.Error("settled")
		return limiter.Units(0)
	})
	skip := httplimit.Skip(func(r *http.Request) bool { return r.URL.Path == "/skip" })
	for path, h := range map[string]http.Handler{
		"/skip": limited(t, n, none, skip), "/other": limited(t, n, none),
		"/budget": limited(t, failing{node(t, nil, budget)}, none, httplimit.FailOpen()),
	} {
		if got := get(h, path); got.Code != http.StatusOK {
			t.Errorf("%s: %d", path, got.Code)
		}
	}
	w := httptest.NewRecorder()
	if l := limit(t, n, none); !l.Check(w, httptest.NewRequest(http.MethodGet, "/budget", http.NoBody)) ||
		n.Stats().Holds != 0 {
		t.Errorf("%d, %d holds", w.Code, n.Stats().Holds)
	}
}

// failing has no answer, whatever it decides.
type failing struct{ *weir.Node }

func (f failing) CheckInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error {
	_ = f.Node.CheckInto(ctx, r, d)
	return errors.New("it is away")
}

// hanging decides while its caller hangs up.
type hanging struct {
	*weir.Node
	hangUp func()
}

func (h hanging) CheckInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error {
	_ = h.Node.CheckInto(ctx, r, d)
	h.hangUp()
	return ctx.Err()
}

// A client that hangs up while its request is checked, or whose time ends then, keeps no estimate.
func TestHangUpDuringTheCheck(t *testing.T) {
	n := node(t, nil, budget)
	none := httplimit.Settle(time.Minute, func(*http.Request, *httplimit.Response) limiter.Cost {
		t.Error("settled")
		return limiter.Units(0)
	})
	for _, of := range []string{"the client", "its time"} {
		ctx, hangUp := context.WithCancel(t.Context())
		var edits []edit
		if of == "the client" {
			edits = append(edits, func(r *http.Request) { *r = *r.WithContext(ctx) })
		} else {
			hangUp = func() {}
			edits = append(edits, func(r *http.Request) {
				r.Header.Set("Connect-Protocol-Version", "1")
				r.Header.Set("Connect-Timeout-Ms", "0")
			})
		}
		h := limited(t, hanging{n, hangUp}, none, httplimit.FailOpen())
		if got := get(h, "/", edits...); got.Code == http.StatusOK {
			t.Errorf("%s: %d", of, got.Code)
		}
		if got := left(t, n); got != 100 || n.Stats().Holds != 0 {
			t.Errorf("%s hangs up: %d are left, %d holds", of, got, n.Stats().Holds)
		}
	}
}

// unanswered reserves, and its own time ends before it has the answer.
type unanswered struct{ *weir.Node }

func (s unanswered) CheckInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error {
	_ = s.Node.CheckInto(ctx, r, d)
	return errors.New("a node did not answer")
}

// A request whose check was reserved, and not answered in the decider's time, keeps no estimate, also if it passes.
func TestUnansweredCheck(t *testing.T) {
	n := node(t, nil, budget)
	none := httplimit.Settle(time.Minute, func(*http.Request, *httplimit.Response) limiter.Cost {
		t.Error("settled")
		return limiter.Units(0)
	})
	for want, options := range map[int][]httplimit.Option{http.StatusServiceUnavailable: {none},
		http.StatusOK: {none, httplimit.FailOpen()}} {
		synctest.Test(t, func(t *testing.T) {
			if got := get(limited(t, unanswered{n}, options...), "/"); got.Code != want {
				t.Errorf("status %d, want %d", got.Code, want)
			}
			synctest.Wait()
			if got := left(t, n); got != 100 || n.Stats().Holds != 0 {
				t.Errorf("status %d: %d are left, %d holds", want, got, n.Stats().Holds)
			}
		})
	}
}

// Numbers by attribute settle each rule with its own; an empty map cancels, nil leaves what is reserved, and so does
// a panic.
func TestSettleBy(t *testing.T) {
	const both = "  - {name: money, continue: true, key: [ip], limits: [{limit: 1000, window: 1h}], " +
		"cost: {from: \"attr:udollars\"}}\n" +
		"  - {name: tokens, key: [ip], limits: [{limit: 100, window: 1h}], cost: {from: \"attr:tokens\"}}\n"
	for _, test := range []struct {
		named  map[string]int64
		panics bool
		left   uint64 // of the money
		holds  int64
	}{
		{map[string]int64{"tokens": 7, "udollars": 30}, false, 970, 0},
		{map[string]int64{"tokens": 7}, false, 100, 2}, // refused
		{map[string]int64{}, false, 1000, 0},
		{nil, false, 100, 2},
		{nil, true, 100, 2},
	} {
		n := node(t, newClock(), both)
		var failed error
		l := limit(t, n, httplimit.Attribute("tokens", func(*http.Request) string { return "40" }),
			httplimit.Attribute("udollars", func(*http.Request) string { return "900" }),
			httplimit.SettleBy(time.Minute, func(*http.Request, *httplimit.Response) map[string]int64 {
				if test.panics {
					panic("a test")
				}
				return test.named
			}), httplimit.OnSettled(func(_ *http.Request, a limiter.Amended, err error) {
				if failed = err; err == nil && a.State != limiter.AmendDone {
					t.Errorf("%+v", a)
				}
			}))
		func() {
			defer func() { _ = recover() }()
			get(l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})), "/")
		}()
		if got := left(t, n); got != test.left || n.Stats().Holds != test.holds ||
			(failed != nil) != (len(test.named) == 1) {
			t.Errorf("%v: %d are left, %d holds, %v", test.named, got, n.Stats().Holds, failed)
		}
	}
}

// A function that panics instead of saying what was used leaves the estimate for good, and its panic
// goes on.
func TestUsedPanics(t *testing.T) {
	c := newClock()
	n := node(t, c, "  - {name: budget, cost: 40, key: [ip], on_expiry: release, limits: [{limit: 100, window: 1h}]}\n")
	told := 0
	h := limited(t, n, httplimit.Settle(time.Minute, func(*http.Request, *httplimit.Response) limiter.Cost {
		panic("a test")
	}),
		httplimit.OnSettled(func(_ *http.Request, a limiter.Amended, err error) {
			if told++; err != nil || a.State != limiter.AmendDone {
				t.Errorf("%+v, %v", a, err)
			}
		}))
	func() {
		defer func() {
			if e := recover(); e != "a test" {
				t.Errorf("panicked with %v", e)
			}
		}()
		get(h, "/")
	}()
	if n.Stats().Holds != 0 || told != 1 {
		t.Errorf("%d holds, %d settlements", n.Stats().Holds, told)
	}
	c.forward(2 * time.Minute)
	if got := left(t, n); got != 60 {
		t.Errorf("%d are left", got)
	}
}

// bare is a decider without reservations.
type bare struct{ httplimit.Decider }

func TestBadSettle(t *testing.T) {
	n := node(t, nil, budget)
	good := httplimit.Settle(time.Minute, used)
	for want, options := range map[string][]httplimit.Option{
		"Settle needs a function":                  {httplimit.Settle(time.Minute, nil)},
		"SettleBy needs a function":                {httplimit.SettleBy(time.Minute, nil)},
		"OnSettled needs a function":               {good, httplimit.OnSettled(nil)},
		"OnSettled needs Settle":                   {httplimit.OnSettled(func(*http.Request, limiter.Amended, error) {})},
		"Settle with a hold of 0s is out of range": {httplimit.Settle(0, used)},
		"Settle with a hold of 25h0m0s is out":     {httplimit.Settle(25*time.Hour, used)},
		"Settle and ID exclude each other":         {good, httplimit.ID(httplimit.FromHeader("X-Request-Id"))},
	} {
		if _, err := httplimit.NewLimiter(n, options...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := httplimit.NewLimiter(bare{n}, good); err == nil ||
		!strings.Contains(err.Error(), "needs a decider with reservations") {
		t.Error(err)
	}
}

// A settlement that fails is told.
func TestSettleFails(t *testing.T) {
	var told error
	h := limited(t, node(t, nil, budget), httplimit.Settle(time.Minute,
		func(*http.Request, *httplimit.Response) limiter.Cost {
			return limiter.Units(-1)
		}),
		httplimit.OnSettled(func(_ *http.Request, _ limiter.Amended, err error) { told = err }))
	if got := get(h, "/"); got.Code != http.StatusOK || !errors.Is(told, limiter.ErrInvalid) {
		t.Errorf("%d, %v", got.Code, told)
	}
}

// The writer of a request that is settled can do what the server's can: flush, hand a file to
// the kernel, give its connection away.
func TestSettleWrapsAll(t *testing.T) {
	n := node(t, nil, "  - {name: budget, key: [path], limits: [{limit: 100, window: 1h}]}\n")
	seen := make(chan httplimit.Response, 1)
	l := limit(t, n, httplimit.Settle(time.Minute, func(_ *http.Request, w *httplimit.Response) limiter.Cost {
		seen <- *w
		return limiter.Units(1)
	}))
	s := httptest.NewServer(l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/flush":
			w.(http.Flusher).Flush()
		case "/copy":
			w.WriteHeader(http.StatusEarlyHints)
			_, _ = io.Copy(w, strings.NewReader("12345"))
		case "/deadline":
			if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Hour)); err != nil {
				t.Error(err)
			}
		case "/hijack":
			c, rw, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			_, _ = rw.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nraw")
			_ = rw.Flush()
			if _, err := w.Write([]byte("more")); !errors.Is(err, http.ErrHijacked) {
				t.Error(err)
			}
			_, _ = io.Copy(w, strings.NewReader("more"))
		case "/fails":
			if _, err := io.Copy(w, iotest.ErrReader(errors.New("a test"))); err != nil {
				http.Error(w, "bad", http.StatusBadGateway)
			}
		case "/empty":
			_, _ = io.Copy(w, iotest.DataErrReader(strings.NewReader("")))
			w.WriteHeader(http.StatusAccepted)
		}
	})))
	defer s.Close()
	for path, want := range map[string]struct {
		body   string
		bytes  int64
		status int // that Used sees, and the client, but for a connection that was taken over
	}{"/flush": {"", 0, 200}, "/copy": {"12345", 5, 200}, "/deadline": {"", 0, 200}, "/hijack": {"raw", 0, 0},
		"/fails": {"bad\n", 4, 502}, "/empty": {"", 0, 202}} {
		resp, err := s.Client().Get(s.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(bufio.NewReader(resp.Body))
		resp.Body.Close()
		status := want.status
		if status != 0 && resp.StatusCode != status {
			t.Errorf("%s: the client gets %d, want %d", path, resp.StatusCode, status)
		}
		if w := <-seen; err != nil || string(body) != want.body || w.Bytes != want.bytes || w.Status != status ||
			w.Hijacked != (status == 0) {
			t.Errorf("%s: %q, %v, %+v", path, body, err, w)
		}
	}
}

// plain is a writer that can only write, and pushing one that can push.
type plain struct{ http.ResponseWriter }

type pushing struct {
	http.ResponseWriter
	pushed string
}

func (p *pushing) Push(target string, _ *http.PushOptions) error { p.pushed = target; return nil }

type wrapping struct{ http.ResponseWriter }

func (w wrapping) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// What the writer inside cannot do fails, and what it can do is not hidden.
func TestSettleHidesNothing(t *testing.T) {
	n := node(t, nil, budget)
	var flushed, taken, pushed error
	var seen httplimit.Response
	h := limit(t, n, httplimit.Settle(time.Minute, func(_ *http.Request, w *httplimit.Response) limiter.Cost {
		seen = *w
		return limiter.Units(0)
	})).Handler(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			flushed = http.NewResponseController(w).Flush()
			_, _, taken = w.(http.Hijacker).Hijack()
			pushed = w.(http.Pusher).Push("/style", nil)
		}))
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	h.ServeHTTP(plain{httptest.NewRecorder()}, r)
	for what, err := range map[string]error{"flush": flushed, "hijack": taken, "push": pushed} {
		if !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if seen.Hijacked || seen.Status != http.StatusOK {
		t.Errorf("%+v", seen)
	}
	p := &pushing{ResponseWriter: httptest.NewRecorder()}
	h.ServeHTTP(wrapping{p}, r)
	if pushed != nil || p.pushed != "/style" {
		t.Errorf("%v, %q", pushed, p.pushed)
	}
}
