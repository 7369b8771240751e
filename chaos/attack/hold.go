//go:build linux

package attack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"

	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

const (
	// held is how many connections each attack holds at each listener.
	held = 200
	// reopening is how soon another one is opened there. What churns faster keeps this
	// machine's two processors from the nodes, and so hides what the attack does.
	reopening = 100 * time.Millisecond
)

// sources are the addresses from which connections come that are to seem those of many.
func sources() []string {
	var out []string
	for i := range 8 {
		out = append(out, fmt.Sprintf("127.0.0.%d", 2+i))
	}
	return out
}

// grip is connections that are held open.
type grip struct {
	addresses []string
	// from is the addresses to connect from, in turn; nil: the machine's choice.
	from []string
	// most is how many there are to each address, and pause the least time between two
	// that are opened; 0: reopening.
	most  int
	pause time.Duration
	// talk talks on the n-th connection until the node closes it, which is an error, or
	// the context ends.
	talk func(ctx context.Context, conn net.Conn, n int) error
}

// hold keeps the connections open, and opens another for each that the node closes.
func hold(ctx context.Context, g grip, t *tally) {
	var holding sync.WaitGroup
	for _, address := range g.addresses {
		room := make(chan struct{}, g.most)
		holding.Go(func() {
			every(ctx, cmp.Or(g.pause, reopening), func(n int) {
				select {
				case room <- struct{}{}:
				default:
					return
				}
				holding.Go(func() {
					defer func() { <-room }()
					t.add(g.one(ctx, address, n, t))
				})
			})
		})
	}
	holding.Wait()
}

// one opens the n-th connection to an address and talks on it. The error says that the
// node closed it.
func (g *grip) one(ctx context.Context, address string, n int, t *tally) error {
	from := ""
	if len(g.from) > 0 {
		from = g.from[n%len(g.from)]
	}
	conn, err := connect(ctx, from, address)
	if err != nil {
		return err
	}
	defer t.hold()()
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	err = g.talk(ctx, conn, n)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// connect connects to an address over TCP, from another one unless that is empty.
func connect(ctx context.Context, from, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: answerWithin}
	if from != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	return d.DialContext(ctx, "tcp", address)
}

// errClosed is the error where a node closed a connection.
var errClosed = errors.New("closed by the node")

// mute says one thing, and then waits.
func mute(first []byte) func(context.Context, net.Conn, int) error {
	return func(_ context.Context, conn net.Conn, _ int) error {
		if _, err := conn.Write(first); err != nil {
			return err
		}
		_, err := io.Copy(io.Discard, conn)
		return errors.Join(errClosed, err)
	}
}

// silentConnections says nothing at any of the listeners of clients and members.
func silentConnections(ctx context.Context, c *Cluster, t *tally) error {
	g := grip{most: held, talk: mute(nil)}
	for _, a := range c.Targets {
		g.addresses = append(g.addresses, a.HTTP, a.GRPC, a.Gossip, a.Peer)
	}
	hold(ctx, g, t)
	return nil
}

// probing is how many connections are held at each listener for probes and operators,
// which take 64.
const probing = 80

// silentProbes says nothing at the listeners for probes and operators, from several
// addresses.
func silentProbes(ctx context.Context, c *Cluster, t *tally) error {
	g := grip{from: sources(), most: probing, pause: 15 * time.Millisecond, talk: mute(nil)}
	for _, a := range c.Targets {
		g.addresses = append(g.addresses, a.Health, a.Admin)
	}
	hold(ctx, g, t)
	return nil
}

// burst is how many silent streams of gossip come at once: a node takes 256.
const burst = 300

// silentGossip fills the places for streams of gossip of one node after the other, all
// at once, from several addresses: a node closes what is silent after half a second.
func silentGossip(ctx context.Context, c *Cluster, t *tally) error {
	var attacking sync.WaitGroup
	every(ctx, 4*time.Second, func(n int) {
		g := grip{from: sources(), talk: mute(nil)}
		for i := range burst {
			attacking.Go(func() { t.add(g.one(ctx, c.Targets[n%len(c.Targets)].Gossip, i, t)) })
		}
	})
	attacking.Wait()
	return nil
}

// halfMessages begins something and does not end it: an HTTP request, an HTTP/2
// connection.
func halfMessages(ctx context.Context, c *Cluster, t *tally) error {
	var attacking sync.WaitGroup
	for _, a := range c.Targets {
		attacking.Go(func() {
			body := mute([]byte("POST /v1/check HTTP/1.1\r\nHost: weir\r\nContent-Type: application/json\r\nContent-Length: " +
				"1000000\r\n\r\n{\"path\": \""))
			header := mute([]byte("GET /v1/check?path=/a HTTP/1.1\r\nHost: we"))
			hold(ctx, grip{addresses: []string{a.HTTP}, most: held, talk: func(ctx context.Context, conn net.Conn, n int) error {
				if n%2 == 0 {
					return body(ctx, conn, n)
				}
				return header(ctx, conn, n)
			}}, t)
		})
		attacking.Go(func() {
			hold(ctx, grip{addresses: []string{a.GRPC, a.Peer}, most: held, talk: mute([]byte(preface))}, t)
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
		for i := range 10 {
			attacking.Go(func() {
				begin := time.NewTimer(time.Duration(i) * 3 * time.Second) // else all ask at once again and again
				defer begin.Stop()
				select {
				case <-begin.C:
				case <-ctx.Done():
					return
				}
				every(ctx, 2*time.Second, func(int) { t.add(deaf(ctx, conn, t)) })
			})
		}
	}
	attacking.Wait()
	return nil
}

// deaf sends checks on one stream until that blocks or fails, and reads nothing.
func deaf(ctx context.Context, conn *grpc.ClientConn, t *tally) error {
	defer t.hold()()
	during, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	s, err := conn.NewStream(during, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
		weirv1.Limiter_CheckStream_FullMethodName)
	if err != nil {
		return err
	}
	m := repeated(3, []byte{0}, 3) // path_lengths [0]: a check of no path
	for range 10_000 {
		if err := s.SendMsg(&m); err != nil {
			return err
		}
	}
	<-s.Context().Done() // the replies stay where they are
	return nil
}
