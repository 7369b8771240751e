package audit

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/frontend"
)

// Names of clients control no terminal and turn no text round where a line is shown; a program that reads it gets
// them as they are.
func TestLinesAreVisible(t *testing.T) {
	const name = "a\u202eb\u009b31m\u2066\U000e0041\u007fé\n\xff\u4e16"
	want := strings.ToValidUTF8(name, "\ufffd")
	denials := filepath.Join(t.TempDir(), "denials")
	lines, err := OpenLines(denials, "denial", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	lines.Write(map[string]string{"caller": name})
	lines.Close()
	text, err := os.ReadFile(denials)
	if err != nil {
		t.Fatal(err)
	}
	m := &memory{}
	l, _, _ := start(t, m)
	l.Audited(frontend.AuditEvent{Action: "check", Outcome: frontend.AuditRefused, Caller: name})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{string(text), m.text.String()} {
		var got struct{ Caller string }
		if err := json.Unmarshal([]byte(line), &got); err != nil || got.Caller != want ||
			strings.ContainsAny(line, "\u202e\u009b\u2066\U000e0041\u007f") || !strings.HasSuffix(line, "\"}\n") ||
			strings.Count(line, "\n") != 1 || !strings.Contains(line, "é") {
			t.Errorf("%q: %q, %v; want %q", line, got.Caller, err, want)
		}
	}
}
