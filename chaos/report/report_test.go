package report

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/chaos/history"
)

// result is a small run in which a key was admitted 21 of 20 after a takeover.
func result(seed uint64) *history.Result {
	h := &history.History{
		Scenario: "kill", Seed: seed, Nodes: 3, Allows: history.Allows{Closed: 1, Local: 1, Open: 1}, End: 1_800_000,
		Rules: []history.Rule{{Name: "r", Limit: 20, Window: 5_000_000, Policy: "local"}},
		Faults: []history.Fault{{Name: "kill", What: "kill -9 <node-1>", At: 100_000, Until: 200_000, Settled: 900_000,
			Nodes: []int{2}, Takeovers: 1}},
	}
	for i := range 21 {
		owner := "a"
		if i > 15 {
			owner = "b"
		}
		at := history.Micros(i) * 10_000
		h.Ops = append(h.Ops, history.Op{Call: at, Return: at + 1000, Rule: "r", Outcome: history.Allowed,
			Source: history.SourceOwner,
			Keys:   []string{"k"}, Owners: []string{owner}})
	}
	for i := range 40 { // asked at once, and answered late
		h.Ops = append(h.Ops, history.Op{Call: 500_000, Return: 600_000 + history.Micros(i), Rule: "r",
			Outcome: history.Denied, Source: history.SourceOwner,
			Keys: []string{"k"}, Owners: []string{"b"}})
	}
	h.Ops = append(h.Ops, history.Op{Call: 1_000_000, Return: 1_300_000, Rule: "r", Outcome: history.Unknown,
		Keys: []string{"k"}})
	return history.Judge(h)
}

func TestReport(t *testing.T) {
	var r Report
	r.Title, r.About = "Chaos", "A test."
	r.LeaveOut("loss", "there is no switch")
	r.LeaveOut("redis-cut", "there is no Redis")
	r.LeaveOut("delay", "there is no switch")
	r.Soak = []Sample{{At: time.Minute, Goroutines: 81, FDs: 33, Bytes: 45.67e6, Parked: 1, Waiting: 3, Queued: 4,
		Unacknowledged: 5, Sealed: 6, Keys: 7, Fallback: 8},
		{At: 2 * time.Minute, Goroutines: 82, FDs: 34, Bytes: 46e6, Withheld: 2}}
	for seed := range uint64(3) {
		of := result(seed)
		if len(of.Violations) > 0 {
			t.Fatal(of.Violations)
		}
		r.Add("kill", "one node is killed", of)
	}
	page := filepath.Join(t.TempDir(), "chaos.md")
	if err := r.Write(page); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"3 trials, 0 in which a promise was broken",
		"| [kill](#kill) | 3 | 0 | 1 | 1 | 0 | 3 | 0 | 0s | 1.1s | 700ms | - | 0 % | 186 |",
		"| r | 21 | 20 | 21 | 1 |",
		"![kill](chaos/kill.svg)",
		"Left out, since there is no switch: loss, delay.",
		"Left out, since there is no Redis: redis-cut.",
		"| 1m0s | 81 | 33 | 45.7 | 1 | 0 | 3 | 4 | 5 | 6 | 7 | 8 |\n| 2m0s | 82 | 34 | 46.0 | 0 | 2 | 0 | 0 | 0 | 0 | 0 | " +
			"0 |",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page has no %q:\n%s", want, text)
		}
	}
	picture, err := os.Open(filepath.Join(filepath.Dir(page), "chaos", "kill.svg"))
	if err != nil {
		t.Fatal(err)
	}
	defer picture.Close()
	d := xml.NewDecoder(picture)
	var said strings.Builder
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the picture is no XML: %v", err)
		}
		if c, ok := token.(xml.CharData); ok {
			said.Write(c)
		}
	}
	if !strings.Contains(said.String(), "kill -9 <node-1>") {
		t.Errorf("the picture does not say what was broken: %q", said.String())
	}
}

// TestReportOfWhatWentWrong: the page of a run that ended early, or in which a promise was
// broken, says so, which, and where to look.
func TestReportOfWhatWentWrong(t *testing.T) {
	var r Report
	if !r.Empty() {
		t.Error("a report of nothing is not empty")
	}
	of := result(7)
	for i := range mostTold + 2 {
		of.Violations = append(of.Violations, fmt.Errorf("promise %d\n  was broken", i))
	}
	of.Figures.Excused, of.Void = 60, "it did not\nsettle"
	of.Linear.Keys, of.Linear.Undecided = 5, 2
	r.Add("kill", "one node is killed", of)
	r.Ended, r.Missed = "interrupted:\nby hand", []string{"split", "mix"}
	if r.Empty() {
		t.Error("the report is empty")
	}
	var b strings.Builder
	if err := r.page(&b, "chaos"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"**The run was not made to its end**: interrupted: by hand.",
		"Not, or not wholly, tried: split, mix.",
		"1 trials, 1 in which a promise was broken.",
		"in 1 of them that is more than half of the time",
		"was looked for of the checks of 5 keys; of 2 that took too long to tell.",
		"- `kill-7`\n  - promise 0 was broken\n",
		"  - promise 7 was broken\n  - and 2 more,",
		"| 60 % |",
		"Void is `kill-7`, of which little is shown: it did not settle.",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("there is no %q in\n%s", want, b.String())
		}
	}
}

// TestUsed: what was not judged is no hundred percent.
func TestUsed(t *testing.T) {
	for _, row := range []struct {
		used []history.Used // one trial each, of two rules
		want string
	}{
		{[]history.Used{{}, {}}, " - "},
		{[]history.Used{{Admitted: 39, One: 39}, {Admitted: 10, One: 39}}, " - "},
		{[]history.Used{{Admitted: 97, One: 100}, {}}, " 97 % in 1 "},
		{[]history.Used{{Admitted: 97, One: 100}, {Admitted: 40, One: 40}}, " 97 % "},
	} {
		var r Report
		for seed, used := range row.used {
			of := result(uint64(seed))
			of.Uses = []history.Used{used, {}}
			r.Add("kill", "one node is killed", of)
		}
		var b strings.Builder
		if err := r.page(&b, "chaos"); err != nil {
			t.Fatal(err)
		}
		if want := "| 700ms |" + row.want + "| 0 % | 124 |"; !strings.Contains(b.String(), want) {
			t.Errorf("%+v: there is no %q in\n%s", row.used, want, b.String())
		}
	}
	of := result(1)
	of.Uses = []history.Used{{Admitted: 97, One: 100}, {}, {}}
	if used, judged := of.LeastUsed(); judged {
		t.Errorf("%d %% of one rule of three are taken for all", used)
	}
}
