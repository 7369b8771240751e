package console_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/console"
)

var asOperator = []string{"Authorization", "Bearer operator", "Content-Type", "application/json"}

// exported returns the lines of an export, and the last one.
func (d *desk) exported(t *testing.T, body string, by ...string) (lines []json.RawMessage, end console.ExportEnd) {
	t.Helper()
	got := d.ask(t, http.MethodPost, "/v1/export", body, by...)
	if got.status != http.StatusOK {
		t.Fatalf("%d %s", got.status, got.body)
	}
	all := strings.Split(strings.TrimSpace(got.body), "\n")
	if err := json.Unmarshal([]byte(all[len(all)-1]), &end); err != nil || !end.End || end.Counters != len(all)-1 {
		t.Fatalf("%v: %s", err, got.body)
	}
	for _, l := range all[:len(all)-1] {
		lines = append(lines, json.RawMessage(l))
	}
	return lines, end
}

func (d *desk) imported(t *testing.T, q console.Import, by ...string) console.ImportResult {
	t.Helper()
	body, err := json.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	got := d.ask(t, http.MethodPost, "/v1/import", string(body), by...)
	var out console.ImportResult
	if err := json.Unmarshal([]byte(got.body), &out); err != nil || got.status != http.StatusOK {
		t.Fatalf("%d %s", got.status, got.body)
	}
	return out
}

func (d *desk) left(t *testing.T, user string) uint64 {
	t.Helper()
	out, err := d.node.Check(t.Context(), weir.Request{Path: "/api/x", User: user, Cost: weir.Units(0)})
	if err != nil {
		t.Fatal(err)
	}
	return out.Limit(0).Remaining
}

// Counters are exported, all or those of a rule or a request, and imported: added, or replaced. Both are in the audit.
func TestExportAndImport(t *testing.T) {
	d := open(t, staff(), true)
	for i := range 300 {
		if _, err := d.node.Check(t.Context(), weir.Request{Path: "/api/x", User: fmt.Sprint("u", i),
			Cost: weir.Units(int64(1 + i%50))}); err != nil {
			t.Fatal(err)
		}
	}
	d.refuse(t, weir.Request{Path: "/login", User: "ada"})
	all, _ := d.exported(t, `{}`, asOperator...)
	of, _ := d.exported(t, `{"rule": "login"}`, asOperator...)
	one, _ := d.exported(t, `{"rule": "api", "request": {"user": "u7"}}`, asOperator...)
	path, _ := d.exported(t, `{"request": {"path": "/api/x", "user": "u7"}}`, asOperator...)
	if len(all) != 301 || len(of) != 1 || len(one) != 1 || len(path) != 1 || string(one[0][:60]) != string(path[0][:60]) {
		t.Fatalf("%d counters, %d of the rule, %s, %s", len(all), len(of), one, path)
	}
	if _, err := d.node.Reset(t.Context(), weir.Request{Path: "/api/x", User: "u7"}); err != nil {
		t.Fatal(err)
	}
	lines := append([]json.RawMessage{[]byte(`{"key": "no"}`)}, all...)
	for _, of := range []struct {
		q    console.Import
		want map[string]int
		left uint64
	}{
		{console.Import{Lines: lines, Dry: true}, map[string]int{"added": 1, "merged": 300, "refused": 1}, 100},
		{console.Import{Lines: lines}, map[string]int{"added": 1, "merged": 300, "refused": 1}, 92},
		{console.Import{Lines: lines, Replace: true}, map[string]int{"replaced": 301, "refused": 1}, 92},
	} {
		did := map[string]int{}
		out := d.imported(t, of.q, asOperator...)
		for _, l := range out.Lines {
			did[l.Did]++
		}
		if fmt.Sprint(did) != fmt.Sprint(of.want) || out.Lines[0].Did != "refused" || out.Lines[0].Why == "" {
			t.Errorf("%v, want %v; %+v", did, of.want, out.Lines[0])
		}
		if got := d.left(t, "u7"); got != of.left {
			t.Errorf("%d are left, want %d", got, of.left)
		}
	}
	text := fmt.Sprintf("%+v", d.audit.all())
	for _, want := range []string{"export", "counters of one request", "all counters", "counters of rule login",
		"dry run: of 302 lines 1 added, 300 merged", "301 replaced"} {
		if !strings.Contains(text, want) {
			t.Errorf("the audit lacks %q: %s", want, text)
		}
	}
}

// An export is for administrators of all tenants, and an import for those that may reset, too. What is wrong is told.
func TestWhoMayExportAndImport(t *testing.T) {
	d := open(t, staff(), true)
	for _, of := range []struct {
		by, path, body string
		status         int
	}{
		{"viewer", "/v1/export", `{}`, http.StatusOK},
		{"bank", "/v1/export", `{}`, http.StatusForbidden},
		{"client", "/v1/export", `{}`, http.StatusForbidden},
		{"viewer", "/v1/import", `{"lines": []}`, http.StatusForbidden},
		{"bank", "/v1/import", `{"lines": []}`, http.StatusForbidden},
		{"operator", "/v1/import", `{"lines": []}`, http.StatusOK},
		{"operator", "/v1/export", `{"rule": "nosuch"}`, http.StatusBadRequest},
		{"operator", "/v1/export", `{"request": {"path": "/other"}}`, http.StatusBadRequest},
		{"operator", "/v1/export", `{"x": 1}`, http.StatusBadRequest},
		{"operator", "/v1/import", `{"lines": [1], "y": 1}`, http.StatusBadRequest},
		{"operator", "/v1/import", `{"lines": [` + strings.Repeat("1,", console.MaxImported) + `1]}`,
			http.StatusBadRequest},
	} {
		got := d.ask(t, http.MethodPost, of.path, of.body, "Authorization", "Bearer "+of.by, "Content-Type",
			"application/json")
		if got.status != of.status {
			t.Errorf("%s of %s, %.40s: %d %s", of.path, of.by, of.body, got.status, got.body)
		}
	}
}

// Nothing is imported while a member refuses imports, and the error names it and says what to do. A member that cannot
// be asked refuses nothing.
func TestMembersThatRefuseImports(t *testing.T) {
	refuses := func(yes bool) *console.Console {
		node := open(t, nil, false).node
		return console.New(console.Config{Node: func() *weir.Node { return node }, RefuseImports: yes, Now: time.Now,
			Log: slog.New(slog.DiscardHandler)})
	}
	no, yes := refuses(true), refuses(false)
	from := open(t, nil, false)
	if _, err := from.node.Check(t.Context(), weir.Request{Path: "/api/x", User: "ada"}); err != nil {
		t.Fatal(err)
	}
	lines, _ := from.exported(t, `{}`, asOperator...)
	d := open(t, nil, false)
	for want, members := range map[string][]*console.Console{
		"":                          {yes, nil},
		"m2 refuses imports, so ":   {yes, nil, no},
		"m0, m1 refuse imports, so": {no, no},
	} {
		d.asked = func(question []byte) (all []console.Answered) {
			for i, m := range members {
				if m == nil {
					all = append(all, console.Answered{Member: fmt.Sprint("m", i), Why: "it is dead"})
					continue
				}
				all = append(all, console.Answered{Member: fmt.Sprint("m", i), Text: m.Answer(question)})
			}
			return all
		}
		before := d.left(t, "ada")
		body, err := json.Marshal(console.Import{Lines: lines})
		if err != nil {
			t.Fatal(err)
		}
		got := d.ask(t, http.MethodPost, "/v1/import", string(body), asOperator...)
		if refused := got.status == http.StatusForbidden; refused != (want != "") ||
			refused && (!strings.Contains(got.body, want) || !strings.Contains(got.body, "--allow-reset")) {
			t.Errorf("want %q: %d %s", want, got.status, got.body)
		}
		if want != "" && d.left(t, "ada") != before {
			t.Errorf("%q, and something was imported", want)
		}
	}
}

// What members answer is taken, each partition once; who does not answer is named, and so are partitions without an
// owner.
func TestExportOfMembers(t *testing.T) {
	d := open(t, nil, false)
	asked := 0
	d.asked = func([]byte) []console.Answered {
		asked++
		return []console.Answered{{Member: "n2", Text: []byte(`{"parts": [{"part": 3, "lines": [{"x": 1}]}, {"part": -1,
			"lines": [1]}, {"part": 100000, "lines": [1]}]}`)}, {Member: "n3", Why: "it is dead"},
			{Member: "n4", Text: []byte(`{`)}}
	}
	_, end := d.exported(t, `{}`, "Content-Type", "application/json")
	if end.Counters != 0 || end.Unowned != 0 || len(end.Missing) != 2 || asked == 0 {
		t.Errorf("this node decides about all: %+v", end)
	}
}

// Both are described in the API's file.
func TestExportIsDescribed(t *testing.T) {
	d := open(t, nil, false)
	file := d.ask(t, http.MethodGet, "/openapi.yaml", "").body
	for path, route := range d.Routes() {
		if path == "/v1/export" || path == "/v1/import" {
			if !route.Post || !strings.Contains(file, "\n  "+path+":\n    post:\n") {
				t.Errorf("%s is not in the file", path)
			}
		}
	}
}
