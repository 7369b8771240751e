package listen

import (
	"context"
	"net"

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

// Shown implements [overgrpc.Shower].
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
