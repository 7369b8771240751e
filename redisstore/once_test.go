package redisstore_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/redisstore"
)

// puppet is a Redis Cluster of one server that claims that every slot has moved, to
// itself, and answers the script that follows as the test says.
type puppet struct {
	net.Listener
	eval func(n int64) string // the answer to the nth script; "" ends the connection
	n    atomic.Int64

	ahead atomic.Int64 // of its clock, in nanoseconds
	busy  sync.WaitGroup
}

func startPuppet(tb testing.TB, eval func(n int64) string) *puppet {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &puppet{Listener: l, eval: eval}
	p.busy.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			p.busy.Go(func() {
				defer conn.Close()
				p.serve(conn)
			})
		}
	})
	tb.Cleanup(func() {
		_ = l.Close()
		p.busy.Wait() // the store, opened later, has closed its connections
	})
	return p
}

func (p *puppet) serve(conn net.Conn) {
	r := bufio.NewReader(conn)
	for {
		args, err := command(r)
		if err != nil {
			return
		}
		answer := "-ERR unknown command\r\n"
		switch name := strings.ToLower(args[0]); {
		case name == "cluster" && strings.EqualFold(args[1], "slots"):
			host, port, _ := net.SplitHostPort(p.Addr().String())
			answer = fmt.Sprintf("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$%d\r\n%s\r\n:%s\r\n", len(host), host, port)
		case name == "evalsha" && strings.HasSuffix(args[3], "!probe"):
			answer = fmt.Sprintf(":%d\r\n", time.Now().Add(time.Duration(p.ahead.Load())).UnixMicro())
		case name == "evalsha":
			answer = fmt.Sprintf("-MOVED 1 %s\r\n", p.Addr())
		case name == "time":
			t := time.Now().Add(time.Duration(p.ahead.Load()))
			answer = fmt.Sprintf("*2\r\n$10\r\n%d\r\n$6\r\n%06d\r\n", t.Unix(), t.Nanosecond()/1000)
		case name == "eval":
			answer = p.eval(p.n.Add(1))
		}
		if answer == "" {
			return
		}
		if _, err := io.WriteString(conn, answer); err != nil {
			return
		}
	}
}

// command reads a command as clients send it.
func command(r *bufio.Reader) (args []string, err error) {
	number := func() (int, error) {
		line, err := r.ReadString('\n')
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(strings.TrimSpace(line[1:]))
	}
	n, err := number()
	for ; err == nil && n > 0; n-- {
		var size int
		if size, err = number(); err != nil {
			break
		}
		b := make([]byte, size+2)
		if _, err = io.ReadFull(r, b); err == nil {
			args = append(args, string(b[:size]))
		}
	}
	return args, err
}

func (p *puppet) decide(t *testing.T) *limiter.Decision {
	t.Helper()
	store := openStore(t, redisstore.Config{Addrs: []string{p.Addr().String()}, Cluster: true})
	var d limiter.Decision
	c := charge(arith.Key{Hash: arith.Hash{Hi: 1}, Cost: 1, Rule: &limiter.Rule{Name: "r", Limits: limitsOf(t, 1, 9)}})
	if err := store.Decide(context.Background(), arith.Instant{}, []*arith.Charge{c}, []*limiter.Decision{&d},
		nil); err != nil {
		t.Fatal(err)
	}
	return &d
}

// A script that may have run is not sent again, also where its slot has moved.
func TestMovedScriptRunsOnce(t *testing.T) {
	t.Parallel()
	p := startPuppet(t, func(int64) string { return "" })
	if d := p.decide(t); d.Source != limiter.SourceFallbackLocal {
		t.Errorf("%s decides", d.Source)
	}
	if n := p.n.Load(); n != 1 {
		t.Errorf("a script whose answer was lost was sent %d times", n)
	}
}

// A script that was refused because half of its slot has moved is sent again.
func TestHalfMovedScriptIsSentAgain(t *testing.T) {
	t.Parallel()
	p := startPuppet(t, func(n int64) string {
		if n < 3 {
			return "-TRYAGAIN Multiple keys request during rehashing of slot\r\n"
		}
		return fmt.Sprintf("*4\r\n:%d\r\n:%d\r\n:0\r\n:0\r\n", time.Now().UnixMicro(), 8*8+1+4)
	})
	if d := p.decide(t); d.Source != limiter.SourceRedis || !d.Allowed || d.Limit(0).Remaining != 8 {
		t.Errorf("%s decides: %+v", d.Source, d)
	}
	if n := p.n.Load(); n != 3 {
		t.Errorf("the script was sent %d times, want 3", n)
	}
}
