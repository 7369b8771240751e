package peerlink

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/weirlimit/weir/internal/peer"
)

// Wire is the version of the wire that this package speaks. It understands the
// versions beside it.
const Wire = 2

// maxMessage is the default of [Config.MaxMessageBytes].
const maxMessage = 16 << 20

// Frames is what links carry. Its methods are called from many goroutines, those
// about one member's connection in order: Up, then Deliver, then Down.
type Frames interface {
	// Take returns what is to be sent to a member now, nil if there is nothing.
	// With checks false, checks and refunds are held back. The frame is the
	// link's until Release.
	Take(to peer.Instance, checks bool) *peer.Frame
	// Release gives back a frame that Take returned; it was sent, or is lost.
	Release(f *peer.Frame)
	// Deliver takes in a frame that came. The frame and all that it refers to are
	// the link's again when Deliver returns. Until it does nothing else of that
	// member is read, acknowledgements included, so it must not take long.
	Deliver(f *peer.Frame)
	// Up tells that a member can be reached directly from now on.
	Up(i peer.Instance)
	// Down tells that it cannot: the connection broke, and nothing that was sent
	// on it will be delivered any more, or it could not be made, which is told
	// for every attempt.
	Down(i peer.Instance)
}

// Config configures [Links]. Self, ClusterName and Frames are needed.
type Config struct {
	// Self is this node: its name, instance and addresses.
	Self peer.Member
	// ClusterName is the same on all nodes of a cluster. Nodes of another are
	// refused.
	ClusterName string
	// RingConfig is a hash of what the ring is computed with, besides the
	// members. Nodes with another are refused, as they would take others for
	// owners.
	RingConfig uint64
	// Secret, if there is one, must be the same on all nodes: each proves to the
	// other that it has it, and who and where it is, without sending it. It guards who
	// takes part, and not what can be read or changed on the way. Default none: whoever
	// reaches the port can take part as any member.
	Secret []byte
	// Frames has what is to be sent, and gets what came.
	Frames Frames
	// Logger is told of links that are made, refused and lost, each reason once;
	// default nowhere.
	Logger *slog.Logger
	// Panicked, unless nil, is told the value of each panic that a link has recovered
	// from, in the deferred function that did, so that the stack is the panic's. A panic
	// ends the connection that it came up at, which is made again as after any other end.
	// It is called from many goroutines. Nil: panics are not recovered from.
	Panicked func(v any)
	// Rand spreads the attempts to connect; only this Links may use it. Default a
	// generator with a random seed.
	Rand *rand.Rand
	// MaxMessageBytes bounds a message that is received or sent; default 16 MiB,
	// which the largest counter, a log of a million units, needs. A larger one
	// ends the connection.
	MaxMessageBytes int
	// MaxConnections bounds the connections that others have open to this node and that
	// have proved who they are; default 1024. One more is closed. Others are closed after
	// twice ConnectTimeout; there are 256 of them at most, and at that bound an address
	// with the most of them loses one.
	MaxConnections int
	// Window is how many frames with checks or refunds may be under way to a
	// member before one is acknowledged; default 2. What comes up meanwhile is
	// collected into the next. Fewer make larger batches, more shorten the wait
	// where the way is long.
	Window int
	// ConnectTimeout bounds an attempt to connect, up to the end of the hellos;
	// default 1 s. Who is dialled waits twice as long.
	ConnectTimeout time.Duration
	// StallTimeout is how long a member may take nothing of what is sent to it
	// before the connection is given up; default 10 s. It is for the dead: who
	// is merely slow is judged by the cluster.
	StallTimeout time.Duration
}

// withDefaults fills in what was left out, and says what cannot be.
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
	if c.Self.Wire == 0 {
		c.Self.Wire = Wire
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Rand == nil {
		c.Rand = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	setDefault(&c.MaxMessageBytes, maxMessage)
	setDefault(&c.MaxConnections, 1024)
	setDefault(&c.Window, 2)
	setDefault(&c.ConnectTimeout, time.Second)
	setDefault(&c.StallTimeout, 10*time.Second)
	return c, nil
}

func setDefault[T int | time.Duration](to *T, value T) {
	if *to == 0 {
		*to = value
	}
}
