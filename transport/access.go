package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"

	"github.com/weirlimit/weir/limiter"
)

// Action is something that a caller may be allowed to do.
type Action uint8

// The actions, in the order of their names in a permissions file. Rule is to name the rule
// that decides, and Limits to send limits of one's own; both are needed besides the action
// of the call.
const (
	ActionCheck Action = iota
	ActionPeek
	ActionReset
	ActionRefund
	ActionLimits
	ActionRule
	ActionExplain
	ActionRing
	ActionAdmin
	// Actions is how many there are.
	Actions
)

// String returns the name of the action in a permissions file.
func (a Action) String() string {
	if a >= Actions {
		return "unknown"
	}
	return [...]string{"check", "peek", "reset", "refund", "limits", "rule", "explain", "ring", "admin"}[a]
}

// ErrUnauthenticated is wrapped by the error of [Access] for a caller that has not proved
// who it is. It is answered with UNAUTHENTICATED or 401.
var ErrUnauthenticated = errors.New("the caller is not identified")

// Credentials are what a caller shows of itself. Nothing in them is checked yet, except
// that VerifiedChains of TLS are.
type Credentials struct {
	// Authorization are the values of the header or metadata of this name.
	Authorization []string
	// TLS is the state of the connection, nil if it has no TLS.
	TLS *tls.ConnectionState
	// Known is where an Access may keep what it knows of TLS, as long as the connection
	// lives; nil: nowhere.
	Known *Known
	// At is the present time, if the server has read its clock for the message already;
	// zero: it has not.
	At time.Time
}

// Known keeps one value of an [Access] for each connection, which is faster to reach than
// certificates. The zero value has none. It is safe for concurrent use.
type Known struct{ value atomic.Value }

// Load returns the value that was stored last, nil for none.
func (k *Known) Load() any { return k.value.Load() }

// Store keeps a value, which is not nil. All values of a connection must have the same type:
// otherwise it panics, as [atomic.Value] does.
func (k *Known) Store(value any) { k.value.Store(value) }

// Access identifies callers. It is called from many goroutines, for every message.
type Access interface {
	// Identify returns the caller. An error wraps [ErrUnauthenticated], or
	// [limiter.ErrForbidden] for a caller that is proved but has no entry.
	Identify(c Credentials) (Caller, error)
}

// Caller is a caller that is identified. Its methods are called from many goroutines.
type Caller interface {
	// Name is the name of the identity, for the audit.
	Name() string
	// Tenant is the owner of the caller's counters, at most [limiter.MaxTenantBytes]; empty
	// for none.
	Tenant() string
	// May returns the rules to which the caller may do something, nil for all. The error
	// wraps [limiter.ErrForbidden] if it may not do it at all.
	May(a Action) (limiter.Scope, error)
	// Spend charges the caller's budget with the checks and bytes of one message, or charges
	// nothing. The error wraps [ErrBudget]; it may have a method RetryAfter that
	// returns a time.Duration.
	Spend(checks, bytes int) error
	// OpenStream counts a stream of the caller's. After an error, which wraps [ErrBudget],
	// it is not counted. CloseStream must follow otherwise.
	OpenStream() error
	CloseStream()
}

// KeyBudget is a [Caller] with a budget of new keys. Whether a key is new is known after its
// decision: a message that is beyond the budget is still decided, and [Caller.Spend] refuses
// those that follow.
type KeyBudget interface {
	// CountsKeys reports whether there is such a budget.
	CountsKeys() bool
	// SpendKeys charges the budget with n new keys, also beyond what is left.
	SpendKeys(n int)
}

// NewKeys returns of how many keys a decision is the first charge: none of their limits had
// anything that still counted. A check that is denied is the first charge of a key, too, if its
// limits count rejected checks.
func NewKeys(d *limiter.Decision) (n int) {
	if d.Repeated || d.Never {
		return 0
	}
	for i := 0; i < d.Len(); {
		key, fresh, made := d.Limit(i).Key, true, false
		for ; i < d.Len() && d.Limit(i).Key == key; i++ {
			l := d.Limit(i)
			left := l.Remaining
			if charged(d, l) {
				left, made = left+l.Cost, true
			}
			fresh = fresh && !l.Overflow && l.InForce == 0 && left == l.Limit.Capacity()
		}
		if fresh && made {
			n++
		}
	}
	return n
}

// charged reports whether a decision charged a limit that has room. See [limiter.CountRejected].
func charged(d *limiter.Decision, l *limiter.LimitDecision) bool {
	switch {
	case l.Cost == 0:
		return false
	case d.Allowed && (l.Rule == nil || !l.Rule.Shadow || !d.ShadowDenied):
		return true
	case l.Limit.CountRejected() == limiter.CountRoom:
		return l.Allowed
	}
	return l.Limit.CountRejected() == limiter.CountAll
}

// madeOne charges the caller's budget of new keys with a decision.
func (p pass) madeOne(d *limiter.Decision, peek bool) {
	if b, ok := p.caller.(KeyBudget); ok && !peek && b.CountsKeys() {
		if n := NewKeys(d); n > 0 {
			b.SpendKeys(n)
		}
	}
}

// madeAll charges it with the first n decisions of a batch.
func (p pass) madeAll(of *batch, n int, peek func(i int) bool) {
	b, ok := p.caller.(KeyBudget)
	if !ok || !b.CountsKeys() {
		return
	}
	made := 0
	for i := range n {
		if !peek(i) {
			made += NewKeys(&of.decisions[i])
		}
	}
	if made > 0 {
		b.SpendKeys(made)
	}
}

// ErrBudget is wrapped by the error of a [Caller] that has used up its budget. It is [limiter.ErrBudget], and
// answered with RESOURCE_EXHAUSTED or 429. Clients know the error of a message by its text, which begins with that of
// this one.
var ErrBudget = limiter.ErrBudget

// pass is the caller of a message. The zero value, of a server without an Access, admits
// everything.
type pass struct{ caller Caller }

// identify returns the caller of a gRPC call.
func (s *service) identify(ctx context.Context) (pass, error) {
	return s.identifyAt(ctx, time.Time{})
}

// identifyAt is identify for a call for which the clock was read already, if it is not zero.
func (s *service) identifyAt(ctx context.Context, now time.Time) (pass, error) {
	if s.access == nil {
		return pass{}, nil
	}
	c := GRPCCredentials(ctx)
	c.At = now
	caller, err := s.access.Identify(c)
	return pass{caller}, err
}

// identifyHTTP returns the caller of an HTTP request.
func (s *service) identifyHTTP(r *http.Request) (pass, error) { return identifyHTTP(s.access, r) }

func identifyHTTP(by Access, r *http.Request) (pass, error) {
	if by == nil {
		return pass{}, nil
	}
	caller, err := by.Identify(HTTPCredentials(r))
	return pass{caller}, err
}

// GRPCCredentials returns what the caller of a gRPC call has shown.
func GRPCCredentials(ctx context.Context) Credentials {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return Credentials{Authorization: metadata.ValueFromIncomingContext(ctx, authorization)}
	}
	if a, ok := p.Addr.(connAddr); ok && a.conn.of.noted { // of this package's server, where nothing need be copied
		var c Credentials
		c.Authorization, _ = ctx.Value(shownKey{}).([]string)
		if a.conn.secured != nil {
			c.TLS, c.Known = a.conn.secured.state, &a.conn.secured.known
		}
		return c
	}
	c := Credentials{Authorization: metadata.ValueFromIncomingContext(ctx, authorization)}
	if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
		c.TLS = &info.State
	}
	return c
}

// authorization is the metadata that a caller shows itself with. HTTP/2 has no capital
// letters in names.
const authorization = "authorization"

// shownKey is the key of a call's context for the values of that metadata, if there are any.
type shownKey struct{}

// notesShown reports whether callers are identified, so that noteShown is called.
func (o *Options) notesShown() bool { return o.Access != nil || len(o.Services) > 0 }

// noteShown keeps what a caller shows of itself while a call begins. To look for it in the
// metadata later compares all names when there is none.
func noteShown(ctx context.Context, call *tap.Info) (context.Context, error) {
	if shown := call.Header[authorization]; len(shown) > 0 {
		ctx = context.WithValue(ctx, shownKey{}, shown)
	}
	return ctx, nil
}

// knownKey is the key of the context of a connection of HTTP for its Known.
type knownKey struct{}

// withKnown is for [http.Server.ConnContext]. A certificate may have thousands of names, and
// reading them for each request would take longer than the rest.
func withKnown(ctx context.Context, _ net.Conn) context.Context {
	return context.WithValue(ctx, knownKey{}, new(Known))
}

// HTTPCredentials returns what the caller of an HTTP request has shown.
func HTTPCredentials(r *http.Request) Credentials {
	known, _ := r.Context().Value(knownKey{}).(*Known)
	return Credentials{Authorization: r.Header.Values("Authorization"), TLS: r.TLS, Known: known}
}

// may returns why the caller may not do something, nil if it may, at least for some rules.
func (p pass) may(a Action) error {
	if p.caller == nil {
		return nil
	}
	_, err := p.caller.May(a)
	return err
}

// spend charges the caller's budget.
func (p pass) spend(checks, bytes int) error {
	if p.caller == nil {
		return nil
	}
	return p.caller.Spend(checks, bytes)
}

// unread returns why a message of gRPC is not read: err, or that its caller is not identified or
// has used up its budget, see spendUnread. It returns nil for nil.
func (s *service) unread(h *hold, err error) error {
	if err == nil || lacksRoom(err) {
		return err
	}
	by, refused := s.identify(h.ctx)
	if refused != nil {
		return refused
	}
	return by.spendUnread(h, err)
}

// spendUnread charges the caller's budget for a message that is not read, as for one check. It
// returns why it is not, or that the budget is used up. One for which there was no room costs
// nothing, as it is to be sent again.
func (p pass) spendUnread(h *hold, err error) error {
	if lacksRoom(err) {
		return err
	}
	if over := p.spend(1, h.size()); over != nil {
		return over
	}
	return err
}

// admitCheck admits a check or a peek, as admit does. A receipt needs the permission to
// refund.
func (p pass) admitCheck(r *limiter.Request, peek, receipt bool) error {
	if receipt {
		if err := p.may(ActionRefund); err != nil {
			return err
		}
	}
	if peek {
		return p.admit(r, ActionPeek)
	}
	return p.admit(r, ActionCheck)
}

// admit returns why the caller may not do something with a request, nil if it may. The
// request then has the caller, its tenant and its scope. A check or a peek with a hold needs the
// permission to refund as well, to the same rule.
func (p pass) admit(r *limiter.Request, a Action) error {
	if p.caller == nil {
		return nil
	}
	scope, err := p.caller.May(a)
	if err == nil && r.Hold != 0 && a != ActionRefund {
		var refunds limiter.Scope
		if refunds, err = p.caller.May(ActionRefund); refunds != nil {
			scope = both{scope, refunds}
		}
	}
	if err == nil {
		err = p.admitParts(r)
	}
	if err == nil {
		r.Tenant, r.Caller, r.Scope = p.caller.Tenant(), p.caller.Name(), scope
	}
	return err
}

// about lets an administrator ask about the counters of a tenant. It comes after admit, which has set the caller's own.
func (p pass) about(q *question, a Action) error {
	switch {
	case q.tenant == "":
		return nil
	case len(q.tenant) > limiter.MaxTenantBytes:
		return invalid("tenant has %d bytes; at most %d are possible", len(q.tenant), limiter.MaxTenantBytes)
	case p.caller == nil:
		return invalid("tenant: this node has no permissions file, and so no tenants: leave it out")
	case q.tenant == p.caller.Tenant():
		return nil
	case p.caller.Tenant() != "" || p.may(ActionAdmin) != nil:
		return notPermittedError("only an administrator without a tenant may ask about the counters of another tenant")
	case a != ActionPeek && a != ActionExplain && a != ActionReset:
		return invalid("tenant: a check counts for the caller's own tenant: ask with \"peek\": true, for an explanation or for a reset")
	}
	q.request.Tenant = q.tenant
	return nil
}

func peekOrCheck(peek bool) Action {
	if peek {
		return ActionPeek
	}
	return ActionCheck
}

// both is what two scopes permit. The first one may be nil, for all rules.
type both struct{ first, second limiter.Scope }

func (s both) Permits(rule string) bool {
	return (s.first == nil || s.first.Permits(rule)) && s.second.Permits(rule)
}

// admitParts returns why the caller may not name the rule, or send the limits, of a
// request.
func (p pass) admitParts(r *limiter.Request) error {
	if r.Rule != "" {
		named, err := p.caller.May(ActionRule)
		if err != nil {
			return err
		}
		if named != nil && !named.Permits(r.Rule) {
			return notPermittedError("rule " + quote(r.Rule) + " is not one that the caller may name")
		}
	}
	if len(r.Limits) > 0 {
		_, err := p.caller.May(ActionLimits)
		return err
	}
	return nil
}

// notPermittedError is why the permissions do not allow something.
type notPermittedError string

func (e notPermittedError) Error() string { return string(e) }

// Unwrap returns [limiter.ErrForbidden].
func (notPermittedError) Unwrap() error { return limiter.ErrForbidden }

// admit admits the requests of a batch. It returns which of them are refused, ascending:
// those that were, and those that the caller may not send.
func (c *batchCall) admit(by pass) []refusal {
	out := make([]refusal, 0, len(c.refused))
	refused, fulls, peeks := c.refused, c.fulls, c.peeks
	for i := range c.n {
		peek, receipt := len(peeks) > 0 && peeks[0] == i, false
		if peek {
			peeks = peeks[1:]
		}
		if len(fulls) > 0 && fulls[0].at == i {
			receipt, fulls = fulls[0].receipt(), fulls[1:]
		}
		if len(refused) > 0 && refused[0].at == i {
			out, refused = append(out, refused[0]), refused[1:]
		} else if err := by.admitCheck(&c.requests[i], peek, receipt); err != nil {
			out = append(out, refusal{i, err})
		}
	}
	return out
}

// administers serves callers that may administer, and refuses all others.
func administers(by Access, serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if overSocket(r) {
			serve(w, r)
			return
		}
		caller, err := by.Identify(HTTPCredentials(r))
		if err == nil {
			_, err = caller.May(ActionAdmin)
		}
		if err != nil {
			writeError(w, err)
			return
		}
		serve(w, r)
	}
}
