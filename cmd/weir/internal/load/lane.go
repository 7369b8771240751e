package load

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/internal/weirwire"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// errRules is the error for nodes with other rules.
var errRules = errors.New("the nodes need the rules that weir bench --print-rules prints")

// call is checks that are sent together, and their results. One goroutine uses it,
// repeatedly.
type call struct {
	keys    *keys
	n       []uint32 // the keys, by index
	answers []answer
	owner   string // of the key of a unary check; empty if not known
	why     string // why a check failed, although the call did not

	decision  limiter.Decision // of a client's Check
	requests  []limiter.Request
	decisions []limiter.Decision
}

// take records the answer of check i. It returns an error if another rule than the
// key's decided.
func (c *call) take(i int, ok bool, rule string, s limiter.Source) error {
	if want := c.keys.rule(c.n[i]); rule != want {
		return fmt.Errorf("rule %q decided instead of %q: %w", rule, want, errRules)
	}
	a := denied
	if ok {
		a = allowed
	}
	switch {
	case s.ByPolicy():
		a += policyAllowed - allowed
	case s == limiter.SourceHeir:
		a += heirAllowed - allowed
	}
	c.answers[i] = a
	return nil
}

// lane is a way to send checks to a node. An error concerns the whole call; its charges
// are not known.
type lane interface {
	warm(ctx context.Context) error
	do(ctx context.Context, c *call) error
	close() error
}

func openLane(ctx context.Context, c *Config, m Mode, i int) (lane, error) {
	if m.shares() {
		return openShared(c)
	}
	server := c.Servers[i%len(c.Servers)]
	// Reconnect soon after a node is back.
	soon := backoff.Config{BaseDelay: pause, Multiplier: 2, Jitter: 0.5, MaxDelay: 500 * time.Millisecond}
	conn, err := c.dial(server, grpc.WithConnectParams(grpc.ConnectParams{Backoff: soon, MinConnectTimeout: warmWithin}))
	if err != nil {
		return nil, err
	}
	w := wire{server, conn, weirv1.NewLimiterClient(conn)}
	switch m {
	case Batch:
		return &batches{w}, nil
	case Stream:
		return openStream(ctx, w)
	}
	return &singles{w}, nil
}

func (c *Config) dial(server string, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	options := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	var err error
	if c.Credentials != nil {
		options, err = c.Credentials.Dial(server)
	}
	if err != nil {
		return nil, fmt.Errorf("node %s cannot be asked: %w", server, err)
	}
	conn, err := grpc.NewClient("passthrough:///"+server, append(options, more...)...)
	if err != nil {
		return nil, fmt.Errorf("node %s cannot be asked: %w", server, err)
	}
	return conn, nil
}

// shared uses package client.
type shared struct{ client *client.Client }

func openShared(c *Config) (lane, error) {
	o := client.Config{Addrs: c.Servers, MaxPending: 2 * MaxClients * MaxBatch, NoIDs: c.NoIDs,
		Leases: c.Leases}
	if c.Credentials != nil {
		of := c.Credentials.Config()
		o.TokenFile = of.TokenFile
		if of.Secure() {
			o.TLS = &client.TLS{CAFile: of.CAFile, CertFile: of.CertFile, KeyFile: of.KeyFile, ServerName: of.ServerName}
		}
	}
	all, err := client.Open(o)
	if err != nil {
		return nil, err
	}
	return &shared{all}, nil
}

func (s *shared) close() error { return s.client.Close() }

func (s *shared) warm(ctx context.Context) error {
	return warm(func(path string) (string, error) {
		var d limiter.Decision
		err := s.client.PeekInto(ctx, &limiter.Request{Path: path, User: "nobody"}, &d)
		return d.Rule, err
	})
}

func (s *shared) do(ctx context.Context, c *call) error {
	if len(c.n) > 1 {
		return s.many(ctx, c)
	}
	var r limiter.Request
	c.keys.request(&r, c.n[0])
	if err := s.client.CheckInto(ctx, &r, &c.decision); err != nil {
		return err
	}
	return c.take(0, c.decision.Allowed, c.decision.Rule, c.decision.Source)
}

// many sends several checks in one call.
func (s *shared) many(ctx context.Context, c *call) error {
	if c.requests == nil {
		c.requests, c.decisions = make([]limiter.Request, len(c.n)), make([]limiter.Decision, len(c.n))
	}
	for i, n := range c.n {
		c.keys.request(&c.requests[i], n)
	}
	var bad *client.BatchError
	err := s.client.CheckBatchInto(ctx, c.requests, c.decisions)
	if err != nil && !errors.As(err, &bad) {
		return err
	}
	for i := range c.n {
		if bad != nil && len(bad.Index) > 0 && bad.Index[0] == i {
			c.why = bad.Errs[0].Error()
			bad = &client.BatchError{Index: bad.Index[1:], Errs: bad.Errs[1:]}
			continue
		}
		d := &c.decisions[i]
		if err := c.take(i, d.Allowed, d.Rule, d.Source); err != nil {
			return err
		}
	}
	return nil
}

type wire struct {
	server string
	conn   *grpc.ClientConn
	api    weirv1.LimiterClient
}

func (w *wire) close() error { return w.conn.Close() }

// failed adds the node's name to an error.
func (w *wire) failed(err error) error {
	return fmt.Errorf("node %s: %s", w.server, status.Convert(err).Message())
}

// singles sends one check in each call.
type singles struct{ wire }

func (s *singles) do(ctx context.Context, c *call) error {
	var r limiter.Request
	c.keys.request(&r, c.n[0])
	m, err := s.api.Check(ctx, weirwire.NewCheckRequest(&r, false))
	if err != nil {
		return s.failed(err)
	}
	if l := m.GetLimits(); len(l) > 0 {
		c.owner = l[0].GetOwner()
	}
	return c.take(0, m.GetAllowed(), m.GetRule(), limiter.Source(m.GetSource()))
}

// batches sends several checks in each call.
type batches struct{ wire }

func (b *batches) do(ctx context.Context, c *call) error {
	m := &weirv1.CheckBatchRequest{Checks: make([]*weirv1.CheckRequest, len(c.n))}
	var r limiter.Request
	for i, n := range c.n {
		c.keys.request(&r, n)
		m.Checks[i] = weirwire.NewCheckRequest(&r, false)
	}
	got, err := b.api.CheckBatch(ctx, m)
	if err != nil {
		return b.failed(err)
	}
	if len(got.GetResults()) != len(c.n) {
		return fmt.Errorf("node %s answered %d checks of %d", b.server, len(got.GetResults()), len(c.n))
	}
	for i, result := range got.GetResults() {
		if e := result.GetError(); e != nil {
			c.why = e.GetMessage()
			continue
		}
		d := result.GetDecision()
		if err := c.take(i, d.GetAllowed(), d.GetRule(), limiter.Source(d.GetSource())); err != nil {
			return err
		}
	}
	return nil
}

// warm connects, and verifies that the node has the rules, without counting anything.
func (w *wire) warm(ctx context.Context) error {
	return warm(func(path string) (string, error) {
		m, err := w.api.Check(ctx, &weirv1.CheckRequest{Path: path, User: "nobody", Peek: true}, grpc.WaitForReady(true))
		if err != nil {
			return "", w.failed(err)
		}
		return m.GetRule(), nil
	})
}

// warm peeks at each path and verifies the rule that decides.
func warm(peek func(path string) (rule string, err error)) error {
	for path, want := range map[string]string{openPath + "00000": openRule, limitedPath + "00000": limitedRule} {
		rule, err := peek(path)
		switch {
		case err != nil:
			return err
		case rule != want:
			return fmt.Errorf("rule %q decides instead of %q: %w", rule, want, errRules)
		}
	}
	return nil
}
