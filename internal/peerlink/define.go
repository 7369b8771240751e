package peerlink

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weirlimit/weir/internal/peer"
)

// Definitions of rules and limits, members by name, notes and explanations are not columns: they are few
// and consist of text. A function describes the fields of each, for the encoder and the decoder alike.

// piece is such a message on its way out, or one field of it on its way in.
type piece struct {
	out *encoder // nil: a field is read
	in  *reader
	x   *field
}

// writePieces appends a field for each message.
func writePieces[T any](e *encoder, n protowire.Number, of []T, describe func(*piece, *T)) {
	for i := range of {
		mark := e.open(n)
		describe(&piece{out: e}, &of[i])
		e.close(mark, true)
	}
}

// readPiece appends the message that a field has, if there may be one more. section names it in errors.
func readPiece[T any](r *reader, x *field, to *[]T, section string, more bool, describe func(*piece, *T)) {
	if !more {
		return
	}
	var one T
	p := piece{in: r, x: new(field)}
	above, b := r.section, x.data
	r.section = section
	for r.next(&b, p.x) {
		describe(&p, &one)
	}
	r.section = above
	*to = append(*to, one)
}

// pieces are messages within the message. more reports whether there may be one more.
func pieces[T any](p *piece, n protowire.Number, of *[]T, section string, more func() bool, describe func(*piece, *T)) {
	switch {
	case p.out != nil:
		writePieces(p.out, n, *of, describe)
	case p.x.number == n:
		readPiece(p.in, p.x, of, section, more(), describe)
	}
}

// value is a field that write leaves out if it is zero.
func value[T any](p *piece, n protowire.Number, v *T, write func(*encoder, protowire.Number, T),
	read func(*reader, *field, *T)) {
	if p.out != nil {
		write(p.out, n, *v)
	} else if p.x.number == n {
		read(p.in, p.x, v)
	}
}

func (p *piece) fixed(n protowire.Number, v *uint64) {
	value(p, n, v, (*encoder).fixed, (*reader).fixed)
}
func (p *piece) bool(n protowire.Number, v *bool)   { value(p, n, v, (*encoder).bool, (*reader).bool) }
func (p *piece) text(n protowire.Number, v *string) { value(p, n, v, (*encoder).text, (*reader).text) }
func (p *piece) own(n protowire.Number, v *string)  { value(p, n, v, (*encoder).text, (*reader).own) }
func (p *piece) uint(n protowire.Number, v *uint64) { value(p, n, v, (*encoder).uint, (*reader).uint) }
func (p *piece) octet(n protowire.Number, v *uint8) {
	value(p, n, v, (*encoder).octet, (*reader).octet)
}
func (p *piece) short(n protowire.Number, v *int32) {
	value(p, n, v, (*encoder).short, (*reader).short)
}
func (p *piece) long(n protowire.Number, v *int64) { value(p, n, v, (*encoder).long, (*reader).long) }

func describeRule(p *piece, r *peer.Rule) {
	p.fixed(1, &r.ID)
	p.text(2, &r.Name)
	p.bool(3, &r.Defined)
	p.bool(4, &r.Shadow)
	p.octet(5, &r.OnUnreachable)
	p.octet(6, &r.Replication)
	pieces(p, 7, &r.Limits, "a limit", func() bool { return p.in.moreLimits(p.x) }, describeLimit)
	p.text(8, &r.Choice)
	p.octet(9, &r.UpTo)
	p.bool(10, &r.Onward)
}

// moreLimits is more for limits, whose number is bounded in all of the frame.
func (r *reader) moreLimits(x *field) bool {
	if !r.more(x, r.limits, maxLimits, "limits") {
		return false
	}
	r.limits++
	return true
}

func describeLimit(p *piece, l *peer.Limit) {
	p.text(1, &l.Name)
	p.octet(2, &l.Algorithm)
	p.octet(3, &l.Align)
	p.octet(4, &l.Coverage)
	p.octet(5, &l.Rounding)
	p.octet(6, &l.Drip)
	p.octet(7, &l.Count)
	p.long(8, &l.Limit)
	p.long(9, &l.Burst)
	p.long(10, &l.Window)
	p.long(11, &l.Block)
	p.short(12, &l.SubWindows)
	value(p, 13, l, (*encoder).weight, func(r *reader, x *field, l *peer.Limit) {
		l.HasWeight = true
		r.short(x, &l.Weight)
	})
	p.octet(14, &l.Calendar)
	p.octet(15, &l.AnchorDay)
	p.octet(16, &l.WeekStart)
	p.short(17, &l.At)
	p.text(18, &l.Zone)
	p.long(19, &l.DripUnits)
	p.long(20, &l.Ceiling)
}

// weight appends the weight of a limit that has one, also if it is zero.
func (e *encoder) weight(n protowire.Number, l peer.Limit) {
	if l.HasWeight {
		e.b = protowire.AppendTag(e.b, n, protowire.VarintType)
		e.b = protowire.AppendVarint(e.b, uint64(int64(l.Weight)))
	}
}

func describeName(p *piece, n *peer.Name) {
	p.fixed(1, &n.Hi)
	p.fixed(2, &n.Lo)
	p.bool(3, &n.Closed)
	p.own(4, &n.Text) // such names do not repeat, so they are not interned
}

func describeKnown(p *piece, k *peer.Known) {
	p.text(1, &k.Name)
	p.fixed(2, (*uint64)(&k.Instance))
	p.bool(3, &k.Gone)
	p.bool(4, &k.Joining)
	p.path(5, &k.Path)
	p.bool(6, &k.Left)
}

func describeExpulsion(p *piece, x *peer.Expulsion) {
	p.text(1, &x.Name)
	p.uint(2, &x.Number)
	p.bool(3, &x.Back)
	p.path(4, &x.Path)
}

// path is the names of who told on what a message says.
func (p *piece) path(n protowire.Number, names *[]string) {
	value(p, n, names, func(e *encoder, n protowire.Number, names []string) {
		for _, name := range names {
			e.b = protowire.AppendTag(e.b, n, protowire.BytesType)
			e.b = protowire.AppendString(e.b, name)
		}
	}, func(r *reader, x *field, names *[]string) {
		if r.more(x, len(*names), maxPath, "members that told it on") {
			name := ""
			r.text(x, &name)
			*names = append(*names, name)
		}
	})
}

func describeNote(p *piece, n *peer.Note) {
	p.octet(1, (*uint8)(&n.Kind))
	p.fixed(2, &n.ID)
	value(p, 3, &n.Text, func(e *encoder, n protowire.Number, text []byte) {
		e.text(n, string(text))
	}, func(r *reader, x *field, text *[]byte) {
		if !r.is(x, protowire.BytesType) {
			return
		}
		if len(x.data) > peer.MaxNoteBytes {
			r.fail("a note of %d bytes is longer than the %d that are possible", len(x.data), peer.MaxNoteBytes)
			return
		}
		*text = bytes.Clone(x.data)
	})
}

// Explanations are rare and mostly text. Their text belongs to one request, so it is not interned like names that
// repeat.

func describeExplanation(p *piece, x *peer.Explanation) {
	p.fixed(1, &x.ID)
	explained(p, 2, &x.Limits, "limits of an explanation", describeLimitExplanation)
}

// explained are parts of an explanation. what names them in errors.
func explained[T any](p *piece, n protowire.Number, of *[]T, what string, describe func(*piece, *T)) {
	pieces(p, n, of, "an explanation", func() bool { return p.in.moreParts(p.x, len(*of), what) }, describe)
}

// moreParts is more for the parts of explanations, whose number is also bounded in all.
func (r *reader) moreParts(f *field, n int, what string) bool {
	if r.explained++; r.explained > maxItems {
		r.fail("the explanations of the frame have more than %d parts", maxItems)
		return false
	}
	return r.more(f, n, maxExplained, what)
}

func describeLimitExplanation(p *piece, l *peer.LimitExplanation) {
	p.own(1, &l.Limit)
	p.bool(2, &l.Known)
	explained(p, 3, &l.State, "fields of an explanation", func(p *piece, f *peer.Field) {
		p.own(1, &f.Name)
		p.own(2, &f.Value)
	})
	explained(p, 4, &l.Counts, "counts of an explanation", func(p *piece, w *peer.WindowCount) {
		p.long(1, &w.Start)
		p.long(2, &w.End)
		value(p, 3, &w.Count, (*encoder).uint, (*reader).count)
	})
	p.own(5, &l.Arithmetic)
	p.long(6, &l.Now)
}
