package transport_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/weirlimit/weir"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
	"github.com/weirlimit/weir/transport"
)

// Some tests need a server in a process of its own: to have as many connections
// as one process may open at either end, or to measure what the server alone
// takes. The test binary starts itself again, with childVariable saying which
// server to be. A child tells its addresses and then answers each line on its
// standard input; when that ends it stops.
const childVariable = "WEIR_TRANSPORT_TEST_CHILD"

// childRules are what a child of the kind "weir" decides by.
const childRules = `
version: 1
rules:
  - {name: towns, match: {path: "^/towns"}, key: [rule, user], limits: [100/minute]}
`

// runChild is the child's main function. It returns in a process that is none.
func runChild() {
	kind := os.Getenv(childVariable)
	if kind == "" {
		return
	}
	if err := serveChild(kind); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serveChild(kind string) (err error) {
	grpcListener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	httpListener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	node, err := weir.Open(context.Background(), weir.Config{Rules: []byte(childRules)})
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	var stop func() error
	switch kind {
	case "weir":
		s, err := transport.NewServer(transport.Options{Decider: node, MaxConnectionsPerAddress: -1})
		if err != nil {
			return err
		}
		go func() { served <- s.Serve(grpcListener, httpListener) }()
		stop = func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			return s.Shutdown(ctx)
		}
	case "empty":
		s := grpc.NewServer()
		weirv1.RegisterLimiterServer(s, emptyServer{})
		go func() { served <- s.Serve(grpcListener) }()
		stop = func() error { s.Stop(); return httpListener.Close() }
	}
	fmt.Println(grpcListener.Addr(), httpListener.Addr())
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Println(cpuTime().Microseconds(), runtime.NumGoroutine(), node.Stats().Keys)
	}
	return errors.Join(stop(), <-served, node.Close(), goleak.Find())
}

// emptyServer answers without doing anything: what a call of grpc-go costs.
type emptyServer struct {
	weirv1.UnimplementedLimiterServer
}

func (emptyServer) Check(context.Context, *weirv1.CheckRequest) (*weirv1.CheckResponse, error) {
	return &weirv1.CheckResponse{Allowed: true}, nil
}

func (emptyServer) CheckBatch(context.Context, *weirv1.CheckBatchRequest) (*weirv1.CheckBatchResponse, error) {
	return &weirv1.CheckBatchResponse{}, nil
}

func (emptyServer) CheckStream(stream grpc.BidiStreamingServer[weirv1.CheckColumns, weirv1.DecisionColumns]) error {
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = stream.Send(&weirv1.DecisionColumns{Id: m.Id})
		}
		if err != nil {
			return err
		}
	}
}

// child is a server in a process of its own.
type child struct {
	tb   testing.TB
	in   io.WriteCloser
	out  *bufio.Reader
	grpc string // addresses
	http string
}

// startChild starts a server, which ends with the test: it must then have no
// goroutine left.
func startChild(tb testing.TB, kind string) *child {
	tb.Helper()
	cmd := exec.CommandContext(context.Background(), os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+kind)
	cmd.Stderr = os.Stderr
	c := &child{tb: tb}
	var err error
	if c.in, err = cmd.StdinPipe(); err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	c.out = bufio.NewReader(out)
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		c.in.Close()
		said, _ := io.ReadAll(c.out)
		if err := cmd.Wait(); err != nil {
			tb.Errorf("the server's process: %v: %s", err, said)
		}
	})
	addresses := strings.Fields(c.line())
	if len(addresses) != 2 {
		tb.Fatalf("the server's process says %q", addresses)
	}
	c.grpc, c.http = addresses[0], addresses[1]
	return c
}

func (c *child) line() string {
	line, err := c.out.ReadString('\n')
	if err != nil {
		c.tb.Fatalf("the server's process says %q: %v", line, err)
	}
	return line
}

// usage is what a child has taken so far.
type usage struct {
	cpu              time.Duration
	goroutines, keys int
}

func (c *child) usage() usage {
	if _, err := io.WriteString(c.in, "usage\n"); err != nil {
		c.tb.Fatal(err)
	}
	var n [3]int
	for i, word := range strings.Fields(c.line()) {
		var err error
		if n[i], err = strconv.Atoi(word); err != nil {
			c.tb.Fatal(err)
		}
	}
	return usage{time.Duration(n[0]) * time.Microsecond, n[1], n[2]}
}
