//go:build linux

package attack

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"

	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// slow is how many slow clients each attack has at each listener.
const slow = 50

// perByte is how long a slow client takes for each byte.
const perByte = 200 * time.Millisecond

// trickle sends bytes one by one until the node closes the connection. It reads what
// comes meanwhile, so that the node notices nothing else.
func trickle(ctx context.Context, conn net.Conn, next func(n int) byte) error {
	gone := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, conn)
		gone <- errors.Join(errClosed, err)
	}()
	tick := time.NewTicker(perByte)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-tick.C:
			if _, err := conn.Write([]byte{next(n)}); err != nil {
				return err
			}
		case err := <-gone:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// slowHeaders sends HTTP requests whose headers do not end, byte by byte.
func slowHeaders(ctx context.Context, c *Cluster, t *tally) error {
	const begin, line = "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n", "X-More: more\r\n"
	g := grip{from: sources(), most: slow, talk: func(ctx context.Context, conn net.Conn, _ int) error {
		if _, err := io.WriteString(conn, begin); err != nil {
			return err
		}
		return trickle(ctx, conn, func(n int) byte { return line[n%len(line)] })
	}}
	for _, a := range c.Targets {
		g.addresses = append(g.addresses, a.HTTP, a.Admin, a.Health)
	}
	hold(ctx, g, t)
	return nil
}

// preface begins HTTP/2: the client's first words and empty settings.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// The frames of HTTP/2 that are sent here.
const (
	frameData       = 0
	frameHeaders    = 1
	flagEndHeaders  = 4
	bytesOfTrickled = 16 << 10 // of a DATA frame; no larger one is allowed
)

// frame is the header of an HTTP/2 frame.
func frame(size int, kind, flags byte, stream uint32) []byte {
	b := []byte{byte(size >> 16), byte(size >> 8), byte(size), kind, flags}
	return binary.BigEndian.AppendUint32(b, stream)
}

// headers is a HEADERS frame that calls a method of gRPC, with fields that are written
// in full.
func headers(stream uint32, method string) []byte {
	var block []byte
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "weir"},
		{"content-type", "application/grpc"}, {"te", "trailers"}} {
		block = append(block, 0, byte(len(f[0]))) // literal, not indexed, not Huffman
		block = append(block, f[0]...)
		block = append(block, byte(len(f[1])))
		block = append(block, f[1]...)
	}
	return append(frame(len(block), frameHeaders, flagEndHeaders, stream), block...)
}

// trickledStreams is how many streams of a connection have half a message.
const trickledStreams = 60

// trickledFrames begins messages of half a megabyte on many streams, sends some of each,
// and then sends one frame byte by byte: between two frames alone a node can end a
// stream without the connection.
func trickledFrames(ctx context.Context, c *Cluster, t *tally) error {
	begin := []byte(preface)
	some := make([]byte, 8<<10)
	for i := range uint32(trickledStreams) {
		stream := 2*i + 1
		begin = append(begin, headers(stream, weirv1.Limiter_CheckStream_FullMethodName)...)
		begin = append(begin, frame(5+len(some), frameData, 0, stream)...)
		begin = append(begin, 0, 0, 8, 0, 0) // a message of 512 KiB
		begin = append(begin, some...)
	}
	begin = append(begin, frame(bytesOfTrickled, frameData, 0, 1)...)
	g := grip{most: 8, talk: func(ctx context.Context, conn net.Conn, _ int) error {
		if _, err := conn.Write(begin); err != nil {
			return err
		}
		return trickle(ctx, conn, func(int) byte { return 0 })
	}}
	for _, a := range c.Targets {
		g.addresses = append(g.addresses, a.GRPC)
	}
	hold(ctx, g, t)
	return nil
}

// slowConn is a connection that is read byte by byte after its beginning.
type slowConn struct {
	net.Conn
	quick int // bytes that are still read at once
	ends  <-chan struct{}
	spoke *atomic.Bool // set once it was read slowly
}

// Read implements net.Conn.
func (c *slowConn) Read(b []byte) (int, error) {
	if c.quick > 0 {
		n, err := c.Conn.Read(b[:min(len(b), c.quick)])
		c.quick -= n
		return n, err
	}
	select {
	case <-time.After(perByte):
	case <-c.ends:
		return 0, net.ErrClosed
	}
	n, err := c.Conn.Read(b[:min(len(b), 1)])
	if n > 0 {
		c.spoke.Store(true)
	}
	return n, err
}

// quickBytes is how many bytes slow readers read at once: the beginning of HTTP/2, or of
// an answer.
const quickBytes = 64

// slowReaders asks for as many decisions as a batch may have, over HTTP, and reads the
// answers byte by byte.
func slowReaders(ctx context.Context, c *Cluster, t *tally) error {
	one := `{"path":"/slow","user":"reader"}`
	body := `{"checks":[` + strings.Repeat(one+",", 999) + one + `]}`
	request := fmt.Sprintf("POST /v1/check/batch HTTP/1.1\r\nHost: weir\r\nContent-Type: "+
		"application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	var attacking sync.WaitGroup
	for _, target := range c.Targets {
		attacking.Go(func() {
			hold(ctx, grip{addresses: []string{target.HTTP}, most: 10, pause: 2 * time.Second,
				talk: func(ctx context.Context, conn net.Conn, _ int) error {
					return readSlowly(ctx, conn, request)
				}}, t)
		})
	}
	attacking.Wait()
	return nil
}

// slowBatches does so over gRPC, on 2 connections to each node.
func slowBatches(ctx context.Context, c *Cluster, t *tally) error {
	var attacking sync.WaitGroup
	for _, target := range c.Targets {
		for range 2 {
			attacking.Go(func() {
				every(ctx, time.Second, func(int) { t.add(readBatches(ctx, target.GRPC, t)) })
			})
		}
	}
	attacking.Wait()
	return nil
}

// readSlowly sends a request over and over, as HTTP/1 allows, and reads the answers byte
// by byte. It returns nil if the answer begins with 200.
func readSlowly(ctx context.Context, conn net.Conn, request string) error {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(2 << 10) // so that the answer stays with the node
	}
	if _, err := io.WriteString(conn, request); err != nil {
		return err
	}
	read := bufio.NewReaderSize(&slowConn{conn, quickBytes, ctx.Done(), new(atomic.Bool)}, 16)
	line, err := read.ReadString('\n')
	if err != nil {
		return err
	}
	if !strings.HasPrefix(line, "HTTP/1.1 200") {
		return fmt.Errorf("the answer is %q", line)
	}
	_, _ = io.Copy(io.Discard, read) // until the node closes it
	return nil
}

// readBatches asks for large batches on a connection of its own that is read byte by
// byte, 5 at a time, for a minute. It returns an error if the node never spoke.
func readBatches(ctx context.Context, address string, t *tally) error {
	defer t.hold()()
	during, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var spoke atomic.Bool
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{})),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := connect(ctx, "", address)
			if err != nil {
				return nil, err
			}
			return &slowConn{conn, quickBytes, during.Done(), &spoke}, nil
		}))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	var one, batch raw
	one = protowire.AppendTag(one, 1, protowire.BytesType)
	one = protowire.AppendString(one, "/slow")
	for range 1000 {
		batch = protowire.AppendTag(batch, 1, protowire.BytesType)
		batch = protowire.AppendBytes(batch, one)
	}
	var asking sync.WaitGroup
	for range 5 {
		asking.Go(func() {
			var reply raw
			_ = conn.Invoke(during, weirv1.Limiter_CheckBatch_FullMethodName, &batch, &reply) // it is not read to its end
		})
	}
	asking.Wait()
	if !spoke.Load() {
		return context.DeadlineExceeded
	}
	return nil
}

// largeBodies posts bodies of 8 MiB to the HTTP of clients, operators and probes.
func largeBodies(ctx context.Context, c *Cluster, t *tally) error {
	client := &http.Client{Timeout: answerWithin, Transport: &http.Transport{DisableKeepAlives: true}}
	body := strings.Repeat(" ", 8<<20)
	var attacking sync.WaitGroup
	for _, target := range c.Targets {
		urls := []string{
			"http://" + target.Admin + "/v1/members/forget", "http://" + target.HTTP + "/v1/check/batch",
			"http://" + target.Health + "/healthz", "http://" + target.Admin + "/v1/members",
		}
		for i, url := range urls {
			attacking.Go(func() {
				every(ctx, time.Duration(5+i)*time.Second, func(int) { t.add(post(ctx, client, url, body)) })
			})
		}
	}
	attacking.Wait()
	return nil
}

// post posts a body and returns an error unless it is taken. A node that closes the
// connection has refused it.
func post(ctx context.Context, client *http.Client, url, body string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	_ = resp.Body.Close() // an error does not matter
	if resp.StatusCode/100 != 2 {
		return errors.New(resp.Status)
	}
	return nil
}
