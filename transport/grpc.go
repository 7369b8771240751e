package transport

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc/mem"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/listen"
	"github.com/weirlimit/weir/internal/weirwire"
	"github.com/weirlimit/weir/limiter"
)

// check is the memory of one call of Check, with its request and response.
type check struct {
	service  *service
	request  limiter.Request
	peek     bool
	full     *weirwire.Full // set if the request needs the protobuf library
	hold     listen.Hold
	refused  error // why it is not decoded, nil if it is
	decision limiter.Decision
}

// readWire implements wireReader.
func (c *check) readWire(text string) {
	c.hold.Bytes = len(text)
	c.refused = c.hold.Add(weightOf(len(text), 1, 0))
	if c.refused == nil {
		var err error
		c.peek, c.full, err = weirwire.ReadCheck(text, &c.request)
		c.refused = undecodable(err)
	}
}

// wire implements wireWriter and returns the memory to the pool.
func (c *check) wire() mem.BufferSlice {
	out := c.service.encoder.AppendResponse(make([]byte, 0, usualResponse), &c.request, &c.decision)
	out = weirwire.AppendReceipt(out, c.service.receiptOf(c.full.Receipt(), &c.request, &c.decision))
	var b mem.Buffer = mem.SliceBuffer(out)
	if !mem.IsBelowBufferPoolingThreshold(cap(out)) { // long keys of many limits
		b = c.service.answers.BufferOf(&out, &c.hold)
	}
	c.keep()
	return mem.BufferSlice{b}
}

// keep returns the memory of the call to the pool.
func (c *check) keep() {
	c.hold.Clear()
	c.service.checks.Put(c)
}

// usualResponse is enough bytes for most responses.
const usualResponse = 192

// serveCheck is the gRPC method Check.
func (s *service) serveCheck(ctx context.Context, decode func(any) error) (any, error) {
	c := s.checks.Get().(*check)
	c.hold.Context = ctx
	if err := c.serve(ctx, decode); err != nil {
		c.keep()
		return nil, err
	}
	return c, nil
}

// serve decodes and decides the request, and gives its room back.
func (c *check) serve(ctx context.Context, decode func(any) error) error {
	defer c.hold.Release()
	if err := decode(c); err != nil {
		return err
	}
	begin := c.service.begin()
	return c.service.end("Check", begin, c.decide(ctx, begin))
}

func (c *check) decide(ctx context.Context, begin time.Time) error {
	by, err := c.service.identifyAt(ctx, begin)
	if err != nil {
		return err
	}
	if c.refused != nil {
		return spendUnread(&by, &c.hold, c.refused)
	}
	if err := by.Spend(1, c.hold.Bytes); err != nil {
		return err
	}
	if c.full != nil {
		if err := c.service.fillFull(&c.request, c.full); err != nil {
			return err
		}
	}
	if err := by.AdmitCheck(&c.request, c.peek, c.full.Receipt()); err != nil {
		return err
	}
	if err := by.About(&c.request, c.full.Tenant(), frontend.CheckOrPeek(c.peek)); err != nil {
		return err
	}
	return by.Check(ctx, &c.request, &c.decision, c.peek)
}

// batchCall is one call of CheckBatch, with its request and response.
type batchCall struct {
	*turn
	service *service
	n       int
	hold    listen.Hold
	unread  error // why it is not decoded, nil if it is
	out     mem.Buffer
}

// readWire implements wireReader.
func (c *batchCall) readWire(text string) {
	c.hold.Bytes = len(text)
	if c.n, c.unread = c.readBatch(text, &c.hold); !listen.LacksRoom(c.unread) {
		c.unread = undecodable(c.unread)
	}
}

// wire implements wireWriter.
func (c *batchCall) wire() mem.BufferSlice { return mem.BufferSlice{c.out} }

// serveBatch is the gRPC method CheckBatch.
func (s *service) serveBatch(ctx context.Context, decode func(any) error) (any, error) {
	c := &batchCall{turn: s.turns.Get().(*turn), service: s, hold: listen.Hold{Room: &s.room, Context: ctx}}
	defer c.hold.Release()
	err := decode(c)
	if err == nil {
		begin := s.begin()
		err = s.end("CheckBatch", begin, c.check(ctx))
	}
	s.turns.Put(c.turn) // not reached after a panic, which leaves the turn in an unknown state
	c.turn = nil
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (c *batchCall) check(ctx context.Context) error {
	s := c.service
	by, err := s.identify(ctx)
	switch {
	case err != nil:
	case c.unread != nil:
		err = spendUnread(&by, &c.hold, c.unread)
	case c.n > MaxBatch:
		err = spendUnread(&by, &c.hold, weirwire.TooLarge(c.n))
	default:
		err = by.Spend(c.n, c.hold.Bytes)
	}
	if err != nil {
		return err
	}
	n := c.fillFulls(&by)
	c.failed, c.errs = c.failed[:0], c.errs[:0]
	var peeks []bool
	if len(c.peeks) > 0 {
		peeks = make([]bool, n)
		for i := range peeks {
			_, peeks[i] = slices.BinarySearch(c.peeks, c.place(i))
		}
	}
	err = c.decide(ctx, &by, n, peeks)
	s.audited.part(ctx, c.refused, c.errs)
	if err != nil {
		return err
	}
	c.hold.Widen(c.widest(n))
	out := s.answers.Empty()
	*out = c.appendResults(*out)
	c.out = s.answers.BufferOf(out, &c.hold)
	return nil
}

// fillFulls fills in the requests that the protobuf library decoded. It removes invalid
// ones and those that the caller may not send, and adds them to refused. It returns how
// many requests remain.
func (c *batchCall) fillFulls(by *frontend.Session) (n int) {
	c.refused = c.refused[:0]
	for _, f := range c.fulls {
		r := &c.requests[f.at]
		if err := c.service.fillFull(r, f.Full); err != nil {
			c.refused = append(c.refused, refusal{f.at, err})
		}
	}
	if by.Identified() {
		c.refused = c.admit(by)
	}
	if len(c.refused) == 0 {
		return c.n
	}
	next := c.refused
	for i := range c.n {
		if len(next) > 0 && next[0].at == i {
			next = next[1:]
			continue
		}
		c.requests[n] = c.requests[i]
		n++
	}
	return n
}

// appendResults encodes the results as a CheckBatchResponse.
func (c *batchCall) appendResults(dst []byte) []byte {
	refused, failed, fulls := c.refused, c.failed, c.fulls
	asked := 0
	for i := range c.n {
		var full *weirwire.Full
		if len(fulls) > 0 && fulls[0].at == i {
			full, fulls = fulls[0].Full, fulls[1:]
		}
		switch {
		case len(refused) > 0 && refused[0].at == i:
			dst = weirwire.AppendErrorResult(dst, refused[0].err)
			refused = refused[1:]
		case len(failed) > 0 && failed[0] == asked:
			dst = weirwire.AppendErrorResult(dst, c.errs[len(c.failed)-len(failed)])
			failed = failed[1:]
			asked++
		default:
			r, d := &c.requests[asked], &c.decisions[asked]
			dst = c.service.encoder.AppendResult(dst, r, d, c.service.receiptOf(full.Receipt(), r, d))
			asked++
		}
	}
	return dst
}

// admit admits the requests of a batch. It returns which of them are refused, ascending:
// those that were, and those that the caller may not send.
func (c *batchCall) admit(by *frontend.Session) []refusal {
	out := make([]refusal, 0, len(c.refused))
	refused, fulls, peeks := c.refused, c.fulls, c.peeks
	for i := range c.n {
		peek, receipt, tenant := len(peeks) > 0 && peeks[0] == i, false, ""
		if peek {
			peeks = peeks[1:]
		}
		if len(fulls) > 0 && fulls[0].at == i {
			receipt, tenant, fulls = fulls[0].Receipt(), fulls[0].Tenant(), fulls[1:]
		}
		if len(refused) > 0 && refused[0].at == i {
			out, refused = append(out, refused[0]), refused[1:]
			continue
		}
		err := by.AdmitCheck(&c.requests[i], peek, receipt)
		if err == nil {
			err = by.About(&c.requests[i], tenant, frontend.CheckOrPeek(peek))
		}
		if err != nil {
			out = append(out, refusal{i, err})
		}
	}
	return out
}
