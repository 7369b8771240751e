package transport_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/weirwire"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/limitertest"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// subject is what the subjects of the suite share: a node behind a server, whose
// clock and rules the test changes behind the server's back, and which is asked
// over the wire only.
type subject struct {
	*server
	tb     testing.TB
	limits map[string]*limiter.Limit
	rules  map[string]*limiter.Rule
	keys   map[string]string // of the last answer
}

func newSubject(tb testing.TB, rules string) subject {
	return subject{newServer(tb, rules, allowRefunds), tb, map[string]*limiter.Limit{}, map[string]*limiter.Rule{},
		map[string]string{}}
}

func (s *subject) SetTime(t limiter.Tick) { s.clock.set(t) }

func (s *subject) SetRules(yaml string) error { return s.node.SetRules([]byte(yaml)) }

func (s *subject) Reset(ctx context.Context, r limiter.Request) error {
	m := weirwire.NewCheckRequest(&r, false)
	_, err := s.api.Reset(ctx, &weirv1.ResetRequest{
		Path: m.Path, Method: m.Method, User: m.User, Ip: m.Ip, Group: m.Group,
		Attributes: m.Attributes, Rule: m.Rule, Limits: m.Limits,
	})
	return fromStatus(err)
}

// LimitsConcurrency implements [limitertest.Concurrent].
func (*subject) LimitsConcurrency() {}

// Amend implements [limitertest.Amender], over gRPC.
func (s *subject) Amend(ctx context.Context, r limiter.Request, a limiter.Settling) (limiter.Amended, error) {
	m := weirwire.NewCheckRequest(&r, false)
	ask := func() (*weirv1.ReservationResponse, error) {
		return s.api.Settle(ctx, &weirv1.SettleRequest{
			Path: m.Path, Method: m.Method, User: m.User, Ip: m.Ip, Group: m.Group, Attributes: m.Attributes, Rule: m.Rule,
			Limits: m.Limits, Id: m.Id, IdTtlUs: m.IdTtlUs, Actual: m.Cost, IfUnknown: unknownOf(a.Amend),
			ActualByAttribute: a.Actual,
		})
	}
	switch {
	case a.Extend:
		ask = func() (*weirv1.ReservationResponse, error) {
			return s.api.Extend(ctx, &weirv1.ExtendRequest{
				Path: m.Path, Method: m.Method, User: m.User, Ip: m.Ip, Group: m.Group, Attributes: m.Attributes, Rule: m.Rule,
				Limits: m.Limits, Id: m.Id, IdTtlUs: m.IdTtlUs, Cost: m.Cost, HoldUs: m.HoldUs,
			})
		}
	case m.GetCost() == 0 && a.IgnoreUnknown && !a.Named:
		ask = func() (*weirv1.ReservationResponse, error) {
			return s.api.Cancel(ctx, &weirv1.CancelRequest{
				Path: m.Path, Method: m.Method, User: m.User, Ip: m.Ip, Group: m.Group, Attributes: m.Attributes, Rule: m.Rule,
				Limits: m.Limits, Id: m.Id, IdTtlUs: m.IdTtlUs,
			})
		}
	}
	out, err := ask()
	if _, ok := weirv1.ReservationState_name[int32(out.GetState())]; !ok {
		s.tb.Errorf("a state that does not exist: %v", out)
	}
	if status.Code(err) == codes.FailedPrecondition {
		return refusedBy(status.Convert(err).Message())
	}
	return limiter.Amended{
		State: limiter.AmendState(out.GetState()), Estimate: out.GetEstimate(), Over: out.GetOver(),
		RetryAfter: limiter.Tick(out.GetRetryAfterUs()).Duration(),
	}, fromStatus(err)
}

func unknownOf(a limiter.Amend) weirv1.IfUnknown {
	if a.IgnoreUnknown {
		return weirv1.IfUnknown_IF_UNKNOWN_IGNORE
	}
	return weirv1.IfUnknown_IF_UNKNOWN_CHARGE
}

// refusedBy returns what an error of a settlement says of the first one.
func refusedBy(text string) (limiter.Amended, error) {
	if strings.Contains(text, limiter.ErrCosts.Error()) {
		return limiter.Amended{}, fmt.Errorf("%w: %s", limiter.ErrCosts, text)
	}
	out := limiter.Amended{State: limiter.AmendSettled}
	_, of, _ := strings.Cut(text, "the id stands for ")
	_, err := fmt.Sscanf(of, "%d units for good", &out.First)
	return out, err
}

func (s *subject) KeyName(_ *limiter.Request, l *limiter.LimitDecision) string {
	return s.keys[keyID(l)]
}

func keyID(l *limiter.LimitDecision) string { return fmt.Sprint(l.Key, l.FullName()) }

// fromStatus turns a status back into the error that it was made of.
func fromStatus(err error) error {
	switch status.Code(err) {
	case codes.InvalidArgument:
		return fmt.Errorf("%w: %w", limiter.ErrInvalid, err)
	case codes.FailedPrecondition:
		return fmt.Errorf("%w: %w", limiter.ErrSettled, err)
	default:
		return err
	}
}

// rule and limit return the same rule and limit for the same words.
func (s *subject) rule(name string, shadow bool) *limiter.Rule {
	id := fmt.Sprint(name, shadow)
	if s.rules[id] == nil {
		s.rules[id] = &limiter.Rule{Name: name, Shadow: shadow}
	}
	return s.rules[id]
}

func (s *subject) limit(name string, a weirv1.Algorithm, limit, capacity uint64, windowUs int64) *limiter.Limit {
	id := fmt.Sprint(name, a, limit, capacity, windowUs)
	if s.limits[id] == nil {
		var err error
		spec := limiter.Spec{
			Name: name, Algorithm: limiter.Algorithm(a), Limit: int64(limit), Burst: int64(capacity),
			Window: limiter.Tick(windowUs).Duration(), SubWindows: 1,
		}
		if spec.Algorithm == limiter.Concurrency {
			spec.Window = 0
		} else if capacity < limit {
			spec.Ceiling = int64(capacity)
		}
		s.limits[id], err = limiter.NewLimit(spec)
		if err != nil {
			s.tb.Fatal(err)
		}
	}
	return s.limits[id]
}

// rebuild makes a decision of a message, by the message alone.
func (s *subject) rebuild(m *weirv1.CheckResponse, d *limiter.Decision) {
	d.Clear()
	d.Allowed, d.Never, d.ShadowDenied, d.Repeated = m.Allowed, m.Never, m.ShadowDenied, m.Repeated
	d.Source, d.Rule = limiter.Source(m.Source), m.Rule
	d.Grow(len(m.Limits))
	clear(s.keys)
	key := -1
	for i, w := range m.Limits {
		if i == 0 || m.Limits[i-1].Rule != w.Rule || m.Limits[i-1].KeyIndex != w.KeyIndex {
			key++
		}
		l := d.Limit(i)
		*l = limiter.LimitDecision{
			Rule: s.rule(w.Rule, w.Shadow), Limit: s.limit(w.Name, w.Algorithm, w.Limit, w.Capacity, w.WindowUs),
			Key: key, KeyIndex: uint8(w.KeyIndex), Allowed: w.Allowed, Never: w.Never, Blocked: w.Blocked,
			Overflow: w.Overflow, Cost: w.Cost, Remaining: w.Remaining,
			ResetAfter: limiter.Tick(w.ResetAfterUs).Duration(), RetryAfter: limiter.Tick(w.RetryAfterUs).Duration(),
		}
		s.keys[keyID(l)] = w.Key
	}
	arith.Conclude(d)
	if b := d.BlockedBy(); b != nil && b.FullName() != m.BlockedBy || b == nil && m.BlockedBy != "" {
		s.tb.Errorf("blocked by %q, but by the limits of the same answer %v", m.BlockedBy, b)
	}
	if int64(limiter.Span(d.RetryAfter)) != m.RetryAfterUs {
		s.tb.Errorf("retry after %d, but by the limits of the same answer %d", m.RetryAfterUs, d.RetryAfter)
	}
}

// unarySubject asks one by one.
type unarySubject struct{ subject }

func (s *unarySubject) CheckInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error {
	return s.ask(ctx, r, d, false)
}

func (s *unarySubject) PeekInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error {
	return s.ask(ctx, r, d, true)
}

func (s *unarySubject) ask(ctx context.Context, r *limiter.Request, d *limiter.Decision, peek bool) error {
	m, err := s.api.Check(ctx, weirwire.NewCheckRequest(r, peek))
	if err != nil {
		return fromStatus(err)
	}
	s.rebuild(m, d)
	return nil
}

// batchSubject asks in batches: beside each request stands one that is invalid.
type batchSubject struct{ subject }

func (s *batchSubject) CheckInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error {
	return s.ask(ctx, r, d, false)
}

func (s *batchSubject) PeekInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error {
	return s.ask(ctx, r, d, true)
}

func (s *batchSubject) ask(ctx context.Context, r *limiter.Request, d *limiter.Decision, peek bool) error {
	m, err := s.api.CheckBatch(ctx, &weirv1.CheckBatchRequest{Checks: []*weirv1.CheckRequest{
		{Path: "/", Cost: new(int64(-5))}, weirwire.NewCheckRequest(r, peek),
	}})
	if err != nil {
		return fromStatus(err)
	}
	if len(m.Results) != 2 || m.Results[0].GetError().GetCode() != uint32(codes.InvalidArgument) {
		s.tb.Errorf("a batch of an invalid check and another: %v", m.Results)
	}
	if e := m.Results[1].GetError(); e != nil {
		return fromStatus(status.Error(codes.Code(e.Code), e.Message))
	}
	s.rebuild(m.Results[1].GetDecision(), d)
	return nil
}

// streamSubject asks on one stream, in columns.
type streamSubject struct {
	subject
	stream grpc.BidiStreamingClient[weirv1.CheckColumns, weirv1.DecisionColumns]
	id     uint64
}

func (s *streamSubject) CheckInto(_ context.Context, r *limiter.Request, d *limiter.Decision) error {
	return s.ask(r, d, false)
}

func (s *streamSubject) PeekInto(_ context.Context, r *limiter.Request, d *limiter.Decision) error {
	return s.ask(r, d, true)
}

func (s *streamSubject) ask(r *limiter.Request, d *limiter.Decision, peek bool) error {
	s.id++
	in := &weirv1.CheckColumns{Id: s.id, Peek: peek, EveryLimit: true, Rule: r.Rule}
	addColumns(in, r)
	if r.ID != "" {
		in.Ids, in.IdLengths, in.IdTtlUs = []byte(r.ID), []uint32{uint32(len(r.ID))}, int64(limiter.Span(r.IDTTL))
	}
	in.HoldUs = int64(limiter.Span(r.Hold))
	if err := s.stream.Send(in); err != nil {
		return err
	}
	out, err := s.stream.Recv()
	if err != nil {
		return err
	}
	if out.Id != s.id || out.Error != nil || len(out.Flags) != 1 {
		s.tb.Fatalf("the reply to a message of one check: %v", out)
	}
	if len(out.Errors) > 0 {
		if out.Flags[0] != byte(weirv1.DecisionFlag_DECISION_FLAG_ERROR) {
			s.tb.Errorf("a check that was not decided has the flags %b", out.Flags[0])
		}
		return fromStatus(status.Error(codes.Code(out.Errors[0].Code), out.Errors[0].Message))
	}
	all := expand(out)
	s.rebuild(all[0], d)
	return nil
}

// addColumns appends a request to a message.
func addColumns(m *weirv1.CheckColumns, r *limiter.Request) {
	add := func(column *[]uint32, part string) {
		m.Keys = append(m.Keys, part...)
		*column = append(*column, uint32(len(part)))
	}
	add(&m.PathLengths, r.Path)
	add(&m.UserLengths, r.User)
	add(&m.IpLengths, r.IP)
	add(&m.GroupLengths, r.Group)
	add(&m.MethodLengths, r.Method)
	n := len(m.PathLengths)
	for name := range r.Attributes {
		has := false
		for _, c := range m.Attributes {
			has = has || c.Name == name
		}
		if !has {
			m.Attributes = append(m.Attributes, &weirv1.AttributeColumn{Name: name, Lengths: make([]uint32, n-1)})
		}
	}
	for _, c := range m.Attributes {
		add(&c.Lengths, r.Attributes[c.Name])
	}
	one := weirwire.NewCheckRequest(r, false)
	m.Costs = append(m.Costs, one.GetCost())
	if one.Cost == nil {
		m.RuleCosts = append(m.RuleCosts, uint32(n-1))
	}
}

// expand turns columns into one message for each check, nil for those that were not
// decided.
func expand(m *weirv1.DecisionColumns) []*weirv1.CheckResponse {
	out := make([]*weirv1.CheckResponse, len(m.Flags))
	e, at := m.EveryLimit, 0
	for i := range out {
		has := func(f weirv1.DecisionFlag) bool { return m.Flags[i]&byte(f) != 0 }
		if has(weirv1.DecisionFlag_DECISION_FLAG_ERROR) {
			continue
		}
		c := &weirv1.CheckResponse{
			Allowed:      has(weirv1.DecisionFlag_DECISION_FLAG_ALLOWED),
			Never:        has(weirv1.DecisionFlag_DECISION_FLAG_NEVER),
			ShadowDenied: has(weirv1.DecisionFlag_DECISION_FLAG_SHADOW_DENIED),
			Repeated:     has(weirv1.DecisionFlag_DECISION_FLAG_REPEATED),
			Source:       weirv1.Source_SOURCE_OWNER,
		}
		if len(m.Sources) > 0 {
			c.Source = weirv1.Source(m.Sources[i])
		}
		if len(m.RetryAfterUs) > 0 {
			c.RetryAfterUs = m.RetryAfterUs[i]
		}
		if ref := e.RuleRefs[i]; ref > 0 {
			c.Rule = e.RuleNames[ref-1]
		}
		for to, refs := range map[*string][]uint32{&c.DrawnBy: e.DrawnByRefs, &c.ZoneDefault: e.ZoneDefaultRefs} {
			if len(refs) > 0 && refs[i] > 0 {
				*to = e.RuleNames[refs[i]-1]
			}
		}
		for range e.Counts[i] {
			info := m.Limits[e.LimitIndexes[at]]
			is := func(f weirv1.DecisionFlag) bool { return e.Flags[at]&byte(f) != 0 }
			c.Limits = append(c.Limits, &weirv1.LimitDecision{
				Rule: info.Rule, Name: info.Name, Key: e.Keys[at], Algorithm: info.Algorithm,
				Limit: info.Limit, Capacity: info.Capacity, WindowUs: info.WindowUs, Shadow: info.Shadow,
				Remaining: e.Remaining[at], ResetAfterUs: e.ResetAfterUs[at], RetryAfterUs: e.RetryAfterUs[at],
				Allowed: is(weirv1.DecisionFlag_DECISION_FLAG_ALLOWED), Never: is(weirv1.DecisionFlag_DECISION_FLAG_NEVER),
				Blocked: is(weirv1.DecisionFlag_DECISION_FLAG_BLOCKED), Overflow: is(weirv1.DecisionFlag_DECISION_FLAG_OVERFLOW),
				Cost: e.Costs[at], KeyIndex: e.KeyIndexes[at],
			})
			at++
		}
		if ref := m.LimitRefs[i]; ref > 0 && !c.Allowed {
			c.BlockedBy = m.Limits[ref-1].Rule + "/" + m.Limits[ref-1].Name
		}
		out[i] = c
	}
	return out
}

// httpSubject asks over HTTP, in turn by GET and by POST.
type httpSubject struct {
	subject
	client *http.Client
	turn   int
}

// Step: JSON has milliseconds.
func (s *httpSubject) Step() limiter.Tick { return limiter.Millisecond }

func (s *httpSubject) CheckInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error {
	return s.ask(ctx, r, d, false)
}

func (s *httpSubject) PeekInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error {
	return s.ask(ctx, r, d, true)
}

func (s *httpSubject) ask(ctx context.Context, r *limiter.Request, d *limiter.Decision, peek bool) error {
	s.turn++
	var q *http.Request
	if s.turn%2 == 0 {
		q, _ = http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/v1/check?"+query(r, peek).Encode(), nil)
	} else {
		q, _ = http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/check", bytes.NewReader(object(s.tb, r, peek)))
		q.Header.Set("Content-Type", "application/json")
	}
	resp, err := s.client.Do(q)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	switch resp.StatusCode {
	case http.StatusBadRequest:
		return fmt.Errorf("%w: %s", limiter.ErrInvalid, body)
	case http.StatusConflict:
		return fmt.Errorf("%w: %s", limiter.ErrSettled, body)
	}
	var a limiter.Answer
	if err := json.Unmarshal(body, &a); err != nil {
		return err
	}
	if allowed := resp.StatusCode == http.StatusOK; allowed != a.Allowed ||
		!allowed && resp.StatusCode != http.StatusTooManyRequests {
		s.tb.Errorf("status %d of %s", resp.StatusCode, body)
	}
	s.rebuildAnswer(&a, d)
	return nil
}

// LimitsConcurrency implements [limitertest.Concurrent].
func (*httpSubject) LimitsConcurrency() {}

// Amend implements [limitertest.Amender], over HTTP.
func (s *httpSubject) Amend(_ context.Context, r limiter.Request, a limiter.Settling) (limiter.Amended, error) {
	o := fields(&r)
	path, cost := "/v1/settle", weirwire.NewCheckRequest(&r, false).GetCost()
	switch {
	case a.Extend:
		path = "/v1/extend"
	case cost == 0 && a.IgnoreUnknown && !a.Named:
		path = "/v1/cancel"
		delete(o, "cost")
	default:
		delete(o, "cost")
		o["actual"], o["if_unknown"] = cost, "charge"
		if a.Named {
			o["actual"] = a.Actual
		}
		if a.IgnoreUnknown {
			o["if_unknown"] = "ignore"
		}
	}
	body, err := json.Marshal(o)
	if err != nil {
		return limiter.Amended{}, err
	}
	got := s.post(s.tb, path, string(body))
	var out struct {
		State        string `json:"state"`
		Estimate     uint64 `json:"estimate"`
		Over         uint64 `json:"over"`
		RetryAfterMs int64  `json:"retry_after_ms"`
	}
	switch got.status {
	case http.StatusConflict:
		return refusedBy(got.body)
	case http.StatusBadRequest:
		return limiter.Amended{}, fmt.Errorf("%w: %s", limiter.ErrInvalid, got.body)
	}
	if err := json.Unmarshal([]byte(got.body), &out); err != nil {
		return limiter.Amended{}, err
	}
	for state := limiter.AmendDone; state <= limiter.AmendDenied; state++ {
		if state.String() == out.State {
			return limiter.Amended{
				State: state, Estimate: out.Estimate, Over: out.Over,
				RetryAfter: (limiter.Tick(out.RetryAfterMs) * limiter.Millisecond).Duration(),
			}, nil
		}
	}
	return limiter.Amended{}, fmt.Errorf("an unknown state: %+v", got)
}

func query(r *limiter.Request, peek bool) url.Values {
	v := url.Values{"path": {r.Path}, "user": {r.User}, "ip": {r.IP}, "group": {r.Group}, "method": {r.Method},
		"rule": {r.Rule}}
	for name, value := range r.Attributes {
		v.Set("attr."+name, value)
	}
	if m := weirwire.NewCheckRequest(r, false); m.Cost != nil {
		v.Set("cost", strconv.FormatInt(m.GetCost(), 10))
	}
	if peek {
		v.Set("peek", "true")
	}
	if r.ID != "" {
		v.Set("id", r.ID)
	}
	if r.Hold != 0 {
		v.Set("hold_ms", strconv.FormatInt(r.Hold.Milliseconds(), 10))
	}
	return v
}

func object(tb testing.TB, r *limiter.Request, peek bool) []byte {
	o := fields(r)
	o["peek"] = peek
	out, err := json.Marshal(o)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// fields returns the fields of a request in JSON.
func fields(r *limiter.Request) map[string]any {
	o := map[string]any{"path": r.Path, "user": r.User, "ip": r.IP, "group": r.Group, "method": r.Method,
		"attributes": r.Attributes}
	if r.ID != "" {
		o["id"] = r.ID
	}
	if r.Hold != 0 {
		o["hold_ms"] = r.Hold.Milliseconds()
	}
	if m := weirwire.NewCheckRequest(r, false); m.Cost != nil {
		o["cost"] = m.GetCost()
	}
	return o
}

// rebuildAnswer makes a decision from an answer. What an answer lacks, a bucket's
// capacity, comes from the node's rules. Which limits admitted a check that another
// denied is not known.
func (s *httpSubject) rebuildAnswer(a *limiter.Answer, d *limiter.Decision) {
	d.Clear()
	d.Allowed, d.Never, d.ShadowDenied, d.Repeated, d.Rule = a.Allowed, a.Never, a.ShadowDenied, a.Repeated, a.Rule
	d.Grow(len(a.Limits))
	clear(s.keys)
	seen, key, before := map[string]bool{}, -1, ""
	for i, w := range a.Limits {
		rule, name, _ := strings.Cut(w.Name, "/")
		if rule != before || seen[name] {
			key, before, seen = key+1, rule, map[string]bool{}
		}
		seen[name] = true
		l := d.Limit(i)
		*l = limiter.LimitDecision{
			Rule: s.rule(rule, w.Shadow), Limit: s.ofNode(rule, name, &w), Key: key,
			Allowed: w.Name != a.BlockedBy, Never: w.Never, Blocked: w.Blocked,
			Overflow: w.Overflow, Remaining: w.Remaining,
			ResetAfter: (limiter.Tick(w.ResetAfterMs) * limiter.Millisecond).Duration(),
		}
		if w.RetryAfterMs != nil {
			l.RetryAfter = (limiter.Tick(*w.RetryAfterMs) * limiter.Millisecond).Duration()
		}
		s.keys[keyID(l)] = w.Key
	}
	arith.Conclude(d)
	if b := d.BlockedBy(); (b == nil) != (a.BlockedBy == "") {
		s.tb.Errorf("blocked by %q, which is no limit of the same answer", a.BlockedBy)
	}
	if a.RetryAfterMs != nil && *a.RetryAfterMs != limiter.Millis(d.RetryAfter) {
		s.tb.Errorf("retry after %d ms, but by the limits of the same answer %v", *a.RetryAfterMs, d.RetryAfter)
	}
}

// ofNode returns the limit of the node's rules that an answer names, with the number of the answer: a
// request may choose another than the rule's.
func (s *httpSubject) ofNode(rule, name string, w *limiter.LimitAnswer) *limiter.Limit {
	var all []*limiter.Rule
	for _, in := range s.node.Rules() {
		all = append(all, in.Rule)
		for _, w := range in.Draws {
			all = append(all, w.Quota)
		}
	}
	for _, r := range all {
		for _, l := range r.Limits {
			if r.Name != rule || l.Name() != name {
				continue
			}
			if spec := l.Spec(); l.Limit() == w.Limit && w.Capacity > 0 && w.Capacity < l.Capacity() {
				spec.Ceiling = int64(w.Capacity)
				var err error
				if l, err = limiter.NewLimit(spec); err != nil {
					s.tb.Fatal(err)
				}
			} else if l.Limit() != w.Limit {
				spec.Limit = int64(w.Limit)
				if spec.Burst > 0 {
					spec.Burst = int64(cmp.Or(w.Capacity, w.Limit))
				}
				var err error
				if l, err = limiter.NewLimit(spec); err != nil {
					s.tb.Fatal(err)
				}
			}
			return l
		}
	}
	s.tb.Fatalf("the node has no limit %s/%s", rule, name)
	return nil
}

func newUnary(tb testing.TB, rules string) limitertest.Subject {
	return &unarySubject{newSubject(tb, rules)}
}

func newBatch(tb testing.TB, rules string) limitertest.Subject {
	return &batchSubject{newSubject(tb, rules)}
}

func newStream(tb testing.TB, rules string) limitertest.Subject {
	s := &streamSubject{subject: newSubject(tb, rules)}
	ctx, cancel := context.WithCancel(context.Background())
	tb.Cleanup(cancel)
	var err error
	if s.stream, err = s.api.CheckStream(ctx); err != nil {
		tb.Fatal(err)
	}
	return s
}

func newHTTP(tb testing.TB, rules string) limitertest.Subject {
	client := &http.Client{Transport: &http.Transport{}}
	s := &httpSubject{subject: newSubject(tb, rules), client: client}
	tb.Cleanup(client.CloseIdleConnections)
	return s
}

// The parts of the suite that a subject cannot take part in are skipped, so that
// these four can is held here. None takes charges back: that is by receipts, which are
// good for ten minutes.
var (
	_ = []interface {
		limitertest.Peeker
		limitertest.KeyNamer
	}{&unarySubject{}, &batchSubject{}, &streamSubject{}, &httpSubject{}}
	_                     = []limitertest.Amender{&unarySubject{}, &batchSubject{}, &streamSubject{}, &httpSubject{}}
	_ limitertest.Rounder = (*httpSubject)(nil)
)

// C3, C4: what every decider must do, asked over each protocol, the clock of the
// node moved by the test. Under the race detector only the transcripts are run, and with
// -short none of it: the rest of the suite is arithmetic, and not this package's.
func TestConformance(t *testing.T) {
	if raceDetector && testing.Short() {
		t.Skip("long under the race detector; make wire runs it without, make test-long with it")
	}
	for _, p := range []struct {
		name string
		make limitertest.Factory
	}{
		{"Unary", newUnary}, {"Batch", newBatch}, {"Stream", newStream}, {"HTTP", newHTTP},
	} {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			if raceDetector {
				limitertest.Transcripts(t, p.make)
				return
			}
			limitertest.Run(t, p.make)
		})
	}
}
