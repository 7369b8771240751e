package replay

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir/cmd/weir/internal/term"
)

var rewrite = flag.Bool("rewrite", false,
	"write what the reports are now into testdata, to be read before it is committed")

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (go test -rewrite accepts it):\n%s", file, diff)
	}
}

// report returns the story as a report with a given time spent.
func report(t *testing.T, steps []step, file string) Report {
	t.Helper()
	r := replayed(t, steps, file)
	return Report{Result: r, SkippedLines: 1200 + r.Refused, Spent: 12345678 * time.Nanosecond}
}

// other is the story under rules that deny other requests.
func other() []step {
	steps := story()
	steps[0].answer, steps[2].answer = "towns/second-,towns/minute+", "towns/second+,towns/minute+"
	steps[10].answer = "towns/second-,towns/minute-"
	return steps
}

func TestReports(t *testing.T) {
	one := []Report{report(t, story(), "a.yaml")}
	two := []Report{report(t, story(), "a.yaml"), report(t, other(), "b.yaml")}
	tty := term.Style{Terminal: true, Width: 80}
	for name, render := range map[string]func() string{
		"plain":       func() string { return Plain(one, 3) },
		"plain-two":   func() string { return Plain(two, 3) },
		"pretty":      func() string { return Pretty(one, 3, tty) },
		"pretty-two":  func() string { return Pretty(two, 3, tty) },
		"pretty-none": func() string { return Pretty([]Report{report(t, story()[4:6], "a.yaml")}, 3, tty) },
		"json":        func() string { return string(mustJSON(t, one, 3)) },
		"json-two":    func() string { return string(mustJSON(t, two, 3)) },
	} {
		t.Run(name, func(t *testing.T) { golden(t, name+".golden", render()) })
	}
}

func mustJSON(t *testing.T, reports []Report, top int) []byte {
	t.Helper()
	data, err := json.MarshalIndent(JSON(reports, top), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(data, '\n')
}

// The names of the JSON are a promise to programs.
func TestJSONFields(t *testing.T) {
	steps := []step{{0, "ada", "towns/second-,towns/minute+"}, {1, "ada", ""}}
	r := report(t, steps, "a.yaml")
	r.Rules, r.HasShadow = r.Rules[:1], false
	want := map[string]any{
		"requests": 2.0, "allowed": 1.0, "denied": 1.0, "unmatched": 1.0, "skipped_lines": 1200.0, "seconds": 0.012346,
		"rules": map[string]any{"towns": map[string]any{"allowed": 0.0, "denied": 1.0, "keys": 1.0, "limits": map[string]any{
			"second": map[string]any{"denied": 1.0}, "minute": map[string]any{"denied": 0.0},
		}}},
		"top_denied": []any{map[string]any{"key": "ada:second", "denied": 1.0}},
	}
	var got any
	if err := json.Unmarshal(mustJSON(t, []Report{r}, 10), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(any(want), got); diff != "" {
		t.Error(diff)
	}
	if err := json.Unmarshal(mustJSON(t, []Report{r, r}, 10), &got); err != nil {
		t.Fatal(err)
	}
	want["rules_file"] = "a.yaml"
	if diff := cmp.Diff(any([]any{want, want}), got); diff != "" {
		t.Error(diff)
	}
}

// Without denials the list is empty, not null, and shadows are not spoken of.
func TestJSONOfNothingDenied(t *testing.T) {
	r := report(t, []step{{0, "ada", ""}}, "a.yaml")
	r.Rules, r.HasShadow = nil, false
	got := string(mustJSON(t, []Report{r}, 10))
	if !strings.Contains(got, `"top_denied": []`) || !strings.Contains(got, `"rules": {}`) ||
		strings.Contains(got, "shadow") {
		t.Error(got)
	}
}

// Text from a log cannot control the terminal or forge a line.
func TestReportsAreClean(t *testing.T) {
	steps := []step{{0, "a\x1b[2J\nrequests\t9", "towns/second-,towns/minute+"}}
	tty := term.Style{Terminal: true, Width: 80}
	reports := []Report{report(t, steps, "a\x1b.yaml"), report(t, steps, "b.yaml")}
	for _, got := range []string{Plain(reports, 3), Pretty(reports[:1], 3, tty), Pretty(reports, 3, tty)} {
		if strings.Contains(got, "\x1b") || strings.Contains(got, "\nrequests\t9") ||
			!strings.Contains(got, `a\x1b[2J\nrequests\t9`) {
			t.Errorf("%q", got)
		}
	}
}

func TestPrettyColours(t *testing.T) {
	reports := []Report{report(t, story(), "a.yaml"), report(t, other(), "b.yaml")}
	for _, rs := range [][]Report{reports, reports[:1]} {
		plain := Pretty(rs, 3, term.Style{Terminal: true, Width: 80})
		colour := Pretty(rs, 3, term.Style{Terminal: true, Color: true, Width: 80})
		if !strings.Contains(colour, "\x1b[31m") || strings.Contains(plain, "\x1b") {
			t.Errorf("colour is off or always on:\n%s\n%s", plain, colour)
		}
		for _, code := range []string{"1", "31", "32", "0"} {
			colour = strings.ReplaceAll(colour, "\x1b["+code+"m", "")
		}
		if colour != plain {
			t.Errorf("colour moves the columns:\n%s\n%s", plain, colour)
		}
	}
}
