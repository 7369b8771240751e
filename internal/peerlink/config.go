package peerlink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"time"

	"github.com/weirlimit/weir/internal/certs"
	"github.com/weirlimit/weir/internal/peer"
)

// Wire is the version of the wire that this package speaks. It also understands the
// version before and the one after.
const Wire = 4

// maxMessage is the default of [Config.MaxMessageBytes].
const maxMessage = 16 << 20

// Frames is the source and the receiver of the frames that links carry. Its methods are
// called from many goroutines. Calls about one member's connection are in order: Up,
// then Deliver, then Down.
type Frames interface {
	// Take returns the next frame to send to a member, nil if there is none. If checks
	// is false, checks and refunds are held back. The link owns the frame until Release.
	Take(to peer.Instance, checks bool) *peer.Frame
	// Release gives back a frame that Take returned. It was sent or is lost.
	Release(f *peer.Frame)
	// Deliver processes a frame that arrived. When it returns, the link owns the frame
	// and all that it refers to again. Until then nothing else of that member is read,
	// acknowledgements included, so it must not take long.
	Deliver(f *peer.Frame)
	// Up reports that a member can be reached directly from now on.
	Up(i peer.Instance)
	// Down reports that a member cannot be reached directly. Either its connection
	// broke, and nothing that was sent on it will be delivered any more, or it could not
	// be made, which is reported for every attempt.
	Down(i peer.Instance)
}

// Config configures [Links]. Self, ClusterName and Frames are required.
type Config struct {
	// Self is this node: its name, instance and addresses.
	Self peer.Member
	// ClusterName must be the same on all nodes of a cluster. Nodes with another are
	// refused.
	ClusterName string
	// RingConfig is a hash of everything besides the members that the ring is computed
	// from. Nodes with another are refused, as they would compute other owners.
	RingConfig uint64
	// Secret must be the same on all nodes. Each side of a link proves to the other that
	// it has the secret, and who and where it is, without sending the secret. It
	// controls who takes part, but does not protect against reading or changing traffic
	// on the way. Default none: anyone who reaches the port can take part as any member.
	Secret []byte
	// SecondSecret is another one by which the other side may prove itself; empty for none.
	SecondSecret []byte
	// Certificates, unless nil, are this node's certificate and the authorities of all
	// nodes: links use TLS, and each side's certificate must be for its name and the
	// cluster. TLSOptional means that links without TLS are accepted too, and are made to
	// nodes that do not speak it.
	Certificates *certs.Store
	TLSOptional  bool
	// Expelled, unless nil, reports whether the operators have thrown a member out: it is refused.
	Expelled func(name string) bool
	// Frames supplies the frames to send and receives those that arrive.
	Frames Frames
	// Logger receives links that are made, refused and lost, each reason once; default
	// none.
	Logger *slog.Logger
	// Refused, unless nil, receives each connection to this node that is refused: its
	// address, and why. It is called from many goroutines and must not wait. A node that
	// gossip has not reported yet is none of them.
	Refused func(from, why string)
	// Panicked, unless nil, receives the value of each panic that a link recovers from.
	// It is called by the deferred function that recovered, so debug.Stack shows the
	// panic's stack. The panic ends its connection, which is then made again as usual.
	// It is called from many goroutines. If it is nil, panics are not recovered from.
	Panicked func(v any)
	// Dial, unless nil, replaces the machine's network, for tests in virtual time.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Rand spreads the attempts to connect. Only this Links may use it. Default a
	// generator with a random seed.
	Rand *rand.Rand
	// MaxMessageBytes bounds a message sent or received, in bytes; default 16 MiB, which
	// the largest counter, a log of a million units, needs. A larger message ends the
	// connection.
	MaxMessageBytes int
	// MaxConnections bounds the connections that others have opened to this node and
	// proved themselves on; default 1024. Further ones are closed. Connections without
	// proof are closed after twice ConnectTimeout. There are at most 256 of them; at
	// that bound an address with the most of them loses one.
	MaxConnections int
	// Window is how many frames with checks or refunds may be sent to a member without
	// an acknowledgement; default 2. Checks that come meanwhile are collected for the
	// next frame. A smaller window makes larger batches; a larger one shortens the wait
	// if the latency is high.
	Window int
	// ConnectTimeout bounds an attempt to connect, including the handshake; default 1 s.
	// The side that is dialled waits twice as long.
	ConnectTimeout time.Duration
	// StallTimeout is how long a write to a member may block before the connection is
	// closed; default 10 s. It is for members that are dead; the cluster judges those
	// that are slow.
	StallTimeout time.Duration
}

// withDefaults fills in defaults, and returns an error for values that are not valid.
func (c Config) withDefaults() (Config, error) {
	switch {
	case c.Self.Instance == 0:
		return c, errors.New("peerlink: Config.Self has no instance: draw one at random at each start")
	case c.ClusterName == "":
		return c, errors.New("peerlink: Config.ClusterName is empty: give the name of the cluster")
	case c.Frames == nil:
		return c, errors.New("peerlink: Config.Frames is nil: give what is to be carried")
	}
	for _, n := range []struct {
		name  string
		value int64
	}{
		{"MaxMessageBytes", int64(c.MaxMessageBytes)}, {"MaxConnections", int64(c.MaxConnections)},
		{"Window", int64(c.Window)}, {"ConnectTimeout", int64(c.ConnectTimeout)}, {"StallTimeout", int64(c.StallTimeout)},
	} {
		if n.value < 0 {
			return c, fmt.Errorf("peerlink: Config.%s is negative: leave it 0 for the default", n.name)
		}
	}
	c.Self.Wire = cmp.Or(c.Self.Wire, Wire)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Rand == nil {
		c.Rand = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	if c.Dial == nil {
		c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		}
	}
	c.MaxMessageBytes = cmp.Or(c.MaxMessageBytes, maxMessage)
	c.MaxConnections = cmp.Or(c.MaxConnections, 1024)
	c.Window = cmp.Or(c.Window, 2)
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, time.Second)
	c.StallTimeout = cmp.Or(c.StallTimeout, 10*time.Second)
	return c, nil
}

func (c *Config) expelled(name string) bool { return c.Expelled != nil && c.Expelled(name) }
