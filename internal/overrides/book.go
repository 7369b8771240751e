// Package overrides keeps what operators have decided about users in place of the rules, in an order that all members
// of a cluster agree on: of two decisions about one user and rule the later one counts, whichever member hears of it
// first.
package overrides

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/rules"
)

// Bounds.
const (
	// MaxActive is the most overrides in force.
	MaxActive = 1000
	// DefaultFor and MaxFor are how long an override lasts.
	DefaultFor = 24 * time.Hour
	MaxFor     = 90 * 24 * time.Hour

	maxEntries = 4 * MaxActive // with those that were removed
	maxText    = 1024          // bytes of a rule's or a user's name
	maxWhy     = 256
	leeway     = 10 * time.Minute // of the clocks of other members
)

// Entry is a decision about one user and one rule, as members tell each other and keep it.
type Entry struct {
	Rule   string `json:"rule"`
	Tenant string `json:"tenant,omitempty"`
	User   string `json:"user"`
	// Deny denies every request. Otherwise Limit, such as 10/minute, is in force; empty: no limit is.
	Deny  bool   `json:"deny,omitempty"`
	Limit string `json:"limit,omitempty"`
	// By set it at Set, with a reason. It ends at Until.
	By    string    `json:"by,omitempty"`
	Why   string    `json:"why"`
	Set   time.Time `json:"set"`
	Until time.Time `json:"until"`
	// Removed ends it before.
	Removed bool `json:"removed,omitempty"`
	// Number orders decisions, the highest counts: microseconds since 1970 when it was made, and more than that of
	// the one before. Of two of one number the one with the higher Member, who was asked, counts.
	Number uint64 `json:"number"`
	Member string `json:"member,omitempty"`
}

// What says what it does.
func (e *Entry) What() string {
	switch {
	case e.Deny:
		return "deny"
	case e.Limit != "":
		return e.Limit
	}
	return "unlimited"
}

// Override returns it in the form of the rules.
func (e *Entry) Override() (rules.Override, error) {
	o := rules.Override{Rule: e.Rule, Tenant: e.Tenant, User: e.User, Deny: e.Deny}
	if e.Limit == "" || e.Deny {
		return o, nil
	}
	var err error
	o.Limit, err = rules.OverrideLimit(e.Limit)
	return o, err
}

type key struct{ rule, tenant, user string }

func (e *Entry) key() key { return key{e.Rule, e.Tenant, e.User} }

// before reports whether o counts in place of e.
func (e *Entry) before(o *Entry) bool {
	if c := cmp.Or(cmp.Compare(e.Number, o.Number), strings.Compare(e.Member, o.Member)); c != 0 {
		return c < 0
	}
	a, _ := json.Marshal(e)
	b, _ := json.Marshal(o)
	return string(a) < string(b)
}

// Problem returns what is wrong with an entry, empty if nothing is.
func (e *Entry) Problem(now time.Time) string {
	for _, x := range []struct {
		what, text string
		most       int
		needed     bool
	}{
		{"rule", e.Rule, maxText, true}, {"user", e.User, maxText, true}, {"tenant", e.Tenant, limiter.MaxTenantBytes, false},
		{"reason", e.Why, maxWhy, true}, {"limit", e.Limit, 64, false}, {"name of who set it", e.By, maxWhy, false},
		{"member", e.Member, maxText, false},
	} {
		switch {
		case x.needed && x.text == "":
			return "it needs a " + x.what
		case len(x.text) > x.most:
			return fmt.Sprintf("its %s has %d bytes, at most %d are possible", x.what, len(x.text), x.most)
		case !utf8.ValidString(x.text):
			return "its " + x.what + " is not valid UTF-8"
		}
	}
	if e.Deny && e.Limit != "" {
		return "it both denies and has a limit"
	}
	if e.Limit != "" {
		if _, err := rules.OverrideLimit(e.Limit); err != nil {
			return strings.TrimPrefix(err.Error(), limiter.ErrInvalid.Error()+": ")
		}
	}
	switch {
	case e.Until.After(now.Add(MaxFor + leeway)):
		return fmt.Sprintf("it lasts longer than %v", MaxFor)
	case e.Number > uint64(now.Add(leeway).UnixMicro()):
		return "it is of the future"
	}
	return ""
}

// Book has the entries. The zero value is empty. It is safe for concurrent use.
type Book struct {
	mu sync.Mutex
	of map[key]Entry
}

// Put makes a decision at a member, and returns it with its number, for the others. The error wraps
// [limiter.ErrInvalid], or [limiter.ErrNoRoom] if too many are in force.
func (b *Book) Put(e Entry, now time.Time) (Entry, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	have, known := b.of[e.key()]
	e.Set, e.Number = now.UTC(), max(uint64(max(0, now.UnixMicro())), have.Number+1)
	if p := e.Problem(now); p != "" {
		return e, fmt.Errorf("%w: the override cannot be set: %s", limiter.ErrInvalid, p)
	}
	if !e.Until.After(now) {
		return e, fmt.Errorf("%w: the override would end before it begins", limiter.ErrInvalid)
	}
	if !known && b.active(now) >= MaxActive {
		return e, fmt.Errorf("%w: %d overrides are in force: remove some first", limiter.ErrNoRoom, MaxActive)
	}
	b.put(e)
	return e, nil
}

// Remove ends an override, and returns what is to be told to the others; false if there is none in force.
func (b *Book) Remove(rule, tenant, user, by, member string, now time.Time) (Entry, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, known := b.of[key{rule, tenant, user}]
	if !known || !e.inForce(now) {
		return e, false
	}
	e.Removed, e.By, e.Member, e.Number = true, by, member, max(uint64(max(0, now.UnixMicro())), e.Number+1)
	b.put(e)
	return e, true
}

func (e *Entry) inForce(now time.Time) bool { return !e.Removed && e.Until.After(now) }

func (b *Book) active(now time.Time) (n int) {
	for _, e := range b.of {
		if e.inForce(now) {
			n++
		}
	}
	return n
}

func (b *Book) put(e Entry) {
	if b.of == nil {
		b.of = map[key]Entry{}
	}
	b.of[e.key()] = e
}

// Merge takes what another member says, or what was kept, and returns what was news. What cannot be is ignored, and so
// is what is new beyond the bounds.
func (b *Book) Merge(list []Entry, now time.Time) (news []Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range list {
		if e.Problem(now) != "" || !e.Until.After(now) {
			continue
		}
		have, known := b.of[e.key()]
		switch {
		case known && !have.before(&e):
			continue
		case !known && len(b.of) >= maxEntries, !known && e.inForce(now) && b.active(now) >= MaxActive:
			continue
		}
		b.put(e)
		news = append(news, e)
	}
	return news
}

// Ended removes what is over, and returns the overrides that were in force until now.
func (b *Book) Ended(now time.Time) (ended []Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, e := range b.of {
		if e.Until.After(now) {
			continue
		}
		delete(b.of, k)
		if !e.Removed {
			ended = append(ended, e)
		}
	}
	return ended
}

// Active returns the overrides in force, ordered by rule, tenant and user.
func (b *Book) Active(now time.Time) []Entry {
	return slices.DeleteFunc(b.All(), func(e Entry) bool { return !e.inForce(now) })
}

// All returns all entries, with those that were removed, in the same order.
func (b *Book) All() []Entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]Entry, 0, len(b.of))
	for _, e := range b.of {
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b Entry) int {
		return cmp.Or(strings.Compare(a.Rule, b.Rule), strings.Compare(a.Tenant, b.Tenant), strings.Compare(a.User, b.User))
	})
	return out
}

// Digest is the same for two books with the same entries.
func (b *Book) Digest() (sum uint64) {
	for _, e := range b.All() {
		for _, c := range []byte(fmt.Sprintf("%q %q %q %d %q\n", e.Rule, e.Tenant, e.User, e.Number, e.Member)) {
			sum = (sum ^ uint64(c)) * 1099511628211
		}
	}
	return sum
}

// MarshalJSON returns all entries, to be kept.
func (b *Book) MarshalJSON() ([]byte, error) { return json.Marshal(b.All()) }
