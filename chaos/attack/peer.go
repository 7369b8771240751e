//go:build linux

package attack

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"math"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	peerv1 "github.com/weirlimit/weir/proto/weir/peer/v1"
	"github.com/weirlimit/weir/ring"
)

// forgedFrames connects to the peer ports as a member that nobody knows, and sends what
// would do harm if it were believed: epochs that nobody can exceed, counters outside
// their partition, frames from and to instances that do not exist, and messages that say
// that they have many more items than they carry.
func forgedFrames(ctx context.Context, c *Cluster, t *tally) error {
	var attacking sync.WaitGroup
	for _, target := range c.Targets {
		conn, err := grpc.NewClient("passthrough:///"+target.Peer, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		attacking.Go(func() {
			every(ctx, 200*time.Millisecond, func(n int) { t.add(intrude(ctx, conn, c, n)) })
		})
	}
	attacking.Wait()
	return nil
}

// instance returns an instance id that nobody has.
func instance() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it does not fail: it ends the program instead
	return binary.LittleEndian.Uint64(b[:]) | 1
}

// intrude opens a link, sends one forged frame and waits for what becomes of it. The
// error says that the node refused the link.
func intrude(ctx context.Context, conn *grpc.ClientConn, c *Cluster, n int) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	link, err := peerv1.NewLinksClient(conn).Connect(ctx)
	if err != nil {
		return err
	}
	self := instance()
	nonce := make([]byte, 16)
	_, _ = rand.Read(nonce) // likewise
	hello := &peerv1.Hello{Wire: 1, Cluster: c.ClusterName, RingConfig: ring.ConfigHash(), Name: "intruder", Instance: self, Nonce: nonce}
	first := &peerv1.Message{Hello: hello}
	if n%4 == 3 { // what is said to have many items, before anything is proven
		first.Frame = &peerv1.Frame{From: self, Checks: &peerv1.Checks{Count: 65536}, Keys: &peerv1.Keys{Count: 65536}, Entries: &peerv1.Entries{Count: 65536}}
	}
	if err := link.Send(first); err != nil {
		return err
	}
	if _, err := link.Recv(); err != nil {
		return err
	}
	if err := link.Send(&peerv1.Message{Proof: make([]byte, 32), Frame: forged(self, n)}); err != nil {
		return err
	}
	for {
		if _, err := link.Recv(); err != nil {
			return err
		}
	}
}

// forged is a frame that lies.
func forged(self uint64, n int) *peerv1.Frame {
	f := &peerv1.Frame{From: self, To: 0, Number: 1}
	switch n % 3 {
	case 0: // an owner whose epoch nobody can exceed, of every partition
		a := new(peerv1.Announces)
		for p := range uint32(2042) {
			a.Partitions = append(a.Partitions, p)
			a.EpochCounters = append(a.EpochCounters, math.MaxUint64)
			a.EpochInstances = append(a.EpochInstances, self)
			a.Heirs = append(a.Heirs, self)
		}
		a.Count = uint32(len(a.Partitions))
		f.Announces = a
	case 1: // a snapshot with a counter at the very end of the key space
		f.Limits = []*peerv1.Limit{{Name: "hour", Limit: 5, WindowUs: int64(time.Hour / time.Microsecond), Weight: proto.Int32(1000)}}
		f.Batches = &peerv1.Batches{Count: 1, Partitions: []uint32{0}, Kinds: []byte{1}, EpochCounters: []uint64{math.MaxUint64 - 1},
			EpochInstances: []uint64{self}, Seqs: []uint64{1}, Flags: []byte{3}, Appointments: []uint32{1}, Keys: []uint32{1}}
		f.Entries = &peerv1.Entries{Count: 1, His: []uint64{math.MaxUint64}, Los: []uint64{0}, Limits: []uint32{0}, Flags: []byte{1}, As: []uint32{5}}
	default: // claims above all counters, from and to instances that do not exist
		f.From, f.To, f.Relayed, f.Via = instance(), instance(), true, self
		claims := new(peerv1.Claims)
		for p := range uint32(2042) {
			claims.Partitions = append(claims.Partitions, p)
			claims.Counters = append(claims.Counters, math.MaxUint64-2)
		}
		claims.Count = uint32(len(claims.Partitions))
		claims.Kinds = make([]byte, claims.Count)
		f.Claims = claims
	}
	return f
}
