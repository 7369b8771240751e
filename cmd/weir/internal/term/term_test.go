package term

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestStyleOfAFileIsPlain(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}()
	if s := StyleOf(f, func(string) string { return "" }); s != (Style{}) {
		t.Errorf("%+v", s)
	}
}

func TestColour(t *testing.T) {
	s := Style{Terminal: true, Color: true}
	if got := s.Red("a") + s.Green(
		"b") + s.Bold("c") + s.Dim("d"); got != "\x1b[31ma\x1b[0m\x1b[32mb\x1b[0m\x1b[1mc\x1b[0m\x1b[2md\x1b[0m" {
		t.Errorf("%q", got)
	}
	if got := s.Red(""); got != "" {
		t.Errorf("nothing, coloured, is %q", got)
	}
	s.Color = false
	if got := s.Red("a") + s.Bold("b"); got != "ab" {
		t.Errorf("%q", got)
	}
}

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"":                       "",
		"/towns:ada:minute":      "/towns:ada:minute",
		"/zürich/東京 x":           "/zürich/東京 x",
		"a\x1b[31mb":             `a\x1b[31mb`,
		"tab\tline\nreturn\r":    `tab\tline\nreturn\r`,
		"nul\x00del\x7f":         `nul\x00del\x7f`,
		"broken\xff\xfeutf8":     `broken\xff\xfeutf8`,
		"right to left\u202egpj": `right to left\u202egpj`,
		"c1\u009b31m":            `c1\u009b31m`,
	} {
		if got := Clean(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		in    string
		width int
		want  string
	}{
		{"short", 10, "short"},
		{"exactly-10", 10, "exactly-10"},
		{"/a/long/path:ada:minute", 10, "/a/lo…nute"},
		{"/a/long/path:ada:minute", 11, "/a/lo…inute"},
		{"ééééééééééé", 10, "ééééé…éééé"},
		{"no width is known", 0, "no width is known"},
		{"too narrow to help", 7, "too narrow to help"},
	} {
		if got := Cut(c.in, c.width); got != c.want {
			t.Errorf("%q to %d: got %q, want %q", c.in, c.width, got, c.want)
		}
	}
}

func TestNumbers(t *testing.T) {
	for n, want := range map[int]string{0: "0", 7: "7", 999: "999", 1000: "1,000", 1234567: "1,234,567", -123: "-123",
		-1234: "-1,234"} {
		if got := Count(n); got != want {
			t.Errorf("Count(%d) = %s, want %s", n, got, want)
		}
	}
	if got := Percent(1, 3) + Percent(0, 0) + Percent(5, 5); got != "33.3 %0.0 %100.0 %" {
		t.Error(got)
	}
	if got := Plural(0, "rule") + Plural(1, "rule") + Plural(1000, "rule"); got != "0 rules1 rule1,000 rules" {
		t.Error(got)
	}
}

func TestTable(t *testing.T) {
	var table Table
	s := Style{Color: true}
	table.Row(Cell{Text: "rule"}, Cell{Text: "denied"})
	table.Row(Cell{Text: "zürich", Paint: s.Bold}, Cell{Text: "7", Paint: s.Red})
	table.Row(Cell{Text: "a note, longer than others"})
	want := "rule                        denied\n" +
		"\x1b[1mzürich\x1b[0m                           \x1b[31m7\x1b[0m\n" +
		"a note, longer than others\n"
	if got := table.String(); got != want {
		t.Errorf("\n%q\n%q", got, want)
	}
}

func TestSparkline(t *testing.T) {
	for _, c := range []struct {
		in   []int
		want string
	}{
		{nil, ""},
		{[]int{0, 0}, "  "},
		{[]int{0, 1, 2, 3, 4, 5, 6, 7, 8}, " ▁▂▃▄▅▆▇█"},
		{[]int{1, 1000}, "▁█"},
		{[]int{999, 1000, -1}, "██ "},
		{[]int{1 << 62, 1 << 61}, "█▄"},
	} {
		if got := Sparkline(c.in); got != c.want {
			t.Errorf("%v: got %q, want %q", c.in, got, c.want)
		}
	}
}

func TestProgress(t *testing.T) {
	at := time.Unix(0, 0)
	now := func() time.Time { return at }
	var out bytes.Buffer
	p := NewProgress(&out, Style{Terminal: true, Width: 80}, now)
	step := func(d time.Duration, done, whole int64) string {
		out.Reset()
		at = at.Add(d)
		p.Show("reading", done, whole)
		return out.String()
	}
	if got := step(ProgressAfter-1, 1, 2); got != "" {
		t.Errorf("short work showed %q", got)
	}
	p.Clear()
	if out.Len() > 0 {
		t.Errorf("nothing was shown, yet %q erases it", out.String())
	}
	if got := step(1, 1, 2); got != "\r\x1b[Kreading … 50 %" {
		t.Errorf("first: %q", got)
	}
	if got := step(ProgressEvery-1, 1, 2); got != "" {
		t.Errorf("too soon: %q", got)
	}
	if got := step(1, 7, 0); got != "\r\x1b[Kreading …" {
		t.Errorf("of an unknown whole: %q", got)
	}
	out.Reset()
	p.Clear()
	p.Clear()
	if got := out.String(); got != "\r\x1b[K" {
		t.Errorf("cleared by %q", got)
	}
}

func TestProgressOffATerminalIsSilent(t *testing.T) {
	at := time.Unix(0, 0)
	var out bytes.Buffer
	p := NewProgress(&out, Style{}, func() time.Time { at = at.Add(time.Hour); return at })
	p.Show("reading", 1, 2)
	p.Clear()
	if out.Len() > 0 {
		t.Errorf("%q", out.String())
	}
}

func TestProgressFitsItsLine(t *testing.T) {
	at := time.Unix(0, 0)
	var out bytes.Buffer
	p := NewProgress(&out, Style{Terminal: true, Width: 20}, func() time.Time { at = at.Add(time.Hour); return at })
	p.Show("reading "+strings.Repeat("x", 100), 1, 2)
	if got := strings.TrimPrefix(out.String(), "\r\x1b[K"); len([]rune(got)) != 19 {
		t.Errorf("%q has %d columns", got, len([]rune(got)))
	}
}
