package peerlink_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/internal/peerlink"
)

// BenchmarkAsk measures a request over a link on loopback and its reply, one request at
// a time, with so many checks.
func BenchmarkAsk(b *testing.B) {
	for _, n := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			x, y := &echo{}, &echo{}
			asker, owner := startWith(b, 1, x, "", nil), startWith(b, 2, y, "", nil)
			x.to, y.to = asker.Links, owner.Links
			x.replied = make(chan struct{}, 1)
			ask := checks(1, n)
			ask.From, ask.To = 1, 2
			y.reply = &peer.Frame{From: 2, To: 1}
			for i := range n {
				y.reply.Replies = append(y.reply.Replies, peer.Reply{ID: uint64(i), Results: 1})
				y.reply.Results = append(y.reply.Results, peer.Result{Allowed: true, Remaining: 9, ResetAfter: 1e6})
			}
			introduce(asker, owner)
			x.await(b)
			y.await(b)
			for b.Loop() {
				x.out.Store(ask)
				x.to.Wake(2)
				<-x.replied
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/check")
		})
	}
}

// echo implements Frames at both ends: at one it asks, at the other it replies.
type echo struct {
	to      *peerlink.Links
	out     atomic.Pointer[peer.Frame]
	reply   *peer.Frame
	replied chan struct{}
	up      atomic.Bool
}

func (e *echo) Take(peer.Instance, bool) *peer.Frame { return e.out.Swap(nil) }
func (e *echo) Release(*peer.Frame)                  {}
func (e *echo) Up(peer.Instance)                     { e.up.Store(true) }
func (e *echo) Down(peer.Instance)                   { e.up.Store(false) }

func (e *echo) Deliver(f *peer.Frame) {
	if e.reply == nil {
		e.replied <- struct{}{}
		return
	}
	e.out.Store(e.reply)
	e.to.Wake(f.From)
}

func (e *echo) await(b *testing.B) {
	b.Helper()
	look, end := time.NewTicker(time.Millisecond), time.After(patience)
	defer look.Stop()
	for !e.up.Load() {
		select {
		case <-look.C:
		case <-end:
			b.Fatal("there is no link")
		}
	}
}
