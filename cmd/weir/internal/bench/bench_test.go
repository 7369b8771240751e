package bench

import (
	"bufio"
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/rules"
)

// TestMain looks for goroutines that a run left behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The rules are valid, and each shape has the number of counters that it states.
func TestRules(t *testing.T) {
	set, err := rules.Parse("bench", []byte(Rules()), rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range set.Warnings() {
		t.Error(w)
	}
	if set.Len() != 2*len(Shapes()) {
		t.Errorf("there are %d rules", set.Len())
	}
	for _, s := range Shapes() {
		for _, kind := range []string{open, spent} {
			var c arith.Charge
			m, err := set.Resolve(&limiter.Request{Path: path(s, kind), User: "ada"}, &c)
			if err != nil || m.Rule != ruleName(s, kind) || c.Len() != 1 {
				t.Errorf("%s, %s: %+v, %v", s, kind, m, err)
			}
		}
	}
	for _, r := range set.Rules() {
		want := 1
		if strings.Contains(r.Rule.Name, string(Three)) {
			want = 3
		}
		if len(r.Rule.Limits) != want {
			t.Errorf("%s has %d limits", r.Rule.Name, len(r.Rule.Limits))
		}
	}
}

// fakeServer decides as the rules would, unless a test breaks it.
func fakeServer(breaks func(asked int, a *limiter.Answer)) func(context.Context, *limiter.Request) (limiter.Answer,
	error) {
	seen, asked := map[string]bool{}, 0
	return func(_ context.Context, r *limiter.Request) (limiter.Answer, error) {
		isSpent := strings.HasSuffix(r.Path, spent)
		a := limiter.Answer{Allowed: !isSpent || !seen[r.User], Rule: "bench-one-" + open, Source: "owner"}
		if isSpent {
			a.Rule = "bench-one-" + spent
		}
		if !r.Cost.Given() {
			seen[r.User] = true
			asked++
			breaks(asked, &a)
		}
		return a, nil
	}
}

// A run whose premises do not hold is an error, whatever is wrong.
func TestPremises(t *testing.T) {
	const keys = 100
	run := func(breaks func(int, *limiter.Answer)) error {
		_, err := Run(t.Context(), Config{
			Modes: []Mode{Server}, Shapes: []Shape{One}, Keys: keys, Callers: 1, Rounds: 1, Duration: 20 * time.Millisecond,
			Server: fakeServer(breaks),
		})
		return err
	}
	if err := run(func(int, *limiter.Answer) {}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		breaks func(asked int, a *limiter.Answer)
		want   string
	}{
		"two keys share a counter": {func(n int, a *limiter.Answer) { a.Allowed = a.Allowed && n != 7 }, "filling in key"},
		"an exhausted key is not": {func(n int, a *limiter.Answer) {
			a.Allowed = a.Allowed || n > keys
		}, "allowed is true and should be false"},
		"an open key is not": {func(n int, a *limiter.Answer) {
			a.Allowed = a.Allowed && n <= keys
		}, "allowed is false and should be true"},
		"a policy answers": {func(n int, a *limiter.Answer) {
			if n > keys {
				a.Source = "fallback:local"
			}
		}, "the policy of a rule answered (fallback:local)"},
		"other rules": {func(_ int, a *limiter.Answer) { a.Rule = "towns" }, `rule "towns" decided`},
	} {
		if err := run(c.breaks); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The callers' results are compared with what they sent.
func TestConclude(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*trial)
		want   string
	}{
		"one key over and over": {func(tr *trial) { tr.callers[0].hit[0] = 1 }, "1 different keys were asked for"},
		"an answer lost":        {func(tr *trial) { tr.callers[0].allowed-- }, "checks were allowed"},
		"only one kind": {func(tr *trial) {
			tr.callers[0].denied, tr.callers[0].allowed = 0, uint64(tr.callers[0].asked)
		}, "not both kinds of answers"},
	} {
		config := Config{Keys: 10, Callers: 1, Server: fakeServer(func(int, *limiter.Answer) {})}
		w, err := newWork(&config, One)
		if err != nil {
			t.Fatal(err)
		}
		tr := &trial{work: w, target: serverTarget(&config)}
		if err := tr.fill(t.Context()); err != nil {
			t.Fatal(err)
		}
		tr.prepare()
		for tr.asked() < 10 {
			if err := tr.round(t.Context(), time.Millisecond); err != nil {
				t.Fatal(err)
			}
		}
		if r, err := tr.conclude(); err != nil || r.Premises.Hit != 10 {
			t.Fatalf("%+v, %v", r, err)
		}
		tr.result = Result{}
		c.change(tr)
		if _, err := tr.conclude(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHeld(t *testing.T) {
	for _, c := range []struct {
		held   int
		copies bool
		good   bool
	}{{10, false, true}, {9, false, false}, {11, false, false}, {20, true, true}, {31, true, false}, {9, true, false}} {
		tr := &trial{target: &target{copies: c.copies, held: func() (int, error) { return c.held, nil }}}
		if err := tr.verifyHeld(10); (err == nil) != c.good {
			t.Errorf("%+v: %v", c, err)
		}
	}
	broken := errors.New("it is broken")
	tr := &trial{target: &target{held: func() (int, error) { return 0, broken }}}
	if err := tr.verifyHeld(10); !errors.Is(err, broken) {
		t.Error(err)
	}
}

// Any answer of a server that is not Redis is an error.
func TestRedisReplies(t *testing.T) {
	for said, want := range map[string]string{
		"-ERR no\r\n":                  "INFO failed: ERR no",
		"HTTP/1.1 400 Bad Request\r\n": "cannot be reached: redis: ",
		"$5\r\nab":                     "EOF",
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			them, err := l.Accept()
			for in := bufio.NewScanner(them); err == nil && in.Scan(); {
				if slices.Contains([]string{"hello", "ping", "info"}, strings.ToLower(in.Text())) {
					_, err = them.Write([]byte(said))
				}
				if strings.HasSuffix(said, "ab") {
					_ = them.Close()
				}
			}
		}()
		c, err := dialRedis(t.Context(), l.Addr().String())
		if err == nil {
			_, err = c.usage()
			_ = c.close()
		}
		if _ = l.Close(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", said, err)
		}
	}
}
