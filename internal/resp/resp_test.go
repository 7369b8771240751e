package resp

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/limitertest"
)

// clock is moved by tests.
type clock struct{ at atomic.Int64 }

func (c *clock) now() time.Time { return time.UnixMicro(c.at.Load()) }

func (c *clock) move(d time.Duration) { c.at.Add(d.Microseconds()) }

// counting counts the batches of a node.
type counting struct {
	*weir.Node
	batches atomic.Int64
}

func (c *counting) PeekBatchInto(ctx context.Context, rs []limiter.Request, ds []limiter.Decision, peeks []bool) error {
	c.batches.Add(1)
	return c.Node.PeekBatchInto(ctx, rs, ds, peeks)
}

// fixture is a server with a node and a clock of its own.
type fixture struct {
	clock  clock
	node   *counting
	server *Server
	addr   string
	tls    *tls.Config // nil: none
}

const testRules = `
rules:
  - {name: towns, match: {path: ^/towns}, key: [rule, user], limits: [{limit: 2, window: 1h, algorithm: fixed_window}]}
  - {name: money, continue: true, match: {path: ^/budget}, key: [user], limits: [{limit: 1000, window: 1h}],
    cost: {from: "attr:udollars"}}
  - {name: budget, match: {path: ^/budget}, key: [user], limits: [{limit: 5, window: 1h}], cost: {from: "attr:tokens"}}
  - {name: plans, match: {path: ^/plans, attributes: {plan: gold}}, key: [rule, "attr:plan", method, group, ip], limits: [{limit: 5, window: 1h}]}
`

func start(t testing.TB, change func(*Options)) *fixture {
	t.Helper()
	return new(fixture).start(t, change)
}

func (f *fixture) start(t testing.TB, change func(*Options)) *fixture {
	t.Helper()
	f.clock.at.Store(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixMicro())
	node, err := weir.Open(t.Context(), weir.Config{Rules: []byte(testRules), Now: f.clock.now})
	if err != nil {
		t.Fatal(err)
	}
	f.node = &counting{Node: node}
	o := Options{Config: frontend.Config{Decider: f.node, AllowRequestLimits: true, AllowReset: true}, Version: "v1",
		Now: f.clock.now}
	if change != nil {
		change(&o)
	}
	if f.server, err = NewServer(o); err != nil {
		t.Fatal(err)
	}
	var listen net.ListenConfig
	l, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.addr = l.Addr().String()
	if f.tls != nil {
		l = tls.NewListener(l, f.tls)
	}
	served := make(chan error, 1)
	go func() { served <- f.server.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := errors.Join(f.server.Shutdown(ctx), <-served, node.Close()); err != nil {
			t.Error(err)
		}
	})
	return f
}

// peer is a client that shows replies as text.
type peer struct {
	t *testing.T
	net.Conn
	in *bufio.Reader
}

func (f *fixture) dial(t *testing.T) *peer { return f.dialFrom(t, "127.0.0.1") }

func (f *fixture) dialFrom(t *testing.T, host string) *peer {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}
	c, err := d.DialContext(t.Context(), "tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return &peer{t, c, bufio.NewReader(c)}
}

// encode returns a command as clients send it. Its words are split at blanks; ” is an
// empty one.
func encode(text string) string {
	words := strings.Fields(text)
	out := fmt.Sprintf("*%d\r\n", len(words))
	for _, w := range words {
		w = strings.TrimPrefix(w, "''")
		out += fmt.Sprintf("$%d\r\n%s\r\n", len(w), w)
	}
	return out
}

func (p *peer) send(text string) {
	p.t.Helper()
	if _, err := io.WriteString(p, text); err != nil {
		p.t.Fatal(err)
	}
}

// ask sends a command and returns its reply.
func (p *peer) ask(text string) string {
	p.t.Helper()
	p.send(encode(text))
	return p.read()
}

// read returns one reply as text: elements of arrays in brackets, texts as they are, errors
// with their mark.
func (p *peer) read() string {
	p.t.Helper()
	line, err := p.in.ReadString('\n')
	if err != nil {
		return err.Error()
	}
	line = strings.TrimSuffix(line, "\r\n")
	kind, rest := line[0], line[1:]
	switch kind {
	case '+', ':':
		return rest
	case '-':
		return line
	case '#', '_':
		return line
	case '$':
		n, _ := strconv.Atoi(rest)
		if n < 0 {
			return "nil"
		}
		data := make([]byte, n+2)
		if _, err := io.ReadFull(p.in, data); err != nil {
			p.t.Fatal(err)
		}
		return string(data[:n])
	case '*', '%':
		n, _ := strconv.Atoi(rest)
		open, end := "[", "]"
		if kind == '%' {
			n, open, end = 2*n, "{", "}"
		}
		parts := make([]string, n)
		for i := range parts {
			parts[i] = p.read()
		}
		return open + strings.Join(parts, " ") + end
	}
	p.t.Fatalf("a reply that begins with %q", line)
	return ""
}

// CL.THROTTLE answers as redis-cell documents, in the cases of its own tests.
func TestThrottle(t *testing.T) {
	f := start(t, nil)
	c := f.dial(t)
	begin := f.clock.at.Load()
	for i, want := range []struct {
		at       time.Duration
		quantity string
		reply    string
	}{
		{0, " 6", "[1 5 5 -1 0]"}, // more than the burst: never
		{0, "", "[0 5 4 -1 1]"},
		{0, " 1", "[0 5 3 -1 2]"},
		{0, " 1", "[0 5 2 -1 3]"},
		{0, " 1", "[0 5 1 -1 4]"},
		{0, " 1", "[0 5 0 -1 5]"},
		{0, " 1", "[1 5 0 1 5]"},
		{3000 * time.Millisecond, " 1", "[0 5 2 -1 3]"},
		{3100 * time.Millisecond, " 1", "[0 5 1 -1 4]"}, // 3.9 s, rounded up
		{4000 * time.Millisecond, " 1", "[0 5 1 -1 4]"},
		{8000 * time.Millisecond, " 1", "[0 5 4 -1 1]"},
		{9500 * time.Millisecond, " 1", "[0 5 4 -1 1]"},
		{9500 * time.Millisecond, " 0", "[0 5 4 -1 1]"}, // a look
		{9500 * time.Millisecond, " 2", "[0 5 2 -1 3]"},
		{9500 * time.Millisecond, " 5", "[1 5 2 3 3]"},
	} {
		f.clock.at.Store(begin + want.at.Microseconds())
		if got := c.ask("cl.throttle foo 4 1 1" + want.quantity); got != want.reply {
			t.Errorf("case %d: %s, want %s", i, got, want.reply)
		}
	}
	if got := c.ask("CL.THROTTLE user123 15 30 60 1"); got != "[0 16 15 -1 2]" {
		t.Errorf("the example of its README: %s", got)
	}
	for _, look := range []struct{ burst, reply string }{ // 10 units are used
		{"9", "[0 10 0 -1 20]"}, {"8", "[1 9 0 2 20]"}, {"3", "[1 4 0 12 20]"}, {"0", "[1 1 0 18 20]"},
		{"10", "[0 11 1 -1 20]"},
	} {
		c.ask("DEL smaller")
		c.ask("CL.THROTTLE smaller 15 30 60 10")
		if got := c.ask("CL.THROTTLE smaller " + look.burst + " 30 60 0"); got != look.reply {
			t.Errorf("a look with a burst of %s: %s, want %s", look.burst, got, look.reply)
		}
	}
	long := strings.Repeat("k", 4000)
	if got := c.ask("CL.THROTTLE "+long+"a 0 1 60") + c.ask("CL.THROTTLE "+long+"b 0 1 60") + c.ask("CL.THROTTLE "+long+
		"a 0 1 60"); got != "[0 1 0 -1 60][0 1 0 -1 60][1 1 0 60 60]" {
		t.Errorf("long keys: %s", got)
	}
}

// FLUSHDB begins new counters for keys with limits of their own, and leaves those of rules.
// Another member sees it a little later.
func TestFlush(t *testing.T) {
	f := start(t, nil)
	c := f.dial(t)
	throttle := func() string { return c.ask("CL.THROTTLE k 0 1 60") }
	rule := func() string { return c.ask("WEIR.CHECK /towns USER ada")[:11] }
	if got := throttle() + throttle() + rule() + rule() + rule(); got != "[0 1 0 -1 60][1 1 0 60 60][allowed 1 [allowed "+
		"1 [allowed 0 " {
		t.Error(got)
	}
	if got := c.ask("FLUSHDB") + throttle() + throttle() + rule(); got != "OK[0 1 0 -1 60][1 1 0 60 60][allowed 0 " {
		t.Error(got)
	}
	if got := c.ask("flushdb async") + throttle() + c.ask("FLUSHDB now"); got != "OK[0 1 0 -1 60]-ERR syntax error: "+
		"give FLUSHDB [ASYNC|SYNC]" {
		t.Error(got)
	}
	other, err := newFlushes(frontend.New(frontend.Config{Decider: f.node}, protocol()), f.clock.now)
	if err != nil {
		t.Fatal(err)
	}
	before, err := other.of(t.Context(), "")
	if got := c.ask("FLUSHDB"); got != "OK" || err != nil {
		t.Error(got, err)
	}
	f.clock.move(flushSeen - time.Millisecond)
	soon, err := other.of(t.Context(), "")
	if soon != before || err != nil {
		t.Errorf("%q, then %q, %v: it was asked again too soon", before, soon, err)
	}
	f.clock.move(time.Millisecond)
	if after, err := other.of(t.Context(), ""); after == before || err != nil {
		t.Errorf("%q, then %q, %v", before, after, err)
	}
}

// The commands of Weir's own take all that a request has, and answer by names.
func TestOwnCommands(t *testing.T) {
	f := start(t, nil)
	c := f.dial(t)
	for i, want := range []struct{ ask, reply string }{
		{"WEIR.PEEK /towns USER ada",
			"[allowed 1 rule towns limit 2 remaining 2 retry_after_ms -1 reset_after_ms 0 source owner repeated 0]"},
		{"WEIR.CHECK /towns USER ada",
			"[allowed 1 rule towns limit 2 remaining 1 retry_after_ms -1 reset_after_ms 3600000 source owner repeated 0]"},
		{"weir.check /towns user ada cost 2",
			"[allowed 0 rule towns limit 2 remaining 1 retry_after_ms 3600000 reset_after_ms 3600000 source owner repeated 0]"},
		{"WEIR.CHECK /towns USER ada COST 3",
			"[allowed 0 rule towns limit 2 remaining 1 retry_after_ms -1 reset_after_ms 3600000 source owner repeated 0]"},
		{"WEIR.CHECK /towns USER ada COST 0",
			"[allowed 1 rule towns limit 2 remaining 1 retry_after_ms -1 reset_after_ms 3600000 source owner repeated 0]"},
		{"WEIR.CHECK /towns USER bob ID order-7",
			"[allowed 1 rule towns limit 2 remaining 1 retry_after_ms -1 reset_after_ms 3600000 source owner repeated 0]"},
		{"WEIR.CHECK /towns USER bob ID order-7",
			"[allowed 1 rule towns limit 2 remaining 1 retry_after_ms -1 reset_after_ms 3600000 source owner repeated 1]"},
		{"WEIR.CHECK /towns USER bob ID order-8",
			"[allowed 1 rule towns limit 2 remaining 0 retry_after_ms -1 reset_after_ms 3600000 source owner repeated 0]"},
		{"WEIR.CHECK /towns ID " + strings.Repeat("x", 65), "-ERR invalid: the id has 65 bytes; at most 64 are allowed"},
		{"WEIR.RESET /towns USER ada", "1"},
		{"WEIR.RESET /towns USER ada", "0"},
		{"WEIR.CHECK /plans ATTR plan gold METHOD GET GROUP g IP 192.0.2.1",
			"[allowed 1 rule plans limit 5 remaining 4 retry_after_ms -1 reset_after_ms 7200000 source owner repeated 0]"},
		{"WEIR.CHECK /x RULE towns USER eve",
			"[allowed 1 rule towns limit 2 remaining 1 retry_after_ms -1 reset_after_ms 3600000 source owner repeated 0]"},
		{"WEIR.CHECK /none",
			"[allowed 1 rule  limit -1 remaining -1 retry_after_ms -1 reset_after_ms -1 source no_rule repeated 0]"},
		{"WEIR.CHECK /x RULE nobody",
			"-ERR invalid: there is no rule \"nobody\": name a rule of the rules file, or leave the name out to match by path"},
		{"WEIR.CHECK", "-ERR wrong number of arguments for 'weir.check' command"},
		{"WEIR.CHECK /towns USER",
			"-ERR nothing follows \"USER\": give <path> [USER u] [IP a] [METHOD m] [GROUP g] [RULE r] [ATTR name value ...] " +
				"[COST n] [ID id] [HOLD ms]"},
		{"WEIR.CHECK /towns ATTR a",
			"-ERR nothing follows \"a\": give <path> [USER u] [IP a] [METHOD m] [GROUP g] [RULE r] [ATTR name value ...] " +
				"[COST n] [ID id] [HOLD ms]"},
		{"WEIR.CHECK /towns COLOUR red", "-ERR \"COLOUR\" is not known here: give " + usage},
		{"WEIR.CHECK /towns COST much", "-ERR COST is \"much\": give a whole number"},
		{"WEIR.CHECK /towns USER ada COST -1",
			"-ERR invalid: cost -1 is out of range: give 0 (a peek) to 9007199254740991 units"},
		{"HELLO 3", "{server weir version 7.0.0 proto 3 id 1 mode standalone role master modules []}"},
		{"WEIR.CHECK /none",
			"{allowed #t rule  limit -1 remaining -1 retry_after_ms -1 reset_after_ms -1 source no_rule repeated #f}"},
		{"CLIENT GETNAME", "_"},
		{"CLIENT SETNAME pool-1", "OK"},
		{"CLIENT GETNAME", "pool-1"},
		{"CLIENT SETNAME " + strings.Repeat("n", 257), "-ERR the name has 257 bytes: give at most 256"},
		{"HELLO 3 SETNAME ü", "-ERR the name is \"ü\": give it without spaces, and in ASCII"},
		{"CLIENT GETNAME", "pool-1"},
		{"CLIENT SETNAME ''", "OK"},
		{"CLIENT GETNAME", "_"},
		{"HELLO 4", "-NOPROTO unsupported protocol version: give 2 or 3"},
		{"HELLO 2 SETNAME me", "[server weir version 7.0.0 proto 2 id 1 mode standalone role master modules []]"},
		{"HELLO 2 SETNAME you COLOUR", "-ERR syntax error in HELLO option \"COLOUR\""},
		{"CLIENT GETNAME", "me"},
		{"HELLO 2 COLOUR", "-ERR syntax error in HELLO option \"COLOUR\""},
		{"PING", "PONG"},
		{"PING hello", "hello"},
		{"ECHO ''", ""},
		{"SELECT 0", "OK"},
		{"SELECT 1", "-ERR there is only database 0"},
		{"CLIENT SETINFO LIB-NAME x", "OK"},
		{"CLIENT ID", "1"},
		{"COMMAND COUNT", strconv.Itoa(len(f.server.commands))},
		{"COMMAND INFO cl.throttle nothing", "[[cl.throttle -1 [fast] 1 1 1] nil]"},
		{"COMMAND DOCS", "[]"},
		{"AUTH x", "-ERR AUTH called without any password configured: the operator must start the node with --permissions"},
		{"GET k", "-ERR unknown command \"GET\": this server limits rates; COMMAND lists what it knows"},
		{"CL.THROTTLE k 1 1", "-ERR Usage: CL.THROTTLE <key> <max_burst> <count per period> <period> [<quantity>]"},
		{"CL.THROTTLE k x 1 1", "-ERR max_burst is \"x\": give a whole number"},
		{"CL.THROTTLE k -1 1 1", "-ERR max_burst is -1: give 0 to 9007199254740990"},
		{"CL.THROTTLE k 1 0 1", "-ERR count per period is 0: give 1 to 9007199254740990"},
		{"CL.THROTTLE wide 9007199254740990 9007199254740990 1 9007199254740990", "[0 9007199254740991 1 -1 1]"},
		{"CL.THROTTLE k 1 1 -1", "-ERR period is -1: give 1 to 34560000"},
		{"CL.THROTTLE k 1 -1 1", "-ERR count per period is -1: give 1 to 9007199254740990"},
		{"CL.THROTTLE k 1 1 1 9007199254740991", "-ERR quantity is 9007199254740991: give 0 to 9007199254740990"},
		{"CL.THROTTLE k 1 1 9223372036854775808",
			"-ERR period is 9223372036854775808: give a number from -9223372036854775808 to 9223372036854775807"},
		{"CL.THROTTLE k 1 1 1 1.5", "-ERR quantity is \"1.5\": give a whole number"},
		{"CL.THROTTLE k 1 1 1 ''", "-ERR quantity is \"\": give a whole number"},
		{"CL.THROTTLE k 1 1 34560001", "-ERR period is 34560001: give 1 to 34560000"},
		{"CL.THROTTLE k 1 1 1 -1", "-ERR quantity is -1: give 0 to 9007199254740990"},
		{"QUIT", "OK"},
	} {
		if got := c.ask(want.ask); got != want.reply {
			t.Errorf("case %d, %s: %s, want %s", i, want.ask, got, want.reply)
		}
	}
	if got := c.read(); got != "EOF" {
		t.Errorf("after QUIT: %s", got)
	}
	info := f.dial(t).ask("INFO server")
	for _, want := range []string{"redis_version:7.0.0\r\n", "weir_version:v1\r\n", "connected_clients:1\r\n"} {
		if !strings.Contains(info, want) {
			t.Errorf("no %q in %q", want, info)
		}
	}
}

// A pipeline is decided as one batch, and replies come in the order of its commands.
func TestPipeline(t *testing.T) {
	f := start(t, nil)
	c := f.dial(t)
	c.ask("CL.THROTTLE first 0 1 60") // and the number of flushes is known
	before := f.node.batches.Load()
	var sent strings.Builder
	for range 20 {
		sent.WriteString(encode("CL.THROTTLE k 9 1 60"))
	}
	c.send(sent.String())
	var got []string
	for range 20 {
		got = append(got, c.read())
	}
	for i := range got {
		want := fmt.Sprintf("[0 10 %d -1 %d]", 9-i, 60*(i+1))
		if i >= 10 {
			want = "[1 10 0 60 600]"
		}
		if got[i] != want {
			t.Errorf("reply %d: %s, want %s", i, got[i], want)
		}
	}
	if n := f.node.batches.Load() - before; n != 1 {
		t.Errorf("20 commands made %d batches", n)
	}
	c.send(encode("CL.THROTTLE k2 0 1 60") + encode(
		"WEIR.CHECK /towns COST x") + encode("PING") + encode("DEL k2") + encode("CL.THROTTLE k2 0 1 60") +
		encode("CL.THROTTLE k2 0 1 60") + encode("NOTHING") + encode("EVALSHA x 1 k") + encode("CL.THROTTLE k2 0 1 60 0"))
	for i, want := range []string{
		"[0 1 0 -1 60]", "-ERR COST is \"x\": give a whole number", "PONG", "1", "[0 1 0 -1 60]", "[1 1 0 60 60]",
		"-ERR unknown command", "-NOSCRIPT", "[0 1 0 -1 60]",
	} {
		if got := c.read(); !strings.HasPrefix(got, want) {
			t.Errorf("reply %d: %s, want %s", i, got, want)
		}
	}
}

// What no client may send is answered in the protocol's form and ends its connection. Others
// are served.
func TestBadInput(t *testing.T) {
	f := start(t, nil)
	other := f.dial(t)
	for what, data := range map[string]string{
		"too many arguments":    "*1048577\r\n",
		"a negative length":     "*2\r\n$-7\r\n",
		"a long argument":       "*2\r\n$4\r\nECHO\r\n$1999999\r\n",
		"no command":            strings.Repeat("x", 5000),
		"another protocol":      "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("\x00", 2000),
		"a number that is none": "*1\r\n$a\r\n",
	} {
		c := f.dial(t)
		c.send(data)
		if got := c.read(); !strings.HasPrefix(got, "-ERR Protocol error: ") {
			t.Errorf("%s: %s", what, got)
		}
		if got := c.read(); got != "EOF" && !strings.Contains(got, "reset") {
			t.Errorf("%s: then %s", what, got)
		}
	}
	impatient := start(t, func(o *Options) { o.within = 200 * time.Millisecond })
	half := impatient.dial(t)
	half.send("*1\r\n$4\r\nPI") // and nothing else
	if got := half.read(); got != "EOF" {
		t.Errorf("half a command: %s", got)
	}
	unread := impatient.dial(t)
	for range 200 { // it reads no reply; the server stops reading, and then gives up
		if _, err := io.WriteString(unread, strings.Repeat(encode("COMMAND"), 500)); err != nil {
			break
		}
	}
	if got := other.ask("PING"); got != "PONG" {
		t.Errorf("another client: %s", got)
	}
	if n := f.server.large.InUse() + impatient.server.large.InUse(); n > 4*maxCommand {
		t.Errorf("%d bytes of buffers are left", n)
	}
}

// A connection that waits keeps no memory for replies, however long its last ones were.
func TestManyLongReplies(t *testing.T) {
	f := start(t, nil)
	client, server := net.Pipe()
	defer client.Close()
	c := &conn{of: f.server, Conn: server}
	served := make(chan struct{})
	go func() {
		defer close(served)
		c.serve(t.Context())
	}()
	const n = 500
	sent := make(chan error, 1)
	go func() {
		_, err := io.WriteString(client, strings.Repeat(encode("WEIR.CHECK /towns USER ada"), n))
		sent <- err
	}()
	p := &peer{t, client, bufio.NewReader(client)}
	for range n {
		if got := p.read(); !strings.HasPrefix(got, "[allowed ") {
			t.Fatal(got)
		}
	}
	if err := errors.Join(<-sent, client.Close()); err != nil {
		t.Fatal(err)
	}
	<-served // so that the connection may be looked at
	if c.reply.buf != nil || c.batch != nil || cap(c.buf) > smallBuffer {
		t.Errorf("after its last reply a connection had %d bytes for replies, %d for commands, a batch: %v; want none, %d, "+
			"false", cap(c.reply.buf), cap(c.buf), c.batch != nil, smallBuffer)
	}
}

// What a client may charge is never the number of flushes.
func TestNobodyChargesFlushes(t *testing.T) {
	f := start(t, nil)
	c := f.dial(t)
	if got := c.ask("CL.THROTTLE k 0 1 60"); got != "[0 1 0 -1 60]" {
		t.Fatal(got)
	}
	limit := limitertest.Limit(t, limiter.Spec{Name: "flushes", Algorithm: limiter.FixedWindow,
		Limit: limiter.NarrowUnits, Window: limiter.MaxWindow})
	for _, user := range []string{"", "\x00flushes"} {
		if _, err := f.node.Check(t.Context(), limiter.Request{Path: flushKey, User: user,
			Limits: []*limiter.Limit{limit}}); err != nil {
			t.Fatal(err)
		}
	}
	f.clock.move(2 * flushSeen)
	if got := c.ask("CL.THROTTLE k 0 1 60"); !strings.HasPrefix(got, "[1 1 0 ") {
		t.Errorf("%s: the keys were flushed by a check", got)
	}
}

// The number of flushes, which a busy connection asks for ten times a second, is no key of a client's: it is in no list
// of top keys.
func TestFlushesAreNoTopKey(t *testing.T) {
	f := start(t, nil)
	c := f.dial(t)
	for range 64 {
		f.clock.move(flushSeen)
		c.ask("CL.THROTTLE k 0 1 60")
	}
	hottest, _ := f.node.Top(10)
	if len(hottest) != 1 || strings.Contains(hottest[0].Name, flushKey) {
		t.Errorf("the hottest keys are %+v; want that of the client alone", hottest)
	}
}

// access knows one token and its tenant.
type access struct{}

type someone string

func (s someone) Name() string { return "name of " + string(s) }

func (s someone) Tenant() string { return string(s) }

// Spend implements [frontend.Caller]. The tenant poor has no budget for checks.
func (s someone) Spend(checks, bytes int) error {
	if s == "poor" && checks > 0 && bytes > 0 {
		return fmt.Errorf("%w: checks", frontend.ErrBudget)
	}
	return nil
}

func (someone) OpenStream() error { return nil }

func (someone) CloseStream() {}

func (s someone) May(a frontend.Action) (limiter.Scope, error) {
	if a == frontend.ActionReset && s != "ruled" {
		return nil, frontend.ForbiddenError("this caller may not reset")
	}
	if a == frontend.ActionLimits && s == "ruled" {
		return nil, frontend.ForbiddenError("this caller may bring no limits")
	}
	if a == frontend.ActionRefund && s == "idle" {
		return nil, frontend.ForbiddenError("this caller may not refund")
	}
	if a == frontend.ActionRefund && s == "half" {
		return notTowns{}, nil
	}
	return nil, nil
}

// notTowns permits all rules but one.
type notTowns struct{}

func (notTowns) Permits(rule string) bool { return rule != "towns" }

func (access) Identify(c frontend.Credentials) (frontend.Caller, error) {
	for _, a := range c.Authorization {
		if name, ok := strings.CutPrefix(a, "Bearer token-"); ok {
			return someone(name), nil
		}
	}
	return nil, fmt.Errorf("%w: send AUTH", frontend.ErrUnauthenticated)
}

// With permissions a client proves who it is before anything else, tenants have counters of
// their own, and wrong tokens end the connection.
func TestIdentities(t *testing.T) {
	var told auditor
	f := start(t, func(o *Options) {
		o.Config.Access, o.Config.AllowRequestLimits, o.Config.AllowReset, o.Config.Audit = access{}, false, false, &told
	})
	c := f.dial(t)
	unknown := "-NOAUTH " + errNothingShown.Error()
	for i, want := range []struct{ ask, reply string }{
		{"PING", unknown},
		{"CL.THROTTLE k 0 1 60", unknown},
		{"HELLO 3", unknown},
		{"AUTH token-a", "OK"},
		{"CL.THROTTLE k 0 1 60", "[0 1 0 -1 60]"},
		{"CL.THROTTLE k 0 1 60", "[1 1 0 60 60]"},
		{"DEL k", "-NOPERM this caller may not reset"},
		{"FLUSHDB", "-NOPERM this caller may not reset"},
		{"WEIR.RESET /towns", "-NOPERM this caller may not reset"},
		{"HELLO 2 AUTH default token-b", "[server weir version 7.0.0 proto 2 id 1 mode standalone role master modules []]"},
		{"CL.THROTTLE k 0 1 60", "[0 1 0 -1 60]"}, // another tenant
		{"AUTH token-poor", "OK"},
		{"CL.THROTTLE k 0 1 60", "-TRYAGAIN " + frontend.ErrBudget.Error() + ": checks"},
		{"PING", "PONG"},
		{"AUTH token-ruled", "OK"},
		{"WEIR.RESET /towns", "0"},
		{"DEL k", "-NOPERM this caller may bring no limits"}, // nor delete the keys that have such
		{"FLUSHDB", "-NOPERM this caller may bring no limits"},
	} {
		if got := c.ask(want.ask); got != want.reply {
			t.Errorf("case %d, %s: %s, want %s", i, want.ask, got, want.reply)
		}
	}
	want := "[ping refused  redis cl.throttle refused  redis hello refused  redis del refused name of a redis flushdb " +
		"refused name of a redis weir.reset refused name of a redis " +
		// budgets are limits, which are counted
		"weir.reset done name of ruled redis del refused name of ruled redis flushdb refused name of ruled redis]"
	if got := fmt.Sprint(told.told); got != want {
		t.Errorf("the audit has %s, want %s", got, want)
	}
	big := f.dial(t)
	big.send("*1\r\n$16000\r\n")
	if got := big.read(); got != "-ERR Protocol error: invalid bulk length" {
		t.Errorf("a long argument before AUTH: %s", got)
	}
	guess := f.dial(t)
	for i := range maxLogins {
		began := time.Now()
		if got := guess.ask("AUTH wrong"); got != "-WRONGPASS "+frontend.ErrUnauthenticated.Error()+": send AUTH" {
			t.Errorf("guess %d: %s", i, got)
		}
		if d := time.Since(began); d < loginPause {
			t.Errorf("guess %d was answered after %v", i, d)
		}
	}
	if got := guess.read(); got != "EOF" {
		t.Errorf("after %d guesses: %s", maxLogins, got)
	}
}

// The refusals of a node that does not allow everything.
const (
	errLimits = "limits that come with a command are not allowed here: the operator must start the node with " +
		"--allow-request-limits"
	errReserve = "reservations are not allowed here: the operator must start the node with --allow-refunds"
	errReset   = "resets are not allowed here: the operator must start the node with --allow-reset"
)

// Without the flags of the node, limits of commands and resets are refused.
func TestNotAllowed(t *testing.T) {
	f := start(t, func(o *Options) { o.Config.AllowRequestLimits, o.Config.AllowReset = false, false })
	c := f.dial(t)
	for ask, want := range map[string]string{
		"CL.THROTTLE k 0 1 60": errLimits, "EVALSHA " + scriptAllowN + " 1 k 1 1 1 1": errLimits, "DEL k": errLimits,
		"FLUSHDB": errLimits, "WEIR.RESET /towns": errReset,
	} {
		if got := c.ask(ask); got != "-NOPERM "+want {
			t.Errorf("%s: %s", ask, got)
		}
	}
	c = start(t, func(o *Options) { o.Config.AllowReset = false }).dial(t)
	for _, ask := range []string{"DEL k", "FLUSHDB", "WEIR.RESET /towns"} {
		if got := c.ask(ask); got != "-NOPERM "+errReset {
			t.Errorf("%s: %s", ask, got)
		}
	}
}

// Shutdown answers what was sent and closes connections that wait.
func TestShutdown(t *testing.T) {
	f := start(t, nil)
	idle := f.dial(t)
	if got := idle.ask("PING"); got != "PONG" {
		t.Fatal(got)
	}
	if err := f.server.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if got := idle.read(); got != "EOF" {
		t.Errorf("after Shutdown: %s", got)
	}
}
