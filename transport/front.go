package transport

import (
	_ "embed"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/spelling"
	"github.com/weirlimit/weir/limiter"
)

//go:embed openapi.yaml
var openAPI []byte

// front is the HTTP side. It is safe for concurrent use.
type front struct {
	*service
	ready     func() error
	directory Directory // nil: no cluster
	top       func(n int) (hottest, denied []TopKey)
	routes    map[string]route
	paths     []string // of routes, sorted
}

// route is what is served at one path.
type route struct {
	methods []string
	serve   http.HandlerFunc
}

func newFront(s *service, ready func() error, o *Options) *front {
	f := &front{service: s, ready: ready, directory: o.Directory, top: o.Top}
	read := []string{http.MethodGet, http.MethodHead}
	f.routes = map[string]route{
		"/v1/check":       {[]string{http.MethodGet, http.MethodPost}, f.serveCheck},
		"/v1/check/batch": {[]string{http.MethodPost}, f.serveBatch},
		"/v1/explain":     {[]string{http.MethodGet, http.MethodPost}, f.serveExplain},
		"/v1/reset":       {[]string{http.MethodPost}, f.serveReset},
		"/v1/members":     {read, f.serveMembers},
		"/v1/top":         {read, f.serveTop},
		"/healthz":        {read, serveHealthy},
		"/readyz":         {read, f.serveReady},
		"/openapi.yaml":   {read, serveOpenAPI},
	}
	f.routes["/v1/members/forget"] = route{[]string{http.MethodPost}, f.serveForget}
	if o.Metrics != nil {
		f.routes["/metrics"] = route{read, o.Metrics.ServeHTTP}
	}
	for p := range f.routes {
		f.paths = append(f.paths, p)
	}
	slices.Sort(f.paths)
	return f
}

// ServeHTTP implements [http.Handler].
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begin := f.begin()
	name := "other" // so that nobody makes names of his own
	seen := &statusWriter{ResponseWriter: w, status: http.StatusOK}
	route, known := f.routes[r.URL.Path]
	switch {
	case !known:
		f.noPath(seen, r.URL.Path)
	case !slices.Contains(route.methods, r.Method):
		allow := strings.Join(route.methods, ", ")
		seen.Header().Set("Allow", allow)
		writeProblem(seen, http.StatusMethodNotAllowed, "the methods of "+r.URL.Path+" are "+allow+", not "+quote(r.Method))
	default:
		name = r.Method + " " + r.URL.Path
		route.serve(seen, r)
	}
	if f.observer != nil {
		f.observer.Served(name, strconv.Itoa(seen.status), time.Since(begin))
	}
}

func (f *front) noPath(w http.ResponseWriter, path string) {
	text := "there is nothing at " + quote(path) + "; see /openapi.yaml"
	if near := spelling.Nearest(path, f.paths); near != "" {
		text = "there is nothing at " + quote(path) + "; did you mean " + near + "?"
	}
	writeProblem(w, http.StatusNotFound, text)
}

// statusWriter remembers the status.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets [http.ResponseController] find the writer underneath.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func serveHealthy(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok") }

func (f *front) serveReady(w http.ResponseWriter, _ *http.Request) {
	if err := f.ready(); err != nil {
		writeProblem(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	writeText(w, http.StatusOK, "ready")
}

func serveOpenAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/yaml")
	w.Write(openAPI)
}

// serveCheck decides one request.
func (f *front) serveCheck(w http.ResponseWriter, r *http.Request) {
	q, err := f.readQuestion(w, r)
	if err != nil {
		writeError(w, err)
		return
	}
	var d limiter.Decision
	ask := f.decider.Check
	if q.peek {
		ask = f.decider.Peek
	}
	if err := ask(r.Context(), &q.request, &d); err != nil {
		writeError(w, err)
		return
	}
	a := f.decider.Answer(&q.request, &d)
	status := http.StatusOK
	switch {
	case d.Allowed:
	case d.Source == limiter.SourceFallbackClosed:
		status = http.StatusServiceUnavailable // it is not the asker who did too much
	default:
		status = http.StatusTooManyRequests
	}
	if !d.Allowed && !d.Never {
		w.Header().Set("Retry-After", strconv.FormatInt(d.RetryAfter.Seconds(), 10))
	}
	writeJSON(w, status, a)
}

func (f *front) readQuestion(w http.ResponseWriter, r *http.Request) (*question, error) {
	if r.Method == http.MethodGet {
		return parseQuery(r.URL.RawQuery)
	}
	body, err := readBody(w, r)
	if err != nil {
		return nil, err
	}
	return parseQuestion(body, f.checkFields())
}

// batchResult is what became of one check of a batch: one of the two.
type batchResult struct {
	Answer *limiter.Answer `json:"answer,omitempty"`
	Error  *problem        `json:"error,omitempty"`
}

type batchResults struct {
	Results []batchResult `json:"results"`
}

// serveBatch decides several requests.
func (f *front) serveBatch(w http.ResponseWriter, r *http.Request) {
	body, err := readBody(w, r)
	if err != nil {
		writeError(w, err)
		return
	}
	raw, err := parseChecks(body)
	if err != nil {
		writeError(w, err)
		return
	}
	var b batch
	b.grow(len(raw))
	out := batchResults{make([]batchResult, len(raw))}
	var at []int     // where in the message each request stands
	var peeks []bool // which requests are questions
	anyPeek := false
	for i := range raw {
		q, err := parseQuestion(raw[i], f.checkFields())
		if err != nil {
			out.Results[i].Error = problemOf(err)
			continue
		}
		b.requests[len(at)] = q.request
		at, peeks, anyPeek = append(at, i), append(peeks, q.peek), anyPeek || q.peek
	}
	if anyPeek {
		b.decideEach(r.Context(), f.decider, len(at), func(i int) bool { return peeks[i] })
	} else if err := b.decide(r.Context(), f.decider, len(at)); err != nil {
		writeError(w, err)
		return
	}
	for i, n := range b.failed {
		out.Results[at[n]].Error = problemOf(b.errs[i])
	}
	for i, j := range at {
		if out.Results[j].Error == nil {
			out.Results[j].Answer = new(f.decider.Answer(&b.requests[i], &b.decisions[i]))
		}
	}
	writeJSON(w, http.StatusOK, out)
}

type resetResult struct {
	Counters int `json:"counters"`
}

// serveReset forgets the counters of a request.
func (f *front) serveReset(w http.ResponseWriter, r *http.Request) {
	if !f.allowReset {
		writeError(w, errReset)
		return
	}
	body, err := readBody(w, r)
	if err != nil {
		writeError(w, err)
		return
	}
	q, err := parseQuestion(body, f.resetFields())
	if err != nil {
		writeError(w, err)
		return
	}
	n, err := f.decider.Reset(r.Context(), &q.request)
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, resetResult{n})
}

// Errors of the form of an HTTP request, which have a status of their own.
var (
	errMediaType = errors.New("the body must be JSON, with the header Content-Type: application/json")
	errBodySize  = errors.New("the body is larger than 1 MiB: ask in smaller batches")
)
