package peerlink

import (
	"encoding/binary"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weirlimit/weir/internal/peer"
)

// Bounds of a frame, for writing and reading.
const (
	maxItems  = 1 << 16 // items of one section
	bareItems = 1 << 6  // items of a section without columns
	maxLimits = 1 << 14 // definitions of limits
	maxRules  = 1 << 14
	maxKnown  = 1 << 14
	// maxExpelled bounds what a frame says of members that were thrown out, maxPath who told on one name.
	maxExpelled, maxPath = 1 << 10, 16
	maxNames             = 1 << 12
	maxNotes             = 1 << 8

	maxExplained = 1 << 12 // explanations, limits of each, and fields and counts of each limit
)

// encoder appends to b. It keeps the first error.
type encoder struct {
	sections *sections
	b        []byte
	err      error
}

// open begins a field whose length is not known yet.
func (e *encoder) open(field protowire.Number) (mark int) {
	mark = len(e.b)
	e.b = protowire.AppendTag(e.b, field, protowire.BytesType)
	e.b = append(e.b, 0)
	return mark
}

// close writes the length of what was written since open. If the field is not wanted, it
// is removed.
func (e *encoder) close(mark int, wanted bool) {
	if !wanted {
		e.b = e.b[:mark]
		return
	}
	_, _, tag := protowire.ConsumeTag(e.b[mark:])
	start := mark + tag + 1
	length := len(e.b) - start
	if length < 0x80 {
		e.b[start-1] = byte(length)
		return
	}
	// The length needs more than the one byte that was left for it.
	more := protowire.SizeVarint(uint64(length)) - 1
	e.b = append(e.b, make([]byte, more)...)
	copy(e.b[start+more:], e.b[start:start+length])
	binary.PutUvarint(e.b[start-1:], uint64(length))
}

// extend appends a field of a known length and returns the slice for its contents.
func (e *encoder) extend(field protowire.Number, length int) []byte {
	e.b = protowire.AppendTag(e.b, field, protowire.BytesType)
	e.b = protowire.AppendVarint(e.b, uint64(length))
	start := len(e.b)
	e.b = append(e.b, make([]byte, length)...)
	return e.b[start:]
}

// uint, fixed, bool and text append a field, unless its value is zero.
func (e *encoder) uint(field protowire.Number, v uint64) {
	if v != 0 {
		e.b = protowire.AppendTag(e.b, field, protowire.VarintType)
		e.b = protowire.AppendVarint(e.b, v)
	}
}

func (e *encoder) fixed(field protowire.Number, v uint64) {
	if v != 0 {
		e.b = protowire.AppendTag(e.b, field, protowire.Fixed64Type)
		e.b = protowire.AppendFixed64(e.b, v)
	}
}

func (e *encoder) bool(field protowire.Number, v bool) { e.uint(field, protowire.EncodeBool(v)) }

func (e *encoder) text(field protowire.Number, s string) {
	if s != "" {
		e.b = protowire.AppendTag(e.b, field, protowire.BytesType)
		e.b = protowire.AppendString(e.b, s)
	}
}

// frame appends the fields of a frame.
func (e *encoder) frame(f *peer.Frame) {
	e.fixed(1, uint64(f.From))
	e.fixed(2, uint64(f.To))
	e.bool(3, f.Relayed)
	if len(f.Rules) > maxRules || len(f.Limits) > maxLimits || len(f.Known) > maxKnown || len(f.Names) > maxNames ||
		len(f.Explained) > maxExplained || len(f.Expelled) > maxExpelled || len(f.Notes) > maxNotes {
		e.err = fmt.Errorf("a frame of %d rules, %d limits, %d known members, %d expelled ones, %d names, %d "+
			"explanations and %d notes is more than a link takes",
			len(f.Rules), len(f.Limits), len(f.Known), len(f.Expelled), len(f.Names), len(f.Explained), len(f.Notes))
		return
	}
	for i := range f.Rules {
		e.rule(&f.Rules[i])
	}
	for i := range f.Limits {
		e.limit(5, &f.Limits[i])
	}
	s := e.sections
	writeSection(e, 6, s.claims, f.Claims, nil)
	writeSection(e, 7, s.answers, f.Answers, nil)
	writeSection(e, 8, s.announces, f.Announces, nil)
	writeSection(e, 9, s.revokes, f.Revokes, nil)
	writeSection(e, 10, s.batches, f.Batches, nil)
	writeSection(e, 11, s.entries, f.Entries, (*encoder).words)
	writeSection(e, 12, s.acks, f.Acks, nil)
	writeSection(e, 13, s.checks, f.Checks, nil)
	writeSection(e, 14, s.keys, f.Keys, nil)
	writeSection(e, 15, s.refunds, f.Refunds, nil)
	writeSection(e, 16, s.replies, f.Replies, (*encoder).replyRules)
	writeSection(e, 17, s.results, f.Results, nil)
	for i := range f.Known {
		e.known(&f.Known[i])
	}
	for i := range f.Expelled {
		e.expulsion(&f.Expelled[i])
	}
	for i := range f.Notes {
		e.note(&f.Notes[i])
	}
	e.uint(19, f.Number)
	e.uint(20, f.Got)
	e.fixed(21, uint64(f.Via))
	for i := range f.Names {
		e.name(&f.Names[i])
	}
	for i := range f.Explained {
		e.explanation(&f.Explained[i])
	}
	writeSection(e, 24, s.traces, f.Traces, nil)
	writeSection(e, 25, s.holds, f.Holds, nil)
	writeSection(e, 26, s.amended, f.Amended, nil)
	writeSection(e, 29, s.ids, f.IDs, nil)
}

// writeSection appends a section if there are items. more appends what is not a column
// of one number for each item.
func writeSection[T any](e *encoder, field protowire.Number, columns []column[T], items []T, more func(*encoder, []T)) {
	if len(items) == 0 {
		return
	}
	if len(items) > maxItems {
		e.err = fmt.Errorf("a frame with %d items in section %d is more than a link takes: at most %d", len(items), field,
			maxItems)
		return
	}
	mark := e.open(field)
	e.uint(1, uint64(len(items)))
	bare := len(e.b)
	for _, c := range columns {
		c.write(e, items)
	}
	if len(items) > bareItems && len(e.b) == bare {
		columns[0].zeros(e, len(items))
	}
	if more != nil {
		more(e, items)
	}
	e.close(mark, true)
}

// words appends the words of entries: the number of each entry's, then all of them.
func (e *encoder) words(entries []peer.Entry) {
	total := 0
	mark := e.open(10)
	for i := range entries {
		n := len(entries[i].Words)
		total += n
		e.b = appendVarint(e.b, uint64(n))
	}
	e.close(mark, total > 0)
	if total == 0 {
		return
	}
	b := e.extend(11, 8*total)
	for i := range entries {
		for _, w := range entries[i].Words {
			binary.LittleEndian.PutUint64(b, w)
			b = b[8:]
		}
	}
}

// replyRules appends the rules of replies: the number of each reply's, then all of them.
func (e *encoder) replyRules(replies []peer.Reply) {
	total := 0
	mark := e.open(14)
	for i := range replies {
		n := len(replies[i].Rules)
		total += n
		e.b = appendVarint(e.b, uint64(n))
	}
	e.close(mark, total > 0)
	if total > maxItems {
		e.err = fmt.Errorf("replies that name %d rules are more than a link takes: at most %d", total, maxItems)
	}
	mark = e.open(15)
	for i := range replies {
		for _, r := range replies[i].Rules {
			e.b = appendVarint(e.b, uint64(r))
		}
	}
	e.close(mark, total > 0)
}

func (e *encoder) rule(r *peer.Rule) {
	mark := e.open(4)
	e.fixed(1, r.ID)
	e.text(2, r.Name)
	e.bool(3, r.Defined)
	e.bool(4, r.Shadow)
	e.uint(5, uint64(r.OnUnreachable))
	e.uint(6, uint64(r.Replication))
	for i := range r.Limits {
		e.limit(7, &r.Limits[i])
	}
	e.text(8, r.Choice)
	e.uint(9, uint64(r.UpTo))
	e.bool(10, r.Onward)
	e.close(mark, true)
}

func (e *encoder) name(n *peer.Name) {
	mark := e.open(22)
	e.fixed(1, n.Hi)
	e.fixed(2, n.Lo)
	e.bool(3, n.Closed)
	e.text(4, n.Text)
	e.close(mark, true)
}

func (e *encoder) known(k *peer.Known) {
	mark := e.open(18)
	e.text(1, k.Name)
	e.fixed(2, uint64(k.Instance))
	e.bool(3, k.Gone)
	e.bool(4, k.Joining)
	e.path(5, k.Path)
	e.bool(6, k.Left)
	e.close(mark, true)
}

func (e *encoder) expulsion(x *peer.Expulsion) {
	mark := e.open(27)
	e.text(1, x.Name)
	e.uint(2, x.Number)
	e.bool(3, x.Back)
	e.path(4, x.Path)
	e.close(mark, true)
}

func (e *encoder) path(field protowire.Number, names []string) {
	for _, name := range names {
		e.b = protowire.AppendTag(e.b, field, protowire.BytesType)
		e.b = protowire.AppendString(e.b, name)
	}
}

func (e *encoder) note(n *peer.Note) {
	mark := e.open(28)
	e.uint(1, uint64(n.Kind))
	e.fixed(2, n.ID)
	if len(n.Text) > 0 {
		e.b = protowire.AppendTag(e.b, 3, protowire.BytesType)
		e.b = protowire.AppendBytes(e.b, n.Text)
	}
	e.close(mark, true)
}

func (e *encoder) limit(field protowire.Number, l *peer.Limit) {
	mark := e.open(field)
	e.text(1, l.Name)
	e.uint(2, uint64(l.Algorithm))
	e.uint(3, uint64(l.Align))
	e.uint(4, uint64(l.Coverage))
	e.uint(5, uint64(l.Rounding))
	e.uint(6, uint64(l.Drip))
	e.uint(7, uint64(l.Count))
	e.uint(8, uint64(l.Limit))
	e.uint(9, uint64(l.Burst))
	e.uint(10, uint64(l.Window))
	e.uint(11, uint64(l.Block))
	e.uint(12, uint64(int64(l.SubWindows))) // negative numbers as in protobuf
	if l.HasWeight {
		e.b = protowire.AppendTag(e.b, 13, protowire.VarintType)
		e.b = protowire.AppendVarint(e.b, uint64(int64(l.Weight)))
	}
	e.uint(14, uint64(l.Calendar))
	e.uint(15, uint64(l.AnchorDay))
	e.uint(16, uint64(l.WeekStart))
	e.uint(17, uint64(int64(l.At)))
	e.text(18, l.Zone)
	e.uint(19, uint64(l.DripUnits))
	e.uint(20, uint64(l.Ceiling))
	e.close(mark, true)
}
