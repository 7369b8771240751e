package transport

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	fields "github.com/weirlimit/weir/internal/front"
	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/frontend/overgrpc"
	"github.com/weirlimit/weir/internal/guard"
	"github.com/weirlimit/weir/internal/listen"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// service is weir.v1.Limiter. It is safe for concurrent use.
type service struct {
	weirv1.UnimplementedLimiterServer

	front    *frontend.Frontend
	decider  Decider  // of front
	observer Observer // may be nil
	guard    *guard.Guard
	ring     Ring // nil: not published

	// appendKeyName is the decider's AppendKeyName, which allocates no string; nil if
	// it has none.
	appendKeyName func(dst []byte, r *limiter.Request, l *limiter.LimitDecision) []byte

	room    listen.Room // for large messages
	answers listen.Answers
	checks  sync.Pool // of *check
	turns   sync.Pool // of *turn
}

func newService(o Options) *service {
	s := &service{
		front: newFrontend(&o, "grpc"), decider: o.Decider, observer: o.Observer, guard: o.guard(), ring: o.Ring,
		turns: sync.Pool{New: func() any { return new(turn) }},
	}
	s.room.Most = cmp.Or(o.MaxDecodingBytes, defaultDecoding)
	s.checks.New = func() any { return &check{service: s, hold: listen.Hold{Room: &s.room}} }
	if n, ok := o.Decider.(KeyAppender); ok {
		s.appendKeyName = n.AppendKeyName
	}
	return s
}

// description returns the service description for gRPC. In it, unary calls encode and
// decode their messages themselves.
func (s *service) description() *grpc.ServiceDesc {
	desc := weirv1.Limiter_ServiceDesc
	desc.Methods = slices.Clone(desc.Methods)
	for i := range desc.Methods {
		switch m := &desc.Methods[i]; m.MethodName {
		case "Check":
			m.Handler = s.guarded(ActionCheck, false, traced(s.front, "Check", s.serveCheck))
		case "CheckBatch":
			m.Handler = s.guarded(ActionCheck, false, traced(s.front, "CheckBatch", s.serveBatch))
		case "Explain":
			m.Handler = s.guarded(ActionExplain, false, traced(s.front, "Explain", s.serveExplain))
		case "Reset":
			m.Handler = s.guarded(ActionReset, true, traced(s.front, "Reset", s.serveReset))
		case "Refund":
			m.Handler = s.guarded(ActionRefund, true, traced(s.front, "Refund", s.serveRefund))
		case "Settle":
			m.Handler = s.guarded(ActionRefund, false, traced(s.front, "Settle", s.serveReservation("Settle", func() aboutReservation { return new(weirv1.SettleRequest) })))
		case "Cancel":
			m.Handler = s.guarded(ActionRefund, false, traced(s.front, "Cancel", s.serveReservation("Cancel", func() aboutReservation { return new(weirv1.CancelRequest) })))
		case "Extend":
			m.Handler = s.guarded(ActionRefund, false, traced(s.front, "Extend", s.serveReservation("Extend", func() aboutReservation { return new(weirv1.ExtendRequest) })))
		}
	}
	return &desc
}

// guarded makes a handler of a method of the service. It recovers from panics itself,
// without an interceptor; a panic ends the call. It tells the auditor of the call, whatever
// became of it if it is accounted, and else if it was refused.
func (s *service) guarded(action Action, accounted bool, serve unary) grpc.MethodHandler {
	return func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (out any, err error) {
		defer s.guard.Recover(guard.GRPC, func(e error) { out, err = nil, overgrpc.Status(internalError{e}) })
		out, err = serve(ctx, decode)
		done, _ := out.(encodedReply)
		s.account(ctx, action, accounted, done.why, err)
		if code := status.Code(err); code == codes.Unavailable || code == codes.ResourceExhausted {
			// gRPC has these codes for connections that break, too.
			_ = grpc.SetTrailer(ctx, undecided()) // without it the client takes the call for one that may be decided
		}
		return out, err
	}
}

// check is the memory of one call of Check, with its request and response.
type check struct {
	service  *service
	request  limiter.Request
	peek     bool
	full     *fullRequest // set if the request needs the protobuf library
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
		c.peek, c.full, err = readCheck(text, &c.request)
		c.refused = undecodable(err)
	}
}

// wire implements wireWriter and returns the memory to the pool.
func (c *check) wire() mem.BufferSlice {
	out := c.service.appendResponse(make([]byte, 0, usualResponse), &c.request, &c.decision)
	out = c.service.appendReceipt(out, c.full.receipt(), &c.request, &c.decision)
	var b mem.Buffer = mem.SliceBuffer(out)
	if !mem.IsBelowBufferPoolingThreshold(cap(out)) { // long keys of many limits
		b = c.service.answers.BufferOf(&out, &c.hold)
	}
	c.service.keepCheck(c)
	return mem.BufferSlice{b}
}

// keepCheck returns the memory of a call to the pool.
func (s *service) keepCheck(c *check) {
	c.hold.Clear()
	s.checks.Put(c)
}

// usualResponse is enough bytes for most responses.
const usualResponse = 192

// serveCheck is the gRPC method Check.
func (s *service) serveCheck(ctx context.Context, decode func(any) error) (any, error) {
	c := s.checks.Get().(*check)
	c.hold.Context = ctx
	if err := s.decideCheck(ctx, c, decode); err != nil {
		s.keepCheck(c)
		return nil, err
	}
	return c, nil
}

// decideCheck decodes and decides a request, and gives its room back.
func (s *service) decideCheck(ctx context.Context, c *check, decode func(any) error) error {
	defer c.hold.Release()
	if err := decode(c); err != nil {
		return err
	}
	begin := s.begin()
	return s.end("Check", begin, s.check(ctx, c, begin))
}

func (s *service) check(ctx context.Context, c *check, begin time.Time) error {
	by, err := s.identifyAt(ctx, begin)
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
		if err := s.fillFull(&c.request, c.full); err != nil {
			return err
		}
	}
	if err := by.AdmitCheck(&c.request, c.peek, c.full.receipt()); err != nil {
		return err
	}
	if err := by.About(&c.request, c.full.tenant(), frontend.CheckOrPeek(c.peek)); err != nil {
		return err
	}
	return by.Check(ctx, &c.request, &c.decision, c.peek)
}

// batchCall is one call of CheckBatch, with its request and response.
type batchCall struct {
	service *service
	*turn
	n      int
	hold   listen.Hold
	unread error // why it is not decoded, nil if it is
	out    mem.Buffer
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
	c := &batchCall{service: s, turn: s.turns.Get().(*turn), hold: listen.Hold{Room: &s.room, Context: ctx}}
	defer c.hold.Release()
	err := decode(c)
	if err == nil {
		begin := s.begin()
		err = s.end("CheckBatch", begin, s.checkBatch(ctx, c))
	}
	s.turns.Put(c.turn) // not reached after a panic, which leaves the turn in an unknown state
	c.turn = nil
	if err != nil {
		return nil, err
	}
	return c, nil
}

// checkBatch decides a batch and writes the response.
func (s *service) checkBatch(ctx context.Context, c *batchCall) error {
	by, err := s.identify(ctx)
	switch {
	case err != nil:
	case c.unread != nil:
		err = spendUnread(&by, &c.hold, c.unread)
	case c.n > MaxBatch:
		err = spendUnread(&by, &c.hold, tooLarge(c.n))
	default:
		err = by.Spend(c.n, c.hold.Bytes)
	}
	if err != nil {
		return err
	}
	n := s.fillFulls(c, &by)
	c.failed, c.errs = c.failed[:0], c.errs[:0]
	var peeks []bool
	if len(c.peeks) > 0 {
		peeks = make([]bool, n)
		for i := range peeks {
			_, peeks[i] = slices.BinarySearch(c.peeks, c.place(i))
		}
	}
	err = c.decide(ctx, &by, n, peeks)
	s.accountPart(ctx, c.refused, c.errs)
	if err != nil {
		return err
	}
	c.hold.Widen(c.widest(n))
	out := s.answers.Empty()
	*out = s.appendResults(*out, c)
	c.out = s.answers.BufferOf(out, &c.hold)
	return nil
}

// fillFulls fills in the requests that the protobuf library decoded. It removes invalid
// ones and those that the caller may not send, and adds them to refused. It returns how
// many requests remain.
func (s *service) fillFulls(c *batchCall, by *frontend.Session) (n int) {
	c.refused = c.refused[:0]
	for _, f := range c.fulls {
		r := &c.requests[f.at]
		if err := s.fillFull(r, f.fullRequest); err != nil {
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

// refusal is a check of a batch that is invalid.
type refusal struct {
	at  int
	err error
}

// place returns the index in the message of the i-th request that was decided.
func (t *turn) place(i int) int {
	for _, r := range t.refused {
		if r.at > i {
			break
		}
		i++
	}
	return i
}

// appendResults encodes the results of a batch as a CheckBatchResponse.
func (s *service) appendResults(dst []byte, c *batchCall) []byte {
	refused, failed, fulls := c.refused, c.failed, c.fulls
	asked := 0
	for i := range c.n {
		var full *fullRequest
		if len(fulls) > 0 && fulls[0].at == i {
			full, fulls = fulls[0].fullRequest, fulls[1:]
		}
		var at, in int
		dst, at = open(dst, responseResults)
		switch {
		case len(refused) > 0 && refused[0].at == i:
			dst, in = open(dst, resultError)
			dst = closed(appendError(dst, refused[0].err), in)
			refused = refused[1:]
		case len(failed) > 0 && failed[0] == asked:
			dst, in = open(dst, resultError)
			dst = closed(appendError(dst, c.errs[len(c.failed)-len(failed)]), in)
			failed = failed[1:]
			asked++
		default:
			dst, in = open(dst, resultDecision)
			dst = s.appendResponse(dst, &c.requests[asked], &c.decisions[asked])
			dst = closed(s.appendReceipt(dst, full.receipt(), &c.requests[asked], &c.decisions[asked]), in)
			asked++
		}
		dst = closed(dst, at)
	}
	return dst
}

func tooLarge(n int) error {
	return invalid("the batch has %d checks; at most %d are allowed", n, MaxBatch)
}

func checkError(err error) *weirv1.CheckError {
	return &weirv1.CheckError{Code: uint32(overgrpc.Code(err)), Message: errorText(err), RetryAfterUs: int64(limiter.Span(fields.RetryAfter(err)))}
}

// errorText returns the text of an error as UTF-8: protobuf encodes no other text, and
// the text of an error may have parts of a request.
func errorText(err error) string { return strings.ToValidUTF8(err.Error(), "\ufffd") }

// fullCall is a call whose request the protobuf library decodes.
type fullCall struct {
	message proto.Message
	parts   parts
	hold    listen.Hold
	refused error // why it is not decoded, nil if it is
}

// readWire implements wireReader.
func (c *fullCall) readWire(text string) {
	c.hold.Bytes = len(text)
	var err error
	if c.parts, err = countParts(bytesOf(text)); err != nil || c.parts.tooMany() {
		c.refused = undecodable(err) // of too many parts permit tells
		return
	}
	c.refused = c.hold.Add(weightOf(len(text), 1, 0) + c.parts.weight())
	if c.refused == nil {
		c.refused = undecodable(unmarshal(bytesOf(text), c.message))
	}
}

// receive decodes the message of a call of a method that began at an instant. It returns with what
// the call ends, nil if it is to be answered.
func (c *fullCall) receive(s *service, name string, begin time.Time, decode func(any) error) error {
	if err := decode(c); err != nil {
		return err // there is no message, and gRPC has said why
	}
	err := c.refused
	if err == nil {
		err = s.permit(c.parts)
	}
	if err == nil {
		return nil
	}
	return s.end(name, begin, s.unread(&c.hold, err))
}

// encodedReply is a reply of which nothing but its bytes is kept.
type encodedReply struct {
	out mem.Buffer
	why string // what the audit says of it, if it is accounted
}

func (r encodedReply) wire() mem.BufferSlice { return mem.BufferSlice{r.out} }

// encode encodes a reply, whose room stays taken until it is written.
func (s *service) encode(m proto.Message, h *listen.Hold) (any, error) {
	out, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	return encodedReply{out: s.answers.BufferOf(&out, h)}, nil
}

// begin returns the time if there is an observer.
func (s *service) begin() time.Time {
	if s.observer == nil {
		return time.Time{}
	}
	return time.Now()
}

// end reports a call to the observer and returns its error as a status.
func (s *service) end(method string, begin time.Time, err error) error {
	err = overgrpc.Status(err)
	if s.observer != nil {
		s.observer.Served(method, status.Code(err).String(), time.Since(begin))
	}
	return err
}
