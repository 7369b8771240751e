package limiter

import "fmt"

// Bounds of a request.
const (
	// MaxFieldBytes is how long each string of a request may be, in bytes: the path,
	// the user, the name or the value of an attribute.
	MaxFieldBytes = 8 << 10
	// MaxAttributes is how many attributes a request may have.
	MaxAttributes = 16
)

// Request is what a front door knows of one check. Strings are taken as they
// are: no part is trimmed, lowered or decoded here.
type Request struct {
	// Path is the path that is asked for, without the query.
	Path string
	// Method is the HTTP method or whatever the service calls a method.
	Method string
	// User names the caller. Empty means unknown: counters per user then count
	// per IP, so that nobody escapes a limit by being anonymous.
	User string
	// IP is the address of the caller.
	IP string
	// Group is the caller's group; empty means "default".
	Group string
	// Attributes are further facts that rules may match on (match.attributes)
	// or count by (attr:NAME). The map is read, never kept.
	Attributes map[string]string
	// Cost is what the check costs, in units. The zero value leaves it to the
	// rule (1 unless the rule says otherwise); Units(0) peeks.
	Cost Cost
	// Rule, when it is not empty, names the rule that decides: nothing is
	// matched, and the rule's own conditions are not asked. It is an error that
	// wraps [ErrInvalid] if there is no such rule.
	Rule string
	// Limits, when there are any, are decided instead of those in the rules
	// file: the request needs no rule, and its counters are per path and user
	// under the rule name [RequestRule]. Rule must be empty. The slice is read, never kept.
	Limits []*Limit
}

// CheckSize returns an error that wraps [ErrInvalid] if a string of the request is
// longer than [MaxFieldBytes], or if it has more than [MaxAttributes] attributes.
func (r *Request) CheckSize() error {
	// No string is as long as the bound if all lengths together lack its bit and
	// those above it.
	if len(r.Path)|len(r.Method)|len(r.User)|len(r.IP)|len(r.Group)|len(r.Rule) < MaxFieldBytes && len(r.Attributes) == 0 {
		return nil
	}
	return r.checkSize()
}

func (r *Request) checkSize() error {
	for _, f := range [...]struct{ name, value string }{
		{"path", r.Path}, {"method", r.Method}, {"user", r.User}, {"ip", r.IP}, {"group", r.Group}, {"rule", r.Rule},
	} {
		if len(f.value) > MaxFieldBytes {
			return fieldTooLong("the "+f.name, len(f.value))
		}
	}
	if n := len(r.Attributes); n > MaxAttributes {
		return fmt.Errorf("%w: the request has %d attributes; at most %d are allowed", ErrInvalid, n, MaxAttributes)
	}
	for name, value := range r.Attributes {
		switch {
		case len(name) > MaxFieldBytes:
			return fieldTooLong("the name of an attribute", len(name))
		case len(value) > MaxFieldBytes:
			return fieldTooLong(fmt.Sprintf("attribute %.100q", name), len(value))
		}
	}
	return nil
}

func fieldTooLong(what string, n int) error {
	return fmt.Errorf("%w: %s has %d bytes; at most %d are allowed", ErrInvalid, what, n, MaxFieldBytes)
}

// RequestRule is the rule name under which limits that come with a request are
// counted. No rule in a file may have this name.
const RequestRule = "request"

// Cost is an optional number of units. The zero value means "not given".
type Cost struct {
	units int64
	given bool
}

// Units returns a cost of n units. Whether n is in range is found out by
// [Cost.Value].
func Units(n int64) Cost { return Cost{n, true} }

// MaxUnits is the largest cost, limit or burst, in units.
const MaxUnits = 1<<32 - 1

// Value returns the cost, or def where none was given. It returns an error that
// wraps [ErrInvalid] for a cost that is negative or above [MaxUnits].
func (c Cost) Value(def uint32) (uint32, error) {
	if !c.given {
		return def, nil
	}
	if c.units < 0 || c.units > MaxUnits {
		return 0, fmt.Errorf("%w: cost %d is out of range: give 0 (a peek) to %d units", ErrInvalid, c.units, int64(MaxUnits))
	}
	return uint32(c.units), nil
}

// Given reports whether the cost was given at all.
func (c Cost) Given() bool { return c.given }
