package client_test

import (
	"errors"
	"testing"
	"time"

	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/limitertest"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// hears is a stream that allows everything, and passes on the messages with checks.
func hears(to chan<- *weirv1.CheckColumns) func(stream weirv1.Limiter_CheckStreamServer) error {
	return func(stream weirv1.Limiter_CheckStreamServer) error {
		for {
			m, err := stream.Recv()
			if err != nil {
				return err
			}
			if len(m.GetPathLengths()) > 0 {
				to <- m
			}
			if err := stream.Send(allow(m)); err != nil {
				return err
			}
		}
	}
}

// A check without an id gets one of the client's, each another, for twice the timeout; one
// with an id keeps it, for as long as the request says. Peeks have none.
func TestOwnIDs(t *testing.T) {
	heard := make(chan *weirv1.CheckColumns, 1)
	l := play(t, hears(heard))
	c := open(t, client.Config{Addrs: []string{l.Addr().String()}, Timeout: long})
	plain := open(t, client.Config{Addrs: []string{l.Addr().String()}, Timeout: long, NoIDs: true})
	message := func(by *client.Client, r *limiter.Request, peek bool) *weirv1.CheckColumns {
		t.Helper()
		var d limiter.Decision
		ask := by.CheckInto
		if peek {
			ask = by.PeekInto
		}
		if err := ask(t.Context(), r, &d); err != nil {
			t.Fatal(err)
		}
		return <-heard
	}
	ids := map[string]bool{}
	for range 100 {
		m := message(c, request("ada"), false)
		if len(m.GetIds()) != 16 || m.GetIdLengths()[0] != 16 || m.GetIdTtlUs() != 2*long.Microseconds() ||
			!m.GetIdsOptional() {
			t.Fatalf("%v", m)
		}
		ids[string(m.GetIds())] = true
	}
	if len(ids) != 100 {
		t.Errorf("%d ids of 100 checks", len(ids))
	}
	r := request("ada")
	r.ID, r.IDTTL = "order-7", 5*time.Second
	for _, by := range []*client.Client{c, plain} {
		if m := message(by, r, false); string(m.GetIds()) != "order-7" || m.GetIdTtlUs() != 5_000_000 || m.GetIdsOptional() {
			t.Errorf("%v", m)
		}
	}
	for _, m := range []*weirv1.CheckColumns{message(plain, request("ada"), false), message(c, request("ada"), true)} {
		if len(m.GetIds())+len(m.GetIdLengths()) > 0 || m.GetIdTtlUs() != 0 || m.GetIdsOptional() {
			t.Errorf("%v", m)
		}
	}
}

// deaf is a node whose answers are lost: another one decides what it is asked.
func deaf(c *client.Client) func(stream weirv1.Limiter_CheckStreamServer) error {
	return func(stream weirv1.Limiter_CheckStreamServer) error {
		for {
			m, err := stream.Recv()
			if err != nil {
				return err
			}
			if len(m.GetPathLengths()) == 0 {
				if err := stream.Send(allow(m)); err != nil {
					return err
				}
				continue
			}
			r := limiter.Request{Path: "/towns", User: "ada", ID: string(m.GetIds()),
				IDTTL: time.Duration(m.GetIdTtlUs()) * time.Microsecond}
			if _, err := c.Check(stream.Context(), r); err != nil {
				return err
			}
			return errors.New("the answer is lost")
		}
	}
}

// A check whose answer is lost is sent to another node, and counts once: with an id of its
// own. Without one it counts twice.
func TestRetriesCountOnce(t *testing.T) {
	for _, without := range []bool{false, true} {
		node := newNode(t, hour)
		good := serve(t, node, "", nil)
		behind := open(t, client.Config{Addrs: []string{good.addr}, Timeout: long, NoIDs: true})
		bad := play(t, deaf(behind))
		c := open(t, client.Config{Addrs: []string{bad.Addr().String(), good.addr}, Timeout: long, NoIDs: without})
		eventually(t, "both are up", func() bool { return c.Stats().Up == 2 })
		d, err := c.Check(t.Context(), *request("ada"))
		if err != nil || !d.Allowed || d.Repeated == without {
			t.Fatalf("%+v, %v", d, err)
		}
		p, err := c.Peek(t.Context(), *request("ada"))
		want := uint64(99)
		if without {
			want = 98
		}
		if err != nil || p.Limit(0).Remaining != want {
			t.Errorf("NoIDs %t: %d left, want %d, %v", without, p.Limit(0).Remaining, want, err)
		}
	}
}

// Requests with limits of their own, which travel in calls by themselves, have ids too.
func TestOwnLimitsHaveIDs(t *testing.T) {
	s := serve(t, newNode(t, hour), "", nil)
	c := open(t, client.Config{Addrs: []string{s.addr}, Timeout: long})
	l := limitertest.Limit(t, limiter.Spec{Limit: 5, Window: time.Hour, Algorithm: limiter.FixedWindow})
	r := limiter.Request{Path: "key", Limits: []*limiter.Limit{l}, ID: "7"}
	for i := range 3 {
		d, err := c.Check(t.Context(), r)
		if err != nil || !d.Allowed || d.Repeated != (i > 0) || d.Limit(0).Remaining != 4 {
			t.Errorf("check %d: %+v, %v", i, d, err)
		}
		ds, err := c.CheckBatch(t.Context(), []limiter.Request{r})
		if err != nil || !ds[0].Repeated {
			t.Errorf("batch %d: %+v, %v", i, ds, err)
		}
	}
	r.ID = "\xff"
	if _, err := c.Check(t.Context(), r); !errors.Is(err, client.ErrInvalid) {
		t.Error(err)
	}
}
