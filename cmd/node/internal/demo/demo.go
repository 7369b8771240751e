// Package demo shows nodes at work: it sends requests as a few users would, prints the
// decisions, and explains how to send requests yourself.
package demo

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// Rules is the rules file of the demo.
//
//go:embed rules.yaml
var Rules []byte

// program is an example program that asks a node at ADDRESS.
//
//go:embed ask.go.txt
var program string

// Checker decides checks, as a node does.
type Checker interface {
	CheckInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error
}

// Node is one node of the demo.
type Node struct {
	Checker
	// HTTPAddr and GRPCAddr are its addresses for clients.
	HTTPAddr, GRPCAddr string
	// AdminAddr is its address for operators, "" if it has none.
	AdminAddr string
}

// Config is what to show, and where.
type Config struct {
	// Nodes are asked in turn. There is at least one.
	Nodes []Node
	// Victim is a further member that is killed after some traffic; nil: none is.
	Victim *Victim
	// Answer is what a client is told of a decision, to show one; nil: none is shown.
	Answer func(r *limiter.Request, d *limiter.Decision) limiter.Answer
	// Out receives the output. On a Terminal, events are shown in one line that is
	// rewritten.
	Out      io.Writer
	Terminal bool
}

// Run shows the nodes at work until the context ends, and then prints a summary. It
// returns an error if the output cannot be written.
func Run(ctx context.Context, c Config) error {
	begun := time.Now()
	if _, err := io.WriteString(c.Out, introduction(c.Nodes, c.example(ctx))); err != nil {
		return unwritable(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := newScene(c.Nodes)
	var playing sync.WaitGroup
	for i := range s.actors {
		playing.Go(func() { s.play(ctx, i) })
	}
	var failed error
	if c.Victim != nil {
		failed = c.kill(ctx, s)
	}
	if failed == nil {
		failed = c.report(ctx, s, begun)
	}
	cancel()
	playing.Wait()
	if failed != nil {
		return unwritable(failed)
	}
	if _, err := io.WriteString(c.Out, s.summary(time.Since(begun))); err != nil {
		return unwritable(err)
	}
	return nil
}

func unwritable(err error) error { return fmt.Errorf("the demo cannot write its output: %w", err) }

// every is how often the line of events is written.
const every = time.Second

func (c *Config) report(ctx context.Context, s *scene, begun time.Time) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			if c.Terminal {
				_, err := io.WriteString(c.Out, "\n")
				return err
			}
			return nil
		case <-tick.C:
		}
		line := s.line(time.Since(begun))
		if c.Terminal {
			line = "\r\x1b[K" + line
		} else {
			line += "\n"
		}
		if _, err := io.WriteString(c.Out, line); err != nil {
			return err
		}
	}
}

// introduction describes the demo and how to ask the nodes, and shows an answer unless it is empty.
func introduction(nodes []Node, answer string) string {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	if at := nodes[0].AdminAddr; at != "" && !strings.HasPrefix(at, "unix:") {
		say("  http://%s/ shows it in a browser: who is refused, and why.\n", at)
	}
	if len(nodes) == 1 {
		say("A node of Weir decides the requests of four users. Ctrl-C ends it.\n")
	} else {
		say("%d nodes of Weir decide the requests of four users, who ask them in turn: each\nuser is counted once, "+
			"wherever he asks. Ctrl-C ends it.\n", len(nodes))
	}
	for _, n := range nodes {
		say("  HTTP at %s, gRPC at %s", n.HTTPAddr, n.GRPCAddr)
	}
	say("\nIts rules:\n\n%s", indent(string(Rules)))
	say("Ask yourself, any of them. The fourth time within ten seconds the answer is no, and says\nhow long to wait:\n")
	say("  curl -i 'http://%s/v1/check?path=/login&method=POST&user=you'", nodes[0].HTTPAddr)
	say(`  grpcurl -plaintext -d '{"path": "/login", "method": "POST", "user": "you"}' %s weir.v1.Limiter/Check`,
		nodes[0].GRPCAddr)
	if answer != "" {
		say("\nAn answer, to GET /towns of user you:\n\n%s\n", answer)
	}
	if last := nodes[len(nodes)-1].AdminAddr; len(nodes) > 1 && last != "" && !strings.HasPrefix(last, "unix:") {
		say("  curl -s http://%s/v1/members", last)
	}
	say("\nOr in Go; in a clone of Weir, save this as ask/main.go and say: go run ./ask\n")
	say("%s", indent(strings.Replace(program, "ADDRESS", nodes[0].GRPCAddr, 1)))
	say("What is decided, as allowed/asked in each second:\n")
	return b.String()
}

// indent indents the lines of a text by two spaces.
func indent(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if line != "\n" {
			b.WriteString("  ")
		}
		b.WriteString(line)
	}
	return b.String()
}
