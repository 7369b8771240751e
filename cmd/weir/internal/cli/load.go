package cli

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/cmd/weir/internal/load"
	"github.com/weirlimit/weir/internal/smallfile"
)

// loadOptions are the flags of bench for measuring over the network.
type loadOptions struct {
	config load.Config
	dist   string
	svg    string
}

// loadFlags returns their names. The other flags of bench are common, or for the other
// kind of measurement.
func loadFlags() []string {
	return []string{"rate", "clients", "batch", "dist", "limited", "no-ids", "leases", "pid", "server-admin", "svg"}
}

// loadDuration is the default duration of a point.
const loadDuration = 5 * time.Second

func (o *loadOptions) addFlags(cmd *cobra.Command) {
	f, c := cmd.Flags(), &o.config
	f.Float64SliceVar(&c.Rates, "rate", nil,
		"send `CHECKS` per second, at each of these rates in turn (default: ask again when answered)")
	f.IntVar(&c.Clients, "clients", 0, "number of clients (default as many as the mode needs)")
	f.IntVar(&c.Batch, "batch", load.MaxBatch, "number of checks in a call, except in modes unary and client")
	f.StringVar(&o.dist, "dist", string(load.Uniform), "how keys are drawn: `uniform|zipf`")
	f.BoolVar(&c.NoIDs, "no-ids", false,
		"have the Go client send checks without ids: cheaper, but a check that is retried may count twice")
	f.BoolVar(&c.Leases, "leases", false, "have the Go client borrow units of hot keys, but by rules with leases: off")
	f.IntVar(&c.Limited, "limited", 50, "`PERCENT` of the keys that are under a limit of 100; the others are never denied")
	f.IntSliceVar(&c.Processes, "pid", nil, "report the processor time of these node `processes`")
	f.StringSliceVar(&c.Metrics, "server-admin", nil,
		"report the nodes' resource use from their metrics at these administration addresses, `HOST:PORT`")
	f.StringVar(&o.svg, "svg", "", "draw the latency over the load into `FILE`")
}

// isLoad reports whether the modes are those that measure over the network. It returns
// an error if only some are.
func isLoad(cmd *cobra.Command, modes []string) (bool, error) {
	n := 0
	for _, m := range modes {
		if slices.Contains(load.Modes(), load.Mode(m)) {
			n++
		}
	}
	if n > 0 && n < len(modes) {
		return false, usage(cmd,
			"--mode %s: unary, batch, stream, client and client-batch go together, and with no other mode",
			strings.Join(modes, ","))
	}
	unwanted := []string{"rules-shape", "redis-addr", "callers", "rounds"}
	if n == 0 {
		unwanted = loadFlags()
	}
	for _, name := range unwanted {
		switch {
		case !cmd.Flags().Changed(name):
		case n == 0:
			return false, usage(cmd, "--%s is for the modes unary, batch, stream, client and client-batch: give one with --mode",
				name)
		default:
			return false, usage(cmd, "--%s is not for the modes unary, batch, stream, client and client-batch", name)
		}
	}
	return n > 0, nil
}

// complete turns the flags into a configuration, or returns an error.
func (o *loadOptions) complete(cmd *cobra.Command, b *benchOptions) error {
	c := &o.config
	for _, m := range b.modes {
		c.Modes = append(c.Modes, load.Mode(m))
	}
	if b.server == "" {
		return usage(cmd, "the mode %s needs the addresses of nodes: give --server HOST:PORT, or several with commas between",
			b.modes[0])
	}
	c.Servers = strings.Split(b.server, ",")
	for _, list := range []struct {
		flag  string
		addrs []string
	}{{"--server", c.Servers}, {"--server-admin", c.Metrics}} {
		for _, addr := range list.addrs {
			if host, port, err := net.SplitHostPort(addr); err != nil || host == "" || port == "" {
				return usage(cmd, "%s %q is no address: give HOST:PORT, or several with commas between", list.flag, addr)
			}
			if !b.remote && !onLoopback(addr) {
				return usage(cmd, "%s %s is not on this machine: give --remote if what is there may be loaded", list.flag, addr)
			}
		}
	}
	if len(c.Rates) == 0 {
		c.Rates = []float64{0}
	}
	for _, r := range c.Rates {
		if r <= 0 && cmd.Flags().Changed("rate") {
			return usage(cmd, "--rate %v is out of range: give checks a second, or leave it out", r)
		}
	}
	c.Keys, c.Dist, c.Duration = b.config.Keys, load.Dist(o.dist), loadDuration
	if cmd.Flags().Changed("duration") {
		c.Duration = b.config.Duration
	}
	if err := c.Validate(); err != nil {
		return usage(cmd, "%w", err)
	}
	return nil
}

// load measures over the network until it is done or interrupted. It prints the results
// even if they show an error.
func (a *app) load(cmd *cobra.Command, o *loadOptions, asJSON bool) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if a.ErrStyle.Terminal {
		o.config.Progress = func(what string) { a.say("\r\x1b[K%s", what) }
	}
	picture, err := o.openPicture()
	if err != nil {
		return err
	}
	report, err := load.Run(ctx, o.config)
	if a.ErrStyle.Terminal {
		a.say("\r\x1b[K")
	}
	switch {
	case ctx.Err() != nil:
		err = fmt.Errorf("interrupted: %w", ctx.Err())
	case errors.Is(err, load.ErrUnreachable):
		err = unreachableError{err}
	}
	if report == nil || len(report.Points) == 0 {
		return errors.Join(err, o.closePicture(picture, nil))
	}
	if errors.As(err, new(unreachableError)) {
		err = errors.New(err.Error()) // the first points were measured, so this is a failure and no usage error
	}
	err = errors.Join(a.show(asJSON, report, report.Text(a.OutStyle)), err)
	return errors.Join(err, o.closePicture(picture, report), report.Wrong())
}

// openPicture opens the file of the picture before anything is measured, so that an
// invalid file is found early. It returns nil if there is none.
func (o *loadOptions) openPicture() (*os.File, error) {
	if o.svg == "" {
		return nil, nil
	}
	f, err := os.OpenFile(o.svg, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return nil, fmt.Errorf("the picture cannot be written to %s: %w", o.svg, smallfile.Bare(err))
	}
	return f, nil
}

// closePicture draws the measured points, if there are any, and closes the file.
func (o *loadOptions) closePicture(f *os.File, r *load.Report) error {
	if f == nil {
		return nil
	}
	info, err := f.Stat()
	if r != nil && err == nil && info.Mode().IsRegular() {
		err = f.Truncate(0) // removes earlier contents
	}
	if r != nil && err == nil {
		_, err = f.Write(r.SVG())
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("the picture cannot be written to %s: %w", o.svg, smallfile.Bare(err))
	}
	return nil
}
