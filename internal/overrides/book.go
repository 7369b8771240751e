// Package overrides keeps what operators have decided about users in place of the rules, in an order that all members
// of a cluster agree on: of two decisions about one user and rule the later one counts, whichever member hears of it
// first.
package overrides

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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
	// MaxActive is the most overrides in force, and the most that are remembered as removed. When there are more,
	// tenants have equal shares, and of a tenant with more than its share the newest stay: all members keep the same.
	MaxActive = 1000
	// DefaultFor and MaxFor are how long an override lasts.
	DefaultFor = 24 * time.Hour
	MaxFor     = 90 * 24 * time.Hour
	// MaxKept is the most bytes of a kept book: no entry takes more than some 18 KB, as characters may be escaped.
	MaxKept = 40 << 20

	maxUser = 1024 // bytes of the name of a user, or of a member
	maxWhy  = 256
	leeway  = 10 * time.Minute // of the clocks of other members

	maxPath      = 8 // members on the way to here
	maxPathBytes = 1040
)

// Entry is a decision about one user and one rule, as members tell each other and keep it.
type Entry struct {
	Rule   string `json:"rule"`
	Tenant string `json:"tenant,omitempty"`
	// User or IP says whom it is about.
	User string `json:"user,omitempty"`
	IP   string `json:"ip,omitempty"`
	// Deny denies every request. Otherwise Limit, such as 10/minute, is in force; empty: no limit is.
	Deny  bool   `json:"deny,omitempty"`
	Limit string `json:"limit,omitempty"`
	// By set it at Set, with a reason, as Member says, who was asked. It ends at Until.
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
	// ToldBy is the member from which this one has it, and that vouches for By and Member; empty: it was set here, or
	// was kept. It is this member's own note.
	ToldBy string `json:"told_by,omitempty"`
	// Path are the members over which ToldBy has it, one in a line. It is void once one of them, or ToldBy, is expelled.
	Path string `json:"path,omitempty"`
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

// Does says what it does, or that it was removed.
func (e *Entry) Does() string {
	if e.Removed {
		return "removed"
	}
	return e.What()
}

// About says whom it is about: a user, or an address.
func (e *Entry) About() string { return cmp.Or(e.User, e.IP) }

// Subject names it in an audit.
func (e *Entry) Subject() string {
	text := "rule " + e.Rule
	if e.User != "" {
		text += " user " + e.User
	} else {
		text += " ip " + e.IP
	}
	if e.Tenant != "" {
		text += " tenant " + e.Tenant
	}
	return text
}

// Override returns it in the form of the rules.
func (e *Entry) Override() (rules.Override, error) {
	o := rules.Override{Rule: e.Rule, Tenant: e.Tenant, User: e.User, IP: e.IP, Deny: e.Deny}
	if e.Limit == "" || e.Deny {
		return o, nil
	}
	var err error
	o.Limit, err = rules.OverrideLimit(e.Limit)
	return o, err
}

type key struct{ rule, tenant, user, ip string }

func (e *Entry) key() key { return key{e.Rule, e.Tenant, e.User, e.IP} }

// before reports whether o counts in place of e.
func (e *Entry) before(o *Entry) bool {
	if c := cmp.Or(cmp.Compare(e.Number, o.Number), strings.Compare(e.Member, o.Member)); c != 0 {
		return c < 0
	}
	x, y := *e, *o
	x.ToldBy, y.ToldBy, x.Path, y.Path = "", "", "", ""
	a, _ := json.Marshal(x)
	b, _ := json.Marshal(y)
	return string(a) < string(b)
}

// Problem returns what is wrong with an entry, empty if nothing is.
func (e *Entry) Problem(now time.Time) string {
	for _, x := range []struct {
		what, text string
		most       int
		needed     bool
	}{
		{"rule", e.Rule, limiter.MaxNameBytes, true}, {"user", e.User, maxUser, false}, {"address", e.IP, 64, false},
		{"tenant", e.Tenant, limiter.MaxTenantBytes, false}, {"reason", e.Why, maxWhy, true}, {"limit", e.Limit, 64, false},
		{"name of who set it", e.By, maxWhy, false}, {"member", e.Member, maxUser, false},
		{"path", e.Path, maxPathBytes, false},
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
	switch {
	case (e.User == "") == (e.IP == ""):
		return "it needs a user or an address, and not both"
	case e.Set.After(now.Add(leeway)) || e.Set.Before(now.Add(-MaxFor-leeway)):
		return "the time at which it was set is not possible"
	}
	if e.IP != "" {
		if a, err := rules.OverrideAddress(e.IP); err != nil || a != e.IP {
			return "its address is not one, or not in the form in which it is counted"
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
	// said are decisions that were made here, also where others came after them. They are not kept on disk.
	said map[key]Entry
	out  map[string]bool // the members that are expelled
}

// Put makes a decision at a member, and returns it with its number, for the others. The error wraps
// [limiter.ErrInvalid], or [limiter.ErrNoRoom] if too many are in force and its tenant has its share.
func (b *Book) Put(e Entry, now time.Time) (_ Entry, lost []Entry, _ error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	have, known := b.of[e.key()]
	e.Set, e.Number, e.Until = now.UTC(), max(uint64(max(0, now.UnixMicro())), have.Number+1), e.Until.UTC()
	e.ToldBy, e.Path = "", ""
	if p := e.Problem(now); p != "" {
		return e, nil, fmt.Errorf("%w: the override cannot be set: %s", limiter.ErrInvalid, p)
	}
	if !e.Until.After(now) {
		return e, nil, fmt.Errorf("%w: the override would end before it begins", limiter.ErrInvalid)
	}
	if !known || !have.inForce(now) {
		if all, own, tenants := b.active(e.Tenant, now); all >= MaxActive && own >= MaxActive/tenants {
			return e, nil, fmt.Errorf("%w: %d overrides are in force, %d of them of this tenant: remove some first",
				limiter.ErrNoRoom, all, own)
		}
	}
	b.say(e)
	return e, b.trim(now), nil
}

// Remove ends the override about the same as e, on behalf of e.By at e.Member. It returns what is to be told to the
// others; false if there is none in force.
func (b *Book) Remove(e Entry, now time.Time) (Entry, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	have, known := b.of[e.key()]
	if !known || !have.inForce(now) {
		return have, false
	}
	have.Removed, have.By, have.Member, have.ToldBy, have.Path = true, e.By, e.Member, "", ""
	have.Number = max(uint64(max(0, now.UnixMicro())), have.Number+1)
	b.say(have)
	b.trim(now)
	return have, true
}

func (e *Entry) inForce(now time.Time) bool { return !e.Removed && e.Until.After(now) }

// active returns how many are in force, how many of them a tenant has, and how many tenants there are with it.
func (b *Book) active(tenant string, now time.Time) (all, own, tenants int) {
	of := map[string]int{tenant: 0}
	for _, e := range b.of {
		if e.inForce(now) {
			of[e.Tenant]++
			all++
		}
	}
	return all, of[tenant], len(of)
}

func (b *Book) put(e Entry) {
	if b.of == nil {
		b.of = map[key]Entry{}
	}
	b.of[e.key()] = e
}

// trim forgets what is beyond the bounds, and returns what was in force of it.
//
// Which are in force is a function of all that was heard, whatever came first, so that members agree. For if a tenant's
// entry is not among its newest of a part, by the share that the part leaves it, then it is not among its newest of the
// whole, by a share that is not greater. But a member that was away for more than MaxActive removals brings back what
// was removed before them.
func (b *Book) trim(now time.Time) (lost []Entry) {
	if len(b.of) <= MaxActive {
		return nil
	}
	for _, removed := range []bool{false, true} {
		of, counts := map[string][]*Entry{}, []int(nil)
		for _, e := range b.of {
			if e.Removed == removed {
				of[e.Tenant] = append(of[e.Tenant], &e)
			}
		}
		for _, list := range of {
			counts = append(counts, len(list))
		}
		share := shareOf(counts)
		for _, list := range of {
			if len(list) <= share {
				continue
			}
			slices.SortFunc(list, func(x, y *Entry) int {
				return -cmp.Or(cmp.Compare(x.Number, y.Number), strings.Compare(x.Member, y.Member), byKey(*x, *y))
			})
			for _, e := range list[share:] {
				delete(b.of, e.key())
				if e.inForce(now) {
					lost = append(lost, *e)
				}
			}
		}
	}
	return lost
}

// shareOf returns the most entries that each tenant may have, so that all together have at most MaxActive.
func shareOf(counts []int) int {
	slices.Sort(counts)
	room := MaxActive
	for i, n := range counts {
		if share := room / (len(counts) - i); n > share {
			return share
		}
		room -= n
	}
	return MaxActive
}

// Merge takes what another member says, and returns what was news, and what of the others was in force and has no room
// any more. What cannot be is ignored.
func (b *Book) Merge(from string, list []Entry, now time.Time) (news, lost []Entry) {
	told := make([]Entry, 0, len(list))
	for _, e := range list {
		e.Path, e.ToldBy = strings.Trim(e.Path+"\n"+e.ToldBy, "\n"), from
		if strings.Count(e.Path, "\n") < maxPath {
			told = append(told, e)
		}
	}
	return b.take(told, now)
}

// take takes entries that say from whom they are.
func (b *Book) take(list []Entry, now time.Time) (news, lost []Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fresh := map[key]bool{}
	for _, e := range list {
		if e.Problem(now) != "" || !e.Until.After(now) || b.void(&e) {
			continue
		}
		e.Set, e.Until = e.Set.UTC(), e.Until.UTC()
		if have, known := b.of[e.key()]; known && !have.before(&e) {
			if !e.before(&have) && have.ToldBy != "" && len(e.Path) < len(have.Path) {
				b.put(e) // it is the same, and came over fewer
			}
			continue
		}
		if b.put(e); e.ToldBy == "" { // it was kept
			b.say(e)
		}
		fresh[e.key()] = true
		if len(b.of) > 2*MaxActive+MaxActive/2 {
			lost = append(lost, b.trim(now)...)
		}
	}
	lost = append(lost, b.trim(now)...)
	for k := range fresh {
		if e, is := b.of[k]; is {
			news = append(news, e)
		}
	}
	lost = slices.DeleteFunc(lost, func(e Entry) bool { return fresh[e.key()] })
	slices.SortFunc(news, byKey)
	return news, lost
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
	maps.DeleteFunc(b.said, func(_ key, e Entry) bool { return !e.Until.After(now) })
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
	out := slices.AppendSeq(make([]Entry, 0, len(b.of)), maps.Values(b.of))
	slices.SortFunc(out, byKey)
	return out
}

func byKey(a, b Entry) int {
	return cmp.Or(strings.Compare(a.Rule, b.Rule), strings.Compare(a.Tenant, b.Tenant), strings.Compare(a.User, b.User),
		strings.Compare(a.IP, b.IP))
}

// Digest is the same for two books with the same entries.
func (b *Book) Digest() (sum uint64) {
	for _, e := range b.All() {
		for _, c := range []byte(fmt.Sprintf("%q %q %q %q %d %q\n", e.Rule, e.Tenant, e.User, e.IP, e.Number, e.Member)) {
			sum = (sum ^ uint64(c)) * 1099511628211
		}
	}
	return sum
}

// MarshalJSON returns all entries, to be kept, at most [MaxKept] bytes.
func (b *Book) MarshalJSON() ([]byte, error) { return json.Marshal(b.All()) }

// Restore takes what MarshalJSON returned, as far as it is possible and not over. It returns how many entries it left
// out. The error says what is wrong with the text; the book is then as before.
func (b *Book) Restore(text []byte, now time.Time) (left int, err error) {
	if len(text) > MaxKept {
		return 0, fmt.Errorf("the overrides that were kept have %d bytes, at most %d are possible", len(text), MaxKept)
	}
	var list List
	if err := json.Unmarshal(text, &list); err != nil {
		return 0, fmt.Errorf("the overrides that were kept cannot be read: %w", err)
	}
	had := len(list)
	list = slices.DeleteFunc(list, func(e Entry) bool {
		return e.Problem(now) != "" || len(e.ToldBy) > maxUser || !e.Until.After(now)
	})
	b.take(list, now)
	return had - len(list), nil
}

// List is a list of entries of which someone else says how long it is: one of more than a book has is an error, before
// it takes memory.
type List []Entry

// UnmarshalJSON implements [json.Unmarshaler].
func (l *List) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return errors.New("it is not a list of overrides")
	}
	for *l = nil; d.More(); {
		if len(*l) == 2*MaxActive {
			return fmt.Errorf("it has more than %d overrides", 2*MaxActive)
		}
		var e Entry
		if err := d.Decode(&e); err != nil {
			return err
		}
		*l = append(*l, e)
	}
	_, err := d.Token()
	return err
}
