package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// A check whose caller gives up before it was sent is not sent. The checks beside it are, and get their own answers.
func TestACheckThatIsGivenUpIsNotSent(t *testing.T) {
	for _, batch := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c, n := bench()
			n.condition = connecting
			ctx, hangUp := context.WithCancel(t.Context())
			lost, left := make(chan error, 2), make([]uint64, 2)
			hold := limiter.Request{Path: "/lost", User: "eve", ID: "1", Hold: time.Minute}
			keep := func(i int, path string) {
				var d limiter.Decision
				r := limiter.Request{Path: path, ID: fmt.Sprint("keep", i), Hold: time.Minute}
				if err := c.CheckInto(t.Context(), &r, &d); err != nil {
					t.Error(err)
				}
				left[i] = uint64(d.Limit(0).ResetAfter / time.Microsecond)
			}
			lose := func() {
				if batch {
					_, err := c.CheckBatch(ctx, []limiter.Request{hold})
					lost <- err
					return
				}
				_, err := c.Check(ctx, hold)
				lost <- err
			}
			for i, ask := range []func(){lose, func() { keep(0, "/a") }, lose, func() { keep(1, "/bb") }} {
				go ask()
				synctest.Wait()
				if c.pending != i+1 || len(n.queue) != 1 {
					t.Fatalf("%d are pending, in %d messages", c.pending, len(n.queue))
				}
			}
			hangUp()
			synctest.Wait()
			if err := errors.Join(<-lost, <-lost); !errors.Is(err, context.Canceled) || c.pending != 2 {
				t.Fatalf("%v, %d are pending", err, c.pending)
			}
			b := n.next()
			if got := string(b.message.GetKeys()); got != "/a/bb" || string(b.message.GetIds()) != "keep0keep1" {
				t.Errorf("%q was sent, with the ids %q", got, b.message.GetIds())
			}
			c.release(b)
			_, err := n.receive(&replies{all: []*weirv1.DecisionColumns{{Id: b.message.GetId(), Flags: []byte{1, 1},
				Remaining: []uint64{0, 0}, LimitRefs: []uint32{1, 1}, ResetAfterUs: []int64{7, 8},
				Limits: []*weirv1.LimitInfo{{Rule: "r", Limit: 9, Capacity: 9, WindowUs: 1e6}}}}})
			synctest.Wait()
			if left[0] != 7 || left[1] != 8 || c.pending != 0 || len(c.underWay) != 0 {
				t.Errorf("the answers are %v, %d are pending, %v; %v", left, c.pending, c.underWay, err)
			}
		})
	}
}

// A message whose callers have all given up is not sent at all.
func TestAMessageThatNobodyAwaitsIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, n := bench()
		ctx, hangUp := context.WithCancel(t.Context())
		for range 3 {
			go func() { _, _ = c.Check(ctx, limiter.Request{Path: "/", ID: "1"}) }()
		}
		synctest.Wait()
		hangUp()
		synctest.Wait()
		if b := n.next(); b != nil || c.pending != 0 || len(c.underWay) != 0 {
			t.Errorf("%d checks are sent; %d are pending, %v", b.n, c.pending, c.underWay)
		}
	})
}

// settling is a node whose settlements are counted.
type settling struct {
	weirv1.LimiterClient
	calls atomic.Int64
}

func (s *settling) Cancel(context.Context, *weirv1.CancelRequest, ...grpc.CallOption) (*weirv1.ReservationResponse,
	error) {
	s.calls.Add(1)
	return &weirv1.ReservationResponse{}, nil
}

// A cancellation does not overtake the check of its id: it waits for the answer, or until the message has ended.
func TestACancellationGoesBehindItsCheck(t *testing.T) {
	for how, end := range map[string]func(*node, *batch){
		"answered": func(n *node, b *batch) {
			_, _ = n.receive(&replies{all: []*weirv1.DecisionColumns{{Id: b.message.GetId(), Flags: []byte{1},
				Remaining: []uint64{0}, LimitRefs: []uint32{0}, ResetAfterUs: []int64{0}}}})
		},
		"the stream broke": func(n *node, _ *batch) { n.land(errSilent, false) },
		"late":             func(*node, *batch) { time.Sleep(3 * time.Second) },
	} {
		synctest.Test(t, func(t *testing.T) {
			c, n := bench()
			c.config.Timeout, c.attempt = 5*time.Second, 3*time.Second
			node := new(settling)
			n.api = node
			ctx, hangUp := context.WithCancel(t.Context())
			r := limiter.Request{Path: "/", Hold: time.Minute}
			reserved, cancelled := make(chan error, 1), make(chan error, 1)
			go func() {
				_, err := c.Reserve(ctx, &r)
				reserved <- err
			}()
			synctest.Wait()
			b := n.next()
			c.release(b)
			hangUp()
			if err := <-reserved; !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			go func() {
				_, err := c.Cancel(t.Context(), r)
				cancelled <- err
			}()
			synctest.Wait()
			if node.calls.Load() != 0 {
				t.Errorf("%s: the cancellation overtook the check", how)
			}
			_, err := c.Cancel(t.Context(), limiter.Request{Path: "/", ID: "another"})
			if calls := node.calls.Load(); err != nil || calls != 1 {
				t.Errorf("%s: the cancellation of another: %v, %d calls", how, err, calls)
			}
			end(n, b)
			if err := <-cancelled; err != nil || node.calls.Load() != 2 || len(c.underWay) != 0 {
				t.Errorf("%s: %v, %d calls, %v", how, err, node.calls.Load(), c.underWay)
			}
		})
	}
}

// The wait for a check ends with the context, and within the timeout.
func TestTheWaitForACheckIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, n := bench()
		c.config.Timeout = time.Second
		r := limiter.Request{Path: "/", ID: "1", Hold: time.Minute}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() { _, _ = c.Check(ctx, r) }()
		synctest.Wait()
		c.release(n.next())
		short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := c.Cancel(short, r); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		began := time.Now()
		if _, err := c.Cancel(t.Context(), r); !errors.Is(err, ErrUnavailable) || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		n.fail(ErrClosed)
		n.land(ErrClosed, false)
	})
}

// A message without the checks that are gone is the message of the others alone.
func TestShrink(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	text := func() string { return "abcdef"[:random.IntN(4)*random.IntN(3)] }
	for round := range 2000 {
		var whole, others batch
		var gone, wanted []int
		for range 1 + random.IntN(8) {
			r := limiter.Request{Path: text(), User: text(), IP: text(), Group: text(), Method: text(), ID: text()}
			if random.IntN(2) == 0 {
				r.Cost = limiter.Units(random.Int64N(5))
			}
			if random.IntN(4) == 0 {
				r.Attributes = map[string]string{"a": text()}
			}
			id := identified{has: random.IntN(3) == 0}
			copy(id.own[:], "0123456789abcdef")
			i := whole.add(&r, &id, 0)
			if random.IntN(3) == 0 {
				gone = append(gone, i)
				continue
			}
			wanted = append(wanted, i)
			if j := others.add(&r, &id, 0); j != len(wanted)-1 {
				t.Fatal(j)
			}
		}
		random.Shuffle(len(gone), func(i, j int) { gone[i], gone[j] = gone[j], gone[i] })
		whole.gone = gone
		whole.shrink()
		// A column whose only values are gone says with zeros what an absent one says.
		if a, b := spread(&whole), spread(&others); whole.n != others.n || !proto.Equal(a, b) {
			t.Fatalf("round %d: without %v it is\n%v, not\n%v", round, gone, a, b)
		}
		for at, i := range wanted {
			if whole.place(i) != at {
				t.Fatalf("round %d: check %d is at %d, not %d", round, i, whole.place(i), at)
			}
		}
	}
}

// spread returns the message of a batch without columns that may be absent.
func spread(b *batch) *weirv1.CheckColumns {
	m := proto.CloneOf(&b.message)
	for _, column := range []*[]uint32{&m.UserLengths, &m.IpLengths, &m.GroupLengths, &m.MethodLengths, &m.IdLengths} {
		*column = append(*column, make([]uint32, b.n-len(*column))...)
	}
	if len(m.GetCosts()) == len(m.GetRuleCosts()) {
		m.Costs, m.RuleCosts = nil, nil // all are left to the rule
	}
	all := m.GetAttributes()
	m.Attributes = nil
	for _, a := range all {
		for _, n := range a.GetLengths() {
			if n > 0 {
				m.Attributes = all
			}
		}
	}
	return m
}

// A node that the ring let go while its stream came up is not up afterwards, and what fails there has a reason.
func TestANodeThatWasLetGoDoesNotRise(t *testing.T) {
	c, n := bench()
	ctx, end := context.WithCancelCause(t.Context())
	n.learned, n.end = true, func() { end(nil) }
	n.condition = connecting
	if _, err := c.meet(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if n.rise(ctx, end) || n.condition != down || !errors.Is(n.why, errLetGo) {
		t.Errorf("the node is %v, %v", n.condition, n.why)
	}
	n.why = nil
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	conn, err := c.dial("127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	n.api = weirv1.NewLimiterClient(conn)
	n.keep(ended)
	_ = conn.Close()
	if !errors.Is(n.why, errLetGo) {
		t.Errorf("it ended by %v", n.why)
	}
}
