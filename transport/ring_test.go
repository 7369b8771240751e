package transport_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
	"github.com/weirlimit/weir/transport"
)

// madeUp is a ring that a test makes up.
type madeUp struct{ response *weirv1.RingResponse }

func (m madeUp) View() uint64                    { return m.response.GetView() }
func (m madeUp) Placement() *weirv1.RingResponse { return m.response }

// The ring, and its view in replies, are published only if the operator allows it.
func TestRing(t *testing.T) {
	whole := &weirv1.RingResponse{View: 7, Owners: []uint32{1}, Members: []*weirv1.RingMember{{Name: "a"}},
		Rules: []byte("r"), Seeds: []byte("s")}
	for name, c := range map[string]struct {
		ring transport.Ring
		code codes.Code
		text string
		view uint64
	}{
		"not allowed": {nil, codes.PermissionDenied, "--share-ring", 0},
		"none yet":    {madeUp{}, codes.Unavailable, "no ring now", 0},
		"told":        {madeUp{whole}, codes.OK, "", 7},
	} {
		s := newServer(t, fixed, func(o *transport.Options) { o.Ring = c.ring })
		m, err := s.api.Ring(t.Context(), &weirv1.RingRequest{})
		if status.Code(err) != c.code || !strings.Contains(status.Convert(err).Message(), c.text) {
			t.Errorf("%s: %v", name, err)
		}
		if c.view != 0 && (m.View != 7 || len(m.Owners) != 1 || m.Members[0].Name != "a" || string(m.Rules) != "r" ||
			string(m.Seeds) != "s") {
			t.Errorf("%s: %v", name, m)
		}
		stream, err := s.api.CheckStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		// the last makes no sense
		for _, in := range []*weirv1.CheckColumns{{}, {PathLengths: []uint32{0}}, {PathLengths: []uint32{1}}} {
			if err := stream.Send(in); err != nil {
				t.Fatal(err)
			}
			if m, err := stream.Recv(); err != nil || m.View != c.view {
				t.Errorf("%s: %v, %v", name, m, err)
			}
		}
	}
}
