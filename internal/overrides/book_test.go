package overrides

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
)

var began = time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC) //nolint:gochecknoglobals // a constant

func entry(user string, more ...func(*Entry)) Entry {
	e := Entry{Rule: "login", User: user, Deny: true, Why: "abuse", By: "ops", Member: "n1", Until: began.Add(time.Hour)}
	for _, f := range more {
		f(&e)
	}
	return e
}

func must(t *testing.T, b *Book, e Entry, now time.Time) Entry {
	t.Helper()
	out, err := b.Put(e, now)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestMembersAgree: whatever the order in which members hear of decisions, and how often, they have the same ones in
// force, and the last decision counts although its clock is behind.
func TestMembersAgree(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var said []Entry
		setters := []*Book{{}, {}, {}}
		for i := range 40 {
			b := r.IntN(3)
			now := began.Add(time.Duration(i)*time.Millisecond + time.Duration(b)*time.Second) // clocks that differ
			user := fmt.Sprint(r.IntN(5))
			if r.IntN(4) == 0 {
				if e, ok := setters[b].Remove("login", "", user, "ops", fmt.Sprint(b), now); ok {
					said = append(said, e)
				}
			} else {
				said = append(said, must(t, setters[b], entry(user, func(e *Entry) { e.Member = fmt.Sprint(b) }), now))
			}
			if r.IntN(2) == 0 {
				setters[r.IntN(3)].Merge(said, now)
			}
		}
		for _, b := range append(setters, &Book{}) {
			for _, i := range r.Perm(len(said)) {
				b.Merge(said[i:i+1], began)
				b.Merge(said[i:i+1], began)
			}
			if b.Digest() != setters[0].Digest() || len(b.Active(began)) != len(setters[0].Active(began)) {
				t.Fatal("two members have heard the same and do not agree")
			}
		}
	}
}

func TestLaterDecisionCountsByASlowClock(t *testing.T) {
	var fast, slow Book
	first := must(t, &fast, entry("ada"), began.Add(time.Minute))
	slow.Merge([]Entry{first}, began)
	second := must(t, &slow, entry("ada", func(e *Entry) { e.Deny = false }), began)
	if news := fast.Merge([]Entry{second}, began); len(news) != 1 {
		t.Errorf("the later decision of a member with a slow clock does not count: %+v", fast.All())
	}
}

func TestOverridesEndByThemselves(t *testing.T) {
	var b Book
	must(t, &b, entry("ada"), began)
	if n := len(b.Active(began.Add(time.Hour - 1))); n != 1 {
		t.Errorf("before its end %d are in force", n)
	}
	if n := len(b.Active(began.Add(time.Hour))); n != 0 {
		t.Errorf("at its end %d are in force", n)
	}
	if ended := b.Ended(began.Add(time.Hour)); len(ended) != 1 || len(b.All()) != 0 {
		t.Errorf("ended are %+v, left %+v", ended, b.All())
	}
	if news := b.Merge([]Entry{entry("ada")}, began.Add(time.Hour)); len(news) != 0 {
		t.Error("what is over comes back")
	}
}

func TestRemovedStaysRemoved(t *testing.T) {
	var b Book
	e := must(t, &b, entry("ada"), began)
	gone, ok := b.Remove("login", "", "ada", "ops", "n1", began)
	if !ok || len(b.Active(began)) != 0 {
		t.Fatal("it is in force still")
	}
	if b.Merge([]Entry{e}, began); len(b.Active(began)) != 0 {
		t.Error("a member that has not heard of the removal brings it back")
	}
	if _, ok := b.Remove("login", "", "ada", "ops", "n1", began); ok {
		t.Error("it is removed twice")
	}
	var other Book
	if other.Merge([]Entry{gone, e}, began); len(other.Active(began)) != 0 {
		t.Error("one that hears of both has it in force")
	}
}

func TestHostileEntriesAreIgnored(t *testing.T) {
	for name, f := range map[string]func(*Entry){
		"no rule": func(e *Entry) { e.Rule = "" }, "no user": func(e *Entry) { e.User = "" },
		"no reason":     func(e *Entry) { e.Why = "" },
		"a long user":   func(e *Entry) { e.User = strings.Repeat("x", maxText+1) },
		"a long reason": func(e *Entry) { e.Why = strings.Repeat("x", maxWhy+1) },
		"no UTF-8":      func(e *Entry) { e.User = "\xff" }, "a bad limit": func(e *Entry) {
			e.Deny, e.Limit = false,
				"many"
		},
		"both":       func(e *Entry) { e.Limit = "1/minute" },
		"for ever":   func(e *Entry) { e.Until = began.Add(MaxFor + time.Hour) },
		"the future": func(e *Entry) { e.Number = uint64(began.Add(time.Hour).UnixMicro()) },
	} {
		var b Book
		e := entry("ada", f)
		if news := b.Merge([]Entry{e}, began); len(news) != 0 {
			t.Errorf("%s: it is taken", name)
		}
		if e.Number == 0 {
			if _, err := b.Put(e, began); !errors.Is(err, limiter.ErrInvalid) {
				t.Errorf("%s: the error is %v", name, err)
			}
		}
	}
}

func TestBookIsBounded(t *testing.T) {
	var b Book
	for i := range MaxActive {
		must(t, &b, entry(fmt.Sprint(i)), began)
	}
	if _, err := b.Put(entry("one more"), began); !errors.Is(err, limiter.ErrNoRoom) {
		t.Errorf("at the bound: %v", err)
	}
	must(t, &b, entry("7"), began) // one that is there may change
	for i := range 2 * maxEntries {
		b.Merge([]Entry{entry(fmt.Sprint("x", i), func(e *Entry) { e.Number = 1 })}, began)
		b.Merge([]Entry{entry(fmt.Sprint("y", i), func(e *Entry) { e.Number, e.Removed = 1, true })}, began)
	}
	if n := len(b.All()); n > maxEntries || len(b.Active(began)) != MaxActive {
		t.Errorf("%d entries, of which %d are in force", n, len(b.Active(began)))
	}
}

func TestBookIsKept(t *testing.T) {
	var b, c Book
	must(t, &b, entry("ada"), began)
	must(t, &b, entry("bob", func(e *Entry) { e.Deny, e.Limit = false, "10/minute" }), began)
	b.Remove("login", "", "ada", "ops", "n1", began)
	text, err := json.Marshal(&b)
	if err != nil {
		t.Fatal(err)
	}
	var list []Entry
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	c.Merge(list, began)
	if !slices.Equal(b.All(), c.All()) || b.Digest() != c.Digest() {
		t.Errorf("kept are %+v, read %+v", b.All(), c.All())
	}
	if e := c.Active(began)[0]; e.What() != "10/minute" {
		t.Errorf("in force is %s", e.What())
	}
}
