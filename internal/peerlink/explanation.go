package peerlink

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weirlimit/weir/internal/peer"
)

// Explanations are not columns: they are rare and mostly text. Their text belongs to one
// request, so it is not interned like names that repeat.

func (e *encoder) explanation(x *peer.Explanation) {
	mark := e.open(23)
	e.fixed(1, x.ID)
	for i := range x.Limits {
		e.limitExplanation(&x.Limits[i])
	}
	e.close(mark, true)
}

func (e *encoder) limitExplanation(l *peer.LimitExplanation) {
	mark := e.open(2)
	e.text(1, l.Limit)
	e.bool(2, l.Known)
	for i := range l.State {
		in := e.open(3)
		e.text(1, l.State[i].Name)
		e.text(2, l.State[i].Value)
		e.close(in, true)
	}
	for i := range l.Counts {
		in := e.open(4)
		e.uint(1, uint64(l.Counts[i].Start))
		e.uint(2, uint64(l.Counts[i].End))
		e.uint(3, l.Counts[i].Count)
		e.close(in, true)
	}
	e.text(5, l.Arithmetic)
	e.uint(6, uint64(l.Now))
	e.close(mark, true)
}

// moreParts is more for the parts of explanations, whose number is also bounded in all.
func (r *reader) moreParts(f *field, n int, what string) bool {
	if r.explained++; r.explained > maxItems {
		r.fail("the explanations of the frame have more than %d parts", maxItems)
		return false
	}
	return r.more(f, n, maxExplained, what)
}

// own reads a text that is not interned.
func (r *reader) own(f *field, to *string) {
	if r.is(f, protowire.BytesType) {
		*to = string(f.data)
	}
}

func (d *decoder) explanation(x *field, f *peer.Frame) {
	if !d.in.moreParts(x, len(f.Explained), "explanations") {
		return
	}
	d.in.section = "an explanation"
	var e peer.Explanation
	b := x.data
	for d.in.next(&b, x) {
		switch x.number {
		case 1:
			d.in.fixed(x, &e.ID)
		case 2:
			d.limitExplanation(x, &e)
		}
	}
	f.Explained = append(f.Explained, e)
}

func (d *decoder) limitExplanation(x *field, e *peer.Explanation) {
	if !d.in.moreParts(x, len(e.Limits), "limits of an explanation") {
		return
	}
	var l peer.LimitExplanation
	b := x.data
	for d.in.next(&b, x) {
		switch x.number {
		case 1:
			d.in.own(x, &l.Limit)
		case 2:
			d.in.bool(x, &l.Known)
		case 3:
			if d.in.moreParts(x, len(l.State), "fields of an explanation") {
				l.State = append(l.State, d.explainedField(x))
			}
		case 4:
			if d.in.moreParts(x, len(l.Counts), "counts of an explanation") {
				l.Counts = append(l.Counts, d.windowCount(x))
			}
		case 5:
			d.in.own(x, &l.Arithmetic)
		case 6:
			d.in.long(x, &l.Now)
		}
	}
	e.Limits = append(e.Limits, l)
}

func (d *decoder) explainedField(x *field) (f peer.Field) {
	b := x.data
	for d.in.next(&b, x) {
		switch x.number {
		case 1:
			d.in.own(x, &f.Name)
		case 2:
			d.in.own(x, &f.Value)
		}
	}
	return f
}

func (d *decoder) windowCount(x *field) (w peer.WindowCount) {
	b := x.data
	for d.in.next(&b, x) {
		switch x.number {
		case 1:
			d.in.long(x, &w.Start)
		case 2:
			d.in.long(x, &w.End)
		case 3:
			var n uint64
			if d.in.uint(x, &n); n > maxUnits {
				d.in.fail("a count of an explanation is %d, which is too large", n)
			}
			w.Count = n
		}
	}
	return w
}
