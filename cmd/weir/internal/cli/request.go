package cli

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/limiter"
)

type requestFlags struct {
	user   string
	ip     string
	group  string
	method string
	attrs  []string
	id     string
	idTTL  time.Duration
	hold   time.Duration
	cost   string
}

// addFlags adds those that all commands about a request have.
func (o *requestFlags) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.user, "user", "", "the user")
	f.StringVar(&o.ip, "ip", "", "the caller's address")
	f.StringVar(&o.group, "group", "", `the caller's group (default "default")`)
	f.StringVar(&o.method, "method", "GET", "the method")
	f.StringArrayVar(&o.attrs, "attr", nil, "an attribute, as `KEY=VALUE`; may be given several times")
	f.StringVar(&o.id, "id", "", "an `id` that makes the check safe to repeat: with it the check counts once")
	f.DurationVar(&o.idTTL, "id-ttl", 0, "how long the id is remembered, at most what the rule says (default: the rule's)")
}

func (o *requestFlags) addCost(f *pflag.FlagSet, help string) { f.StringVar(&o.cost, "cost", "", help) }

func (o *requestFlags) addHold(f *pflag.FlagSet, help string) {
	f.DurationVar(&o.hold, "hold", 0, help)
}

func (o *requestFlags) request(cmd *cobra.Command, path string) (*limiter.Request, error) {
	r := &limiter.Request{Path: path, Method: o.method, User: o.user, IP: o.ip, Group: o.group, ID: o.id, IDTTL: o.idTTL,
		Hold: o.hold}
	if err := o.checkID(cmd); err != nil {
		return nil, err
	}
	if cmd.Flags().Changed("cost") {
		n, err := strconv.ParseInt(o.cost, 10, 64)
		if err == nil {
			r.Cost = limiter.Units(n)
			_, err = r.Cost.Value(1)
		}
		if err != nil {
			return nil, usage(cmd, "--cost %q is not a cost: give 0 (a peek) to %d units", o.cost, int64(limiter.MaxUnits))
		}
	}
	for _, attr := range o.attrs {
		name, value, ok := strings.Cut(attr, "=")
		if !ok || name == "" {
			return nil, usage(cmd, "--attr %q is no attribute: give KEY=VALUE", attr)
		}
		if r.Attributes == nil {
			r.Attributes = map[string]string{}
		}
		r.Attributes[name] = value
	}
	return r, nil
}

// checkID returns an error for an id, or a time of one, that is out of range.
func (o *requestFlags) checkID(cmd *cobra.Command) error {
	given := func(flag string) bool { return cmd.Flags().Changed(flag) }
	switch {
	case given("id") && o.id == "":
		return usage(cmd, "--id is empty: give 1 to %d bytes, or leave it out", limiter.MaxIDBytes)
	case given("id-ttl") && (o.idTTL < limiter.MinIDTTL || o.idTTL > limiter.MaxIDTTL):
		return usage(cmd, "--id-ttl %v is out of range: give %v to %v", o.idTTL, limiter.MinIDTTL, limiter.MaxIDTTL)
	case given("hold") && (o.hold < limiter.MinHold || o.hold > limiter.MaxHold):
		return usage(cmd, "--hold %v is out of range: give %v to %v", o.hold, limiter.MinHold, limiter.MaxHold)
	case given("hold") && o.id == "":
		return usage(cmd, "--hold needs --id, by which the reservation is settled")
	}
	return nil
}
