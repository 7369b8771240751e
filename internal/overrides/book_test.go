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
	e := Entry{Rule: "login", User: user, Deny: true, Why: "abuse", By: "ops", Member: "n1", Set: began,
		Until: began.Add(time.Hour)}
	for _, f := range more {
		f(&e)
	}
	return e
}

func must(t *testing.T, b *Book, e Entry, now time.Time) Entry {
	t.Helper()
	out, _, err := b.Put(e, now)
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
				if e, ok := setters[b].Remove(Entry{Rule: "login", User: user, Member: fmt.Sprint(b)}, now); ok {
					said = append(said, e)
				}
			} else {
				said = append(said, must(t, setters[b], entry(user, func(e *Entry) { e.Member = fmt.Sprint(b) }), now))
			}
			if r.IntN(2) == 0 {
				setters[r.IntN(3)].Merge("n2", said, now)
			}
		}
		for _, b := range append(setters, &Book{}) {
			for _, i := range r.Perm(len(said)) {
				b.Merge("n2", said[i:i+1], began)
				b.Merge("n2", said[i:i+1], began)
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
	slow.Merge("n2", []Entry{first}, began)
	second := must(t, &slow, entry("ada", func(e *Entry) { e.Deny = false }), began)
	if news, _ := fast.Merge("n2", []Entry{second}, began); len(news) != 1 {
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
	if news, _ := b.Merge("n2", []Entry{entry("ada")}, began.Add(time.Hour)); len(news) != 0 {
		t.Error("what is over comes back")
	}
}

func TestRemovedStaysRemoved(t *testing.T) {
	var b Book
	e := must(t, &b, entry("ada"), began)
	gone, ok := b.Remove(entry("ada"), began)
	if !ok || len(b.Active(began)) != 0 {
		t.Fatal("it is in force still")
	}
	if b.Merge("n2", []Entry{e}, began); len(b.Active(began)) != 0 {
		t.Error("a member that has not heard of the removal brings it back")
	}
	if _, ok := b.Remove(entry("ada"), began); ok {
		t.Error("it is removed twice")
	}
	var other Book
	if other.Merge("n2", []Entry{gone, e}, began); len(other.Active(began)) != 0 {
		t.Error("one that hears of both has it in force")
	}
}

func TestHostileEntriesAreIgnored(t *testing.T) {
	for name, f := range map[string]func(*Entry){
		"no rule": func(e *Entry) { e.Rule = "" }, "no user": func(e *Entry) { e.User = "" },
		"no reason":     func(e *Entry) { e.Why = "" },
		"a long user":   func(e *Entry) { e.User = strings.Repeat("x", maxUser+1) },
		"a long reason": func(e *Entry) { e.Why = strings.Repeat("x", maxWhy+1) },
		"no UTF-8":      func(e *Entry) { e.User = "\xff" }, "a bad limit": func(e *Entry) {
			e.Deny, e.Limit = false,
				"many"
		},
		"a long rule":                func(e *Entry) { e.Rule = strings.Repeat("x", 65) },
		"a user and an address":      func(e *Entry) { e.IP = "192.0.2.1" },
		"an address in another form": func(e *Entry) { e.User, e.IP = "", "::ffff:192.0.2.1" },
		"no address":                 func(e *Entry) { e.User, e.IP = "", "ada" },
		"set in another year":        func(e *Entry) { e.Set, e.Number = began.AddDate(5, 0, 0), 1 },
		"both":                       func(e *Entry) { e.Limit = "1/minute" },
		"for ever":                   func(e *Entry) { e.Until = began.Add(MaxFor + time.Hour) },
		"the future":                 func(e *Entry) { e.Number = uint64(began.Add(time.Hour).UnixMicro()) },
	} {
		var b Book
		e := entry("ada", f)
		if news, _ := b.Merge("n2", []Entry{e}, began); len(news) != 0 {
			t.Errorf("%s: it is taken", name)
		}
		if e.Number == 0 {
			if _, _, err := b.Put(e, began); !errors.Is(err, limiter.ErrInvalid) {
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
	if _, _, err := b.Put(entry("one more"), began); !errors.Is(err, limiter.ErrNoRoom) {
		t.Errorf("at the bound: %v", err)
	}
	must(t, &b, entry("7"), began) // one that is there may change
	b.Remove(entry("8"), began)
	must(t, &b, entry("nine"), began)
	if _, _, err := b.Put(entry("8"), began); !errors.Is(err, limiter.ErrNoRoom) {
		t.Errorf("one that was removed, at the bound: %v", err)
	}
	for range 10 {
		var flood []Entry
		for range MaxActive {
			flood = append(flood, entry(fmt.Sprint("x", len(flood)), func(e *Entry) { e.Number = 1 }),
				entry(fmt.Sprint("y", len(flood)), func(e *Entry) { e.Number, e.Removed = 1, true }))
		}
		b.Merge("n2", flood, began)
	}
	if n := len(b.All()); n > 2*MaxActive || len(b.Active(began)) != MaxActive {
		t.Errorf("%d entries, of which %d are in force", n, len(b.Active(began)))
	}
}

// TestMembersAgreeBeyondTheBound: members that hear of more than has room, each in an order of its own, keep the same:
// tenants have equal shares, and of each the newest are in force.
func TestMembersAgreeBeyondTheBound(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var said []Entry
	for i := range 3 * MaxActive {
		said = append(said, entry(fmt.Sprint(r.IntN(2*MaxActive)), func(e *Entry) {
			e.Number, e.Member = uint64(i+1), fmt.Sprint(r.IntN(3))
			e.Tenant = []string{"bank", "shop", "shop", "shop", "shop"}[r.IntN(5)]
			e.Removed = r.IntN(4) == 0
		}))
	}
	for i := range 50 {
		said = append(said, entry(fmt.Sprint(i), func(e *Entry) { e.Number, e.Tenant = uint64(i+1), "small" }))
	}
	var books [4]Book
	for i := range books {
		order := r.Perm(len(said))
		for len(order) > 0 { // in parts of any size
			n := min(len(order), 1+r.IntN(1000))
			var part []Entry
			for _, at := range order[:n] {
				part = append(part, said[at])
			}
			books[i].Merge("n2", part, began)
			order = order[n:]
		}
	}
	for range 2 { // they tell each other all they have, as after digests that differ
		for i := 1; i < len(books); i++ {
			books[i].Merge("n1", books[0].All(), began)
			books[0].Merge("n2", books[i].All(), began)
		}
	}
	for i := range books {
		if books[i].Digest() != books[0].Digest() {
			t.Fatalf("member %d does not agree", i)
		}
	}
	active, of := books[0].Active(began), map[string]int{}
	for _, e := range active {
		of[e.Tenant]++
	}
	if len(active) < MaxActive-2 || len(active) > MaxActive || of["small"] != 50 || of["bank"] < 300 {
		t.Errorf("%d are in force, by tenant %v", len(active), of)
	}
}

// TestFloodOfOneTenantLeavesRoomForOthers: one that has less than its share may set, and the tenant with the most loses
// its oldest.
func TestFloodOfOneTenantLeavesRoomForOthers(t *testing.T) {
	var b Book
	of := func(tenant string) func(*Entry) { return func(e *Entry) { e.Tenant = tenant } }
	for i := range MaxActive {
		must(t, &b, entry(fmt.Sprint(i), of("shop")), began.Add(time.Duration(i)*time.Microsecond))
	}
	now := began.Add(time.Second)
	_, lost, err := b.Put(entry("ada", of("bank")), now)
	if err != nil || len(lost) != 0 && lost[0].User != "0" || len(b.Active(now)) > MaxActive {
		t.Errorf("%v, lost %+v, in force %d", err, lost, len(b.Active(now)))
	}
	if _, _, err := b.Put(entry("more", of("shop")), now); !errors.Is(err, limiter.ErrNoRoom) {
		t.Errorf("the one that has more than its share: %v", err)
	}
}

func TestWhoToldVouches(t *testing.T) {
	var b Book
	e := entry("ada", func(e *Entry) { e.Number, e.By, e.ToldBy = 1, "root", "" })
	if news, _ := b.Merge("n7", []Entry{e}, began); len(news) != 1 || news[0].ToldBy != "n7" {
		t.Errorf("the news are %+v", news)
	}
	e.ToldBy = "n9"
	if news, _ := b.Merge("n8", []Entry{e}, began); len(news) != 0 || b.All()[0].ToldBy != "n7" {
		t.Errorf("the same from another member is news: %+v", b.All())
	}
	if own := must(t, &b, entry("bob", func(e *Entry) { e.ToldBy = "n9" }), began); own.ToldBy != "" {
		t.Errorf("its own is told by %q", own.ToldBy)
	}
}

// What an expelled member set, or told on, is void at each member; what it replaced of others' decisions is in force
// again where these were made, and goes to the others from there.
func TestWhatExpelledMembersSaidIsVoid(t *testing.T) {
	var a, b Book
	after := began.Add(time.Second)
	later := func(user string, n uint64) Entry {
		return entry(user, func(e *Entry) { e.Deny, e.Number, e.Member = false, uint64(after.UnixMicro())+n, "a" })
	}
	own := must(t, &a, entry("eve"), began) // denied
	kept, err := json.Marshal(&a)
	if err != nil {
		t.Fatal(err)
	}
	var a2 Book
	if _, err := a2.Restore(kept, began); err != nil {
		t.Fatal(err)
	}
	other := must(t, &a, entry("bob"), began)
	b.Merge("a", []Entry{own}, began)
	told := other
	told.ToldBy = "a"
	b.Merge("h", []Entry{told}, began)
	b.Merge("a", []Entry{other}, began) // it came over h first
	lies := []Entry{later("eve", 1), later("mallory", 2)}
	a.Merge("h", lies, after)
	a2.Merge("h", lies, after)
	b.Merge("a", a.All(), after)
	if e := b.Active(after); len(e) != 3 || e[1].Deny || e[1].Path != "h" || e[1].ToldBy != "a" {
		t.Fatalf("in force are %+v", e)
	}
	out := map[string]bool{"h": true}
	for name, book := range map[string]*Book{"a": &a, "a, which kept it": &a2, "b": &b} {
		ended, again := book.Expelled(out, after)
		if len(ended) != 2 || ended[1].User != "mallory" || (len(again) == 1 && again[0] == own) != (book != &b) {
			t.Errorf("%s: ended are %+v, again are %+v", name, ended, again)
		}
		for _, from := range []string{"h", "c"} {
			list := slices.Clone(lies)
			list[1].ToldBy = "h"
			if news, _ := book.Merge(from, list[1:], after); len(news) != 0 {
				t.Errorf("%s: of an expelled member is heard %+v from %s", name, news, from)
			}
		}
		if ended, again := book.Expelled(out, after); len(ended)+len(again) != 0 {
			t.Errorf("%s: again ended are %+v, again are %+v", name, ended, again)
		}
	}
	b.Merge("a", a.All(), after)
	for name, book := range map[string]*Book{"a": &a, "b": &b} {
		if e := book.Active(after); len(e) != 2 || !e[0].Deny || !e[1].Deny || book.Digest() != a.Digest() {
			t.Errorf("%s: in force are %+v", name, e)
		}
	}
}

func TestBookIsKept(t *testing.T) {
	var b, c Book
	must(t, &b, entry("ada"), began)
	must(t, &b, entry("bob", func(e *Entry) { e.Deny, e.Limit = false, "10/minute" }), began)
	b.Remove(entry("ada"), began)
	b.Merge("n7", []Entry{entry("eve", func(e *Entry) { e.Number = 1 })}, began)
	text, err := json.Marshal(&b)
	if err != nil {
		t.Fatal(err)
	}
	if left, err := c.Restore(text, began); err != nil || left != 0 || !slices.Equal(b.All(), c.All()) ||
		b.Digest() != c.Digest() {
		t.Errorf("%v, %d left out; kept are %+v, read %+v", err, left, b.All(), c.All())
	}
	if e := c.Active(began)[0]; e.What() != "10/minute" {
		t.Errorf("in force is %s", e.What())
	}
}

// TestHostileFileIsRefused: what was kept is checked like what a member says, and bounded before it takes memory.
func TestHostileFileIsRefused(t *testing.T) {
	var full Book
	for i := range MaxActive {
		must(t, &full, entry(strings.Repeat("\x01", maxUser-8)+fmt.Sprintf("%08d", i), func(e *Entry) {
			e.Why, e.By, e.Member = strings.Repeat("<", maxWhy), strings.Repeat("<", maxWhy), strings.Repeat("<", maxUser)
		}), began)
	}
	text, err := json.Marshal(&full)
	if err != nil || len(text) > MaxKept/2 {
		t.Fatalf("a full book takes %d bytes, %v: twice that must be below %d", len(text), err, MaxKept)
	}
	var b Book
	must(t, &b, entry("ada"), began)
	for name, text := range map[string]string{
		"nothing": "", "no list": `{"rule":"x"}`, "half": string(text[:len(text)/2]), "no entries": `[1,2]`,
		"too many":   "[" + strings.Repeat("{},", 2*MaxActive) + "{}]",
		"null bytes": "\x00\x00", "too long": strings.Repeat(" ", MaxKept) + "[]", "two": "[][]",
		"a year without end": `[{"rule":"login","user":"x","deny":true,"why":"x","until":"99999-01-01T00:00:00Z"}]`,
	} {
		if _, err := b.Restore([]byte(text), began); err == nil || len(b.All()) != 1 {
			t.Errorf("%s: %v, %d entries", name, err, len(b.All()))
		}
	}
	for name, text := range map[string]string{
		"empty ones": "[{},{},null]",
		"for ever": `[{"rule":"login","user":"x","deny":true,"why":"x","set":"2026-03-01T10:00:00Z",` +
			`"until":"9999-12-31T23:59:59-12:00","number":1}]`,
	} {
		if left, err := b.Restore([]byte(text), began); err != nil || left == 0 || len(b.All()) != 1 {
			t.Errorf("%s: %v, %d left out, %d entries", name, err, left, len(b.All()))
		}
	}
}

func FuzzRestore(f *testing.F) {
	f.Add([]byte(`[{"rule":"login","user":"x","deny":true,"why":"x","set":"2026-03-01T10:00:00Z",` +
		`"until":"2026-03-01T11:00:00Z","number":1}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var b, c Book
		if _, err := b.Restore(text, began); err != nil {
			return
		}
		kept, err := json.Marshal(&b)
		if err != nil {
			t.Fatal(err)
		}
		if left, err := c.Restore(kept, began); err != nil || left != 0 || c.Digest() != b.Digest() {
			t.Errorf("%v, %d left out: %s", err, left, kept)
		}
	})
}
