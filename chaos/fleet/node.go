//go:build linux

package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/chaos/attack"
)

// ErrEnded is the error where a node has ended that nobody told to.
var ErrEnded = errors.New("has ended by itself")

// Node is a place for a node: its name and its addresses stay when it restarts.
type Node struct {
	Index int
	Name  string

	fleet *Fleet
	body  body
	url   string
	admin string // as url
	runs  atomic.Int32
}

// Start starts the node.
func (n *Node) Start(ctx context.Context) error {
	n.fleet.started(n.Index, n.Run()+1)
	return n.body.start(ctx, int(n.runs.Add(1)))
}

// Alive tells whether the node runs, or is stopped by a signal.
func (n *Node) Alive() bool { return n.body.alive() }

// Run is how often the node was started.
func (n *Node) Run() int { return int(n.runs.Load()) }

// EndedByItself returns an error that wraps [ErrEnded], with the end of the node's
// log, where the node was started and has ended without being told to.
func (n *Node) EndedByItself(ctx context.Context) error {
	log, err := n.body.ended(ctx)
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s, in its run %d, %w; its log ends: %s", n.Name, n.Run(), err, log)
}

// lastLines returns so many lines of the end of a text.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// Kill ends the node without a word, as kill -9 does, and returns when it is gone.
func (n *Node) Kill(ctx context.Context) error {
	if err := n.EndedByItself(ctx); err != nil {
		return err
	}
	told := time.Now()
	err := n.body.kill(ctx)
	n.fleet.down(n.Index, "killed", told)
	return err
}

// Pause stops the node, Resume lets it go on.
func (n *Node) Pause(ctx context.Context) error {
	told := time.Now()
	err := n.body.pause(ctx)
	n.fleet.down(n.Index, "paused", told)
	return err
}

// Resume lets a node go on that was paused, also when the run is over.
func (n *Node) Resume(ctx context.Context) error {
	n.fleet.up(n.Index)
	return n.body.resume(context.WithoutCancel(ctx))
}

// Leave ends the node in good order, and returns when it is gone.
func (n *Node) Leave(ctx context.Context) error {
	if err := n.EndedByItself(ctx); err != nil {
		return err
	}
	told := time.Now()
	if err := n.body.leave(ctx); err != nil {
		return fmt.Errorf("%s: %w", n.Name, err)
	}
	n.fleet.down(n.Index, "told to leave", told)
	return nil
}

// Starve leaves the node a fifth of a processor, in slices, for about 3 s.
func (n *Node) Starve(ctx context.Context) error {
	doubt, err := n.body.starve(ctx, 30)
	if doubt != nil {
		n.fleet.Doubt(fmt.Errorf("%s was to be starved: %w", n.Name, doubt))
	}
	return err
}

// Target is where the node can be attacked. It must be a process.
func (n *Node) Target() (attack.Target, error) {
	p, ok := n.body.(*program)
	if !ok {
		return attack.Target{}, errors.New("only processes are attacked")
	}
	return attack.Target{Name: n.Name, HTTP: p.http, GRPC: p.grpc, Gossip: p.gossip, Peer: p.peers, Admin: p.admin,
		Health: p.health}, nil
}

// Healthy returns nil if the node says that it is healthy where probes ask, within a
// second and over a connection of its own. It must be a process on loopback.
func (n *Node) Healthy(ctx context.Context) error {
	p, ok := n.body.(*program)
	if !ok {
		return errNoProcess
	}
	status, _, err := n.fleet.get(ctx, "http://"+p.health+"/healthz")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("/healthz answers %d", status)
	}
	return err
}

// Forget has an operator at the node's machine tell it to forget a dead member. It must be
// a process in a namespace.
func (n *Node) Forget(ctx context.Context, name string) error {
	p, ok := n.body.(*program)
	if !ok {
		return errNoProcess
	}
	return p.forget(ctx, name)
}

// URL is where clients ask the node.
func (n *Node) URL() string { return n.url }

// ErrAway is the error where nothing could be asked, since there is no connection to
// the node.
var ErrAway = errors.New("no connection")

// Post posts something to the node as JSON, once, and returns what it answers. It waits
// for as long as the context lets it.
func (n *Node) Post(ctx context.Context, path string, what any) (status int, text []byte, err error) {
	body, err := json.Marshal(what)
	if err != nil {
		return 0, nil, err
	}
	status, text, err = n.fleet.do(ctx, http.MethodPost, n.URL()+path, body)
	if of := (*net.OpError)(nil); errors.As(err, &of) && of.Op == "dial" {
		err = fmt.Errorf("%w: %w", ErrAway, err)
	}
	return status, text, err
}

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
	if active, unsettled := m[`weir_members{state="active"}`],
		m["weir_partitions_unsettled"]; active != float64(members) || unsettled != 0 {
		return fmt.Errorf("%s sees %.0f active members of %d, and %.0f partitions are unsettled", n.Name, active, members,
			unsettled)
	}
	return nil
}

// Late tells how often the node has found its own timers late in its present run. It
// reads no more of the metrics than that, so that it can be asked often.
func (n *Node) Late(ctx context.Context) (int, error) {
	const name = `weir_partition_events_total{event="late"} `
	status, body, err := n.fleet.get(ctx, n.admin+"/metrics")
	if err != nil {
		return 0, err
	}
	_, rest, found := strings.Cut(body, "\n"+name)
	if status != http.StatusOK || !found {
		return 0, fmt.Errorf("/metrics answers %d, without %s", status, name)
	}
	value, _, _ := strings.Cut(rest, "\n")
	late, err := strconv.ParseFloat(value, 64)
	return int(late), err
}

// Metrics returns the node's metrics by name and labels.
func (n *Node) Metrics(ctx context.Context) (map[string]float64, error) {
	status, body, err := n.fleet.get(ctx, n.admin+"/metrics")
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("/metrics answers %d", status)
	}
	return ParseMetrics(body), nil
}

// ParseMetrics returns the metrics of a text in the format of Prometheus, by name and labels.
func ParseMetrics(text string) map[string]float64 {
	out := make(map[string]float64)
	for _, line := range regexp.MustCompile(`(?m)^([a-z_]+(?:\{.*\})?) ([-+0-9.e]+)$`).FindAllStringSubmatch(text, -1) {
		if v, err := strconv.ParseFloat(line[2], 64); err == nil {
			out[line[1]] = v
		}
	}
	return out
}
