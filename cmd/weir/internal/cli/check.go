package cli

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/limiter"
)

type checkOptions struct {
	requestFlags
	path    string
	tenant  string
	rules   string
	server  string
	at      string
	times   int
	every   time.Duration
	explain bool
	json    bool
	redis   redisOptions
	shown   credentials
}

// maxTimes bounds --times. Use replay for more.
const maxTimes = 100_000

func (a *app) checkCommand() *cobra.Command {
	var o checkOptions
	cmd := &cobra.Command{
		Use:   "check PATH --rules FILE | --server ADDRESS",
		Short: "Decide one request under rules, and say why",
		Long: `Decides a request under a rules file as a node that was just started would:
nothing has been counted yet. --times repeats the request against the same
counters, and --every moves the clock in between.

With --server a running node decides, and counts. Its address is HOST:PORT for
gRPC or http://HOST:PORT; --every then really waits. With --redis-addr beside the
rules Redis decides, and counts, as it does for nodes with --backend redis.

--explain shows, before each decision, every counter's state and the comparison
that decides. With --json it prints that explanation, its "answer" being the
decision. With --server the node explains, and in a cluster the owner of each
counter, whichever node is asked. For a check in Redis it also shows the exact EVAL
for redis-cli.

With --id the check counts once, however often it is made: a repetition gets the
answer of the first. With --hold beside it the check is a reservation: its cost is an
estimate, which "weir settle" settles, and "weir cancel" and "weir extend" change.

Exit status: 0 if all were allowed, 3 if one was denied, 2 if the node or Redis
cannot be asked.`,
		Example: `  weir check /towns --user ada --rules rules.yaml
  weir check /towns --user ada --rules rules.yaml --times 7 --every 100ms
  weir check /login --ip 10.0.0.7 --method POST --rules rules.yaml --explain
  weir check /towns --user ada --server 127.0.0.1:8081
  weir check /towns --user ada --server 127.0.0.1:8081 --explain --cost 0
  weir check /towns --user ada --rules rules.yaml --redis-addr 127.0.0.1:6379 --explain
  weir check /towns --user ada --cost 3 --at 2026-12-31T23:59:59Z --rules rules.yaml --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			ofRedis, ofNode := firstGiven(cmd, new(redisOptions).addFlags), firstGiven(cmd, new(credentials).addFlags)
			switch {
			case len(args) == 0:
				return usage(cmd, "no path is given to check")
			case len(args) > 1:
				return usage(cmd, "one path at a time, but %q follows %q", args[1], args[0])
			case o.rules == "" && o.server == "" && o.redis.addr == "":
				return usage(cmd, "no rules are named: give --rules FILE, or a running node with --server HOST:PORT")
			case o.times < 1 || o.times > maxTimes:
				return usage(cmd, "--times %d is out of range: give 1 to %d", o.times, maxTimes)
			case o.every < 0:
				return usage(cmd, "--every %v is negative: time goes forward", o.every)
			case ofRedis != "" && o.redis.addr == "":
				return usage(cmd, "--%s is for --redis-addr: give it too, or leave this out", ofRedis)
			case ofNode != "" && o.server == "":
				return usage(cmd, "--%s is for --server: no node is asked", ofNode)
			case o.redis.addr != "":
				return o.redis.checkFlags(cmd, &o)
			case o.server != "":
				return o.checkServerFlags(cmd)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.path = args[0]
			r, err := o.request(cmd, o.path)
			if err != nil {
				return err
			}
			if r.Tenant = o.tenant; o.tenant != "" && o.server == "" {
				return usage(cmd, "--tenant is for --server: a rules file has no tenants")
			}
			switch {
			case o.server != "":
				return a.checkServer(cmd, o, r)
			case o.redis.addr != "":
				return a.checkRedis(cmd, o, r)
			}
			at, err := a.instant(cmd, o.at)
			if err != nil {
				return err
			}
			return a.check(cmd.Context(), o, r, at)
		},
	}
	o.addFlags(cmd)
	return withRulesCompletion(cmd)
}

func (o *checkOptions) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.rules, "rules", "", "rules `FILE`")
	f.StringVar(&o.server, "server", "",
		"let the node at `ADDRESS` decide: HOST:PORT, http://HOST:PORT or https://HOST:PORT")
	f.StringVar(&o.tenant, "tenant", "", "peek at the counters of a `tenant`, as weir reset does")
	o.requestFlags.addFlags(f)
	o.addCost(f, "cost in `units`, 0 to peek (default: the rule's)")
	o.addHold(f, "reserve the cost for so long, until weir settle says what was used; needs --id")
	f.StringVar(&o.at, "at", "", "the `time` of the first check, such as 2026-12-31T23:59:59Z (default now)")
	f.IntVar(&o.times, "times", 1, "number of checks")
	f.DurationVar(&o.every, "every", 0, "time between checks, such as 100ms")
	f.BoolVar(&o.explain, "explain", false, "show each counter's state and the arithmetic")
	f.BoolVar(&o.json, "json", false, "print an object for one check, an array for several")
	o.redis.addFlags(f)
	o.shown.addFlags(f)
}

// firstGiven returns the name of a flag that is given, of those that add makes; "" if none is.
func firstGiven(cmd *cobra.Command, add func(*pflag.FlagSet)) (name string) {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	add(f)
	f.VisitAll(func(flag *pflag.Flag) {
		if name == "" && cmd.Flags().Changed(flag.Name) {
			name = flag.Name
		}
	})
	return name
}

// instant parses --at. Times without a zone are in UTC.
func (a *app) instant(cmd *cobra.Command, text string) (time.Time, error) {
	if text == "" {
		return a.Now(), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", time.DateOnly,
		"02/Jan/2006:15:04:05 -0700"} {
		t, err := time.Parse(layout, text)
		if err == nil && !t.Before(time.Unix(0, 0)) {
			return t, nil
		}
	}
	return time.Time{}, usage(cmd, "--at %q is not a time after 1970: write it as 2026-12-31T23:59:59Z", text)
}

type checked struct {
	at          time.Time
	answer      limiter.Answer
	explanation *limiter.Explanation
}

func (a *app) check(ctx context.Context, o checkOptions, r *limiter.Request, at time.Time) error {
	files, err := a.loadRules([]string{o.rules})
	if err != nil {
		return err
	}
	now := at
	node, err := openNode(ctx, files[0], func() time.Time { return now })
	if err != nil {
		return err
	}
	all := make([]checked, o.times)
	for i := range all {
		now = at.Add(time.Duration(i) * o.every)
		if all[i], err = checkOnce(ctx, node, r, now, o.explain); err != nil {
			return errors.Join(err, node.Close())
		}
	}
	return errors.Join(node.Close(), a.conclude(all, o))
}

// repeat asks as often as it is to, and closes what it asks. Between checks it waits in real time.
func (a *app) repeat(o checkOptions, of io.Closer, ask func() (checked, error)) error {
	all := make([]checked, 0, min(o.times, 1000))
	for i := range o.times {
		if i > 0 && o.every > 0 {
			time.Sleep(o.every)
		}
		c, err := ask()
		if err != nil {
			return errors.Join(err, of.Close())
		}
		all = append(all, c)
	}
	return errors.Join(of.Close(), a.conclude(all, o))
}

// conclude prints the answers, and returns errDenied if one was denied.
func (a *app) conclude(all []checked, o checkOptions) error {
	if err := a.printChecks(all, o); err != nil {
		return err
	}
	for _, c := range all {
		if !c.answer.Allowed {
			return errDenied
		}
	}
	return nil
}

func checkOnce(ctx context.Context, n node, r *limiter.Request, at time.Time, explain bool) (checked, error) {
	c := checked{at: at}
	var err error
	if explain {
		if c.explanation, err = n.Explain(ctx, *r); err != nil {
			return c, err
		}
	}
	var d limiter.Decision
	if err := n.CheckInto(ctx, r, &d); err != nil {
		return c, err
	}
	c.answer = n.Answer(r, &d)
	if explain {
		c.explanation.Answer = c.answer
	}
	return c, nil
}
