package console

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/weirlimit/weir/internal/counters"
	"github.com/weirlimit/weir/internal/engine"
	"github.com/weirlimit/weir/internal/waiting"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// exported asks a member for what it decides about of some partitions: from First up to, but not including, Last. Of
// the first one, what is before From is left out. Keys, unless empty, are those wanted.
type exported struct {
	First int      `json:"first"`
	Last  int      `json:"last"`
	From  position `json:"from"`
	Rule  string   `json:"rule,omitempty"`
	Keys  []string `json:"keys,omitempty"`
}

// position is one in a partition: before a key, in the order of hashes, or after some lines of it.
type position struct {
	Key   uint64 `json:"key,omitempty"`
	Lines int    `json:"lines,omitempty"`
}

func (p position) before(o position) bool {
	return p.Key < o.Key || p.Key == o.Key && p.Lines < o.Lines
}

// page is the answer: the partitions that the member decides about. Next, unless nil, means that it ends there within
// the last of these.
type page struct {
	Parts []partLines `json:"parts"`
	Next  *position   `json:"next,omitempty"`
}

type partLines struct {
	Part  int               `json:"part"`
	Lines []json.RawMessage `json:"lines,omitempty"`
}

// cut returns the number of the partition in which a page ends, and whether it ends in one.
func (p *page) cut() (part int, is bool) {
	if n := len(p.Parts); p.Next != nil && n > 0 {
		return p.Parts[n-1].Part, true
	}
	return 0, false
}

// pager makes a page.
type pager struct {
	counters.Exporter
	of     engine.Counters
	q      *exported
	out    page
	size   int
	looked int
	// entries are those of a few keys at the instant at.
	entries []table.Entry
	at      limiter.Tick
}

// answerExport returns a page of what this node decides about.
func (c mover) answerExport(q *exported) *page {
	a, err := c.administered()
	if err != nil || q == nil || q.First < 0 || q.Last > 2*table.Partitions {
		return nil
	}
	x := pager{Exporter: *counters.NewExporter(counters.NewNamer(a.Rules.Load())), of: a.Counters, q: q,
		out: page{Parts: []partLines{}}}
	from := q.From
	for part := q.First; part < q.Last && x.out.Next == nil; part++ {
		if lines, mine := x.part(part, from); mine {
			x.out.Parts = append(x.out.Parts, partLines{part, lines})
		}
		from = position{}
	}
	return &x.out
}

// part returns lines of a partition, if this node decides about it. The partition is locked for a few keys at a time.
func (x *pager) part(part int, from position) (lines []json.RawMessage, mine bool) {
	var keys []uint64
	mine = x.of.ExportCounters(part, func(t *table.Table, _ limiter.Tick) { keys = t.Keys(part) })
	slices.Sort(keys)
	begin, _ := slices.BinarySearch(keys, from.Key)
	for keys = keys[begin:]; mine && len(keys) > 0; {
		some := keys[:min(len(keys), keysAtOnce)]
		keys = keys[len(some):]
		if x.looked += len(some); x.looked > pageKeys {
			x.out.Next = &position{Key: some[0]}
			return lines, true
		}
		if mine = x.export(part, some); !mine {
			break // it has just moved, and its owner answers
		}
		here := position{}
		for i := range x.entries {
			e := &x.entries[i]
			l, ok := x.line(part, e)
			if !ok {
				continue
			}
			if here.Key != e.Hi {
				here = position{Key: e.Hi}
			}
			if !here.before(from) {
				if x.size > 0 && x.size+len(l) > pageBytes {
					x.out.Next = &here
					return lines, true
				}
				lines, x.size = append(lines, l), x.size+len(l)+1
			}
			here.Lines++
		}
	}
	return lines, mine
}

// export exports some keys of a partition, if this node decides about it.
func (x *pager) export(part int, keys []uint64) (mine bool) {
	x.entries = x.entries[:0]
	return x.of.ExportCounters(part, func(t *table.Table, at limiter.Tick) {
		x.at = at
		for _, hi := range keys {
			t.ExportKey(part, hi, at, func(e table.Entry) {
				e.Words = slices.Clone(e.Words)
				x.entries = append(x.entries, e)
			})
		}
	})
}

func (x *pager) line(part int, e *table.Entry) (json.RawMessage, bool) {
	l, ok := x.Line(part, e, x.at, x.q.Rule)
	if !ok || len(x.q.Keys) > 0 && !slices.Contains(x.q.Keys, l.Key) {
		return nil, false
	}
	b, err := json.Marshal(&l)
	return b, err == nil
}

type gathering struct {
	mover
	q      exported
	wanted []bool // by partition: what is still to come
	write  func([]json.RawMessage) error
	end    ExportEnd
	pages  map[string]int // by member: those that ended within a partition
}

// of is a page and the member that has answered it; "" is this one.
type of struct {
	*page
	member string
}

// export calls write with the lines of all members.
func (c mover) export(ctx context.Context, q exported, write func([]json.RawMessage) error) (*ExportEnd, error) {
	g := gathering{mover: c, q: q, wanted: make([]bool, 2*table.Partitions), write: write, pages: map[string]int{},
		end: ExportEnd{Missing: []Missing{}, End: true}}
	for part := q.First; part < q.Last; part++ {
		g.wanted[part] = true
	}
	for until := c.config.Now().Add(unownedFor); ; {
		for next := q.First; next < q.Last; {
			if !g.wanted[next] {
				next++
				continue
			}
			g.q.First, g.q.Last, g.q.From = next, next+1, position{}
			for g.q.Last < min(q.Last, next+mostParts) && g.wanted[g.q.Last] {
				g.q.Last++
			}
			var err error
			if next, err = g.some(ctx); err != nil {
				return nil, err
			}
		}
		if !slices.Contains(g.wanted, true) || !c.config.Now().Before(until) || c.config.Ask == nil {
			break
		}
		if err := waiting.Sleep(ctx, unownedWait); err != nil {
			return nil, err
		}
	}
	for _, w := range g.wanted {
		if w {
			g.end.Unowned++
		}
	}
	return &g.end, nil
}

func (g *gathering) ask(ctx context.Context) ([]of, error) {
	pages := []of{}
	if p := g.answerExport(&g.q); p != nil {
		pages = append(pages, of{p, ""})
	}
	asks := question{Kind: "counters", Export: &g.q}
	missing, err := gather(ctx, g.Console, asks, func(member string, p *page) error {
		for i := range p.Parts {
			if err := oneLineEach(p.Parts[i].Lines); err != nil {
				return err
			}
		}
		if g.pages[member] <= mostPages {
			pages = append(pages, of{p, member})
		}
		return nil
	})
	g.end.missing(missing)
	return pages, err
}

// some exports the partitions of g.q, and returns where to go on: all of them, or up to where a page ends within one,
// and that one.
func (g *gathering) some(ctx context.Context) (next int, err error) {
	pages, err := g.ask(ctx)
	if err != nil {
		return 0, err
	}
	first, last := g.q.First, g.q.Last
	for _, p := range pages {
		if part, is := p.cut(); is && part >= first && part < last {
			last = part + 1
		}
	}
	for _, p := range pages {
		for i := range p.Parts {
			part := p.Parts[i].Part
			if part < first || part >= last || !g.wanted[part] {
				continue // another one has it, too: it moves
			}
			g.wanted[part] = false
			if err := g.take(p.Parts[i].Lines); err != nil {
				return 0, err
			}
			if cut, is := p.cut(); is && cut == part && i == len(p.Parts)-1 {
				if err := g.rest(ctx, part, p); err != nil {
					return 0, err
				}
			}
		}
	}
	return last, nil
}

func (g *gathering) take(lines []json.RawMessage) error {
	g.end.Counters += len(lines)
	return g.write(lines)
}

// rest exports the rest of a partition, of which a member has answered a page. If that member decides about it no
// longer, or says the same again, the partition is wanted from its beginning: what is exported twice does no harm.
func (g *gathering) rest(ctx context.Context, part int, p of) error {
	from := position{}
	for p.page != nil && p.Next != nil {
		if g.pages[p.member]++; !from.before(*p.Next) || g.pages[p.member] > mostPages {
			g.pages[p.member] = mostPages + 1 // nothing more of it is believed
			g.end.missing([]Missing{{p.member, "its answers have no end"}})
			g.wanted[part] = true
			return nil
		}
		from = *p.Next
		g.q.First, g.q.Last, g.q.From = part, part+1, from
		pages, err := g.ask(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(pages, func(o of) bool {
			return o.member == p.member && len(o.Parts) == 1 && o.Parts[0].Part == part
		})
		if i < 0 {
			g.wanted[part] = true
			return nil
		}
		p = pages[i]
		if err := g.take(p.Parts[0].Lines); err != nil {
			return err
		}
	}
	return nil
}
