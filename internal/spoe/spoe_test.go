package spoe

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/certs/certstest"
)

// haproxy is one side of a connection, as HAProxy is.
type haproxy struct {
	t *testing.T
	net.Conn
}

// start serves an agent whose handler denies /denied, fails /failed, does not take one path, and allows
// the rest.
func start(t *testing.T, change func(*Options)) (addr string) {
	t.Helper()
	o := Options{URI: "X-Original-URI", Method: "X-Original-Method", Address: "X-Forwarded-For", User: "X-User",
		ID: "X-ID",
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("RateLimit", strings.Join([]string{r.Header.Get("X-Original-Method"), r.Header.Get("X-Forwarded-For"),
				r.Header.Get("X-User"), r.Header.Get("X-ID")}, " "))
			switch r.Header.Get("X-Original-URI") {
			case "/denied":
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(http.StatusTooManyRequests)
				_, _ = io.WriteString(w, "too many")
			case "/free/..;/denied":
				w.WriteHeader(http.StatusBadRequest)
				_, _ = io.WriteString(w, "which path?")
			case "/blocked":
				w.Header().Set("X-Weir-Status", "403")
				w.WriteHeader(http.StatusForbidden)
				_, _ = io.WriteString(w, "blocked")
			case "/failed":
				w.Header().Set("Content-Type", "application/problem+json")
				w.WriteHeader(http.StatusForbidden)
			case "/panic":
				panic("as it may")
			}
		}),
	}
	if change != nil {
		change(&o)
	}
	s, err := NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	var listen net.ListenConfig
	l, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := errors.Join(s.Shutdown(ctx), <-served); err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func dial(t *testing.T, addr string) *haproxy {
	t.Helper()
	var d net.Dialer
	c, err := d.DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return &haproxy{t, c}
}

func (h *haproxy) send(w writer) {
	h.t.Helper()
	if _, err := h.Write(w.end()); err != nil {
		h.t.Fatal(err)
	}
}

// read returns a frame; ok is false at the end of the connection.
func (h *haproxy) read() (r *reader, head header, ok bool) {
	h.t.Helper()
	var length [4]byte
	if _, err := io.ReadFull(h, length[:]); errors.Is(err, os.ErrDeadlineExceeded) {
		h.t.Fatal("neither a frame nor an end has come")
	} else if err != nil {
		return nil, header{}, false
	}
	frame := make([]byte, binary.BigEndian.Uint32(length[:]))
	if _, err := io.ReadFull(h, frame); err != nil {
		h.t.Fatal(err)
	}
	r = &reader{left: frame}
	return r, r.header(), true
}

func hello(versions string, size uint64, health bool) writer {
	w := begin(header{kind: typeHello, flags: flagFin})
	w.text("supported-versions")
	w.stringValue(versions)
	w.text("max-frame-size")
	w.uint32Value(size)
	w.text("capabilities")
	w.stringValue("pipelining,async")
	if health {
		w.text("healthcheck")
		w = append(w, valueBool|flagTrue)
	}
	return w
}

func notify(stream uint64, uri string) writer {
	w := begin(header{kind: typeNotify, flags: flagFin, stream: stream, frame: 1})
	w.text("other")
	w = append(w, 0)
	w.text(message)
	w = append(w, 5)
	w.text(argURI)
	w.stringValue(uri)
	w.text(argMethod)
	w.stringValue("GET")
	w.text(argSource)
	w = append(w, valueIPv4, 192, 0, 2, 9)
	w.text(argUser)
	w = append(w, valueNull)
	w.text(argID)
	w.stringValue("7")
	return w
}

// vars returns the variables of an ACK.
func vars(t *testing.T, r *reader) string {
	t.Helper()
	var out []string
	for len(r.left) > 0 && r.err == nil {
		if kind, n, scope := r.byte(), r.byte(), r.byte(); kind != actionSetVar || n != 3 || scope != scopeTransaction {
			t.Fatalf("action %d with %d arguments, scope %d", kind, n, scope)
		}
		name := r.text()
		out = append(out, name+"="+r.value().String())
	}
	if r.err != nil {
		t.Fatal(r.err)
	}
	return strings.Join(out, ", ")
}

// One question that is decided slowly keeps no other of its connection from its answer, and has its own before the end.
func TestSlowQuestion(t *testing.T) {
	slow := make(chan struct{})
	h := dial(t, start(t, func(o *Options) {
		decide := o.Handler
		o.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Original-URI") == "/slow" {
				<-slow
			}
			decide.ServeHTTP(w, r)
		})
	}))
	h.send(hello("2.0", 16380, false))
	h.read()
	const asked = maxAsked - 1
	for range asked {
		h.send(notify(1, "/slow"))
	}
	for i := range uint64(3) { // more than there is room for beside the slow ones, one after the other
		h.send(notify(7+i, "/free"))
		if _, head, ok := h.read(); !ok || head != (header{typeAck, flagFin, 7 + i, 1}) {
			t.Fatalf("beside slow questions: %+v", head)
		}
	}
	h.send(begin(header{kind: typeDisconnect, flags: flagFin}))
	close(slow)
	for range asked {
		if _, head, ok := h.read(); !ok || head != (header{typeAck, flagFin, 1, 1}) {
			t.Fatalf("a slow question: %+v", head)
		}
	}
	if _, head, ok := h.read(); !ok || head.kind != typeAgentDisconnect {
		t.Errorf("at the end: %+v", head)
	}
}

// A connection greets, and then answers questions, several at a time.
func TestQuestions(t *testing.T) {
	h := dial(t, start(t, nil))
	h.send(hello("1.0, 2.0", 16380, false))
	r, head, ok := h.read()
	has := r.pairs()
	if !ok || head.kind != typeAgentHello || has["version"].text != "2.0" || has["max-frame-size"].number != 16380 ||
		has["capabilities"].text != "pipelining" || r.err != nil {
		t.Fatalf("%+v %v, %v", head, has, r.err)
	}
	for i, uri := range []string{"/free?x=1", "/denied", "/failed", "/free/..;/denied", "/blocked"} {
		h.send(notify(uint64(1000*i), uri))
	}
	got := map[header]string{}
	for range 5 {
		r, head, ok := h.read()
		if !ok {
			t.Fatal("a question has no answer")
		}
		got[head] = vars(t, r)
	}
	for i, want := range []string{
		"result=allowed, ratelimit=GET 192.0.2.9  7",
		"result=denied, status=429, retry=7, body=too many, ratelimit=GET 192.0.2.9  7",
		"result=failed, body=403, ratelimit=GET 192.0.2.9  7",
		"result=denied, status=400, retry=, body=which path?, ratelimit=GET 192.0.2.9  7",
		"result=denied, status=403, body=blocked, ratelimit=GET 192.0.2.9  7",
	} {
		if got := got[header{typeAck, flagFin, uint64(1000 * i), 1}]; got != want {
			t.Errorf("%s; want %s", got, want)
		}
	}
	h.send(begin(header{kind: typeDisconnect, flags: flagFin}))
	if r, head, ok := h.read(); !ok || head.kind != typeAgentDisconnect || r.pairs()["status-code"].number != codeNone {
		t.Errorf("%+v", head)
	}
	if _, _, ok := h.read(); ok {
		t.Error("it goes on after its end")
	}
}

// The handler is asked with what HAProxy shows of itself: its certificate, and the trace of the
// request. A handshake that fails is told of, and nothing is answered.
func TestTLS(t *testing.T) {
	authority := certstest.New(t, "clients")
	pair := func(l certstest.Leaf) tls.Certificate {
		cert, key := authority.Issue(t, l)
		p, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.PEM)
	failed := make(chan string, 1)
	s, err := NewServer(Options{URI: "X-Original-URI", HandshakeFailed: func(_, why string) { failed <- why },
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			name := "nobody"
			if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
				name = r.TLS.VerifiedChains[0][0].Subject.CommonName
			}
			w.Header().Set("RateLimit", name+" "+r.Header.Get("Traceparent"))
		})})
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0",
		&tls.Config{Certificates: []tls.Certificate{pair(certstest.Leaf{Name: "node", Hosts: []string{"127.0.0.1"}})},
			ClientCAs: roots, ClientAuth: tls.VerifyClientCertIfGiven, MinVersion: tls.VersionTLS13})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := errors.Join(s.Shutdown(context.Background()), <-served); err != nil {
			t.Error(err)
		}
	})
	for name, shown := range map[string][]tls.Certificate{"shop": {pair(certstest.Leaf{Name: "shop"})}, "nobody": nil} {
		h := dial(t, l.Addr().String())
		h.Conn = tls.Client(h.Conn, &tls.Config{RootCAs: roots, Certificates: shown, ServerName: "127.0.0.1",
			MinVersion: tls.VersionTLS13})
		h.send(hello("2.0", 16380, false))
		if _, head, ok := h.read(); !ok || head.kind != typeAgentHello {
			t.Fatalf("%+v", head)
		}
		q := begin(header{kind: typeNotify, flags: flagFin, stream: 1, frame: 1})
		q.text(message)
		q = append(q, 1)
		q.text(argTrace)
		q.stringValue("00-a-b-01")
		h.send(q)
		r, _, ok := h.read()
		if !ok {
			t.Fatal("no answer")
		}
		if got, want := vars(t, r), "result=allowed, ratelimit="+name+" 00-a-b-01"; got != want {
			t.Errorf("%s; want %s", got, want)
		}
	}
	h := dial(t, l.Addr().String())
	h.send(hello("2.0", 16380, false)) // without TLS
	if _, _, ok := h.read(); ok {
		t.Error("a connection without TLS is greeted")
	}
	select {
	case why := <-failed:
		if !strings.Contains(why, "TLS handshake") {
			t.Errorf("it failed since %s", why)
		}
	default:
		t.Error("nobody is told that the handshake failed")
	}
}

// From an address that is not listed nothing is read, and one that is ends its connection with the first
// frame that HAProxy does not send: what it has sent beyond is not worked on.
func TestUnlisted(t *testing.T) {
	log := make(lines, 1)
	h := dial(t, start(t, func(o *Options) {
		o.Admit = func(remote string) bool { return !strings.HasPrefix(remote, "127.0.0.1:") }
		o.Logger = slog.New(slog.NewTextHandler(log, nil))
	}))
	_, _ = h.Write(hello("2.0", 16380, false).end()) // it may be closed already
	if _, head, ok := h.read(); ok {
		t.Errorf("it is answered: %+v", head)
	}
	if line := <-log; !strings.Contains(line, "--auth-proxy") {
		t.Errorf("the log says %s", line)
	}
}

// lines is a log that a test waits for.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

func TestHealth(t *testing.T) {
	h := dial(t, start(t, nil))
	h.send(hello("2.0", 16380, true))
	if _, head, ok := h.read(); !ok || head.kind != typeAgentHello {
		t.Fatalf("%+v", head)
	}
	if _, _, ok := h.read(); ok {
		t.Error("a health check leaves the connection open")
	}
}

// What is no good is answered with the reason, and the connection ends.
func TestBadFrames(t *testing.T) {
	greeted := func(after writer) []writer { return []writer{hello("2.0", 16380, false), after} }
	long := begin(header{kind: typeNotify, flags: flagFin})
	long.text(message)
	long = append(long, 255)
	for range 300 {
		long.text("a")
		long = append(long, valueNull)
	}
	cut := begin(header{kind: typeNotify, flags: flagFin})
	cut.varint(1 << 40)
	odd := begin(header{kind: typeNotify, flags: flagFin})
	odd.text(message)
	odd = append(odd, 1)
	odd.text("a")
	odd = append(odd, 0x0e)
	twice := notify(1, "/free")
	twice.text(message)
	twice = append(twice, 0)
	endless := append(begin(header{kind: typeNotify, flags: flagFin}), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
		0xff, 0xff, 0xff, 0xff)
	for name, x := range map[string]struct {
		frames []writer
		code   uint64
	}{
		"no hello":         {[]writer{notify(1, "/")}, codeInvalid},
		"another version":  {[]writer{hello("1.0", 16380, false)}, codeNoVersion},
		"no size":          {[]writer{hello("2.0", 10, false)}, codeNoSize},
		"a part":           {greeted(begin(header{kind: typeNotify})), codeNoFragment},
		"too many values":  {greeted(long), codeInvalid},
		"a length beyond":  {greeted(cut), codeInvalid},
		"an unknown type":  {greeted(odd), codeInvalid},
		"an endless count": {greeted(endless), codeInvalid},
		"two questions":    {greeted(twice), codeInvalid},
		"an unknown frame": {greeted(begin(header{kind: 42, flags: flagFin})), codeInvalid},
		"a second hello":   {greeted(hello("2.0", 16380, false)), codeInvalid},
		"too short":        {greeted(writer{0, 0, 0, 0, 1, 0}), codeInvalid},
		"too long":         {greeted(make(writer, maxFrame+5)), codeTooBig},
	} {
		t.Run(name, func(t *testing.T) {
			h := dial(t, start(t, nil))
			for i, f := range x.frames {
				_, _ = h.Write(f.end()) // it may end meanwhile
				if i == 0 && len(x.frames) > 1 {
					if _, head, ok := h.read(); !ok || head.kind != typeAgentHello {
						t.Fatalf("%+v", head)
					}
				}
			}
			r, head, ok := h.read()
			if !ok || head.kind != typeAgentDisconnect {
				t.Fatalf("%+v, %v", head, ok)
			}
			if has := r.pairs(); has["status-code"].number != x.code || has["message"].text == "" {
				t.Errorf("%v, want code %d", has, x.code)
			}
			if _, _, ok := h.read(); ok {
				t.Error("it goes on")
			}
		})
	}
}

// A connection that begins a frame and does not end it has its time, and a panic ends its
// connection only.
func TestSlowAndBroken(t *testing.T) {
	addr := start(t, func(o *Options) { o.within = 200 * time.Millisecond })
	slow := dial(t, addr)
	slow.send(hello("2.0", 16380, false))
	if _, _, ok := slow.read(); !ok {
		t.Fatal("no hello")
	}
	if _, err := slow.Write([]byte{0, 0}); err != nil {
		t.Fatal(err)
	}
	if _, _, ok := slow.read(); ok {
		t.Error("half a frame is answered")
	}
	broken := dial(t, addr)
	broken.send(hello("2.0", 16380, false))
	if _, _, ok := broken.read(); !ok {
		t.Fatal("no hello")
	}
	broken.send(notify(1, "/panic"))
	if _, _, ok := broken.read(); ok {
		t.Error("a panic is answered")
	}
	h := dial(t, addr)
	h.send(hello("2.0", 16380, false))
	if _, _, ok := h.read(); !ok {
		t.Error("after a panic nobody is greeted")
	}
}

func TestNumbers(t *testing.T) {
	for _, n := range []uint64{0, 1, 239, 240, 241, 2287, 2288, 264431, 264432, 1 << 31, 1<<32 - 1, 1 << 47} {
		var w writer
		w.varint(n)
		r := &reader{left: w}
		if got := r.varint(); got != n || r.err != nil || len(r.left) != 0 {
			t.Errorf("%d became %d, %v", n, got, r.err)
		}
	}
	if len := func() int { var w writer; w.varint(2287); return len(w) }(); len != 2 {
		t.Errorf("2287 takes %d bytes, want 2 as in HAProxy", len)
	}
}

func FuzzFrame(f *testing.F) {
	f.Add([]byte(notify(5, "/x")[4:]))
	f.Add([]byte(hello("2.0", 16380, true)[4:]))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > maxFrame {
			return
		}
		r := &reader{left: data}
		h := r.header()
		all := r.pairs()
		if len(all) > maxValues || r.err != nil && len(r.left) != 0 {
			t.Fatalf("%+v: %d values, %v", h, len(all), r.err)
		}
	})
}

// Whoever sends nonsense again and again causes one line in the log.
func TestOneReport(t *testing.T) {
	var log strings.Builder
	addr := start(t, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	for range 20 {
		h := dial(t, addr)
		if _, err := io.WriteString(h, "GET / HTTP/1.0\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if _, head, ok := h.read(); !ok || head.kind != typeAgentDisconnect {
			t.Fatalf("%+v", head)
		}
		if _, _, ok := h.read(); ok { // its end comes after the line
			t.Fatal("it goes on")
		}
	}
	if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "longer than") {
		t.Errorf("%d lines: %s", n, log.String())
	}
}
