//go:build linux

package attack

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"

	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// held is how many connections each attack holds at each listener.
const held = 200

// hold keeps that many connections to each address open, each begun by what first
// returns, and opens another for each that the node closes, not faster than one every
// 20 ms for each address.
func hold(ctx context.Context, addresses []string, first func(n int) []byte, t *tally) {
	var holding sync.WaitGroup
	for _, address := range addresses {
		room := make(chan struct{}, held)
		holding.Go(func() {
			every(ctx, 20*time.Millisecond, func(n int) {
				select {
				case room <- struct{}{}:
				default:
					return
				}
				holding.Go(func() {
					defer func() { <-room }()
					t.add(silent(ctx, address, first(n)))
				})
			})
		})
	}
	holding.Wait()
}

// silent opens a connection, says one thing, and waits until the node closes it or the
// context ends. The error says that the node closed it.
func silent(ctx context.Context, address string, first []byte) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if _, err := conn.Write(first); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, conn)
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("closed by the node: %w", err)
}

// silentConnections says nothing at any of the four listeners.
func silentConnections(ctx context.Context, c *Cluster, t *tally) error {
	var addresses []string
	for _, a := range c.Targets {
		addresses = append(addresses, a.HTTP, a.GRPC, a.Gossip, a.Peer)
	}
	hold(ctx, addresses, func(int) []byte { return nil }, t)
	return nil
}

// preface begins HTTP/2: the client's first words and empty settings.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// halfMessages begins something and does not end it: an HTTP request, an HTTP/2
// connection, a frame of gossip that is said to be long.
func halfMessages(ctx context.Context, c *Cluster, t *tally) error {
	var attacking sync.WaitGroup
	for _, a := range c.Targets {
		attacking.Go(func() {
			hold(ctx, []string{a.HTTP}, func(n int) []byte {
				if n%2 == 0 {
					return []byte("POST /v1/check HTTP/1.1\r\nHost: weir\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{\"path\": \"")
				}
				return []byte("GET /v1/check?path=/a HTTP/1.1\r\nHost: we")
			}, t)
		})
		attacking.Go(func() {
			hold(ctx, []string{a.GRPC, a.Peer}, func(int) []byte { return []byte(preface) }, t)
		})
	}
	attacking.Wait()
	return nil
}

// unreadReplies asks on streams, as long as flow control lets it, and reads no reply.
func unreadReplies(ctx context.Context, c *Cluster, t *tally) error {
	conns, closeAll, err := dial(c)
	if err != nil {
		return err
	}
	defer closeAll()
	var attacking sync.WaitGroup
	for _, conn := range conns {
		for range 20 {
			attacking.Go(func() {
				every(ctx, 2*time.Second, func(int) { t.add(deaf(ctx, conn)) })
			})
		}
	}
	attacking.Wait()
	return nil
}

// deaf sends checks on one stream until that blocks or fails, and reads nothing.
func deaf(ctx context.Context, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, weirv1.Limiter_CheckStream_FullMethodName)
	if err != nil {
		return err
	}
	m := repeated(3, []byte{0}, 64) // path_lengths [0], again and again: checks of no path
	for range 2000 {
		if err := s.SendMsg(&m); err != nil {
			return err
		}
	}
	<-ctx.Done() // the replies stay where they are
	return nil
}
