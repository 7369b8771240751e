package frontend

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/rules"
)

// may is a caller that may do what is listed, to rules whose names begin so; "" is all.
type may struct {
	Caller
	to map[Action]string
}

func (*may) Name() string                           { return "shop" }
func (*may) Tenant() string                         { return "" }
func (m *may) Identify(Credentials) (Caller, error) { return m, nil }
func (m *may) May(a Action) (limiter.Scope, error) {
	switch prefix, ok := m.to[a]; {
	case !ok:
		return nil, ForbiddenError("no " + a.String())
	case prefix == "":
		return nil, nil
	default:
		return of(prefix), nil
	}
}

type of string

func (p of) Permits(rule string) bool { return strings.HasPrefix(rule, string(p)) }

// Whoever gets a slot may settle it: a check for which a rule says the hold needs the permission to refund, to all
// rules that match, as one does that says a hold itself. What holds nothing needs none: a peek, an id that the caller
// does not know, and a check by other rules. A rule in shadow refuses nothing, and holds nothing that the caller may
// not settle.
func TestWhoHoldsMaySettle(t *testing.T) {
	set, err := rules.Parse("rules.yaml", []byte(`version: 1
rules:
  - {name: a-each, match: {path: "^/slots"}, key: [user], continue: true, limits: [100/minute]}
  - {name: b-slots, match: {path: "^/slots"}, key: [user], hold: 3s, limits: [{limit: 3, algorithm: concurrency}]}
  - {name: c-plain, match: {path: "^/plain"}, key: [user], hold: 30s, limits: [100/minute]}
  - {name: d-trial, match: {path: "^/trial"}, key: [user], hold: 4s, shadow: true,
    limits: [{limit: 3, algorithm: concurrency}]}
`), rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	slots := limiter.Request{Path: "/slots", User: "ada", ID: "1"}
	plain := limiter.Request{Path: "/plain", User: "ada", ID: "1"}
	trial := limiter.Request{Path: "/trial", User: "ada", ID: "1"}
	tried := limiter.Request{Rule: "d-trial", User: "ada", ID: "1"}
	named := limiter.Request{Rule: "b-slots", User: "ada", ID: "1"}
	held, unknown := slots, slots
	held.Hold, unknown.IDOptional = time.Second, true
	for name, of := range map[string]struct {
		to    map[Action]string
		r     limiter.Request
		peek  bool
		ok    bool
		holds time.Duration
	}{
		"may not settle":      {map[Action]string{ActionCheck: ""}, slots, false, false, 0},
		"may settle":          {map[Action]string{ActionCheck: "", ActionRefund: ""}, slots, false, true, 3 * time.Second},
		"may settle the slot": {map[Action]string{ActionCheck: "", ActionRefund: "b-"}, slots, false, false, 0},
		"may settle another":  {map[Action]string{ActionCheck: "", ActionRefund: "a-"}, slots, false, false, 0},
		"names the rule": {map[Action]string{ActionCheck: "", ActionRefund: "b-", ActionRule: ""}, named, false,
			true, 3 * time.Second},
		"names it, may not settle": {map[Action]string{ActionCheck: "", ActionRefund: "a-", ActionRule: ""}, named, false,
			false, 0},
		"may check other rules":         {map[Action]string{ActionCheck: "c-", ActionRefund: ""}, slots, false, false, 0},
		"its own hold":                  {map[Action]string{ActionCheck: ""}, held, false, false, 0},
		"a peek":                        {map[Action]string{ActionPeek: ""}, slots, true, true, 3 * time.Second},
		"an id that is not its own":     {map[Action]string{ActionCheck: ""}, unknown, false, true, 0},
		"a rule that holds nothing":     {map[Action]string{ActionCheck: ""}, plain, false, true, 0},
		"such a rule, and few refund":   {map[Action]string{ActionCheck: "c-", ActionRefund: "b-"}, plain, false, true, 0},
		"in shadow":                     {map[Action]string{ActionCheck: ""}, trial, false, true, 0},
		"in shadow, may settle another": {map[Action]string{ActionCheck: "", ActionRefund: "b-"}, trial, false, true, 0},
		"in shadow, may settle": {map[Action]string{ActionCheck: "", ActionRefund: "d-"}, trial, false, true,
			4 * time.Second},
		"names it in shadow": {map[Action]string{ActionCheck: "", ActionRule: ""}, tried, false, false, 0},
	} {
		s, err := New(Config{Decider: newMaker(t), Access: &may{to: of.to}}, Protocol{}).Identify(nil, Credentials{})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // what the session has made is right the second time, too
			r, c := of.r, new(arith.Charge)
			if err = s.AdmitCheck(&r, of.peek, false); err == nil {
				_, err = set.Resolve(&r, c)
			}
			if of.ok != (err == nil) || err != nil && !errors.Is(err, limiter.ErrForbidden) {
				t.Errorf("%s: %v", name, err)
			}
			if got := c.ID; got == nil && of.holds > 0 || got != nil && got.Hold != of.holds {
				t.Errorf("%s: it holds by %+v, want %v", name, got, of.holds)
			}
		}
		if all, ok := of.to[ActionRefund]; s.holds != nil && (ok && all == "" || of.r.IDOptional) {
			t.Errorf("%s: a scope was made, and needed for nothing", name)
		}
	}
}
