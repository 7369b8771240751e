package transport

import (
	"context"
	"net"

	"github.com/weirlimit/weir/internal/listen"
)

// TLS is how listeners are served with TLS.
type TLS = listen.TLS

// Listen opens a listener for a server at host:port, or at a Unix socket if the address
// is "unix:" and a path. If it fails, the error names flag, such as "--grpc-addr", as
// the setting to change.
func Listen(ctx context.Context, flag, address string) (net.Listener, error) {
	return listen.Open(ctx, flag, address)
}
