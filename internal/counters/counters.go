// Package counters has counters as lines of JSON, which can be kept in a file and imported again: into the same nodes,
// or into others with the same secret and cluster name, by which keys are named.
package counters

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/weirlimit/weir/internal/cluster/mesh"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/internal/peerlink"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
	"github.com/weirlimit/weir/rules"
)

// MaxLine is the most bytes of a line.
const MaxLine = 256 << 10

// What a line has at most: entries of a log, see [arith.Coarsen], and names of rules.
const (
	maxEntries = 1 << 14
	maxRules   = 100
)

// Line is one counter.
type Line struct {
	// Rules are those whose counter it can be, 100 of them at most: rules with the same limit cannot be told apart.
	Rules []string `json:"rules"`
	// Key is the key's hash, in hex.
	Key string `json:"key"`
	// Limit is the limit in words. Used are the units that count at At, and Remaining those that are left. At Full nothing
	// is used any more.
	Limit     string    `json:"limit"`
	Used      uint64    `json:"used"`
	Remaining uint64    `json:"remaining"`
	At        time.Time `json:"at"`
	Full      time.Time `json:"full"`
	// Closed means that a rule with `on_unreachable: closed` counts.
	Closed bool `json:"closed,omitempty"`
	// State is all of it, for an import, which looks at Rules, Key, At and this only.
	State []byte `json:"state"`
}

// Namer knows which rules have a limit.
type Namer struct {
	of     map[string][]string // rules by the limit in words
	set    *rules.Set
	closed map[string]bool
}

// NewNamer returns the namer of a set.
func NewNamer(set *rules.Set) *Namer {
	n := &Namer{of: map[string][]string{}, set: set, closed: map[string]bool{}}
	add := func(name string) {
		r := set.Rule(name)
		if r == nil {
			return
		}
		n.closed[name] = r.Class() == limiter.Closed
		for _, l := range r.Limits {
			for _, w := range []string{words(l), kind(l)} {
				if w == kind(l) && r.ChosenBy() == limiter.ChosenByNone {
					continue
				}
				if !slices.Contains(n.of[w], name) {
					n.of[w] = append(n.of[w], name)
				}
			}
		}
	}
	for _, r := range set.Rules() {
		add(r.Rule.Name)
	}
	for _, q := range set.Quotas() {
		add(q.Rule.Name)
	}
	return n
}

func words(l *limiter.Limit) string { return l.Name() + " " + l.String() }

// kind is what limits have in common whose numbers or time zone requests choose.
func kind(l *limiter.Limit) string { return fmt.Sprint(l.Name(), " ", l.Algorithm(), " ", l.Window()) }

// Rules returns the rules and quotas that have a limit, with partitions of a class. Of those whose requests choose a
// number or a time zone it may be any number, or zone.
func (n *Namer) Rules(l *limiter.Limit, closed bool) []string {
	out := []string{}
	for _, w := range []string{words(l), kind(l)} {
		for _, name := range n.of[w] {
			if n.closed[name] == closed && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

// Knows reports whether there is a rule or quota of a name.
func (n *Namer) Knows(name string) bool {
	_, known := n.closed[name]
	return known
}

// Exporter makes lines. It is not safe for concurrent use.
type Exporter struct {
	Namer *Namer
	codec *peerlink.Codec
}

// NewExporter returns one.
func NewExporter(n *Namer) *Exporter { return &Exporter{n, peerlink.NewCodec()} }

// Line returns the line of an entry of a partition at an instant. It reports false for what is no counter of a rule:
// a remembered id or a reservation; and, unless rule is empty, for what is not one of that rule. A log of more than
// 16,384 entries is shortened: up to 1/8192 of the window later than before, the same is used.
func (x *Exporter) Line(part int, e *table.Entry, at limiter.Tick, rule string) (Line, bool) {
	if e.Limit.Algorithm() >= arith.Remembered {
		return Line{}, false
	}
	l, closed := whole(e.Limit), part >= table.Partitions
	names := x.Namer.Rules(l, closed)
	if rule != "" && !slices.Contains(names, rule) {
		return Line{}, false
	}
	e.Words = arith.Coarsen(&e.State, e.Limit, e.Words, maxEntries)
	entry := peer.Entry{Hi: e.Hi, Lo: e.Lo, First: true, Time: int64(e.State.Time), Until: int64(e.State.Until),
		A: e.State.A, B: e.State.B, Words: e.Words}
	state, err := x.codec.Append(nil, &peer.Frame{
		Entries: []peer.Entry{entry}, Batches: []peer.Batch{{Keys: 1}},
		Limits: mesh.Definition(&limiter.Rule{Limits: []*limiter.Limit{l}}).Limits,
	})
	if err != nil {
		return Line{}, false
	}
	var d limiter.LimitDecision
	s, held := e.State, slices.Clone(e.Words)
	s.Import(l, held, at)
	used := s.Probe(l, held, at, &d)
	s.Report(l, held, at, used, 0, false, &d)
	return Line{Rules: names[:min(len(names), maxRules)], Key: keyOf(e), Limit: words(l), Used: used,
		Remaining: d.Remaining, At: at.Time().UTC(), Full: s.EmptyAt(l, held).Time().UTC(), Closed: closed,
		State: state}, true
}

// whole returns the limit of a counter without the part that the draw may use which asked last: no state depends on it.
func whole(l *limiter.Limit) *limiter.Limit {
	if l.C.P.Ceiling == 0 {
		return l
	}
	p := l.C.P.Full()
	return p.Compile(l.C.Cal)
}

// keyOf returns the hash of an entry's key.
func keyOf(e *table.Entry) string {
	return KeyText(arith.Hash{Hi: e.Hi, Lo: e.Lo ^ arith.NameID(e.Limit)})
}

// KeyText returns the hash of a key as lines have it.
func KeyText(h arith.Hash) string { return fmt.Sprintf("%016x%016x", h.Hi, h.Lo) }

// Importer reads lines. It is not safe for concurrent use.
type Importer struct {
	namer  *Namer
	codec  *peerlink.Codec
	limits *mesh.Dictionary
}

// NewImporter returns one.
func NewImporter(n *Namer) *Importer {
	return &Importer{n, peerlink.NewCodec(), mesh.NewDictionary(n.set.Rule)}
}

// Counter is a counter of a line.
type Counter struct {
	Line  Line
	Part  int
	entry table.Entry
	at    limiter.Tick
}

// Read reads a line. The error wraps [limiter.ErrInvalid].
func (x *Importer) Read(text []byte) (*Counter, error) {
	bad := func(format string, args ...any) (*Counter, error) {
		return nil, fmt.Errorf("%w: "+format, append([]any{limiter.ErrInvalid}, args...)...)
	}
	if len(text) > MaxLine {
		return bad("it has %d bytes, and at most %d are possible", len(text), MaxLine)
	}
	c := new(Counter)
	if err := json.Unmarshal(text, &c.Line); err != nil {
		return bad("it is not a counter: %v", err)
	}
	if _, err := hex.DecodeString(c.Line.Key); err != nil || len(c.Line.Key) != 32 {
		return bad("its key is not the hash of one: %.40q", c.Line.Key)
	}
	var problem error
	if err := x.codec.Read(c.Line.State, func(f *peer.Frame) { problem = c.take(x, f) }); err != nil {
		return bad("its state cannot be read: %v", err)
	}
	if problem != nil {
		return bad("%v", problem)
	}
	c.at = limiter.TickOf(c.Line.At)
	return c, nil
}

func (c *Counter) take(x *Importer, f *peer.Frame) error {
	if len(f.Entries) != 1 || len(f.Limits) != 1 || f.Entries[0].Limit != 0 || f.Entries[0].Gone {
		return fmt.Errorf("its state is not that of one counter")
	}
	l, err := x.limits.Limit(&f.Limits[0])
	if err != nil {
		return fmt.Errorf("its limit cannot be: %w", err)
	}
	if l.Algorithm() >= arith.Remembered {
		return fmt.Errorf("its state is not that of a rule's counter")
	}
	e := &f.Entries[0]
	c.entry = table.Entry{Hi: e.Hi, Lo: e.Lo, Limit: l, Words: slices.Clone(e.Words),
		State: arith.State{Time: limiter.Tick(e.Time), Until: limiter.Tick(e.Until), A: e.A, B: e.B}}
	if err := c.entry.State.CheckExported(l, c.entry.Words); err != nil {
		return fmt.Errorf("its state contradicts itself: %w", err)
	}
	if keyOf(&c.entry) != c.Line.Key {
		return fmt.Errorf("its state is that of another key")
	}
	closed := c.Line.Closed
	if len(c.Line.Rules) > 0 { // the class that the rule has here
		have, known := x.namer.closed[c.Line.Rules[0]]
		same := !slices.ContainsFunc(c.Line.Rules, func(name string) bool { return x.namer.closed[name] != have })
		if known && same {
			closed = have
		}
	}
	c.Part = table.PartitionOfHash(e.Lo^arith.NameID(l), closed)
	return nil
}

// Of returns the counter as it is at an instant, and false if nothing of it counts any more. An export of the future is
// one of now.
func (c *Counter) Of(now limiter.Tick) (table.Entry, bool) {
	e, at := c.entry, min(c.at, now)
	e.Words = slices.Clone(e.Words)
	e.State.Import(e.Limit, e.Words, at)
	now = e.State.NotBefore(e.Limit, now)
	e.State.Roll(e.Limit, e.Words, now)
	if e.State.EmptyAt(e.Limit, e.Words) <= now {
		return e, false
	}
	held := make([]uint64, e.State.Held(e.Limit))
	e.State.Move(e.Limit, held, e.Words)
	e.Words = held
	e.State.Export(e.Limit, e.Words, now)
	return e, true
}
