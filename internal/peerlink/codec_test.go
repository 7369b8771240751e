package peerlink

import (
	"bytes"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/weirlimit/weir/internal/peer"
	peerv1 "github.com/weirlimit/weir/proto/weir/peer/v1"
)

// testCodec is a codec whose encoded bytes a test can handle.
type testCodec struct{ *codec }

func newTestCodec() testCodec { return testCodec{newCodec(16 << 20)} }

func (c testCodec) bytes(tb testing.TB, m *message) []byte {
	tb.Helper()
	out, err := c.Marshal(m)
	if err != nil {
		tb.Fatal(err)
	}
	defer out.Free()
	return out.Materialize()
}

func (c testCodec) message(b []byte) (*message, error) {
	m := new(message)
	if err := c.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, m); err != nil {
		return nil, err
	}
	return m, m.bad
}

// seeds returns how many random cases a test tries.
func seeds(tb testing.TB, usual int) int {
	tb.Helper()
	text := os.Getenv("WEIR_SEEDS")
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		tb.Fatalf("WEIR_SEEDS is %q, which is not a number", text)
	}
	return n
}

func TestFramesComeBackAsTheyWere(t *testing.T) {
	c := newTestCodec()
	for seed := range seeds(t, 100) {
		r := rand.New(rand.NewPCG(uint64(seed), 0))
		f := randomFrame(r, []int{1, 4, 40, 100}[seed%4])
		want := &message{acks: uint32(r.IntN(4)), ackWanted: seed%2 == 0, end: strings.Repeat("x", seed%3), frame: f}
		got, err := c.message(c.bytes(t, want))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if diff := cmp.Diff(f, &got.in.frame, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("seed %d: the frame came back otherwise (-want +got):\n%s", seed, diff)
		}
		if got.acks != want.acks || got.ackWanted != want.ackWanted || got.end != want.end {
			t.Fatalf("seed %d: the message came back as %+v", seed, got)
		}
		c.release(got) // so that the next one is read into used memory
	}
}

// TestTheWireIsThatOfTheProtoFile reads the codec's output with the code generated from
// peer.proto, and that code's output with the codec.
func TestTheWireIsThatOfTheProtoFile(t *testing.T) {
	c := newTestCodec()
	for seed := range seeds(t, 100) {
		f := randomFrame(rand.New(rand.NewPCG(uint64(seed), 1)), []int{1, 4, 40}[seed%3])
		wrote := c.bytes(t, &message{
			hello: &peerv1.Hello{Name: "n"}, proof: []byte("p"), acks: 3, ackWanted: true, end: "e", frame: f,
		})
		var m peerv1.Message
		if err := proto.Unmarshal(wrote, &m); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		known(t, m.ProtoReflect())
		again, err := proto.MarshalOptions{Deterministic: true}.Marshal(&m)
		if err != nil {
			t.Fatal(err)
		}
		if len(again) != len(wrote) {
			t.Errorf("seed %d: the codec takes %d bytes and protobuf %d", seed, len(wrote), len(again))
		}
		got, err := c.message(again)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if diff := cmp.Diff(f, &got.in.frame, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("seed %d (-want +got):\n%s", seed, diff)
		}
		if got.hello.GetName() != "n" || string(got.proof) != "p" || got.acks != 3 || !got.ackWanted || got.end != "e" {
			t.Fatalf("seed %d: the message came back as %+v", seed, got)
		}
	}
}

// TestFewBytesStandForLittle reads sections that announce items without contents, and
// names that are too long.
func TestFewBytesStandForLittle(t *testing.T) {
	c := newTestCodec()
	long := strings.Repeat("x", maxName+1)
	told := &peerv1.Frame{}
	for range 3 {
		e := &peerv1.Explanation{Limits: make([]*peerv1.LimitExplanation, 0, maxExplained)}
		for range 3 {
			l := &peerv1.LimitExplanation{}
			for range maxExplained {
				l.State, l.Counts = append(l.State, &peerv1.Field{}), append(l.Counts, &peerv1.WindowCount{})
			}
			e.Limits = append(e.Limits, l)
		}
		told.Explained = append(told.Explained, e)
	}
	for want, f := range map[string]*peerv1.Frame{
		"65 answers are said to be there, and no column has so many": {Answers: &peerv1.Answers{Count: bareItems + 1}},
		"65536 checks are said to be there, and no column has so many": {Checks: &peerv1.Checks{Count: maxItems,
			Keys: make([]byte, maxItems-1)}},
		"a name in a rule has 256 bytes":                           {Rules: []*peerv1.Rule{{Name: long}}},
		"a name in a known member has 256 bytes":                   {Known: []*peerv1.Known{{Name: long}}},
		"the explanations of the frame have more than 65536 parts": told,
	} {
		b, err := proto.Marshal(&peerv1.Message{Frame: f})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.message(b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
	// Items that are all zero are written so that they can be read.
	f := &peer.Frame{
		Claims: make([]peer.Claim, 100), Answers: make([]peer.Answer, 100), Announces: make([]peer.Announce, 100),
		Revokes: make([]peer.Revoke, 100), Batches: make([]peer.Batch, 100), Acks: make([]peer.Ack, 100),
		Checks: make([]peer.Check, 100), Refunds: make([]peer.Refund, 100), Replies: make([]peer.Reply, 200),
		Results: make([]peer.Result, 100), Rules: []peer.Rule{{}},
	}
	for i := range 100 {
		f.Checks[i].Keys, f.Replies[i].Results = 1, 1
		f.Keys = append(f.Keys, peer.Key{})
	}
	got, err := c.message(c.bytes(t, &message{frame: f}))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(f, &got.in.frame, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the frame came back otherwise (-want +got):\n%s", diff)
	}
}

// Units in frames are bounded: a cost above the largest ends the link.
func TestUnitsAreBounded(t *testing.T) {
	for cost, ok := range map[uint64]bool{maxUnits: true, maxUnits + 1: false, math.MaxUint64: false} {
		b, err := proto.Marshal(&peerv1.Message{Frame: &peerv1.Frame{
			From: 1, To: 2, Rules: []*peerv1.Rule{{Id: 1}}, Checks: &peerv1.Checks{Count: 1, Ids: []uint64{1}, Keys: []byte{1}},
			Keys: &peerv1.Keys{Count: 1, His: []uint64{1}, Los: []uint64{1}, Costs: []uint64{cost}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := newTestCodec().message(b); (err == nil) != ok ||
			!ok && !strings.Contains(err.Error(), "column 7 of keys") {
			t.Errorf("a cost of %d: %v", cost, err)
		}
	}
}

// known fails if a message, or one within it, has a field that the proto file does not
// have.
func known(t *testing.T, m protoreflect.Message) {
	t.Helper()
	if u := m.GetUnknown(); len(u) > 0 {
		t.Fatalf("%s has fields that are not in the proto file: %x", m.Descriptor().FullName(), u)
	}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.Message() == nil:
		case fd.IsList():
			for i := range v.List().Len() {
				known(t, v.List().Get(i).Message())
			}
		default:
			known(t, v.Message())
		}
		return true
	})
}

// TestNamesOfFields compares the names of peer.proto with those of package peer, for the
// few columns in which a round trip would not notice a swap.
func TestNamesOfFields(t *testing.T) {
	c := newTestCodec()
	f := &peer.Frame{
		From: 1, To: 2, Rules: []peer.Rule{{ID: 3, OnUnreachable: 1, Replication: 2}},
		Acks: []peer.Ack{{Partition: 4, Epoch: peer.Epoch{Counter: 5, Instance: 6},
			Owner: peer.Epoch{Counter: 7, Instance: 8}, Seq: 9, Top: 10}},
		Batches: []peer.Batch{{Partition: 40, IDs: 1}},
		IDs:     []peer.ID{{Hi: 41, Lo: 42, Time: 43, Until: -44, A: 45, B: 46}},
		Checks:  []peer.Check{{ID: 11, Keys: 1, Peek: true, Sent: true, Explain: true}},
		Keys:    []peer.Key{{Hi: 12, Lo: 13, Cost: 14}},
		Replies: []peer.Reply{{ID: 15, Results: 1, Receipt: peer.Receipt{Epoch: peer.Epoch{Counter: 16}, Time: -17,
			Charged: 18, Set: 19}}},
		Results: []peer.Result{{Never: true, Remaining: 20, RetryAfter: 21, ResetAfter: 22}},
		Traces:  []peer.Trace{{ID: 11, TraceHi: 27, TraceLo: 28, Span: 29}},
		Holds:   []peer.Hold{{ID: 11, Span: 30, Life: 31, Extend: true}},
		Amended: []peer.Amended{{ID: 15, State: 32, First: 33, Estimate: 34, Over: 35, RetryAfter: 36}},
		Explained: []peer.Explanation{{ID: 15, Limits: []peer.LimitExplanation{{
			Limit: "l", Known: true, State: []peer.Field{{Name: "n", Value: "v"}},
			Counts:     []peer.WindowCount{{Start: 23, End: 24, Count: 25}},
			Arithmetic: "a", Now: 26,
		}}}},
	}
	var got peerv1.Message
	if err := proto.Unmarshal(c.bytes(t, &message{frame: f}), &got); err != nil {
		t.Fatal(err)
	}
	want := &peerv1.Frame{
		From: 1, To: 2, Rules: []*peerv1.Rule{{Id: 3, OnUnreachable: 1, Replication: 2}},
		Acks: &peerv1.Acks{
			Count: 1, Partitions: []uint32{4}, EpochCounters: []uint64{5}, EpochInstances: []uint64{6},
			OwnerCounters: []uint64{7}, OwnerInstances: []uint64{8}, Seqs: []uint64{9}, Tops: []uint64{10},
		},
		Batches: &peerv1.Batches{Count: 1, Partitions: []uint32{40}, Ids: []uint32{1}},
		Ids: &peerv1.IDs{Count: 1, His: []uint64{41}, Los: []uint64{42}, Times: []uint64{43}, Untils: []int64{-44},
			As: []uint32{45}, Bs: []uint32{46}},
		Checks: &peerv1.Checks{Count: 1, Ids: []uint64{11}, Keys: []byte{1}, Flags: []byte{1 | 8 | 16}},
		Keys:   &peerv1.Keys{Count: 1, His: []uint64{12}, Los: []uint64{13}, Costs: []uint64{14}},
		Replies: &peerv1.Replies{
			Count: 1, Ids: []uint64{15}, Results: []byte{1}, EpochCounters: []uint64{16}, Times: []int64{-17},
			Charged: []uint64{18}, Sets: []uint64{19},
		},
		Results: &peerv1.Results{
			Count: 1, Flags: []byte{2}, Remaining: []uint64{20}, RetryAftersUs: []int64{21}, ResetAftersUs: []int64{22},
		},
		Traces: &peerv1.Traces{Count: 1, Ids: []uint64{11}, TraceHis: []uint64{27}, TraceLos: []uint64{28},
			Spans: []uint64{29}},
		Holds: &peerv1.Holds{Count: 1, Ids: []uint64{11}, SpansUs: []uint64{30}, LivesUs: []uint64{31}, Flags: []byte{2}},
		Amended: &peerv1.Amended{
			Count: 1, Ids: []uint64{15}, States: []byte{32}, Firsts: []uint64{33}, Estimates: []uint64{34}, Overs: []uint64{35},
			RetryAftersUs: []int64{36},
		},
		Explained: []*peerv1.Explanation{{Id: 15, Limits: []*peerv1.LimitExplanation{{
			Limit: "l", Known: true, State: []*peerv1.Field{{Name: "n", Value: "v"}},
			Counts: []*peerv1.WindowCount{{StartUnixUs: 23, EndUnixUs: 24, Count: 25}}, Arithmetic: "a", NowUnixUs: 26,
		}}}},
	}
	if !proto.Equal(got.GetFrame(), want) {
		t.Errorf("got  %v\nwant %v", got.GetFrame(), want)
	}
}

// TestUnknownFieldsAreIgnored reads fields that a newer version might write.
func TestUnknownFieldsAreIgnored(t *testing.T) {
	c := newTestCodec()
	f := randomFrame(rand.New(rand.NewPCG(1, 2)), 5)
	var m peerv1.Message
	if err := proto.Unmarshal(c.bytes(t, &message{frame: f}), &m); err != nil {
		t.Fatal(err)
	}
	newer := func(m proto.Message) {
		// Field 100, in each of protobuf's wire types.
		m.ProtoReflect().SetUnknown(append(bytes.Clone([]byte{0xa0, 0x06, 0x96, 0x01, 0xa2, 0x06, 0x02, 'h', 'i'}),
			0xa5, 0x06, 1, 2, 3, 4, 0xa1, 0x06, 1, 2, 3, 4, 5, 6, 7, 8, 0xa3, 0x06, 0x08, 1, 0xa4, 0x06))
	}
	newer(&m)
	newer(m.GetFrame())
	newer(m.GetFrame().GetRules()[0])
	newer(m.GetFrame().GetLimits()[0])
	if m.Frame.Checks == nil {
		m.Frame.Checks = new(peerv1.Checks)
	}
	newer(m.GetFrame().GetChecks())
	b, err := proto.Marshal(&m)
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.message(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(f, &got.in.frame, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFramesThatDoNotFit(t *testing.T) {
	one := []peer.Rule{{ID: 1}}
	for name, test := range map[string]struct {
		frame peer.Frame
		want  string
	}{
		"a check without its key": {peer.Frame{Checks: []peer.Check{{Keys: 1}}}, "1 keys, and the frame 0"},
		"a key without a check":   {peer.Frame{Rules: one, Keys: []peer.Key{{}}}, "0 keys, and the frame 1"},
		"a refund without its keys": {peer.Frame{Rules: one, Refunds: []peer.Refund{{Keys: 2}}, Keys: []peer.Key{{}}},
			"2 keys, and the frame 1"},
		"a trace of no check": {peer.Frame{Traces: []peer.Trace{{ID: 1}}},
			"1 traces are more than the frame has checks: 0"},
		"a hold of no check": {peer.Frame{Holds: []peer.Hold{{ID: 1}}},
			"1 holds are more than the frame has checks and refunds: 0"},
		"a result of no reply": {peer.Frame{Amended: []peer.Amended{{ID: 1}}},
			"1 results of amendments are more than the frame has replies: 0"},
		"a key of no rule": {peer.Frame{Checks: []peer.Check{{Keys: 1}}, Keys: []peer.Key{{}}},
			"rule 0, and the frame has 0"},
		"a batch without its keys": {peer.Frame{Batches: []peer.Batch{{Keys: math.MaxUint32}}},
			"batches have 4294967295 keys"},
		"ids of no batch": {peer.Frame{IDs: []peer.ID{{Hi: 1}}}, "batches have 0 ids, and the frame 1"},
		"entries of no batch": {peer.Frame{Limits: []peer.Limit{{}}, Entries: []peer.Entry{{First: true}}},
			"batches have 0 keys, and the entries 1"},
		"entries that begin no key": {peer.Frame{Limits: []peer.Limit{{}}, Entries: []peer.Entry{{Lo: 1}}},
			"does not begin a key"},
		"an entry of no limit": {peer.Frame{Batches: []peer.Batch{{Keys: 1}}, Entries: []peer.Entry{{First: true}}},
			"limit 0, and the frame has 0"},
		"a reply without results": {peer.Frame{Replies: []peer.Reply{{Results: 1, Idle: true}}, Results: []peer.Result{{}}},
			"2 results, and the frame 1"},
		"results of no reply": {peer.Frame{Results: []peer.Result{{}}}, "0 results, and the frame 1"},
		"a reply of no rule": {peer.Frame{Rules: one, Replies: []peer.Reply{{Rules: []uint16{0, 1}}}},
			"rule 1, and the frame has 1"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newTestCodec()
			if _, err := c.message(c.bytes(t, &message{frame: &test.frame})); err == nil ||
				!strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v does not say %q", err, test.want)
			}
		})
	}
	gone := peer.Frame{Batches: []peer.Batch{{Keys: 1}}, Entries: []peer.Entry{{First: true, Gone: true}}}
	c := newTestCodec()
	if _, err := c.message(c.bytes(t, &message{frame: &gone})); err != nil {
		t.Errorf("a key that is gone needs no limit, but: %v", err)
	}
}

// TestColumnsThatDoNotFit reads columns that the codec would not write, written by the
// generated code.
func TestColumnsThatDoNotFit(t *testing.T) {
	for name, test := range map[string]struct {
		frame *peerv1.Frame
		want  string
	}{
		"too few varints": {&peerv1.Frame{Claims: &peerv1.Claims{Count: 2, Partitions: []uint32{1}}},
			"column 2 of claims"},
		"too many varints": {&peerv1.Frame{Claims: &peerv1.Claims{Count: 1, Partitions: []uint32{1, 2}}},
			"column 2 of claims"},
		"too large a number": {&peerv1.Frame{Claims: &peerv1.Claims{Count: 1, Partitions: []uint32{1 << 16}}},
			"column 2 of claims"},
		"too few fixed":  {&peerv1.Frame{Claims: &peerv1.Claims{Count: 2, Fors: []uint64{1}}}, "column 6 of claims"},
		"too few bytes":  {&peerv1.Frame{Claims: &peerv1.Claims{Count: 2, Kinds: []byte{1}}}, "column 3 of claims"},
		"too many flags": {&peerv1.Frame{Checks: &peerv1.Checks{Count: 1, Flags: []byte{1, 2}}}, "column 4 of checks"},
		"too few signed": {&peerv1.Frame{Results: &peerv1.Results{Count: 2, RetryAftersUs: []int64{1}}},
			"column 4 of results"},
		"a column, no count":   {&peerv1.Frame{Results: &peerv1.Results{Flags: []byte{1}}}, "column 2 of results"},
		"too many items":       {&peerv1.Frame{Claims: &peerv1.Claims{Count: maxItems + 1}}, "65537 claims are more"},
		"no such value":        {&peerv1.Frame{Rules: []*peerv1.Rule{{Replication: 256}}}, "no known value"},
		"words without counts": {&peerv1.Frame{Entries: &peerv1.Entries{Words: []uint64{1}}}, "column 11 of entries"},
		"fewer words": {&peerv1.Frame{Entries: &peerv1.Entries{Count: 2, WordCounts: []uint32{1, 1}, Words: []uint64{1}}},
			"counts of entries do not add up"},
		"more words": {&peerv1.Frame{Entries: &peerv1.Entries{Count: 1, WordCounts: []uint32{1}, Words: []uint64{1, 2}}},
			"column 11 of entries"},
		"counts that overflow": {&peerv1.Frame{Entries: &peerv1.Entries{
			Count: 2, WordCounts: []uint32{math.MaxUint32, math.MaxUint32}, Words: []uint64{1}}},
			"counts of entries do not add up"},
		"more counts than items": {&peerv1.Frame{Entries: &peerv1.Entries{Count: 1, WordCounts: []uint32{1, 0},
			Words: []uint64{1}}},
			"more counts than items"},
		"fewer rules": {&peerv1.Frame{Replies: &peerv1.Replies{Count: 1, RuleCounts: []uint32{2}, Rules: []uint32{0}}},
			"counts of replies do not add up"},
		"more rules": {&peerv1.Frame{Replies: &peerv1.Replies{Count: 1, RuleCounts: []uint32{1}, Rules: []uint32{0, 0}}},
			"column 15 of replies"},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := proto.Marshal(&peerv1.Message{Frame: test.frame})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := newTestCodec().message(b); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v does not say %q", err, test.want)
			}
		})
	}
}

func TestFramesThatAreTooLargeAreNotSent(t *testing.T) {
	c := testCodec{newCodec(1000)}
	for name, f := range map[string]*peer.Frame{
		"bytes":        {Claims: make([]peer.Claim, 1), Limits: []peer.Limit{{Name: strings.Repeat("x", 1000)}}},
		"items":        {Claims: make([]peer.Claim, maxItems+1)},
		"rules":        {Rules: make([]peer.Rule, maxRules+1)},
		"notes":        {Notes: make([]peer.Note, maxNotes+1)},
		"names":        {Names: make([]peer.Name, maxNames+1)},
		"limits":       {Limits: make([]peer.Limit, maxLimits+1)},
		"explanations": {Explained: make([]peer.Explanation, maxExplained+1)},
	} {
		if _, err := c.Marshal(&message{frame: f}); err == nil || !strings.Contains(err.Error(), "a link takes") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// TestExplanationsAreBounded shows that each part of an explanation is bounded.
func TestExplanationsAreBounded(t *testing.T) {
	for name, test := range map[string]struct {
		frame *peerv1.Frame
		want  string
	}{
		"explanations": {&peerv1.Frame{Explained: many(maxExplained+1, &peerv1.Explanation{})},
			"more than 4096 explanations"},
		"limits": {&peerv1.Frame{Explained: []*peerv1.Explanation{{Limits: many(maxExplained+1,
			&peerv1.LimitExplanation{})}}},
			"more than 4096 limits of an explanation"},
		"fields": {&peerv1.Frame{
			Explained: []*peerv1.Explanation{{Limits: []*peerv1.LimitExplanation{{State: many(maxExplained+1,
				&peerv1.Field{})}}}}},
			"more than 4096 fields of an explanation"},
		"counts": {&peerv1.Frame{
			Explained: []*peerv1.Explanation{{Limits: []*peerv1.LimitExplanation{{Counts: many(maxExplained+1,
				&peerv1.WindowCount{})}}}}},
			"more than 4096 counts of an explanation"},
	} {
		b, err := proto.Marshal(&peerv1.Message{Frame: test.frame})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := newTestCodec().message(b); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v does not say %q", name, err, test.want)
		}
	}
	large := new(peerv1.WindowCount)
	large.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 3, protowire.VarintType), maxUnits+1))
	b, err := proto.Marshal(&peerv1.Message{Frame: &peerv1.Frame{
		Explained: []*peerv1.Explanation{{Limits: []*peerv1.LimitExplanation{{Counts: []*peerv1.WindowCount{large}}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newTestCodec().message(b); err == nil ||
		!strings.Contains(err.Error(), "9007199254740992, which is too large") {
		t.Errorf("a large count: %v", err)
	}
}

func many[T any](n int, of *T) []*T {
	out := make([]*T, n)
	for i := range out {
		out[i] = of
	}
	return out
}

func TestCutMessages(t *testing.T) {
	c := newTestCodec()
	b := c.bytes(t, &message{frame: randomFrame(rand.New(rand.NewPCG(3, 3)), 5), hello: &peerv1.Hello{Name: "x"}})
	for n := range b {
		if m, err := c.message(b[:n]); err == nil && m.in != nil {
			t.Fatalf("%d of %d bytes are taken for a frame", n, len(b))
		}
	}
}

// FuzzMessage reads any bytes. An accepted message must be the same after it is written
// and read again.
func FuzzMessage(f *testing.F) {
	c := newTestCodec()
	for seed := range 20 {
		r := rand.New(rand.NewPCG(uint64(seed), 4))
		f.Add(c.bytes(f, &message{frame: randomFrame(r, 4), acks: 1}))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := c.message(b)
		if err != nil || m.in == nil {
			return
		}
		defer c.release(m)
		again, err := c.message(c.bytes(t, &message{frame: &m.in.frame}))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&m.in.frame, &again.in.frame, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("(-first +second):\n%s", diff)
		}
		c.release(again)
	})
}
