package peerlink

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/peer"
	peerv1 "github.com/weirlimit/weir/proto/weir/peer/v1"
)

const (
	nonceBytes = 16
	maxName    = 255 // longest name of a node or cluster that is shown, in bytes
)

// handshake makes and checks hellos.
type handshake struct {
	self    peer.Member
	cluster string
	ring    uint64
	secret  []byte
	second  []byte // another one by which the other side may prove itself
}

// hello returns a new hello. to is the member that is dialled. The side that was dialled
// expects no particular member, and passes the zero value.
func (g *handshake) hello(to peer.Member) *peerv1.Hello {
	nonce := make([]byte, nonceBytes)
	_, _ = rand.Read(nonce) // it never fails: it ends the program instead
	return &peerv1.Hello{
		Wire: uint32(g.self.Wire), Cluster: g.cluster, RingConfig: g.ring,
		Name: g.self.Name, Instance: uint64(g.self.Instance), Address: g.self.PeerAddr, Nonce: nonce,
		Expected: uint64(to.Instance), ExpectedName: to.Name, ExpectedAddress: to.PeerAddr,
	}
}

// judge returns nil if a hello fits this node, otherwise the reason as a status for the
// other side.
func (g *handshake) judge(h *peerv1.Hello) error {
	switch wire := int(h.GetWire()); {
	case h == nil:
		return status.Error(codes.InvalidArgument,
			"the first message is no hello: this is the peer port of a Weir node, only for other nodes")
	case h.GetCluster() != g.cluster:
		return g.refuse("this node is of cluster %q, and the other of %q: give both the same cluster name, or join only "+
			"nodes of one cluster",
			short(g.cluster), short(h.GetCluster()))
	case wire < int(g.self.Wire)-1 || wire > int(g.self.Wire)+1:
		return g.refuse("this node speaks version %d of the peer wire, and the other %d: upgrade one version at a time",
			g.self.Wire, wire)
	case h.GetRingConfig() != g.ring:
		return g.refuse("this node's ring configuration is %016x, and the other's %016x: run the same settings of the "+
			"ring, and programs that agree on them, everywhere",
			g.ring, h.GetRingConfig())
	case h.GetInstance() == 0 || len(h.GetNonce()) != nonceBytes:
		return status.Error(codes.InvalidArgument, "the hello has no instance or no nonce")
	case h.GetInstance() == uint64(g.self.Instance):
		return g.refuse("it is this node itself: check the addresses that nodes advertise")
	case h.GetExpected() != 0 && h.GetExpected() != uint64(g.self.Instance):
		return status.Errorf(codes.NotFound, "instance %s does not run here: this is %q, instance %s",
			peer.Instance(h.GetExpected()), short(g.self.Name), g.self.Instance)
	}
	return nil
}

// judgeDialler returns nil if the hello of the dialling side fits: it must name this
// node, and the address that this node advertises. Otherwise something at another
// address may be relaying between the two.
func (g *handshake) judgeDialler(h *peerv1.Hello) error {
	switch {
	case h.GetExpected() == 0:
		return status.Error(codes.InvalidArgument, "the hello names no instance that is meant")
	case h.GetExpectedName() != g.self.Name:
		return status.Errorf(codes.NotFound, "node %q does not run here: this is %q", short(h.GetExpectedName()),
			short(g.self.Name))
	case h.GetExpectedAddress() != g.self.PeerAddr:
		return g.refuse("the other dialled %q, and this node advertises %q for peers: whoever told it the other address "+
			"may stand in between; "+
			"if there is a proxy, give its host to --advertise, and the port that it listens on to --peer-addr",
			short(h.GetExpectedAddress()), short(g.self.PeerAddr))
	}
	return nil
}

// judgeDialled returns nil if the hello of the dialled side fits: it must be of the
// member that was meant, at the address that was dialled.
func (g *handshake) judgeDialled(h *peerv1.Hello, to peer.Member) error {
	switch {
	case h.GetInstance() != uint64(to.Instance):
		return fmt.Errorf("another instance answers there: %q", short(h.GetName()))
	case h.GetName() != to.Name:
		return fmt.Errorf("another node answers there: %q", short(h.GetName()))
	case h.GetAddress() != to.PeerAddr:
		return fmt.Errorf("it advertises another address for peers than was dialled: %q", short(h.GetAddress()))
	}
	return nil
}

// refuse returns the status for a mismatch that an operator must correct.
func (g *handshake) refuse(format string, args ...any) error {
	return status.Errorf(codes.FailedPrecondition, "node %q refuses: "+format,
		append([]any{short(g.self.Name)}, args...)...)
}

// prove returns the proof that this side has the secret: an HMAC-SHA-256 of both hellos
// and the side; nil if there is no secret. The hellos contain the names, instances and
// addresses of both sides, so the proof is valid for this link only. The side prevents
// sending it back.
func (g *handshake) prove(side string, dialler, dialled *peerv1.Hello) []byte {
	return proof(g.secret, side, dialler, dialled)
}

// proof is prove with a given secret.
func proof(secret []byte, side string, dialler, dialled *peerv1.Hello) []byte {
	if len(secret) == 0 {
		return nil
	}
	h := hmac.New(sha256.New, secret)
	part(h, "weir peer link", side)
	for _, x := range []*peerv1.Hello{dialler, dialled} {
		part(h, x.GetCluster(), x.GetName(), string(x.GetNonce()), x.GetAddress(), x.GetExpectedName(),
			x.GetExpectedAddress())
		for _, n := range []uint64{uint64(x.GetWire()), x.GetRingConfig(), x.GetInstance(), x.GetExpected()} {
			_ = binary.Write(h, binary.BigEndian, n) // a hash never fails
		}
	}
	return h.Sum(nil)
}

// part writes texts with their lengths, so that different lists differ.
func part(h hash.Hash, texts ...string) {
	for _, s := range texts {
		_ = binary.Write(h, binary.BigEndian, uint64(len(s))) // a hash never fails
		_, _ = h.Write([]byte(s))
	}
}

// verify returns nil if a proof is correct, otherwise the reason as a status.
func (g *handshake) verify(side string, dialler, dialled *peerv1.Hello, has []byte) error {
	want := g.prove(side, dialler, dialled)
	switch {
	case hmac.Equal(want, has):
		return nil
	case len(g.second) > 0 && hmac.Equal(proof(g.second, side, dialler, dialled), has):
		return nil
	case len(want) == 0:
		return g.refuse("this node has no secret, and the other one has: give both the same")
	case len(has) == 0:
		return g.refuse("the other node has no secret, and this one has: give both the same")
	default:
		return g.refuse("the other node has another secret: give both the same")
	}
}

// short shortens a name for a text.
func short(s string) string {
	if len(s) > maxName {
		return fmt.Sprintf("%s… (%d bytes)", s[:maxName], len(s))
	}
	return s
}
