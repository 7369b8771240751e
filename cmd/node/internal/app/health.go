package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/commandline"
)

type healthOptions struct {
	at      apartAddress
	timeout time.Duration
	ready   bool
}

// healthCommand asks a node whether it serves. It is for images without a shell, in
// which a container's health check can run no other program.
func (a *app) healthCommand() *cobra.Command {
	o := healthOptions{at: newOptions().healthAddr, timeout: 2 * time.Second}
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask the node of this machine whether it serves",
		Long: `Asks /healthz of the node that lets probes ask at --health-addr, or at
WEIR_HEALTH_ADDR. Where that is every address, it asks at loopback. With --ready it asks
/readyz: whether the node should get traffic. A restart of one member after the other waits
for that.

Exit status: 0 it serves, 1 it does not, 64 wrong usage.`,
		Example: `  node health
  node health --health-addr 127.0.0.1:9083 --timeout 500ms`,
		Args: commandline.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := readEnvironment(cmd, a.Environ, settings()); err != nil {
				return err
			}
			return a.health(cmd, o)
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().Var(&o.at, "health-addr", "`HOST:PORT` of the node's probes, its --health-addr")
	cmd.Flags().DurationVar(&o.timeout, "timeout", o.timeout, "wait this long for the answer")
	cmd.Flags().BoolVar(&o.ready, "ready", false, "ask whether it is ready, at /readyz")
	completeFlags(cmd)
	return cmd
}

func (a *app) health(cmd *cobra.Command, o healthOptions) error {
	_, port, _ := net.SplitHostPort(o.at.text) // empty if the flag is empty
	switch {
	case port == "" || strings.Trim(port, "0") == "":
		return usage(cmd, "--health-addr %q has no port that could be asked: give that of the node, such as 127.0.0.1:8083",
			o.at.text)
	case o.timeout < time.Millisecond || o.timeout > time.Minute:
		return usage(cmd, "--timeout %v is out of range: give 1ms to 1m", o.timeout)
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), o.timeout)
	defer cancel()
	path, is := "/healthz", "it serves\n"
	if o.ready {
		path, is = "/readyz", "it is ready\n"
	}
	if err := askHealth(ctx, nearby(o.at.text), path); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("no answer within %v", o.timeout)
		}
		if o.ready {
			return fmt.Errorf("the node at %s is not ready: %w", nearby(o.at.text), err)
		}
		return fmt.Errorf("the node at %s does not serve: %w", nearby(o.at.text), err)
	}
	return a.print(is)
}

// nearby returns the address at which the node's own machine can reach a listener at
// addr.
func nearby(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1" // a listener at all IPv6 addresses accepts IPv4, too
	}
	return net.JoinHostPort(host, port)
}

// askHealth asks once, without a proxy, since the node is on this machine.
func askHealth(ctx context.Context, addr, path string) error {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // the relevant part has been read
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, 200))
	if err != nil {
		return err
	}
	return fmt.Errorf("%s answered %s: %s", path, resp.Status, strings.TrimSpace(string(text)))
}
