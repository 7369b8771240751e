// Package console is what an operator sees of a cluster, from any of its members: who is refused and why, what happened
// lately, which rules and overrides are in force; as JSON, and as pages for a browser.
package console

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/denials"
	"github.com/weirlimit/weir/internal/history"
	"github.com/weirlimit/weir/internal/overrides"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/metrics"
	"github.com/weirlimit/weir/transport"
)

// Config configures a [Console]. Node, Now and Log are required.
type Config struct {
	// Node returns the node, nil as long as it is not open. It is open before the first request and before Run.
	Node func() *weir.Node
	// Name is the node's name in its cluster, empty without one; Cluster that of the cluster.
	Name, Cluster string
	// Denials are the node's own; nil: they are not recorded.
	Denials *denials.Record
	// Totals are what the node has counted since its start.
	Totals func() metrics.Totals
	// Certificates returns how long certificates are valid, by what they are for; nil: there are none.
	Certificates func() map[string]metrics.Validity
	// Overrides are those of the cluster. Tell tells the named other members, or all, some news; nil: there are none.
	Overrides *overrides.Book
	Tell      func(news []byte, members ...string)
	// Ended is told of each override that ended by itself, and Heard of each decision that another member told; nil:
	// nobody is.
	Ended, Heard func(e *overrides.Entry)
	// Unsettled means that no client may settle what rules hold.
	Unsettled bool
	// RefuseImports makes other members' imports of counters be refused here.
	RefuseImports bool
	// Ask asks the other members a question and returns their answers; nil: there are none.
	Ask func(ctx context.Context, question []byte) ([]Answered, error)
	// Now is the wall clock.
	Now func() time.Time
	// Log receives what an operator should know.
	Log *slog.Logger
}

// Answered is what another member answered: nothing, and then Why says why, or Text.
type Answered struct {
	Member string
	Text   []byte
	Why    string
}

// Console serves the operators of a node. It is safe for concurrent use.
type Console struct {
	config Config
	ring   *history.Ring
	rules  ruleNews
	events events
	sends  sends

	// Overriding has the overrides of the cluster. It is set by New.
	Overriding *Overriding

	outlook   outlook
	snapshots snapshots
	site      *site
}

// New returns a console.
func New(c Config) *Console {
	c.Overrides = cmp.Or(c.Overrides, new(overrides.Book))
	out := &Console{config: c, outlook: outlook{node: c.Node}, ring: history.New()}
	out.Overriding = &Overriding{config: &out.config, events: &out.events}
	out.site = &site{console: out, sessions: newSessions(), templates: templates(), version: version()}
	return out
}

// Routes returns what it serves at the address of administration.
func (c *Console) Routes() map[string]transport.AdminRoute {
	routes := map[string]transport.AdminRoute{
		"/v1/denials":          {Serve: c.serveDenials},
		"/v1/history":          {Serve: c.serveHistory},
		"/v1/rules":            {Serve: c.serveRules},
		"/v1/export":           {Serve: mover{c}.serveExport, Post: true, Action: "export"},
		"/v1/import":           {Serve: mover{c}.serveImport, Post: true, Changes: true, Action: "import"},
		"/v1/overrides":        {Serve: c.Overriding.serveOverrides},
		"/v1/overrides/set":    {Serve: c.Overriding.serveSet, Post: true, Changes: true, Action: "override"},
		"/v1/overrides/remove": {Serve: c.Overriding.serveRemove, Post: true, Changes: true, Action: "override remove"},
	}
	c.site.routes(routes)
	return routes
}

// maxAnswer bounds an answer of a member, below what a note may have.
const maxAnswer = 480 << 10

// askWithin bounds how long other members are waited for.
const askWithin = 1500 * time.Millisecond

// question is what members ask each other. A kind that a version does not know it does not answer.
type question struct {
	Kind    string         `json:"kind"`
	Denials *denials.Query `json:"denials,omitempty"`
	Span    string         `json:"span,omitempty"`
	Export  *exported      `json:"export,omitempty"`
	Import  *imports       `json:"import,omitempty"`
}

// Answer answers the question of another member, nil if it cannot.
func (c *Console) Answer(text []byte) []byte {
	var q question
	if json.Unmarshal(text, &q) != nil || c.config.Node() == nil {
		return nil
	}
	if q.Kind == "denials" && q.Denials != nil && c.config.Denials != nil {
		return c.fitting(*q.Denials)
	}
	var out any
	switch q.Kind {
	case "history":
		span, ok := history.SpanOf(q.Span)
		if !ok {
			return nil
		}
		out = c.ring.Series(span, c.config.Now())
	case "rules":
		out = c.inForce()
	case "members":
		out = c.sees()
	case "counters":
		out = mover{c}.answerExport(q.Export)
	case "import":
		out = mover{c}.answerImport(q.Import)
	default:
		return nil
	}
	b, err := json.Marshal(out)
	if err != nil || len(b) > maxAnswer {
		return nil
	}
	return b
}

// fitting returns the denials that fit into an answer.
func (c *Console) fitting(q denials.Query) []byte {
	if q.Most = min(q.Most, denials.MaxFound); q.Most <= 0 {
		q.Most = 100
	}
	for {
		b, err := json.Marshal(c.config.Denials.Find(q))
		if err != nil {
			return nil
		}
		if len(b) <= maxAnswer {
			return b
		}
		if q.Most /= 2; q.Most == 0 {
			return nil
		}
	}
}

// Missing is a member whose answer is missing, and why.
type Missing struct {
	Member string `json:"member"`
	Why    string `json:"why"`
}

// gather asks all other members, and hands each answer to read, as the value that it is. It returns whose are missing.
func gather[T any](ctx context.Context, c *Console, q question, read func(member string, of *T) error) ([]Missing,
	error) {
	missing := []Missing{}
	if c.config.Ask == nil {
		return missing, nil
	}
	text, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	answers, err := c.config.Ask(ctx, text)
	if err != nil {
		return nil, err
	}
	for _, a := range answers {
		why := a.Why
		if a.Text != nil {
			of := new(T)
			if json.Unmarshal(a.Text, of) == nil && read(a.Member, of) == nil {
				continue
			}
			why = "its answer cannot be read: it may be of another version"
		}
		missing = append(missing, Missing{a.Member, why})
	}
	return missing, nil
}

// name returns the name of the node, for answers.
func (c *Console) name() string { return cmp.Or(c.config.Name, "this node") }

// invalid returns an error that the caller must correct.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{limiter.ErrInvalid}, args...)...)
}

// errNotRecorded is the answer of a node that records no denials.
var errNotRecorded = errors.New("denials are not recorded here: start the node without --denial-bytes 0")

// answer answers a caller with a value as JSON, or with why there is none.
func answer(w http.ResponseWriter, by *transport.AdminCaller, v any, err error) {
	if err != nil {
		by.Fail(err)
		return
	}
	writeJSON(w, v)
}

// writeJSON answers with an object.
func writeJSON(w http.ResponseWriter, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(append(b, '\n'))
}

// only returns an error for a parameter that is not one of those, or is given twice.
func only(r *http.Request, names ...string) error {
	for name, values := range r.URL.Query() {
		if !slices.Contains(names, name) {
			return invalid("parameter %.60q is unknown: the parameters are %v", name, names)
		}
		if len(values) > 1 {
			return invalid("parameter %s is given %d times", name, len(values))
		}
	}
	return nil
}
