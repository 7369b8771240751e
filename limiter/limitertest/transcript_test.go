package limitertest

import (
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
)

const oneRule = "rules\n  version: 1\n  rules:\n    - {name: a, limits: [2/minute]}\n\n"

func TestParseTranscript(t *testing.T) {
	tr, err := parseTranscript("# about\n" + oneRule +
		`2026-01-05T12:00:00.5  check /a user="a da" attr.plan=free cost=2 as=x  -> allowed
          more of it
12:00:01  peek /a=b
+1us  refund x  -> done
# The next day.
2026-01-06T00:00:00  rules  -> loaded
  version: 1
00:00:01  check /a times=3 every=2ms
`)
	if err != nil {
		t.Fatal(err)
	}
	cs := tr.commands()
	if len(cs) != 5 || !strings.HasPrefix(tr.begin.rules, "version: 1\nrules:\n  - {name: a") {
		t.Fatalf("%d commands, rules %q", len(cs), tr.begin.rules)
	}
	at := func(day, h, m, s, us int) limiter.Tick {
		return limiter.TickOf(time.Date(2026, 1, day, h, m, s, us*1000, time.UTC))
	}
	for i, want := range []limiter.Tick{at(5, 12, 0, 0, 500_000), at(5, 12, 0, 1, 0), at(5, 12, 0, 1, 1),
		at(6, 0, 0, 0, 0), at(6, 0, 0, 1, 0)} {
		if cs[i].at != want {
			t.Errorf("command %d is at %v, want %v", i+1, cs[i].at.Time(), want.Time())
		}
	}
	r, err := cs[0].request()
	if err != nil || r.User != "a da" || r.Path != "/a" || r.Attributes["plan"] != "free" || r.Cost != limiter.Units(2) {
		t.Errorf("the first request is %+v, %v", r, err)
	}
	if want := []string{"allowed", "more of it"}; strings.Join(cs[0].want, "|") != strings.Join(want, "|") {
		t.Errorf("the first answer is %q, want %q", cs[0].want, want)
	}
	if r, _ := cs[1].request(); r.Path != "/a=b" || r.Cost != limiter.Units(0) {
		t.Errorf("the peek is %+v", r)
	}
	if cs[2].path != "x" || cs[3].rules != "version: 1\n" || cs[4].args["every"] != "2ms" {
		t.Errorf("refund %q, rules %q, every %q", cs[2].path, cs[3].rules, cs[4].args["every"])
	}
}

// A line that is misspelt is an error with its number, and not a plain check.
func TestParseTranscriptErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "1: a transcript begins with rules",
		"# nothing\n":                        "1: a transcript begins with rules",
		"12:00:00  check /a\n":               "1: a transcript begins with rules",
		oneRule + "rules\n":                  "6: a transcript begins with rules",
		oneRule + "noon  check /a\n":         "6: \"noon\" is not a time",
		oneRule + "12:00:00\n":               "6: a time, and nothing to do",
		oneRule + "12:00:00  chekc /a\n":     "6: there is no command",
		oneRule + "12:00:00  check /a usr=b": "6: there is no argument \"usr\"",
		oneRule + `12:00:00  check user="b`:  "6: a quote is not closed",
		oneRule + "+soon  check /a\n":        "6: time: invalid duration",
	} {
		_, err := parseTranscript(text)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

// -rewrite aligns answers and keeps everything else as it was.
func TestWriteTranscript(t *testing.T) {
	tr, err := parseTranscript("# about\n" + oneRule +
		"12:00:00  check /a user=u  -> old\n   answer\n12:00:00  check /a\n\n# end\n12:00:01  rules\n  version: 1\n")
	if err != nil {
		t.Fatal(err)
	}
	for i, got := range [][]string{{"one", "two"}, {"three"}, {"loaded"}} {
		tr.commands()[i].got = got
	}
	want := "# about\n" + oneRule +
		"12:00:00  check /a user=u  -> one\n          two\n12:00:00  check /a         -> three\n\n# end\n12:00:01  rules  " +
		"-> loaded\n  version: 1\n"
	if got := tr.write(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// The spellings of rules files yield the specs they were made from.
func TestSpellLimit(t *testing.T) {
	for seed := range uint64(200) {
		c := SeededChoices(seed)
		s := RandomSpec(c, limiter.Algorithm(c.Pick(algorithmCount())), "n", limiter.MaxWindow)
		want, err := limiter.NewLimit(s)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		file := new(rulesFile)
		file.add("r", s)
		got := newRuled(t, file.String()).set.Rule("r").Limits[0]
		if !got.Equal(want) {
			t.Errorf("%s is read as %+v", spellLimit(s), got.Spec())
		}
	}
}

// Durations are written without needless zeros, and in full otherwise.
func TestSpan(t *testing.T) {
	for ticks, want := range map[limiter.Tick]string{
		1: "1µs", 55 * sec: "55s", limiter.Minute: "1m", limiter.Minute + 5*sec: "1m5s",
		limiter.Hour: "1h", limiter.Hour + 5*sec: "1h0m5s", limiter.Hour + limiter.Minute: "1h1m",
		10*limiter.Minute + 1: "10m0.000001s",
	} {
		if got := span(ticks); got != want {
			t.Errorf("%d ticks: %s, want %s", ticks, got, want)
		}
	}
}
