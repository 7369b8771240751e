package transport_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/weirwire"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/limitertest"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
	"github.com/weirlimit/weir/transport"
)

// E1: a user with a method, an address and an attribute, counted apart.
const mixed = `
version: 1
quotas:
  - {name: units, key: [user], limits: [{limit: 20, calendar: day}]}
rules:
  - name: login
    match: {path: "^/login"}
    keys: [[ip], [user]]
    limits: [2/second, {limit: 5, window: 1m, algorithm: gcra, burst: 7}]
    cost: {default: 1, POST: 2}
  - {name: device, match: {attributes: {plan: }}, key: [user, method, "attr:plan"], limits: [{limit: 4, window: 1m, algorithm: sliding_log, count_rejected: all}]}
  - {name: trial, match: {path: "^/t"}, shadow: true, continue: true, limits: [1/minute]}
  - {name: admins, match: {group: admin}, unlimited: true}
  - {name: towns, match: {path: "^/t"}, limits: [{limit: 3, window: 1m, algorithm: fixed_window, block: 30s}, 10/hour]}
  - {name: search, match: {path: "^/search"}, quotas: [units]}
  - {name: partners, match: {path: "^/partner"}, key: [user], limits: [{limit: 9, calendar: day, zone: "attr:tz"}]}
`

// requests are questions of every kind, good and bad.
func requests(c limitertest.Choices, n int) []limiter.Request {
	pick := func(words ...string) string { return words[c.Pick(len(words))] }
	out := make([]limiter.Request, n)
	for i := range out {
		r := &out[i]
		r.Path = pick("/login", "/towns", "/t", "/other", "/search", "/partner")
		r.User, r.IP = pick("", "ada", "bob", strings.Repeat("u", 300)), pick("", "10.0.0.7", "10.0.0.8")
		r.Group, r.Method = pick("", "admin"), pick("GET", "POST", "")
		if c.Pick(3) == 0 {
			r.Attributes = map[string]string{"plan": pick("gold", "free"), "x": "y"}
		}
		if c.Pick(3) == 0 {
			if r.Attributes == nil {
				r.Attributes = map[string]string{}
			}
			r.Attributes["tz"] = pick("Europe/Berlin", "Nowhere")
		}
		if c.Pick(2) == 0 {
			r.Cost = limiter.Units(int64(c.Pick(9)) - 1)
		}
		if c.Pick(9) == 0 {
			r.Rule = pick("towns", "nine")
		}
	}
	return out
}

// TestAnswersAreTheNodes asks the same of a node directly and of another over
// each protocol, in batches of all sizes, and compares every word.
func TestAnswersAreTheNodes(t *testing.T) {
	for name, ask := range map[string]func(*server, []limiter.Request) []*limiter.Answer{
		"Check": askOneByOne, "CheckBatch": askBatch, "CheckStream": askStream,
	} {
		t.Run(name, func(t *testing.T) {
			s, direct := newServer(t, mixed, nil), newServer(t, mixed, nil)
			c := limitertest.SeededChoices(1)
			denied, failed, total, drawn, zones := 0, 0, 0, 0, 0
			for _, n := range []int{1, 2, 7, 100, 400, 1, 1000, 30} {
				rs := requests(c, n)
				got := ask(s, rs)
				for i := range rs {
					var d limiter.Decision
					var want *limiter.Answer
					if err := direct.node.CheckInto(t.Context(), &rs[i], &d); err == nil {
						want = new(direct.node.Answer(&rs[i], &d))
						if !d.Allowed {
							denied++
						}
						drawn, zones = drawn+len(want.DrawnBy), zones+len(want.ZoneDefault)
					} else {
						failed++
					}
					total++
					if !reflect.DeepEqual(got[i], want) {
						t.Fatalf("check %d of %d, %+v:\ngot  %+v\nwant %+v", i, n, rs[i], got[i], want)
					}
				}
				now := s.clock.read().Add(700 * time.Millisecond)
				s.clock.set(limiter.TickOf(now))
				direct.clock.set(limiter.TickOf(now))
			}
			if drawn == 0 || zones == 0 {
				t.Errorf("%d bytes of drawn_by and %d of zone_default: each was to be there", drawn, zones)
			}
			if denied < total/10 || failed < total/10 || denied+failed > total*9/10 {
				t.Errorf("of %d checks %d were denied and %d failed; a tenth of each kind was to be", total, denied, failed)
			}
		})
	}
}

func askOneByOne(s *server, rs []limiter.Request) []*limiter.Answer {
	out := make([]*limiter.Answer, len(rs))
	for i := range rs {
		if m, err := s.api.Check(context.Background(), weirwire.NewCheckRequest(&rs[i], false)); err == nil {
			out[i] = new(weirwire.AnswerOf(m))
		}
	}
	return out
}

func askBatch(s *server, rs []limiter.Request) []*limiter.Answer {
	in := &weirv1.CheckBatchRequest{}
	for i := range rs {
		in.Checks = append(in.Checks, weirwire.NewCheckRequest(&rs[i], false))
	}
	out := make([]*limiter.Answer, len(rs))
	m, err := s.api.CheckBatch(context.Background(), in)
	if err != nil {
		return out
	}
	for i, r := range m.Results {
		if d := r.GetDecision(); d != nil {
			out[i] = new(weirwire.AnswerOf(d))
		}
	}
	return out
}

// askStream asks by as many messages as there are rules named: a message names
// one for all.
func askStream(s *server, rs []limiter.Request) []*limiter.Answer {
	out := make([]*limiter.Answer, len(rs))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stream, err := s.api.CheckStream(ctx)
	if err != nil {
		return out
	}
	for from := 0; from < len(rs); {
		in := &weirv1.CheckColumns{EveryLimit: true, Rule: rs[from].Rule}
		to := from
		for to < len(rs) && rs[to].Rule == in.Rule {
			addColumns(in, &rs[to])
			to++
		}
		if stream.Send(in) != nil {
			return out
		}
		m, err := stream.Recv()
		if err != nil {
			return out
		}
		for i, c := range expand(m) {
			if c != nil {
				out[from+i] = new(weirwire.AnswerOf(c))
			}
		}
		from = to
	}
	return out
}

// TestBadCallsOverGRPC: each is refused with a status and a text that says what to do,
// and the node continues to answer.
func TestBadCallsOverGRPC(t *testing.T) {
	s := newServer(t, fixed, func(o *transport.Options) { o.AllowReset, o.AllowRequestLimits = false, false })
	own := []*weirv1.Limit{{Limit: 5, WindowUs: 1e6}}
	check := func(m *weirv1.CheckRequest) error {
		_, err := s.api.Check(t.Context(), m)
		return err
	}
	attributes := map[string]string{}
	for i := range 17 {
		attributes[fmt.Sprint(i)] = ""
	}
	for _, c := range []struct {
		what string
		err  error
		code codes.Code
		text string
	}{
		{"a negative cost", check(&weirv1.CheckRequest{Cost: new(int64(-1))}), codes.InvalidArgument,
			"cost -1 is out of range"},
		{"a huge cost", check(&weirv1.CheckRequest{Cost: new(int64(1 << 62))}), codes.InvalidArgument, "out of range"},
		{"a user above 8 KiB", check(&weirv1.CheckRequest{User: strings.Repeat("u", 8193)}), codes.InvalidArgument,
			"the user has 8193 bytes; at most 8192"},
		{"two addresses", check(&weirv1.CheckRequest{Ip: "203.0.113.9, 10.0.0.1"}), codes.InvalidArgument,
			"neither an address nor a network"},
		{"an unknown rule", check(&weirv1.CheckRequest{Rule: "nine"}), codes.InvalidArgument, `no rule "nine"`},
		{"17 attributes", check(&weirv1.CheckRequest{Attributes: attributes}), codes.InvalidArgument,
			"17 attributes; at most 16"},
		// B5: on the wire only where the operator allows it.
		{"own limits", check(&weirv1.CheckRequest{Limits: own}), codes.PermissionDenied, "--allow-request-limits"},
		{"a large message", check(&weirv1.CheckRequest{User: strings.Repeat("u", 5<<20)}), codes.ResourceExhausted,
			"larger than max"},
		{"a batch of 1001", func() error {
			_, err := s.api.CheckBatch(t.Context(), &weirv1.CheckBatchRequest{Checks: make([]*weirv1.CheckRequest, 1001)})
			return err
		}(), codes.InvalidArgument, "1001 checks; at most 1000"},
		{"a reset", func() error {
			_, err := s.api.Reset(t.Context(), &weirv1.ResetRequest{User: "ada"})
			return err
		}(), codes.PermissionDenied, "--allow-reset"},
	} {
		if status.Code(c.err) != c.code || !strings.Contains(status.Convert(c.err).Message(), c.text) {
			t.Errorf("%s: got %v, want %v with %q", c.what, c.err, c.code, c.text)
		}
	}
	m, err := s.api.CheckBatch(t.Context(),
		&weirv1.CheckBatchRequest{Checks: []*weirv1.CheckRequest{{User: "ada", Limits: own}, {User: "ada"}}})
	if err != nil {
		t.Fatal(err)
	}
	if e := m.Results[0].GetError(); e.GetCode() != uint32(codes.PermissionDenied) ||
		!m.Results[1].GetDecision().GetAllowed() {
		t.Errorf("a batch with limits of its own in one check: %v", m.Results)
	}
	s.stillCounts(t, "ada", 2)
}

// stillCounts checks that a user has so many units left.
func (s *server) stillCounts(t *testing.T, user string, left uint64) {
	t.Helper()
	m, err := s.api.Check(t.Context(), &weirv1.CheckRequest{User: user, Cost: new(int64(0))})
	if err != nil || m.Limits[0].Remaining != left {
		t.Errorf("%s has %v left, %v; want %d", user, m.GetLimits(), err, left)
	}
}

// TestBadColumns: a message that makes no sense is answered so, on a stream that
// goes on; what is wrong with one check concerns that one.
func TestBadColumns(t *testing.T) {
	s := newServer(t, fixed, nil)
	stream, err := s.api.CheckStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ask := func(m *weirv1.CheckColumns) *weirv1.DecisionColumns {
		t.Helper()
		if err := stream.Send(m); err != nil {
			t.Fatal(err)
		}
		out, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if out.Id != m.Id {
			t.Errorf("the reply to message %d has the id %d", m.Id, out.Id)
		}
		return out
	}
	out := ask(&weirv1.CheckColumns{Id: 1, Keys: []byte("adabob"), UserLengths: []uint32{3, 3}, Costs: []int64{1}})
	if out.Error.GetCode() != uint32(codes.InvalidArgument) ||
		!strings.Contains(out.Error.Message, "user_lengths has 2 elements and costs 1") || out.Flags != nil {
		t.Errorf("columns of unequal length: %v", out)
	}
	out = ask(&weirv1.CheckColumns{Id: 2, Costs: make([]int64, 1001)})
	if !strings.Contains(out.Error.GetMessage(), "1001 checks; at most 1000") {
		t.Errorf("1001 checks: %v", out)
	}
	out = ask(&weirv1.CheckColumns{Id: 3, Keys: []byte("ada"), UserLengths: []uint32{3, 0}, Rule: "nine"})
	if out.Error != nil || len(out.Errors) != 1 || !slices.Equal(out.Errors[0].Checks, []uint32{0, 1}) ||
		!strings.Contains(out.Errors[0].Message, `no rule "nine"`) {
		t.Errorf("an unknown rule: %v", out)
	}
	long := strings.Repeat("u", 8193)
	out = ask(&weirv1.CheckColumns{Id: 4, Keys: []byte("ada" + long + "adaada"), UserLengths: []uint32{3, 8193, 3, 3},
		Costs: []int64{1, 1, -1, limiter.MaxUnits + 1}})
	if !slices.Equal(out.Flags, []byte{1, 128, 128, 128}) || len(out.Errors) != 3 || out.Remaining[0] != 2 {
		t.Errorf("one good check among bad ones: %v", out)
	}
	out = ask(&weirv1.CheckColumns{Id: 5})
	if out.Error != nil || len(out.Flags) != 0 {
		t.Errorf("a message without checks: %v", out)
	}
	out = ask(&weirv1.CheckColumns{Id: 6, Keys: []byte("adaada"), UserLengths: []uint32{3, 3}, Rule: "all", Peek: true,
		Costs: []int64{2, 3}})
	if !slices.Equal(out.Flags, []byte{1, 0}) || !slices.Equal(out.Remaining, []uint64{2, 2}) || out.EveryLimit != nil {
		t.Errorf("two peeks under a named rule: %v", out)
	}
	s.stillCounts(t, "ada", 2)
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err == nil || status.Code(err) != codes.Unknown {
		t.Errorf("the end of the stream: %v, want io.EOF", err)
	}
}

// B5: limits that come with a request over the wire, where they are allowed, do
// what those of a rules file do; every option arrives.
func TestLimitsInRequests(t *testing.T) {
	s := newServer(t, "", nil)
	half := 500
	for _, spec := range []limiter.Spec{
		{Limit: 2, Window: time.Minute, Rounding: limiter.RoundCeil, Weight: &half, Name: "w"},
		{Limit: 2, Window: time.Minute, Algorithm: limiter.FixedWindow, Align: limiter.AlignFirstHit, Block: time.Second},
		{Limit: 2, Window: time.Minute, Algorithm: limiter.SlidingWindow, SubWindows: 6, Coverage: limiter.CoverageLenient,
			CountRejected: limiter.CountAll},
		{Limit: 2, Window: time.Minute, Algorithm: limiter.LeakyBucket, Drip: limiter.DripInterval, Burst: 3},
		{Name: "five", Limit: 30, Window: time.Minute, Algorithm: limiter.LeakyBucket, Drip: limiter.DripInterval,
			DripUnits: 5},
		{Limit: 2, Calendar: limiter.CalendarMonth, Zone: "Asia/Kathmandu", AnchorDay: 30, At: 6*time.Hour + 5*time.Minute,
			Name: "calendar"},
		{Limit: 2, Calendar: limiter.CalendarWeek, WeekStart: limiter.Saturday, Zone: "America/New_York"},
	} {
		l := limitertest.Limit(t, spec)
		r := limiter.Request{Path: "/" + l.String(), User: "ada", Limits: []*limiter.Limit{l}}
		direct, err := weir.Open(t.Context(), weir.Config{Now: s.clock.read})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 4 {
			var d limiter.Decision
			if err := direct.CheckInto(t.Context(), &r, &d); err != nil {
				t.Fatal(err)
			}
			m, err := s.api.Check(t.Context(), weirwire.NewCheckRequest(&r, false))
			if err != nil {
				t.Fatal(err)
			}
			if got, want := weirwire.AnswerOf(m), direct.Answer(&r, &d); !reflect.DeepEqual(got, want) {
				t.Errorf("%v, check %d: got %+v, want %+v", spec.Algorithm, i, got, want)
			}
		}
		if err := direct.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for text, l := range map[string]*weirv1.Limit{
		"limit 0 of the request: invalid limit: limit 0 is out of range": {WindowUs: 1e6},
		"no algorithm number 300":             {Limit: 1, WindowUs: 1e6, Algorithm: 300},
		"no drip number 9":                    {Limit: 1, WindowUs: 1e6, Algorithm: 5, Drip: 9},
		"exclude each other":                  {Limit: 1, WindowUs: 1e6, Calendar: weirv1.Calendar_CALENDAR_DAY},
		"no time zone":                        {Limit: 1, Zone: "Mars/Olympus", Calendar: weirv1.Calendar_CALENDAR_DAY},
		"no rounding number -1":               {Limit: 1, WindowUs: 1e6, Rounding: -1},
		"window_us -1 is out":                 {Limit: 1, WindowUs: -1},
		"block_us 9223372036854775807 is out": {Limit: 1, WindowUs: 1e6, BlockUs: 1<<63 - 1},
	} {
		_, err := s.api.Check(t.Context(), &weirv1.CheckRequest{Path: "/", Limits: []*weirv1.Limit{l}})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want %q", err, text)
		}
	}
	_, err := s.api.Check(t.Context(), &weirv1.CheckRequest{Limits: make([]*weirv1.Limit, 17)})
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "17 limits; at most 16") {
		t.Errorf("17 limits: %v", err)
	}
}

// TestReset: the counters are deleted, and the response has their number.
func TestReset(t *testing.T) {
	s := newServer(t, fixed, nil)
	if _, err := s.api.Check(t.Context(), &weirv1.CheckRequest{User: "ada"}); err != nil {
		t.Fatal(err)
	}
	s.stillCounts(t, "ada", 2)
	m, err := s.api.Reset(t.Context(), &weirv1.ResetRequest{User: "ada"})
	if err != nil || m.Counters != 1 {
		t.Errorf("reset: %v, %v", m, err)
	}
	s.stillCounts(t, "ada", 3)
	if _, err := s.api.Reset(t.Context(), &weirv1.ResetRequest{Rule: "nine"}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a reset under an unknown rule: %v", err)
	}
}

// unanswering is a decider in a cluster where no member answers a reset in time.
type unanswering struct{ transport.Decider }

func (unanswering) Reset(context.Context, limiter.Request) (int, error) {
	return 0, fmt.Errorf("%w within 300ms", limiter.ErrUnanswered)
}

// A reset without an answer may have been done, so it has another code than a refused
// one.
func TestResetThatNobodyAnswers(t *testing.T) {
	s := newServer(t, fixed, func(o *transport.Options) { o.Decider = unanswering{o.Decider} })
	if got := s.post(t, "/v1/reset", `{"user":"ada"}`); got.status != 504 || !strings.Contains(got.body, "within 300ms") {
		t.Errorf("over HTTP: %+v", got)
	}
	if _, err := s.api.Reset(t.Context(), &weirv1.ResetRequest{User: "ada"}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("over gRPC: %v", err)
	}
}

// forbidding is a decider in a cluster whose members take no resets from each other.
type forbidding struct{ transport.Decider }

func (forbidding) Reset(context.Context, limiter.Request) (int, error) {
	return 0, fmt.Errorf("%w: start them with --allow-reset", limiter.ErrForbidden)
}

// A reset that the member which holds the key refuses is for an operator to allow.
func TestResetThatAMemberRefuses(t *testing.T) {
	s := newServer(t, fixed, func(o *transport.Options) { o.Decider = forbidding{o.Decider} })
	if got := s.post(t, "/v1/reset", `{"user":"ada"}`); got.status != 403 || !strings.Contains(got.body, "--allow-reset") {
		t.Errorf("over HTTP: %+v", got)
	}
	if _, err := s.api.Reset(t.Context(), &weirv1.ResetRequest{User: "ada"}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("over gRPC: %v", err)
	}
}

// TestClosedNode: a node that is closed is unavailable, in each protocol's form.
func TestClosedNode(t *testing.T) {
	s := newServer(t, fixed, nil)
	stream, err := s.api.CheckStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.node.Close(); err != nil {
		t.Fatal(err)
	}
	_, one := s.api.Check(t.Context(), &weirv1.CheckRequest{})
	_, batch := s.api.CheckBatch(t.Context(), &weirv1.CheckBatchRequest{Checks: []*weirv1.CheckRequest{{}}})
	if err := stream.Send(&weirv1.CheckColumns{Costs: []int64{1}}); err != nil {
		t.Fatal(err)
	}
	_, columns := stream.Recv()
	for _, err := range []error{one, batch, columns} {
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "closed") {
			t.Errorf("got %v, want Unavailable", err)
		}
	}
	if resp := s.get(t, "/v1/check"); resp.status != 503 || resp.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("over HTTP: %+v", resp)
	}
}

// TestHealthAndReflection: the services that tools look for.
func TestHealthAndReflection(t *testing.T) {
	var down atomic.Bool
	s := newServer(t, fixed, func(o *transport.Options) {
		o.Ready = func() error {
			if down.Load() {
				return errors.New("joining")
			}
			return nil
		}
	})
	health := healthv1.NewHealthClient(s.conn)
	ask := func(service string) healthv1.HealthCheckResponse_ServingStatus {
		m, err := health.Check(t.Context(), &healthv1.HealthCheckRequest{Service: service})
		if err != nil {
			t.Fatal(err)
		}
		return m.Status
	}
	for _, service := range []string{"", "weir.v1.Limiter"} {
		if got := ask(service); got != healthv1.HealthCheckResponse_SERVING {
			t.Errorf("%q is %v", service, got)
		}
	}
	down.Store(true)
	if got := ask(""); got != healthv1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("a node that is not ready is %v", got)
	}
	if _, err := health.Check(t.Context(),
		&healthv1.HealthCheckRequest{Service: "nine"}); status.Code(err) != codes.NotFound {
		t.Errorf("a service that is not there: %v", err)
	}

	stream, err := reflectionv1.NewServerReflectionClient(s.conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(
		&reflectionv1.ServerReflectionRequest{
			MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	m, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, service := range m.GetListServicesResponse().GetService() {
		names = append(names, service.Name)
	}
	if !slices.Contains(names, "weir.v1.Limiter") || !slices.Contains(names, "grpc.health.v1.Health") {
		t.Errorf("reflection lists %v", names)
	}
	// What takes no room is small.
	large := strings.Repeat("s", 4<<10)
	if _, err := health.Check(t.Context(),
		&healthv1.HealthCheckRequest{Service: large}); status.Code(err) != codes.Internal {
		t.Errorf("a large name of a service: %v", err)
	}
	if err := stream.Send(&reflectionv1.ServerReflectionRequest{Host: large}); err != nil {
		t.Fatal(err)
	}
	if m, err := stream.Recv(); status.Code(err) != codes.Internal {
		t.Errorf("a large host: %v, an answer for %.9q", err, m.GetValidHost())
	}
}

// observed counts the calls of an observer.
type observed struct {
	mu   sync.Mutex
	seen map[string]int
}

func (o *observed) Served(method, code string, d time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if d < 0 || d > time.Minute {
		code = "a strange duration: " + d.String()
	}
	o.seen[method+" "+code]++
}

// TestObserver: every request is reported once, under one of few names.
func TestObserver(t *testing.T) {
	o := &observed{seen: map[string]int{}}
	s := newServer(t, fixed, func(opt *transport.Options) { opt.Observer = o; opt.AllowReset = false })
	ctx := t.Context()
	for range 4 {
		s.api.Check(ctx, &weirv1.CheckRequest{User: "ada"}) // one is denied, which is no error
	}
	s.api.Check(ctx, &weirv1.CheckRequest{Rule: "nine"})
	s.api.CheckBatch(ctx, &weirv1.CheckBatchRequest{Checks: make([]*weirv1.CheckRequest, 2000)})
	s.api.Reset(ctx, &weirv1.ResetRequest{})
	s.api.Explain(ctx, &weirv1.CheckRequest{})
	s.api.Explain(ctx, &weirv1.CheckRequest{Rule: "nine"})
	stream, err := s.api.CheckStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*weirv1.CheckColumns{{}, {Costs: []int64{1, 1}}, {Keys: []byte("x")}} {
		if err := stream.Send(m); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	s.get(t, "/v1/check?user=ada")
	s.get(t, "/v1/check?user=bob")
	s.get(t, "/none")
	s.do(t, "BREW", "/v1/check", "", "")
	want := map[string]int{
		"Check OK": 4, "Check InvalidArgument": 1, "CheckBatch InvalidArgument": 1, "Reset PermissionDenied": 1,
		"Explain OK": 1, "Explain InvalidArgument": 1,
		"CheckStream OK": 2, "CheckStream InvalidArgument": 1,
		"GET /v1/check 429": 1, "GET /v1/check 200": 1, "other 404": 1, "other 405": 1,
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !maps.Equal(o.seen, want) {
		t.Errorf("observed %v\n    want %v", o.seen, want)
	}
}

// TestEnumsAreTheLimiters: numbers on the wire are those of package limiter, by
// name.
func TestEnumsAreTheLimiters(t *testing.T) {
	hold := func(prefix string, names map[int32]string, of func(int32) string) {
		for n, name := range names {
			if want := prefix + strings.ToUpper(of(n)); name != want {
				t.Errorf("%d is %s, want %s", n, name, want)
			}
		}
		if of(int32(len(names))) != "unknown" {
			t.Errorf("%s lacks %s", prefix, of(int32(len(names))))
		}
	}
	hold("ALGORITHM_", weirv1.Algorithm_name, func(n int32) string { return limiter.Algorithm(n).String() })
	hold("ALIGN_", weirv1.Align_name, func(n int32) string { return limiter.Align(n).String() })
	hold("COVERAGE_", weirv1.Coverage_name, func(n int32) string { return limiter.Coverage(n).String() })
	hold("ROUNDING_", weirv1.Rounding_name, func(n int32) string { return limiter.Rounding(n).String() })
	hold("DRIP_", weirv1.Drip_name, func(n int32) string { return limiter.Drip(n).String() })
	hold("COUNT_REJECTED_", weirv1.CountRejected_name, func(n int32) string { return limiter.CountRejected(n).String() })
	hold("CALENDAR_", weirv1.Calendar_name, func(n int32) string { return limiter.Calendar(n).String() })
	hold("WEEKDAY_", weirv1.Weekday_name, func(n int32) string { return limiter.Weekday(n).String() })
	hold("SOURCE_", weirv1.Source_name, func(n int32) string { return limiter.Source(n).String() })
	a := weirwire.AnswerOf(&weirv1.CheckResponse{Source: 999, Limits: []*weirv1.LimitDecision{{Algorithm: -3}}})
	if a.Source != "unknown" || a.Limits[0].Algorithm != "unknown" {
		t.Errorf("numbers of a newer node: %+v", a)
	}
}

// away is a decider that cannot serve now, or that was given up before it did.
type away struct {
	*weir.Node
	why error
}

var errAway = errors.New("it is away")

func (a away) CheckBatchInto(context.Context, []limiter.Request, []limiter.Decision) error {
	return a.why
}

// A stream that ends because nothing can be decided states that nothing was decided. It does not where the time of
// the stream ended while an owner was asked, which may have counted the message: whoever asked again would be counted
// twice.
func TestUndecidedTrailer(t *testing.T) {
	for _, test := range []struct {
		why      error
		code     codes.Code
		trailers int
	}{
		{errAway, codes.Unavailable, 1}, {context.DeadlineExceeded, codes.DeadlineExceeded, 0},
		{fmt.Errorf("asked: %w", context.Canceled), codes.Canceled, 0},
	} {
		s := newServer(t, fixed, func(o *transport.Options) { o.Decider = away{o.Decider.(*weir.Node), test.why} })
		stream, err := s.api.CheckStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&weirv1.CheckColumns{PathLengths: []uint32{0}}); err != nil {
			t.Fatal(err)
		}
		_, err = stream.Recv()
		got := stream.Trailer().Get(weirv1.TrailerUndecided)
		if status.Code(err) != test.code || len(got) != test.trailers {
			t.Errorf("%v: %v, %v", test.why, err, got)
		}
	}
}
