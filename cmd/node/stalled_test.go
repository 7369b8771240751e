package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/limiter"
)

// h2 returns a frame of HTTP/2.
func h2(kind, flags byte, stream uint32, payload []byte) []byte {
	out := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	return append(binary.BigEndian.AppendUint32(out, stream), payload...)
}

// h2Call begins a call on a stream.
func h2Call(stream uint32, method string) []byte {
	var block []byte
	for _, h := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", "/weir.v1.Limiter/" + method}, {":authority", "x"},
		{"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		block = append(append(block, 0, byte(len(h[0]))), h[0]...)
		block = append(append(block, byte(len(h[1]))), h[1]...)
	}
	return h2(1, 4, stream, block)
}

// h2Conn opens a connection of HTTP/2 whose streams have a window.
func h2Conn(t *testing.T, address string, window uint32) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	settings := binary.BigEndian.AppendUint32([]byte{0, 4}, window)
	if _, err := c.Write(append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), h2(4, 0, 0, settings)...)); err != nil {
		t.Fatal(err)
	}
	return c
}

// isReset reads frames until those streams are reset, or the connection ends, and nothing
// if that takes too long.
func isReset(c net.Conn, streams int) error {
	if err := c.SetReadDeadline(time.Now().Add(soon)); err != nil {
		return err
	}
	in := bufio.NewReader(c)
	head := make([]byte, 9)
	for seen := map[uint32]bool{}; len(seen) < streams; {
		_, err := io.ReadFull(in, head)
		if err == nil {
			_, err = in.Discard(int(head[0])<<16 | int(head[1])<<8 | int(head[2]))
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return fmt.Errorf("%d of %d streams are reset", len(seen), streams)
		case err != nil:
			return nil //nolint:nilerr // it is closed, which is as good
		}
		if head[3] == 3 {
			seen[binary.BigEndian.Uint32(head[5:])] = true
		}
	}
	return nil
}

// TestStalledClients: clients that send half a message, none, or do not read their
// answers are given up; and meanwhile a client of the Go package and one over HTTP are
// answered without a failure.
func TestStalledClients(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-long runs it")
	}
	p, overHTTP, overGRPC := serve(t, "--rules", write(t, townRules), "--client-timeout", "2s")
	c, err := client.Open(client.Config{Addrs: []string{overGRPC}, Timeout: soon})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	web := &http.Client{}
	defer web.CloseIdleConnections()
	ctx, cancel := context.WithCancel(t.Context())
	var honest sync.WaitGroup
	var asked atomic.Int64
	for range 4 {
		honest.Go(func() {
			var d limiter.Decision
			for ctx.Err() == nil {
				if err := c.CheckInto(context.WithoutCancel(ctx), &limiter.Request{Path: "/other", User: "ada"}, &d); err != nil {
					t.Errorf("after %d checks: %v", asked.Load(), err)
					return
				}
				asked.Add(1)
			}
		})
	}
	honest.Go(func() {
		for ctx.Err() == nil {
			if status, body := get(t, web, "http://"+overHTTP+"/v1/check?path=/other"); status != http.StatusOK {
				t.Errorf("over HTTP: %d %s", status, body)
				return
			}
		}
	})

	const perConn, conns = 50, 5
	half := append([]byte{0, 0, 0, 200, 0}, make([]byte, 500)...) // of 51,200 bytes
	batch := append([]byte{0, 0, 0, 7, 208}, bytes.Repeat([]byte{0x0a, 0}, 1000)...)
	attacks := map[string]struct {
		window uint32
		begin  func(stream uint32) []byte
	}{
		"half messages":  {65535, func(s uint32) []byte { return append(h2Call(s, "CheckBatch"), h2(0, 0, s, half)...) }},
		"no messages":    {65535, func(s uint32) []byte { return h2Call(s, "CheckStream") }},
		"unread answers": {0, func(s uint32) []byte { return append(h2Call(s, "CheckBatch"), h2(0, 1, s, batch)...) }},
	}
	type stuck struct {
		name string
		conn net.Conn
	}
	var all []stuck
	for name, a := range attacks {
		for range conns {
			conn := h2Conn(t, overGRPC, a.window)
			for i := range perConn {
				if _, err := conn.Write(a.begin(uint32(2*i + 1))); err != nil {
					t.Fatal(err)
				}
			}
			all = append(all, stuck{name, conn})
		}
	}
	for _, s := range all {
		if err := isReset(s.conn, perConn); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
	}
	body, err := net.Dial("tcp", overHTTP)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if _, err := io.WriteString(body,
		"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	if err := isReset(body, 1); err != nil {
		t.Errorf("half a body: %v", err)
	}
	cancel()
	honest.Wait()
	t.Logf("%d honest checks meanwhile; the node took %d MiB at most", asked.Load(), p.peak())
	p.signal(os.Interrupt)
	p.end(0)
}
