package transport

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/listen"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// stub decides as a test defines.
type stub struct {
	decide func(r *limiter.Request, d *limiter.Decision) error
	err    error // of everything
	calls  int   // of CheckBatch
}

func (s *stub) CheckInto(_ context.Context, r *limiter.Request, d *limiter.Decision) error {
	d.Clear()
	if s.err != nil || s.decide == nil {
		return s.err
	}
	return s.decide(r, d)
}

func (s *stub) PeekInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error {
	return s.CheckInto(ctx, r, d)
}

func (s *stub) CheckBatchInto(ctx context.Context, rs []limiter.Request, ds []limiter.Decision) error {
	s.calls++
	if s.err != nil {
		return s.err
	}
	var some limiter.BatchError
	for i := range rs {
		if err := s.CheckInto(ctx, &rs[i], &ds[i]); err != nil {
			ds[i].Clear()
			ds[i].Allowed = false
			some.Index, some.Errs = append(some.Index, i), append(some.Errs, err)
		}
	}
	if len(some.Index) > 0 {
		return &some
	}
	return nil
}

func (s *stub) Reset(context.Context, limiter.Request) (int, error) { return 0, s.err }

func (s *stub) Answer(_ *limiter.Request, d *limiter.Decision) limiter.Answer {
	return limiter.NewAnswer(d, func(i int) string { return fmt.Sprint("key", i) })
}

func (s *stub) KeyName(r *limiter.Request, l *limiter.LimitDecision) string {
	return r.User + ":" + l.Limit.Name()
}

// filled turns a message into the requests of a batch, as decideColumns does.
func filled(b *batch, m *weirv1.CheckColumns) (int, error) {
	n, err := columnsLen(m)
	if err == nil {
		alike := alikeOf(m)
		b.fillColumns(m, n, &alike)
	}
	return n, err
}

func TestColumnsBecomeRequests(t *testing.T) {
	var b batch
	n, err := filled(&b, &weirv1.CheckColumns{
		Keys:          []byte("/townsada10.0.0.7devGETgold" + "/\xffbobPOST"),
		PathLengths:   []uint32{6, 2},
		UserLengths:   []uint32{3, 3},
		IpLengths:     []uint32{8, 0},
		GroupLengths:  []uint32{3, 0},
		MethodLengths: []uint32{3, 4},
		Attributes:    []*weirv1.AttributeColumn{{Name: "plan", Lengths: []uint32{4, 0}}},
		Costs:         []int64{5, -7},
		RuleCosts:     []uint32{0},
		Rule:          "towns",
		Ids:           []byte("\xfe7"),
		IdLengths:     []uint32{0, 2},
		IdTtlUs:       5000,
		IdsOptional:   true,
	})
	if err != nil || n != 2 {
		t.Fatalf("%d requests, %v", n, err)
	}
	want := []limiter.Request{
		{Path: "/towns", User: "ada", IP: "10.0.0.7", Group: "dev", Method: "GET",
			Attributes: map[string]string{"plan": "gold"}, Rule: "towns", IDOptional: true},
		{Path: "/\xff", User: "bob", Method: "POST", Cost: limiter.Units(-7), Rule: "towns", ID: "\xfe7",
			IDTTL: 5 * time.Millisecond, IDOptional: true},
	}
	if !reflect.DeepEqual(b.requests[:2], want) {
		t.Errorf("got  %+v\nwant %+v", b.requests[:2], want)
	}

	// A batch contains nothing of an earlier one.
	b.requests[0].Tenant, b.requests[1].LimitKeys = "shop", [][]string{{"user"}}
	n, err = filled(&b, &weirv1.CheckColumns{Costs: []int64{1, 1}, Attributes: []*weirv1.AttributeColumn{{Name: "b"}}})
	if err != nil || n != 2 {
		t.Fatalf("%d requests, %v", n, err)
	}
	for i := range 2 {
		if want := (limiter.Request{Cost: limiter.Units(1)}); !reflect.DeepEqual(b.requests[i], want) {
			t.Errorf("after another batch request %d is %+v", i, b.requests[i])
		}
	}
}

// TestARequestOfColumnsKeepsNothing sets each field of a request that was used before, such as the tenant of an
// earlier caller. It notices a field that is not set anew.
func TestARequestOfColumnsKeepsNothing(t *testing.T) {
	values := limiter.Request{
		Path: "p", Method: "m", User: "u", IP: "i", Group: "g", Attributes: map[string]string{}, Cost: limiter.Units(0),
		Rule:   "r",
		Limits: []*limiter.Limit{}, LimitKeys: [][]string{}, ID: "7", IDTTL: 1, IDOptional: true, Hold: 1, Tenant: "t",
		Lent: true, Rate: 1, Fast: true, Caller: "c", Scope: noRule{},
	}
	of := reflect.ValueOf(values)
	for i := range of.NumField() {
		name := of.Type().Field(i).Name
		if of.Field(i).IsZero() {
			t.Fatalf("field %s has no value here: give it one", name)
		}
		for _, alike := range []limiter.Request{{}, {Rule: "towns", Tenant: "shop", Caller: "a", Hold: 5, IDOptional: true,
			Lent: true, Scope: noRule{}}} {
			var b batch
			m := &weirv1.CheckColumns{Keys: []byte("/a"), PathLengths: []uint32{2}}
			b.fillColumns(m, 1, &alike)
			b.grow(1) // as whoever writes requests does
			reflect.ValueOf(&b.requests[0]).Elem().Field(i).Set(of.Field(i))
			b.fillColumns(m, 1, &alike)
			want := alike
			want.Path = "/a"
			if !reflect.DeepEqual(b.requests[0], want) {
				t.Errorf("after %s was set: got %+v, want %+v", name, b.requests[0], want)
			}
		}
	}
}

// TestRequestsThatAreAlike has messages of all kinds follow each other in one batch. Each becomes the requests
// that it becomes in a new one.
func TestRequestsThatAreAlike(t *testing.T) {
	scopes := []limiter.Scope{nil, new(oneRule), new(oneRule), noRule{}}
	rng := rand.New(rand.NewPCG(1, 2))
	var used batch
	kept := 0
	for range 20_000 {
		n := 1 + rng.IntN(3)
		m := &weirv1.CheckColumns{}
		column := func(lengths *[]uint32) {
			for range n {
				*lengths = append(*lengths, uint32(rng.IntN(3)))
				m.Keys = append(m.Keys, "abcdef"[rng.IntN(4):][:(*lengths)[len(*lengths)-1]]...)
			}
		}
		column(&m.PathLengths)
		if rng.IntN(8) > 0 {
			column(&m.UserLengths)
		}
		switch rng.IntN(24) {
		case 0:
			column(&m.IpLengths)
		case 1:
			column(&m.GroupLengths)
		case 2:
			column(&m.MethodLengths)
		case 3:
			m.IdTtlUs, m.Ids, m.IdLengths = 5000, []byte("777")[:n], []uint32{1, 1, 1}[:n]
		case 4:
			m.Costs = []int64{4, 5, 6}[:n]
		case 5:
			m.Costs, m.RuleCosts = []int64{4, 5, 6}[:n], []uint32{0}
		case 6:
			a := &weirv1.AttributeColumn{Name: "plan"}
			column(&a.Lengths)
			m.Attributes = append(m.Attributes, a)
		case 7: // another kind of message, such as CheckBatch
			used.grow(2)
			used.requests[rng.IntN(2)] = limiter.Request{Path: "/x", Cost: limiter.Units(9), Tenant: "other",
				Limits: []*limiter.Limit{nil}}
		}
		alike := limiter.Request{}
		if rng.IntN(4) == 0 {
			alike.Rule = []string{"", "towns"}[rng.IntN(2)]
			alike.Hold = time.Duration(rng.IntN(2))
			alike.IDOptional = rng.IntN(2) == 0
			alike.Tenant, alike.Caller = []string{"", "a", "b"}[rng.IntN(3)], []string{"", "c"}[rng.IntN(2)]
		}
		alike.Scope = scopes[rng.IntN(8)%len(scopes)]
		kept += min(used.alike.of(&alike), n)
		var fresh batch
		used.fillColumns(m, n, &alike)
		fresh.fillColumns(m, n, &alike)
		if !reflect.DeepEqual(used.requests[:n], fresh.requests[:n]) {
			t.Fatalf("%v with %+v:\ngot  %+v\nwant %+v", m, alike, used.requests[:n], fresh.requests[:n])
		}
	}
	if kept < 1000 {
		t.Errorf("%d requests were kept", kept)
	}
}

// oneRule is a scope that can be compared. It is not of size 0: pointers to such may be equal.
type oneRule struct{ _ byte }

func (*oneRule) Permits(string) bool { return true }

// noRule is a scope that cannot be compared, and permits nothing.
type noRule []string

func (noRule) Permits(string) bool { return false }

// badColumns are invalid messages with their errors.
func badColumns() map[string]*weirv1.CheckColumns {
	many := make([]*weirv1.AttributeColumn, MaxAttributes+1)
	for i := range many {
		many[i] = &weirv1.AttributeColumn{Name: fmt.Sprint(i)}
	}
	return map[string]*weirv1.CheckColumns{
		"path_lengths has 2 elements and user_lengths 1": {Keys: []byte("ab"), PathLengths: []uint32{1, 1},
			UserLengths: []uint32{0}},
		"user_lengths has 1 elements and costs 2": {Keys: []byte("a"), UserLengths: []uint32{1}, Costs: []int64{1, 1}},
		`ip_lengths has 1 elements and attribute "x" 3`: {IpLengths: []uint32{0},
			Attributes: []*weirv1.AttributeColumn{{Name: "x", Lengths: []uint32{0, 0, 0}}}},
		`attribute "x" has two columns`:          {Attributes: []*weirv1.AttributeColumn{{Name: "x"}, {Name: "x"}}},
		"column 0 of the attributes has no name": {Attributes: []*weirv1.AttributeColumn{{}}},
		"17 columns of attributes; at most 16":   {Attributes: many},
		"ids has 2 bytes, which is not what":     {Ids: []byte("ab"), IdLengths: []uint32{1, 2}},
		"ids has 3 bytes, which is not what":     {Ids: []byte("abc"), IdLengths: []uint32{1, 1}},
		"path_lengths has 2 elements and id_lengths 1": {Keys: []byte("ab"), PathLengths: []uint32{1, 1},
			IdLengths: []uint32{0}},
		"keys has 2 bytes, fewer than the lengths":  {Keys: []byte("ab"), PathLengths: []uint32{2, 1}},
		"keys has 1 bytes, fewer than the lengths":  {Keys: []byte("a"), PathLengths: []uint32{1<<32 - 1, 1<<32 - 1}},
		"keys has 3 bytes, 1 more than the lengths": {Keys: []byte("abc"), PathLengths: []uint32{2, 0}},
		"keys has 1 bytes, 1 more":                  {Keys: []byte("a")},
		"rule_costs names check 1 of 1": {PathLengths: []uint32{0}, Costs: []int64{1},
			RuleCosts: []uint32{1}},
		"the batch has 1001 checks; at most 1000": {Costs: make([]int64, MaxBatch+1)},
	}
}

func TestColumnsThatMakeNoSense(t *testing.T) {
	for want, m := range badColumns() {
		var b batch
		if _, err := filled(&b, m); !errors.Is(err, limiter.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// limits3 are two limits of one rule and one of a shadow rule.
func limits3(t *testing.T) (minute, hour, shadow limiter.LimitDecision) {
	make := func(rule *limiter.Rule, s limiter.Spec) limiter.LimitDecision {
		l, err := limiter.NewLimit(s)
		if err != nil {
			t.Fatal(err)
		}
		return limiter.LimitDecision{Rule: rule, Limit: l, Allowed: true}
	}
	r := &limiter.Rule{Name: "r"}
	return make(r, limiter.Spec{Limit: 5, Window: time.Minute}),
		make(r, limiter.Spec{Limit: 50, Window: time.Hour, Algorithm: limiter.TokenBucket, Burst: 60}),
		make(&limiter.Rule{Name: "s", Shadow: true}, limiter.Spec{Limit: 1, Window: time.Second})
}

// TestReplyTellsOfOneLimit: of a denied check the one that denied, of an allowed
// one that with least remaining, shadow limits last.
func TestReplyTellsOfOneLimit(t *testing.T) {
	minute, hour, shadow := limits3(t)
	var tn turn
	tn.grow(5)
	for i := range 5 {
		tn.decisions[i].Clear()
	}
	put := func(i int, ls ...limiter.LimitDecision) *limiter.Decision {
		d := &tn.decisions[i]
		d.Grow(len(ls))
		for j, l := range ls {
			*d.Limit(j) = l
		}
		d.Source = limiter.SourceOwner
		return d
	}
	shadow.Remaining, minute.Remaining, hour.Remaining = 0, 4, 3
	hour.ResetAfter = 77 * time.Microsecond
	put(0, shadow, minute, hour) // the hour has least
	put(1, shadow)
	d := put(2, minute, hour)
	l := d.Limit(0)
	l.Allowed, l.RetryAfter, l.Remaining, l.Blocked, d.Allowed = false, 9*time.Microsecond, 2, true, false
	d.Limit(1).RetryAfter = 12 * time.Microsecond // counted although another denied
	arith.Conclude(d)
	// 3: no rule. 4: not decided.
	tn.decisions[3].Source = limiter.SourceNone
	tn.decisions[4].Allowed = false
	tn.failed, tn.errs = []int{4}, []error{invalid("no")}
	tn.fillReply(5)
	newService(Options{Decider: &stub{}}).fillEvery(&tn, 5)

	want := &weirv1.DecisionColumns{
		Flags:        []byte{1, 1, 8, 1, 128},
		Remaining:    []uint64{3, 0, 2, 1<<32 - 1, 0},
		ResetAfterUs: []int64{77, 0, 0, 0, 0},
		RetryAfterUs: []int64{0, 0, 12, 0, 0},
		LimitRefs:    []uint32{1, 2, 3, 0, 0},
		Sources:      []byte{1, 1, 1, 0, 0},
		Limits: []*weirv1.LimitInfo{
			{Rule: "r", Name: "hour", Algorithm: weirv1.Algorithm_ALGORITHM_TOKEN_BUCKET, Limit: 50, Capacity: 60,
				WindowUs: 3600e6},
			{Rule: "s", Name: "second", Limit: 1, Capacity: 1, WindowUs: 1e6, Shadow: true},
			{Rule: "r", Name: "minute", Limit: 5, Capacity: 5, WindowUs: 60e6},
		},
		Errors: []*weirv1.ColumnsError{{Code: 3, Message: "invalid: no", Checks: []uint32{4}}},
		EveryLimit: &weirv1.LimitColumns{
			Counts:       []uint32{3, 1, 2, 0, 0},
			LimitIndexes: []uint32{1, 2, 0, 1, 2, 0},
			Flags:        []byte{1, 1, 1, 1, 8, 1},
			Remaining:    []uint64{0, 4, 3, 0, 2, 3},
			ResetAfterUs: []int64{0, 0, 77, 0, 0, 77},
			RetryAfterUs: []int64{0, 0, 0, 0, 9, 12},
			Costs:        []uint64{0, 0, 0, 0, 0, 0},
			KeyIndexes:   []uint32{0, 0, 0, 0, 0, 0},
			Keys:         []string{":second", ":minute", ":hour", ":second", ":minute", ":hour"},
			RuleRefs:     []uint32{0, 0, 1, 0, 0},
			RuleNames:    []string{"r"},
		},
	}
	if !proto.Equal(&tn.reply, want) {
		t.Errorf("got  %v\nwant %v", &tn.reply, want)
	}

	// The next reply has nothing left of this one.
	tn.grow(1)
	tn.decisions[0].Clear()
	put(0, minute)
	tn.fillReply(1)
	want = &weirv1.DecisionColumns{
		Flags: []byte{1}, Remaining: []uint64{4}, ResetAfterUs: []int64{0}, LimitRefs: []uint32{1},
		Limits: []*weirv1.LimitInfo{{Rule: "r", Name: "minute", Limit: 5, Capacity: 5, WindowUs: 60e6}},
	}
	if !proto.Equal(&tn.reply, want) {
		t.Errorf("the next reply: got %v\nwant %v", &tn.reply, want)
	}
}

// TestNamesThatAreNoText: a reply that cannot be encoded is an error of its message. The
// stream, and what else is in flight on it, goes on.
func TestNamesThatAreNoText(t *testing.T) {
	s := newService(Options{Decider: &stub{}})
	for name, want := range map[string]codes.Code{"\xff": codes.Internal, "text": codes.OK} {
		m := &columnsMessage{service: s, turn: s.turns.Get().(*turn), hold: listen.Hold{Room: &s.room}}
		m.turn.reply.Reset()
		m.turn.reply.Id, m.turn.reply.EveryLimit = 7, &weirv1.LimitColumns{Keys: []string{name}}
		out, err := m.writeReply()
		if err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		var got weirv1.DecisionColumns
		if err := proto.Unmarshal(out.Materialize(), &got); err != nil || got.Id != 7 ||
			codes.Code(got.GetError().GetCode()) != want {
			t.Errorf("%q: %v, %v, want %v", name, err, &got, want)
		}
	}
	if err := checkError(invalid("\xff")); !utf8.ValidString(err.Message) {
		t.Errorf("%q", err.Message)
	}
}

// TestErrorsInARowAreToldOnce: an unknown rule in a column concerns every check,
// and is one error.
func TestErrorsInARowAreToldOnce(t *testing.T) {
	by := &stub{decide: func(r *limiter.Request, d *limiter.Decision) error {
		if r.Rule != "" {
			return invalid("there is no rule %q", r.Rule)
		}
		return nil
	}}
	s := newService(Options{Decider: by})
	var tn turn
	in := &weirv1.CheckColumns{Costs: make([]int64, MaxBatch), Rule: "nine"}
	if err := s.decideColumns(t.Context(), &tn, in, nil); err != nil {
		t.Fatal(err)
	}
	if e := tn.reply.Errors; len(e) != 1 || len(e[0].Checks) != MaxBatch || !strings.Contains(e[0].Message, "nine") {
		t.Errorf("errors %v", e)
	}
	if by.calls != 1 {
		t.Errorf("a message took %d calls of the decider, want 1", by.calls)
	}
}

// TestColumnsAllocateNothingPerCheck: what one message costs does not grow with
// its checks, but for the one copy of its keys.
func TestColumnsAllocateNothingPerCheck(t *testing.T) {
	minute, hour, _ := limits3(t)
	by := &stub{decide: func(_ *limiter.Request, d *limiter.Decision) error {
		d.Source = limiter.SourceOwner
		d.Grow(2)
		*d.Limit(0), *d.Limit(1) = minute, hour
		return nil
	}}
	s := newService(Options{Decider: by})
	in := &weirv1.CheckColumns{}
	for range MaxBatch {
		in.Keys = append(in.Keys, "/townsada"...)
		in.PathLengths, in.UserLengths = append(in.PathLengths, 6), append(in.UserLengths, 3)
	}
	var tn turn
	if err := s.decideColumns(t.Context(), &tn, in, nil); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(20, func() { _ = s.decideColumns(t.Context(), &tn, in, nil) }); n > 4 {
		t.Errorf("a message of %d checks makes %v allocations", MaxBatch, n)
	}
}

// FuzzColumns: whatever bytes come, they are refused or become requests whose
// strings are the keys, each byte once.
func FuzzColumns(f *testing.F) {
	add := func(m *weirv1.CheckColumns) {
		raw, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	for _, m := range badColumns() {
		add(m)
	}
	add(&weirv1.CheckColumns{Id: 7, Keys: []byte("/townsada/townsbob"), PathLengths: []uint32{6, 6},
		UserLengths: []uint32{3, 3}, EveryLimit: true})
	add(&weirv1.CheckColumns{Keys: []byte("gold"),
		Attributes: []*weirv1.AttributeColumn{{Name: "plan", Lengths: []uint32{4, 0}}}, Costs: []int64{1, 2},
		RuleCosts: []uint32{1}, Peek: true})
	f.Fuzz(func(t *testing.T, raw []byte) {
		in := columnsMessage{hold: listen.Hold{Room: &listen.Room{Most: defaultDecoding}}}
		bytes := allocated(func() { in.readBytes(raw) })
		if bound := 16*len(raw) + slack; bytes > bound {
			t.Fatalf("%d bytes were allocated for %d, more than %d", bytes, len(raw), bound)
		}
		var read error
		if errors.Is(in.refused, errUndecodable) {
			read, in.refused = in.refused, nil
		}
		var stock weirv1.CheckColumns
		unread := proto.Unmarshal(raw, &stock)
		if in.refused == nil && (read == nil) != (unread == nil) {
			t.Fatalf("%v, protobuf says %v", read, unread)
		}
		if read != nil {
			return
		}
		m := &in.columns
		var tn turn
		if in.refused != nil {
			// A message that is refused before decoding cannot be decoded, or would be
			// refused afterwards. The exception is rule_costs, of which a check has one
			// at most.
			if unread != nil {
				return
			}
			if _, err := filled(&tn.batch, &stock); err == nil && len(stock.RuleCosts) <= MaxBatch {
				t.Fatalf("refused: %v", in.refused)
			}
			return
		}
		n, err := filled(&tn.batch, m)
		if err != nil {
			if !errors.Is(err, limiter.ErrInvalid) {
				t.Fatalf("%v wraps no ErrInvalid", err)
			}
			return
		}
		all := ""
		for _, r := range tn.requests[:n] {
			all += r.Path + r.User + r.IP + r.Group + r.Method
			for _, a := range m.Attributes {
				all += r.Attributes[a.Name]
			}
		}
		if n > MaxBatch || all != string(m.Keys) {
			t.Fatalf("%d requests spell %q of the keys %q", n, all, m.Keys)
		}
		s := newService(Options{Decider: &stub{}})
		if err := s.decideColumns(t.Context(), &tn, m, nil); err != nil {
			t.Fatal(err)
		}
		if len(tn.reply.Flags) != n {
			t.Fatalf("%d flags for %d checks", len(tn.reply.Flags), n)
		}
	})
}

// TestRepliesInColumnsSurviveEncoding compares what encodeReply makes of random columns with what
// the protobuf library reads from it. So it notices a column of numbers that is left out.
func TestRepliesInColumnsSurviveEncoding(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	s := newService(Options{Decider: &stub{}})
	for round := range 200 {
		n := rng.IntN(MaxBatch + 1)
		number := func() uint64 { return rng.Uint64() >> rng.IntN(64) }
		var tn turn
		m := &tn.reply
		m.Id, m.View, m.Flags, m.Sources = number(), number(), make([]byte, n), make([]byte, n/2)
		m.Limits = []*weirv1.LimitInfo{{Rule: "towns", Name: "minute", Limit: number()}}
		m.Errors = []*weirv1.ColumnsError{{Code: 3, Message: "wrong", Checks: []uint32{1, 1 << 20}}}
		for range n {
			m.Remaining, m.InForce = append(m.Remaining, number()), append(m.InForce, number())
			m.ResetAfterUs, m.RetryAfterUs = append(m.ResetAfterUs, int64(number())), append(m.RetryAfterUs, int64(number()))
			m.LimitRefs = append(m.LimitRefs, uint32(number()))
		}
		want := proto.Clone(m)
		out, err := s.encodeReply(&tn)
		if err != nil {
			t.Fatal(err)
		}
		var got weirv1.DecisionColumns
		if err := proto.Unmarshal(*out, &got); err != nil {
			t.Fatalf("round %d, %d checks: %v", round, n, err)
		}
		if !proto.Equal(&got, want) || !proto.Equal(m, want) {
			t.Fatalf("round %d, %d checks: got %v\nwant %v", round, n, &got, want)
		}
		s.answers.Put(out)
	}
}
