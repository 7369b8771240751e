package transport

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/weirlimit/weir/internal/guard"
)

// profilesPath is below what profiles are served.
const profilesPath = "/debug/pprof/"

// AdminOptions configures [NewAdmin]. What is left out is not served.
type AdminOptions struct {
	// Directory tells of the members at /v1/members, and forgets dead ones at
	// /v1/members/forget, for whoever is near; default nil: the node is in no cluster,
	// and both answer 404.
	Directory Directory
	// Top returns the n keys that are asked for most and the n that are denied
	// most, for /v1/top; default nil: it answers 404.
	Top func(n int) (hottest, denied []TopKey)
	// Metrics is served at /metrics, Profiles below /debug/pprof/, for whoever is near.
	Metrics, Profiles http.Handler
	// Hosts are the names by which it may be asked, besides those of loopback and the
	// address at which it is asked: see [NewAdmin].
	Hosts []string
	// Panicked is told of each panic that a request ended with, "http"; default nobody.
	Panicked func(place string)
	// Logger gets what the HTTP server has to say of broken connections; default
	// nowhere.
	Logger *slog.Logger
}

// NewAdmin makes the site of administration, which is for operators. It is served
// apart from checks: it names users, and can weaken what a cluster promises.
//
// It authenticates nobody. It refuses what a page in an operator's browser could ask for
// somebody else: requests for another host than one of AdminOptions.Hosts, a name of
// loopback or the address that was connected to (a name of the attacker's may lead to this
// machine), and requests of other sites' pages. Forgetting members and taking profiles is
// for who is near: who connects from loopback, or to a socket.
func NewAdmin(o AdminOptions) *Apart {
	a := &admin{o}
	routes := map[string]route{
		"/v1/members":        {methods: reading(), serve: a.serveMembers},
		"/v1/members/forget": {methods: []string{http.MethodPost}, serve: near(a.serveForget)},
		"/v1/top":            {methods: reading(), serve: a.serveTop},
		"/openapi.yaml":      {methods: reading(), serve: serveOpenAPI},
	}
	if o.Metrics != nil {
		routes["/metrics"] = route{methods: reading(), serve: o.Metrics.ServeHTTP}
	}
	if o.Profiles != nil {
		routes[profilesPath] = route{methods: append(reading(), http.MethodPost), serve: near(o.Profiles.ServeHTTP)}
	}
	s := newSite(routes, nil, guard.New(o.Logger, o.Panicked))
	s.hosts = newHosts(o.Hosts)
	return newApart("administration", s, o.Logger)
}

// admin answers operators.
type admin struct{ AdminOptions }

// errNotHere says that something is only for who is near.
var errNotHere = errors.New("this is for who is on the node's own machine: ask there, over a loopback address or the socket of --admin-addr")

// near serves whoever connects from loopback, or to a socket, and nobody else.
func near(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if !overSocket(r) && (err != nil || !net.ParseIP(host).IsLoopback()) {
			writeProblem(w, http.StatusForbidden, errNotHere.Error())
			return
		}
		serve(w, r)
	}
}

func overSocket(r *http.Request) bool {
	at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.UnixAddr)
	return ok && at != nil
}

// hosts are names and addresses by which a site may be asked.
type hosts struct{ names map[string]bool }

func newHosts(names []string) *hosts {
	h := &hosts{map[string]bool{"localhost": true}}
	for _, n := range names {
		h.names[bareHost(n)] = true
	}
	return h
}

// bareHost returns a host in the form in which hosts are compared, without a port.
func bareHost(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if ip := net.ParseIP(host); ip != nil {
		return ip.String()
	}
	return host
}

// allow reports whether a request is for one of the hosts.
func (h *hosts) allow(r *http.Request) bool {
	host := bareHost(r.Host)
	ip := net.ParseIP(host)
	if h.names[host] || ip.IsLoopback() {
		return true
	}
	at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && ip != nil && at.IP.Equal(ip)
}

// serveMembers tells who the members are.
func (a *admin) serveMembers(w http.ResponseWriter, _ *http.Request) {
	if a.Directory == nil {
		writeProblem(w, http.StatusNotFound, errAlone.Error())
		return
	}
	writeJSON(w, http.StatusOK, members{append([]Member{}, a.Directory.Members()...)})
}

// serveForget has a dead member count no more.
func (a *admin) serveForget(w http.ResponseWriter, r *http.Request) {
	if a.Directory == nil {
		writeProblem(w, http.StatusNotFound, errAlone.Error())
		return
	}
	body, err := readBody(w, r, nil)
	if err != nil {
		writeError(w, err)
		return
	}
	name := ""
	err = eachField(body, func(field string, raw json.RawMessage) error {
		if field != "name" {
			return errForget
		}
		return json.Unmarshal(raw, &name)
	})
	if len(body) > maxForgetBytes || err != nil || name == "" {
		writeProblem(w, http.StatusBadRequest, errForget.Error())
		return
	}
	if err := a.Directory.Forget(name); err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, members{append([]Member{}, a.Directory.Members()...)})
}

// serveTop tells which keys are asked for and denied most.
func (a *admin) serveTop(w http.ResponseWriter, r *http.Request) {
	n := topDefault
	if text := r.URL.Query().Get("n"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 1 || n > topMost {
			writeProblem(w, http.StatusBadRequest, errTop.Error())
			return
		}
	}
	if a.Top == nil {
		writeProblem(w, http.StatusNotFound, errNoTopper.Error())
		return
	}
	hottest, denied := a.Top(n)
	writeJSON(w, http.StatusOK, top{append([]TopKey{}, hottest...), append([]TopKey{}, denied...)})
}
