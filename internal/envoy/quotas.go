package envoy

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/weirlimit/weir/internal/envoy/config"
	"github.com/weirlimit/weir/internal/envoy/quota"
	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/limiter"
)

const (
	// quotasAtOnce is how many buckets of a report are taken together.
	quotasAtOnce = 256
	// quotaMessage bounds a message to Envoy, in bytes, beyond that of one bucket.
	quotaMessage = 64 << 10
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
	logged [4]atomic.Int64 // when each of the texts was, in nanoseconds since begun
	// checked is the configuration whose limits were looked at, see check.
	checked atomic.Pointer[config.Config]

	streams, buckets, assigned       atomic.Int64
	allowed, denied, beyond, refused atomic.Uint64
}

// The texts of the log.
const (
	logBeyond = iota
	logRefused
	logUnassigned
	logSmall
)

// NewQuotas returns a service with the limits and the permissions of another one. log may be nil.
func NewQuotas(of *Service, log *slog.Logger) *Quotas {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	q := &Quotas{of: of, limits: newLimits(of.options.Algorithm, false, of.options.Now), log: log,
		begun: of.options.Now()}
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
	decoding *atomic.Int64
	data     []byte
	taken    int64
	busy     bool // there was no room for it
}

// UnmarshalWire implements [transport.WireMessage].
func (m *usageReport) UnmarshalWire(data []byte) error {
	if estimate := int64(weight * len(data)); take(m.decoding, estimate, len(data) > ordinary) {
		m.taken, m.data = estimate, append([]byte(nil), data...)
	} else {
		m.busy = true
	}
	return nil
}

func (m *usageReport) release() { m.decoding.Add(-m.taken) }

// serve serves a stream until it ends.
func (q *Quotas) serve(stream grpc.ServerStream) (err error) {
	ctx := stream.Context()
	s := &quotaStream{of: q, grpc: stream, name: rand.Text()[:13], by: *askerOf(ctx, 0), quota: quota.NewStream()}
	defer func() { s.by.Account(frontend.ActionLease.String(), false, err) }()
	if s.by.Session, err = q.of.front.Identify(s.by.from, s.by.shown); err != nil {
		return err
	}
	end, err := s.by.OpenStream()
	if err != nil {
		return err
	}
	defer end()
	q.streams.Add(1)
	defer q.streams.Add(-1)
	defer s.count()
	defer func() { s.quota = quota.NewStream() }()

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
			m.release()
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
		m := &usageReport{decoding: &s.of.of.decoding}
		if err := s.grpc.RecvMsg(m); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			failed <- err
			return
		}
		select {
		case reports <- m:
		case <-ctx.Done():
			m.release()
			return
		}
	}
}

// report takes a report in, and answers it.
func (s *quotaStream) report(ctx context.Context, m *usageReport) (err error) {
	if m.busy {
		s.of.warn(logRefused, "reports of Envoy were dropped, as others take too much memory; assignments go on")
		return nil
	}
	if s.by.Session, err = s.of.of.front.Identify(s.by.from, s.by.shown); err != nil {
		return err // tokens expire
	}
	r, err := quota.Read(m.data)
	if err != nil {
		return invalid("%v", err)
	}
	switch {
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
	bytes := len(m.data)
	for {
		us, err := r.Next(quotasAtOnce, nil)
		if err != nil {
			return invalid("%v", err)
		}
		if len(us) == 0 {
			return nil
		}
		var out quota.Out
		over := s.by.Spend(len(us), bytes)
		bytes = 0
		for i := range us {
			s.of.allowed.Add(us[i].Allowed)
			s.of.denied.Add(us[i].Denied)
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
	return next, s.act(ctx, &out, nil)
}

// act does what a step leaves to be done. What is beyond the caller's budget is not assigned.
func (s *quotaStream) act(ctx context.Context, out *quota.Out, over error) error {
	if out.Refused > 0 {
		s.of.refused.Add(uint64(out.Refused))
		s.of.warn(logRefused, "Envoy reports more buckets than are kept: they are denied", "domain", s.domain, "from",
			s.by.from, "kept", s.quota.Len())
	}
	done := quota.Out{Actions: out.Actions}
	for asks := out.Asks; len(asks) > 0; {
		n := min(len(asks), quotasAtOnce)
		if err := s.ask(ctx, asks[:n], over, &done); err != nil {
			return err
		}
		asks = asks[n:]
	}
	if err := s.send(done.Actions); err != nil {
		return err
	}
	s.charge(ctx, out.Beyond)
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

// find looks the limit of a bucket up. Without a counter the grant says what is done with the bucket.
func (s *quotaStream) find(c *config.Config, id string) (it item, g quota.Grant, err error) {
	var entries []config.Entry
	for _, e := range quota.Entries(id) {
		entries = append(entries, config.Entry(e))
	}
	l, counted := c.LookupUnordered(s.domain, entries)
	switch {
	case l == nil || l.Unlimited || l.Shadow || s.of.of.options.Shadow:
		return it, quota.Grant{Kind: quota.AllowAll}, nil
	case l.Requests == 0:
		return it, quota.Grant{Kind: quota.DenyAll}, nil
	}
	it = item{limit: l, by: &s.by, key: keyOf(s.domain, counted)}
	it.counter, err = s.of.limits.of(l, false)
	return it, quota.Grant{Kind: quota.DenyAll}, err
}

// ask asks the owners of buckets' counters for slices.
func (s *quotaStream) ask(ctx context.Context, asks []quota.Ask, over error, out *quota.Out) error {
	c := s.of.of.config.Load()
	if c == nil {
		return errors.New("no rate limit configuration loaded")
	}
	s.of.check(c)
	ctx, cancel := context.WithTimeout(ctx, quota.Slack.Duration()/2)
	defer cancel()
	grants, at := make([]quota.Grant, len(asks)), make([]int, 0, len(asks))
	var rs []limiter.Request
	for i := range asks {
		a := &asks[i]
		it, g, err := s.find(c, a.ID)
		if err != nil {
			s.unassigned(&it, err)
		}
		grants[i] = g
		if it.counter == nil || over != nil {
			continue
		}
		if grants[i].Size = a.Size; a.Size == 0 {
			grants[i].Size = sizeOf(it.counter)
			if n := max(0, s.of.streams.Load()); it.counter.Capacity()/leastBurst < uint64(n) {
				s.of.warn(logSmall, "a limit admits less than 20 requests at once for each Envoy: some are assigned nothing",
					"domain", s.domain, "limit", it.limit.Path, "envoys", n)
			}
		}
		r := request(&it)
		r.ID = s.name + "-" + strconv.FormatUint(uint64(a.Slice), 36)
		r.Lent, r.Hold, r.Rate, r.Cost = true, a.Hold.Duration(), max(1, a.Demand), limiter.Units(int64(grants[i].Size))
		rs, at = append(rs, r), append(at, i)
	}
	ds := make([]limiter.Decision, len(rs))
	err := s.by.Decide(ctx, rs, ds, nil)
	some, _ := errors.AsType[*limiter.BatchError](err)
	for i, of := range at {
		failed := err
		if some != nil {
			failed = nil
			for j, k := range some.Index {
				if k == i {
					failed = some.Errs[j]
				}
			}
		}
		if failed != nil {
			s.unassigned(nil, failed)
			continue
		}
		if rate := ds[i].Remarks().Assigned; ds[i].Allowed && rate > 0 {
			grants[of].Kind, grants[of].Rate = quota.Tokens, uint32(min(rate, limiter.NarrowUnits))
		}
	}
	now := s.of.now()
	for i := range asks {
		s.quota.Answered(now, &asks[i], grants[i], out)
	}
	return nil
}

// unassigned logs why a bucket cannot be assigned anything.
func (s *quotaStream) unassigned(it *item, err error) {
	name := ""
	if it != nil && it.limit != nil {
		name = it.limit.Path
	}
	s.of.warn(logUnassigned, "buckets of Envoy are assigned nothing", "domain", s.domain, "limit", name, "error",
		err.Error())
}

// send tells Envoy what is assigned.
func (s *quotaStream) send(actions []quota.Action) error {
	var m assignments
	for i := range actions {
		m.data = quota.AppendAction(m.data, &actions[i])
		if len(m.data) < quotaMessage && i < len(actions)-1 {
			continue
		}
		begin := time.Now()
		if err := s.grpc.SendMsg(&m); err != nil {
			return err
		}
		if time.Since(begin) > quota.Slack.Duration()/2 {
			return errors.New("the client does not read what it is assigned: an assignment that comes late lasts too long")
		}
		m.data = nil
	}
	return nil
}

// assignments is a message to Envoy.
type assignments struct{ data []byte }

// MarshalWire implements [transport.WireReply].
func (m *assignments) MarshalWire() []byte { return m.data }

// charge charges what Envoys have allowed beyond what they were assigned.
func (s *quotaStream) charge(ctx context.Context, beyond []quota.Beyond) {
	c := s.of.of.config.Load()
	if len(beyond) == 0 || c == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, quota.Slack.Duration())
	defer cancel()
	for i := range beyond {
		b := &beyond[i]
		it, _, err := s.find(c, b.ID)
		if err != nil || it.counter == nil {
			continue
		}
		s.of.beyond.Add(b.Units)
		s.of.warn(logBeyond, "Envoy has allowed more than it was assigned, by its own configuration: that is charged",
			"domain", s.domain, "limit", it.limit.Path, "from", s.by.from, "requests", b.Units)
		r := request(&it)
		r.ID = rand.Text()
		_, _ = s.by.Settle(ctx, r, int64(min(b.Units, it.counter.Capacity()))) // without an answer it stays uncharged
	}
}
