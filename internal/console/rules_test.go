package console

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// The rules are put in words once for each file, since pages are made each second and tables may have 100,000 names. A
// file that means the same has them on other lines.
func TestRulesArePutInWordsOnce(t *testing.T) {
	const file = "rules:\n  - {name: r, limits: [{limit: {by: \"attr:plan\", of: {pro: 1000/minute}, else: 10/minute}}]}\n"
	n, err := weir.Open(t.Context(), weir.Config{Rules: []byte(file), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	c := New(Config{Node: func() *weir.Node { return n }, Now: time.Now})
	shown := func() *Rules {
		t.Helper()
		out, err := c.allRules(t.Context(), true)
		if err != nil || len(out.Rules) != 1 {
			t.Fatalf("%v: %+v", err, out)
		}
		return out
	}
	first := shown()
	if again := shown(); &again.Rules[0] != &first.Rules[0] {
		t.Error("they are put in words again")
	}
	if err := n.SetRules([]byte("# moved\n" + file)); err != nil {
		t.Fatal(err)
	}
	if moved := shown(); moved.Rules[0].Line != first.Rules[0].Line+1 ||
		!moved.Members[0].Since.Equal(first.Members[0].Since) {
		t.Errorf("the rule is on line %d, since %v", moved.Rules[0].Line, moved.Members[0].Since)
	}
	if err := n.SetRules([]byte(strings.Replace(file, "1000", "2000", 1))); err != nil {
		t.Fatal(err)
	}
	if changed := shown(); len(changed.Members[0].Changed) != 1 || changed.Members[0].Hash == first.Members[0].Hash {
		t.Errorf("the change is %v", changed.Members[0].Changed)
	}
}
