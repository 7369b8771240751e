package limitertest

import (
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
)

//go:embed testdata/*.txt
var transcriptFiles embed.FS

// Transcripts runs every transcript against subjects from f, each as a subtest with the
// file's name. Transcripts with refunds are skipped for subjects that are not a
// [Refunder].
func Transcripts(t *testing.T, f Factory) {
	files, err := fs.Glob(transcriptFiles, "testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(file, "testdata/"), ".txt")
		t.Run(name, func(t *testing.T) {
			text, err := transcriptFiles.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			tr, err := parseTranscript(string(text))
			if err != nil {
				t.Fatalf("%s:%v", file, err)
			}
			step := runTranscript(t, f, tr)
			for _, c := range tr.commands() {
				got, want := strings.Join(c.got, "\n"), strings.Join(c.wanted(step), "\n")
				if !c.skipped && got != want {
					t.Errorf("%s:%d: %s\n got -> %s\nwant -> %s", file, c.line, c.text, got, want)
				}
			}
		})
	}
}

// A transcript is a scenario that a person can read. Its lines are
//
//	# a comment
//	rules
//	  (a rules file, indented)
//	12:00:05  check /towns user=ada cost=2  -> allowed  minute 1/3 left, resets in 55s
//	2026-01-06T00:00:00.000001  peek /towns user=ada  -> ...
//	+1us      rules  -> loaded
//	  (another rules file, indented)
//
// What follows "->" is the answer; further lines of it are indented. A time
// without a date is on the day of the line before, at first [Start]'s; one with
// a plus is after the line before. The commands are
//
//	check PATH   user= ip= group= method= attr.NAME= cost= id= id_ttl= hold=   as= times= every=
//	peek PATH    the same; without a cost it asks about a cost of 1
//	reset PATH   the same
//	keys PATH    the same: the names of the counters
//	refund NAME  the charge of the check with as=NAME
//	settle PATH  the same, id=: the reservation with the id, of a check with id= hold=,
//	             for cost=; if it is not known, unknown=ignore charges nothing
//	             for cost=, or actual.NAME= for each attribute;
//	cancel PATH  the same for a cost of 0
//	extend PATH  the same, hold=: another time, and cost= if the estimate is higher now
//	rules        replaces the rules
//
// With times= and every=, the check is repeated, and the answer only has the number of
// allowed ones. A refund is of the request with its id, even if the check was repeated.
// Values may be quoted like Go strings.
type transcript struct {
	begin *command // sets the first rules
	lines []*line
}

// line is a line of a transcript with the following indented lines.
type line struct {
	text    string // the line itself, or the command without its answer
	command *command
}

type command struct {
	line    int
	text    string
	at      limiter.Tick
	verb    string
	path    string
	args    map[string]string
	block   []string // of rules: the lines as they stand in the file
	rules   string   // of rules: the file
	want    []string
	got     []string
	skipped bool
	first   bool // the rules at the beginning, which have no answer
}

func (tr *transcript) commands() []*command {
	var cs []*command
	for _, l := range tr.lines {
		if l.command != nil && !l.command.first {
			cs = append(cs, l.command)
		}
	}
	return cs
}

// parseTranscript reads a transcript. Errors begin with the line's number.
func parseTranscript(text string) (*transcript, error) {
	tr := &transcript{}
	now := Start()
	var open *command // that takes indented lines
	for i, s := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		indented := strings.HasPrefix(s, "  ")
		switch {
		case indented && open != nil && open.verb == "rules":
			open.block = append(open.block, s)
			open.rules += strings.TrimPrefix(s, "  ") + "\n"
		case indented && open != nil:
			open.want = append(open.want, strings.TrimSpace(s))
		case strings.TrimSpace(s) == "" || strings.HasPrefix(s, "#"):
			open = nil
			tr.lines = append(tr.lines, &line{text: s})
		default:
			c, err := parseCommand(s, now)
			if err != nil {
				return nil, fmt.Errorf("%d: %w", i+1, err)
			}
			if c.first != (tr.begin == nil) {
				return nil, fmt.Errorf("%d: a transcript begins with rules, which have no time; whatever follows has one", i+1)
			}
			if c.first {
				tr.begin = c
			}
			c.line, now, open = i+1, c.at, c
			tr.lines = append(tr.lines, &line{text: c.text, command: c})
		}
	}
	if tr.begin == nil {
		return nil, fmt.Errorf("1: a transcript begins with rules")
	}
	return tr, nil
}

func parseCommand(s string, now limiter.Tick) (*command, error) {
	text, answer, answered := strings.Cut(s, "->")
	c := &command{text: strings.TrimRight(text, " "), at: now, args: map[string]string{}}
	if answered {
		c.want = []string{strings.TrimSpace(answer)}
	}
	words, err := splitWords(c.text)
	if err != nil {
		return nil, err
	}
	if len(words) == 1 && words[0] == "rules" {
		c.verb, c.first = "rules", true
		return c, nil
	}
	if c.at, err = parseTime(words[0], now); err != nil {
		return nil, err
	}
	if len(words) < 2 {
		return nil, fmt.Errorf("a time, and nothing to do")
	}
	c.verb = words[1]
	for _, w := range words[2:] {
		name, value, named := strings.Cut(w, "=")
		switch {
		case !named || strings.HasPrefix(w, "/"):
			c.path = w
		case strings.HasPrefix(value, `"`):
			if c.args[name], err = strconv.Unquote(value); err != nil {
				return nil, fmt.Errorf("%s: %w", w, err)
			}
		default:
			c.args[name] = value
		}
	}
	return c, c.known()
}

// known returns an error for an unknown verb or argument, so that a misspelt one is not
// taken for a plain check.
func (c *command) known() error {
	switch c.verb {
	case "check", "peek", "reset", "keys", "refund", "rules", "settle", "cancel", "extend":
	default:
		return fmt.Errorf("there is no command %q", c.verb)
	}
	for name := range c.args {
		switch name {
		case "user", "ip", "group", "method", "cost", "as", "times", "every", "id", "id_ttl", "hold", "unknown":
		default:
			if !strings.HasPrefix(name, "attr.") && !strings.HasPrefix(name, "actual.") {
				return fmt.Errorf("there is no argument %q", name)
			}
		}
	}
	return nil
}

// splitWords splits at spaces outside double quotes.
func splitWords(s string) ([]string, error) {
	var words []string
	word, quoted := "", false
	for i, r := range s {
		switch {
		case r == '"' && (i == 0 || s[i-1] != '\\'):
			quoted = !quoted
			word += string(r)
		case r == ' ' && !quoted:
			if word != "" {
				words, word = append(words, word), ""
			}
		default:
			word += string(r)
		}
	}
	if quoted {
		return nil, fmt.Errorf("a quote is not closed")
	}
	if word != "" {
		words = append(words, word)
	}
	return words, nil
}

// parseTime parses the time of a line, relative to that of the previous line.
func parseTime(s string, now limiter.Tick) (limiter.Tick, error) {
	if wait, after := strings.CutPrefix(s, "+"); after {
		d, err := time.ParseDuration(wait)
		return now + limiter.Tick(d/limiter.TickDuration), err
	}
	if t, err := time.Parse("2006-01-02T15:04:05", s); err == nil {
		return limiter.TickOf(t), nil
	}
	t, err := time.Parse("15:04:05", s)
	if err != nil {
		return 0, fmt.Errorf("%q is not a time: write 12:00:05, 2026-01-05T12:00:05.000001 or +90s", s)
	}
	day := now - now%limiter.Day
	return day + limiter.TickOf(t.AddDate(1970, 0, 0)), nil
}
