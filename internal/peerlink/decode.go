package peerlink

import (
	"encoding/binary"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weirlimit/weir/internal/peer"
)

// decoder reads frames of other programs, so it trusts nothing. It keeps the first
// error. It does not allocate more memory than a valid frame needs.
type decoder struct {
	in       reader
	sections *sections
}

// reader reads the fields of messages, and their values.
type reader struct {
	names     map[string]string // interned names of rules, limits and members
	section   string            // the section being read, for errors
	limits    int               // limits of the frame so far
	explained int               // parts of explanations so far
	err       error
}

// keptNames bounds the interned names.
const keptNames = 1024

// inbox is the memory of a frame that was read.
type inbox struct {
	frame  peer.Frame
	words  []uint64 // the words of all entries
	counts []uint32
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

func (r *reader) badColumn(field protowire.Number) {
	r.fail("column %d of %s does not have a number for each item, or one that is too large", field, r.section)
}

func (r *reader) atEnd(field protowire.Number, rest []byte) {
	if len(rest) != 0 {
		r.badColumn(field)
	}
}

// field is one field of a message: v is its value if it is a number, data otherwise.
type field struct {
	number protowire.Number
	kind   protowire.Type
	v      uint64
	data   []byte
}

// next reads the next field of a message. It returns false at the end and on an error.
func (r *reader) next(b *[]byte, f *field) bool {
	if len(*b) == 0 || r.err != nil {
		return false
	}
	number, kind, n := protowire.ConsumeTag(*b)
	if n < 0 {
		r.fail("%s is no message: %w", r.section, protowire.ParseError(n))
		return false
	}
	rest := (*b)[n:]
	*f = field{number: number, kind: kind}
	switch kind {
	case protowire.VarintType:
		f.v, n = protowire.ConsumeVarint(rest)
	case protowire.Fixed64Type:
		f.v, n = protowire.ConsumeFixed64(rest)
	case protowire.BytesType:
		f.data, n = protowire.ConsumeBytes(rest)
	default:
		n = protowire.ConsumeFieldValue(number, kind, rest)
	}
	if n < 0 {
		r.fail("field %d of %s is cut off: %w", number, r.section, protowire.ParseError(n))
		return false
	}
	*b = rest[n:]
	return true
}

// is reports whether a field has the given kind, and records an error if not.
func (r *reader) is(f *field, kind protowire.Type) bool {
	if f.kind != kind {
		r.fail("field %d of %s is of another kind than it should be", f.number, r.section)
	}
	return f.kind == kind
}

// more reports whether a field may be one more message of a kind, of which there are n
// already and most are allowed. It records an error if not; what names the kind in it.
func (r *reader) more(f *field, n, most int, what string) bool {
	if !r.is(f, protowire.BytesType) {
		return false
	}
	if n >= most {
		r.fail("the frame has more than %d %s", most, what)
	}
	return n < most
}

// uint, fixed, bool, octet, long, short and text read the value of a field.
func (r *reader) uint(f *field, to *uint64) {
	if r.is(f, protowire.VarintType) {
		*to = f.v
	}
}

func (r *reader) fixed(f *field, to *uint64) {
	if r.is(f, protowire.Fixed64Type) {
		*to = f.v
	}
}

func (r *reader) bool(f *field, to *bool) {
	if r.is(f, protowire.VarintType) {
		*to = f.v != 0
	}
}

func (r *reader) octet(f *field, to *uint8) {
	if !r.is(f, protowire.VarintType) {
		return
	}
	if f.v > math.MaxUint8 {
		r.fail("field %d of %s is %d, which is no known value", f.number, r.section, f.v)
	}
	*to = uint8(f.v)
}

func (r *reader) long(f *field, to *int64) {
	if r.is(f, protowire.VarintType) {
		*to = int64(f.v)
	}
}

// short reads an int32, whose sign protobuf extends to 64 bits.
func (r *reader) short(f *field, to *int32) {
	if r.is(f, protowire.VarintType) {
		*to = int32(f.v)
	}
}

func (r *reader) text(f *field, to *string) {
	if !r.is(f, protowire.BytesType) {
		return
	}
	if len(f.data) > maxName {
		r.fail("a name in %s has %d bytes, and at most %d are taken", r.section, len(f.data), maxName)
		return
	}
	name, known := r.names[string(f.data)]
	if !known {
		name = string(f.data)
		if len(r.names) >= keptNames {
			clear(r.names)
		}
		r.names[name] = name
	}
	*to = name
}

// own reads a text that is not interned.
func (r *reader) own(f *field, to *string) {
	if r.is(f, protowire.BytesType) {
		*to = string(f.data)
	}
}

// count reads a count of an explanation.
func (r *reader) count(f *field, to *uint64) {
	if r.uint(f, to); *to > maxUnits {
		r.fail("a count of an explanation is %d, which is too large", *to)
	}
}

// frame reads a frame into in, and checks that its parts fit together.
func (d *decoder) frame(b []byte, in *inbox) error {
	d.in.section, d.in.limits, d.in.explained, d.in.err = "the frame", 0, 0, nil
	f := &in.frame
	f.Reset()
	var seen uint32 // sections seen; each may occur once
	var x field
	for d.in.next(&b, &x) {
		if x.number >= 6 && x.number <= 17 || x.number == 24 {
			if !d.in.is(&x, protowire.BytesType) {
				break
			}
			if seen&(1<<x.number) != 0 {
				d.in.fail("section %d is there twice", x.number)
				break
			}
			seen |= 1 << x.number
		}
		d.part(&x, in)
		d.in.section = "the frame"
	}
	if d.in.err == nil {
		d.in.err = check(f)
	}
	return d.in.err
}

// part reads one field of a frame.
func (d *decoder) part(x *field, in *inbox) {
	f, s, r := &in.frame, d.sections, &d.in
	switch x.number {
	case 1:
		d.in.fixed(x, (*uint64)(&f.From))
	case 2:
		d.in.fixed(x, (*uint64)(&f.To))
	case 3:
		d.in.bool(x, &f.Relayed)
	case 4:
		readPiece(r, x, &f.Rules, "a rule", r.more(x, len(f.Rules), maxRules, "rules"), describeRule)
	case 5:
		readPiece(r, x, &f.Limits, "a limit", r.moreLimits(x), describeLimit)
	case 6:
		f.Claims, _ = readSection(&d.in, "claims", x.data, s.claims, f.Claims)
	case 7:
		f.Answers, _ = readSection(&d.in, "answers", x.data, s.answers, f.Answers)
	case 8:
		f.Announces, _ = readSection(&d.in, "announces", x.data, s.announces, f.Announces)
	case 9:
		f.Revokes, _ = readSection(&d.in, "revokes", x.data, s.revokes, f.Revokes)
	case 10:
		f.Batches, _ = readSection(&d.in, "batches", x.data, s.batches, f.Batches)
	case 11:
		var more parts
		f.Entries, more = readSection(&d.in, "entries", x.data, s.entries, f.Entries)
		d.words(in, &more)
	case 12:
		f.Acks, _ = readSection(&d.in, "acks", x.data, s.acks, f.Acks)
	case 13:
		f.Checks, _ = readSection(&d.in, "checks", x.data, s.checks, f.Checks)
	case 14:
		f.Keys, _ = readSection(&d.in, "keys", x.data, s.keys, f.Keys)
	case 15:
		f.Refunds, _ = readSection(&d.in, "refunds", x.data, s.refunds, f.Refunds)
	case 16:
		var more parts
		f.Replies, more = readSection(&d.in, "replies", x.data, s.replies, f.Replies)
		d.replyRules(in, &more)
	case 17:
		f.Results, _ = readSection(&d.in, "results", x.data, s.results, f.Results)
	case 18:
		readPiece(r, x, &f.Known, "a known member", r.more(x, len(f.Known), maxKnown, "known members"), describeKnown)
	case 19:
		d.in.uint(x, &f.Number)
	case 20:
		d.in.uint(x, &f.Got)
	case 21:
		d.in.fixed(x, (*uint64)(&f.Via))
	case 22:
		readPiece(r, x, &f.Names, "a name", r.more(x, len(f.Names), maxNames, "names"), describeName)
	case 24:
		f.Traces, _ = readSection(&d.in, "traces", x.data, s.traces, f.Traces)
	case 25:
		f.Holds, _ = readSection(&d.in, "holds", x.data, s.holds, f.Holds)
	case 29:
		f.IDs, _ = readSection(&d.in, "ids", x.data, s.ids, f.IDs)
	case 23, 26, 27, 28:
		d.seldom(x, f)
	}
}

// seldom reads a field that few frames have.
func (d *decoder) seldom(x *field, f *peer.Frame) {
	r := &d.in
	switch x.number {
	case 23:
		more := r.moreParts(x, len(f.Explained), "explanations")
		readPiece(r, x, &f.Explained, "an explanation", more, describeExplanation)
	case 26:
		f.Amended, _ = readSection(&d.in, "amended", x.data, d.sections.amended, f.Amended)
	case 27:
		more := r.more(x, len(f.Expelled), maxExpelled, "expelled members")
		readPiece(r, x, &f.Expelled, "an expelled member", more, describeExpulsion)
	default:
		readPiece(r, x, &f.Notes, "a note", r.more(x, len(f.Notes), maxNotes, "notes"), describeNote)
	}
}

// parts are the raw columns of a section by number; nil if absent.
type parts [maxFields][]byte

// readSection reads a section into items, whose old contents do not matter.
func readSection[T any](r *reader, name string, b []byte, columns []column[T], items []T) ([]T, parts) {
	r.section = name
	var count uint64
	var p parts
	var x field
	for r.next(&b, &x) {
		switch {
		case x.number == 1:
			r.uint(&x, &count)
		case x.number >= maxFields: // a column of a newer version
		case p[x.number] != nil:
			r.fail("column %d of %s is there twice", x.number, name)
		case r.is(&x, protowire.BytesType):
			p[x.number] = x.data
		}
	}
	if count > maxItems {
		r.fail("%d %s are more than a link takes: at most %d", count, name, maxItems)
	}
	if count > bareItems && !p.hold(count) {
		r.fail("%d %s are said to be there, and no column has so many", count, name)
	}
	if r.err != nil {
		return items[:0], p
	}
	items = resize(items, int(count))
	clear(items)
	for _, c := range columns {
		if data := p[c.number()]; data != nil {
			c.read(r, data, items)
		}
	}
	return items, p
}

// hold reports whether some column is long enough for so many items, each of which takes
// at least a byte. So a few bytes cannot cause a large allocation.
func (p *parts) hold(count uint64) bool {
	for _, data := range p {
		if uint64(len(data)) >= count {
			return true
		}
	}
	return false
}

// resize returns a slice of n elements, in the memory of s if that suffices.
func resize[T any](s []T, n int) []T {
	if n > cap(s) {
		return make([]T, n)
	}
	return s[:n]
}

// words reads the words of the entries.
func (d *decoder) words(in *inbox, p *parts) {
	entries := in.frame.Entries
	total := d.counts(in, p[10], len(entries), len(p[11])/8)
	if len(p[11]) != 8*total {
		d.in.badColumn(11)
	}
	if d.in.err != nil || total == 0 {
		return
	}
	in.words = resize(in.words, total)
	for i := range in.words {
		in.words[i] = binary.LittleEndian.Uint64(p[11][8*i:])
	}
	rest := in.words
	for i := range entries {
		if n := in.counts[i]; n > 0 {
			entries[i].Words, rest = rest[:n:n], rest[n:]
		}
	}
}

// replyRules reads the rules of the replies.
func (d *decoder) replyRules(in *inbox, p *parts) {
	replies, data := in.frame.Replies, p[15]
	total := d.counts(in, p[14], len(replies), min(len(data), maxItems))
	if d.in.err != nil {
		return
	}
	rules := make([]uint16, total) // there are hardly ever any
	for i := range rules {
		v, n := consumeVarint(data)
		if n == 0 || v > math.MaxUint16 {
			d.in.badColumn(15)
			return
		}
		rules[i], data = uint16(v), data[n:]
	}
	d.in.atEnd(15, data)
	if total == 0 {
		return // there may be no counts
	}
	for i := range replies {
		if n := in.counts[i]; n > 0 {
			replies[i].Rules, rules = rules[:n:n], rules[n:]
		}
	}
}

// counts reads a column of counts into in and returns their sum. It records an error if
// the sum exceeds most.
func (d *decoder) counts(in *inbox, data []byte, items, most int) (total int) {
	if data == nil || d.in.err != nil {
		return 0
	}
	in.counts = resize(in.counts, items)
	for i := range in.counts {
		v, n := consumeVarint(data)
		if n == 0 || v > uint64(most-total) {
			d.in.fail("the counts of %s do not add up to what is there", d.in.section)
			return 0
		}
		total += int(v)
		in.counts[i], data = uint32(v), data[n:]
	}
	if len(data) != 0 {
		d.in.fail("%s has more counts than items", d.in.section)
	}
	return total
}
