package client

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// kind is what all checks of a message have in common.
type kind struct {
	rule string
	peek bool
	ids  idKind
}

// fate is the outcome of a message.
type fate uint8

const (
	answered  fate = iota
	undecided      // not decided: it can be retried at any node
	unknown        // it may have been decided
)

// batch is a message of checks, from the first check that is added until the last of
// its callers has read the answer. The client's lock guards it until it is finished;
// then it no longer changes.
type batch struct {
	kind kind
	node *node
	n    int // checks
	// waits is how many of their callers wait for the answer, or did when it was sent.
	waits int
	gone  []int // those whose callers gave up before it was sent, by the numbers that add returned
	size  int   // bytes of strings
	refs  int32 // see release; atomic

	message weirv1.CheckColumns
	begun   time.Time // when the first check was added
	sent    time.Time // when it was sent, or is about to be
	timer   *time.Timer
	open    bool // further checks may be added

	reading  bool // a reply has come and is being read
	finished bool // done is closed, or about to be
	spoiled  bool // its timer may still run, so it must not be used again

	done  chan struct{} // closed when it is finished
	got   answers
	named []string // the ids that callers have given to its checks
}

func (b *batch) fits(c *Config, r *limiter.Request, size int) bool {
	if b.n >= c.MaxMessage || b.n > 0 && b.size+size > MaxMessageBytes {
		return false
	}
	if len(r.Attributes) == 0 {
		return true
	}
	columns := len(b.message.Attributes)
	for name := range r.Attributes {
		if name != "" && b.attribute(name) < 0 {
			columns++
		}
	}
	return columns <= MaxAttributes
}

func (b *batch) attribute(name string) int {
	for i, a := range b.message.Attributes {
		if a.Name == name {
			return i
		}
	}
	return -1
}

// sizeOf returns the bytes of strings in a request, or an error if no message can carry
// it. Nodes would refuse it for the same reason.
func sizeOf(r *limiter.Request) (int, error) {
	if err := r.CheckSize(); err != nil {
		return 0, err
	}
	size := len(r.ID) + len(r.Path) + len(r.User) + len(r.IP) + len(r.Group) + len(r.Method)
	if len(r.Attributes) > 0 { // to range over none takes 10 ns
		for name, value := range r.Attributes {
			size += len(name) + len(value)
			if !utf8.ValidString(name) {
				return 0, fmt.Errorf("%w: the name of attribute %q is not UTF-8", ErrInvalid, name)
			}
		}
	}
	if r.Rule != "" && !utf8.ValidString(r.Rule) {
		return 0, fmt.Errorf("%w: the name of rule %q is not UTF-8", ErrInvalid, r.Rule)
	}
	if size+len(r.Rule) > MaxMessageBytes {
		return 0, fmt.Errorf("%w: the request has %d bytes; at most %d are allowed", ErrInvalid, size+len(r.Rule),
			MaxMessageBytes)
	}
	if r.Tenant != "" || r.Caller != "" || r.Scope != nil || r.Lent || r.Rate > 0 || r.Fast {
		return 0, fmt.Errorf("%w: the request has a Tenant, Caller, Scope, Lent, Rate or Fast, which only a node in the "+
			"same process takes: nodes know their callers by certificates and tokens", ErrInvalid)
	}
	if len(r.Limits)|len(r.LimitKeys) != 0 || r.Hold > 0 {
		err := spelled(r)
		if err == nil {
			err = checkKeys(r)
		}
		if err != nil {
			return 0, err
		}
	}
	_, err := r.Cost.Value(0)
	return size, err
}

// sendable returns an error for a request that no message of one request can carry.
func sendable(r *limiter.Request) error {
	if _, err := sizeOf(r); err != nil {
		return err
	}
	return spelled(r)
}

// spelled returns an error for a request whose values are not UTF-8: messages of one request have them as texts.
func spelled(r *limiter.Request) error {
	for _, f := range [...]struct{ name, text string }{
		{"the id", r.ID}, {"the path", r.Path}, {"the method", r.Method}, {"the user", r.User}, {"the ip", r.IP},
		{"the group", r.Group},
	} {
		if !utf8.ValidString(f.text) {
			return fmt.Errorf("%w: %s is %.100q, which is not UTF-8, and cannot be sent: give it in another form, such as "+
				"hexadecimal", ErrInvalid, f.name, f.text)
		}
	}
	for name, text := range r.Attributes {
		if !utf8.ValidString(text) {
			return fmt.Errorf("%w: attribute %q is %.100q, which is not UTF-8, and cannot be sent: give it in another form, "+
				"such as hexadecimal", ErrInvalid, name, text)
		}
	}
	return nil
}

// checkKeys returns an error for keys of limits that no message can carry.
func checkKeys(r *limiter.Request) error {
	if i := slices.IndexFunc(r.Limits, func(l *limiter.Limit) bool { return l == nil || l.Window() == 0 }); i >= 0 {
		return fmt.Errorf("%w: limit %d of the request is nil or empty: make limits with NewLimit", ErrInvalid, i)
	}
	if slices.ContainsFunc(r.Limits, func(l *limiter.Limit) bool { return l.Spec().Ceiling != 0 }) {
		return fmt.Errorf("%w: a limit of the request has a ceiling, which only draws of the rules file have: give a lower "+
			"limit", ErrInvalid)
	}
	if len(r.LimitKeys) > len(r.Limits) {
		return fmt.Errorf("%w: the request has %d limits and keys for %d", ErrInvalid, len(r.Limits), len(r.LimitKeys))
	}
	for i, parts := range r.LimitKeys {
		for _, p := range parts {
			if len(parts) > limiter.MaxKeyParts || len(p) > limiter.MaxFieldBytes || !utf8.ValidString(p) {
				return fmt.Errorf("%w: the key of limit %d of the request is %.200q: give up to %d parts such as user or attr:plan",
					ErrInvalid, i, parts, limiter.MaxKeyParts)
			}
		}
	}
	return nil
}

// add adds a request whose cost is in range and returns its index. It copies everything
// it needs.
func (b *batch) add(r *limiter.Request, id *identified, size int) int {
	m, i := &b.message, b.n
	m.Keys = append(m.Keys, r.Path...)
	m.Keys = append(m.Keys, r.User...)
	m.Keys = append(m.Keys, r.IP...)
	m.Keys = append(m.Keys, r.Group...)
	m.Keys = append(m.Keys, r.Method...)
	m.PathLengths = append(m.PathLengths, uint32(len(r.Path))) // the length of this column is the number of checks
	m.UserLengths = length(m.UserLengths, i, len(r.User))
	m.IpLengths = length(m.IpLengths, i, len(r.IP))
	m.GroupLengths = length(m.GroupLengths, i, len(r.Group))
	m.MethodLengths = length(m.MethodLengths, i, len(r.Method))
	if len(r.Attributes) > 0 || len(m.Attributes) > 0 {
		b.addAttributes(r)
	}
	b.addCost(r)
	b.appendID(r, id)
	b.n++
	b.waits++
	b.size += size
	atomic.AddInt32(&b.refs, 1) // a caller may give up at any time
	return i
}

// length appends to a column of lengths, which has i elements, or none while all its
// strings are empty.
func length(column []uint32, i, n int) []uint32 {
	if len(column) == 0 {
		if n == 0 {
			return column
		}
		for range i {
			column = append(column, 0)
		}
	}
	return append(column, uint32(n))
}

// addAttributes appends to the columns of attributes. An attribute with an empty name
// or value is ignored.
func (b *batch) addAttributes(r *limiter.Request) {
	m := &b.message
	for name, value := range r.Attributes {
		if name != "" && value != "" && b.attribute(name) < 0 {
			m.Attributes = append(m.Attributes, &weirv1.AttributeColumn{Name: name, Lengths: make([]uint32, b.n, b.n+1)})
		}
	}
	for _, a := range m.Attributes {
		value := r.Attributes[a.Name]
		m.Keys = append(m.Keys, value...)
		a.Lengths = append(a.Lengths, uint32(len(value)))
	}
}

// addCost appends to the column of costs, which stays empty while all costs are left to
// the rule.
func (b *batch) addCost(r *limiter.Request) {
	m := &b.message
	if !r.Cost.Given() {
		if len(m.Costs) > 0 {
			m.Costs, m.RuleCosts = append(m.Costs, 0), append(m.RuleCosts, uint32(b.n))
		}
		return
	}
	for i := len(m.Costs); i < b.n; i++ {
		m.Costs, m.RuleCosts = append(m.Costs, 0), append(m.RuleCosts, uint32(i))
	}
	n, _ := r.Cost.Value(0) // sizeOf has checked it
	m.Costs = append(m.Costs, int64(n))
}

// clear empties the batch and keeps its memory.
func (b *batch) clear() {
	m := &b.message
	m.Keys, m.PathLengths, m.UserLengths = m.Keys[:0], m.PathLengths[:0], m.UserLengths[:0]
	m.IpLengths, m.GroupLengths, m.MethodLengths = m.IpLengths[:0], m.GroupLengths[:0], m.MethodLengths[:0]
	m.Ids, m.IdLengths = m.Ids[:0], m.IdLengths[:0]
	m.Attributes, m.Costs, m.RuleCosts = nil, m.Costs[:0], m.RuleCosts[:0]
	b.n, b.waits, b.size, b.node, b.timer = 0, 0, 0, nil, nil
	b.reading, b.finished, b.sent = false, false, time.Time{}
	b.gone, b.named = b.gone[:0], b.named[:0]
	b.got = answers{limits: b.got.limits[:0], starts: b.got.starts[:0]}
}

// release drops one reference. Each check has one, which its caller drops after reading
// the answer, and the client has one. The caller that drops the last one may reuse the
// batch.
func (b *batch) release() (last bool) { return atomic.AddInt32(&b.refs, -1) == 0 }
