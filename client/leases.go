package client

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/lease"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

const (
	// maxLeases is the most leases that a message asks for, and that it returns: more are refused.
	maxLeases = 256
	// lookAt is how often leases are looked at that nobody uses, since they end.
	lookAt = 10 * time.Millisecond
	// otherHolders is how many others a client expects to borrow of a key. It asks for an eighth of what was left then: an
	// owner lends a client no more than a quarter of what is left when it is asked.
	otherHolders = 4
	// lendsAgain is when a rule that lends nothing is asked for units again.
	lendsAgain = limiter.Minute
)

// leases are the units that owners have lent the client. It is safe for concurrent use.
type leases struct {
	clocks
	held    lease.Holder
	client  *Client
	wake    chan struct{}
	refused refusal // of any node, where the owner is not known

	once   sync.Once // for ending
	ending chan struct{}
	ended  chan struct{}
	calls  sync.WaitGroup // begun by run alone

	mu    sync.Mutex
	loans map[*lease.Lease]*loan
	queue []*loan // to be asked for, or to be returned
	busy  map[place]bool
}

// refusal is until when a node is not asked for leases, by the clock of Instant.Now.
type refusal struct{ atomic.Int64 }

// refusal returns that of a node, nil for any.
func (x *leases) refusal(n *node) *refusal {
	if n == nil {
		return &x.refused
	}
	return &n.refuses
}

// place is what the leases of a message have in common.
type place struct {
	at   *node // nil: any
	rule string
	span limiter.Tick
}

// loan is a lease with what is needed to ask for it and to return it.
type loan struct {
	*lease.Lease
	place
	request limiter.Request // with the id and the units of the lease, and memory of its own
	view    uint64          // of the ring by which its key is known
	granted bool            // it is to be returned
	again   bool            // that was tried once
}

func newLeases(c *Client) *leases {
	x := &leases{client: c, wake: make(chan struct{}, 1), ending: make(chan struct{}),
		ended: make(chan struct{}), loans: make(map[*lease.Lease]*loan), busy: make(map[place]bool)}
	x.began = time.Now()
	x.now()
	return x
}

// decide decides a request of one key by a lease, and reports whether it did.
func (x *leases) decide(of *resolved, r *limiter.Request, d *limiter.Decision) bool {
	now := x.soon()
	k := of.charge.Key(0)
	if of.warm = x.held.Warm(now.Now, k.Hash); !of.warm || now.Now < limiter.Tick(x.refusal(of.owner()).Load()) {
		return false
	}
	done, w := x.held.Decide(now, k, otherHolders, d)
	if w.Units > 0 || w.Over != nil {
		x.note(now, of, r, w)
	}
	if !done {
		return false
	}
	d.Receipt = limiter.Receipt{}
	if !x.client.config.EveryLimit {
		onlyLeast(d)
	}
	d.Rule = of.rule
	return true
}

// note puts a wish, and a lease that is over, into the queue.
func (x *leases) note(now lease.Instant, of *resolved, r *limiter.Request, w lease.Wish) {
	x.mu.Lock()
	x.put(x.loans[w.Over])
	if w.Units > 0 {
		number, id := x.client.ids.make()
		span := lease.Span(of.charge)
		l := &loan{Lease: x.held.Ask(now, of.charge.Key(0), w.Units, number, span), request: clone(r),
			view: of.ring.view, place: place{of.owner(), r.Rule, span}}
		l.request.ID, l.request.Cost = string(id[:]), limiter.Units(int64(w.Units))
		x.loans[l.Lease] = l
		x.put(l)
	}
	x.mu.Unlock()
	x.notify()
}

// put adds a loan to the queue; nil is none. The lock is held.
func (x *leases) put(l *loan) {
	if l != nil {
		x.queue = append(x.queue, l)
	}
}

// clone returns a request with memory of its own, without what only one check has.
func clone(r *limiter.Request) limiter.Request {
	return limiter.Request{
		Path: strings.Clone(r.Path), Method: strings.Clone(r.Method), User: strings.Clone(r.User), IP: strings.Clone(r.IP),
		Group: strings.Clone(r.Group), Rule: strings.Clone(r.Rule), Attributes: cloned(r.Attributes),
	}
}

func cloned(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	out := make(map[string]string, len(m))
	for name, value := range m {
		out[strings.Clone(name)] = strings.Clone(value)
	}
	return out
}

func (x *leases) notify() {
	select {
	case x.wake <- struct{}{}:
	default: // a token is there already
	}
}

// run asks for leases and returns them, until the client is closed. Then it returns all, for at most as long as a node
// is waited for twice.
func (x *leases) run(ctx context.Context) {
	defer close(x.ended)
	defer catch(func(error) { x.held.Close() }) // it borrows no more; owners charge what is lent
	look := time.NewTimer(time.Hour)
	defer look.Stop()
	for {
		select {
		case <-x.wake:
		case <-look.C:
		case <-x.ending:
			x.held.Close()
			until := time.Now().Add(2 * x.client.attempt)
			for again := true; again; again = x.left() && time.Now().Before(until) {
				x.send(ctx)
				x.calls.Wait()
			}
			return
		}
		if x.send(ctx) {
			look.Reset(lookAt)
		}
	}
}

// left reports whether there is something to send.
func (x *leases) left() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.queue) > 0
}

// end returns all leases. A second call waits for the first.
func (x *leases) end() {
	x.once.Do(func() { close(x.ending) })
	<-x.ended
}

type message struct{ asked, returned []*loan }

// send sends what is in the queue, and returns the leases whose time is over. It reports whether it is to look again.
// Of those that have a place in common one message at a time is under way.
func (x *leases) send(ctx context.Context) (more bool) {
	over, more := x.held.Ended(x.now())
	all := make(map[place]*message)
	now, late := x.now(), []*loan(nil)
	x.mu.Lock()
	for _, l := range over {
		x.put(x.loans[l])
	}
	rest := x.queue[:0]
	for _, l := range x.queue {
		m := all[l.place]
		switch {
		case !l.granted && (now.Now >= l.Until.Now || x.held.Closed()):
			late = append(late, l)
			continue
		case x.busy[l.place]:
			rest = append(rest, l)
			continue
		case m == nil:
			m = new(message)
			all[l.place] = m
		}
		to := &m.asked
		if l.granted {
			to = &m.returned
		}
		if len(*to) == maxLeases {
			rest = append(rest, l)
		} else {
			*to = append(*to, l)
		}
	}
	clear(x.queue[len(rest):])
	x.queue = rest
	for p := range all {
		x.busy[p] = true
	}
	x.mu.Unlock()
	for _, l := range late { // nobody was asked for it
		x.unused(l)
	}
	for p, m := range all {
		x.calls.Go(func() {
			defer catch(func(error) { // the owners charge what is lost
				for _, l := range slices.Concat(m.asked, m.returned) {
					x.unused(l)
				}
			})
			x.exchange(ctx, p, m)
		})
	}
	return more
}

// exchange sends one message and hears its answer.
func (x *leases) exchange(ctx context.Context, p place, m *message) {
	key := p
	defer func() {
		x.mu.Lock()
		delete(x.busy, key)
		x.mu.Unlock()
		x.notify()
	}()
	var wishes, ends batch
	asked := x.fill(&wishes, m.asked, func(l *loan) uint64 { return l.Units })
	returned := x.fill(&ends, m.returned, func(l *loan) uint64 { return x.held.Used(l.Lease) })
	q := new(weirv1.LeaseRequest)
	if len(asked) > 0 {
		q.Asked = &wishes.message
		q.Asked.Rule, q.Asked.HoldUs = p.rule, int64(arith.LeaseWait*p.span)
	}
	if len(returned) > 0 {
		q.Returned = &ends.message
		q.Returned.Rule = p.rule
	}
	out, f, err := x.call(ctx, &p.at, q)
	for i, l := range returned {
		if err != nil && f != answered && !l.again { // another node may know the owner
			x.mu.Lock()
			l.again, l.at = true, nil
			x.put(l)
			x.mu.Unlock()
			continue
		}
		x.over(l, err == nil && i < len(out.GetReturned()) && out.GetReturned()[i] == 1)
	}
	if len(asked) == 0 {
		return
	}
	if err == nil {
		if err = wishes.got.read(out.GetAsked(), wishes.n, &x.client.names); err != nil {
			f = unknown
		} else {
			f, err = wishes.got.fate, wishes.got.err
		}
	}
	if err != nil {
		x.stop(p.at, err)
	}
	for i, l := range asked {
		x.answered(l, f, err, &wishes, i, out.GetAsked().GetView())
	}
}

// fill writes loans into the columns of a message, each with its units. Those for which there is no room go back to
// the queue.
func (x *leases) fill(b *batch, all []*loan, units func(*loan) uint64) (in []*loan) {
	b.message.IdTtlUs = time.Second.Microseconds()
	for _, l := range all {
		r := l.request
		r.Cost = limiter.Units(int64(units(l)))
		size, _ := sizeOf(&r) // it was sent before, or is like one that was
		if !b.fits(&x.client.config, &r, size) {
			x.mu.Lock()
			x.put(l)
			x.mu.Unlock()
			continue
		}
		b.add(&r, &identified{}, size)
		in = append(in, l)
	}
	return in
}

// call makes a call to a node, nil for any. If it asks another one, it writes that to at.
func (x *leases) call(ctx context.Context, at **node, m *weirv1.LeaseRequest) (out *weirv1.LeaseResponse, f fate,
	err error) {
	c, n := x.client, *at
	c.mu.Lock()
	if n == nil || n.condition != up { // it may have left
		n, err = c.choose(&tries{})
	}
	c.mu.Unlock()
	if err != nil {
		return nil, undecided, err
	}
	within, cancel := context.WithTimeout(ctx, c.attempt)
	defer cancel()
	knows := true
	f, err = c.call(within, n, c.attempt, func(ctx context.Context, api weirv1.LimiterClient,
		o ...grpc.CallOption) (err error) {
		out, err = api.Lease(ctx, m, o...)
		knows = status.Code(err) != codes.Unimplemented
		return err
	})
	if *at != nil {
		*at = n
	}
	if !knows {
		return nil, answered, errLendsNot
	}
	return out, f, err
}

// errLendsNot is the error of a node of a version that lends nothing to clients.
var errLendsNot = errors.New("the node lends nothing to clients")

// stop asks a node for no more leases for a while, if it lends nothing to this client.
func (x *leases) stop(n *node, err error) {
	if errors.Is(err, ErrDenied) || errors.Is(err, ErrInvalid) || errors.Is(err, errLendsNot) {
		x.refusal(n).Store(int64(x.now().Now + lendsAgain))
	}
}

// answered hears what became of a lease that was asked for: check i of a message. The error is of the message as a
// whole.
func (x *leases) answered(l *loan, f fate, err error, b *batch, i int, view uint64) {
	var d limiter.Decision
	span := l.span
	if err == nil {
		if f, err = b.got.decision(b.place(i), &l.request, &d); errors.Is(err, ErrInvalid) || errors.Is(err, ErrDenied) {
			span = lendsAgain // this rule lends nothing
		}
	}
	lent := err == nil && d.Allowed
	x.mu.Lock()
	l.granted = lent || f == unknown // before it is used, and so can end
	x.mu.Unlock()
	if err != nil || !x.same(l, view, &d) {
		d.Refuse()
	}
	switch used := x.held.Answered(x.now(), l.Lease, span, &d); {
	case used:
		x.notify() // it ends
	case lent, f == unknown: // it may be lent although nobody uses it
		x.mu.Lock()
		x.put(l)
		x.mu.Unlock()
	default:
		x.over(l, true)
	}
}

// same reports whether a decision is of the rule by which a lease is used, which its limits get.
func (x *leases) same(l *loan, view uint64, d *limiter.Decision) bool {
	limits := l.Key.Rule.Limits
	if view != l.view || d.Len() != len(limits) {
		return false
	}
	for i, limit := range limits {
		is := d.Limit(i)
		if is.Rule.Name != l.Key.Rule.Name || is.Limit.Name() != limit.Name() || is.Cost != l.Units {
			return false
		}
		is.Rule, is.Limit = l.Key.Rule, limit
	}
	return true
}

// unused ends a loan that nobody uses.
func (x *leases) unused(l *loan) {
	var d limiter.Decision
	d.Refuse()
	x.held.Answered(x.now(), l.Lease, l.span, &d)
	x.over(l, !l.granted)
}

// over forgets a loan.
func (x *leases) over(l *loan, known bool) {
	x.held.Returned(l.Lease, known, limiter.Receipt{})
	x.mu.Lock()
	delete(x.loans, l.Lease)
	x.mu.Unlock()
}

// heard hears what an owner has answered to a request of a warm key.
func (x *leases) heard(of *resolved, d *limiter.Decision) {
	if of.warm && d.Source == limiter.SourceOwner && !d.Repeated {
		x.held.Heard(of.charge.Key(0), d)
	}
}

// lent returns how many units of keys are lent to the client, or may be.
func (x *leases) lent() (units uint64) {
	for _, l := range x.held.List() {
		units += l.Units
	}
	return units
}
