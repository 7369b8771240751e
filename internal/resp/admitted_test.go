package resp

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/certs/certstest"
	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/limiter"
)

// A connection that begins no handshake of TLS ends, and so does one whose handshake fails.
// Who connected, and why it ended, is told.
func TestHandshakes(t *testing.T) {
	ca := certstest.New(t, "node")
	pair, err := tls.X509KeyPair(ca.Issue(t, certstest.Leaf{Name: "node", Hosts: []string{"127.0.0.1"}}))
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan string, 2)
	f := (&fixture{tls: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}}).start(t,
		func(o *Options) {
			o.within = 300 * time.Millisecond
			o.HandshakeFailed = func(from, why string) { failed <- from + ": " + why }
		})
	for what, send := range map[string]string{"deadline exceeded": "",
		"does not look like a TLS handshake": encode("PING")} {
		c := f.dial(t)
		if _, err := io.WriteString(c, send); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, c); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Error(err)
		}
		if said := <-failed; !strings.HasPrefix(said, c.LocalAddr().String()+": ") ||
			!strings.Contains(said, what) && !strings.Contains(said, "i/o timeout") {
			t.Errorf("%q, want %q", said, what)
		}
	}
}

// purse is an Access whose only caller notes what its commands spend.
type purse struct {
	someone
	mu     sync.Mutex
	checks []int
}

func (p *purse) Identify(frontend.Credentials) (frontend.Caller, error) { return p, nil }

func (p *purse) May(frontend.Action) (limiter.Scope, error) { return nil, nil }

func (p *purse) Spend(checks, _ int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.checks = append(p.checks, checks)
	return nil
}

// Each reset counts as a check in the budget of who asks for it, as over HTTP.
func TestBudgetsOfResets(t *testing.T) {
	p := new(purse)
	f := start(t, func(o *Options) { o.Config.Access = p })
	c := f.dial(t)
	for _, ask := range []string{"PING", "CL.THROTTLE k 0 1 60", "DEL a b c", "UNLINK a", "FLUSHDB", "WEIR.RESET /towns"} {
		c.ask(ask)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if got := fmt.Sprint(p.checks); got != "[0 1 3 1 1 1]" {
		t.Errorf("they spent %s checks", got)
	}
}
