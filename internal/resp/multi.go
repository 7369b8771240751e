package resp

import (
	"context"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/listen"
)

// Transactions: what stands between MULTI and EXEC is carried out with EXEC, and its replies are the elements of
// one. Some clients send every pipeline so.

// Bounds of a transaction. What it keeps is also part of the memory for long commands, maxLarge.
const (
	maxQueue      = 1000
	maxQueueBytes = 256 << 10
	// queueTimes is how many times commandWithin there is from MULTI to EXEC: a minute.
	queueTimes = 6
)

// transaction is what a client has sent since MULTI.
type transaction struct {
	commands [][]string
	bytes    int64
	failed   bool      // a command was refused, so EXEC carries none out
	until    time.Time // when EXEC must be here
}

// keep keeps a command, and returns why it cannot.
func (t *transaction) keep(c *conn, args []string, bytes int) error {
	size := int64(bytes + 24 + 16*len(args))
	if len(t.commands) == maxQueue || t.bytes+size > maxQueueBytes {
		return commandError("the transaction has more than 1000 commands or 256 KiB: send several")
	}
	if err := c.of.large.Take(listen.Origin(c.RemoteAddr()), size); err != nil {
		return commandError("the server has no memory for more of this transaction now")
	}
	t.bytes += size
	kept := make([]string, len(args))
	for i, a := range args {
		kept[i] = strings.Clone(a) // they lie in the buffer of the connection
	}
	t.commands = append(t.commands, kept)
	return nil
}

// queue keeps a command, and answers. It is charged to the caller's budget for its bytes now, and for its checks
// when it is carried out.
func (t *transaction) queue(c *conn, k *command, args []string, bytes int) {
	var err error
	if k.open {
		err = commandError("Command not allowed inside a transaction")
	}
	if err == nil {
		err = c.caller.Spend(0, bytes)
	}
	if err == nil {
		err = t.keep(c, args, bytes)
	}
	if err != nil {
		t.failed = true
		c.failed(k.name, err)
		return
	}
	c.reply.simple("QUEUED")
}

func doMulti(_ context.Context, c *conn, _ []string) {
	if c.multi != nil {
		c.fail("MULTI", "ERR", "MULTI calls can not be nested")
		return
	}
	c.multi = &transaction{until: c.began.Add(queueTimes * c.of.options.within)}
	c.reply.ok()
	c.served("MULTI", "OK")
}

func doDiscard(_ context.Context, c *conn, _ []string) {
	if c.multi == nil {
		c.fail("DISCARD", "ERR", "DISCARD without MULTI")
		return
	}
	c.of.large.Give(listen.Origin(c.RemoteAddr()), c.multi.bytes)
	c.multi = nil
	c.reply.ok()
	c.served("DISCARD", "OK")
}

func doExec(ctx context.Context, c *conn, _ []string) {
	t := c.multi
	if t == nil {
		c.fail("EXEC", "ERR", "EXEC without MULTI")
		return
	}
	c.multi = nil
	defer c.of.large.Give(listen.Origin(c.RemoteAddr()), t.bytes)
	if t.failed {
		c.fail("EXEC", "EXECABORT", "Transaction discarded because of previous errors.")
		return
	}
	c.reply.array(len(t.commands))
	c.served("EXEC", "OK")
	for _, args := range t.commands {
		c.do(ctx, args, 0)
		if !c.spill(ctx) {
			c.ending = true
			return
		}
	}
}
