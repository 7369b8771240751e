package resp

import (
	"context"
	"fmt"
	"strings"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/transport"
)

// Commands by which the rules of the node decide.

func doWeirCheck(ctx context.Context, c *conn, args []string) {
	doWeir(ctx, c, "WEIR.CHECK", args, transport.ActionCheck)
}

func doWeirPeek(ctx context.Context, c *conn, args []string) {
	doWeir(ctx, c, "WEIR.PEEK", args, transport.ActionPeek)
}

// weir adds a check or a peek by the node's rules.
func doWeir(ctx context.Context, c *conn, name string, args []string, a transport.Action) {
	r, err := question(args)
	peek := a == transport.ActionPeek || r.Cost == limiter.Units(0)
	if err == nil {
		err = c.admit(&r, a)
	}
	if err != nil {
		c.bad(ctx, name, err)
		return
	}
	c.batch.add(check{of: c.last, form: formWeir}, r, peek)
}

func doWeirReset(ctx context.Context, c *conn, args []string) {
	r, err := question(args)
	if err == nil {
		err = c.admit(&r, transport.ActionReset)
	}
	n := 0
	if err == nil {
		n, err = c.of.options.Decider.Reset(ctx, r)
	}
	if err != nil {
		c.failed("WEIR.RESET", err)
		return
	}
	c.audited("WEIR.RESET", transport.AuditDone, "")
	c.reply.integer(int64(n))
	c.served("WEIR.RESET", "OK")
}

// question reads the arguments of WEIR.CHECK: a path, and pairs of a name and a value.
func question(args []string) (r limiter.Request, err error) {
	r.Path = args[0]
	for args = args[1:]; len(args) > 0; {
		name := strings.ToUpper(args[0])
		values := 1
		if name == "ATTR" {
			values = 2
		}
		if len(args) <= values {
			return r, commandError(fmt.Sprintf("nothing follows %.40q: give <path> [USER u] [IP a] [METHOD m] [GROUP g] [RULE r] [ATTR name value ...] [COST n] [ID id]", args[len(args)-1]))
		}
		v := args[1]
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
			r.ID = v
		case "COST":
			n, err := integerOf("COST", v)
			if err != nil {
				return r, err
			}
			r.Cost = limiter.Units(n)
		case "ATTR":
			if r.Attributes == nil {
				r.Attributes = make(map[string]string)
			}
			r.Attributes[v] = args[2]
		default:
			return r, commandError(fmt.Sprintf("%.40q is none of USER, IP, METHOD, GROUP, RULE, ATTR, COST and ID", args[0]))
		}
		args = args[1+values:]
	}
	return r, nil
}
