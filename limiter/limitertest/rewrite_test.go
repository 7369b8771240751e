package limitertest

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the answers that the decider gives into testdata/*.txt")

// TestRewrite writes the transcripts anew when it is asked to, and else checks
// that doing so would change nothing but answers.
func TestRewrite(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			tr, err := parseTranscript(string(text))
			if err != nil {
				t.Fatalf("%s:%v", file, err)
			}
			runTranscript(t, newTableSubject, tr)
			got := tr.write()
			switch {
			case !*rewrite && got != string(text):
				t.Errorf("%s is not as -rewrite would write it; it would be\n%s", file, got)
			case *rewrite:
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

const (
	answerIndent = 10 // of the further lines of an answer
	answerColumn = 64 // where answers stand at most, unless a command is longer
)

// write writes a transcript with the answers it got, those of neighbouring
// commands below each other.
func (tr *transcript) write() string {
	var b strings.Builder
	for i, l := range tr.lines {
		c := l.command
		b.WriteString(l.text)
		if c != nil && len(c.got) > 0 {
			b.WriteString(strings.Repeat(" ", max(0, tr.column(i)-len(l.text))))
			b.WriteString("  -> " + c.got[0])
			for _, more := range c.got[1:] {
				b.WriteString("\n" + strings.Repeat(" ", answerIndent) + more)
			}
		}
		b.WriteString("\n")
		if c != nil {
			for _, s := range c.block {
				b.WriteString(s + "\n")
			}
		}
	}
	return b.String()
}

// column is the width of the commands around line i, up to the next line that
// is none.
func (tr *transcript) column(i int) int {
	from, to := i, i
	for from > 0 && tr.lines[from-1].command != nil {
		from--
	}
	for to < len(tr.lines) && tr.lines[to].command != nil {
		to++
	}
	width := 0
	for _, l := range tr.lines[from:to] {
		if len(l.text) <= answerColumn {
			width = max(width, len(l.text))
		}
	}
	return width
}
