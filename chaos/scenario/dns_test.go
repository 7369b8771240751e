//go:build linux

package scenario

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/chaos/netlab"
)

// dnsName is the name by which members join.
const dnsName = "members.weir.test"

// dnsTrouble is what DNS answers at first, and for how long.
type dnsTrouble struct {
	name string
	last time.Duration
}

func dnsTroubles() []dnsTrouble {
	return []dnsTrouble{{"empty", 30 * time.Second}, {"self", 10 * time.Second}, {"stale", 20 * time.Second}, {"right", 0}}
}

// named is a cluster of real nodes, each in a network namespace with a dnsmasq of its own.
type named struct {
	t       *testing.T
	lab     *netlab.Lab
	keeper  *netlab.Keeper
	dir     string
	binary  string
	hosts   []string // of the nodes, for each other
	moves   int
	nodes   []*exec.Cmd // nil: not running
	dns     []*exec.Cmd
	since   time.Time // when DNS became right, or will
	charged int
}

const namedKeys, namedLimit = 10, 1000

// newNamed makes a place for some nodes, none of which runs.
func newNamed(t *testing.T, binary string, n int) *named {
	t.Helper()
	lab, err := netlab.New(t.Context(), n, 1)
	if err != nil {
		t.Fatal(err)
	}
	c := &named{t: t, lab: lab, keeper: netlab.NewKeeper(), dir: t.TempDir(), binary: binary, nodes: make([]*exec.Cmd, n)}
	t.Cleanup(c.close)
	c.write("rules.yaml",
		"version: 1\nrules:\n  - {name: keys, match: {path: \"^/k\"}, key: [path], limits: [{limit: 1000, window: 1d, "+
			"algorithm: fixed_window}]}\n")
	c.write("secret", "0123456789abcdef0123456789abcdef\n")
	c.write("gossip.key", "MDEyMzQ1Njc4OTAxMjM0NQ==\n")
	c.write("resolv.conf", "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
	for i := range n {
		c.hosts = append(c.hosts, lab.PeerHost(i))
		c.answer(i)
		c.dns = append(c.dns, c.run(i, fmt.Sprint("dns-", i), "dnsmasq", "--no-daemon", "--conf-file=/dev/null",
			"--no-resolv", "--no-hosts",
			"--local=/weir.test/", "--addn-hosts="+filepath.Join(c.dir, fmt.Sprint("hosts-", i)), "--listen-address=127.0.0.1",
			"--bind-interfaces", "--user=root", "--pid-file="))
	}
	for i := range n {
		c.serves(i)
	}
	return c
}

// serves waits until a node's dnsmasq serves. Before that a SIGHUP would end it.
func (c *named) serves(i int) {
	c.t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		text, err := os.ReadFile(filepath.Join(c.dir, fmt.Sprintf("dns-%d.log", i)))
		if strings.Contains(string(text), "- 0 names") {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			c.t.Fatalf("dnsmasq does not serve: %v\n%s", err, text)
		}
	}
}

// write writes a file that nodes or dnsmasq read.
func (c *named) write(name, text string) {
	c.t.Helper()
	file := filepath.Join(c.dir, name)
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		c.t.Fatal(err)
	}
}

// run starts a program in the namespace of a node. Its output is in a file.
func (c *named) run(i int, log, name string, args ...string) *exec.Cmd {
	c.t.Helper()
	out, err := os.OpenFile(filepath.Join(c.dir, log+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	defer out.Close()                                               // the program has it
	cmd := exec.CommandContext(context.Background(), name, args...) // close ends it
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = []string{"PATH=" + os.Getenv("PATH") + ":/usr/sbin", "GOMAXPROCS=2"}
	if err := c.keeper.Start(c.lab.Node(i), cmd); err != nil {
		c.t.Fatal(err)
	}
	return cmd
}

// answer sets what a node's DNS answers.
func (c *named) answer(i int, hosts ...string) {
	c.t.Helper()
	text := ""
	for _, h := range hosts {
		text += h + " " + dnsName + "\n"
	}
	c.write(fmt.Sprint("hosts-", i), text)
	if len(c.dns) > i {
		if err := c.dns[i].Process.Signal(syscall.SIGHUP); err != nil {
			c.t.Error(err)
		}
	}
}

// begin puts DNS into trouble, and lets it be right later.
func (c *named) begin(d dnsTrouble) {
	c.t.Helper()
	c.since = time.Now().Add(d.last)
	for i := range c.hosts {
		switch d.name {
		case "empty":
			c.answer(i)
		case "self":
			c.answer(i, c.hosts[i])
		case "stale":
			c.answer(i, "10.77.0.201", "10.77.0.202", "10.77.0.203")
		default:
			c.answer(i, c.hosts...)
		}
	}
}

// start starts a node.
func (c *named) start(i int) {
	c.t.Helper()
	in := func(name string) string { return filepath.Join(c.dir, name) }
	at := func(host string, port int) string { return net.JoinHostPort(host, fmt.Sprint(port)) }
	// A mount namespace has a resolv.conf of its own.
	c.nodes[i] = c.run(i, fmt.Sprint("node-", i+1), "unshare", "--mount", "sh", "-c",
		`mount --bind "$0" /etc/resolv.conf && exec "$@"`, in("resolv.conf"),
		c.binary, "serve", "--rules", in("rules.yaml"), "--http-addr", at(c.lab.ClientHost(i), 8080), "--grpc-addr",
		at(c.lab.ClientHost(i), 8081),
		"--admin-addr", "off", "--health-addr", "off", "--max-keys", "100000", "--deadline", "5s", "--name",
		fmt.Sprint("node-", i+1),
		"--peer-addr", at(c.hosts[i], 7947), "--gossip-addr", at(c.hosts[i], 7946), "--secret-file", in("secret"),
		"--gossip-key-file", in("gossip.key"), "--insecure",
		"--join", "dns+"+at(dnsName, 7946), "--expect", fmt.Sprint(len(c.hosts)))
}

// end ends a node by a signal, and returns when it is gone.
func (c *named) end(i int, by syscall.Signal) {
	c.t.Helper()
	if err := c.nodes[i].Process.Signal(by); err != nil {
		c.t.Fatal(err)
	}
	_ = c.nodes[i].Wait() // how it ended is in its log
	c.nodes[i] = nil
}

// move gives a node another address.
func (c *named) move(i int) {
	c.t.Helper()
	c.moves++
	host := fmt.Sprintf("10.77.0.%d", 100+c.moves)
	var mac string
	if err := c.lab.Node(i).Do(func() error {
		dev, err := net.InterfaceByName("peers")
		if err == nil {
			mac = dev.HardwareAddr.String()
		}
		return err
	}); err != nil {
		c.t.Fatal(err)
	}
	for j := range c.hosts {
		args := "neigh replace " + host + " lladdr " + mac + " dev peers nud permanent"
		if j == i {
			args = "addr add " + host + "/24 dev peers"
		}
		if err := c.lab.Node(j).Do(func() error {
			out, err := exec.CommandContext(c.t.Context(), "ip", strings.Fields(args)...).CombinedOutput()
			if err != nil {
				return fmt.Errorf("ip %s: %w: %s", args, err, out)
			}
			return nil
		}); err != nil {
			c.t.Fatal(err)
		}
	}
	c.hosts[i] = host
}

// get asks a node.
func (c *named) get(i int, path string) (status int, body []byte, err error) {
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: c.lab.Clients().Dial}}
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet,
		"http://"+net.JoinHostPort(c.lab.ClientHost(i), "8080")+path, http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	return resp.StatusCode, body, err
}

// charge charges one unit to each key by one node, and requires that nothing that was
// charged by others is missing.
func (c *named) charge(i int) {
	c.t.Helper()
	c.charged++
	for k := range namedKeys {
		_, body, err := c.get(i, fmt.Sprint("/v1/check?path=/k/", k))
		var d struct {
			Source string
			Limits []struct{ Remaining int }
		}
		if err == nil {
			err = json.Unmarshal(body, &d)
		}
		if err != nil || len(d.Limits) != 1 || strings.HasPrefix(d.Source, "fallback") ||
			d.Limits[0].Remaining != namedLimit-c.charged {
			c.t.Fatalf("node-%d, key %d after %d charges: %v, %s", i+1, k, c.charged, err, body)
		}
	}
}

// ready waits until nodes are ready, lets DNS be right in time, and charges by each node
// as soon as it is ready, 15 seconds after DNS is right at the latest.
func (c *named) ready(which ...int) {
	c.t.Helper()
	waits := map[int]string{}
	for _, i := range which {
		waits[i] = "not asked"
	}
	right := false
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for len(waits) > 0 {
		if !right && !time.Now().Before(c.since) {
			right = true
			for i := range c.hosts {
				c.answer(i, c.hosts...)
			}
		}
		for i := range waits {
			status, body, err := c.get(i, "/readyz")
			waits[i] = fmt.Sprintf("%d %s %v", status, bytes.TrimSpace(body), err)
			if status == http.StatusOK {
				delete(waits, i)
				c.charge(i)
			}
		}
		if time.Since(c.since) > 15*time.Second && len(waits) > 0 {
			c.t.Fatalf("not ready 15 seconds after DNS was right: %v", waits)
		}
		<-tick.C
	}
}

// all starts all nodes at once.
func (c *named) all(d dnsTrouble) {
	c.t.Helper()
	c.begin(d)
	var which []int
	for i := range c.hosts {
		c.start(i)
		which = append(which, i)
	}
	c.ready(which...)
}

// close ends all that runs, and shows the logs of a failure.
func (c *named) close() {
	for i := range c.nodes {
		if c.nodes[i] != nil {
			c.end(i, syscall.SIGKILL)
		}
		if text, err := os.ReadFile(filepath.Join(c.dir, fmt.Sprintf("node-%d.log", i+1))); c.t.Failed() {
			c.t.Logf("node-%d: %v\n%s", i+1, err, text)
		}
	}
	for _, d := range c.dns {
		if err := d.Process.Kill(); err != nil {
			c.t.Error(err)
		}
		_ = d.Wait() // it was killed
	}
	c.keeper.Close()
	if err := c.lab.Close(); err != nil {
		c.t.Error(err)
	}
}

// Real nodes that find each other by a real DNS server, however it answers at first: they
// begin one cluster, restarted ones find it, and no count is lost but with the whole
// cluster. With -short one of the cells; TestJoinByName of package cluster has all, in
// virtual time.
func TestJoinByDNS(t *testing.T) {
	if err := netlab.Usable(); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("CI must be able to make namespaces: %v", err)
		}
		t.Skip(err)
	}
	if _, err := exec.LookPath("/usr/sbin/dnsmasq"); err != nil {
		t.Fatalf("make deps installs it: %v", err)
	}
	binary := built(t)
	for _, n := range []int{1, 3, 5} {
		for _, d := range dnsTroubles() {
			for name, then := range map[string]func(*named){
				"first start": func(c *named) { c.all(d) },
				"rolling restart": func(c *named) {
					c.all(dnsTroubles()[3])
					for i := range c.hosts {
						c.end(i, syscall.SIGTERM)
						if n == 1 {
							c.charged = 0 // a single node takes its counters with it
						}
						c.begin(d)
						c.start(i)
						c.ready(i)
					}
				},
				"all addresses are changed": func(c *named) {
					c.all(dnsTroubles()[3])
					for i := range c.hosts {
						c.end(i, syscall.SIGKILL)
						c.move(i)
					}
					c.charged = 0
					c.all(d)
				},
			} {
				t.Run(fmt.Sprintf("%d/%s/%s", n, d.name, name), func(t *testing.T) {
					if testing.Short() && (n != 3 || d.name != "self" || name != "first start") {
						t.Skip("it takes up to four minutes")
					}
					c := newNamed(t, binary, n)
					then(c)
					for i := range c.hosts {
						c.charge(i)
					}
				})
			}
		}
	}
}
