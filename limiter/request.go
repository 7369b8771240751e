package limiter

import (
	"fmt"
	"time"
)

// Bounds of a request.
const (
	// MaxFieldBytes is the greatest length in bytes of each string in a request: the
	// path, the user, the name or the value of an attribute.
	MaxFieldBytes = 8 << 10
	// MaxAttributes is the most attributes of a request.
	MaxAttributes = 16
	// MaxTenantBytes is the greatest length in bytes of the tenant of a request.
	MaxTenantBytes = 64
	// MaxCallerBytes is the greatest length in bytes of the caller of a request.
	MaxCallerBytes = 64
	// MaxIDBytes is the greatest length in bytes of the id of a request.
	MaxIDBytes = 64
)

// Scope says which rules a caller may use. Its method is called from many goroutines.
type Scope interface {
	// Permits reports whether the caller may use the rule with this name.
	Permits(rule string) bool
}

// Request is what a service knows about one check. Strings are used unchanged: they are
// not trimmed, lower-cased or decoded.
type Request struct {
	// Path is the requested path, without the query.
	Path string
	// Method is the HTTP method, or what the service uses as a method.
	Method string
	// User identifies the caller. Empty means unknown: counters per user then count per
	// IP, so that anonymous callers are limited, too.
	User string
	// IP is the address of the caller.
	IP string
	// Group is the caller's group; empty means "default".
	Group string
	// Attributes are further values that rules may match on (match.attributes) or count
	// by (attr:NAME). The map is read, never kept.
	Attributes map[string]string
	// Cost is the cost of the check, in units. The zero value means the cost of the
	// rule, which is 1 unless the rule sets another. Units(0) is a peek.
	Cost Cost
	// Rule, if not empty, names the rule that decides. No patterns are matched, and the
	// conditions of the rule are ignored. If there is no such rule, the error wraps
	// [ErrInvalid].
	Rule string
	// Limits, if not empty, replace those in the rules file: no patterns are matched. If
	// Rule is not empty, the limits of that rule apply too, and all of them must admit the
	// request. Limits of one key need different names; they count under the rule name
	// [RequestRule]. The slice is read, never kept.
	Limits []*Limit
	// LimitKeys are the parts of the key that each of Limits counts by, as in a rules file:
	// "user", "ip", "attr:plan" and so on, 1 to 8 of them. A limit without an element here,
	// or with an empty one, counts by path and user. Limits of one key share its cost. The
	// slices are read, never kept.
	LimitKeys [][]string
	// ID makes the check safe to repeat: a further check with this id, of the same keys and
	// within IDTTL, gets the answer of the first one and charges nothing, whichever node is
	// asked. It has 1 to [MaxIDBytes] bytes. The caller chooses an id that it uses for this
	// one request only, such as a random one. A denial is not remembered. Empty means that
	// each check is charged.
	ID string
	// IDTTL is how long the id is remembered, from [MinIDTTL] up to what the rule says. 0
	// means what the rule says.
	IDTTL time.Duration
	// IDOptional decides the check without its id where ids cannot be used: by a rule that tries one quota
	// after the other. Otherwise such a check is an error. It is for ids that only make repetitions safer, such as
	// those that clients make themselves.
	IDOptional bool
	// Hold makes the check a reservation, which needs an ID. Its cost is an estimate that is
	// charged at once. [Amend] settles it with the units that were used, or extends it. If it
	// is not settled within Hold, the rule decides whether the estimate is given back
	// (on_expiry). [MinHold] to [MaxHold], and at most what the rule says; 0 means that the
	// charge is final.
	Hold time.Duration
	// Lent makes the reservation a lease: its units count as charged now, at each instant until it ends. [Amend]
	// charges those that were used when it is settled, by a request with Lent and without Hold; if it is not settled
	// within Hold, all stay charged. A settlement of an id that is not known is of what was used beyond what was lent: it
	// charges no more than lets each limit count twice its capacity. Only rules that lend allow it, of one counter, for
	// at most three times the time that they lend (see [Rule.Leases]), and not while an override of the rule is in force.
	Lent bool
	// Rate, if it is not 0, makes a lease a slice: the units a second that its holder would use, beside the units of the
	// cost that it may use at once. What it is assigned is in [Remarks], and counts as used as time passes. One unit more
	// counts, since a rate is counted in whole units. Asking again with the same id renews the slice, before its Hold is
	// over. It is charged whole at its end: nothing settles it. A rule need not lend otherwise.
	Rate uint64
	// Fast, of a slice, lets others have at once what a lower rate than before leaves. Otherwise they have it once the
	// rates before are over, since the holder may not have heard of the lower one: until then it may use them beyond
	// what the limit admits.
	Fast bool
	// Tenant separates counters: requests of two tenants never share one, whatever else
	// they have in common. Empty means no tenant, whose counters are separate too. A server
	// sets it from what it knows of the caller.
	Tenant string
	// Caller is the identity that asks. Ids belong to it: a caller neither repeats, settles, extends nor cancels
	// what another one has charged with the same ID. Empty means that it is not known; then ids
	// belong to all such callers. Unlike Tenant it separates no counters. At most [MaxCallerBytes]. A server sets it, too.
	Caller string
	// Scope, if not nil, restricts the request to some rules. If a rule that matches is not
	// among them, nothing is counted, and the error wraps [ErrForbidden].
	Scope Scope
}

// CheckSize returns an error that wraps [ErrInvalid] if a string of the request is
// longer than [MaxFieldBytes], its tenant longer than [MaxTenantBytes], its caller longer than
// [MaxCallerBytes], its id longer than [MaxIDBytes], if it has more than [MaxAttributes] attributes, or if IDTTL or
// Hold is out of range.
func (r *Request) CheckSize() error {
	// If the OR of all lengths is below the bound, a power of two, then so is each
	// length.
	if len(r.Path)|len(r.Method)|len(r.User)|len(r.IP)|len(r.Group)|len(r.Rule) < MaxFieldBytes &&
		len(r.Attributes) == 0 && len(r.Tenant) <= MaxTenantBytes && len(r.Caller) <= MaxCallerBytes {
		if len(r.ID) == 0 && r.IDTTL|r.Hold == 0 {
			return nil
		}
		return r.checkID()
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
	if n := len(r.Tenant); n > MaxTenantBytes {
		return fmt.Errorf("%w: the tenant has %d bytes; at most %d are allowed", ErrInvalid, n, MaxTenantBytes)
	}
	if n := len(r.Caller); n > MaxCallerBytes {
		return fmt.Errorf("%w: the caller has %d bytes; at most %d are allowed", ErrInvalid, n, MaxCallerBytes)
	}
	if err := r.checkID(); err != nil {
		return err
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

// checkID returns an error for an id, or a time of it, that is out of range.
func (r *Request) checkID() error {
	switch {
	case len(r.ID) > MaxIDBytes:
		return fmt.Errorf("%w: the id has %d bytes; at most %d are allowed", ErrInvalid, len(r.ID), MaxIDBytes)
	case r.Hold != 0 && r.ID == "":
		return fmt.Errorf("%w: the request is to be held and has no id: give it one, by which it is settled", ErrInvalid)
	case r.Hold != 0 && (r.Hold < MinHold || r.Hold > MaxHold):
		return fmt.Errorf("%w: the request is to be held for %v, which is out of range: give %v to %v", ErrInvalid, r.Hold,
			MinHold, MaxHold)
	case r.IDTTL == 0:
		return nil
	case r.ID == "":
		return fmt.Errorf("%w: the request says how long its id is remembered and has no id: give it one, or leave the "+
			"time out", ErrInvalid)
	case r.IDTTL < MinIDTTL || r.IDTTL > MaxIDTTL:
		return fmt.Errorf("%w: the id is to be remembered for %v, which is out of range: give %v to %v", ErrInvalid, r.IDTTL,
			MinIDTTL, MaxIDTTL)
	}
	return nil
}

func fieldTooLong(what string, n int) error {
	return fmt.Errorf("%w: %s has %d bytes; at most %d are allowed", ErrInvalid, what, n, MaxFieldBytes)
}

// RequestRule is the rule name of limits that come with a request. No rule in a file
// may have this name.
const RequestRule = "request"

// Cost is an optional number of units. The zero value means "not given".
type Cost struct {
	units  int64
	given  bool
	actual *actual // see NameActual
}

// Units returns a cost of n units. [Cost.Value] checks the range of n.
func Units(n int64) Cost { return Cost{units: n, given: true} }

// MaxUnits is the largest cost, limit or burst, in units: the largest number that JSON and Lua
// have exactly. A limit below NarrowUnits has counters of 32 bits, which take the least memory.
const (
	MaxUnits    = 1<<53 - 1
	NarrowUnits = 1<<32 - 1
)

// Value returns the cost, or def if none was given. For a cost that is negative or
// above [MaxUnits] the error wraps [ErrInvalid].
func (c Cost) Value(def uint64) (uint64, error) {
	if !c.given {
		return def, nil
	}
	if c.units < 0 || c.units > MaxUnits {
		return 0, fmt.Errorf("%w: cost %d is out of range: give 0 (a peek) to %d units", ErrInvalid, c.units, int64(MaxUnits))
	}
	return uint64(c.units), nil
}

// Given reports whether a cost was given.
func (c Cost) Given() bool { return c.given }
