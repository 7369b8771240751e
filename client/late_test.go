package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/dialing"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// bench is a client without connections, with one node.
func bench() (*Client, *node) {
	c := &Client{credentials: new(dialing.Credentials),
		config: Config{MaxMessage: 10, Window: 2, MaxPending: 10, Timeout: time.Hour}, attempt: time.Hour, again: time.Hour}
	c.batches.New, c.charges.New = func() any { return new(batch) }, func() any { return new(arith.Charge) }
	n := &node{client: c, addr: "there", condition: up, wake: make(chan struct{}, 1)}
	c.nodes = []*node{n}
	return c, n
}

// sent adds a check and has its message sent.
func sent(t *testing.T, c *Client, n *node) ticket {
	t.Helper()
	ticket, err := c.add(kind{}, &limiter.Request{Path: "/"}, 1, &tries{})
	if err != nil {
		t.Fatal(err)
	}
	if b := n.next(); b != ticket.batch {
		t.Fatal("it is not the next to be sent")
	} else {
		c.release(b) // it was sent
	}
	return ticket
}

// replies is a stream that has some replies.
type replies struct {
	weirv1.Limiter_CheckStreamClient
	all []*weirv1.DecisionColumns
}

func (r *replies) RecvMsg(m any) error {
	if len(r.all) == 0 {
		return io.EOF
	}
	proto.Merge(m.(proto.Message), r.all[0])
	r.all = r.all[1:]
	return nil
}

// If an answer is late, its message is waited for as long as the node answers others, and the timeout is not over. Then
// it is given up alone, and the answer is dropped when it comes. The stream to a node that answers nothing is ended.
func TestLate(t *testing.T) {
	for name, c := range map[string]struct {
		begun, sent, heard time.Duration // ago
		silent, waits      bool
	}{
		"slow":                {9 * time.Hour, 2 * time.Hour, time.Minute, false, false},
		"slow, and in time":   {2 * time.Hour, 2 * time.Hour, time.Minute, false, true},
		"nearly silent":       {2 * time.Hour, 2 * time.Hour, 59 * time.Minute, false, true},
		"asked just now":      {9 * time.Hour, time.Minute, 2 * time.Hour, false, false},
		"asked late, in time": {2 * time.Hour, time.Minute, 2 * time.Hour, false, true},
		"answers nothing":     {2 * time.Hour, 2 * time.Hour, 2 * time.Hour, true, false},
	} {
		client, n := bench()
		client.config.Timeout = 8 * time.Hour
		hungUp := error(nil)
		n.hangUp = func(err error) { hungUp = err }
		ticket := sent(t, client, n)
		b := ticket.batch
		b.begun = time.Now().Add(-c.begun)
		b.sent, n.heard = time.Now().Add(-c.sent), time.Now().Add(-c.heard)
		n.late(b)
		if c.waits {
			if b.finished || hungUp != nil || !b.timer.Stop() {
				t.Errorf("%s: it is given up, or is not looked at again: %v", name, hungUp)
			}
			continue
		}
		if err := b.wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		var d limiter.Decision
		if f, err := b.got.decision(b.place(ticket.index), &limiter.Request{}, &d); f != unknown || err == nil {
			t.Errorf("%s: its fate is %v, %v", name, f, err)
		}
		if errors.Is(hungUp, errSilent) != c.silent || (n.condition == down) != c.silent || client.pending != 0 {
			t.Errorf("%s: hung up for %v, the node is %v", name, hungUp, n.condition)
		}
		n.condition = up
		id := b.message.Id
		next := sent(t, client, n)
		got, err := n.receive(&replies{all: []*weirv1.DecisionColumns{
			{Id: id, Flags: []byte{1}},
			{Id: next.batch.message.Id, Flags: []byte{1}, Remaining: []uint64{0}, LimitRefs: []uint32{0},
				ResetAfterUs: []int64{0}},
		}})
		if got != 2 || !errors.Is(err, io.EOF) || b.got.reply != nil || b.got.fate != unknown {
			t.Errorf("%s: %d replies, %v; the late one was read: %v", name, got, err, b.got.reply)
		}
		if f, err := next.batch.got.decision(0, &limiter.Request{}, &d); f != answered || err != nil || !d.Allowed {
			t.Errorf("%s: the next one: %v, %v", name, f, err)
		}
		n.late(b) // its timer comes late: nothing happens
		n.late(next.batch)
		if next.batch.got.fate != answered {
			t.Errorf("%s: an answer was taken back", name)
		}
	}
}

// TestAPanicOfTheTimer: a panic while a late message is given up ends that message with an
// error that has it, and leaves no lock behind. Without the guard it ends this process.
func TestAPanicOfTheTimer(t *testing.T) {
	client, n := bench()
	n.hangUp = func(error) { panic("a defect") }
	ticket := sent(t, client, n)
	b := ticket.batch
	b.sent = time.Now().Add(-2 * time.Hour)
	n.late(b)
	if err := b.wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	var d limiter.Decision
	f, err := b.got.decision(b.place(ticket.index), &limiter.Request{}, &d)
	if f != unknown || !errors.Is(err, errDefect) {
		t.Errorf("its fate is %v, %v", f, err)
	}
	if s := client.Stats(); s.Pending != 0 {
		t.Errorf("%d checks wait", s.Pending)
	}
}

// An owner is asked if it can be, and others in their order if not, and none twice.
func TestChoose(t *testing.T) {
	c := &Client{}
	for i, cond := range []condition{down, connecting, up, up} {
		c.nodes = append(c.nodes, &node{client: c, index: i, addr: string(rune('a' + i)), condition: cond, why: errSilent})
	}
	for _, step := range []struct {
		owner int
		want  []string
	}{{3, []string{"d", "c", "b", "c"}}, {2, []string{"c", "d", "b", "c"}}, {0, []string{"c", "d", "b", "c"}},
		{1, []string{"c", "d", "b", "c"}}} {
		tries := tries{owner: c.nodes[step.owner]}
		for i, want := range step.want {
			n, err := c.choose(&tries)
			if err != nil || n.addr != want {
				t.Errorf("owner %d, try %d: %v, %v, want %s", step.owner, i, n, err, want)
				break
			}
			tries.note(n, errSilent)
		}
	}
	for _, n := range c.nodes {
		n.condition = down
	}
	for i, n := range c.nodes {
		n.why = fmt.Errorf("node %s: %w", n.addr, []error{errDefect, errSilent}[i/2])
	}
	_, err := c.choose(&tries{owner: c.nodes[0]})
	if want := fmt.Sprintf("%v: node a: %v; node b: %v; node c: %v; node d: %v", ErrUnavailable, errDefect, errDefect,
		errSilent, errSilent); !errors.Is(err, ErrUnavailable) || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	for range 20 {
		c.nodes = append(c.nodes, c.nodes[0])
	}
	if _, err := c.choose(&tries{}); !strings.HasSuffix(err.Error(), "; and 16 more nodes") ||
		strings.Count(err.Error(), "node a") != 5 {
		t.Error(err)
	}
	if _, err := c.choose(&tries{err: c.nodes[0].why}); !strings.Contains(err.Error(), "node d") {
		t.Error(err)
	}
	// A check that is not tried again names all nodes that it has asked.
	var few tries
	few.note(c.nodes[1], c.nodes[1].why)
	few.note(c.nodes[2], c.nodes[2].why)
	if err := few.failed(); !errors.Is(err, ErrUnavailable) || !errors.Is(err, errSilent) ||
		!strings.Contains(err.Error(), "node b") || !strings.Contains(err.Error(), "node c") {
		t.Error(err)
	}
}

// A message that waits to be sent when it is late is given up undecided, and the
// others of the queue stay.
func TestLateInTheQueue(t *testing.T) {
	c, n := bench()
	first, err := c.add(kind{}, &limiter.Request{Path: "/"}, 1, &tries{})
	if err != nil {
		t.Fatal(err)
	}
	second, err := c.add(kind{peek: true}, &limiter.Request{Path: "/"}, 1, &tries{})
	if err != nil {
		t.Fatal(err)
	}
	n.late(first.batch)
	if first.batch.got.fate != undecided || c.pending != 1 || len(n.queue) != 1 || n.queue[0] != second.batch {
		t.Errorf("%+v", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := second.batch.wait(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	n.fail(ErrClosed)
	if second.batch.got.fate != undecided || c.pending != 0 || len(n.queue) != 0 {
		t.Errorf("%+v", n)
	}
}

// TestUncountedIsPromisedForAllAttempts: after an attempt that may have counted a check, no
// error says that nothing was counted, whatever the next attempt ends with.
func TestUncountedIsPromisedForAllAttempts(t *testing.T) {
	promises := []error{ErrBusy, ErrUnavailable, ErrInvalid, ErrDenied}
	for name, row := range map[string]struct {
		second func(*Client, *node) // what the second attempt meets; called before it
		reply  error                // the answer to it, if it is sent
		also   error
	}{
		"too many wait":    {second: func(c *Client, _ *node) { c.config.MaxPending = 0 }},
		"closed":           {second: func(c *Client, _ *node) { c.closed = true }, also: ErrClosed},
		"no node is up":    {second: func(_ *Client, n *node) { n.condition, n.why = down, errSilent }},
		"invalid there":    {reply: &nodeError{"no such rule", ErrInvalid}},
		"not allowed":      {reply: &nodeError{"no resets", ErrDenied}},
		"not decided then": {reply: &nodeError{"not now", ErrUnavailable}},
	} {
		for _, batch := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				c, n := bench()
				ended := make(chan error, 1)
				go func() {
					if !batch {
						ended <- c.ask(t.Context(), &limiter.Request{Path: "/"}, new(limiter.Decision), false)
						return
					}
					var bad *BatchError
					if errors.As(c.CheckBatchInto(t.Context(), make([]limiter.Request, 1), make([]limiter.Decision, 1)), &bad) {
						ended <- bad.Errs[0]
						return
					}
					ended <- nil
				}()
				synctest.Wait()
				c.release(n.next())
				if row.second != nil {
					row.second(c, n)
				}
				n.land(errors.New("the connection broke"), false)
				synctest.Wait()
				if row.reply != nil {
					c.release(n.next())
					fate := answered
					if errors.Is(row.reply, ErrUnavailable) {
						fate = undecided
						c.again = -1 // no third attempt
					}
					flight := n.flight
					n.flight = nil
					c.settle(flight, fate, row.reply)
				}
				err := <-ended
				if !errors.Is(err, ErrUnanswered) || row.also != nil && !errors.Is(err, row.also) {
					t.Errorf("%s, batch %t: %v", name, batch, err)
				}
				for _, promise := range promises {
					if errors.Is(err, promise) {
						t.Errorf("%s, batch %t: %q promises that nothing was counted", name, batch, err)
					}
				}
				if row.reply != nil && !strings.Contains(err.Error(), row.reply.Error()) {
					t.Errorf("%s, batch %t: %q does not say what the second node said", name, batch, err)
				}
			})
		}
	}
	fresh := tries{}
	for _, err := range append(promises, ErrClosed) {
		if got := fresh.because(err); !errors.Is(got, err) || errors.Is(got, ErrUnanswered) {
			t.Errorf("without such an attempt %v became %v", err, got)
		}
	}
}

// A check that has failed looks how many nodes there are while the ring brings others
// and lets some go: the race detector must find nothing. Nothing but the lock orders
// the two, so that it sees every look without it, whichever of them is first.
func TestTriesWhileNodesChange(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c, n := bench()
	var meeting sync.WaitGroup
	defer func() {
		meeting.Wait()
		cancel()
		c.streams.Wait()
	}()
	turn := func(addr string) {
		meeting.Go(func() {
			if _, err := c.meet(ctx, []*weirv1.RingMember{{Name: "b", GrpcAddr: addr}}); err != nil {
				t.Error(err)
			}
		})
	}
	var tries tries
	turn("127.0.0.1:1")
	if !tries.again(c, &batch{node: n, begun: time.Now()}, new(limiter.Request), undecided, errSilent) {
		t.Error("the only node that was tried is not asked again")
	}
	meeting.Wait() // the next lock would order them
	turn("127.0.0.1:2")
	asked := 0
	err := c.alone(ctx, func(context.Context, weirv1.LimiterClient, ...grpc.CallOption) error {
		asked++
		turn(fmt.Sprint("127.0.0.1:", 2+asked))
		return status.Error(codes.Unavailable, "not now")
	})
	if !errors.Is(err, ErrUnavailable) || asked < 1 || asked > 2 {
		t.Errorf("a call by itself was made %d times: %v", asked, err)
	}
}

// FuzzReply: whatever a node replies, it is refused or can be read.
func FuzzReply(f *testing.F) {
	whole := &weirv1.DecisionColumns{
		Id: 1, Flags: []byte{1, 128}, Remaining: []uint64{5, 0}, LimitRefs: []uint32{1, 0}, ResetAfterUs: []int64{9, 0},
		Limits: []*weirv1.LimitInfo{{Rule: "a", Name: "b", Algorithm: 3, Limit: 9, Capacity: 9, WindowUs: 1e6}},
		Errors: []*weirv1.ColumnsError{{Code: 14, Checks: []uint32{1}}},
		EveryLimit: &weirv1.LimitColumns{Counts: []uint32{1, 0}, LimitIndexes: []uint32{0}, Flags: []byte{1},
			Remaining: []uint64{1}, ResetAfterUs: []int64{1}, RetryAfterUs: []int64{1}, Costs: []uint64{1},
			KeyIndexes: []uint32{1}, RuleRefs: []uint32{1, 0}, RuleNames: []string{"a"}},
	}
	for _, m := range []*weirv1.DecisionColumns{whole, {Error: &weirv1.CheckError{Code: 3, Message: "no"}}, {}} {
		data, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var m weirv1.DecisionColumns
		if proto.Unmarshal(data, &m) != nil {
			return
		}
		var all names
		b := batch{n: 2}
		if b.got.read(&m, b.n, &all) != nil {
			return
		}
		for i := range 2 {
			var d limiter.Decision
			r := limiter.Request{Cost: limiter.Units(1)}
			if f, err := b.got.decision(b.place(i), &r, &d); f == answered && err == nil {
				for j := range d.Len() {
					if l := d.Limit(j); l.Rule == nil || l.Limit == nil {
						t.Errorf("limit %d of check %d is nobody's", j, i)
					}
				}
			}
		}
	})
}
