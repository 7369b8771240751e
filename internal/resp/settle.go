package resp

import (
	"context"
	"fmt"
	"strings"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/limiter"
)

// Commands that end or extend reservations, which WEIR.CHECK with HOLD makes.

// What follows each of them.
const (
	settleUsage = "<path> [USER u] [IP a] [METHOD m] [GROUP g] [RULE r] [ATTR name value ...] ID id " +
		"(ACTUAL n | ACTUAL name=n ...) [IF_UNKNOWN charge|ignore]"
	cancelUsage = "<path> [USER u] [IP a] [METHOD m] [GROUP g] [RULE r] [ATTR name value ...] ID id"
	extendUsage = "<path> [USER u] [IP a] [METHOD m] [GROUP g] [RULE r] [ATTR name value ...] ID id HOLD ms [COST n]"
)

func doWeirSettle(ctx context.Context, c *conn, args []string) {
	actual, named := int64(-1), map[string]int64(nil)
	var opts []limiter.SettleOption
	r, err := question(args, settleUsage, func(name, v string) (known bool, err error) {
		switch name {
		case "ACTUAL":
			if i := strings.LastIndexByte(v, '='); i >= 0 {
				err = namedActual(&named, v[:i], v[i+1:])
				break
			}
			actual, err = integerOf(name, v)
		case "IF_UNKNOWN":
			switch opts = nil; {
			case strings.EqualFold(v, "ignore"):
				opts = append(opts, limiter.IgnoreUnknown())
			case !strings.EqualFold(v, "charge"):
				err = commandError(fmt.Sprintf("IF_UNKNOWN is %.40q: give charge or ignore", v))
			}
		default:
			return false, nil
		}
		return true, err
	})
	switch {
	case err == nil && (actual < 0) == (named == nil):
		err = commandError("ACTUAL says how many units were used, from 0, or of each attribute: give " + settleUsage)
	case named != nil:
		actual, opts = 0, append(opts, limiter.Actual(named))
	}
	c.amend("WEIR.SETTLE", &r, alone(&r, err, settleUsage), func() (limiter.Amended, error) {
		return c.caller.Settle(ctx, r, actual, opts...)
	})
}

// namedActual adds what was used of an attribute.
func namedActual(all *map[string]int64, attribute, text string) error {
	n, err := integerOf("ACTUAL", text)
	if err != nil {
		return err
	}
	if _, twice := (*all)[attribute]; twice {
		return commandError(fmt.Sprintf("ACTUAL of attribute %.40q is given twice: give it once", attribute))
	}
	if *all == nil {
		*all = make(map[string]int64)
	}
	(*all)[attribute] = n
	return nil
}

func doWeirCancel(ctx context.Context, c *conn, args []string) {
	r, err := question(args, cancelUsage, nil)
	c.amend("WEIR.CANCEL", &r, alone(&r, err, cancelUsage), func() (limiter.Amended, error) {
		return c.caller.Settle(ctx, r, 0, limiter.IgnoreUnknown())
	})
}

func doWeirExtend(ctx context.Context, c *conn, args []string) {
	r, err := question(args, extendUsage, nil)
	c.amend("WEIR.EXTEND", &r, err, func() (limiter.Amended, error) {
		return c.caller.Extend(ctx, r)
	})
}

// alone returns err, or why a request that ends a reservation has what only makes one.
func alone(r *limiter.Request, err error, usage string) error {
	if err == nil && (r.Cost != limiter.Cost{} || r.Hold != 0) {
		return commandError("COST and HOLD are for reservations that begin or go on: give " + usage)
	}
	return err
}

// amend changes the reservation of a request, and answers. err is why the request cannot be
// read.
func (c *conn) amend(name string, r *limiter.Request, err error, do func() (limiter.Amended, error)) {
	if err == nil {
		err = c.caller.Admit(r, frontend.ActionRefund)
	}
	var a limiter.Amended
	if err == nil {
		a, err = do()
	}
	if err != nil {
		c.failed(name, err)
		return
	}
	c.reply.amended(&a)
	code := "OK"
	if a.State == limiter.AmendDenied {
		code = "DENIED"
	}
	c.served(name, code)
}

// amended appends what was done with a reservation, as names and values. The time is in
// milliseconds, rounded up; -1 means that there is none.
func (r *reply) amended(a *limiter.Amended) {
	retry := int64(-1)
	if a.RetryAfter > 0 {
		retry = limiter.Millis(a.RetryAfter)
	}
	r.mapping(4)
	r.bulk("state")
	r.bulk(a.State.String())
	r.bulk("estimate")
	r.integer(int64(a.Estimate))
	r.bulk("over")
	r.integer(int64(a.Over)) //nolint:gosec // far below: a sum of at most 65 costs
	r.bulk("retry_after_ms")
	r.integer(retry)
}
