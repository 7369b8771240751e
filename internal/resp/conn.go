package resp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"
	"unsafe"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/listen"
)

// conn is one connection. One goroutine serves it.
type conn struct {
	net.Conn
	input
	of *Server
	id int64

	parser parser
	args   []string
	batch  *batch // while commands are carried out
	reply  reply
	multi  *transaction // nil: there is none
	last   *command     // which the client sent last
	began  time.Time    // when the present commands were read
	until  struct{ read, write deadline }

	caller caller
	known  frontend.Known // who its certificate proves
	auth   struct {
		token    string // of AUTH; empty: none
		failures int    // wrong tokens
	}
	name   string // of CLIENT SETNAME; empty: none
	ending bool   // it is closed after the replies
	code   string // of the last reply
}

// caller is who sends the commands, or why that is not known.
type caller struct {
	frontend.Session
	err error
}

// serve reads, carries out and answers commands until the connection ends.
func (c *conn) serve(ctx context.Context) {
	c.buf = make([]byte, 0, smallBuffer)
	if t, ok := c.Conn.(*tls.Conn); ok {
		within, cancel := context.WithTimeout(ctx, min(handshakeWithin, c.of.options.within))
		err := t.HandshakeContext(within)
		if cancel(); err != nil {
			if failed := c.of.options.HandshakeFailed; failed != nil {
				failed(c.RemoteAddr().String(), err.Error())
			}
			return
		}
	}
	now := time.Now()
	for !c.ending {
		if !c.read(now) {
			return
		}
		c.identify()
		whole := c.carryOut(ctx)
		now = time.Now()
		if c.giveBatch(); !whole || !c.write(now) {
			return
		}
		if c.extra > 0 {
			c.shrink(&c.of.large, listen.Origin(c.RemoteAddr()))
		}
	}
}

// deadline is one that has been set on a connection. Setting one costs as much as the rest of
// a command's own time. So it is set an eighth later than it must be, and stays until it would
// come too early: reads and writes end between 1 and 9/8 of their time.
type deadline struct{ at time.Time }

// set returns whether the deadline must be set, and to which time, so that there is
// at least a time from now on. An exact one is set always.
func (d *deadline) set(now time.Time, within time.Duration) (time.Time, bool) {
	if left := d.at.Sub(now); left >= within && left <= within+within/8 {
		return d.at, false
	}
	d.at = now.Add(within + within/8)
	return d.at, true
}

// write sends the replies. It reports false when the connection has ended.
func (c *conn) write(now time.Time) bool {
	if len(c.reply.buf) == 0 {
		return true
	}
	if at, ok := c.until.write.set(now, c.of.options.within); ok {
		_ = c.SetWriteDeadline(at) // of a closed connection the next call fails
	}
	_, err := c.Write(c.reply.buf)
	if kept := c.reply.kept; kept != nil && cap(c.reply.buf) <= 4*maxReplies {
		*kept = c.reply.buf[:0]
		c.of.replies.Put(kept)
	}
	c.reply.buf, c.reply.kept = nil, nil // so a connection that waits has none
	return err == nil
}

// takeBatch provides the memory for the checks that are decided together, and for replies.
func (c *conn) takeBatch() {
	if c.batch, _ = c.of.batches.Get().(*batch); c.batch == nil {
		c.batch = new(batch)
	}
	if c.reply.kept == nil {
		if c.reply.kept, _ = c.of.replies.Get().(*[]byte); c.reply.kept == nil {
			c.reply.kept = new([]byte)
		}
		c.reply.buf = *c.reply.kept
	}
}

// giveBatch gives the memory for checks back, so that a client that is slow to take its
// replies does not keep it.
func (c *conn) giveBatch() {
	if c.batch != nil {
		c.batch.clear()
		c.of.batches.Put(c.batch)
		c.batch = nil
	}
}

// read reads what the client has sent. It reports false when the connection has ended.
func (c *conn) read(now time.Time) bool {
	within := c.of.options.Idle
	if len(c.buf) > 0 {
		within = c.half.Add(c.of.options.within).Sub(now)
	} else {
		c.half = time.Time{} // the next command begins when its first byte is here
	}
	if c.multi != nil { // what it keeps is not there for others
		within = min(within, max(0, c.multi.until.Sub(now)))
	}
	if at, ok := c.until.read.set(now, within); ok {
		_ = c.SetReadDeadline(at)
		if c.of.conns.Stopping() { // its own deadline may have been set before this one
			return false
		}
	}
	if len(c.buf) == cap(c.buf) && c.grow(&c.of.large, listen.Origin(c.RemoteAddr())) != nil {
		c.reply.fail("ERR", "the server has no memory for so long a command now")
		c.write(now)
		return false
	}
	listen.NoteIdle(c.Conn, len(c.buf) == 0, now)
	n, err := c.Read(c.buf[len(c.buf):cap(c.buf)])
	c.began = time.Now()
	listen.NoteIdle(c.Conn, false, c.began)
	c.buf = c.buf[:len(c.buf)+n]
	if n == 0 && c.multi != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		c.reply.fail("ERR", "the transaction was not ended within a minute of MULTI: send its commands and EXEC together")
		c.write(c.began)
	}
	return n > 0 || err == nil
}

// carryOut carries out the complete commands that were read. It reports false when the
// connection has ended.
func (c *conn) carryOut(ctx context.Context) bool {
	c.takeBatch()
	// Arguments are parts of the buffer, as text. It changes when all commands have been
	// carried out, and nothing of them is kept: see [conn.login].
	data, text := c.buf, unsafe.String(unsafe.SliceData(c.buf), len(c.buf))
	for !c.ending {
		c.parser.most, c.parser.mostBytes = maxArgs, maxArg
		if c.caller.err != nil {
			c.parser.most, c.parser.mostBytes = maxArgsBefore, maxArgBefore
		}
		args, n, err := c.parser.next(data)
		if _, long := errors.AsType[longError](err); long {
			tooLong(ctx, c, err)
		} else if err != nil {
			c.decide(ctx)
			c.fail("unknown", "ERR", err.Error())
			c.ending = true
			break
		}
		if n == 0 {
			break
		}
		if len(args) > 0 {
			c.args = c.args[:0]
			for _, a := range args {
				c.args = append(c.args, textOf(a, data, text))
			}
			c.do(ctx, c.args, n)
			clear(c.args)
		}
		data, text = data[n:], text[n:]
		if !c.spill(ctx) {
			return false
		}
	}
	c.decide(ctx)
	if len(data) < len(c.buf) || c.half.IsZero() {
		c.half = c.began
	}
	c.buf = append(c.buf[:0], data...)
	return true
}

// tooLong answers a command that is too long. It is charged as one check.
func tooLong(ctx context.Context, c *conn, err error) {
	c.decide(ctx)
	if c.multi != nil {
		c.multi.failed = true
	}
	var long longError
	if errors.As(err, &long) {
		if over := c.caller.Spend(1, long.bytes); over != nil {
			c.failed("unknown", over)
			return
		}
	}
	c.fail("unknown", "ERR", err.Error())
}

// spill sends the replies so far if they are many. It reports false when the connection has ended.
func (c *conn) spill(ctx context.Context) bool {
	if len(c.reply.buf) <= maxReplies {
		return true
	}
	c.decide(ctx)
	c.giveBatch()
	sent := c.write(time.Now())
	c.takeBatch()
	return sent
}

// textOf returns an argument as text. If it lies in data, that is a part of the text of
// data.
func textOf(arg, data []byte, text string) string {
	begin := cap(data) - cap(arg)
	if len(arg) > 0 && begin >= 0 && begin+len(arg) <= len(data) && &data[begin] == &arg[0] {
		return text[begin : begin+len(arg)]
	}
	return string(arg)
}

// String returns the address of the client, for the audit.
func (c *conn) String() string { return c.RemoteAddr().String() }

// identify finds out who sends the commands.
func (c *conn) identify() {
	if c.of.front.Access == nil {
		c.caller = caller{c.of.front.Anyone(c), nil}
		return
	}
	shown := c.credentials(c.auth.token)
	by, err := c.of.front.Identify(c, shown)
	if errors.Is(err, frontend.ErrUnauthenticated) && c.auth.token == "" &&
		(shown.TLS == nil || len(shown.TLS.PeerCertificates) == 0) {
		err = errNothingShown
	}
	c.caller = caller{by, err}
}

// errNothingShown is the error for a caller that shows nothing, in words of this protocol.
var errNothingShown = fmt.Errorf("%w: send AUTH with a token, or a client certificate if the node asks for one",
	frontend.ErrUnauthenticated)

func (c *conn) credentials(token string) (out frontend.Credentials) {
	if token != "" {
		out.Authorization = []string{"Bearer " + token}
	}
	if t, ok := c.Conn.(*tls.Conn); ok {
		state := t.ConnectionState()
		out.TLS, out.Known = &state, &c.known
	}
	return out
}

// login identifies the caller by a token, and answers if it cannot.
func (c *conn) login(ctx context.Context, name, token string) bool {
	if c.of.front.Access == nil {
		c.fail(name, "ERR",
			"AUTH called without any password configured: the operator must start the node with --permissions")
		return false
	}
	by, err := c.of.front.Identify(c, c.credentials(token))
	if err == nil && by.Identified() {
		c.auth.token, c.caller = strings.Clone(token), caller{by, nil}
		return true
	}
	c.pause(ctx)
	code := "WRONGPASS"
	text := "the token is not valid"
	if err != nil {
		text = err.Error()
	}
	c.caller.Tell(frontend.AuditEvent{Action: strings.ToLower(name), Outcome: frontend.AuditRefused, Why: text})
	c.fail(name, code, text)
	return false
}

// pause delays the reply to a wrong token. The last one of a connection ends it, and so
// does one of too many at a time.
func (c *conn) pause(ctx context.Context) {
	c.auth.failures++
	c.ending = c.ending || c.auth.failures >= maxLogins
	if c.of.logging.Add(1) > maxLogging {
		c.ending = true
	} else {
		select {
		case <-time.After(loginPause):
		case <-ctx.Done():
		}
	}
	c.of.logging.Add(-1)
}
