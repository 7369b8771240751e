package transport

import (
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// column is a column of lengths, and its name in errors.
type column struct {
	name    string
	lengths []uint32
}

// columnsLen returns the number of checks in a message.
func columnsLen(m *weirv1.CheckColumns) (int, error) {
	if n := len(m.Attributes); n > MaxAttributes {
		return 0, tooManyColumns(n)
	}
	n, first := 0, ""
	agree := func(name string, length int) error {
		switch {
		case length == 0:
			return nil
		case first == "":
			n, first = length, name
			return nil
		case length != n:
			return invalid("%s has %d elements and %s %d: each column that is there has one for each check", first, n, name, length)
		}
		return nil
	}
	for _, c := range [...]column{
		{"path_lengths", m.PathLengths}, {"user_lengths", m.UserLengths}, {"ip_lengths", m.IpLengths},
		{"group_lengths", m.GroupLengths}, {"method_lengths", m.MethodLengths}, {"id_lengths", m.IdLengths},
	} {
		if err := agree(c.name, len(c.lengths)); err != nil {
			return 0, err
		}
	}
	for i, a := range m.Attributes {
		if a.GetName() == "" {
			return 0, invalid("column %d of the attributes has no name", i)
		}
		for _, before := range m.Attributes[:i] {
			if before.GetName() == a.GetName() {
				return 0, invalid("attribute %s has two columns", quote(a.GetName()))
			}
		}
		if err := agree("attribute "+quote(a.GetName()), len(a.GetLengths())); err != nil {
			return 0, err
		}
	}
	if err := agree("costs", len(m.Costs)); err != nil {
		return 0, err
	}
	if n > MaxBatch {
		return 0, tooLarge(n)
	}
	return n, nil
}

// fillColumns turns the columns of a message into requests and returns their number. An
// error wraps ErrInvalid and concerns the whole message.
//
// All strings of the requests are parts of one string, so they cost one allocation for
// each message. (They could share the message's buffer without any allocation if
// nothing ever kept one of them. One copy is not worth that condition.)
func (b *batch) fillColumns(m *weirv1.CheckColumns) (int, error) {
	n, err := columnsLen(m)
	if err != nil {
		return 0, err
	}
	b.grow(n)
	rest, ids := text{left: string(m.Keys)}, text{left: string(m.Ids)}
	ttl, hold := idTime(m.IdTtlUs), idTime(m.HoldUs)
	for i := range n {
		r := &b.requests[i]
		r.Path = rest.next(m.PathLengths, i)
		r.User = rest.next(m.UserLengths, i)
		r.IP = rest.next(m.IpLengths, i)
		r.Group = rest.next(m.GroupLengths, i)
		r.Method = rest.next(m.MethodLengths, i)
		r.Attributes, r.Rule, r.Limits, r.Hold = nil, m.Rule, nil, hold
		if r.ID, r.IDTTL, r.IDOptional = ids.next(m.IdLengths, i), 0, m.IdsOptional; r.ID != "" {
			r.IDTTL = ttl
		}
		r.Tenant, r.Scope = "", nil // of an earlier caller, until this one is admitted
		if len(m.Attributes) > 0 {
			b.fillAttributes(i, m.Attributes, &rest)
		}
	}
	b.fillCosts(n, m)
	switch {
	case ids.short || ids.left != "":
		return 0, invalid("ids has %d bytes, which is not what id_lengths add up to", len(m.Ids))
	case rest.short:
		return 0, invalid("keys has %d bytes, fewer than the lengths add up to", len(m.Keys))
	case rest.left != "":
		return 0, invalid("keys has %d bytes, %d more than the lengths add up to", len(m.Keys), len(rest.left))
	}
	for _, i := range m.RuleCosts {
		if uint64(i) >= uint64(n) {
			return 0, invalid("rule_costs names check %d of %d; they are counted from 0", i, n)
		}
		b.requests[i].Cost = noCost()
	}
	return n, nil
}

// text is the unread part of the keys of a message.
type text struct {
	left  string
	short bool // next was called for more bytes than there were
}

// next takes the string of check i in a column from the text.
func (t *text) next(lengths []uint32, i int) string {
	if i >= len(lengths) {
		return "" // the column is absent
	}
	n := lengths[i]
	if uint64(n) > uint64(len(t.left)) {
		t.short = true
		return ""
	}
	part := t.left[:n]
	t.left = t.left[n:]
	return part
}

func (b *batch) fillAttributes(i int, columns []*weirv1.AttributeColumn, rest *text) {
	r := &b.requests[i]
	for _, c := range columns {
		value := rest.next(c.GetLengths(), i)
		if value == "" {
			continue
		}
		if r.Attributes == nil {
			r.Attributes = b.attributesOf(i)
		}
		r.Attributes[c.GetName()] = value
	}
}
