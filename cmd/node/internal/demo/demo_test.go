package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
)

// show runs the demo for a while of virtual time and returns what it showed.
func show(t *testing.T, long time.Duration, c Config) string {
	t.Helper()
	var out bytes.Buffer
	c.Out = &out
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	if err := Run(ctx, c); err != nil {
		t.Error(err)
	}
	return out.String()
}

func node(t *testing.T) Node {
	t.Helper()
	n, err := weir.Open(t.Context(), weir.Config{Rules: Rules})
	if err != nil {
		t.Fatal(err)
	}
	return Node{n, "127.0.0.1:8080", "127.0.0.1:8081", "127.0.0.1:8082"}
}

// In 20 seconds of the demo's traffic everyone gets what the rules say.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := show(t, 20*time.Second+time.Millisecond, Config{Nodes: []Node{node(t)}})
		lines := strings.Split(got, "\n")
		var counted int
		for _, line := range lines {
			if regexp.MustCompile(`^ +[0-9]+s   ada [0-9]+/[0-9]+  bob `).MatchString(line) {
				counted++
				if len(line) > 80 {
					t.Errorf("%d columns: %s", len(line), line)
				}
			}
		}
		if counted < 19 || counted > 20 {
			t.Errorf("%d lines in 20 seconds:\n%s", counted, got)
		}
		if strings.Contains(got, "\x1b") || strings.Contains(got, "\r") {
			t.Errorf("it writes for a terminal: %q", got)
		}
		if !strings.Contains(got, "  denied 7, most by towns/second\n") {
			t.Errorf("no line says what denied:\n%s", got)
		}
		_, table, _ := strings.Cut(got, "In 20s:")
		rows := map[string][4]int{}
		for _, line := range strings.Split(table, "\n") {
			var user string
			var n [4]int
			if k, _ := fmt.Sscanf(line, "%s %d %d %d", &user, &n[0], &n[1], &n[2]); k == 4 {
				rows[user] = n
			}
		}
		for user, want := range map[string]struct{ asked, least, most int }{
			"ada":  {20, 20, 20},   // within both limits
			"bob":  {240, 75, 100}, // 5 a second, 100 a minute
			"eve":  {20, 6, 7},     // 3 in 10 seconds
			"root": {100, 100, 100},
		} {
			n := rows[user]
			if n[0] != want.asked || n[1] < want.least || n[1] > want.most || n[0] != n[1]+n[2] {
				t.Errorf("%s: asked, allowed, denied: %v\n%s", user, n, table)
			}
		}
		if !strings.Contains(table, "towns/second ") || !strings.Contains(table, "login/10s ") {
			t.Errorf("it is not said what denied:\n%s", table)
		}
	})
}

// On a terminal the line changes in place, and ends before the summary.
func TestTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := show(t, 3500*time.Millisecond, Config{Nodes: []Node{node(t)}, Terminal: true})
		if strings.Count(got, "\r\x1b[K") != 3 || !strings.Contains(got, "\n\nIn 3.5s:\n") {
			t.Errorf("%q", got)
		}
	})
}

// one is a checker that counts its calls, and can be made to fail.
type one struct {
	n   *atomic.Int32
	err error
}

func (o one) CheckInto(_ context.Context, _ *limiter.Request, d *limiter.Decision) error {
	o.n.Add(1)
	d.Clear()
	return o.err
}

// Several nodes are asked in turn, and all are named.
func TestSeveralNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked [3]atomic.Int32
		var nodes []Node
		for i := range asked {
			nodes = append(nodes, Node{one{n: &asked[i]}, fmt.Sprintf("127.0.0.1:8%d80", i), "127.0.0.1:8081", "127.0.0.1:8082"})
		}
		got := show(t, time.Minute, Config{Nodes: nodes})
		for i := range asked {
			if asked[i].Load() < 300 || !strings.Contains(got, "  HTTP at "+nodes[i].HTTPAddr) {
				t.Errorf("node %d was asked %d times", i, asked[i].Load())
			}
		}
	})
}

func TestNodeFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := show(t, 2500*time.Millisecond, Config{Nodes: []Node{{Checker: one{new(atomic.Int32), errors.New("broken")}}}})
		if !strings.Contains(got, "bob 0/12") || !strings.Contains(got, "  failed ") {
			t.Error(got)
		}
	})
}

// full is an output that fails after some writes.
type full struct{ left int }

func (f *full) Write(p []byte) (int, error) {
	if f.left--; f.left < 0 {
		return 0, errors.New("no space")
	}
	return len(p), nil
}

// Whenever the output fails, the demo ends, with the reason.
func TestOutputFails(t *testing.T) {
	for left := range 3 {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			defer cancel()
			if err := Run(ctx, Config{Nodes: []Node{node(t)}, Out: &full{left}}); err == nil ||
				!strings.Contains(err.Error(), "no space") {
				t.Errorf("after %d writes: %v", left, err)
			}
		})
	}
}

// The introduction matches what runs: the rules, and the addresses in every command.
func TestIntroduction(t *testing.T) {
	got := introduction([]Node{{nil, "127.0.0.1:1234", "127.0.0.1:5678", ""}}, "  {}")
	for _, want := range []string{
		"\n  HTTP at 127.0.0.1:1234, gRPC at 127.0.0.1:5678\n",
		"\n    - {name: admins, match: {group: admin}, unlimited: true}\n",
		"\n  curl -i 'http://127.0.0.1:1234/v1/check?path=/login&method=POST&user=you'\n",
		"\n  grpcurl -plaintext -d '{\"path\": \"/login\", \"method\": \"POST\", \"user\": \"you\"}' 127.0.0.1:5678 " +
			"weir.v1.Limiter/Check\n",
		"\n  \tconn, err := grpc.NewClient(\"127.0.0.1:5678\",",
		"\n\n  func main() {\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in:\n%s", want, got)
		}
	}
	if strings.Contains(got, "ADDRESS") {
		t.Error(got)
	}
}

// A hand that asks as the demo says, every two seconds, is denied the fourth time.
func TestAHandReachesTheLimit(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 9, 0, time.UTC)
	n, err := weir.Open(t.Context(), weir.Config{Rules: Rules, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	for i := range 4 {
		d, err := n.Check(t.Context(), weir.Request{Path: "/login", Method: "POST", User: "you"})
		if err != nil || d.Allowed != (i < 3) || d.Allowed == (d.RetryAfter > 0) {
			t.Errorf("time %d: %+v, %v", i+1, d, err)
		}
		now = now.Add(2 * time.Second)
	}
}
