package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/weirlimit/weir/internal/overrides"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/transport"
)

// news is what members tell each other of overrides: entries, or the digest of all that one has.
type news struct {
	Kind    string            `json:"kind"` // "overrides"
	Entries []overrides.Entry `json:"entries,omitempty"`
	Digest  *uint64           `json:"digest,omitempty"`
}

// perNote is how many entries one note has. The longest entry takes some 7,600 bytes, so they fit into a note.
const perNote = 50

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
	if n.Digest != nil && *n.Digest != c.config.Overrides.Digest() {
		c.Met(member)
	}
	if fresh := c.config.Overrides.Merge(n.Entries, c.config.Now()); len(fresh) > 0 {
		c.apply()
		c.tell(fresh) // to members that the first one does not reach
	}
}

// Restore puts overrides in force that were kept in a file, before the node's first request. The error states what is
// wrong with the text.
func (c *Console) Restore(text []byte) error {
	var list []overrides.Entry
	if err := json.Unmarshal(text, &list); err != nil {
		return fmt.Errorf("the overrides that were kept cannot be read: %w", err)
	}
	c.config.Overrides.Merge(list, c.config.Now())
	c.apply()
	return nil
}

// apply gives the node the overrides in force.
func (c *Console) apply() {
	active := c.config.Overrides.Active(c.config.Now())
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

// endOverrides ends those whose time is over.
func (c *Console) endOverrides() {
	ended := c.config.Overrides.Ended(c.config.Now())
	if len(ended) == 0 {
		return
	}
	c.apply()
	for i := range ended {
		c.config.Log.Info("override ended", "rule", ended[i].Rule, "was", ended[i].What(), "why", ended[i].Why)
		if c.config.Ended != nil {
			c.config.Ended(&ended[i])
		}
	}
}

// Wanted is an override as an operator asks for it.
type Wanted struct {
	Rule   string `json:"rule"`
	Tenant string `json:"tenant,omitempty"`
	User   string `json:"user"`
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
}

func (c *Console) activeOverrides(tenant string) Overrides {
	out := Overrides{[]overrides.Entry{}}
	for _, e := range c.config.Overrides.Active(c.config.Now()) {
		if tenant == "" || e.Tenant == tenant {
			out.Overrides = append(out.Overrides, e)
		}
	}
	return out
}

// set puts an override in force, here at once and on the other members as they hear of it.
func (c *Console) set(w *Wanted, by *transport.AdminCaller) error {
	var e overrides.Entry
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
	e = overrides.Entry{Rule: w.Rule, Tenant: w.Tenant, User: w.User, Deny: w.Deny, Limit: w.Limit, Why: w.Why,
		By:    by.Name(),
		Until: now.Add(last).UTC(), Member: c.config.Name}
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
	if e, err = c.config.Overrides.Put(e, now); err != nil {
		return err
	}
	c.apply()
	c.tell([]overrides.Entry{e})
	c.events.add(now, "override of "+e.Rule+" for a user: "+e.What())
	c.config.Log.Info("override set", "rule", e.Rule, "is", e.What(), "until", e.Until, "by", e.By, "why", e.Why)
	return nil
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

// errNoOverride is the error for an override that is not in force.
var errNoOverride = fmt.Errorf("%w: there is no such override in force: list them with weir override list",
	limiter.ErrInvalid)

// remove ends an override.
func (c *Console) remove(w *Wanted, by *transport.AdminCaller) error {
	if err := mayOverride(by, w.Rule, w.Tenant); err != nil {
		return err
	}
	e, ok := c.config.Overrides.Remove(w.Rule, w.Tenant, w.User, by.Name(), c.config.Name, c.config.Now())
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
	text := "rule " + w.Rule + " user " + w.User
	if w.Tenant != "" {
		text += " tenant " + w.Tenant
	}
	return text
}

func (w *Wanted) what() string {
	e := overrides.Entry{Deny: w.Deny, Limit: w.Limit}
	last := w.For
	if last == "" {
		last = overrides.DefaultFor.String()
	}
	return e.What() + " for " + last + ": " + w.Why
}

// serveOverrides serves /v1/overrides.
func (c *Console) serveOverrides(w http.ResponseWriter, r *http.Request, by transport.AdminCaller) {
	if err := only(r); err != nil {
		by.Fail(err)
		return
	}
	writeJSON(w, c.activeOverrides(by.Tenant()))
}

// serveSet serves /v1/overrides/set.
func (c *Console) serveSet(w http.ResponseWriter, r *http.Request, by transport.AdminCaller) {
	want, err := readWanted(r)
	if err == nil {
		by.Subject(subjectOf(want), want.what())
		err = c.set(want, &by)
	}
	if err != nil {
		by.Fail(err)
		return
	}
	writeJSON(w, c.activeOverrides(by.Tenant()))
}

// serveRemove serves /v1/overrides/remove.
func (c *Console) serveRemove(w http.ResponseWriter, r *http.Request, by transport.AdminCaller) {
	want, err := readWanted(r)
	if err == nil {
		by.Subject(subjectOf(want), "removed")
		err = c.remove(want, &by)
	}
	if err != nil {
		by.Fail(err)
		return
	}
	writeJSON(w, c.activeOverrides(by.Tenant()))
}

// maxBody bounds a request that changes something.
const maxBody = 16 << 10

// readWanted reads an override. An unknown field is an error: it might have meant less.
func readWanted(r *http.Request) (*Wanted, error) {
	if kind := r.Header.Get("Content-Type"); kind != "application/json" {
		return nil, invalid("the body must be JSON: send it with Content-Type: application/json")
	}
	d := json.NewDecoder(io.LimitReader(r.Body, maxBody))
	d.DisallowUnknownFields()
	w := new(Wanted)
	if err := d.Decode(w); err != nil {
		return nil, invalid("the body is not an override: %v", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, invalid("the body has more than one override, or more than %d bytes", maxBody)
	}
	return w, nil
}
