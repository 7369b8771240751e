package server

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/internal/audit"
	"github.com/weirlimit/weir/internal/console"
	"github.com/weirlimit/weir/internal/denials"
	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/overrides"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/metrics"
)

// DenialsConfig is which denials a node records.
type DenialsConfig struct {
	// Bytes bounds their memory; 0: none are recorded.
	Bytes int64
	// Names is what is kept of the names in requests.
	Names denials.Names
	// Log is the file that gets them as lines, "stderr", or empty for none.
	Log string
}

// watching is what operators see of the node.
type watching struct {
	console *console.Console
	record  *denials.Record // nil: none
	lines   *audit.Lines    // nil: none
	notes   *cluster.Notes  // nil: the node is in no cluster
	book    *overrides.Book
	kept    *cluster.Kept // nil: the node is in no cluster
	node    atomic.Pointer[weir.Node]
}

// openConsole makes what operators see. The node is opened after it.
func (s *Server) openConsole() (err error) {
	c, w := &s.config, &s.watching
	if c.Denials.Bytes > 0 {
		o := denials.Config{Bytes: c.Denials.Bytes, Names: c.Denials.Names, HashKey: s.namesKey(), Now: time.Now,
			KeyName: func(dst []byte, r *limiter.Request, l *limiter.LimitDecision) []byte {
				return w.node.Load().AppendKeyName(dst, r, l)
			}}
		if c.Denials.Log != "" {
			if w.lines, err = audit.OpenLines(c.Denials.Log, "denial", c.Log); err != nil {
				return err
			}
			o.Each = func(d *denials.Denial) { w.lines.Write(d) }
		}
		w.record = denials.New(o)
	}
	o := console.Config{Node: w.node.Load, Cluster: cmp.Or(c.ClusterName, "weir"), Denials: w.record,
		Now: time.Now, Log: c.Log, Totals: func() metrics.Totals { return s.metrics.Totals() },
		Overrides: new(overrides.Book), Certificates: s.secured.validities, Ended: s.audit.overrideEnded,
		Heard: s.audit.overrideHeard, Unsettled: !c.AllowRefunds && s.access == nil}
	if c.Cluster != nil {
		o.Name, w.notes = c.Cluster.Name, new(cluster.Notes)
		w.kept = new(cluster.Kept)
		o.Ask = func(ctx context.Context, question []byte) ([]console.Answered, error) {
			answers, err := w.notes.Ask(ctx, question)
			out := make([]console.Answered, len(answers))
			for i, a := range answers {
				out[i] = console.Answered{Member: a.Member, Text: a.Answer, Why: a.Why}
			}
			return out, err
		}
		o.Tell, o.RefuseImports = w.notes.Tell, !c.AllowReset && s.access == nil
	}
	w.console, w.book = console.New(o), o.Overrides
	if w.notes != nil {
		w.notes.Answer, w.notes.Told, w.notes.Met = w.console.Answer, w.console.Overriding.Told,
			w.console.Overriding.Met
	}
	return nil
}

// opened puts the overrides in force that were kept in the data directory, and keeps them there from then on.
func (w *watching) opened(n *weir.Node, log *slog.Logger) {
	w.node.Store(n)
	if w.kept == nil {
		return
	}
	const name = "overrides"
	if text := w.kept.Restored(name); text != nil {
		if err := w.console.Overriding.Restore(text); err != nil {
			log.Error("overrides are not restored: set them again, or wait until another member tells them", "error", err)
		}
	}
	if err := w.kept.Keep(name, w.book.MarshalJSON); err != nil {
		log.Error("overrides will not survive the end of all members", "error", err)
	}
}

// namesKey returns the key of the hashes of names: the same on all members that have a secret.
func (s *Server) namesKey() []byte {
	secret := s.config.Secret
	if len(secret) == 0 {
		if s.config.Cluster != nil {
			secret = []byte(s.config.ClusterName)
		} else {
			secret = make([]byte, 32)
			_, _ = rand.Read(secret) // which never fails
		}
	}
	mac := hmac.New(sha256.New, secret)
	_, _ = mac.Write([]byte("weir: names of denials"))
	return mac.Sum(nil)
}

// recorder returns what receives denials, nil if nothing does.
func (s *Server) recorder() frontend.DenialRecorder {
	if s.watching.record == nil {
		return nil
	}
	return s.watching.record
}

func (w *watching) close() {
	if w.lines != nil {
		w.lines.Close()
	}
}

// Within decides checks of the program itself, as a protocol of this name would: what it denies is recorded.
func (s *Server) Within(over string) frontend.Checker {
	return within{frontend.New(s.frontendOf(), frontend.Protocol{Over: over})}
}

type within struct{ front *frontend.Frontend }

// CheckInto implements [frontend.Checker].
func (w within) CheckInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error {
	by := w.front.Anyone(nil)
	return by.Check(ctx, r, d, false)
}
