package listen

import (
	"context"
	"net"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/frontend/overgrpc"
)

// connAddr is the address of the client of a connection. It leads from a call to its
// connection.
type connAddr struct {
	net.Addr
	conn *watchedConn
}

func (a connAddr) Shown(ctx context.Context) (c frontend.Credentials, known bool) {
	if !a.conn.of.Noted {
		return c, false
	}
	c.Authorization, _ = ctx.Value(shownKey{}).([]string)
	if by := a.conn.secured; by != nil {
		c.TLS, c.Known = by.state, &by.known
	}
	return c, true
}

// shownKey is the key of a call's context for the values of that metadata, if there are any.
type shownKey struct{}

// NoteShown keeps what a caller shows of itself while a call begins. To look for it in the
// metadata later compares all names when there is none.
func NoteShown(ctx context.Context, call *tap.Info) (context.Context, error) {
	if shown := call.Header[overgrpc.Authorization]; len(shown) > 0 {
		ctx = context.WithValue(ctx, shownKey{}, shown)
	}
	return ctx, nil
}

// mostFields bounds the header fields of a call of a server that takes long ones.
const mostFields = 256

// NoteFew is NoteShown for a server that takes long header fields. Many small ones take far more memory than they have
// bytes, so a call with more than 256 is refused.
func NoteFew(ctx context.Context, call *tap.Info) (context.Context, error) {
	n := 0
	for _, values := range call.Header {
		n += len(values)
	}
	if n > mostFields {
		return ctx, status.Errorf(codes.ResourceExhausted, "the call has %d header fields: send at most %d", n, mostFields)
	}
	return NoteShown(ctx, call)
}
