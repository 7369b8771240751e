package weirwire

import (
	"reflect"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// column is a column of lengths, and its name in errors.
type column struct {
	name    string
	lengths []uint32
}

// ColumnsLen returns the number of checks in a message. An error wraps ErrInvalid and concerns the
// whole message; without one its columns fit each other and their text.
func ColumnsLen(m *weirv1.CheckColumns) (int, error) {
	if n := len(m.Attributes); n > MaxAttributes {
		return 0, tooManyColumns(n)
	}
	n, first, text := 0, "", uint64(0)
	agree := func(name string, length int) error {
		switch {
		case length == 0:
			return nil
		case first == "":
			n, first = length, name
			return nil
		case length != n:
			return invalid("%s has %d elements and %s %d: each column that is there has one for each check", first, n, name,
				length)
		}
		return nil
	}
	for _, c := range [...]column{
		{"path_lengths", m.PathLengths}, {"user_lengths", m.UserLengths}, {"ip_lengths", m.IpLengths},
		{"group_lengths", m.GroupLengths}, {"method_lengths", m.MethodLengths},
	} {
		if err := agree(c.name, len(c.lengths)); err != nil {
			return 0, err
		}
		text += sum(c.lengths)
	}
	if err := agree("id_lengths", len(m.IdLengths)); err != nil {
		return 0, err
	}
	for i, a := range m.Attributes {
		if a.GetName() == "" {
			return 0, invalid("column %d of the attributes has no name", i)
		}
		for _, before := range m.Attributes[:i] {
			if before.GetName() == a.GetName() {
				return 0, invalid("attribute %s has two columns", frontend.Quote(a.GetName()))
			}
		}
		if err := agree("attribute "+frontend.Quote(a.GetName()), len(a.GetLengths())); err != nil {
			return 0, err
		}
		text += sum(a.GetLengths())
	}
	if err := agree("costs", len(m.Costs)); err != nil {
		return 0, err
	}
	if n > MaxBatch {
		return 0, TooLarge(n)
	}
	return n, fit(m, n, text)
}

// fit returns an error if the lengths of a message of n checks do not add up to its text, or if its
// rule_costs name others than these. text is the sum of all lengths but those of ids.
func fit(m *weirv1.CheckColumns, n int, text uint64) error {
	has := uint64(len(m.Keys))
	switch {
	case sum(m.IdLengths) != uint64(len(m.Ids)):
		return invalid("ids has %d bytes, which is not what id_lengths add up to", len(m.Ids))
	case has < text:
		return invalid("keys has %d bytes, fewer than the lengths add up to", has)
	case has > text:
		return invalid("keys has %d bytes, %d more than the lengths add up to", has, has-text)
	}
	for _, i := range m.RuleCosts {
		if uint64(i) >= uint64(n) {
			return invalid("rule_costs names check %d of %d; they are counted from 0", i, n)
		}
	}
	return nil
}

// sum adds up lengths: so few fit into a message that the sum does not overflow.
func sum(lengths []uint32) (total uint64) {
	for _, n := range lengths {
		total += uint64(n)
	}
	return total
}

// AlikeOf returns what all requests of a message have in common.
func AlikeOf(m *weirv1.CheckColumns) limiter.Request {
	return limiter.Request{Rule: m.Rule, Hold: IDTime(m.HoldUs), IDOptional: m.IdsOptional}
}

// Filler turns messages into requests, and knows which of them are still as an earlier message left them: the first n
// have what alike has, and a path and a user. To copy that again takes half of the time in which a message becomes
// requests. The zero value knows none.
type Filler struct {
	n          int
	alike      limiter.Request
	attributes []map[string]string // one for each request, made when needed
}

// Forget says that the requests are others now, or may be written to.
func (f *Filler) Forget() { f.n = 0 }

// Fill turns the checks of a message, of which [ColumnsLen] has returned the number without an error,
// into as many requests. alike is what all of them have in common.
//
// All strings of the requests are parts of one string, so they cost one allocation for
// each message. (They could share the message's buffer without any allocation if
// nothing ever kept one of them. One copy is not worth that condition.)
func (f *Filler) Fill(requests []limiter.Request, m *weirv1.CheckColumns, alike *limiter.Request) {
	have := f.Kept(alike)
	f.n = 0
	rest := text{left: string(m.Keys)}
	if bare(m) {
		for i := range requests {
			r := &requests[i]
			if i >= have {
				*r = *alike
			}
			r.Path = rest.next(m.PathLengths, i)
			r.User = rest.next(m.UserLengths, i)
		}
		f.n, f.alike = max(have, len(requests)), *alike
		return
	}
	ids, ttl := text{left: string(m.Ids)}, IDTime(m.IdTtlUs)
	for i := range requests {
		r := &requests[i]
		*r = *alike // so nothing is left of an earlier caller
		r.Path = rest.next(m.PathLengths, i)
		r.User = rest.next(m.UserLengths, i)
		r.IP = rest.next(m.IpLengths, i)
		r.Group = rest.next(m.GroupLengths, i)
		r.Method = rest.next(m.MethodLengths, i)
		if r.ID = ids.next(m.IdLengths, i); r.ID != "" {
			r.IDTTL = ttl
		}
		if i < len(m.Costs) {
			r.Cost = limiter.Units(m.Costs[i])
		}
		if len(m.Attributes) > 0 {
			f.fillAttributes(r, i, m.Attributes, &rest)
		}
	}
	for _, i := range m.RuleCosts {
		requests[i].Cost = limiter.Cost{} // not given, so that the rule's applies
	}
}

// bare reports whether the requests of a message have nothing of their own but a path and a user.
func bare(m *weirv1.CheckColumns) bool {
	return len(m.IpLengths)+len(
		m.GroupLengths)+len(m.MethodLengths)+len(m.IdLengths)+len(m.Costs)+len(m.RuleCosts)+len(m.Attributes) == 0
}

// Kept returns how many of them have what another request has. It knows the fields that a message
// has once, or that its caller has.
func (f *Filler) Kept(r *limiter.Request) int {
	have := &f.alike
	if have.Rule == r.Rule && have.Hold == r.Hold && have.Lent == r.Lent && have.Rate == r.Rate && have.Fast == r.Fast &&
		have.IDOptional == r.IDOptional && have.Tenant == r.Tenant && have.Caller == r.Caller &&
		sameScope(have.Scope, r.Scope) {
		return f.n
	}
	return 0
}

// sameScope reports whether two scopes are known to be the same: others than pointers may have no
// comparison.
func sameScope(a, b limiter.Scope) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return reflect.TypeOf(a).Kind() == reflect.Pointer && a == b
}

// text is the unread part of the keys of a message.
type text struct{ left string }

// next takes the string of check i in a column from the text.
func (t *text) next(lengths []uint32, i int) string {
	if i >= len(lengths) {
		return "" // the column is absent
	}
	n := lengths[i]
	part := t.left[:n]
	t.left = t.left[n:]
	return part
}

func (f *Filler) fillAttributes(r *limiter.Request, i int, columns []*weirv1.AttributeColumn, rest *text) {
	for _, c := range columns {
		value := rest.next(c.GetLengths(), i)
		if value == "" {
			continue
		}
		if r.Attributes == nil {
			r.Attributes = f.attributesOf(i)
		}
		r.Attributes[c.GetName()] = value
	}
}

// attributesOf returns an empty map for request i.
func (f *Filler) attributesOf(i int) map[string]string {
	for len(f.attributes) <= i {
		f.attributes = append(f.attributes, nil)
	}
	if f.attributes[i] == nil {
		f.attributes[i] = make(map[string]string)
	}
	clear(f.attributes[i])
	return f.attributes[i]
}
