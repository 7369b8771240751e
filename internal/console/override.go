package console

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/overrides"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/transport"
)

// news is what members tell each other of overrides: entries, or the digest of all that one has.
type news struct {
	Kind    string         `json:"kind"` // "overrides"
	Entries overrides.List `json:"entries,omitempty"`
	Digest  *uint64        `json:"digest,omitempty"`
}

// perNote is how many entries one note has. The longest entry takes some 18 KB, so they fit into a note.
const perNote = 20

// tell tells members of overrides, all members if none is named.
func (c *Console) tell(list []overrides.Entry, members ...string) {
	if c.config.Tell == nil {
		return
	}
	for len(list) > 0 {
		n := min(perNote, len(list))
		if text, err := json.Marshal(news{Kind: "overrides", Entries: list[:n]}); err == nil {
			c.config.Tell(text, members...)
		}
		list = list[n:]
	}
}

func (c *Console) tellDigest() {
	if c.config.Tell == nil {
		return
	}
	sum := c.config.Overrides.Digest()
	if text, err := json.Marshal(news{Kind: "overrides", Digest: &sum}); err == nil {
		c.config.Tell(text)
	}
}

// Met tells a member, to which there is a new connection, all overrides.
func (c *Console) Met(member string) { c.tell(c.config.Overrides.All(), member) }

// Told hears what another member tells.
func (c *Console) Told(member string, text []byte) {
	var n news
	if json.Unmarshal(text, &n) != nil || n.Kind != "overrides" {
		return
	}
	if now := c.config.Now(); n.Digest != nil && c.answered.may(member, now) &&
		*n.Digest != c.config.Overrides.Digest() {
		c.Met(member)
	}
	fresh, lost := c.config.Overrides.Merge(member, n.Entries, c.config.Now())
	if len(fresh)+len(lost) == 0 {
		return
	}
	c.apply()
	c.config.Log.Info("overrides heard from another member", "count", len(fresh), "told_by", member)
	if c.config.Heard != nil {
		for i := range fresh {
			c.config.Heard(&fresh[i])
		}
	}
	c.config.lose(lost)
	c.tell(fresh) // to members that the first one does not reach
}

// lately is when members were told all overrides, since one that asks again and again must not have it all sent.
type lately struct {
	mu sync.Mutex
	at map[string]time.Time
}

// may reports whether a member may be told again, and notes that it is.
func (l *lately) may(member string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if since := now.Sub(l.at[member]); since >= 0 && since < digestEvery*time.Second/2 {
		return false
	}
	if l.at == nil || len(l.at) >= maxLately {
		l.at = map[string]time.Time{}
	}
	l.at[member] = now
	return true
}

// maxLately bounds the members that are remembered.
const maxLately = 1024

// lose reports overrides that have no room any more.
func (c *Config) lose(lost []overrides.Entry) {
	for i := range lost {
		c.Log.Warn("override ended early: too many are in force", "rule", lost[i].Rule, "was", lost[i].What())
		if c.Ended != nil {
			c.Ended(&lost[i])
		}
	}
}

// Restore puts overrides in force that were kept, as [overrides.Book.MarshalJSON] returned them, before the node's
// first request. The error says what is wrong with the text.
func (c *Console) Restore(text []byte) error {
	left, err := c.config.Overrides.Restore(text, c.config.Now())
	if left > 0 {
		c.config.Log.Warn("overrides that were kept are not possible, or over", "count", left)
	}
	c.apply()
	return err
}

// latest returns the overrides in force, the latest first: of several about one user it is the one that counts.
func (c *Console) latest() []overrides.Entry {
	out := c.config.Overrides.Active(c.config.Now())
	slices.SortStableFunc(out, func(x, y overrides.Entry) int {
		return -cmp.Or(cmp.Compare(x.Number, y.Number), cmp.Compare(x.Member, y.Member))
	})
	return out
}

// apply gives the node the overrides in force.
func (c *Console) apply() {
	active := c.latest()
	list := make([]rules.Override, 0, len(active))
	for i := range active {
		if o, err := active[i].Override(); err == nil { // it was checked when it was taken
			list = append(list, o)
		}
	}
	if node := c.config.Node(); node != nil { // else Run does it when the node is open
		node.SetOverrides(list)
	}
}

// endOverrides ends those whose time is over, and those that members set, or told on, who are expelled.
func (c *Console) endOverrides(members []weir.Member) {
	out := map[string]bool{}
	for i := range members {
		if members[i].State == "expelled" {
			out[members[i].Name] = true
		}
	}
	now := c.config.Now()
	void, again := c.config.Overrides.Expelled(out, now)
	ended := c.config.Overrides.Ended(now)
	if len(void)+len(again)+len(ended) == 0 {
		return
	}
	c.apply()
	for i := range void {
		c.config.Log.Warn("override ended: a member that set it, or told of it, is expelled", "rule", void[i].Rule,
			"was", void[i].What(), "told_by", void[i].ToldBy, "over", void[i].Path)
	}
	for i := range ended {
		c.config.Log.Info("override ended", "rule", ended[i].Rule, "was", ended[i].What(), "why", ended[i].Why)
	}
	for _, e := range append(void, ended...) {
		if c.config.Ended != nil {
			c.config.Ended(&e)
		}
	}
	c.tell(again)
}

// Wanted is an override as an operator asks for it.
type Wanted struct {
	Rule   string `json:"rule"`
	Tenant string `json:"tenant,omitempty"`
	// User or IP says whom it is about.
	User string `json:"user,omitempty"`
	IP   string `json:"ip,omitempty"`
	// One of these three.
	Deny      bool   `json:"deny,omitempty"`
	Unlimited bool   `json:"unlimited,omitempty"`
	Limit     string `json:"limit,omitempty"`
	// For is how long it lasts, such as 2h; empty: 24h.
	For string `json:"for,omitempty"`
	Why string `json:"why"`
}

// Overrides are those in force.
type Overrides struct {
	Overrides []overrides.Entry `json:"overrides"`
	// Only says why they are in force on this node only; empty: they are on all members.
	Only string `json:"only,omitempty"`
}

// onlyHere is said by a node in no cluster: nodes that count in one Redis do not tell each other.
const onlyHere = "in force on this node only, as it is in no cluster: set them on each node"

// where says where overrides are in force.
func (c *Config) where() string {
	if c.Tell == nil {
		return "on this node alone"
	}
	return "on all members in reach"
}

func (c *Console) activeOverrides(tenant string) Overrides {
	out := Overrides{Overrides: []overrides.Entry{}}
	if c.config.Tell == nil {
		out.Only = onlyHere
	}
	for _, e := range c.config.Overrides.Active(c.config.Now()) {
		if tenant == "" || e.Tenant == tenant {
			out.Overrides = append(out.Overrides, e)
		}
	}
	return out
}

// set puts an override in force, here at once and on the other members as they hear of it.
func (c *Console) set(w *Wanted, by *transport.AdminCaller) error {
	if err := mayOverride(by, w.Rule, w.Tenant); err != nil {
		return err
	}
	last := overrides.DefaultFor
	if w.For != "" {
		var err error
		if last, err = time.ParseDuration(w.For); err != nil || last < time.Second || last > overrides.MaxFor {
			return invalid("for %.20q is not a time: give one from 1s to %v, such as 2h", w.For, overrides.MaxFor)
		}
	}
	kinds := 0
	for _, is := range []bool{w.Deny, w.Unlimited, w.Limit != ""} {
		if is {
			kinds++
		}
	}
	if kinds != 1 {
		return invalid("an override needs one of deny, unlimited and limit")
	}
	now := c.config.Now()
	e, err := w.entry()
	if err != nil {
		return err
	}
	e.By, e.Until, e.Member = by.Name(), now.Add(last), c.config.Name
	if w.Limit != "" {
		if _, err := rules.OverrideLimit(w.Limit); err != nil {
			return err
		}
	}
	o, err := e.Override()
	if err == nil {
		err = c.config.Node().CheckOverride(o)
	}
	if err != nil {
		return err
	}
	e, lost, err := c.config.Overrides.Put(e, now)
	if err != nil {
		return err
	}
	c.apply()
	c.config.lose(lost)
	c.tell([]overrides.Entry{e})
	c.events.add(now, "override of "+e.Rule+" for a user: "+e.What())
	c.config.Log.Info("override set", "rule", e.Rule, "is", e.What(), "until", e.Until, "by", e.By, "why", e.Why)
	return nil
}

// entry returns the entry that is wanted, with an address in the form in which it is counted.
func (w *Wanted) entry() (e overrides.Entry, err error) {
	e = overrides.Entry{Rule: w.Rule, Tenant: w.Tenant, User: w.User, Deny: w.Deny, Limit: w.Limit, Why: w.Why}
	if w.IP != "" {
		e.IP, err = rules.OverrideAddress(w.IP)
	}
	return e, err
}

// mayOverride returns why a caller may not override a rule for users of a tenant, nil if it may.
func mayOverride(by *transport.AdminCaller, rule, tenant string) error {
	if err := by.May(transport.ActionOverride, rule); err != nil {
		return err
	}
	if own := by.Tenant(); own != "" && own != tenant {
		return by.MayAll()
	}
	return nil
}

var errNoOverride = fmt.Errorf("%w: there is no such override in force: list them with weir override list",
	limiter.ErrInvalid)

// remove ends an override.
func (c *Console) remove(w *Wanted, by *transport.AdminCaller) error {
	if err := mayOverride(by, w.Rule, w.Tenant); err != nil {
		return err
	}
	e, err := w.entry()
	if err != nil {
		return err
	}
	e.By, e.Member = by.Name(), c.config.Name
	e, ok := c.config.Overrides.Remove(e, c.config.Now())
	if !ok {
		return errNoOverride
	}
	c.apply()
	c.tell([]overrides.Entry{e})
	c.config.Log.Info("override removed", "rule", e.Rule, "was", e.What(), "by", e.By)
	return nil
}

// subjectOf names an override in the audit: by the key that it is about.
func subjectOf(w *Wanted) string {
	e := overrides.Entry{Rule: w.Rule, Tenant: w.Tenant, User: w.User, IP: w.IP}
	return e.Subject()
}

func (w *Wanted) what() string {
	e := overrides.Entry{Deny: w.Deny, Limit: w.Limit}
	last := cmp.Or(w.For, overrides.DefaultFor.String())
	return e.What() + " for " + last + ": " + w.Why
}

// serveOverrides serves /v1/overrides.
func (c *Console) serveOverrides(w http.ResponseWriter, r *http.Request, by transport.AdminCaller) {
	answer(w, &by, c.activeOverrides(by.Tenant()), only(r))
}

// serveSet serves /v1/overrides/set.
func (c *Console) serveSet(w http.ResponseWriter, r *http.Request, by transport.AdminCaller) {
	want, err := readWanted(w, r)
	if err == nil {
		by.Subject(subjectOf(want), want.what())
		err = c.set(want, &by)
	}
	answer(w, &by, c.activeOverrides(by.Tenant()), err)
}

// serveRemove serves /v1/overrides/remove.
func (c *Console) serveRemove(w http.ResponseWriter, r *http.Request, by transport.AdminCaller) {
	want, err := readWanted(w, r)
	if err == nil {
		by.Subject(subjectOf(want), "removed")
		err = c.remove(want, &by)
	}
	answer(w, &by, c.activeOverrides(by.Tenant()), err)
}

// maxBody bounds a request that changes something.
const maxBody = 16 << 10

// readWanted reads an override. An unknown field is an error: it might have meant less.
func readWanted(w http.ResponseWriter, r *http.Request) (*Wanted, error) {
	want := new(Wanted)
	return want, readBody(w, r, want, maxBody, "an override")
}
