package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/console"
	"github.com/weirlimit/weir/internal/counters"
)

// moving is the administration of a node that exports a text, and imports lines.
type moving struct {
	text string
	asks []string
	had  int // lines of imports
}

func (n *moving) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	n.asks = append(n.asks, r.URL.Path+" "+string(body))
	if r.URL.Path == "/v1/export" {
		_, _ = io.WriteString(w, n.text)
		return
	}
	var q console.Import
	out := console.ImportResult{Missing: []console.Missing{}}
	if json.Unmarshal(body, &q) == nil {
		for range q.Lines {
			l := console.ImportedLine{Did: "added"}
			if n.had++; n.had == 2 {
				l = console.ImportedLine{Did: "refused", Why: "of another key"}
			}
			out.Lines = append(out.Lines, l)
		}
	}
	_ = json.NewEncoder(w).Encode(out)
}

// Lines are printed as they come, and the last one says what is missing; without it the export failed.
func TestExport(t *testing.T) {
	for name, of := range map[string]struct {
		text, out, errs string
		status          int
	}{
		"all": {"{\"a\":1}\n{\"b\":1}\n{\"counters\":2,\"missing\":[],\"end\":true}\n", "{\"a\":1}\n{\"b\":1}\n", "",
			ExitOK},
		"none":      {"{\"counters\":0,\"missing\":[],\"end\":true}\n", "", "", ExitOK},
		"cut short": {"{\"a\":1}\n{\"b\":1}\n", "{\"a\":1}\n", "is cut short", 1},
		"missing": {"{\"counters\":0,\"missing\":[{\"member\":\"n3\",\"why\":\"it is dead\"}],\"unowned\":2," +
			"\"end\":true}\n", "",
			"the counters of member n3 are missing, as it is dead", 1},
	} {
		n := &moving{text: of.text}
		s := httptest.NewServer(n)
		status, out, errs := runAs(t, "export", "--rule", "api", "--user", "ada", "--server",
			strings.TrimPrefix(s.URL, "http://"))
		s.Close()
		if status != of.status || out != of.out || !strings.Contains(errs, of.errs) {
			t.Errorf("%s: %d, %q, %q", name, status, out, errs)
		}
		if len(n.asks) != 1 || !strings.Contains(n.asks[0], `"rule":"api","request":{`) ||
			!strings.Contains(n.asks[0], `"user":"ada"`) {
			t.Errorf("%s: it asks %q", name, n.asks)
		}
	}
}

// A line that cannot be used is told by its number in the file, and costs no other.
func TestImport(t *testing.T) {
	n := &moving{}
	s := httptest.NewServer(n)
	defer s.Close()
	file := filepath.Join(t.TempDir(), "counters.jsonl")
	long := `"` + strings.Repeat("x", counters.MaxLine) + `"`
	text := "{\"a\":1}\nnot json\n\n{\"b\":1}\n" + long + "\n" +
		strings.Repeat("{\"c\":1}\n", console.MaxImported-1) + "{\"d\":1}"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	status, out, errs := runAs(t, "import", file, "--dry-run", "--replace", "--server",
		strings.TrimPrefix(s.URL, "http://"))
	want := fmt.Sprintf("dry run: %d added, 0 merged, 0 replaced, 0 ended since, 3 refused\n", console.MaxImported+1)
	if status != 1 || out != want {
		t.Errorf("%d, %q, want %q", status, out, want)
	}
	if !strings.Contains(errs, "line 2: it is not JSON") || !strings.Contains(errs, "line 4: of another key") ||
		!strings.Contains(errs, "line 5: it has more than") {
		t.Errorf("%q", errs)
	}
	if len(n.asks) != 2 || !strings.Contains(n.asks[0], `"replace":true,"dry_run":true`) {
		t.Errorf("it asks %d times, %.200q", len(n.asks), n.asks[0])
	}
	for _, args := range [][]string{{"import"}, {"import", "a", "b"}, {"export", "/a", "/b"}} {
		if status, _, errs := runAs(t, args...); status == ExitOK || errs == "" {
			t.Errorf("%q: %d %q", args, status, errs)
		}
	}
}
