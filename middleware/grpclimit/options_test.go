package grpclimit_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/middleware/grpclimit"
)

func TestOptionsThatCannotBe(t *testing.T) {
	n := node(t, nil, `  - {name: all, limits: [1/minute]}`)
	for name, o := range map[string]grpclimit.Option{
		"Rule":            grpclimit.Rule(""),
		"Skip":            grpclimit.Skip(nil),
		"TrustedProxies":  grpclimit.TrustedProxies(netip.Prefix{}),
		"AddressKey":      grpclimit.AddressKey(""),
		"x-real-ip":       grpclimit.AddressKey("X-Real-IP"),
		"forwarded":       grpclimit.ForwardedKey(),
		"IPv6Bits 0":      grpclimit.IPv6Bits(0),
		"IPv6Bits 129":    grpclimit.IPv6Bits(129),
		"Attribute":       grpclimit.Attribute("", grpclimit.FromMetadata("x")),
		"Attribute needs": grpclimit.Attribute("x", nil),
		"CostFunc":        grpclimit.CostFunc(nil),
		"OnDenied":        grpclimit.OnDenied(nil),
		"OnError":         grpclimit.OnError(nil),
		"User":            grpclimit.User(nil),
		"Group":           grpclimit.Group(grpclimit.FromMetadata("x"), nil),
		"Token":           grpclimit.Token(nil, "sub", ""),
		"the claim":       grpclimit.Token(tokens(t, newClock()), "", ""),
	} {
		l, err := grpclimit.New(n, o)
		if first, _, _ := strings.Cut(name, " "); err == nil || l != nil || !strings.HasPrefix(err.Error(), "grpclimit: ") ||
			!strings.Contains(err.Error(), first) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	_, err := grpclimit.New(nil, grpclimit.Rule(""), grpclimit.IPv6Bits(0))
	for _, want := range []string{"the decider is nil", "Rule", "IPv6Bits"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
}

// The request that a decider gets, which contains nothing of an earlier call.
func TestWhatIsAsked(t *testing.T) {
	var got []string
	c := limited(t, deciderFunc(func(_ context.Context, r *limiter.Request, d *limiter.Decision) error {
		got = append(got, fmt.Sprintf("%+v", *r))
		d.Clear()
		return nil
	}), grpclimit.User(grpclimit.FromMetadata("u")), grpclimit.Attribute("a", grpclimit.FromMetadata("a")),
		grpclimit.Rule("r"),
		grpclimit.CostFunc(func(_ context.Context, c *grpclimit.Call) limiter.Cost {
			if r, ok := c.Message.(*testpb.SimpleRequest); ok && r.GetResponseSize() > 0 {
				return limiter.Units(int64(r.GetResponseSize()))
			}
			return limiter.Cost{}
		}))
	ctx := metadata.AppendToOutgoingContext(t.Context(), "u", "ada", "a", "1")
	if _, err := c.UnaryCall(ctx, &testpb.SimpleRequest{ResponseSize: 9}); err != nil {
		t.Fatal(err)
	}
	if err := call(c); err != nil {
		t.Fatal(err)
	}
	if _, err := talk(t, c, 1); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`{Path:` + unary +
			` Method:UNARY User:ada IP:127.0.0.1 Group: Attributes:map[a:1] Cost:{units:9 given:true actual:<nil>} ` +
			`Rule:r Limits:[] LimitKeys:[] ID: IDTTL:0s IDOptional:false Hold:0s Lent:false ` +
			`Rate:0 Fast:false Tenant: Caller: Scope:<nil>}`,
		`{Path:` + unary +
			` Method:UNARY User: IP:127.0.0.1 Group: Attributes:map[] Cost:{units:0 given:false actual:<nil>} ` +
			`Rule:r Limits:[] LimitKeys:[] ID: IDTTL:0s IDOptional:false Hold:0s Lent:false ` +
			`Rate:0 Fast:false Tenant: Caller: Scope:<nil>}`,
		`{Path:` + stream +
			` Method:STREAM User: IP:127.0.0.1 Group: Attributes:map[] Cost:{units:0 given:false actual:<nil>} ` +
			`Rule:r Limits:[] LimitKeys:[] ID: IDTTL:0s IDOptional:false Hold:0s Lent:false ` +
			`Rate:0 Fast:false Tenant: Caller: Scope:<nil>}`,
	}
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
}

// handled calls an interceptor as a server does, again and again.
func handled(tb testing.TB, opts ...grpclimit.Option) func() {
	n := node(tb, nil,
		`  - {name: calls, limits: [{limit: 1000000000, window: minute}, {limit: 1000000000, window: hour}]}`)
	intercept := limit(tb, n, append(opts, grpclimit.User(func(context.Context, *grpclimit.Call) string {
		return "ada"
	}))...).UnaryServer()
	ctx := grpc.NewContextWithServerTransportStream(context.Background(), quietStream{})
	info := &grpc.UnaryServerInfo{FullMethod: unary}
	next := func(context.Context, any) (any, error) { return nil, nil }
	return func() {
		if _, err := intercept(ctx, nil, info, next); err != nil {
			tb.Fatal(err)
		}
	}
}

type quietStream struct{}

func (quietStream) Method() string               { return unary }
func (quietStream) SetHeader(metadata.MD) error  { return nil }
func (quietStream) SendHeader(metadata.MD) error { return nil }
func (quietStream) SetTrailer(metadata.MD) error { return nil }

// The decision and what it is made from come from a pool: what is left is the
// call, which leaves the stack for functions that ask it, and the metadata.
func TestAllocations(t *testing.T) {
	if raced {
		t.Skip("allocations are counted without the race detector")
	}
	for name, c := range map[string]struct {
		opts []grpclimit.Option
		most float64
	}{
		"no metadata": {[]grpclimit.Option{grpclimit.NoMetadata()}, 2},
		"metadata":    {nil, 6},
	} {
		if got := testing.AllocsPerRun(200, handled(t, c.opts...)); got > c.most {
			t.Errorf("%s: %v allocations, want at most %v", name, got, c.most)
		}
	}
}

func BenchmarkUnaryServer(b *testing.B) {
	for name, opts := range map[string][]grpclimit.Option{"metadata": nil, "no_metadata": {grpclimit.NoMetadata()}} {
		b.Run(name, func(b *testing.B) {
			run := handled(b, opts...)
			b.ReportAllocs()
			for b.Loop() {
				run()
			}
		})
	}
}
