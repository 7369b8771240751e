package peerlink

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"google.golang.org/grpc/mem"

	"github.com/weirlimit/weir/internal/peer"
)

// askAndReply returns a frame with n checks of one key each, and one with an owner's
// replies.
func askAndReply(n int) (ask, reply *peer.Frame) {
	r := rand.New(rand.NewPCG(1, 1))
	ask = &peer.Frame{From: 1 << 60, To: 1 << 61, Rules: []peer.Rule{{ID: r.Uint64(), Name: "towns"}}}
	reply = &peer.Frame{From: 1 << 61, To: 1 << 60}
	for i := range n {
		id := uint64(i)<<32 | r.Uint64()>>40
		ask.Checks = append(ask.Checks, peer.Check{ID: id, Keys: 1, Wait: 299_500})
		ask.Keys = append(ask.Keys, peer.Key{Hi: r.Uint64(), Lo: r.Uint64(), Cost: 1})
		reply.Replies = append(reply.Replies, peer.Reply{ID: id, Results: 1, Receipt: peer.Receipt{
			Epoch: peer.Epoch{Counter: 7, Instance: 1 << 61}, Time: 1_767_225_600_000_000, Charged: 1, Set: 1 << 59,
		}})
		reply.Results = append(reply.Results, peer.Result{Allowed: true, Remaining: 99, ResetAfter: 59_000_000})
	}
	return ask, reply
}

// BenchmarkFrame measures encoding and decoding of a forwarded check and its reply
// together.
func BenchmarkFrame(b *testing.B) {
	for _, n := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := newTestCodec()
			ask, reply := askAndReply(n)
			var m message
			size := 0
			b.ReportAllocs()
			for b.Loop() {
				size = 0
				for _, f := range []*peer.Frame{ask, reply} {
					out, err := c.Marshal(&message{frame: f, ackWanted: true})
					if err != nil {
						b.Fatal(err)
					}
					size += out.Len()
					if err := c.Unmarshal(out, &m); err != nil || m.bad != nil || m.in == nil {
						b.Fatal(err, m.bad)
					}
					if got := &m.in.frame; len(got.Checks)+len(got.Replies) != n {
						b.Fatal("not all came")
					}
					c.release(&m)
					out.Free()
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/check")
			b.ReportMetric(float64(size)/float64(n), "B/check")
		})
	}
}

var _ mem.BufferPool = (*bufferPool)(nil)
