package gossip

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

func key(b byte) []byte {
	k := make([]byte, 32)
	for i := range k {
		k[i] = b
	}
	return k
}

// A node that is refused learns why, and so does the node that it asked.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name   string
		keys   [][]byte // of who is there
		secret string
		set    func(*Config)
		want   error
		tells  []string // the error's parts
		others []string // what the one that was asked logs
	}{
		{name: "another cluster", set: func(c *Config) { c.ClusterName = "beta" }, want: ErrOtherCluster,
			tells: []string{`"a"`, `"test"`, `"beta"`}, others: []string{`\"b\"`, `\"beta\"`, "another cluster"}},
		{name: "another ring", set: func(c *Config) { c.RingConfig = 0xabc }, want: ErrOtherRing,
			tells: []string{`"a"`, "0000000000000abc", "0000000000000007"}, others: []string{`\"b\"`, "another ring"}},
		{name: "another secret", secret: "s", set: func(c *Config) {
			c.SecretMark = SecretMark([]byte("z"), "test")
		}, want: ErrOtherSecret,
			tells:  []string{`"a"`, "has another secret than this one", "give all members the same"},
			others: []string{`\"b\"`, "has another secret than this one"}},
		{name: "a secret against none", set: func(c *Config) {
			c.SecretMark = SecretMark([]byte("z"), "test")
		}, want: ErrOtherSecret,
			tells:  []string{`"a"`, "has no secret, and this one has"},
			others: []string{`\"b\"`, "has a secret, and this one has none"}},
		{name: "no secret against one", secret: "s", set: func(*Config) {}, want: ErrOtherSecret,
			tells:  []string{`"a"`, "has a secret, and this one has none"},
			others: []string{`\"b\"`, "has no secret, and this one has"}},
		{name: "another key", keys: [][]byte{key(1)}, set: func(c *Config) { c.Keys = [][]byte{key(2)} }, want: ErrOtherKey,
			tells: []string{"another gossip key"}, others: []string{textKey}},
		{name: "a key against none", set: func(c *Config) { c.Keys = [][]byte{key(2)} }, want: ErrOtherKey,
			tells: []string{"without encryption"}, others: []string{textKey}},
		{name: "no key against one", keys: [][]byte{key(1)}, set: func(*Config) {}, want: ErrOtherKey,
			tells: []string{"has no gossip key"}, others: []string{textKey}},
		{name: "the same name", set: func(c *Config) { c.Name = "a" }, want: ErrNameTaken,
			tells: []string{`"a"`, "alive"}, others: []string{`\"a\"`, "the name is taken"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, cfg := configure(t, "a")
			cfg.Keys, cfg.SecretMark = c.keys, SecretMark([]byte(c.secret), "test")
			if err := a.open(cfg); err != nil {
				t.Fatal(err)
			}
			b, cfg := configure(t, "b", a.addr)
			c.set(&cfg)
			err := b.open(cfg)
			if !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			for _, part := range append(c.tells, a.addr) {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the error does not say %q: %v", part, err)
				}
			}
			for line := range strings.Lines(b.log.String()) {
				if strings.Contains(line, c.want.Error()) && !strings.Contains(line, "level=DEBUG") {
					t.Errorf("what the error says is logged too: %s", line)
				}
			}
			a.says(c.others...)
			a.sees("a")
		})
	}
}

// A third node must not let in the second node of a name either.
func TestSecondOfANameAtAThirdNode(t *testing.T) {
	a := start(t, "a")
	b := start(t, "b", a.addr)
	a.sees("a", "b")
	double, cfg := configure(t, "b", a.addr)
	if err := double.open(cfg); !errors.Is(err, ErrNameTaken) {
		t.Fatalf("got %v, want ErrNameTaken", err)
	}
	a.says("is kept out", "the name is taken")
	if got := instanceOf(a.Members(), "b"); got != b.cfg.Instance {
		t.Errorf("a knows b as instance %v, want the first", got)
	}
	a.refused(ErrNameTaken)
}

// If one address to join by refuses a node and another lets it in, the node joins, and
// the refusal is reported.
func TestOneOfTwoRefuses(t *testing.T) {
	foreign, cfg := configure(t, "x")
	cfg.ClusterName = "other"
	if err := foreign.open(cfg); err != nil {
		t.Fatal(err)
	}
	a := start(t, "a")
	b := start(t, "b", foreign.addr, a.addr)
	b.sees("a", "b")
	b.refused(ErrOtherCluster)
	b.says("cannot join", "another cluster", foreign.addr)
	foreign.sees("x")
}

// A node that is refused later, because it was there first, is told by the log.
func TestRefusedLater(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		set  func(*Config)
		want error
	}{
		"another cluster": {func(c *Config) { c.ClusterName = "other" }, ErrOtherCluster},
		"another secret":  {func(c *Config) { c.SecretMark = 5 }, ErrOtherSecret},
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t, "b") // reserves an address
			b.crash()
			alone := start(t, "c", b.addr)
			second, cfg := configure(t, "b")
			cfg.BindAddr = b.addr
			c.set(&cfg)
			if err := second.open(cfg); err != nil {
				t.Fatal(err)
			}
			alone.refused(c.want)
			alone.says("cannot join", c.want.Error())
			second.says("a node is kept out", c.want.Error())
			if alone.SeedAnswered() || second.SeedAnswered() {
				t.Error("who refuses counts as an answer")
			}
			alone.sees("c")
			second.sees("b")
		})
	}
}

func TestJoinsThatFail(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	mute := listen(t, func(c net.Conn) { io.Copy(io.Discard, c) })
	shuts := listen(t, func(c net.Conn) { // and reads, or what is not read yet would reset the connection
		c.(*net.TCPConn).CloseWrite()
		io.Copy(io.Discard, c)
	})
	chatty := listen(t, func(c net.Conn) { io.WriteString(c, "220 mail.example ESMTP\r\n"); io.Copy(io.Discard, c) })
	resets := listen(t, func(c net.Conn) {
		c.Read(make([]byte, 1))
		c.(*net.TCPConn).SetLinger(0)
	})
	port, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	rpc := grpc.NewServer(grpc.Creds(door{insecure.NewCredentials()}))
	go rpc.Serve(port)
	defer rpc.Stop()
	for _, c := range []struct {
		name, join string
		says       []string
		foreign    bool
		mute       bool
		either     bool // it answers, or waits for the end of a line, by what the bytes happen to be
	}{
		{name: "a name that does not resolve", join: "nowhere.invalid:7946",
			says: []string{"cannot be resolved", "nowhere.invalid"}},
		{name: "a web server", join: web.Listener.Addr().String(), says: []string{"not as the gossip port"}, foreign: true,
			either: true},
		{name: "a mail server", join: chatty, says: []string{"not as the gossip port"}, foreign: true},
		{name: "who shuts the door", join: shuts, says: []string{"not as the gossip port"}, foreign: true, mute: true},
		{name: "who never answers", join: mute, says: []string{"not as the gossip port"}, foreign: true, mute: true},
		{name: "who resets", join: resets, says: []string{"level=WARN", "ended the connection", resets, "--gossip-addr"},
			mute: true},
		{name: "a gRPC port", join: port.Addr().String(),
			says: []string{"level=WARN", "ended the connection", port.Addr().String()}, mute: true},
		{name: "nobody", join: "127.0.0.1:1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, cfg := configure(t, "a", c.join)
			cfg.Resolve = func(_ context.Context, host string) ([]netip.Addr, error) {
				return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
			}
			if err := n.open(cfg); err != nil {
				t.Fatalf("a node that may be the first does not start: %v", err)
			}
			if len(c.says) > 0 {
				n.says(c.says...)
			}
			if c.foreign {
				n.says("cannot join", ErrForeign.Error())
			}
			if n.SeedAnswered() {
				t.Error("it says that a seed answered")
			}
			if err := n.Mute(); !c.either && (err != nil) != c.mute || err != nil && !strings.Contains(err.Error(), c.join) {
				t.Errorf("of who took the connection and did not answer it says %v, want something: %t", err, c.mute)
			}
			n.sees("a")
		})
	}
}

// Who took connections and did not answer counts only while it does so.
func TestWhoIsMuteIsGone(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			c.Close()
		}
	}()
	a := start(t, "a", l.Addr().String())
	if a.Mute() == nil {
		t.Error("someone took the connection, and it does not say so")
	}
	l.Close()
	a.until("nobody is there", func() bool { return a.Mute() == nil })
}

// door is the credentials of a gRPC server that only accepts gRPC, like the peer port.
type door struct {
	credentials.TransportCredentials
}

func (door) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	io.ReadFull(c, make([]byte, 24)) // of a preface
	c.Close()
	return nil, nil, errors.New("it does not speak gRPC")
}

// listen serves connections until the test ends.
func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				c.SetDeadline(time.Now().Add(patience))
				serve(c)
			}()
		}
	}()
	return l.Addr().String()
}

// Foreign input to the port is logged once for each source, and changes nothing.
func TestGarbage(t *testing.T) {
	for _, keys := range [][][]byte{nil, {key(3)}} {
		a, cfg := configure(t, "a")
		cfg.Keys = keys
		if err := a.open(cfg); err != nil {
			t.Fatal(err)
		}
		b, cfg := configure(t, "b", a.addr)
		cfg.Keys = keys
		if err := b.open(cfg); err != nil {
			t.Fatal(err)
		}
		a.sees("a", "b")
		udp, err := net.Dial("udp", a.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer udp.Close()
		for i := range 300 {
			junk := make([]byte, 1+i*4)
			rand.Read(junk)
			junk[0] = byte(i) // each type of message there is
			udp.Write(junk)
			if i%10 == 0 {
				tcp, err := net.Dial("tcp", a.addr)
				if err != nil {
					t.Fatal(err)
				}
				tcp.Write(junk)
				tcp.Close()
			}
		}
		want := textForeign
		if keys != nil {
			want = textKey
		}
		a.says(want, "from=127.0.0.1:")
		// The node still works, and knows the same members.
		c, cfg := configure(t, "c", a.addr)
		cfg.Keys = keys
		if err := c.open(cfg); err != nil {
			t.Fatal(err)
		}
		a.sees("a", "b", "c")
		a.mu.Lock()
		lines := strings.Count(a.log.String(), textForeign) + strings.Count(a.log.String(), textKey)
		a.mu.Unlock()
		if lines > 3 { // two kinds, and one that memberlist gives no source of
			t.Errorf("330 pieces of junk from one source made %d lines:\n%s", lines, a.log.String())
		}
	}
}

func TestKeysAreRotated(t *testing.T) {
	old, next := key(1), key(2)
	var nodes []*node
	for _, name := range []string{"a", "b", "c"} {
		n, cfg := configure(t, name)
		cfg.Keys = [][]byte{old}
		if len(nodes) > 0 {
			cfg.Join = []string{nodes[0].addr}
		}
		if err := n.open(cfg); err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, n)
	}
	a, b := nodes[0], nodes[1]
	a.sees("a", "b", "c")
	b.sees("a", "b", "c")
	hash := uint64(1)
	for _, keys := range [][][]byte{{old, next}, {next, old}, {next}} {
		for _, n := range nodes {
			if err := n.SetKeys(keys); err != nil {
				t.Fatal(err)
			}
			// The members can talk after each step.
			hash++
			meta := n.cfg.Meta("")
			meta.RulesHash = hash
			if err := n.Update(meta); err != nil {
				t.Fatal(err)
			}
			for _, other := range nodes {
				other.until("it hears of the update", func() bool {
					for _, m := range other.members {
						if m.Name == n.cfg.Name {
							return m.RulesHash == hash
						}
					}
					return false
				})
			}
		}
	}
	late, cfg := configure(t, "d", a.addr)
	cfg.Keys = [][]byte{old}
	if err := late.open(cfg); !errors.Is(err, ErrOtherKey) {
		t.Errorf("a node with the old key: %v, want ErrOtherKey", err)
	}
	_, cfg = configure(t, "e", a.addr)
	cfg.Keys = [][]byte{next}
	if err := late.open(cfg); err != nil {
		t.Errorf("a node with the new key: %v", err)
	}
	if a.saw("dead") {
		t.Error("somebody was taken for dead")
	}
}

func TestKeysThatCannotBeSet(t *testing.T) {
	open := start(t, "a")
	if err := open.SetKeys([][]byte{key(1)}); err == nil {
		t.Error("a node without encryption was given a key")
	}
	n, cfg := configure(t, "b")
	cfg.Keys = [][]byte{key(1)}
	if err := n.open(cfg); err != nil {
		t.Fatal(err)
	}
	for _, keys := range [][][]byte{nil, {key(1), make([]byte, 5)}, {key(1), key(1)}} {
		if err := n.SetKeys(keys); err == nil {
			t.Errorf("%d keys were set", len(keys))
		}
	}
	if got := n.ring.GetKeys(); len(got) != 1 {
		t.Errorf("what was refused took effect: %d keys", len(got))
	}
}
