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

// Overriding keeps the overrides of a cluster: what operators decide in place of rules is in force on this node at
// once, and on the other members as they hear of it. It is safe for concurrent use.
type Overriding struct {
	config   *Config
	events   *events
	answered lately
}

// tell tells members of overrides, all members if none is named.
func (o *Overriding) tell(list []overrides.Entry, members ...string) {
	if o.config.Tell == nil {
		return
	}
	for len(list) > 0 {
		n := min(perNote, len(list))
		if text, err := json.Marshal(news{Kind: "overrides", Entries: list[:n]}); err == nil {
			o.config.Tell(text, members...)
		}
		list = list[n:]
	}
}

func (o *Overriding) tellDigest() {
	if o.config.Tell == nil {
		return
	}
	sum := o.config.Overrides.Digest()
	if text, err := json.Marshal(news{Kind: "overrides", Digest: &sum}); err == nil {
		o.config.Tell(text)
	}
}

// Met tells a member, to which there is a new connection, all overrides.
func (o *Overriding) Met(member string) { o.tell(o.config.Overrides.All(), member) }

// Told hears what another member tells.
func (o *Overriding) Told(member string, text []byte) {
	var n news
	if json.Unmarshal(text, &n) != nil || n.Kind != "overrides" {
		return
	}
	if now := o.config.Now(); n.Digest != nil && o.answered.may(member, now) &&
		*n.Digest != o.config.Overrides.Digest() {
		o.Met(member)
	}
	fresh, lost := o.config.Overrides.Merge(member, n.Entries, o.config.Now())
	if len(fresh)+len(lost) == 0 {
		return
	}
	o.apply()
	o.config.Log.Info("overrides heard from another member", "count", len(fresh), "told_by", member)
	if o.config.Heard != nil {
		for i := range fresh {
			o.config.Heard(&fresh[i])
		}
	}
	o.config.lose(lost)
	o.tell(fresh) // to members that the first one does not reach
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
func (o *Overriding) Restore(text []byte) error {
	left, err := o.config.Overrides.Restore(text, o.config.Now())
	if left > 0 {
		o.config.Log.Warn("overrides that were kept are not possible, or over", "count", left)
	}
	o.apply()
	return err
}

// latest returns the overrides in force, the latest first: of several about one user it is the one that counts.
func (o *Overriding) latest() []overrides.Entry {
	out := o.config.Overrides.Active(o.config.Now())
	slices.SortStableFunc(out, func(x, y overrides.Entry) int {
		return -cmp.Or(cmp.Compare(x.Number, y.Number), cmp.Compare(x.Member, y.Member))
	})
	return out
}

// apply gives the node the overrides in force.
func (o *Overriding) apply() {
	active := o.latest()
	list := make([]rules.Override, 0, len(active))
	for i := range active {
		if is, err := active[i].Override(); err == nil { // it was checked when it was taken
			list = append(list, is)
		}
	}
	if node := o.config.Node(); node != nil { // else Run does it when the node is open
		node.SetOverrides(list)
	}
}

// end ends those whose time is over, and those that members set, or told on, who are expelled.
func (o *Overriding) end(members []weir.Member) {
	out := map[string]bool{}
	for i := range members {
		if members[i].State == "expelled" {
			out[members[i].Name] = true
		}
	}
	now := o.config.Now()
	void, again := o.config.Overrides.Expelled(out, now)
	ended := o.config.Overrides.Ended(now)
	if len(void)+len(again)+len(ended) == 0 {
		return
	}
	o.apply()
	for i := range void {
		o.config.Log.Warn("override ended: a member that set it, or told of it, is expelled", "rule", void[i].Rule,
			"was", void[i].What(), "told_by", void[i].ToldBy, "over", void[i].Path)
	}
	for i := range ended {
		o.config.Log.Info("override ended", "rule", ended[i].Rule, "was", ended[i].What(), "why", ended[i].Why)
	}
	for _, e := range append(void, ended...) {
		if o.config.Ended != nil {
			o.config.Ended(&e)
		}
	}
	o.tell(again)
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

func (o *Overriding) active(tenant string) Overrides {
	out := Overrides{Overrides: []overrides.Entry{}}
	if o.config.Tell == nil {
		out.Only = onlyHere
	}
	for _, e := range o.config.Overrides.Active(o.config.Now()) {
		if tenant == "" || e.Tenant == tenant {
			out.Overrides = append(out.Overrides, e)
		}
	}
	return out
}

// set puts an override in force, here at once and on the other members as they hear of it.
func (o *Overriding) set(w *Wanted, by *transport.AdminCaller) error {
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
	now := o.config.Now()
	e, err := w.entry()
	if err != nil {
		return err
	}
	e.By, e.Until, e.Member = by.Name(), now.Add(last), o.config.Name
	if w.Limit != "" {
		if _, err := rules.OverrideLimit(w.Limit); err != nil {
			return err
		}
	}
	is, err := e.Override()
	if err == nil {
		err = o.config.Node().CheckOverride(is)
	}
	if err != nil {
		return err
	}
	e, lost, err := o.config.Overrides.Put(e, now)
	if err != nil {
		return err
	}
	o.apply()
	o.config.lose(lost)
	o.tell([]overrides.Entry{e})
	o.events.add(now, "override of "+e.Rule+" for a user: "+e.What())
	o.config.Log.Info("override set", "rule", e.Rule, "is", e.What(), "until", e.Until, "by", e.By, "why", e.Why)
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
func (o *Overriding) remove(w *Wanted, by *transport.AdminCaller) error {
	if err := mayOverride(by, w.Rule, w.Tenant); err != nil {
		return err
	}
	e, err := w.entry()
	if err != nil {
		return err
	}
	e.By, e.Member = by.Name(), o.config.Name
	e, ok := o.config.Overrides.Remove(e, o.config.Now())
	if !ok {
		return errNoOverride
	}
	o.apply()
	o.tell([]overrides.Entry{e})
	o.config.Log.Info("override removed", "rule", e.Rule, "was", e.What(), "by", e.By)
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
func (o *Overriding) serveOverrides(w http.ResponseWriter, r *http.Request, by transport.AdminCaller) {
	answer(w, &by, o.active(by.Tenant()), only(r))
}

// serveSet serves /v1/overrides/set.
func (o *Overriding) serveSet(w http.ResponseWriter, r *http.Request, by transport.AdminCaller) {
	want, err := readWanted(w, r)
	if err == nil {
		by.Subject(subjectOf(want), want.what())
		err = o.set(want, &by)
	}
	answer(w, &by, o.active(by.Tenant()), err)
}

// serveRemove serves /v1/overrides/remove.
func (o *Overriding) serveRemove(w http.ResponseWriter, r *http.Request, by transport.AdminCaller) {
	want, err := readWanted(w, r)
	if err == nil {
		by.Subject(subjectOf(want), "removed")
		err = o.remove(want, &by)
	}
	answer(w, &by, o.active(by.Tenant()), err)
}

// maxBody bounds a request that changes something.
const maxBody = 16 << 10

// readWanted reads an override. An unknown field is an error: it might have meant less.
func readWanted(w http.ResponseWriter, r *http.Request) (*Wanted, error) {
	want := new(Wanted)
	return want, readBody(w, r, want, maxBody, "an override")
}
