package transport

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/listen"
	"github.com/weirlimit/weir/internal/weirwire"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// namer is a decider that appends the names of counters.
type namer struct{ *stub }

func (n namer) AppendKeyName(dst []byte, r *limiter.Request, l *limiter.LimitDecision) []byte {
	return append(dst, n.KeyName(r, l)...)
}

// serveBytes asks a service for a batch as gRPC does: bytes in, bytes out.
func serveBytes(t *testing.T, s *service, in []byte) (*weirv1.CheckBatchResponse, error) {
	t.Helper()
	v, err := s.serveBatch(t.Context(), decoding(string(in)))
	if err != nil {
		return nil, err
	}
	buffers := v.(wireWriter).wire()
	out := new(weirv1.CheckBatchResponse)
	if err := proto.Unmarshal(buffers.Materialize(), out); err != nil {
		t.Fatal(err)
	}
	buffers.Free()
	return out, nil
}

// Each check of a batch is answered in its place: what was refused before it was
// asked, what the decider refused, and the rest.
func TestBatchAnswersInPlace(t *testing.T) {
	minute, _ := limits2(t)
	asked := map[string]limiter.Request{}
	by := &stub{decide: func(r *limiter.Request, d *limiter.Decision) error {
		if r.Rule == "no" {
			return invalid("there is no rule %q", r.Rule)
		}
		asked[r.User] = *r
		d.Grow(1)
		*d.Limit(0) = minute
		d.Allowed = true
		return nil
	}}
	s := newService(Options{Decider: by})
	rng := rand.New(rand.NewPCG(11, 5))
	for round := range 300 {
		clear(asked)
		m := &weirv1.CheckBatchRequest{}
		var want []string
		for i := range rng.IntN(20) {
			user := fmt.Sprintf("user%d", i)
			q := &weirv1.CheckRequest{Path: "/towns", User: user, Peek: round%3 == 0 && rng.IntN(3) == 0}
			switch rng.IntN(5) {
			case 0:
				q.Limits = []*weirv1.Limit{{Limit: 1, WindowUs: 1e6}} // which nobody allowed
				want = append(want, "not allowed")
			case 1:
				q.Rule = "no"
				want = append(want, "there is no rule")
			case 2:
				q.Attributes = map[string]string{"plan": "gold"}
				want = append(want, user)
			default:
				want = append(want, user)
			}
			m.Checks = append(m.Checks, q)
		}
		in, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		out, err := serveBytes(t, s, in)
		if err != nil || len(out.Results) != len(want) {
			t.Fatalf("%d results of %d, %v", len(out.GetResults()), len(want), err)
		}
		for i, w := range want {
			switch e, d := out.Results[i].GetError(), out.Results[i].GetDecision(); {
			case e != nil && strings.Contains(e.Message, w):
			case d != nil && len(d.Limits) == 1 && d.Limits[0].Key == w+":minute":
				if r := asked[w]; len(r.Attributes) != len(m.Checks[i].Attributes) || r.Path != "/towns" {
					t.Fatalf("%s was asked as %+v", w, r)
				}
			default:
				t.Fatalf("check %d of %v: %v", i, want, out.Results[i])
			}
		}
	}
}

// A batch above the bound is refused whole, however large.
func TestBatchTooLarge(t *testing.T) {
	s := newService(Options{Decider: &stub{}})
	for _, n := range []int{MaxBatch, MaxBatch + 1, 5 * MaxBatch} {
		in, err := proto.Marshal(&weirv1.CheckBatchRequest{Checks: make([]*weirv1.CheckRequest, n)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = serveBytes(t, s, in); (err != nil) != (n > MaxBatch) {
			t.Errorf("%d checks: %v", n, err)
		}
	}
}

// A batch costs a few allocations, however many checks it has.
func TestBatchAllocations(t *testing.T) {
	minute, hour := limits2(t)
	s := newService(Options{Decider: namer{&stub{decide: func(_ *limiter.Request, d *limiter.Decision) error {
		d.Grow(2)
		*d.Limit(0), *d.Limit(1), d.Allowed = minute, hour, true
		return nil
	}}}})
	s.encoder.AppendKeyName = func(dst []byte, r *limiter.Request, _ *limiter.LimitDecision) []byte {
		return append(dst, r.User...)
	}
	m := &weirv1.CheckBatchRequest{}
	for i := range MaxBatch {
		m.Checks = append(m.Checks, &weirv1.CheckRequest{Path: "/towns", User: fmt.Sprint("user", i)})
	}
	in, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	text := string(in)
	n := testing.AllocsPerRun(50, func() {
		v, err := s.serveBatch(context.Background(), decoding(text))
		if err != nil {
			t.Error(err)
			return
		}
		buffers := v.(wireWriter).wire()
		buffers.Free()
	})
	if n > MaxBatch/10 { // under the race detector pools drop some of what they get
		t.Errorf("a batch of %d checks took %v allocations", MaxBatch, n)
	}
}

// FuzzReadBatch: whatever bytes come, they are read as protobuf reads them, or
// refused where it refuses them.
func FuzzReadBatch(f *testing.F) {
	add := func(m *weirv1.CheckBatchRequest, more ...byte) {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(append(b, more...))
	}
	add(&weirv1.CheckBatchRequest{})
	add(&weirv1.CheckBatchRequest{Checks: []*weirv1.CheckRequest{{},
		{Path: "/a", User: "u", Method: "GET", Ip: "::1", Group: "g", Cost: proto.Int64(-4), Rule: "r", Peek: true, Id: "7",
			IdTtlUs: -4, IdOptional: true, HoldUs: 9}}})
	add(&weirv1.CheckBatchRequest{Checks: []*weirv1.CheckRequest{{Attributes: map[string]string{"a": "b"}, User: "x"},
		{Limits: []*weirv1.Limit{{Limit: 3}}}}})
	add(&weirv1.CheckBatchRequest{Checks: []*weirv1.CheckRequest{{User: "x"}}}, 0x7a, 1, 0)
	f.Add([]byte{0x0a, 3, 0x0a, 1, 0xff})
	f.Add(protowire.AppendTag(nil, 1, protowire.StartGroupType))
	f.Fuzz(func(t *testing.T, in []byte) {
		var turn turn
		var n int
		var err error
		h := listen.Hold{Room: &listen.Room{Most: defaultDecoding}}
		bytes := allocated(func() { n, err = turn.readBatch(string(in), &h) })
		if bound := 4*int(h.Weight()) + slack; bytes > bound {
			t.Fatalf("%d bytes were allocated for %d, more than %d", bytes, len(in), bound)
		}
		m := new(weirv1.CheckBatchRequest)
		stock := weirwire.Unmarshal(in, m)
		unread := slices.ContainsFunc(turn.fulls, func(f fullCheck) bool { return f.Message == nil })
		if (err == nil) != (stock == nil) && !unread {
			t.Fatalf("%v, protobuf says %v", err, stock)
		}
		if err != nil || n > MaxBatch || unread {
			return
		}
		if n != len(m.Checks) {
			t.Fatalf("%d checks, protobuf says %d", n, len(m.Checks))
		}
		s := newService(Options{Decider: &stub{}, AllowRequestLimits: true})
		for i, q := range m.Checks {
			for _, p := range turn.fulls {
				if p.at == i && !proto.Equal(p.Message, q) {
					t.Fatalf("check %d: %v, protobuf says %v", i, p.Message, q)
				}
				if p.at == i {
					turn.requests[i] = limiter.Request{}
					_ = s.fillRequest(&turn.requests[i], p.Message)
					weirwire.FillCheck(&turn.requests[i], p.Message)
				}
			}
			var want limiter.Request
			if s.fillRequest(&want, q) != nil {
				continue
			}
			weirwire.FillCheck(&want, q)
			got := turn.requests[i]
			if len(got.Limits) == len(want.Limits) {
				got.Limits, want.Limits = nil, nil // pointers, of equal messages
			}
			if len(got.Attributes) == 0 && len(want.Attributes) == 0 {
				got.Attributes, want.Attributes = nil, nil
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("check %d: %+v, protobuf says %+v", i, got, want)
			}
		}
	})
}

// decoding returns what gRPC passes to a method, for a message of these bytes.
func decoding(text string) func(any) error {
	return func(v any) error {
		v.(wireReader).readWire(text)
		return nil
	}
}
