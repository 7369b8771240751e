package weirwire

import (
	"fmt"
	"math"
	"time"

	"github.com/weirlimit/weir/internal/explained"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// Asked is what the messages that describe a request have in common.
type Asked interface {
	GetPath() string
	GetMethod() string
	GetUser() string
	GetIp() string
	GetGroup() string
	GetAttributes() map[string]string
	GetRule() string
	GetLimits() []*weirv1.Limit
}

// Fill turns a message into a request, except its cost and its limits. The request shares the
// message's strings and map.
func Fill(r *limiter.Request, m Asked) {
	*r = limiter.Request{
		Path: m.GetPath(), Method: m.GetMethod(), User: m.GetUser(), IP: m.GetIp(), Group: m.GetGroup(),
		Attributes: m.GetAttributes(), Rule: m.GetRule(),
	}
	if named, ok := m.(interface{ GetId() string }); ok {
		r.ID = named.GetId()
	}
}

// FillLimits adds the limits of a message to a request.
func FillLimits(r *limiter.Request, limits []*weirv1.Limit) error {
	if len(limits) == 0 {
		return nil
	}
	r.Limits = make([]*limiter.Limit, len(limits))
	for i, l := range limits {
		var err error
		if r.Limits[i], err = limitOf(l); err != nil {
			return fmt.Errorf("limit %d of the request: %w", i, err)
		}
		AddKey(r, i, l.GetKey())
	}
	return nil
}

// AddKey sets the key of limit i.
func AddKey(r *limiter.Request, i int, parts []string) {
	if len(parts) == 0 {
		return
	}
	if r.LimitKeys == nil {
		r.LimitKeys = make([][]string, len(r.Limits))
	}
	r.LimitKeys[i] = parts
}

// FillCheck adds what only a check has to a request.
func FillCheck(r *limiter.Request, m *weirv1.CheckRequest) {
	r.Cost, r.IDTTL, r.IDOptional, r.Hold = CostOf(m), IDTime(m.GetIdTtlUs()), m.GetIdOptional(), IDTime(m.GetHoldUs())
}

// IDTime returns a time of an id, or of a reservation, that came as microseconds. One that is
// out of range stays so: the longest are cut to what a duration can say.
func IDTime(us int64) time.Duration {
	const most = int64(math.MaxInt64 / time.Microsecond)
	return time.Duration(min(max(us, -most), most)) * time.Microsecond
}

// limitOf turns a limit in a message into one that can decide. The error wraps
// ErrInvalid.
func limitOf(l *weirv1.Limit) (*limiter.Limit, error) {
	if l == nil {
		return nil, invalid("it is empty")
	}
	s := limiter.Spec{
		Name: l.GetName(), Limit: l.GetLimit(), SubWindows: int(l.GetSubWindows()), Burst: l.GetBurst(),
		Zone: l.GetZone(), AnchorDay: int(l.GetAnchorDay()), DripUnits: l.GetDripUnits(),
		At: time.Duration(l.GetAtMinutes()) * time.Minute,
	}
	if l.Weight != nil {
		s.Weight = new(int(l.GetWeight()))
	}
	// A number too large for its type must not be truncated to another valid one.
	for _, e := range []struct {
		field string
		from  int32
		to    *uint8
	}{
		{"algorithm", int32(l.GetAlgorithm()), (*uint8)(&s.Algorithm)},
		{"align", int32(l.GetAlign()), (*uint8)(&s.Align)},
		{"coverage", int32(l.GetCoverage()), (*uint8)(&s.Coverage)},
		{"rounding", int32(l.GetRounding()), (*uint8)(&s.Rounding)},
		{"drip", int32(l.GetDrip()), (*uint8)(&s.Drip)},
		{"count_rejected", int32(l.GetCountRejected()), (*uint8)(&s.CountRejected)},
		{"calendar", int32(l.GetCalendar()), (*uint8)(&s.Calendar)},
		{"week_start", int32(l.GetWeekStart()), (*uint8)(&s.WeekStart)},
	} {
		if e.from < 0 || e.from > 255 {
			return nil, invalid("there is no %s number %d", e.field, e.from)
		}
		*e.to = uint8(e.from)
	}
	for _, e := range []struct {
		field string
		from  int64
		to    *time.Duration
	}{
		{"window_us", l.GetWindowUs(), &s.Window},
		{"block_us", l.GetBlockUs(), &s.Block},
	} {
		if e.from < 0 || e.from > limiter.MaxWindow.Microseconds() {
			return nil, invalid("%s %d is out of range: give at most %d, which are 400 days", e.field, e.from,
				limiter.MaxWindow.Microseconds())
		}
		*e.to = time.Duration(e.from) * time.Microsecond
	}
	return limiter.NewLimit(s)
}

// CostOf returns the optional cost of a message.
func CostOf(m *weirv1.CheckRequest) limiter.Cost {
	if m.Cost == nil {
		return limiter.Cost{}
	}
	return limiter.Units(m.GetCost())
}

// AnswerOf returns a response in its JSON form, exactly as the node would answer over
// HTTP. A node of an earlier version leaves out drawn_by and zone_default.
func AnswerOf(m *weirv1.CheckResponse) limiter.Answer {
	a := limiter.Answer{
		Allowed: m.GetAllowed(), Never: m.GetNever(), ShadowDenied: m.GetShadowDenied(),
		Rule: m.GetRule(), BlockedBy: m.GetBlockedBy(), DrawnBy: m.GetDrawnBy(), ZoneDefault: m.GetZoneDefault(),
		Source: sourceName(m.GetSource()), Repeated: m.GetRepeated(), Overridden: m.GetOverridden(), Receipt: m.GetReceipt(),
		Limits: make([]limiter.LimitAnswer, len(m.GetLimits())),
	}
	if status := m.GetDenyStatus(); status != 0 {
		a.Deny = &limiter.Denial{Status: int(status), Reason: m.GetDenyReason()}
	}
	if !a.Allowed && !a.Never {
		a.RetryAfterMs = new(limiter.Millis(limiter.Tick(m.GetRetryAfterUs()).Duration()))
	}
	for i, l := range m.GetLimits() {
		a.Limits[i] = limiter.LimitAnswer{
			Name: l.GetRule() + "/" + l.GetName(), Key: l.GetKey(), Algorithm: algorithmName(l.GetAlgorithm()),
			Limit: l.GetLimit(), Remaining: l.GetRemaining(),
			ResetAfterMs: limiter.Millis(limiter.Tick(l.GetResetAfterUs()).Duration()),
			Never:        l.GetNever(), Blocked: l.GetBlocked(), Shadow: l.GetShadow(), Overflow: l.GetOverflow(),
			Owner: l.GetOwner(), InForce: l.GetInForce(),
		}
		if l.GetCapacity() != l.GetLimit() {
			a.Limits[i].Capacity = l.GetCapacity()
		}
		if retry := l.GetRetryAfterUs(); retry > 0 {
			a.Limits[i].RetryAfterMs = new(limiter.Millis(limiter.Tick(retry).Duration()))
		}
	}
	return a
}

// A newer node may send sources and algorithms that this version does not know. 255 has
// the name "unknown".
func sourceName(s weirv1.Source) string {
	return limiter.Source(narrow(int32(s))).String()
}

func algorithmName(a weirv1.Algorithm) string {
	return limiter.Algorithm(narrow(int32(a))).String()
}

func narrow(n int32) uint8 {
	if n < 0 || n > 255 {
		return 255
	}
	return uint8(n)
}

// NewCheckRequest returns the message that checks a request; with peek nothing is
// charged. A cost out of range is sent as one that the node refuses.
func NewCheckRequest(r *limiter.Request, peek bool) *weirv1.CheckRequest {
	m := &weirv1.CheckRequest{
		Path: r.Path, Method: r.Method, User: r.User, Ip: r.IP, Group: r.Group,
		Attributes: r.Attributes, Rule: r.Rule, Peek: peek, Id: r.ID, IdTtlUs: r.IDTTL.Microseconds(),
		IdOptional: r.IDOptional,
		HoldUs:     r.Hold.Microseconds(),
	}
	if r.Cost.Given() {
		m.Cost = new(int64(-1))
		if n, err := r.Cost.Value(0); err == nil {
			m.Cost = new(int64(n))
		}
	}
	for i, l := range r.Limits {
		m.Limits = append(m.Limits, newLimit(l))
		if i < len(r.LimitKeys) {
			m.Limits[i].Key = r.LimitKeys[i]
		}
	}
	return m
}

func newLimit(l *limiter.Limit) *weirv1.Limit {
	s := l.Spec()
	m := &weirv1.Limit{
		Name: s.Name, Algorithm: weirv1.Algorithm(s.Algorithm), Limit: s.Limit, WindowUs: s.Window.Microseconds(),
		Align: weirv1.Align(s.Align), SubWindows: int32(s.SubWindows), Coverage: weirv1.Coverage(s.Coverage),
		Rounding: weirv1.Rounding(s.Rounding), Burst: s.Burst, Drip: weirv1.Drip(s.Drip), DripUnits: s.DripUnits,
		CountRejected: weirv1.CountRejected(s.CountRejected), BlockUs: s.Block.Microseconds(),
		Calendar: weirv1.Calendar(s.Calendar), Zone: s.Zone, AnchorDay: int32(s.AnchorDay),
		WeekStart: weirv1.Weekday(s.WeekStart), AtMinutes: int32(s.At / time.Minute),
	}
	if s.Weight != nil {
		m.Weight = new(int32(*s.Weight))
	}
	return m
}

// ExplanationMessage returns what explains one limit as a message.
func ExplanationMessage(l *limiter.LimitExplanation) *weirv1.LimitExplanation {
	m := &weirv1.LimitExplanation{
		Name: l.Name, Key: l.Key, Limit: l.Limit, Known: l.Known, Arithmetic: l.Arithmetic,
		Owner: l.Owner, ToldBy: l.ToldBy, NowUnixUs: int64(l.Now),
	}
	for _, f := range l.State {
		m.State = append(m.State, &weirv1.ExplainedField{Name: f.Name, Value: f.Value})
	}
	for _, w := range l.Counts {
		m.Counts = append(m.Counts, &weirv1.ExplainedCount{StartUnixUs: int64(w.Start), EndUnixUs: int64(w.End),
			Count: w.Count})
	}
	return m
}

// ExplanationOf returns an explanation in its JSON form, exactly as the node would
// answer over HTTP. Its Decision is not set.
func ExplanationOf(m *weirv1.ExplainResponse) *limiter.Explanation {
	return &limiter.Explanation{
		Now: limiter.Tick(m.GetNowUnixUs()), Rules: append([]string{}, m.GetRules()...), Unlimited: m.GetUnlimited(),
		Answer: AnswerOf(m.GetDecision()), Limits: explained.Limits(m.GetLimits()),
	}
}
