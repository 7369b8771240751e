package envoy

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/envoy/config"
	"github.com/weirlimit/weir/internal/envoy/quota"
	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/listen"
	"github.com/weirlimit/weir/limiter"
)

const (
	// quotasAtOnce is how many buckets of a report are taken together.
	quotasAtOnce = 256
	// quotaMessage bounds a message to Envoy, in bytes, beyond that of one bucket.
	quotaMessage = 64 << 10
	// quotaDomain bounds the name of a domain, in bytes.
	quotaDomain = 1 << 10
	// ownersWithin is how long owners have to answer, so that the answers of some are used although others are silent.
	ownersWithin = 80 * time.Millisecond
	// reportWithin is how long a report is dealt with. What is left of it then is denied.
	reportWithin = 5 * time.Second
	// logQuotasEvery is how often what goes wrong with quotas is logged.
	logQuotasEvery = time.Minute
)

// QuotaStats are the statistics of [Quotas].
type QuotaStats struct {
	// Streams are those that are open, Buckets what they report, and Assigned the units a second that those may use.
	Streams, Buckets, Assigned int64
	// Allowed and Denied are the requests that were reported, Beyond those of them that were allowed beyond what was
	// assigned. Refused are reported buckets that were not kept.
	Allowed, Denied, Beyond, Refused uint64
}

// Quotas is Envoy's rate limit quota service, with the limits of a [Service]. It is safe for concurrent use.
type Quotas struct {
	of     *Service
	limits limits
	log    *slog.Logger
	begun  time.Time
	logged [logKinds]atomic.Int64 // when each of the texts was, in nanoseconds since begun
	// checked is the configuration whose limits were looked at, see check.
	checked atomic.Pointer[config.Config]
	// decoding are the bytes of reports that are dealt with, and room is what all buckets take.
	decoding listen.Room
	room     quota.Room

	streams, buckets, assigned       atomic.Int64
	allowed, denied, beyond, refused atomic.Uint64
}

// The texts of the log.
const (
	logBeyond = iota
	logRefused
	logUnassigned
	logSmall
	logNone
	logOrders
	logDomain
	logSize
	logKinds
)

// NewQuotas returns a service with the limits and the permissions of another one. log may be nil.
func NewQuotas(of *Service, log *slog.Logger) *Quotas {
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	q := &Quotas{of: of, limits: newLimits(of.options.Algorithm, false, of.options.Now), log: log,
		begun: of.options.Now(), decoding: listen.Room{Most: maxDecoded}}
	q.check(of.config.Load())
	return q
}

// ServiceDesc returns what the service is for gRPC.
func (q *Quotas) ServiceDesc() (*grpc.ServiceDesc, any) {
	return &grpc.ServiceDesc{
		ServiceName: quota.Service, HandlerType: (*any)(nil), Metadata: "envoy/service/rate_limit_quota/v3/rlqs.proto",
		Streams: []grpc.StreamDesc{{StreamName: quota.Method, ServerStreams: true, ClientStreams: true,
			Handler: func(_ any, s grpc.ServerStream) error {
				if err := q.serve(s); err != nil {
					return statusOf(err)
				}
				return nil
			}}},
	}, q
}

// Stats returns the statistics.
func (q *Quotas) Stats() QuotaStats {
	return QuotaStats{
		Streams: q.streams.Load(), Buckets: q.buckets.Load(), Assigned: q.assigned.Load(), Allowed: q.allowed.Load(),
		Denied: q.denied.Load(), Beyond: q.beyond.Load(), Refused: q.refused.Load(),
	}
}

// sum adds to a statistic, which never falls: it stays at the largest number.
func sum(to *atomic.Uint64, n uint64) {
	for {
		was := to.Load()
		if to.CompareAndSwap(was, was+min(n, math.MaxUint64-was)) {
			return
		}
	}
}

// passed is how long the service is there, by a clock that never steps.
func (q *Quotas) passed() time.Duration { return q.of.options.Now().Sub(q.begun) }

func (q *Quotas) now() limiter.Tick { return limiter.TickOf(q.begun) + limiter.Span(q.passed()) }

// warn logs a text at most once a minute.
func (q *Quotas) warn(which int, text string, args ...any) {
	last, now := q.logged[which].Load(), int64(q.passed())
	if last != 0 && now-last < int64(logQuotasEvery) || !q.logged[which].CompareAndSwap(last, max(1, now)) {
		return
	}
	q.log.Warn(text, args...)
}

// quotaStream is one stream of an Envoy.
type quotaStream struct {
	of     *Quotas
	grpc   grpc.ServerStream
	name   string
	domain string
	by     asker
	quota  *quota.Stream

	buckets, assigned int64 // that the statistics have of it
}

// usageReport is a message of Envoy.
type usageReport struct {
	room listen.Hold
	data []byte
	busy bool // there was no room for it
}

// UnmarshalWire implements [transport.WireMessage].
func (m *usageReport) UnmarshalWire(data []byte) error {
	if m.busy = m.room.Add(weight*int64(len(data))) != nil; !m.busy {
		m.data = append([]byte(nil), data...)
	}
	return nil
}

// serve serves a stream until it ends.
func (q *Quotas) serve(stream grpc.ServerStream) (err error) {
	ctx := stream.Context()
	s := &quotaStream{of: q, grpc: stream, name: rand.Text()[:13], by: *askerOf(ctx, 0)}
	defer func() { s.by.session.Account(frontend.ActionLease.String(), false, err) }()
	if s.by.session, err = q.of.front.Identify(s.by.from, s.by.shown); err != nil {
		return err
	}
	room := q.room.Of(s.by.share())
	if !room.Open() {
		return errStreams
	}
	defer room.Close()
	s.quota = quota.NewStream(room)
	end, err := s.by.session.OpenStream()
	if err != nil {
		return err
	}
	defer end()
	q.streams.Add(1)
	defer q.streams.Add(-1)
	defer s.count()
	defer s.quota.Close()

	reports, failed := make(chan *usageReport), make(chan error, 1)
	go s.receive(ctx, reports, failed)
	wait := time.NewTimer(time.Second)
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-failed:
			return err
		case m := <-reports:
			err := s.report(ctx, m)
			m.room.Handled()
			if err != nil {
				return err
			}
		case <-wait.C:
		}
		next, err := s.due(ctx)
		if err != nil {
			return err
		}
		wait.Reset(max(time.Millisecond, (next - q.now()).Duration()))
	}
}

// receive hands the messages of Envoy on until the stream ends.
func (s *quotaStream) receive(ctx context.Context, reports chan<- *usageReport, failed chan<- error) {
	for {
		m := &usageReport{room: listen.Hold{Room: &s.of.decoding, Context: ctx}}
		if err := s.grpc.RecvMsg(m); err != nil {
			switch {
			case errors.Is(err, io.EOF):
				err = nil
			case status.Code(err) == codes.ResourceExhausted:
				s.of.warn(logSize, "a report of Envoy is too large, so its stream ends: let fewer requests have buckets of "+
					"their own", "from", s.by.sender(), "error", err)
			}
			failed <- err
			return
		}
		select {
		case reports <- m:
		case <-ctx.Done():
			m.room.Release()
			return
		}
	}
}

func (s *quotaStream) report(ctx context.Context, m *usageReport) (err error) {
	if m.busy {
		s.of.warn(logRefused, "reports of Envoy were dropped, as others take too much memory; assignments go on")
		return nil
	}
	if s.by.session, err = s.of.of.front.Identify(s.by.from, s.by.shown); err != nil {
		return err // tokens expire
	}
	r, err := quota.Read(m.data)
	if err != nil {
		return invalid("%v", err)
	}
	switch {
	case len(r.Domain) > quotaDomain:
		return invalid("the domain has %d bytes: give at most %d", len(r.Domain), quotaDomain)
	case s.domain == "":
		s.domain = r.Domain
	case r.Domain != "" && r.Domain != s.domain:
		return invalid("the report is for another domain than the first one of its stream: open a stream for each " +
			"domain")
	}
	if s.domain == "" {
		return invalid("rate limit quota domain must not be empty")
	}
	for _, action := range []frontend.Action{frontend.ActionCheck, frontend.ActionLease} {
		if err := s.by.may(action, s.domain); err != nil {
			return err
		}
	}
	bytes, begin := len(m.data), time.Now()
	for n := 0; ; {
		us, err := r.Next(quotasAtOnce, nil)
		if err != nil {
			return invalid("%v", err)
		}
		if len(us) == 0 {
			return nil
		}
		var out quota.Out
		over := s.by.session.Spend(len(us), bytes)
		bytes = 0
		if n += len(us); n > quota.MaxBuckets || time.Since(begin) > reportWithin {
			over = errReport
			s.of.warn(logRefused, "a report of Envoy has too many buckets, or owners are silent: the rest of it is denied",
				"domain", shortened(s.domain), "from", s.by.sender())
		}
		for i := range us {
			sum(&s.of.allowed, us[i].Allowed)
			sum(&s.of.denied, us[i].Denied)
		}
		s.quota.Report(s.of.now(), us, &out)
		if err := s.act(ctx, &out, over); err != nil {
			return err
		}
	}
}

// due does what is due without a report, and returns when something is next.
func (s *quotaStream) due(ctx context.Context) (limiter.Tick, error) {
	var out quota.Out
	next := s.quota.Due(s.of.now(), &out)
	var over error
	if len(out.Asks) > 0 {
		var err error
		if s.by.session, err = s.of.of.front.Identify(s.by.from, s.by.shown); err != nil {
			return next, err // tokens expire
		}
		over = s.by.session.Spend(len(out.Asks), 0)
	}
	return next, s.act(ctx, &out, over)
}

// errStreams is why a stream does not begin.
var errStreams = fmt.Errorf("%w, as the streams of this caller take too much memory: close one first", errBusy)

// errReport is why the rest of a report is not assigned.
var errReport = errors.New("the report is too large, or took too long")

// shortened is a text of a client for the log, which quotes it.
func shortened(text string) string { return text[:min(len(text), 100)] }

// act does what a step leaves to be done. What is beyond the caller's budget is not assigned, and not charged. What is
// assigned is told before owners are asked again: an assignment that comes late lasts too long.
func (s *quotaStream) act(ctx context.Context, out *quota.Out, over error) error {
	if out.Refused > 0 {
		s.of.refused.Add(uint64(out.Refused))
		s.of.warn(logRefused, "Envoy reports more buckets or longer ids than are kept: they are denied", "domain",
			shortened(s.domain), "from", s.by.sender(), "kept", s.quota.Len())
	}
	if err := s.send(ctx, out.Actions, time.Now()); err != nil {
		return err
	}
	for asks := out.Asks; len(asks) > 0; {
		n := min(len(asks), quotasAtOnce)
		begin, now := time.Now(), s.of.now()
		for i := range asks[:n] {
			asks[i].At = now
		}
		var done quota.Out
		if err := s.ask(ctx, asks[:n], over, &done); err != nil {
			return err
		}
		if err := s.send(ctx, done.Actions, begin); err != nil {
			return err
		}
		asks = asks[n:]
	}
	if len(out.Beyond) > 0 && over == nil && s.by.session.Spend(len(out.Beyond), 0) == nil {
		s.charge(ctx, out.Beyond)
	}
	s.count()
	return nil
}

// count brings the statistics up to date.
func (s *quotaStream) count() {
	buckets, assigned := int64(s.quota.Len()), int64(s.quota.Assigned())
	s.of.buckets.Add(buckets - s.buckets)
	s.of.assigned.Add(assigned - s.assigned)
	s.buckets, s.assigned = buckets, assigned
}
