package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
)

// raw is a codec whose messages are bytes, whatever they stand for.
type raw struct{}

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

func (raw) Name() string { return "proto" }

// peak returns the most memory that the process has had, in MiB.
func (p *process) peak() int {
	p.t.Helper()
	if runtime.GOOS != "linux" {
		p.t.Skip("/proc tells it, on Linux only")
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		p.t.Fatal(err)
	}
	return kib >> 10
}

// rawConn is a connection to a node's gRPC whose messages are bytes.
func rawConn(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(raw{})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// stream sends a message on a stream and returns the reply.
func stream(ctx context.Context, conn *grpc.ClientConn, message []byte) error {
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
		"/weir.v1.Limiter/CheckStream")
	if err == nil {
		err = s.SendMsg(message)
	}
	if err == nil {
		var reply []byte
		err = s.RecvMsg(&reply)
	}
	return err
}

// TestHollowMessages sends messages that stand for hundreds of megabytes, eight of each
// kind at once: of the size that a node takes, and of 4 MiB. They take next to nothing,
// and the node decides as before.
func TestHollowMessages(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-long runs it")
	}
	const most = 150 // MiB
	p, overHTTP, overGRPC := serve(t, "--rules", write(t, townRules))
	conn := rawConn(t, overGRPC)
	c := &http.Client{}
	t.Cleanup(c.CloseIdleConnections)
	begun := p.peak()
	post := func(path string) func(context.Context, []byte) error {
		return func(ctx context.Context, body []byte) error {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+overHTTP+path, bytes.NewReader(body))
			if err != nil {
				return err
			}
			req.Header.Set("Content-Type", "application/json")
			resp, err := c.Do(req)
			if err != nil {
				return err
			}
			_, _ = io.Copy(io.Discard, resp.Body) // it is the status that counts
			return resp.Body.Close()
		}
	}
	call := func(method string) func(context.Context, []byte) error {
		return func(ctx context.Context, message []byte) error {
			var reply []byte
			return conn.Invoke(ctx, "/weir.v1.Limiter/"+method, message, &reply)
		}
	}
	columns := func(ctx context.Context, message []byte) error { return stream(ctx, conn, message) }
	fill := func(text string) func(n int) []byte {
		return func(n int) []byte { return bytes.Repeat([]byte(text), n/len(text)) }
	}
	json := func(before, text, after string) func(n int) []byte {
		return func(n int) []byte {
			n -= len(before) + len(after)
			return []byte(before + strings.TrimSuffix(strings.Repeat(text+",", n/(len(text)+1)), ",") + after)
		}
	}
	for _, kind := range []struct {
		name string
		send func(context.Context, []byte) error
		of   func(n int) []byte
	}{
		{"limits of a check", call("Check"), fill("\x4a\x00")},
		{"attributes of a check", call("Check"), fill("\x32\x00")},
		{"limits to explain", call("Explain"), fill("\x4a\x00")},
		{"limits of a reset", call("Reset"), fill("\x4a\x00")},
		{"checks of a batch", call("CheckBatch"), fill("\x0a\x00")},
		{"limits in a batch", call("CheckBatch"), fill("\x0a\x10" + strings.Repeat("\x4a\x00", 8))},
		{"columns of attributes", columns, fill("\x42\x00")},
		{"limits in JSON", post("/v1/check"), json(`{"limits":[`, `{}`, `]}`)},
		{"checks in JSON", post("/v1/check/batch"), json(`{"checks":[`, `{}`, `]}`)},
	} {
		for _, size := range []int{1<<20 - 64, 4<<20 - 64} {
			var all sync.WaitGroup
			message := kind.of(size)
			for range 8 {
				all.Go(func() { _ = kind.send(t.Context(), message) }) // refused or not, it is memory that counts
			}
			all.Wait()
		}
		t.Logf("after %s: %d MiB", kind.name, p.peak())
	}
	if got := p.peak(); got > most {
		t.Errorf("the node took %d MiB, at the beginning %d; at most %d are wanted", got, begun, most)
	}
	if status, body := get(t, c, "http://"+overHTTP+"/v1/check?path=/towns&user=ada"); status != http.StatusOK {
		t.Errorf("afterwards: %d %s", status, body)
	}
	p.signal(os.Interrupt)
	p.end(0)
}
