package resp

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/limiter"
)

// Commands that name a key and bring its limit.

// addOwn adds a check of a key with a limit of its own.
func (c *conn) addOwn(ctx context.Context, name, key string, q rate, cost int64, f form) {
	if r, err := c.own(ctx, key, q, frontend.ActionCheck); err != nil {
		c.bad(ctx, name, err)
	} else {
		r.Cost = limiter.Units(cost)
		c.batch.add(check{of: c.last, rate: q, cost: cost, form: f}, r, cost == 0)
	}
}

// own returns the request for a key with a limit of its own.
func (c *conn) own(ctx context.Context, key string, q rate, a frontend.Action) (limiter.Request, error) {
	b := c.batch
	if b.limit == nil || b.rate != q {
		l, err := c.of.rates.of(q)
		if err != nil {
			return limiter.Request{}, err
		}
		b.rate, b.limit = q, l
	}
	r := limiter.Request{Path: counterName(key), Limits: b.own(b.limit)}
	if err := c.caller.Admit(&r, a); err != nil {
		return limiter.Request{}, err
	}
	if !b.asked || b.tenant != r.Tenant {
		user, err := c.of.flushes.of(ctx, r.Tenant)
		if err != nil {
			return limiter.Request{}, err
		}
		b.tenant, b.user, b.asked = r.Tenant, user, true
	}
	r.User = b.user
	return r, nil
}

func doThrottle(ctx context.Context, c *conn, args []string) {
	key, q, cost, err := throttle(args)
	if err != nil {
		c.bad(ctx, "CL.THROTTLE", err)
		return
	}
	c.addOwn(ctx, "CL.THROTTLE", key, q, cost, formThrottle)
}

func doEval(ctx context.Context, c *conn, args []string) {
	sum := sha1.Sum([]byte(args[0])) //nolint:gosec // Redis names scripts by it
	runScript(ctx, c, "EVAL", hex.EncodeToString(sum[:]), args[1:])
}

func doEvalSHA(ctx context.Context, c *conn, args []string) {
	runScript(ctx, c, "EVALSHA", strings.ToLower(args[0]), args[1:])
}

// errScript is why a script is not run.
const errScript = "this server runs no scripts: it answers those of redis_rate v10 and ulule/limiter v3, and the " +
	"commands that COMMAND lists"

func runScript(ctx context.Context, c *conn, name, sha string, args []string) {
	if !knownScript(sha) {
		c.decide(ctx)
		if name == "EVALSHA" { // clients then send the text
			c.fail(name, "NOSCRIPT", "No matching script. Please use EVAL.")
		} else {
			c.fail(name, "ERR", errScript)
		}
		return
	}
	switch sha {
	case scriptIncrement:
		increment(ctx, c, name, args)
		return
	case scriptCount:
		count(ctx, c, name, args)
		return
	}
	key, q, cost, err := scripted(args)
	switch {
	case err != nil:
		c.bad(ctx, name, err)
	case sha == scriptAllowAtMost && cost > 0:
		c.decide(ctx)
		atMost(ctx, c, name, key, q, cost)
	case sha == scriptAllowAtMost:
		c.addOwn(ctx, name, key, q, 0, formAtMost)
	default:
		c.addOwn(ctx, name, key, q, cost, formScript)
	}
}

// maxTries is how often allowAtMost tries to charge what seemed to be left, while others
// charge the same key.
const maxTries = 5

// atMost charges as much of a cost as fits, and answers.
func atMost(ctx context.Context, c *conn, name, key string, q rate, cost int64) {
	ctx, end := c.traced(ctx, c.of.commands[name].method)
	defer end()
	r, err := c.own(ctx, key, q, frontend.ActionCheck)
	defer c.batch.clear()
	ds := make([]limiter.Decision, 1)
	units := cost
	for try := 0; err == nil; try++ {
		r.Cost = limiter.Units(units)
		if err = c.caller.Decide(ctx, []limiter.Request{r}, ds, []bool{false}); err != nil {
			break
		}
		d := &ds[0]
		left := int64(d.Limit(0).Remaining)
		switch {
		case d.Allowed:
			c.reply.scriptAllowed(units, d)
			c.served(name, "OK")
			return
		case left == 0 || try == maxTries || left >= units:
			// A retry of one unit is what the script tells.
			r.Cost = limiter.Units(0)
			if err = c.caller.Decide(ctx, []limiter.Request{r}, ds, []bool{true}); err == nil {
				c.reply.scriptDenied(q, 1, &ds[0])
				c.served(name, "DENIED")
				return
			}
		default:
			units = left
		}
	}
	c.failed(name, err)
}

func doScript(_ context.Context, c *conn, args []string) {
	switch sub := strings.ToUpper(args[0]); {
	case sub == "LOAD" && len(args) == 2:
		sum := sha1.Sum([]byte(args[1])) //nolint:gosec // Redis names scripts by it
		if sha := hex.EncodeToString(sum[:]); knownScript(sha) {
			c.reply.bulk(sha)
			c.served("SCRIPT", "OK")
		} else {
			c.fail("SCRIPT", "ERR", errScript)
		}
	case sub == "EXISTS" && len(args) > 1:
		c.reply.array(len(args) - 1)
		for _, sha := range args[1:] {
			known := int64(0)
			if knownScript(strings.ToLower(sha)) {
				known = 1
			}
			c.reply.integer(known)
		}
		c.served("SCRIPT", "OK")
	default:
		c.fail("SCRIPT", "ERR", "give SCRIPT LOAD <script> or SCRIPT EXISTS <sha1> [<sha1> ...]")
	}
}

func doDel(ctx context.Context, c *conn, args []string) {
	deleted, any := int64(0), rate{units: 1, burst: 1, period: time.Second} // the key goes whatever its limit is
	for _, key := range args {
		r, err := c.own(ctx, key, any, frontend.ActionReset)
		n := 0
		if err == nil {
			r.Limits = append(slices.Clone(r.Limits), c.of.anyWindow)
			n, err = c.caller.Reset(ctx, r)
		}
		c.batch.clear()
		if err != nil {
			c.notReset("DEL", err)
			return
		}
		if n > 0 {
			deleted++
		}
	}
	c.caller.Tell(frontend.AuditEvent{Action: "del", Outcome: frontend.AuditDone, Why: frontend.WhyReset(int(deleted))})
	c.reply.integer(deleted)
	c.served("DEL", "OK")
}

func doFlush(ctx context.Context, c *conn, args []string) {
	if len(args) == 1 && !strings.EqualFold(args[0], "ASYNC") && !strings.EqualFold(args[0], "SYNC") {
		c.fail("FLUSHDB", "ERR", "syntax error: give FLUSHDB [ASYNC|SYNC]")
		return
	}
	// It resets the keys that have a limit of their own, so it needs what DEL of one needs.
	r := limiter.Request{Limits: []*limiter.Limit{c.of.flushes.limit}}
	err := c.caller.Admit(&r, frontend.ActionReset)
	if err == nil {
		err = c.of.flushes.flush(ctx, r.Tenant)
	}
	if err != nil {
		c.notReset("FLUSHDB", err)
		return
	}
	c.account("FLUSHDB", nil)
	c.reply.ok()
	c.served("FLUSHDB", "OK")
}
