// Package forward answers the sub-requests by which a web proxy asks whether a request may
// pass: auth_request of nginx, forward_auth of Caddy and Traefik, and others. What it is asked
// about stands in header fields, which only listed proxies may set. It is counted as
// httplimit counts a request of its own, with the same fields in the answer.
package forward

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/weirlimit/weir/internal/front"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/middleware/httplimit"
)

// Options configures a handler. Decider and Proxies are required.
type Options struct {
	Decider httplimit.Decider
	// Proxies are the networks of proxies that are believed. Others get status 403.
	Proxies []netip.Prefix
	// URI and Method are the fields with the URI and the method of the request that the
	// proxy has got; default X-Original-URI and X-Original-Method. The proxy must set both,
	// or else its clients can.
	URI, Method string
	// Address is the field with the address of the client: alone, or, of X-Forwarded-For,
	// the rightmost one that is no proxy's; default X-Forwarded-For.
	Address string
	// ID is the field with an id for the request, by which it counts once however often the
	// proxy asks; empty: there is none. The proxy must set or remove it, or else its clients
	// can pass uncounted.
	ID string
	// User and Group are the fields with the names of user and group; empty: there are none.
	User, Group string
}

// The defaults.
const (
	defaultURI     = "X-Original-URI"
	defaultMethod  = "X-Original-Method"
	defaultAddress = "X-Forwarded-For"
)

// handler answers sub-requests.
type handler struct {
	options Options
	limit   *httplimit.Limiter
}

// New returns a handler, or an error that names the invalid options.
func New(o Options) (http.Handler, error) {
	if o.Decider == nil {
		return nil, errors.New("forward: Options.Decider is nil: set it to a node")
	}
	if len(o.Proxies) == 0 {
		return nil, errors.New("forward: Options.Proxies is empty: name the networks of the proxies that may ask")
	}
	o.URI, o.Method = cmp.Or(o.URI, defaultURI), cmp.Or(o.Method, defaultMethod)
	o.Address = cmp.Or(o.Address, defaultAddress)
	options := []httplimit.Option{
		httplimit.TrustedProxies(o.Proxies...), httplimit.OnError(failed),
		httplimit.Headers(httplimit.IETF, httplimit.XRateLimit),
	}
	if !strings.EqualFold(o.Address, defaultAddress) {
		options = append(options, httplimit.AddressField(o.Address))
	}
	if o.ID != "" {
		options = append(options, httplimit.ID(httplimit.FromHeader(o.ID)))
	}
	if o.User != "" {
		options = append(options, httplimit.User(httplimit.FromHeader(o.User)))
	}
	if o.Group != "" {
		options = append(options, httplimit.Group(httplimit.FromHeader(o.Group)))
	}
	limit, err := httplimit.NewLimiter(o.Decider, options...)
	if err != nil {
		return nil, err
	}
	return &handler{o, limit}, nil
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	status, err := front.DeniedAs(r.URL.RawQuery)
	to := &answer{ResponseWriter: w, status: status}
	if !h.options.Believes(r.RemoteAddr) {
		http.Error(to, "this address is none of the proxies that may ask here: see --auth-proxy", http.StatusForbidden)
		return
	}
	to.decided = true
	inner, unreadable := h.original(r)
	if err != nil && unreadable == nil && inner.URL.RawQuery == r.URL.RawQuery {
		err = nil // the proxy has left the client's query at its own address: it says nothing
	}
	if err = cmp.Or(unreadable, err); err != nil {
		http.Error(to, err.Error(), http.StatusBadRequest)
		return
	}
	if h.limit.Check(to, inner) {
		w.WriteHeader(http.StatusOK)
	}
}

// failed answers a request that was not decided. It never passes.
func failed(w http.ResponseWriter, _ *http.Request, err error) bool {
	switch {
	case errors.Is(err, limiter.ErrForbidden):
		http.Error(w, err.Error(), http.StatusForbidden)
	case errors.Is(err, limiter.ErrInvalid):
		// Without the name of a rule, which is not for the client.
		http.Error(w, fmt.Sprintf("the request cannot be counted against its limits: its path, its user or its group is "+
			"not valid "+
			"or longer than %d bytes, or something is missing from it", limiter.MaxFieldBytes), http.StatusBadRequest)
	case errors.Is(err, limiter.ErrSettled):
		http.Error(w, "the id of the request is that of another one, which is over", http.StatusConflict)
	default:
		http.Error(w, "the limits cannot be looked up now, and without them nothing is let through",
			http.StatusServiceUnavailable)
	}
	return false
}

// Believes reports whether an address, with its port, is that of a listed proxy.
func (o *Options) Believes(remote string) bool {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return false
	}
	addr := at.Addr().Unmap().WithZone("")
	return slices.ContainsFunc(o.Proxies, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// original returns the request that the proxy asks about.
func (h *handler) original(r *http.Request) (*http.Request, error) {
	o := &h.options
	uri, method := r.Header.Values(o.URI), r.Header.Values(o.Method)
	if len(uri) != 1 || len(method) != 1 || method[0] == "" {
		return nil, fmt.Errorf("the request has %d fields %s and %d fields %s: the proxy must set each once", len(uri), o.URI,
			len(method), o.Method)
	}
	single := ""
	if !strings.EqualFold(o.Address, defaultAddress) { // of others each proxy appends its own
		single = o.Address
	}
	for _, field := range []string{single, o.User, o.Group, o.ID} {
		if n := len(r.Header.Values(field)); field != "" && n > 1 { // one of them may be the client's
			return nil, fmt.Errorf("the request has %d fields %s: the proxy must set it once, or remove it", n, field)
		}
	}
	u, err := url.ParseRequestURI(uri[0])
	if err != nil {
		return nil, fmt.Errorf("%s is not the URI of a request", o.URI)
	}
	inner := r.WithContext(r.Context()) // the fields of its header are read only
	inner.Method, inner.URL, inner.RequestURI, inner.Body = method[0], u, uri[0], http.NoBody
	return inner, nil
}

// answer replaces the status of a refusal, and marks one of the request. One of the proxy, which may not ask,
// has no mark: only the former may be the doing of the proxy's client.
type answer struct {
	http.ResponseWriter
	status  int // 0: it stays
	decided bool
}

func (a *answer) WriteHeader(status int) {
	if a.status != 0 || a.decided && status != http.StatusOK {
		a.Header().Set(front.InsteadOf, strconv.Itoa(status))
	}
	a.ResponseWriter.WriteHeader(cmp.Or(a.status, status))
}
