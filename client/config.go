package client

import (
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirlimit/weir/limiter"
)

// Errors of checks. The context's own are passed on; a check whose context ended
// may have been counted.
var (
	// ErrInvalid is wrapped where the asker must mend the request; it is that of
	// package limiter. Nothing was counted.
	ErrInvalid = limiter.ErrInvalid
	// ErrUnavailable is wrapped where no node could be asked, or those that were
	// said that they cannot decide now. Nothing was counted.
	ErrUnavailable = errors.New("no node can be asked")
	// ErrUnanswered is wrapped where a node was asked and the answer did not come:
	// in time, or before the connection broke. The check may have been counted.
	ErrUnanswered = errors.New("a node did not answer")
	// ErrBusy is returned while [Config.MaxPending] checks wait. Nothing was counted.
	ErrBusy = errors.New("too many checks wait for their answers; nodes are slower than they are asked")
	// ErrDenied is wrapped where the operator of the nodes has not allowed what was
	// asked for. Nothing was counted.
	ErrDenied = errors.New("the nodes do not allow it")
	// ErrClosed is returned by a client that was closed. What was under way may have
	// been counted.
	ErrClosed = errors.New("the client is closed")
)

// Bounds of a configuration.
const (
	// MaxAddrs bounds Config.Addrs.
	MaxAddrs = 256
	// MaxMessage bounds Config.MaxMessage: nodes take no more checks at once.
	MaxMessage = 1000
	// MaxMessageBytes is how many bytes of strings a message has at most; a request
	// that has more by itself is invalid.
	MaxMessageBytes = 64 << 10
	// MaxAttributes is how many attributes a request may have.
	MaxAttributes = limiter.MaxAttributes

	defaultTimeout = time.Second
	defaultPending = 65536
	defaultWindow  = 2
)

// Config configures a client. Only Addrs is needed.
type Config struct {
	// Addrs are the gRPC addresses of nodes, host:port, 1 to [MaxAddrs]. A stream is
	// kept to each. Checks go to one of them as long as it can be asked, and to the
	// next one otherwise; which one that is depends on First.
	Addrs []string
	// First is the index of the address that is asked first, modulo their number;
	// default 0. Give each of many clients another one, so that they ask different
	// nodes.
	First int
	// Timeout bounds how long a check may take, tries at other nodes included;
	// default 1 s. One node is waited for half of it. A node answers by itself within
	// its own deadline, 300 ms unless configured; with less than twice that here,
	// its fallback answers may come too late.
	Timeout time.Duration
	// MaxPending bounds the checks that wait for answers, all callers together;
	// default 65536. Beyond it checks fail with [ErrBusy] at once.
	MaxPending int
	// MaxMessage bounds how many checks travel in one message; default 1000, which
	// is what nodes take at most.
	MaxMessage int
	// Window is how many messages are on their way to a node at a time; default 2:
	// one travels while the other is decided. More make messages smaller, which
	// costs processor time and helps where the way is long.
	Window int
	// EveryLimit asks for what every limit says. Default false: a decision tells of
	// one limit, the one that denied or, of an allowed check, the one with least
	// remaining; its Rule is that limit's, and its Cost is what the request gives,
	// else 0. Who owns a counter is told in neither case. Replies grow with the number of limits. The fields that the
	// middlewares send to callers need it where a rule has several limits.
	EveryLimit bool
	// IgnoreRing asks the nodes of Addrs only. Default false: where nodes tell the ring,
	// see their --share-ring, each check goes to the owner of its counter directly, at
	// the address that the owner tells; to one of Addrs where that cannot be asked.
	IgnoreRing bool
	// Dial are further options of the connections, such as credentials; default
	// none: there is no TLS in nodes yet.
	Dial []grpc.DialOption
}

// withDefaults fills in what was left out, and says what cannot be.
func (c Config) withDefaults() (Config, error) {
	if n := len(c.Addrs); n < 1 || n > MaxAddrs {
		return c, fmt.Errorf("client: Config.Addrs has %d addresses: give 1 to %d", n, MaxAddrs)
	}
	for i, a := range c.Addrs {
		if host, port, err := net.SplitHostPort(a); err != nil || host == "" || port == "" {
			return c, fmt.Errorf("client: address %q is none: give HOST:PORT of a node's gRPC", a)
		}
		for _, before := range c.Addrs[:i] {
			if a == before {
				return c, fmt.Errorf("client: address %s is given twice", a)
			}
		}
	}
	for _, n := range []struct {
		name string
		to   *int
		def  int
		most int
	}{
		{"MaxPending", &c.MaxPending, defaultPending, 1 << 24},
		{"MaxMessage", &c.MaxMessage, MaxMessage, MaxMessage},
		{"Window", &c.Window, defaultWindow, 64},
	} {
		if *n.to == 0 {
			*n.to = n.def
		}
		if *n.to < 1 || *n.to > n.most {
			return c, fmt.Errorf("client: %s %d is out of range: give 1 to %d, or 0 for %d", n.name, *n.to, n.most, n.def)
		}
	}
	if c.First < 0 {
		return c, fmt.Errorf("client: First %d is negative: give the index of an address", c.First)
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.Timeout < time.Millisecond || c.Timeout > time.Hour {
		return c, fmt.Errorf("client: a timeout of %v is out of range: give 1ms to 1h, or 0 for %v", c.Timeout, defaultTimeout)
	}
	return c, nil
}

// dialOptions are those of a connection: it comes back soon after a node does, and
// an idle one that is broken is noticed.
func (c *Config) dialOptions() []grpc.DialOption {
	return append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(connectParams()),
		grpc.WithKeepaliveParams(keepaliveParams()),
	}, c.Dial...)
}
