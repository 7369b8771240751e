package resp

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// What stands between MULTI and EXEC is carried out with EXEC, or not at all, with the replies and the errors of Redis.
func TestTransactions(t *testing.T) {
	const throttle = "CL.THROTTLE k 1 1 60"
	for name, lines := range map[string][][2]string{
		"checks": {
			{"MULTI", "OK"}, {throttle, "QUEUED"}, {"PING x", "QUEUED"}, {throttle, "QUEUED"}, {throttle, "QUEUED"},
			{"EXEC", "[[0 2 1 -1 60] x [0 2 0 -1 120] [1 2 0 60 120]]"},
			{throttle, "[1 2 0 60 120]"}, {"EXEC", "-ERR EXEC without MULTI"},
		},
		"discarded": {
			{"MULTI", "OK"}, {throttle, "QUEUED"}, {"DISCARD", "OK"}, {throttle, "[0 2 1 -1 60]"},
			{"DISCARD", "-ERR DISCARD without MULTI"},
		},
		"empty": {{"MULTI", "OK"}, {"EXEC", "[]"}},
		"nested": {{"MULTI", "OK"}, {"MULTI", "-ERR MULTI calls can not be nested"}, {throttle, "QUEUED"},
			{"EXEC", "[[0 2 1 -1 60]]"}},
		"unknown": {
			{"MULTI", "OK"}, {throttle, "QUEUED"}, {"GET k", `-ERR unknown command "GET"`}, {throttle, "QUEUED"},
			{"EXEC", "-EXECABORT Transaction discarded because of previous errors."}, {throttle, "[0 2 1 -1 60]"},
		},
		"watched": {
			{"MULTI", "OK"}, {"WATCH k", `-ERR unknown command "WATCH"`}, {"EXEC", "-EXECABORT"},
		},
		"arguments": {
			{"MULTI", "OK"}, {throttle, "QUEUED"}, {"ECHO", "-ERR wrong number of arguments for 'echo' command"},
			{"EXEC", "-EXECABORT"}, {throttle, "[0 2 1 -1 60]"},
		},
		"a wrong command fails alone": {
			{"MULTI", "OK"}, {"CL.THROTTLE k 1 1 0", "QUEUED"}, {throttle, "QUEUED"}, {"EVALSHA x 1 k", "QUEUED"},
			{"EXEC", "[-ERR period is 0"}, {throttle, "[0 2 0 -1 120]"},
		},
		"login": {{"MULTI", "OK"}, {"HELLO 3", "-ERR Command not allowed inside a transaction"}, {"EXEC", "-EXECABORT"}},
		"changes": {
			{throttle, "[0 2 1 -1 60]"}, {"MULTI", "OK"}, {"DEL k", "QUEUED"}, {throttle, "QUEUED"}, {"FLUSHDB", "QUEUED"},
			{"EXEC", "[1 [0 2 1 -1 60] OK]"},
		},
		"quit": {{"MULTI", "OK"}, {throttle, "QUEUED"}, {"QUIT", "OK"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, nil)
			c := f.dial(t)
			for i, line := range lines {
				if got := c.ask(line[0]); !strings.HasPrefix(got, line[1]) || strings.HasSuffix(line[1], "]") && got != line[1] {
					t.Fatalf("line %d, %s: %s, want %s", i, line[0], got, line[1])
				}
			}
			c.Close()
			// All in one piece.
			f = start(t, nil)
			c = f.dial(t)
			all := ""
			for _, line := range lines {
				all += encode(line[0])
			}
			c.send(all)
			for i, line := range lines {
				if got := c.read(); !strings.HasPrefix(got, line[1]) {
					t.Fatalf("in one piece, line %d, %s: %s, want %s", i, line[0], got, line[1])
				}
			}
		})
	}
}

// A transaction has a bound, beyond which nothing of it is carried out, and its memory comes back however it ends.
func TestTransactionsAreBounded(t *testing.T) {
	f := start(t, nil)
	long := strings.Repeat("x", 10<<10)
	for name, x := range map[string]struct {
		command string
		n       int
	}{"many": {"PING", maxQueue + 1}, "long": {"ECHO " + long, 30}} {
		for _, end := range []string{"EXEC", "DISCARD", ""} {
			c := f.dial(t)
			c.ask("MULTI")
			c.ask("CL.THROTTLE " + name + " 1 1 60")
			refused := 0
			for range x.n {
				if got := c.ask(x.command); got != "QUEUED" {
					refused++
					if !strings.HasPrefix(got, "-ERR the transaction has more than 1000 commands or 256 KiB") {
						t.Fatal(got)
					}
				}
			}
			if refused == 0 {
				t.Errorf("%s: no bound", name)
			}
			if end != "" {
				c.ask(end)
			}
			c.Close()
		}
		if got := f.dial(t).ask("CL.THROTTLE " + name + " 1 1 60 0"); got != "[0 2 2 -1 0]" {
			t.Errorf("%s was charged: %s", name, got)
		}
	}
	// The longest replies of one that fits are sent as they grow.
	c := f.dial(t)
	c.ask("MULTI")
	for range 200 {
		c.ask("COMMAND")
	}
	c.send(encode("EXEC") + encode("PING"))
	if got := c.read(); strings.Count(got, "cl.throttle") != 200 {
		t.Errorf("%d replies", strings.Count(got, "cl.throttle"))
	}
	if got := c.read(); got != "PONG" {
		t.Error(got)
	}
	f.server.large.Give(netip.Prefix{}, -maxLarge)
	c.ask("MULTI")
	if got := c.ask("PING"); !strings.HasPrefix(got, "-ERR the server has no memory") {
		t.Error(got)
	}
	f.server.large.Give(netip.Prefix{}, maxLarge)
	c.Close()
	if err := f.server.Shutdown(t.Context()); err != nil { // it waits for all connections
		t.Error(err)
	}
	if n := f.server.large.InUse(); n != 0 {
		t.Errorf("%d bytes are left over", n)
	}
}

// One address does not take the memory for transactions from others: while half is used, it has its share.
func TestTransactionsHaveShares(t *testing.T) {
	f := start(t, nil)
	thief := netip.MustParsePrefix("127.0.0.1/32")
	f.server.large.Give(thief, -maxLarge/2)
	defer f.server.large.Give(thief, maxLarge/2)
	long := encode("PING " + strings.Repeat("x", 2*smallBuffer))
	for from, want := range map[string][]string{
		"127.0.0.1": {"-ERR the server has no memory for more", "-ERR the server has no memory for so long"},
		"127.0.0.2": {"QUEUED", "QUEUED"},
	} {
		c := f.dialFrom(t, from)
		c.ask("MULTI")
		if got := c.ask("PING"); !strings.HasPrefix(got, want[0]) {
			t.Errorf("%s: %s", from, got)
		}
		c.send(long)
		if got := c.read(); !strings.HasPrefix(got, want[1]) {
			t.Errorf("%s, a long command: %s", from, got)
		}
	}
}

// A transaction that is not ended ends its connection, so that it keeps its memory from others for no longer.
func TestTransactionsEnd(t *testing.T) {
	f := start(t, func(o *Options) { o.within = 200 * time.Millisecond })
	c := f.dial(t)
	c.ask("MULTI")
	c.ask("PING")
	if got := c.read(); !strings.HasPrefix(got, "-ERR the transaction was not ended") {
		t.Error(got)
	}
	if got := c.read(); got != "EOF" {
		t.Error(got)
	}
	if err := f.server.Shutdown(t.Context()); err != nil { // it waits for all connections
		t.Error(err)
	}
	if n := f.server.large.InUse(); n != 0 {
		t.Errorf("%d bytes are left over", n)
	}
}

// A client of a Redis Cluster learns that all slots are at the address that it has reached, and sends each key there.
func TestClusterSlots(t *testing.T) {
	c := start(t, nil).dial(t)
	host, port, err := net.SplitHostPort(c.RemoteAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.ask("cluster slots"), "[[0 16383 ["+host+" "+port+"]]]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	id := c.ask("CLUSTER MYID")
	nodes := id + " " + host + ":" + port + "@0 myself,master - 0 0 1 connected 0-16383\n"
	if got := c.ask("CLUSTER NODES"); len(id) != 40 || got != nodes {
		t.Errorf("%q, want %q", got, nodes)
	}
	if got := c.ask("CLUSTER INFO"); !strings.Contains(got, "\r\ncluster_state:ok\r\n") {
		t.Error(got)
	}
	for _, other := range []string{"CLUSTER", "CLUSTER KEYSLOT k", "CLUSTER SLOTS x"} {
		if got := c.ask(other); !strings.HasPrefix(got, "-ERR") {
			t.Errorf("%s: %s", other, got)
		}
	}
}
