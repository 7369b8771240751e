package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/counters"
	"github.com/weirlimit/weir/internal/engine"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/transport"
)

// Bounds of exports and imports. A page of an export is what one member answers to one question.
const (
	pageBytes  = maxAnswer * 3 / 4
	pageKeys   = 1 << 14 // keys that are looked at for a page
	keysAtOnce = 32      // those under the lock of their partition
	mostParts  = 256
	mostPages  = 1 << 16 // pages of one member in one export that are not the last of a partition

	unownedFor  = 3 * time.Second // partitions without an owner are asked for again for so long
	unownedWait = 200 * time.Millisecond
)

// Exports says which counters are exported.
type Exports struct {
	// Rule is the rule, or quota, whose counters are wanted, empty for all.
	Rule string `json:"rule,omitempty"`
	// Request, unless nil, is the request whose counters are wanted.
	Request *ExportRequest `json:"request,omitempty"`
}

// ExportRequest is a request whose counters are wanted.
type ExportRequest struct {
	Path       string            `json:"path,omitempty"`
	Method     string            `json:"method,omitempty"`
	User       string            `json:"user,omitempty"`
	IP         string            `json:"ip,omitempty"`
	Group      string            `json:"group,omitempty"`
	Tenant     string            `json:"tenant,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
}

// ExportEnd is the last line of an export. Without it the export is cut short.
type ExportEnd struct {
	// Counters is how many there are.
	Counters int `json:"counters"`
	// Missing are members that did not answer, Unowned how many partitions nobody decided about: their counters are not
	// there.
	Missing []Missing `json:"missing"`
	Unowned int       `json:"unowned,omitempty"`
	End     bool      `json:"end"`
}

// errNoCounters is the answer of a node whose backend counts.
var errNoCounters = errors.New("this node counts in Redis: save and restore what Redis has, with Redis's own means")

// mover exports and imports the counters of a console's node and cluster.
type mover struct{ *Console }

// administered returns the node, and whether its counters can be exported.
func (c mover) administered() (engine.Administered, error) {
	a := weir.Administered(c.config.Node())
	if a.Counters == nil {
		return a, errNoCounters
	}
	return a, nil
}

// oneLineEach makes each value one line: a member that writes several could add lines of its own, and an end.
func oneLineEach(lines []json.RawMessage) error {
	for i, l := range lines {
		var b bytes.Buffer
		if err := json.Compact(&b, l); err != nil {
			return err
		}
		lines[i] = b.Bytes()
	}
	return nil
}

// missing adds members that did not answer.
func (e *ExportEnd) missing(list []Missing) {
	for _, m := range list {
		if !slices.ContainsFunc(e.Missing, func(o Missing) bool { return o.Member == m.Member }) {
			e.Missing = append(e.Missing, m)
		}
	}
}

// serveExport serves /v1/export.
func (c mover) serveExport(w http.ResponseWriter, r *http.Request, by transport.AdminCaller) {
	q, err := c.exportOf(w, r, &by)
	if err != nil {
		by.Fail(err)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/x-ndjson")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	flow := http.NewResponseController(w)
	end, err := c.export(r.Context(), q, func(lines []json.RawMessage) error {
		_ = flow.SetWriteDeadline(time.Now().Add(time.Minute)) // of a page; else that of the site
		for _, l := range lines {
			if _, err := w.Write(append(l, '\n')); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return // the last line is missing, which says so
	}
	if b, err := json.Marshal(end); err == nil {
		_, _ = w.Write(append(b, '\n'))
	}
}

func (c mover) exportOf(w http.ResponseWriter, r *http.Request, by *transport.AdminCaller) (q exported, err error) {
	q.Last = 2 * table.Partitions
	if err = by.MayAll(); err != nil {
		return q, err
	}
	a, err := c.administered()
	if err != nil {
		return q, err
	}
	want := new(Exports)
	if err = readBody(w, r, want, maxBody, "an export"); err != nil {
		return q, err
	}
	set := a.Rules.Load()
	q.Rule = want.Rule
	by.Subject(subjectOfExport(want), "exported")
	if want.Rule != "" && !counters.NewNamer(set).Knows(want.Rule) {
		return q, invalid("there is no rule and no quota %q", want.Rule)
	}
	if want.Request == nil {
		return q, nil
	}
	x := want.Request
	request := limiter.Request{Path: x.Path, Method: x.Method, User: x.User, IP: x.IP, Group: x.Group, Tenant: x.Tenant,
		Attributes: x.Attributes}
	if set.Rule(want.Rule) != nil && !slices.ContainsFunc(set.Quotas(), func(i rules.QuotaInfo) bool {
		return i.Rule.Name == want.Rule
	}) {
		request.Rule = want.Rule
	}
	var charge arith.Charge
	if _, err = set.Resolve(&request, &charge); err != nil {
		return q, err
	}
	if charge.Len() == 0 {
		return q, invalid("no rule counts this request")
	}
	q.First = q.Last
	last := 0
	for i := range charge.Len() {
		k := charge.Key(i)
		part := table.PartitionOf(k)
		q.First, last = min(q.First, part), max(last, part+1)
		q.Keys = append(q.Keys, counters.KeyText(k.Hash))
	}
	q.Last, q.Rule = last, ""
	return q, nil
}

// subjectOfExport names in the audit what was exported: no user.
func subjectOfExport(e *Exports) string {
	switch {
	case e.Request != nil:
		return "counters of one request"
	case e.Rule != "":
		return "counters of rule " + e.Rule
	}
	return "all counters"
}

// readBody reads an object, without unknown fields.
func readBody(w http.ResponseWriter, r *http.Request, to any, most int64, what string) error {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return invalid("the body must be JSON: send it with Content-Type: application/json")
	}
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, most))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return invalid("the body is not %s: %v", what, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return invalid("the body has more than %s", what)
	}
	return nil
}
