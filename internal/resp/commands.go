package resp

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/limiter"
)

type command struct {
	name   string
	method string // its name for the observer
	// least and most are how many arguments it takes after its name; most is -1 for any.
	least, most int
	// key is the index of the argument that is a key, from 1; 0: it has none. Some clients of a Redis Cluster send
	// nowhere what has none, so a path is one too.
	key int
	// open commands are answered before the client has proved who it is.
	open bool
	// now commands are carried out at once in a transaction, too.
	now bool
	// check commands wait for the batch; the others are carried out when those before them
	// are decided.
	check bool
	// changes is what commands that are no checks, and change counters, count as in budgets.
	changes changes
	run     func(ctx context.Context, c *conn, args []string)
}

// changes is how many changes a command asks for.
type changes uint8

const (
	changesNothing changes = iota
	changesOnce
	changesEach // of its arguments
)

// newCommands returns all commands by their names in capitals.
func newCommands() map[string]*command {
	commands := make(map[string]*command)
	for _, k := range []command{
		{name: "CL.THROTTLE", least: 0, most: -1, key: 1, check: true, run: doThrottle},
		{name: "WEIR.CHECK", least: 1, most: -1, key: 1, check: true, run: doWeirCheck},
		{name: "WEIR.PEEK", least: 1, most: -1, key: 1, check: true, run: doWeirPeek},
		{name: "WEIR.RESET", least: 1, most: -1, key: 1, changes: changesOnce, run: doWeirReset},
		{name: "WEIR.SETTLE", least: 1, most: -1, key: 1, changes: changesOnce, run: doWeirSettle},
		{name: "WEIR.CANCEL", least: 1, most: -1, key: 1, changes: changesOnce, run: doWeirCancel},
		{name: "WEIR.EXTEND", least: 1, most: -1, key: 1, changes: changesOnce, run: doWeirExtend},
		{name: "EVALSHA", least: 2, most: -1, key: 3, check: true, run: doEvalSHA},
		{name: "EVAL", least: 2, most: -1, key: 3, check: true, run: doEval},
		{name: "SCRIPT", least: 1, most: -1, run: doScript},
		{name: "DEL", least: 1, most: -1, key: 1, changes: changesEach, run: doDel},
		{name: "UNLINK", least: 1, most: -1, key: 1, changes: changesEach, run: doDel},
		{name: "FLUSHDB", least: 0, most: 1, changes: changesOnce, run: doFlush},
		{name: "MULTI", least: 0, most: 0, now: true, run: doMulti},
		{name: "EXEC", least: 0, most: 0, now: true, run: doExec},
		{name: "DISCARD", least: 0, most: 0, now: true, run: doDiscard},
		{name: "PING", least: 0, most: 1, run: doPing},
		{name: "ECHO", least: 1, most: 1, run: doEcho},
		{name: "SELECT", least: 1, most: 1, run: doSelect},
		{name: "INFO", least: 0, most: -1, run: doInfo},
		{name: "COMMAND", least: 0, most: -1, run: doCommand},
		{name: "CLIENT", least: 1, most: -1, run: doClient},
		{name: "CLUSTER", least: 1, most: -1, run: doCluster},
		{name: "READONLY", least: 0, most: 0, run: doReadOnly},
		{name: "READWRITE", least: 0, most: 0, run: doReadOnly},
		{name: "HELLO", least: 0, most: -1, open: true, run: doHello},
		{name: "AUTH", least: 1, most: 2, open: true, run: doAuth},
		{name: "QUIT", least: 0, most: -1, open: true, now: true, run: doQuit},
	} {
		k.method = "RESP " + k.name
		commands[k.name] = &k
	}
	return commands
}

// find returns the command of a name, in any case; nil if there is none.
func (s *Server) find(name string) *command {
	var upper [16]byte
	if len(name) > len(upper) {
		return nil
	}
	for i := range len(name) {
		c := name[i]
		if 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		upper[i] = c
	}
	return s.commands[string(upper[:len(name)])]
}

// do carries one command out, or adds it to the batch.
func (c *conn) do(ctx context.Context, args []string, bytes int) {
	k := c.last
	if k == nil || k.name != args[0] {
		k = c.of.find(args[0])
		c.last = k
	}
	if k == nil || !k.check || len(c.batch.checks) >= maxBatch {
		c.decide(ctx) // replies come in the order of commands
	}
	n := len(args) - 1
	known := k != nil && (k.open || c.caller.err == nil) && n >= k.least && (k.most < 0 || n <= k.most)
	switch {
	case c.multi == nil:
	case !known:
		c.multi.failed = true
	case !k.now:
		c.multi.queue(c, k, args, bytes)
		return
	}
	switch {
	case k == nil && isHTTP(args[0]):
		c.fail("unknown", "ERR", "this is the Redis protocol, and not HTTP")
		c.ending = true
	case k == nil:
		c.fail("unknown", "ERR", fmt.Sprintf("unknown command %.64q: this server limits rates; COMMAND lists what it knows",
			args[0]))
	case !k.open && c.caller.err != nil:
		c.decide(ctx)
		c.refused(k.name, c.caller.err)
	case n < k.least || k.most >= 0 && n > k.most:
		c.decide(ctx)
		c.fail(k.name, "ERR", "wrong number of arguments for '"+strings.ToLower(k.name)+"' command")
	default:
		if err := c.spend(k, n, bytes); err != nil {
			c.bad(ctx, k.name, err)
			return
		}
		if k.changes != changesNothing {
			var end func()
			ctx, end = c.traced(ctx, k.method)
			defer end()
		}
		k.run(ctx, c, args[1:])
	}
}

// isHTTP reports whether a command is a line of a request over HTTP. A web page can have a browser
// send such requests to any address, with a body of its choice, whose lines would be commands. So
// the connection ends with the first line that only HTTP has, as in Redis.
func isHTTP(name string) bool {
	return strings.EqualFold(name, "POST") || strings.EqualFold(name, "Host:")
}

// spend charges the caller's budget with a command of n arguments.
func (c *conn) spend(k *command, n, bytes int) error {
	checks := 0
	switch {
	case k.check, k.changes == changesOnce:
		checks = 1
	case k.changes == changesEach:
		checks = n
	}
	return c.caller.Spend(checks, bytes)
}

// account tells the audit what became of a command: err is why it was refused or failed.
func (c *conn) account(name string, err error) { c.caller.Account(strings.ToLower(name), true, err) }

// bad answers a check that cannot be carried out, after those before it.
func (c *conn) bad(ctx context.Context, name string, err error) {
	c.decide(ctx)
	c.failed(name, err)
}

// failed appends the reply to a command that failed.
func (c *conn) failed(name string, err error) {
	var bad commandError
	switch {
	case frontend.Refused(err):
		c.refused(name, err)
	case errors.Is(err, frontend.ErrBudget):
		c.fail(name, "TRYAGAIN", err.Error())
	case errors.As(err, &bad), errors.Is(err, limiter.ErrInvalid):
		c.fail(name, "ERR", err.Error())
	case errors.Is(err, limiter.ErrUnanswered), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		c.fail(name, "TRYAGAIN", err.Error())
	default:
		c.fail(name, "ERR", err.Error())
	}
}

// notReset appends the reply to a command that resets, and failed. Some of it may have been done,
// so the audit is told.
func (c *conn) notReset(name string, err error) {
	if c.failed(name, err); !frontend.Refused(err) {
		c.account(name, err)
	}
}

// refused appends the reply to a command that the caller may not give.
func (c *conn) refused(name string, err error) {
	code := "NOPERM"
	if errors.Is(err, frontend.ErrUnauthenticated) {
		code = "NOAUTH"
	}
	c.account(name, err)
	c.fail(name, code, err.Error())
}

func (c *conn) fail(name, code, text string) {
	c.reply.fail(code, text)
	c.served(name, code)
}
