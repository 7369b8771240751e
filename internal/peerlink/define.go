package peerlink

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weirlimit/weir/internal/peer"
)

// Definitions of rules and limits, and members by name, are not columns: they are few
// and consist of text.

func (d *decoder) rule(x *field, f *peer.Frame) {
	if !d.in.more(x, len(f.Rules), maxRules, "rules") {
		return
	}
	d.in.section = "a rule"
	var r peer.Rule
	b := x.data
	for d.in.next(&b, x) {
		switch x.number {
		case 1:
			d.in.fixed(x, &r.ID)
		case 2:
			d.in.text(x, &r.Name)
		case 3:
			d.in.bool(x, &r.Defined)
		case 4:
			d.in.bool(x, &r.Shadow)
		case 5:
			d.in.octet(x, &r.OnUnreachable)
		case 6:
			d.in.octet(x, &r.Replication)
		case 7:
			r.Limits = d.limit(x, r.Limits)
			d.in.section = "a rule"
		case 8:
			d.in.text(x, &r.Choice)
		case 9:
			d.in.octet(x, &r.UpTo)
		case 10:
			d.in.bool(x, &r.Onward)
		}
	}
	f.Rules = append(f.Rules, r)
}

// keyName reads the name of a key.
func (d *decoder) keyName(x *field, f *peer.Frame) {
	if !d.in.more(x, len(f.Names), maxNames, "names") {
		return
	}
	d.in.section = "a name"
	var n peer.Name
	b := x.data
	for d.in.next(&b, x) {
		switch x.number {
		case 1:
			d.in.fixed(x, &n.Hi)
		case 2:
			d.in.fixed(x, &n.Lo)
		case 3:
			d.in.bool(x, &n.Closed)
		case 4:
			if d.in.is(x, protowire.BytesType) {
				n.Text = string(x.data) // such names do not repeat, so they are not interned
			}
		}
	}
	f.Names = append(f.Names, n)
}

func (d *decoder) known(x *field, f *peer.Frame) {
	if !d.in.more(x, len(f.Known), maxKnown, "known members") {
		return
	}
	d.in.section = "a known member"
	var k peer.Known
	b := x.data
	for d.in.next(&b, x) {
		switch x.number {
		case 1:
			d.in.text(x, &k.Name)
		case 2:
			d.in.fixed(x, (*uint64)(&k.Instance))
		case 3:
			d.in.bool(x, &k.Gone)
		case 4:
			d.in.bool(x, &k.Joining)
		case 5:
			d.path(x, &k.Path)
		case 6:
			d.in.bool(x, &k.Left)
		}
	}
	f.Known = append(f.Known, k)
}

func (d *decoder) expulsion(x *field, f *peer.Frame) {
	if !d.in.more(x, len(f.Expelled), maxExpelled, "expelled members") {
		return
	}
	d.in.section = "an expelled member"
	var e peer.Expulsion
	b := x.data
	for d.in.next(&b, x) {
		switch x.number {
		case 1:
			d.in.text(x, &e.Name)
		case 2:
			d.in.uint(x, &e.Number)
		case 3:
			d.in.bool(x, &e.Back)
		case 4:
			d.path(x, &e.Path)
		}
	}
	f.Expelled = append(f.Expelled, e)
}

func (d *decoder) path(x *field, to *[]string) {
	if d.in.more(x, len(*to), maxPath, "members that told it on") {
		name := ""
		d.in.text(x, &name)
		*to = append(*to, name)
	}
}

func (d *decoder) note(x *field, f *peer.Frame) {
	if !d.in.more(x, len(f.Notes), maxNotes, "notes") {
		return
	}
	d.in.section = "a note"
	var n peer.Note
	b := x.data
	for d.in.next(&b, x) {
		switch x.number {
		case 1:
			d.in.octet(x, (*uint8)(&n.Kind))
		case 2:
			d.in.fixed(x, &n.ID)
		case 3:
			if d.in.is(x, protowire.BytesType) {
				n.Text = bytes.Clone(x.data)
			}
		}
	}
	if len(n.Text) > peer.MaxNoteBytes {
		d.in.fail("a note of %d bytes is longer than the %d that are possible", len(n.Text), peer.MaxNoteBytes)
		return
	}
	f.Notes = append(f.Notes, n)
}

func (d *decoder) limit(x *field, to []peer.Limit) []peer.Limit {
	if !d.in.more(x, d.limits, maxLimits, "limits") {
		return to
	}
	d.limits++
	d.in.section = "a limit"
	var l peer.Limit
	b := x.data
	for d.in.next(&b, x) {
		switch x.number {
		case 1:
			d.in.text(x, &l.Name)
		case 2:
			d.in.octet(x, &l.Algorithm)
		case 3:
			d.in.octet(x, &l.Align)
		case 4:
			d.in.octet(x, &l.Coverage)
		case 5:
			d.in.octet(x, &l.Rounding)
		case 6:
			d.in.octet(x, &l.Drip)
		case 7:
			d.in.octet(x, &l.Count)
		case 8:
			d.in.long(x, &l.Limit)
		case 9:
			d.in.long(x, &l.Burst)
		case 10:
			d.in.long(x, &l.Window)
		case 11:
			d.in.long(x, &l.Block)
		case 12:
			d.in.short(x, &l.SubWindows)
		case 13:
			l.HasWeight = true
			d.in.short(x, &l.Weight)
		case 14:
			d.in.octet(x, &l.Calendar)
		case 15:
			d.in.octet(x, &l.AnchorDay)
		case 16:
			d.in.octet(x, &l.WeekStart)
		case 17:
			d.in.short(x, &l.At)
		case 18:
			d.in.text(x, &l.Zone)
		case 19:
			d.in.long(x, &l.DripUnits)
		case 20:
			d.in.long(x, &l.Ceiling)
		}
	}
	return append(to, l)
}
