package spoe

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/conns"
	"github.com/weirlimit/weir/internal/front"
	"github.com/weirlimit/weir/internal/guard"
	"github.com/weirlimit/weir/internal/seldom"
)

// message is the name of the message that asks about a request, in HAProxy's configuration.
const message = "weir"

// The arguments of the message.
const (
	argURI    = "uri"    // the path with the query
	argMethod = "method" // the method
	argSource = "src"    // the address of the client
	argUser   = "user"   // the user, where the node believes it
	argGroup  = "group"  // likewise
	argID     = "id"     // of the request, by which it counts once
	argTrace  = "trace"  // the field traceparent, to have the request traced
)

// The variables of the answer, in the scope of the transaction. HAProxy puts the prefix of
// its own configuration before them.
const (
	varResult    = "result"    // allowed, denied or failed
	varStatus    = "status"    // if denied: 429, 400 for a request that is not valid, 503 by a rule that is closed
	varRetry     = "retry"     // Retry-After, if denied with 429
	varRateLimit = "ratelimit" // the field RateLimit
	varPolicy    = "policy"    // the field RateLimit-Policy
	varBody      = "body"      // of a denial
)

// Options configures a [Server]. Handler is required.
type Options struct {
	// Handler answers sub-requests: that of package forward. It is asked with the address and
	// the TLS of the connection, so it refuses those that are no proxies, or may not check.
	Handler http.Handler
	// Admit reports whether an address, with its port, may ask; nil: all may. From others nothing is read.
	Admit func(remote string) bool
	// HandshakeFailed, if not nil, is called with the address of each HAProxy whose handshake
	// of TLS failed, and why.
	HandshakeFailed func(from, why string)
	// URI, Method, Address, User, Group and ID are the fields in which the handler reads what
	// the proxy has got; the last three may be empty.
	URI, Method, Address, User, Group, ID string
	// Idle is how long a connection may send nothing; default 15 minutes.
	Idle time.Duration
	// Guard records panics; nil: nothing does.
	Guard *guard.Guard
	// Logger; nil for none.
	Logger *slog.Logger

	within time.Duration // for tests; default frameWithin
}

const (
	defaultIdle = 15 * time.Minute
	// frameWithin is the time in which a frame that has begun must be complete, in which the
	// first frame must come, and in which HAProxy must take an answer.
	frameWithin = 10 * time.Second
	// answerWithin bounds the wait for a decision. HAProxy has a bound of its own.
	answerWithin = 5 * time.Second
)

// Server is an agent. It is safe for concurrent use.
type Server struct {
	options Options

	conns conns.Server

	ended seldom.Lines // about connections
}

// NewServer returns an agent.
func NewServer(o Options) (*Server, error) {
	if o.Handler == nil {
		return nil, errors.New("spoe: Options.Handler is nil: set it to a handler of package forward")
	}
	if o.Idle <= 0 {
		o.Idle = defaultIdle
	}
	o.within = cmp.Or(o.within, frameWithin)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &Server{options: o}, nil
}

// Serve serves connections of a listener until [Server.Shutdown] is called, and then
// returns nil, or until the listener fails. It closes the listener, and may be called once.
func (s *Server) Serve(l net.Listener) error {
	return s.conns.Serve(l, func(ctx context.Context, c net.Conn) {
		defer s.options.Guard.Recover(guard.SPOE, nil)
		(&conn{Conn: c, of: s}).serve(ctx)
	})
}

// Shutdown closes the listener and the connections; HAProxy makes others, to other agents.
// A question that is being decided is answered, until the context ends.
func (s *Server) Shutdown(ctx context.Context) error { return s.conns.Shutdown(ctx) }

// report logs why a connection was ended, and how many were since the last line: anyone who reaches
// the port can cause one.
func (s *Server) report(from net.Addr, f *fault) {
	if more, due := s.ended.Due("", time.Now()); due {
		s.options.Logger.Warn("a connection at the port for HAProxy was ended", "from", from.String(), "reason", f.text,
			"ended", more+1)
	}
}

// conn is a connection of HAProxy's.
type conn struct {
	net.Conn
	of    *Server
	in    *bufio.Reader // of Conn: a frame takes no more than one call of the system
	buf   []byte
	state *tls.ConnectionState // nil: no TLS

	asked   chan struct{} // has one for each question that is being decided
	decided sync.WaitGroup
	writing sync.Mutex
}

// maxAsked is how many questions of a connection are decided at a time; HAProxy asks 20 of them unless told
// otherwise. One that waits, such as for a member that does not answer, keeps no other from its answer: HAProxy lets
// requests pass, or refuses them, that have none in time.
const maxAsked = 64

// fault is why a connection ends, for HAProxy's log.
type fault struct {
	code uint64
	text string
}

func (f *fault) Error() string { return f.text }

// handshake makes the handshake of TLS, if the connection has it, and reports whether it may be
// used.
func (c *conn) handshake(ctx context.Context) bool {
	t, ok := c.Conn.(*tls.Conn)
	if !ok {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, c.of.options.within)
	defer cancel()
	if err := t.HandshakeContext(ctx); err != nil {
		if failed := c.of.options.HandshakeFailed; failed != nil {
			failed(c.RemoteAddr().String(), err.Error())
		}
		return false
	}
	c.state = new(t.ConnectionState())
	return true
}

// serve greets HAProxy, and answers its questions, each as soon as it is decided.
func (c *conn) serve(ctx context.Context) {
	if admit := c.of.options.Admit; admit != nil && !admit(c.RemoteAddr().String()) {
		c.of.report(c.RemoteAddr(), &fault{codeInvalid, "the address is none of the proxies that may ask: see --auth-proxy"})
		return
	}
	if !c.handshake(ctx) {
		return
	}
	c.in, c.asked = bufio.NewReader(c.Conn), make(chan struct{}, maxAsked)
	defer c.decided.Wait()
	err := c.greet()
	for err == nil {
		err = c.answer(ctx)
	}
	c.decided.Wait()
	var f *fault
	if !errors.As(err, &f) {
		return
	}
	w := begin(header{kind: typeAgentDisconnect, flags: flagFin})
	w.text("status-code")
	w.uint32Value(f.code)
	w.text("message")
	w.stringValue(f.text)
	_ = c.write(w) // it ends anyway
	if f.code != codeNone {
		c.of.report(c.RemoteAddr(), f)
	}
}

// errHealth ends a connection that only asks whether the agent is there.
var errHealth = errors.New("a health check")

// greet answers the first frame.
func (c *conn) greet() error {
	r, h, err := c.read(c.of.options.within)
	if err != nil {
		return err
	}
	if h.kind != typeHello {
		return &fault{codeInvalid, "the first frame is no HAPROXY-HELLO: this port is for HAProxy's filter spoe"}
	}
	has := r.pairs()
	if r.err != nil {
		return &fault{codeInvalid, r.err.Error()}
	}
	if !strings.Contains(","+strings.ReplaceAll(has["supported-versions"].text, " ", ""), ",2.0") {
		return &fault{codeNoVersion, "the agent speaks version 2.0 of SPOP, and HAProxy does not"}
	}
	size := min(has["max-frame-size"].number, maxFrame)
	if size < minFrame {
		return &fault{codeNoSize, "HAPROXY-HELLO has no max-frame-size, or too small a one"}
	}
	w := begin(header{kind: typeAgentHello, flags: flagFin})
	w.text("version")
	w.stringValue("2.0")
	w.text("max-frame-size")
	w.uint32Value(size)
	w.text("capabilities")
	w.stringValue("pipelining")
	if err := c.write(w); err != nil {
		return err
	}
	if has["healthcheck"].number != 0 {
		return errHealth
	}
	return nil
}

func (c *conn) answer(ctx context.Context) error {
	r, h, err := c.read(c.of.options.Idle)
	switch {
	case err != nil:
		return err
	case h.kind == typeDisconnect:
		return &fault{codeNone, "normal"}
	case h.kind != typeNotify:
		// HAProxy sends no other. Whoever does could otherwise have them read for as long as it likes.
		return &fault{codeInvalid, "a frame of the unknown type " + strconv.Itoa(int(h.kind))}
	case h.flags&flagFin == 0:
		return &fault{codeNoFragment, "the agent takes no frame in parts"}
	}
	var asked map[string]value
	for len(r.left) > 0 && r.err == nil {
		name, n := r.text(), int(r.byte())
		args := map[string]value{}
		for range n {
			arg := r.text()
			args[arg] = r.value()
			if r.err != nil {
				break
			}
		}
		if name != message || r.err != nil {
			continue
		}
		if asked != nil { // else one frame could ask thousands of times, and its answer would fit none
			return &fault{codeInvalid, "a frame has two messages " + message}
		}
		asked = args
	}
	if r.err != nil {
		return &fault{codeInvalid, r.err.Error()}
	}
	c.asked <- struct{}{} // each is decided within a time
	c.decided.Go(func() {
		defer func() { <-c.asked }()
		defer c.of.options.Guard.Recover(guard.SPOE, func(error) { _ = c.Close() })
		out := begin(header{kind: typeAck, flags: flagFin, stream: h.stream, frame: h.frame})
		if asked != nil {
			c.decide(ctx, asked, &out)
		}
		if c.write(out) != nil {
			_ = c.Close() // so that no more is read
		}
	})
	return nil
}

// reply keeps what a handler writes, as far as HAProxy gets it.
type reply struct {
	fields http.Header
	status int
	body   bytes.Buffer
}

func (r *reply) Header() http.Header { return r.fields }

func (r *reply) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
}

// maxBody bounds the body of a denial, so that an answer fits a frame.
const maxBody = 4 << 10

func (r *reply) Write(b []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	if r.body.Len()+len(b) <= maxBody {
		r.body.Write(b)
	}
	return len(b), nil
}

// decide asks the handler about a request, and adds variables to the answer.
func (c *conn) decide(ctx context.Context, args map[string]value, out *writer) {
	o := &c.of.options
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/v1/auth", http.NoBody)
	if err != nil {
		return // not reached
	}
	r.RemoteAddr, r.TLS = c.RemoteAddr().String(), c.state
	for _, f := range []struct{ field, arg string }{
		{o.URI, argURI}, {o.Method, argMethod}, {o.Address, argSource}, {o.User, argUser}, {o.Group, argGroup}, {o.ID, argID},
		{"traceparent", argTrace},
	} {
		if v, ok := args[f.arg]; ok && f.field != "" && v.kind != valueNull {
			r.Header.Set(f.field, v.String())
		}
	}
	a := &reply{fields: http.Header{}}
	o.Handler.ServeHTTP(a, r)
	switch a.status {
	case 0, http.StatusOK:
		out.set(varResult, "allowed")
	case http.StatusServiceUnavailable:
		if a.fields.Get("RateLimit") == "" {
			out.set(varResult, "failed")
			out.set(varBody, strconv.Itoa(a.status))
			break
		}
		fallthrough // a rule has denied it while its counters could not be reached
	case http.StatusTooManyRequests, http.StatusBadRequest:
		// A request that is not valid is the client's doing: what lets requests pass while no node
		// answers must not let it pass.
		out.set(varResult, "denied")
		out.set(varStatus, strconv.Itoa(a.status))
		out.set(varRetry, a.fields.Get("Retry-After"))
		out.set(varBody, a.body.String())
	default:
		if a.status >= 400 && a.status < 500 && a.fields.Get(front.InsteadOf) != "" { // of the request, not of HAProxy
			out.set(varResult, "denied")
			out.set(varStatus, strconv.Itoa(a.status))
			out.set(varBody, a.body.String())
			break
		}
		out.set(varResult, "failed")
		out.set(varBody, strconv.Itoa(a.status))
	}
	for _, f := range []struct{ name, field string }{{varRateLimit, "RateLimit"}, {varPolicy, "RateLimit-Policy"}} {
		if v := a.fields.Get(f.field); v != "" {
			out.set(f.name, v)
		}
	}
}

// read reads a frame whose first byte comes within a time.
func (c *conn) read(first time.Duration) (*reader, header, error) {
	c.await(1, first)
	if c.of.conns.Stopping() {
		return nil, header{}, &fault{codeNone, "the agent ends"}
	}
	var length [4]byte
	if _, err := io.ReadFull(c.in, length[:1]); err != nil {
		if c.of.conns.Stopping() {
			err = &fault{codeNone, "the agent ends"}
		}
		return nil, header{}, err
	}
	c.await(maxFrame, c.of.options.within) // the whole frame, as far as it is not there
	if _, err := io.ReadFull(c.in, length[1:]); err != nil {
		return nil, header{}, err
	}
	n := binary.BigEndian.Uint32(length[:])
	switch {
	case n > maxFrame:
		return nil, header{}, &fault{codeTooBig, "a frame is longer than " + strconv.Itoa(maxFrame) + " bytes"}
	case n < 7:
		return nil, header{}, &fault{codeInvalid, "a frame is too short"}
	}
	if cap(c.buf) < int(n) {
		c.buf = make([]byte, n)
	}
	c.buf = c.buf[:n]
	if _, err := io.ReadFull(c.in, c.buf); err != nil {
		return nil, header{}, err
	}
	r := &reader{left: c.buf}
	h := r.header()
	if r.err != nil {
		return nil, header{}, &fault{codeInvalid, r.err.Error()}
	}
	return r, h, nil
}

// await sets the time in which so many bytes must come, unless they are there.
func (c *conn) await(n int, within time.Duration) {
	if c.in.Buffered() < n {
		_ = c.SetReadDeadline(time.Now().Add(within))
	}
}

func (c *conn) write(w writer) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	_ = c.SetWriteDeadline(time.Now().Add(c.of.options.within))
	_, err := c.Write(w.end())
	return err
}
