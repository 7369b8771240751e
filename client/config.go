package client

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc"

	"github.com/weirlimit/weir/internal/dialing"
	"github.com/weirlimit/weir/limiter"
)

// The errors of checks. An error that wraps [ErrInvalid], [ErrUnavailable], [ErrBusy] or
// [ErrDenied] promises that nothing was counted, by any attempt. If an attempt may have
// counted the check, the error wraps [ErrUnanswered] and none of these four. If the
// caller's context ends, its error is returned, and the check may have been counted.
var (
	// ErrInvalid is wrapped by the error of a request that cannot be decided and that
	// the caller must correct. It is [limiter.ErrInvalid]. Nothing was counted.
	ErrInvalid = limiter.ErrInvalid
	// ErrUnavailable is wrapped when no node could be reached, or the nodes that were
	// asked answered that they cannot decide now. Nothing was counted.
	ErrUnavailable = errors.New("no node is available")
	// ErrUnanswered is wrapped when a node was asked and no answer came, because the
	// time was over or the connection broke, and no other node has answered since. The
	// check may have been counted.
	ErrUnanswered = errors.New("a node did not answer")
	// ErrBusy is returned when [Config.MaxPending] checks are waiting already. Nothing
	// was counted. It is a [limiter.ErrBudget] too: those who send the requests may be too many.
	ErrBusy = fmt.Errorf("%w: too many checks are pending: the nodes answer more slowly than checks are sent",
		limiter.ErrBudget)
	// ErrDenied is wrapped when the configuration of the nodes forbids what was asked
	// for. Nothing was counted.
	ErrDenied = errors.New("the nodes do not allow this request")
	// ErrClosed is returned after Close. Nothing was counted, unless the error wraps
	// ErrUnanswered as well, as that of a check does which had been sent already.
	ErrClosed = errors.New("the client is closed")
)

// Bounds of a configuration.
const (
	// MaxAddrs bounds Config.Addrs.
	MaxAddrs = 256
	// MaxMessage bounds Config.MaxMessage. Nodes refuse larger messages.
	MaxMessage = 1000
	// MaxMessageBytes is the most bytes of strings that a message carries. A single
	// request with more is invalid.
	MaxMessageBytes = 64 << 10
	// MaxAttributes is the most attributes that a request may have.
	MaxAttributes = limiter.MaxAttributes

	// maxReply bounds a reply in bytes. One to a full message has about 50 MiB if each
	// check has 256 limits.
	maxReply = 64 << 20

	defaultTimeout = time.Second
	defaultPending = 65536
	defaultWindow  = 2
)

// Config configures a client. Only Addrs is required.
type Config struct {
	// Addrs are the gRPC addresses of nodes, host:port, 1 to [MaxAddrs] of them. The
	// client keeps one stream to each. A check goes to the first node that can be
	// asked, counted from First.
	Addrs []string
	// First is the index in Addrs of the node that is asked first, modulo their number;
	// default 0. Give clients different values to spread them over the nodes.
	First int
	// Timeout bounds how long a check may take, retries at other nodes included;
	// default 1 s, 1 ms to 1 h. One node is waited for 2/5 of it, or 3/5 if Addrs has
	// one address. A node answers by its fallback policies when its own deadline ends,
	// 300 ms unless configured otherwise. For such an answer to arrive in time, Timeout
	// must be above 750 ms, or 500 ms with one address.
	Timeout time.Duration
	// MaxPending bounds the checks of all callers that wait for answers; default 65536.
	// At the bound a check fails with [ErrBusy] at once.
	MaxPending int
	// MaxMessage bounds the checks in one message; default 1000, the most that nodes
	// accept.
	MaxMessage int
	// Window is the number of messages that may be in flight to one node; default 2, so
	// that one travels while the other is decided; at most 64. A larger window makes
	// messages smaller. That costs processor time, and helps on connections with a long
	// round trip.
	Window int
	// EveryLimit requests the result of every limit; replies grow with their number.
	// Default false: a decision then has one limit, the one that denied or, if the
	// check is allowed, the one with the least remaining. Decision.Rule is the rule of
	// that limit, and its Cost is the cost in the request, or 0 if none is given. The
	// header fields that the middlewares send need EveryLimit if a rule has several
	// limits. In neither case does a decision name the owner of a counter.
	EveryLimit bool
	// IgnoreRing sends checks to the nodes of Addrs only. Default false: if the nodes
	// publish the ring (their flag --share-ring), each check goes directly to the owner
	// of its counter, at the address that the owner publishes, or to a node of Addrs if
	// that owner cannot be asked.
	IgnoreRing bool
	// NoIDs sends checks without ids, unless the request has one. Default false: the client
	// gives each check an id of its own, by which the nodes remember the answer for twice
	// Timeout. So a check that the client sends again, since no answer came, counts once, but not by a rule with "any",
	// see [Client.Check]. An
	// id takes 16 bytes on the wire, and one more counter at the node while it is remembered.
	NoIDs bool
	// Leases lets the client borrow units of keys that it checks often, at least 32 times in 100 ms, by rules with
	// leases: auto. It decides checks of such a key by itself then, until what it has borrowed is used up or its time, at
	// most 100 ms, is over. No more is admitted than without: what is lent counts as charged. A client that ends without
	// [Client.Close] leaves charged what it has not returned. The decisions have Source SourceLeased, no receipt, and as
	// Remaining what was left when the units were lent. Checks with an id of their own, with a hold, or of several
	// counters are asked for as ever. Leases need the ring, see IgnoreRing. Default false.
	Leases bool
	// TLS connects with TLS; default nil: without it.
	TLS *TLS
	// TokenFile has the bearer token that the client shows to nodes; default none. It is
	// read again, at most once a second, when a call needs it. Without TLS a token is sent
	// to loopback addresses only; any other address is an error.
	TokenFile string
	// Dial are further options of the connections; default none. Credentials among them
	// replace those of TLS.
	Dial []grpc.DialOption

	// now is the clock by which a stream has lived long enough; nil: the machine's.
	now func() time.Time
	// poll is how often files of certificates are read; 0: pollDefault.
	poll time.Duration
}

// TLS names the files for connections with TLS, in PEM. The zero value believes the
// authorities of the system and shows no certificate.
//
// The files are looked at each 5 s. When all of them are valid and one has changed, the
// client connects again to each node, after what is in flight was answered. As long as they
// are not valid, those that were read before are used.
type TLS struct {
	// CAFile has the authorities that certificates of nodes must come from; default those
	// of the system.
	CAFile string
	// CertFile and KeyFile are the client's own certificate and its key; default none.
	CertFile, KeyFile string
	// ServerName is the host name that certificates of nodes must have; default the host of
	// the address.
	ServerName string
}

// credentials reads the files that the configuration names.
func (c *Config) credentials() (*dialing.Credentials, error) {
	d := dialing.Config{TokenFile: c.TokenFile}
	if c.TLS != nil {
		d.TLS, d.CAFile, d.CertFile, d.KeyFile, d.ServerName = true, c.TLS.CAFile, c.TLS.CertFile, c.TLS.KeyFile,
			c.TLS.ServerName
	}
	out, err := dialing.Open(d)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	return out, nil
}

// withDefaults fills in defaults and returns an error for values out of range.
func (c Config) withDefaults() (Config, error) {
	if c.now == nil {
		c.now = time.Now
	}
	c.poll = cmp.Or(c.poll, pollDefault)
	if n := len(c.Addrs); n < 1 || n > MaxAddrs {
		return c, fmt.Errorf("client: Config.Addrs has %d addresses: give 1 to %d", n, MaxAddrs)
	}
	for i, a := range c.Addrs {
		if host, port, err := net.SplitHostPort(a); err != nil || host == "" || port == "" {
			return c, fmt.Errorf("client: address %q is not valid: give HOST:PORT of a node's gRPC", a)
		}
		if slices.Contains(c.Addrs[:i], a) {
			return c, fmt.Errorf("client: address %s is given twice", a)
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
		*n.to = cmp.Or(*n.to, n.def)
		if *n.to < 1 || *n.to > n.most {
			return c, fmt.Errorf("client: %s %d is out of range: give 1 to %d, or 0 for %d", n.name, *n.to, n.most, n.def)
		}
	}
	if c.Leases && c.IgnoreRing {
		return c, errors.New("client: Leases need the ring, which tells what a request counts: leave out IgnoreRing")
	}
	if c.First < 0 {
		return c, fmt.Errorf("client: First %d is negative: give the index of an address", c.First)
	}
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	if c.Timeout < time.Millisecond || c.Timeout > time.Hour {
		return c, fmt.Errorf("client: a timeout of %v is out of range: give 1ms to 1h, or 0 for %v", c.Timeout,
			defaultTimeout)
	}
	return c, nil
}

// dialOptions returns the options of a connection: it is retried soon after a failure,
// and a broken idle connection is detected by keepalive.
func (c *Client) dialOptions(addr string) ([]grpc.DialOption, error) {
	out, err := c.credentials.Dial(addr)
	if err != nil {
		return nil, err
	}
	out = append(out,
		grpc.WithConnectParams(connectParams()),
		grpc.WithKeepaliveParams(keepaliveParams()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReply)),
	)
	return append(out, c.config.Dial...), nil
}
