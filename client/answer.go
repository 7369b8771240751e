package client

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// maxNames bounds how many limits a client caches. At the bound it forgets all; those
// in use are cached again.
const maxNames = 4096

// named is a limit of a node, with its rule, as decisions refer to them.
type named struct {
	rule  *limiter.Rule
	limit *limiter.Limit
}

// nameKey is everything that a reply says about a limit.
type nameKey struct {
	rule, name      string
	algorithm       weirv1.Algorithm
	limit, capacity uint64
	window          int64
	calendar        weirv1.Calendar
	shadow          bool
}

// names caches the limits that replies have named. It is safe for concurrent use.
type names struct {
	mu  sync.Mutex
	all map[nameKey]*named
}

// of returns the limit that a reply describes. It returns an error if such a limit
// cannot exist.
func (t *names) of(m *weirv1.LimitInfo) (*named, error) {
	k := nameKey{m.GetRule(), m.GetName(), m.GetAlgorithm(), m.GetLimit(), m.GetCapacity(), m.GetWindowUs(),
		m.GetCalendar(), m.GetShadow()}
	t.mu.Lock()
	defer t.mu.Unlock()
	if have := t.all[k]; have != nil {
		return have, nil
	}
	l, err := k.limitOf()
	if err != nil {
		return nil, fmt.Errorf("%w: limit %s/%s: %w", errReply, k.rule, k.name, err)
	}
	if t.all == nil || len(t.all) >= maxNames {
		t.all = make(map[nameKey]*named)
	}
	out := &named{&limiter.Rule{Name: k.rule, Limits: []*limiter.Limit{l}, Shadow: k.shadow}, l}
	t.all[k] = out
	return out, nil
}

// limitOf makes a limit with the properties that the reply gives. Properties that a
// reply does not give, such as the alignment, have their defaults. An algorithm that
// this version does not know becomes the default one.
func (k *nameKey) limitOf() (*limiter.Limit, error) {
	if k.window < 0 || k.window > limiter.MaxWindow.Microseconds() {
		return nil, fmt.Errorf("a window of %d µs is out of range", k.window)
	}
	if most := max(k.limit, k.capacity); most > limiter.MaxUnits {
		return nil, fmt.Errorf("%d units are out of range: at most %d are possible", most, int64(limiter.MaxUnits))
	}
	s := limiter.Spec{Name: k.name, Limit: int64(k.limit), Window: time.Duration(k.window) * time.Microsecond}
	if a := k.algorithm; a >= 0 && int(a) <= int(limiter.Concurrency) {
		s.Algorithm = limiter.Algorithm(a)
	}
	if c := k.calendar; s.Algorithm == limiter.FixedWindow && c > 0 && c <= weirv1.Calendar_CALENDAR_YEAR {
		s.Window, s.Calendar = 0, limiter.Calendar(c)
	}
	if s.Algorithm == limiter.Concurrency {
		s.Window = 0
	}
	switch s.Algorithm {
	case limiter.TokenBucket, limiter.LeakyBucket, limiter.GCRA:
		if k.capacity != k.limit {
			s.Burst = int64(k.capacity)
		}
	case limiter.Concurrency:
	default:
		if k.capacity < k.limit { // a request may use that much of it
			s.Ceiling = int64(k.capacity)
		}
	}
	if s.Algorithm == limiter.SlidingWindow {
		s.SubWindows = 1 // which divides any window
	}
	return limiter.NewLimit(s)
}

// answers is what became of a message: the answers to its checks, or why there are none.
type answers struct {
	fate   fate
	err    error // why there is no answer
	reply  *weirv1.DecisionColumns
	limits []*named // the limits that the reply refers to
	starts []int32  // where the limits of each check begin in the reply's columns
	flaws  map[int]flaw
}

// read takes the reply to a message of n checks. It verifies the lengths of its columns and its
// references, so that callers can index them without checks.
func (a *answers) read(m *weirv1.DecisionColumns, n int, t *names) error {
	if e := m.GetError(); e != nil {
		a.fate, a.err = fateOf(e.GetCode(), e.GetMessage(), limiter.Tick(e.GetRetryAfterUs()).Duration())
		return nil
	}
	fits := func(length int) bool { return length == n }
	absent := func(length int) bool { return length == n || length == 0 }
	if !fits(len(m.GetFlags())) || !fits(len(m.GetRemaining())) || !fits(len(m.GetLimitRefs())) ||
		!fits(len(m.GetResetAfterUs())) ||
		!absent(len(m.GetRetryAfterUs())) || !absent(len(m.GetSources())) || !absent(len(m.GetInForce())) {
		return fmt.Errorf("%w: it has %d answers to %d checks, or columns that differ in length", errReply, len(m.GetFlags()),
			n)
	}
	if err := checkUnits(m.GetRemaining(), m.GetInForce(), m.GetEveryLimit().GetRemaining(), m.GetEveryLimit().GetCosts(),
		m.GetEveryLimit().GetInForce()); err != nil {
		return err
	}
	for _, info := range m.GetLimits() {
		l, err := t.of(info)
		if err != nil {
			return err
		}
		a.limits = append(a.limits, l)
	}
	for _, ref := range m.GetLimitRefs() {
		if int64(ref) > int64(len(a.limits)) {
			return fmt.Errorf("%w: it refers to limit %d of %d", errReply, ref, len(a.limits))
		}
	}
	for _, e := range m.GetErrors() {
		for _, i := range e.GetChecks() {
			if int64(i) >= int64(n) {
				return fmt.Errorf("%w: it has an error of check %d of %d", errReply, i, n)
			}
			if a.flaws == nil {
				a.flaws = make(map[int]flaw)
			}
			fate, err := fateOf(e.GetCode(), e.GetMessage(), 0)
			a.flaws[int(i)] = flaw{fate: fate, err: err}
		}
	}
	if err := a.readDenials(m.GetDenials(), n); err != nil {
		return err
	}
	if err := a.readEvery(m.GetEveryLimit(), n); err != nil {
		return err
	}
	a.reply = m
	return nil
}

// checkUnits returns an error for a number of units that no node counts to.
func checkUnits(columns ...[]uint64) error {
	for _, c := range columns {
		for _, n := range c {
			if n > limiter.MaxUnits {
				return fmt.Errorf("%w: it has %d units; at most %d are possible", errReply, n, int64(limiter.MaxUnits))
			}
		}
	}
	return nil
}

// ruleDenial is the denial of a check by a rule that denies each request.
type ruleDenial struct {
	rule string
	deny *limiter.Denial
}

// readDenials reads which checks rules denied.
func (a *answers) readDenials(all []*weirv1.RuleDenial, n int) error {
	for _, one := range all {
		by := &ruleDenial{one.GetRule(), denialOf(one.GetStatus(), one.GetReason())}
		for _, i := range one.GetChecks() {
			if int64(i) >= int64(n) {
				return fmt.Errorf("%w: it has a denial of check %d of %d", errReply, i, n)
			}
			if a.flaws == nil {
				a.flaws = make(map[int]flaw)
			}
			a.flaws[int(i)] = flaw{by: by}
		}
	}
	return nil
}

// denialOf returns what a node says about a denial, nil if it says nothing. A status of no denial becomes 403: a
// service answers with it.
func denialOf(status uint32, reason string) *limiter.Denial {
	if status == 0 {
		return nil
	}
	if status < 400 || status > 499 {
		status = http.StatusForbidden
	}
	return &limiter.Denial{Status: int(status), Reason: reason}
}

// readEvery verifies the columns of all limits, if there are any.
func (a *answers) readEvery(m *weirv1.LimitColumns, n int) error {
	if m == nil {
		return nil
	}
	total := int64(0)
	for _, c := range m.GetCounts() {
		a.starts = append(a.starts, int32(min(total, math.MaxInt32)))
		total += int64(c)
	}
	a.starts = append(a.starts, int32(min(total, math.MaxInt32)))
	for _, length := range []int{
		len(m.GetLimitIndexes()), len(m.GetFlags()), len(m.GetRemaining()), len(m.GetResetAfterUs()),
		len(m.GetRetryAfterUs()),
		len(m.GetCosts()), len(m.GetKeyIndexes()),
	} {
		if int64(length) != total || len(m.GetCounts()) != n || len(m.GetRuleRefs()) != n {
			return fmt.Errorf("%w: the columns of all limits differ in length", errReply)
		}
	}
	if shares := int64(len(m.GetInForce())); shares != total && shares != 0 {
		return fmt.Errorf("%w: the columns of all limits differ in length", errReply)
	}
	for _, i := range m.GetLimitIndexes() {
		if int64(i) >= int64(len(a.limits)) {
			return fmt.Errorf("%w: it refers to limit %d of %d", errReply, i, len(a.limits))
		}
	}
	for _, refs := range [...][]uint32{m.GetRuleRefs(), m.GetDrawnByRefs(), m.GetZoneDefaultRefs()} {
		if len(refs) != n && len(refs) != 0 {
			return fmt.Errorf("%w: the columns of all limits differ in length", errReply)
		}
		for _, i := range refs {
			if int64(i) > int64(len(m.GetRuleNames())) {
				return fmt.Errorf("%w: it refers to rule %d of %d", errReply, i, len(m.GetRuleNames()))
			}
		}
	}
	return nil
}

// flaw is why one check was not decided, or which rule denied it without a counter.
type flaw struct {
	fate fate
	err  error
	by   *ruleDenial // nil: it was not decided
}

// fateOf turns an error of a node into one of this package. The fate is answered if a
// retry would not help. The node wants the client to wait so long, 0 if it does not say so.
func fateOf(code uint32, message string, wait time.Duration) (fate, error) {
	switch codes.Code(code) {
	case codes.InvalidArgument:
		// The message begins with the text of ErrInvalid already.
		if strings.HasPrefix(message, limiter.ErrNoID.Error()) {
			return answered, &nodeError{message, limiter.ErrNoID}
		}
		return answered, &nodeError{message, ErrInvalid}
	case codes.FailedPrecondition:
		if strings.HasPrefix(message, ErrRaised.Error()) {
			return answered, &nodeError{message, ErrRaised}
		}
		if strings.HasPrefix(message, ErrCosts.Error()) {
			return answered, &nodeError{message, ErrCosts}
		}
		return answered, &nodeError{message, ErrSettled}
	case codes.PermissionDenied, codes.Unauthenticated:
		if strings.HasPrefix(message, limiter.ErrScope.Error()) {
			return answered, &ofRequestError{nodeError{message, ErrDenied}, limiter.ErrScope, 0}
		}
		return answered, &nodeError{message, ErrDenied}
	case codes.Unavailable, codes.ResourceExhausted: // it has no room for the message, and has not looked at it
		if strings.HasPrefix(message, limiter.ErrBudget.Error()) {
			return undecided, &ofRequestError{nodeError{message, ErrUnavailable}, limiter.ErrBudget, wait}
		}
		return undecided, &nodeError{message, ErrUnavailable}
	}
	return unknown, &nodeError{message, ErrUnanswered}
}

type nodeError struct {
	text string
	kind error
}

func (e *nodeError) Error() string { return e.text }
func (e *nodeError) Unwrap() error { return e.kind }

// ofRequestError is such an error that those who send the requests can cause.
type ofRequestError struct {
	nodeError
	cause error
	wait  time.Duration
}

func (e *ofRequestError) Unwrap() []error { return []error{e.kind, e.cause} }

// RetryAfter returns how long to wait before the next request; 0 if that is not known.
func (e *ofRequestError) RetryAfter() time.Duration { return e.wait }

// decision returns the outcome of check i of those that were sent, once the message is done.
func (a *answers) decision(i int, r *limiter.Request, d *limiter.Decision) (fate, error) {
	if a.fate != answered || a.err != nil {
		return a.fate, a.err
	}
	f, ok := a.flaws[i]
	if ok && f.by == nil {
		return f.fate, f.err
	}
	by := f.by
	m := a.reply
	flags := m.Flags[i]
	if flags&byte(weirv1.DecisionFlag_DECISION_FLAG_ERROR) != 0 {
		return unknown, &nodeError{"a node did not decide a check, and does not say why", ErrUnanswered}
	}
	d.Clear()
	d.Allowed, d.Never = has(flags, weirv1.DecisionFlag_DECISION_FLAG_ALLOWED),
		has(flags, weirv1.DecisionFlag_DECISION_FLAG_NEVER)
	d.Repeated = has(flags, weirv1.DecisionFlag_DECISION_FLAG_REPEATED)
	d.Overridden = has(flags, weirv1.DecisionFlag_DECISION_FLAG_OVERRIDDEN)
	d.ShadowDenied, d.Source = has(flags, weirv1.DecisionFlag_DECISION_FLAG_SHADOW_DENIED), limiter.SourceOwner
	if len(m.Sources) > 0 {
		d.Source = limiter.Source(m.Sources[i])
	}
	if m.EveryLimit != nil {
		a.every(i, d)
	}
	if by != nil {
		d.Rule = by.rule
		d.SetRemarks(limiter.Remarks{Deny: by.deny})
	}
	if m.EveryLimit != nil {
		return answered, nil
	}
	ref := m.LimitRefs[i]
	if ref == 0 {
		return answered, nil
	}
	d.Grow(1)
	l, of := d.Limit(0), a.limits[ref-1]
	*l = limiter.LimitDecision{
		Rule: of.rule, Limit: of.limit,
		Allowed: d.Allowed && !(of.rule.Shadow && d.ShadowDenied), Never: d.Never,
		Blocked:   has(flags, weirv1.DecisionFlag_DECISION_FLAG_BLOCKED),
		Overflow:  has(flags, weirv1.DecisionFlag_DECISION_FLAG_OVERFLOW),
		Remaining: m.Remaining[i], ResetAfter: limiter.Tick(m.ResetAfterUs[i]).Duration(),
	}
	if len(m.RetryAfterUs) > 0 {
		l.RetryAfter = limiter.Tick(m.RetryAfterUs[i]).Duration()
	}
	if len(m.InForce) > 0 {
		l.InForce = m.InForce[i]
	}
	l.Cost, _ = r.Cost.Value(0) // it is in range
	d.Rule = of.rule.Name
	arith.Conclude(d)
	return answered, nil
}

// every fills in the results of all limits of check i.
func (a *answers) every(i int, d *limiter.Decision) {
	m := a.reply.EveryLimit
	d.Rule = nameIn(m, m.RuleRefs, i)
	d.SetRemarks(limiter.Remarks{DrawnBy: nameIn(m, m.DrawnByRefs, i),
		ZoneDefault: nameIn(m, m.ZoneDefaultRefs, i)})
	from, to := int(a.starts[i]), int(a.starts[i+1])
	d.Grow(to - from)
	key := -1
	for at := from; at < to; at++ {
		if before := at - 1; at == from || m.KeyIndexes[before] != m.KeyIndexes[at] ||
			a.limits[m.LimitIndexes[before]].rule.Name != a.limits[m.LimitIndexes[at]].rule.Name {
			key++
		}
		of, flags := a.limits[m.LimitIndexes[at]], m.Flags[at]
		*d.Limit(at - from) = limiter.LimitDecision{
			Rule: of.rule, Limit: of.limit, Key: key, KeyIndex: uint8(m.KeyIndexes[at]),
			Allowed:  has(flags, weirv1.DecisionFlag_DECISION_FLAG_ALLOWED),
			Never:    has(flags, weirv1.DecisionFlag_DECISION_FLAG_NEVER),
			Blocked:  has(flags, weirv1.DecisionFlag_DECISION_FLAG_BLOCKED),
			Overflow: has(flags, weirv1.DecisionFlag_DECISION_FLAG_OVERFLOW),
			Cost:     m.Costs[at], Remaining: m.Remaining[at],
			ResetAfter: limiter.Tick(m.ResetAfterUs[at]).Duration(), RetryAfter: limiter.Tick(m.RetryAfterUs[at]).Duration(),
		}
		if len(m.InForce) > 0 {
			d.Limit(at - from).InForce = m.InForce[at]
		}
	}
	rule := d.Rule
	arith.Conclude(d)
	if d.Allowed {
		d.Rule = rule
	}
}

// nameIn returns the rule to which a column refers for check i; empty if there is none, or no
// such column.
func nameIn(m *weirv1.LimitColumns, refs []uint32, i int) string {
	if len(refs) == 0 || refs[i] == 0 {
		return ""
	}
	return m.RuleNames[refs[i]-1]
}

func has(flags byte, f weirv1.DecisionFlag) bool { return flags&byte(f) != 0 }

// onlyLeast leaves of an allowed decision the limit with the least remaining.
func onlyLeast(d *limiter.Decision) {
	if d.Len() < 2 {
		return
	}
	least := *d.Limit(0)
	for i := range d.Len() {
		if l := d.Limit(i); l.Remaining < least.Remaining {
			least = *l
		}
	}
	source := d.Source
	d.Clear()
	d.Allowed, d.Source = true, source
	d.Grow(1)
	*d.Limit(0) = least
	arith.Conclude(d)
}
