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

// uint, fixed, bool, octet, long, short and text append a field, unless its value is zero.
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

func (e *encoder) bool(field protowire.Number, v bool)   { e.uint(field, protowire.EncodeBool(v)) }
func (e *encoder) octet(field protowire.Number, v uint8) { e.uint(field, uint64(v)) }
func (e *encoder) long(field protowire.Number, v int64)  { e.uint(field, uint64(v)) }
func (e *encoder) short(field protowire.Number, v int32) { e.long(field, int64(v)) } // negative ones as in protobuf

func (e *encoder) text(field protowire.Number, s string) {
	if s != "" {
		e.b = protowire.AppendTag(e.b, field, protowire.BytesType)
		e.b = protowire.AppendString(e.b, s)
	}
}

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
	writePieces(e, 4, f.Rules, describeRule)
	writePieces(e, 5, f.Limits, describeLimit)
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
	writePieces(e, 18, f.Known, describeKnown)
	writePieces(e, 27, f.Expelled, describeExpulsion)
	writePieces(e, 28, f.Notes, describeNote)
	e.uint(19, f.Number)
	e.uint(20, f.Got)
	e.fixed(21, uint64(f.Via))
	writePieces(e, 22, f.Names, describeName)
	writePieces(e, 23, f.Explained, describeExplanation)
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
