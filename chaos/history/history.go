// Package history is what clients saw of a cluster under faults, and what can be
// concluded from that alone: whether more was admitted than is promised, whether
// each counter behaved as one counter, how long the effects of faults lasted, and what was
// admitted too little.
//
// A history is plain data: it can be kept, read again and judged again. Instants
// are microseconds since its start, by one clock, that of the recorder. A check
// was decided at some instant between its call and its return, and nothing else
// is assumed; so whatever is found is really wrong.
package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Micros is an instant or a span, in microseconds.
type Micros int64

// Duration returns a span as the standard library has it.
func (m Micros) Duration() time.Duration { return time.Duration(m) * time.Microsecond }

// Outcome is what a client knows of a check.
type Outcome string

// The outcomes.
const (
	Allowed Outcome = "allowed"
	Denied  Outcome = "denied"
	// Refused: the node was not there, or said that it does not serve. Nothing
	// was counted.
	Refused Outcome = "refused"
	// Unknown: asked, and never answered. It may have been counted, or will be.
	Unknown Outcome = "unknown"
	// Error: the node answered neither with a decision nor with a refusal that says why
	// it does not serve. It may have been counted, and is wrong whenever it happens.
	Error Outcome = "error"
)

// NoRoom is what a refusal says where a node had no room for the counter.
const NoRoom = "no room"

// The sources of answers that are not a policy's.
const (
	SourceOwner = "owner"
	SourceHeir  = "heir"
	SourceRedis = "redis"
	// SourceCached: a node gave an owner's denial again.
	SourceCached = "cached"
	// SourceShare: an owner or heir, by its share of a limit.
	SourceShare = "share"
	// SourceLeased: a node, by units that the owner has lent it.
	SourceLeased = "leased"
)

// Op is one check of one unit as its client saw it.
type Op struct {
	// Node is the index of the node that was asked, Run how often it had been
	// started then.
	Node int    `json:"node"`
	Run  int    `json:"run"`
	Call Micros `json:"call"`
	// Return is when the answer came, or when the client gave up.
	Return  Micros  `json:"return"`
	Rule    string  `json:"rule"`
	Outcome Outcome `json:"outcome"`
	Source  string  `json:"source,omitempty"`
	// Keys are the counters, and Owners the nodes that decided them, where the
	// answer says so.
	Keys   []string `json:"keys"`
	Owners []string `json:"owners,omitempty"`
	// Says is what an error said, or a refusal.
	Says string `json:"says,omitempty"`
}

// lost tells that no decision came of a check that may have been counted.
func (o *Op) lost() bool { return o.Outcome == Unknown || o.Outcome == Error }

// Counted tells that an owner or heir, or Redis, decided the check, or the one
// before that a node gives again, or a node by what an owner has lent it.
func (o *Op) Counted() bool {
	switch o.Source {
	case SourceOwner, SourceHeir, SourceRedis, SourceCached, SourceShare, SourceLeased:
		return o.Outcome == Allowed || o.Outcome == Denied
	}
	return false
}

// ByPolicy tells that a policy answered the check.
func (o *Op) ByPolicy() bool {
	return (o.Outcome == Allowed || o.Outcome == Denied) && !o.Counted()
}

// Fault is what was broken, and for how long.
type Fault struct {
	Name string `json:"name"`
	What string `json:"what"`
	// At is when it began, Until when it was mended.
	At    Micros `json:"at"`
	Until Micros `json:"until"`
	// Broken is when all that was to be broken was; 0 if that is not known.
	Broken Micros `json:"broken,omitempty"`
	// Settled is when every node saw every other and held what it should; 0 if
	// that was not awaited.
	Settled Micros `json:"settled,omitempty"`
	// Nodes are those that were touched: of what others answer, more is expected.
	Nodes []int `json:"nodes,omitempty"`
	// Takeovers is how many takeovers of one key it may cause.
	Takeovers int `json:"takeovers,omitempty"`
	// Loses: it may take the owner of a key together with its heir.
	Loses bool `json:"loses,omitempty"`
	// Holds is when it may hold up what nodes tell each other.
	Holds Holds `json:"holds,omitempty"`
}

// Rule is a rule of the run.
type Rule struct {
	Name string `json:"name"`
	// Limit is in units per Window; Burst is that of a bucket, 0 for a window.
	Limit  int    `json:"limit"`
	Burst  int    `json:"burst,omitempty"`
	Window Micros `json:"window"`
	// Policy is on_unreachable: local, open or closed.
	Policy string `json:"policy"`
	// Strict: replication is strict.
	Strict bool `json:"strict,omitempty"`
	// Once: the window outlasts the run, so nothing ever recovers.
	Once bool `json:"once,omitempty"`
	// Several: a check has several keys.
	Several bool `json:"several,omitempty"`
	// Quota: it is a quota on which two rules draw, see [Rule.Paths].
	Quota bool `json:"quota,omitempty"`
	// Lent: owners lend units of it, and all nodes ask for one key so often that they do. What is
	// lent counts as charged, so a denial alone shows nothing, and one counter does not explain it.
	Lent bool `json:"lent,omitempty"`
}

// Paths returns the paths that the rule counts: a quota those of both rules that draw on
// it.
func (r *Rule) Paths() []string {
	if r.Quota {
		return []string{"/" + r.Name, "/" + r.Name + "/more"}
	}
	return []string{"/" + r.Name}
}

// D is what a takeover may admit too much: 5 % of the smaller of limit and
// burst, at least 1; nothing where replication is strict.
func (r *Rule) D() int {
	if r.Strict {
		return 0
	}
	least := r.Limit
	if r.Burst > 0 {
		least = min(least, r.Burst)
	}
	return max(1, (least*5+99)/100)
}

// Share is what the policy of a node admits by itself, of so many members.
func (r *Rule) Share(members int) int {
	switch r.Policy {
	case "closed":
		return 0
	case "open":
		return r.most()
	}
	return max(1, r.most()/members)
}

// most is what one window admits, or a bucket at once.
func (r *Rule) most() int {
	if r.Burst > 0 {
		return r.Burst
	}
	return r.Limit
}

// History is one run.
type History struct {
	Scenario string `json:"scenario"`
	Seed     uint64 `json:"seed"`
	Nodes    int    `json:"nodes"`
	// Left is how many of them may have left in good order at a time: those do not
	// count, and the shares of the others are larger.
	Left   int     `json:"left,omitempty"`
	Allows Allows  `json:"allows"`
	Rules  []Rule  `json:"rules"`
	Faults []Fault `json:"faults"`
	// Starts are those that were made. Downs are when nodes were not to answer, Wants the sources of answers that were
	// to be seen, and Doubts is what cannot be seen to have happened of what was to.
	Starts []Start  `json:"starts,omitempty"`
	Downs  []Down   `json:"downs,omitempty"`
	Wants  []string `json:"wants,omitempty"`
	Doubts []string `json:"doubts,omitempty"`
	// Again are the nodes that the fault was to start again, and Joins those that were to
	// join and decide.
	Again []int `json:"again,omitempty"`
	Joins []int `json:"joins,omitempty"`
	// End is when the clients stopped.
	End Micros `json:"end"`
	// Stalls are times in which the machine let the recorder itself wait for 50 ms
	// or more: what was slow then says nothing of the nodes. Late are times within
	// which a node found its own timers late by as much.
	Stalls []Span `json:"stalls,omitempty"`
	Late   []Late `json:"late,omitempty"`
	// Unsettled is why the nodes did not become one cluster again, empty if they did.
	Unsettled string `json:"unsettled,omitempty"`
	// Waited is for how long, until the end or shortly before, nodes were waited for that did
	// not settle; 0 where they did, or one ended by itself.
	Waited Micros `json:"waited,omitempty"`
	// Interrupted is why the trial was not made to its end, empty if it was.
	Interrupted string `json:"interrupted,omitempty"`
	Ops         []Op   `json:"-"`
	// Checks is how many there are, where the history was written: one that was cut
	// off has fewer.
	Checks int `json:"checks,omitempty"`
}

// Span is a time.
type Span struct {
	From  Micros `json:"from"`
	Until Micros `json:"until"`
}

// Late is a time within which a node found its own timers late.
type Late struct {
	// Node is its index.
	Node int `json:"node"`
	Span
}

// Stood tells that the machine or a node stood still at some time, so that less is
// held against the nodes then.
func (h *History) Stood() bool { return len(h.Stalls) > 0 || len(h.Late) > 0 }

// Allows says what the faults of a run may admit while they last, in multiples of
// what a key admits without any, for each policy; the takeovers that are seen and
// that something explains come on top, D for each.
type Allows struct {
	Closed float64 `json:"closed"`
	Local  float64 `json:"local"`
	Open   float64 `json:"open"`
	// Exact: nothing may be lost or answered by a policy.
	Exact bool `json:"exact,omitempty"`
	// Split: the one fault cuts the nodes into two sides and does nothing else, which
	// is promised more exactly.
	Split bool `json:"split,omitempty"`
	// Raised: copies come so late that an owner may take its heir for silent, and
	// answer up to its share without it, where the policy is not closed.
	Raised bool `json:"raised,omitempty"`
	// Losses is how often a counter may be lost altogether; the multiples have one
	// for each.
	Losses int `json:"losses,omitempty"`
	// Lasts: the counters that are lost are on disk, and what was granted so long before, or later, may
	// be granted once more, and nothing else; 0: they are not.
	Lasts Micros `json:"lasts,omitempty"`
	// Slow: the clocks of counters may go slower by a part, 10 for a tenth; 0: they do not.
	Slow int `json:"slow,omitempty"`
	// ByPolicy is how many checks of a key policies may answer; 0: any number.
	ByPolicy int `json:"by_policy,omitempty"`
	// Within is how long after a fault began or was mended nodes that it did not touch
	// may still fail to answer; 0: it is not judged.
	Within Micros `json:"within,omitempty"`
	// Full: nodes may find no room for a counter while it lasts.
	Full bool `json:"full,omitempty"`
	// Unfelt: owners and heirs decide every check, while it lasts too.
	Unfelt bool `json:"unfelt,omitempty"`
	// Cut: links were cut, so that connections may end for that, also soon after.
	Cut bool `json:"cut,omitempty"`
	// NoTakeover: no key changes hands.
	NoTakeover bool `json:"kept,omitempty"`
	// Converged is how long after all was mended the nodes may need to settle; 0: it is
	// not judged.
	Converged Micros `json:"converged,omitempty"`
}

// Of returns the multiple for a policy.
func (a Allows) Of(policy string) float64 {
	switch policy {
	case "closed":
		return a.Closed
	case "open":
		return a.Open
	}
	return a.Local
}

// Write writes a history, a line of JSON for the run and one for each check.
func (h *History) Write(w io.Writer) error {
	b := bufio.NewWriter(w)
	e := json.NewEncoder(b)
	h.Checks = len(h.Ops)
	if err := e.Encode(h); err != nil {
		return err
	}
	for i := range h.Ops {
		if err := e.Encode(&h.Ops[i]); err != nil {
			return err
		}
	}
	return b.Flush()
}

// check returns an error if no checker would look at the check, so that it proves nothing.
func (o *Op) check(rules map[string]bool) error {
	switch o.Outcome {
	case Allowed, Denied, Refused, Unknown, Error:
	default:
		return fmt.Errorf("unknown outcome %q", o.Outcome)
	}
	if !rules[o.Rule] {
		return fmt.Errorf("unknown rule %q", o.Rule)
	}
	return nil
}

// Read reads what Write wrote.
func Read(r io.Reader) (*History, error) {
	d := json.NewDecoder(bufio.NewReader(r))
	h := new(History)
	if err := d.Decode(h); err != nil {
		return nil, fmt.Errorf("not a valid history: %w", err)
	}
	if h.Nodes < 1 || h.Left < 0 || h.Left >= h.Nodes {
		return nil, fmt.Errorf("not a valid history: %d of %d nodes leave", h.Left, h.Nodes)
	}
	if h.Allows.Slow == 1 || h.Allows.Slow < 0 {
		return nil, fmt.Errorf("not a valid history: its clocks lose a part of %d", h.Allows.Slow)
	}
	if h.Allows.Losses < 0 {
		return nil, fmt.Errorf("not a valid history: it allows %d losses", h.Allows.Losses)
	}
	if len(h.Rules) == 0 {
		return nil, errors.New("not a valid history: it has no rules, so nothing in it can be judged")
	}
	known := make(map[string]bool)
	for i := range h.Rules {
		r := &h.Rules[i]
		if r.Limit < 1 || r.Window < 1 || r.Burst < 0 {
			return nil, fmt.Errorf("rule %q of the history has no limit", r.Name)
		}
		known[r.Name] = true
	}
	for d.More() {
		var o Op
		if err := d.Decode(&o); err != nil {
			return nil, fmt.Errorf("check %d of the history: %w", len(h.Ops), err)
		}
		if err := o.check(known); err != nil {
			return nil, fmt.Errorf("check %d of the history: %w", len(h.Ops), err)
		}
		h.Ops = append(h.Ops, o)
	}
	if h.Checks != 0 && h.Checks != len(h.Ops) {
		return nil, fmt.Errorf("the history was cut off: it has %d of its %d checks", len(h.Ops), h.Checks)
	}
	return h, nil
}
