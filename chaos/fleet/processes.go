//go:build linux

package fleet

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weirlimit/weir/chaos/netlab"
)

// The ports of a node in a namespace or container.
const (
	PortHTTP   = 8080
	PortGRPC   = 8081
	PortAdmin  = 8082
	PortGossip = 7946
	PortPeers  = 7947
	PortRedis  = 6379
)

// Namespaces is processes of the node program, each in a network namespace of its
// own. It takes root.
type Namespaces struct {
	Binary string
}

// Lacks implements [Ground].
func (Namespaces) Lacks(Need) string { return "" }

func (g Namespaces) open(ctx context.Context, c *Config) (site, error) {
	return newProcesses(ctx, c, g.Binary, true)
}

// Loopback is processes of the node program in this process's own network.
type Loopback struct {
	Binary string
}

// Lacks implements [Ground].
func (Loopback) Lacks(n Need) string {
	if n != 0 {
		return "on loopback there is no link between nodes to break, no Redis, and nobody who may mount disks"
	}
	return ""
}

func (g Loopback) open(ctx context.Context, c *Config) (site, error) {
	return newProcesses(ctx, c, g.Binary, false)
}

// processes is where nodes are processes of this machine.
type processes struct {
	config *Config
	binary string
	keeper *netlab.Keeper
	lab    *netlab.Lab // nil on loopback
	ports  *ports      // nil in namespaces
	certs  *certificates
	nodes  []*program
	redis  *process
	disks  []string // where they are mounted
}

func newProcesses(ctx context.Context, c *Config, binary string, apart bool) (*processes, error) {
	s := &processes{config: c, binary: binary, keeper: netlab.NewKeeper()}
	for _, name := range []string{"secret", "gossip.key"} {
		// Made from the seed, so that a fleet of one seed has the same hashes each time.
		key := sha256.Sum256(fmt.Appendf(nil, "fleet %d %s", c.Seed, name))
		if err := os.WriteFile(s.keyFile(name), []byte(base64.StdEncoding.EncodeToString(key[:])+"\n"), 0o600); err != nil {
			s.keeper.Close()
			return nil, err
		}
	}
	if apart {
		places := c.Nodes
		if c.Redis {
			places++
		}
		var err error
		if s.lab, err = netlab.New(ctx, places, c.Seed); err != nil {
			s.keeper.Close()
			return nil, err
		}
	}
	if !apart {
		var err error
		if s.ports, err = takePorts(ctx, os.TempDir(), nodePorts*c.Nodes); err != nil {
			s.keeper.Close()
			return nil, err
		}
	}
	if err := s.certify(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	if c.Redis {
		if err := s.startRedis(ctx); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	if c.Disks {
		if err := s.mount(); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	return s, nil
}

// certify makes the certificates of all places. Operators ask at the nodes' own machines.
func (s *processes) certify() (err error) {
	if s.config.Plain {
		return nil
	}
	var names []string
	for i := range s.config.Nodes {
		names = append(names, nodeName(i))
	}
	s.certs, err = certify(s.config.Dir, names, func(node int) []string {
		hosts := []string{"127.0.0.1"}
		if s.lab != nil {
			hosts = append(hosts, s.lab.ClientHost(node))
		}
		return hosts
	})
	return err
}

// trusted implements [site].
func (s *processes) trusted() *tls.Config { return s.certs.tls() }

// program is a node that is a process.
type program struct {
	at            *processes
	index         int
	name          string
	http, grpc    string
	admin, health string // health is "off" in namespaces
	gossip, peers string
	now           atomic.Pointer[process]
	told          atomic.Bool // it was told to end
}

// nodePorts is how many ports a node on loopback has.
const nodePorts = 6

// keyFile is where the nodes' secret or gossip key is.
func (s *processes) keyFile(name string) string { return filepath.Join(s.config.Dir, name) }

func (s *processes) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if s.lab != nil {
		return s.lab.Clients().Dial(ctx, network, address)
	}
	return new(net.Dialer).DialContext(ctx, network, address)
}

// place gives a node its addresses.
func (s *processes) place(_ context.Context, n *Node) error {
	p := &program{at: s, index: n.Index, name: n.Name, health: "off"}
	if s.lab != nil {
		p.http = net.JoinHostPort(s.lab.ClientHost(n.Index), strconv.Itoa(PortHTTP))
		p.grpc = net.JoinHostPort(s.lab.ClientHost(n.Index), strconv.Itoa(PortGRPC))
		p.admin = net.JoinHostPort(s.lab.ClientHost(n.Index), strconv.Itoa(PortAdmin))
		p.gossip = net.JoinHostPort(s.lab.PeerHost(n.Index), strconv.Itoa(PortGossip))
		p.peers = net.JoinHostPort(s.lab.PeerHost(n.Index), strconv.Itoa(PortPeers))
	} else {
		for _, at := range []*string{&p.http, &p.grpc, &p.gossip, &p.peers, &p.admin, &p.health} {
			var err error
			if *at, err = s.ports.next(); err != nil {
				return err
			}
		}
	}
	s.nodes = append(s.nodes, p)
	n.body, n.url, n.admin = p, s.certs.scheme()+p.http, s.certs.scheme()+p.admin
	return nil
}

func (s *processes) set(_ context.Context, from, to int, l netlab.Link) error {
	if s.lab == nil {
		return errors.New("on loopback there are no links")
	}
	s.lab.Set(from, to, l)
	return nil
}

func (s *processes) heal(context.Context) error {
	if s.lab != nil {
		s.lab.Heal()
	}
	return nil
}

func (s *processes) counts(_ context.Context, from, to int) (netlab.Counts, error) {
	if s.lab == nil {
		return netlab.Counts{}, errors.New("on loopback there are no links")
	}
	return s.lab.Counts(from, to), nil
}

// keep has nothing to do: processes write their logs themselves.
func (*processes) keep(context.Context) error { return nil }

func (s *processes) close() error {
	var err error
	for _, p := range s.nodes {
		if p.alive() {
			err = errors.Join(err, p.now.Load().kill())
		}
	}
	if s.redis != nil {
		err = errors.Join(err, s.redis.kill())
	}
	for _, disk := range s.disks {
		err = errors.Join(err, syscall.Unmount(disk, 0))
	}
	if s.lab != nil {
		err = errors.Join(err, s.lab.Close())
	}
	if s.ports != nil {
		err = errors.Join(err, s.ports.release())
	}
	s.keeper.Close()
	return err
}

// join is where the gossip of all places is.
func (s *processes) join() string {
	var out []string
	for _, p := range s.nodes {
		out = append(out, p.gossip)
	}
	return strings.Join(out, ",")
}

// redisPlace is the station of the redis-server.
func (s *processes) redisPlace() int { return s.config.Nodes }

// startRedis starts the redis-server, empty.
func (s *processes) startRedis(ctx context.Context) error {
	if s.lab == nil {
		return errors.New("on loopback there is no place for Redis")
	}
	place := s.redisPlace()
	p, err := start(s.keeper, s.lab.Node(place), filepath.Join(s.config.Dir, "redis.log"), "redis-server",
		"--bind", s.lab.PeerHost(place), "--port", strconv.Itoa(PortRedis), "--save", "", "--appendonly", "no",
		"--protected-mode", "no")
	if err != nil {
		return err
	}
	s.redis = p
	return until(ctx, 10*time.Second, "redis-server did not start", func() error {
		c, err := s.lab.Node(place).Dial(ctx, "tcp", net.JoinHostPort(s.lab.PeerHost(place), strconv.Itoa(PortRedis)))
		if err != nil {
			return err
		}
		return c.Close()
	})
}

func (p *program) start(_ context.Context, run int) error {
	s, adminAddr := p.at, p.admin
	if s.lab != nil {
		adminAddr = net.JoinHostPort("", strconv.Itoa(PortAdmin)) // operators are on the node's machine
	}
	args := []string{"serve", "--rules", s.config.rulesFile(p.index), "--http-addr", p.http, "--grpc-addr", p.grpc,
		"--admin-addr", adminAddr, "--health-addr", p.health, "--max-keys", "100000"}
	if s.config.Redis {
		args = append(args, "--backend", "redis", "--redis-addr",
			fmt.Sprintf("%s:%d", s.lab.PeerHost(s.redisPlace()), PortRedis),
			"--redis-nodes", strconv.Itoa(s.config.Nodes))
	} else {
		args = append(args, "--name", p.name, "--peer-addr", p.peers, "--gossip-addr", p.gossip, "--join", s.join())
		if !s.config.Keyless {
			args = append(args, "--secret-file", s.keyFile("secret"), "--gossip-key-file", s.keyFile("gossip.key"))
		}
		if s.certs == nil { // which members in a network of their own do not start without
			args = append(args, "--insecure")
		}
	}
	if s.config.Disks {
		args = append(args, "--data-dir", filepath.Join(s.disks[p.index], "data"))
	}
	args = append(args, s.certs.flags(p.name, !s.config.Redis)...)
	args = append(args, s.config.more(p.index)...)
	var in *netlab.Namespace
	if s.lab != nil {
		in = s.lab.Node(p.index)
	}
	now, err := start(s.keeper, in, filepath.Join(s.config.Dir, fmt.Sprintf("%s-%d.log", p.name, run)), s.binary, args...)
	if err != nil {
		return err
	}
	p.told.Store(false)
	p.now.Store(now)
	return nil
}

func (p *program) alive() bool {
	now := p.now.Load()
	return now != nil && !now.ended()
}

func (p *program) ended(context.Context) (log string, err error) {
	now := p.now.Load()
	if now == nil || !now.ended() || p.told.Load() {
		return "", nil
	}
	text, err := os.ReadFile(now.log)
	return lastLines(string(text), 3), errors.Join(fmt.Errorf("%w (%v)", ErrEnded, now.cmd.ProcessState), err)
}

func (p *program) kill(context.Context) error {
	p.told.Store(true)
	return p.now.Load().kill()
}

func (p *program) forget(ctx context.Context, name string) error {
	lab := p.at.lab
	if lab == nil {
		return errors.New("members are forgotten in namespaces only")
	}
	here := net.JoinHostPort("127.0.0.1", strconv.Itoa(PortAdmin))
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: p.at.certs.tls(), DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return lab.Node(p.index).Dial(ctx, network, here)
		}}}
	body, err := json.Marshal(map[string]string{"name": name})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.at.certs.scheme()+here+"/v1/members/forget",
		bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err = errors.Join(err, resp.Body.Close()); err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %d: %s", p.name, resp.StatusCode, text)
	}
	return err
}

func (p *program) pause(context.Context) error {
	return p.now.Load().stop()
}

func (p *program) resume(context.Context) error {
	return p.now.Load().cmd.Process.Signal(syscall.SIGCONT)
}

func (p *program) leave(ctx context.Context) error {
	now := p.now.Load()
	p.told.Store(true)
	if err := now.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	select {
	case <-now.done:
		return nil
	case <-ctx.Done():
		return errors.Join(errors.New("it did not end within 20 s of SIGTERM"), now.kill())
	}
}

// mostStolen is which part of the time in which a program was stopped it may have
// had a processor.
const mostStolen = 0.05

func (p *program) starve(ctx context.Context, slices int) (doubt, err error) {
	var still, got time.Duration // how long it was stopped, and what processor time it got then
	for range slices {
		if err := p.pause(ctx); err != nil {
			return nil, err
		}
		began, had := time.Now(), cpuTime(p.now.Load().cmd.Process.Pid)
		err := Wait(ctx, 80*time.Millisecond)
		got += cpuTime(p.now.Load().cmd.Process.Pid) - had
		still += time.Since(began)
		if err := errors.Join(err, p.resume(ctx), Wait(ctx, 20*time.Millisecond)); err != nil {
			return nil, err
		}
	}
	if float64(got) > mostStolen*float64(still) {
		doubt = fmt.Errorf("it was stopped for %v and had a processor for %v of it", still, got)
	}
	return doubt, nil
}

// Wait waits, unless the context ends before, which is an error.
func Wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return interrupted(ctx)
	}
}

// interrupted is the error of whoever waited for something when the context ended.
func interrupted(ctx context.Context) error { return fmt.Errorf("interrupted: %w", ctx.Err()) }
