package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/limitertest"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// Of two servers of one node, one stops in good order under load. No check fails and
// none is counted twice, since the server did not decide the messages that it did not
// answer.
func TestGracefulStop(t *testing.T) {
	node := newNode(t,
		"version: 1\nrules:\n  - {name: all, key: [rule], limits: [{limit: 1000000, window: 1h, algorithm: fixed_window, "+
			"align: first_hit}]}\n")
	first, second := serve(t, node, "", nil), serve(t, node, "", nil)
	c := open(t, client.Config{Addrs: []string{first.addr, second.addr}, Timeout: long})
	var asked atomic.Int64
	var asking sync.WaitGroup
	stopped := make(chan struct{})
	for range 16 {
		asking.Go(func() {
			var d limiter.Decision
			for after := 0; after < 50; {
				if err := c.CheckInto(t.Context(), request("ada"), &d); err != nil || !d.Allowed {
					t.Errorf("%v, %+v", err, &d)
					return
				}
				asked.Add(1)
				select {
				case <-stopped:
					after++
				default:
				}
			}
		})
	}
	eventually(t, "some were answered", func() bool { return asked.Load() > 100 })
	first.stop()
	close(stopped)
	asking.Wait()
	var d limiter.Decision
	if err := c.PeekInto(t.Context(), request("ada"), &d); err != nil {
		t.Fatal(err)
	}
	if counted := 1_000_000 - int64(d.Limit(0).Remaining); counted != asked.Load() {
		t.Errorf("%d were answered and %d counted", asked.Load(), counted)
	}
}

// A connection that breaks loses no check: another node is asked, once, and when the
// first comes back it is asked again.
func TestBrokenConnection(t *testing.T) {
	node := newNode(t, hour)
	first, second := serve(t, node, "", nil), serve(t, node, "", nil)
	c := open(t, client.Config{Addrs: []string{first.addr, second.addr}, Timeout: long})
	var d limiter.Decision
	for i := range 20 {
		// Of two that break at once neither could answer.
		eventually(t, "both are up", func() bool { return first.open() > 0 && second.open() > 0 && c.Stats().Up == 2 })
		switch {
		case i%2 == 1:
			first.cut()
		case i == 10:
			second.cut()
		}
		if err := c.CheckInto(t.Context(), request(fmt.Sprint("user-", i)), &d); err != nil || !d.Allowed {
			t.Fatalf("check %d: %v", i, err)
		}
	}
	eventually(t, "both are up again", func() bool { return c.Stats().Up == 2 })
}

// A server that ends and comes back at the same address is asked again, and
// meanwhile checks fail at once.
func TestComesBack(t *testing.T) {
	node := newNode(t, hour)
	s := serve(t, node, "", nil)
	c := open(t, client.Config{Addrs: []string{s.addr}, Timeout: long})
	var d limiter.Decision
	if err := c.CheckInto(t.Context(), request("ada"), &d); err != nil {
		t.Fatal(err)
	}
	s.stop()
	eventually(t, "it is known that it is down", func() bool {
		return errors.Is(c.CheckInto(t.Context(), request("ada"), &d), client.ErrUnavailable)
	})
	if err := c.CheckInto(t.Context(), request("ada"), &d); !errors.Is(err, client.ErrUnavailable) ||
		!strings.Contains(err.Error(), "node "+s.addr) {
		t.Error(err)
	}
	if err := c.CheckBatchInto(t.Context(), make([]limiter.Request, 2), make([]limiter.Decision, 2)); !errors.Is(err,
		client.ErrUnavailable) {
		t.Error(err)
	}
	if _, err := c.Reset(t.Context(), *request("ada")); !errors.Is(err, client.ErrUnavailable) {
		t.Error(err)
	}
	serve(t, node, s.addr, nil)
	eventually(t, "it is asked again", func() bool { return c.CheckInto(t.Context(), request("ada"), &d) == nil })
}

// silent is a stream that answers the first message, which has no checks, and then
// nothing; got has what came, and ended has a token when the client has hung up.
func silent(got chan<- int, ended chan<- struct{}) func(stream weirv1.Limiter_CheckStreamServer) error {
	first := true
	return func(stream weirv1.Limiter_CheckStreamServer) error {
		for {
			m, err := stream.Recv()
			if err != nil {
				select {
				case ended <- struct{}{}:
				default:
				}
				return err
			}
			if n := len(m.PathLengths); n > 0 {
				got <- n
				continue
			}
			if first {
				first = false
				if err := stream.Send(allow(m)); err != nil {
					return err
				}
			}
		}
	}
}

// A node that stops answering is waited for during a part of the timeout only: another
// node answers within it. Later checks do not wait for the silent node.
func TestSilentNode(t *testing.T) {
	got, ended := make(chan int, 100), make(chan struct{}, 1)
	l := play(t, silent(got, ended))
	good := serve(t, newNode(t, hour), "", nil)
	c := open(t, client.Config{Addrs: []string{l.Addr().String(), good.addr}, Timeout: 5 * time.Second})
	eventually(t, "both are up", func() bool { return c.Stats().Up == 2 })
	var d limiter.Decision
	if err := c.CheckInto(t.Context(), request("ada"), &d); err != nil || !d.Allowed {
		t.Fatal(err)
	}
	if n := <-got; n != 1 {
		t.Errorf("the silent node was sent %d checks", n)
	}
	<-ended
	for i := range 10 {
		if err := c.CheckInto(t.Context(), request("ada"), &d); err != nil || d.Limit(0).Remaining != uint64(98-i) {
			t.Fatalf("%v, %+v", err, &d)
		}
	}
	if len(got) > 0 {
		t.Error("the silent node is asked again though it answers nothing")
	}
	alone := open(t, client.Config{Addrs: []string{play(t, silent(got, nil)).Addr().String()}, Timeout: 3 * time.Second})
	eventually(t, "it is up", func() bool { return alone.Stats().Up == 1 })
	if err := alone.CheckInto(t.Context(), request("ada"), &d); !errors.Is(err, client.ErrUnanswered) {
		t.Error(err)
	}
}

// A check whose fate is not known is sent to one other node, and not to a third; one
// that was not decided is sent on as long as there are nodes.
func TestHowOftenItIsSent(t *testing.T) {
	for name, c := range map[string]struct {
		trailer metadata.MD
		code    codes.Code
		sent    int32
		want    error
	}{
		"not known":   {nil, codes.Unavailable, 2, client.ErrUnanswered},
		"not decided": {metadata.Pairs(weirv1.TrailerUndecided, "1"), codes.Unavailable, 4, client.ErrUnavailable},
	} {
		var sent [4]atomic.Int32
		var addrs []string
		for i := range 4 {
			addrs = append(addrs, play(t, func(stream weirv1.Limiter_CheckStreamServer) error {
				if sent[i].Load() > 0 {
					return status.Error(c.code, "gone") // a node that is back may be asked once more
				}
				for {
					m, err := stream.Recv()
					if err != nil {
						return err
					}
					if len(m.PathLengths) > 0 {
						sent[i].Add(1)
						stream.SetTrailer(c.trailer)
						return status.Error(c.code, "go away")
					}
					if err := stream.Send(allow(m)); err != nil {
						return err
					}
				}
			}).Addr().String())
		}
		all := open(t, client.Config{Addrs: addrs, Timeout: long, First: 2})
		eventually(t, "all are up", func() bool { return all.Stats().Up == 4 })
		var d limiter.Decision
		if err := all.CheckInto(t.Context(), request("ada"), &d); !errors.Is(err, c.want) ||
			!strings.Contains(err.Error(), "go away") {
			t.Errorf("%s: %v", name, err)
		}
		all4 := int32(0)
		for i := range sent {
			all4 += sent[i].Load()
			if sent[i].Load() > 1 {
				t.Errorf("%s: it was sent to one node %d times", name, sent[i].Load())
			}
		}
		if all4 != c.sent {
			t.Errorf("%s: it was sent %d times", name, all4)
		}
	}
}

// deciding decides as its node does, and calls after before it answers.
type deciding struct {
	*weir.Node
	after func() error
}

func (d *deciding) CheckInto(ctx context.Context, r *weir.Request, out *weir.Decision) error {
	return errors.Join(d.Node.CheckInto(ctx, r, out), d.after())
}

// TestACallWhoseConnectionBreaks: a check with limits of its own is a call by itself. If its
// connection breaks it may have been counted, although gRPC has the same code for that as
// for a node that says that it cannot decide now.
func TestACallWhoseConnectionBreaks(t *testing.T) {
	l := limitertest.Limit(t, limiter.Spec{Limit: 3, Window: time.Minute})
	for name, row := range map[string]struct {
		breaks    bool
		want, not error
	}{
		"the connection breaks": {true, client.ErrUnanswered, client.ErrUnavailable},
		"not now":               {false, client.ErrUnavailable, client.ErrUnanswered},
	} {
		var s *server
		by := &deciding{Node: newNode(t, hour)}
		s = serve(t, by, "", nil)
		by.after = func() error {
			if row.breaks {
				s.cut()
				return nil
			}
			return errors.New("not now")
		}
		c := open(t, client.Config{Addrs: []string{s.addr}, Timeout: long})
		eventually(t, "the node is up", func() bool { return c.Stats().Up == 1 })
		_, err := c.Check(t.Context(), limiter.Request{Path: "/", Limits: []*limiter.Limit{l}})
		if !errors.Is(err, row.want) || errors.Is(err, row.not) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Invalid replies end the stream without further harm: the other node answers.
func TestBadReplies(t *testing.T) {
	good := serve(t, newNode(t, hour), "", nil)
	for name, reply := range map[string]func(*weirv1.CheckColumns) *weirv1.DecisionColumns{
		"empty":         func(m *weirv1.CheckColumns) *weirv1.DecisionColumns { return &weirv1.DecisionColumns{Id: m.Id} },
		"to another":    func(m *weirv1.CheckColumns) *weirv1.DecisionColumns { m.Id++; return allow(m) },
		"short":         func(m *weirv1.CheckColumns) *weirv1.DecisionColumns { r := allow(m); r.Remaining = nil; return r },
		"limit unknown": func(m *weirv1.CheckColumns) *weirv1.DecisionColumns { r := allow(m); r.LimitRefs[0] = 1; return r },
		"no such limit": func(m *weirv1.CheckColumns) *weirv1.DecisionColumns {
			r := allow(m)
			r.Limits = []*weirv1.LimitInfo{{Name: "x", WindowUs: -5}}
			return r
		},
		"error of none": func(m *weirv1.CheckColumns) *weirv1.DecisionColumns {
			r := allow(m)
			r.Errors = []*weirv1.ColumnsError{{Checks: []uint32{9}}}
			return r
		},
		"every limit": func(m *weirv1.CheckColumns) *weirv1.DecisionColumns {
			r := allow(m)
			r.EveryLimit = &weirv1.LimitColumns{Counts: []uint32{1 << 31}}
			return r
		},
	} {
		bad := play(t, func(stream weirv1.Limiter_CheckStreamServer) error {
			for {
				m, err := stream.Recv()
				if err != nil {
					return err
				}
				r := allow(m)
				if len(m.PathLengths) > 0 {
					r = reply(m)
				}
				if err := stream.Send(r); err != nil {
					return err
				}
			}
		})
		c := open(t, client.Config{Addrs: []string{bad.Addr().String(), good.addr}, Timeout: long})
		eventually(t, "both are up", func() bool { return c.Stats().Up == 2 })
		var d limiter.Decision
		if err := c.CheckInto(t.Context(), request(name), &d); err != nil || d.Limit(0).Remaining != 99 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A caller whose context ends gets its error at once. The answer that comes later is
// dropped.
func TestContext(t *testing.T) {
	got := make(chan int, 100)
	release := make(chan struct{})
	l := play(t, func(stream weirv1.Limiter_CheckStreamServer) error {
		for {
			m, err := stream.Recv()
			if err != nil {
				return err
			}
			if n := len(m.PathLengths); n > 0 {
				got <- n
				select {
				case <-release:
				case <-stream.Context().Done():
					return nil
				}
			}
			if err := stream.Send(allow(m)); err != nil {
				return err
			}
		}
	})
	c := open(t, client.Config{Addrs: []string{l.Addr().String()}, Timeout: long, MaxPending: 3})
	ctx, cancel := context.WithCancel(t.Context())
	var d limiter.Decision
	asked := make(chan error, 2)
	go func() { asked <- c.CheckInto(ctx, request("ada"), &d) }()
	go func() {
		asked <- c.CheckBatchInto(ctx, make([]limiter.Request, 2), make([]limiter.Decision, 2))
	}()
	eventually(t, "three wait", func() bool { return c.Stats().Pending == 3 })
	<-got
	var late limiter.Decision
	if err := c.CheckInto(t.Context(), request("bob"), &late); !errors.Is(err, client.ErrBusy) ||
		!errors.Is(err, limiter.ErrBudget) { // by which middlewares know that its sender may have caused it
		t.Errorf("a fourth: %v", err)
	}
	cancel()
	for range 2 {
		if err := <-asked; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	if err := c.CheckInto(ctx, request("ada"), &d); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(release)
	eventually(t, "their answers have come", func() bool { return c.Stats().Pending == 0 })
	if err := c.CheckInto(t.Context(), request("bob"), &late); err != nil || !late.Allowed {
		t.Error(err)
	}
}

// Close ends what is under way, and what comes later.
func TestClose(t *testing.T) {
	got := make(chan int, 100)
	c, err := client.Open(client.Config{Addrs: []string{play(t, silent(got, nil)).Addr().String(), "127.0.0.1:1"},
		Timeout: long})
	if err != nil {
		t.Fatal(err)
	}
	var d limiter.Decision
	asked := make(chan error, 1)
	go func() { asked <- c.CheckInto(t.Context(), request("ada"), &d) }()
	<-got
	if err := errors.Join(c.Close(), c.Close()); err != nil {
		t.Error(err)
	}
	if err := <-asked; !errors.Is(err, client.ErrClosed) {
		t.Error(err)
	}
	if err := c.CheckInto(t.Context(), request("ada"), &d); !errors.Is(err, client.ErrClosed) {
		t.Error(err)
	}
}

// A check at an address without a server fails at once when the connection has been
// tried.
func TestNobodyThere(t *testing.T) {
	l := listen(t, "")
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	c := open(t, client.Config{Addrs: []string{addr}, Timeout: long})
	var d limiter.Decision
	if err := c.CheckInto(t.Context(), request("ada"), &d); !errors.Is(err, client.ErrUnavailable) ||
		!strings.Contains(err.Error(), addr) {
		t.Error(err)
	}
}

func TestConfig(t *testing.T) {
	for want, c := range map[string]client.Config{
		"0 addresses":               {},
		`address "x" is not valid`:  {Addrs: []string{"x"}},
		`address ":1" is not valid`: {Addrs: []string{":1"}},
		"is given twice":            {Addrs: []string{"a:1", "a:1"}},
		"First -1 is negative":      {Addrs: []string{"a:1"}, First: -1},
		"MaxMessage 1001 is out":    {Addrs: []string{"a:1"}, MaxMessage: 1001},
		"MaxPending -1 is out":      {Addrs: []string{"a:1"}, MaxPending: -1},
		"Window 65 is out":          {Addrs: []string{"a:1"}, Window: 65},
		"a timeout of 1ns is out":   {Addrs: []string{"a:1"}, Timeout: 1},
		"257 addresses: give 1 to":  {Addrs: make([]string, 257)},
	} {
		if _, err := client.Open(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
