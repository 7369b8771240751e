package resp

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/limiter"
)

// Commands by which the rules of the node decide.

func doWeirCheck(ctx context.Context, c *conn, args []string) {
	doWeir(ctx, c, "WEIR.CHECK", args, frontend.ActionCheck)
}

func doWeirPeek(ctx context.Context, c *conn, args []string) {
	doWeir(ctx, c, "WEIR.PEEK", args, frontend.ActionPeek)
}

// weir adds a check or a peek by the node's rules.
func doWeir(ctx context.Context, c *conn, name string, args []string, a frontend.Action) {
	r, err := question(args, usage, nil)
	peek := a == frontend.ActionPeek || r.Cost == limiter.Units(0)
	if err == nil {
		err = c.caller.Admit(&r, a)
	}
	if err != nil {
		c.bad(ctx, name, err)
		return
	}
	c.batch.add(check{of: c.last, form: formWeir}, r, peek)
}

func doWeirReset(ctx context.Context, c *conn, args []string) {
	r, err := question(args, usage, nil)
	if err == nil {
		err = c.caller.Admit(&r, frontend.ActionReset)
	}
	if err != nil {
		c.failed("WEIR.RESET", err)
		return
	}
	n, err := c.caller.Reset(ctx, r)
	if err != nil {
		c.notReset("WEIR.RESET", err)
		return
	}
	c.caller.Tell(frontend.AuditEvent{Action: "weir.reset", Outcome: frontend.AuditDone, Why: frontend.WhyReset(n)})
	c.reply.integer(int64(n))
	c.served("WEIR.RESET", "OK")
}

// usage is what follows WEIR.CHECK.
const usage = "<path> [USER u] [IP a] [METHOD m] [GROUP g] [RULE r] [ATTR name value ...] [COST n] [ID id] [HOLD ms]"

// question reads the arguments of WEIR.CHECK: a path, and pairs of a name and a value. more,
// if not nil, takes further names, and reports whether it knows them.
func question(args []string, usage string, more func(name, value string) (bool, error)) (r limiter.Request, err error) {
	r.Path = args[0]
	var room [16]string
	seen := room[:0]
	for args = args[1:]; len(args) > 0; {
		name := strings.ToUpper(args[0])
		values := 1
		if name == "ATTR" {
			values = 2
		}
		if len(args) <= values {
			return r, commandError(fmt.Sprintf("nothing follows %.40q: give %s", args[len(args)-1], usage))
		}
		v := args[1]
		if name != "ATTR" && !(name == "ACTUAL" && strings.Contains(v, "=")) {
			if slices.Contains(seen, name) {
				return r, commandError(name + " is given twice: give it once")
			}
			seen = append(seen, name)
		}
		switch name {
		case "USER":
			r.User = v
		case "IP":
			r.IP = v
		case "METHOD":
			r.Method = v
		case "GROUP":
			r.Group = v
		case "RULE":
			r.Rule = v
		case "ID":
			if v == "" {
				return r, commandError("ID is empty: give an id of the request's own, or leave ID out")
			}
			r.ID = v
		case "COST":
			n, err := integerOf("COST", v)
			if err != nil {
				return r, err
			}
			r.Cost = limiter.Units(n)
		case "HOLD":
			if r.Hold, err = holdOf(v); err != nil {
				return r, err
			}
		case "ATTR":
			if r.Attributes == nil {
				r.Attributes = make(map[string]string)
			}
			if _, twice := r.Attributes[v]; twice {
				return r, commandError(fmt.Sprintf("ATTR %.40q is given twice: give it once", v))
			}
			r.Attributes[v] = args[2]
		default:
			known := false
			if more != nil {
				known, err = more(name, v)
			}
			if err == nil && !known {
				err = commandError(fmt.Sprintf("%.40q is not known here: give %s", args[0], usage))
			}
			if err != nil {
				return r, err
			}
		}
		args = args[1+values:]
	}
	return r, nil
}

// holdOf reads how long a reservation is to last.
func holdOf(text string) (time.Duration, error) {
	n, err := integerOf("HOLD", text)
	most := limiter.MaxHold.Milliseconds()
	if err == nil && (n < 1 || n > most) {
		err = commandError(fmt.Sprintf("HOLD is %d: give 1 to %d milliseconds", n, most))
	}
	return time.Duration(n) * time.Millisecond, err
}
