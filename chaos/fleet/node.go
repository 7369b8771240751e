//go:build linux

package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weirlimit/weir/chaos/netlab"
)

// ErrEnded is the error where a node has ended that nobody told to.
var ErrEnded = errors.New("has ended by itself")

// Node is a place for a node: its name and its addresses stay when it restarts.
type Node struct {
	Index int
	Name  string

	fleet                     *Fleet
	http, grpc, gossip, peers string
	runs                      atomic.Int32
	now                       atomic.Pointer[process]
	told                      atomic.Bool // it was told to end
}

// Start starts the node.
func (n *Node) Start() error {
	f := n.fleet
	run := n.runs.Add(1)
	args := []string{"serve", "--rules", f.rulesFile(), "--http-addr", n.http, "--grpc-addr", n.grpc, "--max-keys", "100000"}
	if f.config.Redis {
		args = append(args, "--backend", "redis", "--redis-addr", fmt.Sprintf("%s:%d", f.Lab.PeerHost(f.config.Nodes), PortRedis),
			"--redis-nodes", strconv.Itoa(f.config.Nodes))
	} else {
		args = append(args, "--name", n.Name, "--peer-addr", n.peers, "--gossip-addr", n.gossip, "--join", f.join())
	}
	if n.Index < len(f.config.Clock) {
		args = append(args, "--test-clock-offset", f.config.Clock[n.Index].String())
	}
	var in *netlab.Namespace
	if f.Lab != nil {
		in = f.Lab.Node(n.Index)
	}
	log := filepath.Join(f.config.Dir, fmt.Sprintf("%s-%d.log", n.Name, run))
	p, err := start(f.keeper, in, log, f.config.Binary, args...)
	if err != nil {
		return err
	}
	n.told.Store(false)
	n.now.Store(p)
	return nil
}

// EndedByItself returns an error that wraps [ErrEnded], with the end of the node's
// log, where the node was started and has ended without being told to.
func (n *Node) EndedByItself() error {
	p := n.now.Load()
	if p == nil || !p.ended() || n.told.Load() {
		return nil
	}
	return fmt.Errorf("%s, in its run %d, %w (%v); its log ends: %s", n.Name, n.Run(), ErrEnded, p.cmd.ProcessState, lastLines(p.log, 3))
}

// lastLines returns so many lines of the end of a file, or why it cannot.
func lastLines(path string, n int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// Alive tells whether the node runs, or is stopped by a signal.
func (n *Node) Alive() bool {
	p := n.now.Load()
	return p != nil && !p.ended()
}

// Run is how often the node was started.
func (n *Node) Run() int { return int(n.runs.Load()) }

// PID is the process's.
func (n *Node) PID() int { return n.now.Load().cmd.Process.Pid }

// Kill ends the node without a word, as kill -9 does.
func (n *Node) Kill() error {
	if err := n.EndedByItself(); err != nil {
		return err
	}
	n.told.Store(true)
	return n.now.Load().kill()
}

// Pause stops the node, Resume lets it go on.
func (n *Node) Pause() error { return n.now.Load().cmd.Process.Signal(syscall.SIGSTOP) }

// Resume lets a node go on that was paused.
func (n *Node) Resume() error { return n.now.Load().cmd.Process.Signal(syscall.SIGCONT) }

// Reload has the node read its rules again.
func (n *Node) Reload() error { return n.now.Load().cmd.Process.Signal(syscall.SIGHUP) }

// Leave ends the node in good order, and returns when it is gone.
func (n *Node) Leave(ctx context.Context) error {
	if err := n.EndedByItself(); err != nil {
		return err
	}
	p := n.now.Load()
	n.told.Store(true)
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("%s: %w", n.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("%s did not end within 20 s of SIGTERM", n.Name), p.kill())
	}
}

// URL is where clients ask the node.
func (n *Node) URL() string { return "http://" + n.http }

// Client asks nodes, from the namespace of clients.
func (f *Fleet) Client() *http.Client { return f.client }

// settled returns why the node is not settled among so many members.
func (n *Node) settled(ctx context.Context, members int) error {
	if n.fleet.config.Redis {
		status, body, err := n.fleet.get(ctx, n.URL()+"/readyz")
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("%s is not ready: %s", n.Name, body)
		}
		return err
	}
	m, err := n.Metrics(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", n.Name, err)
	}
	if active, unsettled := m[`weir_members{state="active"}`], m["weir_partitions_unsettled"]; active != float64(members) || unsettled != 0 {
		return fmt.Errorf("%s sees %.0f active members of %d, and %.0f partitions are unsettled", n.Name, active, members, unsettled)
	}
	return nil
}

// Late tells how often the nodes found their own timers late, in their present
// runs.
func (f *Fleet) Late(ctx context.Context) int {
	late := 0
	for _, n := range f.nodes {
		if !n.Alive() {
			continue
		}
		if m, err := n.Metrics(ctx); err == nil { // who does not answer says nothing of it either
			late += int(m[`weir_partition_events_total{event="late"}`])
		}
	}
	return late
}

// Metrics returns the node's metrics by name and labels.
func (n *Node) Metrics(ctx context.Context) (map[string]float64, error) {
	status, body, err := n.fleet.get(ctx, n.URL()+"/metrics")
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("/metrics answers %d", status)
	}
	out := make(map[string]float64)
	for _, line := range regexp.MustCompile(`(?m)^([a-z_]+(?:\{.*\})?) ([-+0-9.e]+)$`).FindAllStringSubmatch(body, -1) {
		if v, err := strconv.ParseFloat(line[2], 64); err == nil {
			out[line[1]] = v
		}
	}
	return out, nil
}
