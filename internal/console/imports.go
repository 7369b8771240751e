package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/weirlimit/weir/internal/counters"
	"github.com/weirlimit/weir/internal/engine"
	"github.com/weirlimit/weir/internal/waiting"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/transport"
)

// Bounds of one import: MaxImport is the most bytes of its lines, and MaxImported how many lines.
const (
	MaxImport   = 256 << 10
	MaxImported = 2000
)

type imports struct {
	Lines   []json.RawMessage `json:"lines"`
	Replace bool              `json:"replace,omitempty"`
	Dry     bool              `json:"dry_run,omitempty"`
}

// Import asks for counters to be imported.
type Import = imports

// ImportResult is what became of each line.
type ImportResult struct {
	Lines   []ImportedLine `json:"lines"`
	Missing []Missing      `json:"missing"`
}

// ImportedLine is what became of a line: "added", "merged", "replaced", "over" (nothing of it counts any more), or
// "refused", and then Why says why.
type ImportedLine struct {
	Did string `json:"did"`
	Why string `json:"why,omitempty"`
}

const (
	refused   = "refused"
	elsewhere = "no member in reach decides about this key now: import it again"
)

// answerImport imports the lines that this node decides about. The others have no answer. To a question without lines a
// node that refuses imports answers so.
func (c mover) answerImport(q *imports) []ImportedLine {
	if q == nil || len(q.Lines) > MaxImported {
		return nil
	}
	if c.config.RefuseImports {
		if len(q.Lines) == 0 {
			return []ImportedLine{{Did: refused}}
		}
		return nil
	}
	a, err := c.administered()
	if err != nil {
		return nil
	}
	out := c.importHere(a, q)
	n := 0
	for i := range out {
		if out[i].Did != "" && out[i].Did != refused {
			n++
		}
	}
	if n > 0 && !q.Dry {
		c.config.Log.Warn("counters were imported by way of another member", "counters", n, "replace", q.Replace)
	}
	return out
}

// importHere imports the lines that this node decides about.
func (c mover) importHere(a engine.Administered, q *imports) []ImportedLine {
	x := counters.NewImporter(counters.NewNamer(a.Rules.Load()))
	out := make([]ImportedLine, len(q.Lines))
	for i, text := range q.Lines {
		if len(text) == 0 {
			continue // another one has done it
		}
		one, err := x.Read(text)
		if err == nil {
			var did engine.Imported
			did, err = a.Counters.ImportCounter(one.Part, one.Of, q.Replace, q.Dry)
			out[i].Did = [...]string{engine.ImportedElsewhere: "", engine.ImportedNothing: "over",
				engine.ImportedAdded: "added", engine.ImportedMerged: "merged", engine.ImportedReplaced: "replaced"}[did]
		}
		if err != nil {
			out[i] = ImportedLine{refused, err.Error()}
		}
	}
	return out
}

// willing asks the other members whether they take imports. The error names those that refuse: without them a part of
// the lines would be imported, and no repetition would change that.
func (c mover) willing(ctx context.Context) error {
	var names []string
	asks := question{Kind: "import", Import: new(imports)}
	_, err := gather(ctx, c.Console, asks, func(member string, text *json.RawMessage) error {
		var did []ImportedLine
		err := json.Unmarshal(*text, &did)
		if len(did) > 0 {
			names = append(names, member)
		}
		return err
	})
	if err != nil || len(names) == 0 {
		return err
	}
	verb, whom := "refuses", "it"
	if len(names) > 1 {
		verb, whom = "refuse", "them"
	}
	return fmt.Errorf("%w: %s %s imports, so nothing is imported: start %s with --allow-reset", limiter.ErrForbidden,
		strings.Join(names, ", "), verb, whom)
}

// importAll imports lines, each where it is decided about.
func (c mover) importAll(ctx context.Context, a engine.Administered, q *imports) (*ImportResult, error) {
	out := &ImportResult{Lines: make([]ImportedLine, len(q.Lines)), Missing: []Missing{}}
	left := imports{Lines: slices.Clone(q.Lines), Replace: q.Replace, Dry: q.Dry}
	take := func(did []ImportedLine) {
		for i := range min(len(did), len(left.Lines)) {
			if d := did[i]; d.Did != "" && len(left.Lines[i]) > 0 {
				out.Lines[i], left.Lines[i] = d, nil
			}
		}
	}
	whole := func() bool {
		return !slices.ContainsFunc(left.Lines, func(l json.RawMessage) bool { return len(l) > 0 })
	}
	for until := c.config.Now().Add(unownedFor); ; {
		take(c.importHere(a, &left))
		if whole() {
			return out, nil
		}
		var err error
		asks := question{Kind: "import", Import: left.asked()}
		out.Missing, err = gather(ctx, c.Console, asks, func(_ string, did *[]ImportedLine) error {
			take(*did)
			return nil
		})
		if err != nil {
			return nil, err
		}
		if whole() || c.config.Ask == nil || !c.config.Now().Before(until) {
			break
		}
		if err := waiting.Sleep(ctx, unownedWait); err != nil {
			return nil, err
		}
	}
	for i, l := range left.Lines {
		if len(l) > 0 {
			out.Lines[i] = ImportedLine{refused, elsewhere}
		}
	}
	return out, nil
}

// asked returns it as members are asked: lines that are done are empty.
func (q *imports) asked() *imports {
	out := *q
	out.Lines = slices.Clone(q.Lines)
	for i, l := range out.Lines {
		if len(l) == 0 {
			out.Lines[i] = json.RawMessage("0")
		}
	}
	return &out
}

// serveImport serves /v1/import.
func (c mover) serveImport(w http.ResponseWriter, r *http.Request, by transport.AdminCaller) {
	out, err := c.importOf(w, r, &by)
	answer(w, &by, out, err)
}

func (c mover) importOf(w http.ResponseWriter, r *http.Request, by *transport.AdminCaller) (*ImportResult, error) {
	if err := errors.Join(by.MayAll(), by.May(transport.ActionReset, "")); err != nil {
		return nil, err
	}
	a, err := c.administered()
	if err != nil {
		return nil, err
	}
	q := new(imports)
	if err := readBody(w, r, q, 2*MaxImport, "an import"); err != nil {
		return nil, err
	}
	if len(q.Lines) > MaxImported {
		return nil, invalid("%d lines, and at most %d are possible at once", len(q.Lines), MaxImported)
	}
	if err := c.willing(r.Context()); err != nil {
		return nil, err
	}
	out, err := c.importAll(r.Context(), a, q)
	if err != nil {
		return nil, err
	}
	did := map[string]int{}
	for _, l := range out.Lines {
		did[l.Did]++
	}
	text := fmt.Sprintf("of %d lines %d added, %d merged, %d replaced, %d over, %d refused", len(q.Lines), did["added"],
		did["merged"], did["replaced"], did["over"], did[refused])
	if q.Dry {
		text = "dry run: " + text
	} else {
		c.config.Log.Info("counters imported", "did", text, "by", by.Name())
	}
	by.Subject("counters", text)
	return out, nil
}
