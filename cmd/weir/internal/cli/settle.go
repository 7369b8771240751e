package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/weirwire"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// amendment is what is to be done with a reservation.
type amendment struct {
	verb    string // settle, cancel or extend
	request *limiter.Request
	actual  int64
	named   map[string]int64 // what was used by attribute, in place of actual
	ignore  bool             // nothing is charged if the id is not known
}

// amended is what a node did with it, in the form of its JSON.
type amended struct {
	State        string `json:"state"`
	Estimate     uint64 `json:"estimate,omitempty"`
	Over         uint64 `json:"over,omitempty"`
	RetryAfterMs int64  `json:"retry_after_ms,omitempty"`
}

// amendOptions are the flags of settle, cancel and extend.
type amendOptions struct {
	requestFlags
	server    string
	actual    []string
	ifUnknown string
	json      bool
	shown     credentials
}

func (a *app) settleCommand() *cobra.Command {
	return a.amendCommand(&cobra.Command{
		Use:   "settle PATH --id ID --actual UNITS --server ADDRESS",
		Short: "Settle a reservation with what was used",
		Long: `Settles the reservation that "weir check --id ID --hold TIME" made at a running
node: what was reserved too much comes back where it was charged, and what was too
little is charged, beyond the limit too. Give the flags that named the keys of the
check. The node must allow refunds.

If rules have reserved different numbers, say what was used of each attribute that
states a cost.

To settle again with the same number does nothing. With another number it is an error.`,
		Example: `  weir check /chat --user ada --cost 663 --id answer-7 --hold 5m --server 127.0.0.1:8081
  weir settle /chat --user ada --id answer-7 --actual 412 --server 127.0.0.1:8081
  weir settle /chat --user ada --id answer-8 --actual tokens=800 --actual udollars=1930 --server 127.0.0.1:8081`,
	}, func(cmd *cobra.Command, o *amendOptions) {
		cmd.Flags().StringArrayVar(&o.actual, "actual", nil,
			"what was used, in `UNITS`, or as ATTRIBUTE=UNITS, once for each")
		cmd.Flags().StringVar(&o.ifUnknown, "if-unknown", "charge", "what to do if the id is not known: `charge` or ignore")
		_ = cmd.RegisterFlagCompletionFunc("if-unknown", cobra.FixedCompletions([]string{"charge", "ignore"},
			cobra.ShellCompDirectiveNoFileComp))
	})
}

func (a *app) cancelCommand() *cobra.Command {
	return a.amendCommand(&cobra.Command{
		Use:   "cancel PATH --id ID --server ADDRESS",
		Short: "Cancel a reservation",
		Long: `Gives back all that the reservation of an id has charged at a running node. Give the
flags that named the keys of the check. The node must allow refunds. If the id is not
known, nothing is done.`,
		Example: `  weir cancel /chat --user ada --id answer-7 --server 127.0.0.1:8081`,
	}, func(*cobra.Command, *amendOptions) {})
}

func (a *app) extendCommand() *cobra.Command {
	return a.amendCommand(&cobra.Command{
		Use:   "extend PATH --id ID --hold TIME --server ADDRESS",
		Short: "Let a reservation last longer, or raise its estimate",
		Long: `Lets the reservation of an id at a running node last for a time from now on. With a
cost above its estimate that is the estimate then, if the limits admit the difference;
if not, the reservation stays as it was. Give the flags that named the keys of the
check. The node must allow refunds.

Exit status: 0 if it was extended, 3 if that was denied or the id is not known, 2 if the
node cannot be asked.`,
		Example: `  weir extend /chat --user ada --id answer-7 --hold 5m --cost 900 --server 127.0.0.1:8081`,
	}, func(cmd *cobra.Command, o *amendOptions) {
		o.addHold(cmd.Flags(), "how long it is to last from now on, at most what the rule says")
		o.addCost(cmd.Flags(), "the new estimate in `units`, if it is higher (default: the rule's cost)")
	})
}

// amendCommand completes a command about a reservation. addFlags adds its own flags.
func (a *app) amendCommand(cmd *cobra.Command, addFlags func(cmd *cobra.Command, o *amendOptions)) *cobra.Command {
	var o amendOptions
	verb, _, _ := strings.Cut(cmd.Use, " ")
	cmd.Args = func(cmd *cobra.Command, args []string) error { return o.check(cmd, verb, args) }
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := o.request(cmd, args[0])
		if err != nil {
			return err
		}
		am := amendment{verb: verb, request: r, ignore: o.ifUnknown == "ignore"}
		if verb == "settle" {
			if am.actual, am.named, err = o.used(cmd); err != nil {
				return err
			}
		}
		return a.amend(cmd, &o, am)
	}
	f := cmd.Flags()
	o.requestFlags.addFlags(f)
	f.Lookup("id").Usage = "the `id` of the check"
	f.StringVar(&o.server, "server", "",
		"the node at `ADDRESS` has the reservation: HOST:PORT, http://HOST:PORT or https://HOST:PORT")
	f.BoolVar(&o.json, "json", false, "print an object")
	o.shown.addFlags(f)
	addFlags(cmd, &o)
	return cmd
}

// used returns what was used: one number, or one for each attribute.
func (o *amendOptions) used(cmd *cobra.Command) (actual int64, named map[string]int64, _ error) {
	for _, text := range o.actual {
		units, i := text, strings.LastIndexByte(text, '=')
		if i >= 0 {
			units = text[i+1:]
		}
		n, err := strconv.ParseInt(units, 10, 64)
		_, twice := named[text[:max(i, 0)]]
		switch {
		case err != nil || n < 0 || n > limiter.MaxUnits:
			return 0, nil, usage(cmd, "--actual %q is not a number of units: give 0 to %d", text, int64(limiter.MaxUnits))
		case i < 0 && len(o.actual) > 1:
			return 0, nil, usage(cmd, "--actual %q stands beside others: give one number, or ATTRIBUTE=UNITS for each", text)
		case i < 0:
			return n, nil, nil
		case twice:
			return 0, nil, usage(cmd, "--actual says twice what was used of attribute %q: give it once", text[:i])
		case named == nil:
			named = make(map[string]int64)
		}
		named[text[:i]] = n
	}
	return 0, named, nil
}

// check returns an error for an invalid command line.
func (o *amendOptions) check(cmd *cobra.Command, verb string, args []string) error {
	switch {
	case len(args) == 0:
		return usage(cmd, "no path is given whose reservation to %s", verb)
	case len(args) > 1:
		return usage(cmd, "one path at a time, but %q follows %q", args[1], args[0])
	case o.server == "":
		return usage(cmd, "no node is named that has the reservation: give --server HOST:PORT")
	case o.id == "":
		return usage(cmd, "no reservation is named: give --id, as the check had it")
	case verb == "settle" && len(o.actual) == 0:
		return usage(cmd, "what was used is not given: give --actual UNITS, or use weir cancel")
	case verb == "settle" && o.ifUnknown != "charge" && o.ifUnknown != "ignore":
		return usage(cmd, "--if-unknown %q is not valid: give charge or ignore", o.ifUnknown)
	case verb == "extend" && !cmd.Flags().Changed("hold"):
		return usage(cmd, "it is extended by no time: give --hold, such as --hold 5m")
	}
	return nil
}

// amend asks the node, and prints what it did.
func (a *app) amend(cmd *cobra.Command, o *amendOptions, am amendment) error {
	node, err := a.remoteAt(cmd, o.server, &o.shown)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), askTimeout)
	defer cancel()
	out, err := node.amend(ctx, am)
	if err = errors.Join(err, node.Close()); err != nil {
		return err
	}
	err = a.show(o.json, out, a.amendedText(am, out)+"\n")
	unknown := am.verb == "extend" && out.State == limiter.AmendUnknown.String()
	if err == nil && (unknown || out.State == limiter.AmendDenied.String()) {
		err = errDenied
	}
	return err
}

// amendedText describes in one line what a node did.
func (a *app) amendedText(am amendment, out amended) string {
	used := uint64(am.actual)
	over := ""
	if out.Over > 0 {
		over = fmt.Sprintf(", %d of them beyond a limit", out.Over)
	}
	switch out.State {
	case limiter.AmendRepeated.String():
		if am.named != nil {
			return "it was settled with the same before; nothing has changed"
		}
		return fmt.Sprintf("it was settled with %d before; nothing has changed", used)
	case limiter.AmendCharged.String():
		if am.named != nil {
			return "the id is not known, so what was used was charged" + over
		}
		return fmt.Sprintf("the id is not known, so %d were charged%s", used, over)
	case limiter.AmendUnknown.String():
		return "the id is not known; nothing has changed"
	case limiter.AmendDenied.String():
		text := a.OutStyle.Red("denied") + ": the reservation is as it was"
		if out.RetryAfterMs > 0 {
			text += ", retry in " + millis(out.RetryAfterMs)
		}
		return text
	case limiter.AmendDone.String():
	default: // of a newer version
		return out.State
	}
	switch {
	case am.named != nil:
		return fmt.Sprintf("settled by what was used of each attribute; the first rule had reserved %d%s", out.Estimate, over)
	case am.verb == "extend":
		return fmt.Sprintf("extended by %v, or what the rule allows; %d are reserved", am.request.Hold, out.Estimate)
	case used <= out.Estimate:
		return fmt.Sprintf("settled: %d of %d were used, %d came back", used, out.Estimate, out.Estimate-used)
	}
	return fmt.Sprintf("settled: %d were used, %d more than reserved%s", used, used-out.Estimate, over)
}

func (g *grpcRemote) amend(ctx context.Context, am amendment) (amended, error) {
	api, q := weirv1.NewLimiterClient(g.conn), weirwire.NewCheckRequest(am.request, false)
	var m *weirv1.ReservationResponse
	var err error
	switch am.verb {
	case "settle":
		r := &weirv1.SettleRequest{Path: q.Path, Method: q.Method, User: q.User, Ip: q.Ip, Group: q.Group,
			Attributes: q.Attributes, Id: q.Id, IdTtlUs: q.IdTtlUs, Actual: &am.actual}
		if am.named != nil {
			r.Actual, r.ActualByAttribute = nil, am.named
		}
		if am.ignore {
			r.IfUnknown = weirv1.IfUnknown_IF_UNKNOWN_IGNORE
		}
		m, err = api.Settle(ctx, r)
	case "cancel":
		m, err = api.Cancel(ctx, &weirv1.CancelRequest{Path: q.Path, Method: q.Method, User: q.User, Ip: q.Ip, Group: q.Group,
			Attributes: q.Attributes, Id: q.Id, IdTtlUs: q.IdTtlUs})
	default:
		m, err = api.Extend(ctx, &weirv1.ExtendRequest{
			Path: q.Path, Method: q.Method, User: q.User, Ip: q.Ip, Group: q.Group, Attributes: q.Attributes, Id: q.Id,
			IdTtlUs: q.IdTtlUs, Cost: q.Cost, HoldUs: q.HoldUs,
		})
	}
	if s := status.Convert(err); s.Code() == codes.Unimplemented && strings.Contains(s.Message(), "unknown method") {
		return amended{}, fmt.Errorf("node %s has no reservations: it runs an older version", g.server)
	}
	if err != nil {
		return amended{}, g.failed(ctx, err)
	}
	return amended{
		State: limiter.AmendState(m.GetState()).String(), Estimate: m.GetEstimate(), Over: m.GetOver(),
		RetryAfterMs: limiter.Millis(limiter.Tick(m.GetRetryAfterUs()).Duration()),
	}, nil
}

func (h *httpRemote) amend(ctx context.Context, am amendment) (out amended, err error) {
	q := question(am.request)
	if am.verb == "settle" {
		q["actual"] = am.actual
		if am.named != nil {
			q["actual"] = am.named
		}
		if am.ignore {
			q["if_unknown"] = "ignore"
		}
	}
	_, err = h.post(ctx, "/v1/"+am.verb, q, func(body []byte) bool {
		return json.Unmarshal(body, &out) == nil && out.State != ""
	})
	return out, err
}
