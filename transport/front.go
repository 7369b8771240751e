package transport

import (
	_ "embed"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/frontend/overhttp"
	"github.com/weirlimit/weir/internal/listen"
	"github.com/weirlimit/weir/limiter"
)

//go:embed openapi.yaml
var openAPI []byte

func newFront(s *service, ready func() error, o *Options) *front {
	f := &front{service: s, callers: newFrontend(o, "http")}
	routes := f.ownRoutes(ready, o)
	if len(o.Services) > 0 {
		routes = f.otherRoutes(o.Routes)
	}
	f.site = newSite(routes, f.callers, o.Observer, s.guard)
	f.stopping = o.Stopping
	f.flag, f.hosts, f.browsers = clientsFlag, newHosts("--http-host", o.Hosts), true
	return f
}

// ownRoutes returns what is served by path, without Options.Services.
func (f *front) ownRoutes(ready func() error, o *Options) map[string]route {
	asking, posting := []string{http.MethodGet, http.MethodPost}, []string{http.MethodPost}
	refund, reset := f.holding(f.serveRefund), f.holding(f.serveReset)
	warnings := o.Warnings
	if o.Access != nil { // they name tenants, rules and members, and whoever asks is not identified
		warnings, ready = nil, unexplained(ready)
	}
	routes := map[string]route{
		"/v1/check":       {methods: asking, traced: true, serve: f.holding(f.serveCheck), action: "check"},
		"/v1/check/batch": {methods: posting, traced: true, serve: f.holding(f.serveBatch), action: "check"},
		"/v1/explain":     {methods: asking, traced: true, serve: f.holding(f.serveExplain), action: "explain"},
		"/v1/settle":      {methods: posting, traced: true, serve: f.serveAmend(f.settleFields, settle), action: "refund"},
		"/v1/cancel":      {methods: posting, traced: true, serve: f.serveAmend(f.cancelFields, cancel), action: "refund"},
		"/v1/extend":      {methods: posting, traced: true, serve: f.serveAmend(f.extendFields, extend), action: "refund"},
		"/v1/refund":      {methods: posting, traced: true, serve: refund, action: "refund", accounted: true},
		"/v1/reset":       {methods: posting, traced: true, serve: reset, action: "reset", accounted: true},
		"/healthz":        {methods: reading(), serve: serveHealthy, open: true},
		"/readyz":         {methods: reading(), serve: serveReady(ready, warnings), open: true},
		"/openapi.yaml":   {methods: reading(), serve: serveOpenAPI, open: true},
	}
	if o.Auth != nil {
		// Open, since proxies hand on what browsers say of themselves.
		routes["/v1/auth"] = route{methods: reading(), serve: serveAuth(f.callers, o.Auth), open: true, traced: true,
			action: "check"}
	}
	return routes
}

func serveHealthy(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok") }

// unexplained leaves out the reason.
func unexplained(ready func() error) func() error {
	return func() error {
		if ready() != nil {
			return frontend.ErrNotReady
		}
		return nil
	}
}

// serveReady answers "ready", and in further lines what warns of a node that is.
func serveReady(ready func() error, warnings func() []string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			writeProblem(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		text := "ready"
		if warnings != nil {
			for _, line := range warnings() {
				text += "\nwarning: " + line
			}
		}
		writeText(w, http.StatusOK, text)
	}
}

func serveOpenAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/yaml")
	w.Write(openAPI)
}

// holding serves requests that take room, which is given back when they are answered. It answers with the error if
// serve returns one.
func (f *front) holding(serve func(http.ResponseWriter, *http.Request, *listen.Hold) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h := listen.Hold{Room: &f.room, Remote: r.RemoteAddr}
		defer h.Release()
		if err := serve(w, r, &h); err != nil {
			writeError(w, err)
		}
	}
}

// admit returns why a caller may not ask a question of a check, nil if it may.
func (f *front) admit(by *frontend.Session, q *question) error {
	err := f.mayRefund(q.receipt || q.request.Hold > 0)
	if err == nil {
		err = by.AdmitCheck(&q.request, q.peek, q.receipt)
	}
	if err == nil {
		err = by.About(&q.request, q.tenant, frontend.CheckOrPeek(q.peek))
	}
	return err
}

func (f *front) serveCheck(w http.ResponseWriter, r *http.Request, h *listen.Hold) error {
	by, q, err := f.read(w, r, h, f.checkFields)
	if err == nil {
		err = f.admit(&by, q)
	}
	if err != nil {
		return err
	}
	var d limiter.Decision
	if err := by.Check(r.Context(), &q.request, &d, q.peek); err != nil {
		return err
	}
	a := f.decider.Answer(&q.request, &d)
	a.Receipt = f.receiptOf(q.receipt, &q.request, &d)
	writeFields(w.Header(), &d)
	status := http.StatusOK
	switch {
	case d.Allowed:
	case d.Source == limiter.SourceFallbackClosed:
		status = http.StatusServiceUnavailable // the client is not at fault
	default:
		status = http.StatusTooManyRequests
	}
	if !d.Allowed && !d.Never {
		w.Header().Set("Retry-After", strconv.FormatInt(limiter.Seconds(d.RetryAfter), 10))
	}
	writeAnswer(w, status, a, h)
	return nil
}

// batchResult is the result of one check of a batch: an answer or an error.
type batchResult struct {
	Answer *limiter.Answer `json:"answer,omitempty"`
	Error  *problem        `json:"error,omitempty"`
}

type batchResults struct {
	Results []batchResult `json:"results"`
}

// serveBatch decides several requests.
func (f *front) serveBatch(w http.ResponseWriter, r *http.Request, h *listen.Hold) error {
	by, err := overhttp.Identify(f.callers, r)
	if err != nil {
		return err
	}
	body, err := readBody(w, r, h)
	var raw []json.RawMessage
	if err == nil {
		raw, err = parseChecks(body)
	}
	err = spendRead(&by, w, max(len(raw), 1), err)
	if err == nil {
		err = h.Add(int64(len(raw)) * weightOfJSONCheck)
	}
	if err != nil {
		return err
	}
	var b batch
	b.grow(len(raw))
	out := batchResults{make([]batchResult, len(raw))}
	var at []int               // the index in the message of each request
	var peeks, receipts []bool // whether each request is a peek, or is to have a receipt
	anyPeek := false
	for i := range raw {
		q, err := parseQuestion(raw[i], f.checkFields())
		if err == nil {
			err = f.admit(&by, q)
		}
		if err != nil {
			refusedPart(w, err)
			out.Results[i].Error = problemOf(err)
			continue
		}
		b.requests[len(at)] = q.request
		at, peeks, anyPeek = append(at, i), append(peeks, q.peek), anyPeek || q.peek
		receipts = append(receipts, q.receipt)
	}
	if !anyPeek {
		peeks = nil
	}
	if err = b.decide(r.Context(), &by, len(at), peeks); err != nil {
		return err
	}
	h.Widen(b.widest(len(at)))
	for i, n := range b.failed {
		refusedPart(w, b.errs[i])
		out.Results[at[n]].Error = problemOf(b.errs[i])
	}
	for i, j := range at {
		if out.Results[j].Error == nil {
			a := f.decider.Answer(&b.requests[i], &b.decisions[i])
			a.Receipt = f.receiptOf(receipts[i], &b.requests[i], &b.decisions[i])
			out.Results[j].Answer = &a
		}
	}
	writeAnswer(w, http.StatusOK, out, h)
	return nil
}

type resetResult struct {
	Counters int `json:"counters"`
}

func (f *front) clearFields() []field { return append(f.resetFields(), tenantField()) }

// serveReset deletes the counters of a request.
func (f *front) serveReset(w http.ResponseWriter, r *http.Request, h *listen.Hold) error {
	if err := f.callers.Allows(ActionReset); err != nil {
		return err
	}
	by, q, err := f.ask(w, r, h, f.clearFields, ActionReset)
	if err == nil {
		err = by.About(&q.request, q.tenant, ActionReset)
	}
	if err != nil {
		return err
	}
	subject(w, q.request.Rule)
	n, err := by.Reset(r.Context(), q.request)
	if err != nil {
		return err
	}
	if seen, ok := w.(*statusWriter); ok {
		seen.did = frontend.WhyReset(n)
	}
	writeJSON(w, resetResult{n})
	return nil
}
