package rules_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/rules"
)

// section is a part of the reference page: its tables, without their heads.
type section struct {
	fields [][]string // name, values, default, example, meaning; of options, the algorithms are cut out
	uses   map[string]string
	errors [][]string // written, error
	text   string
}

// referencePage reads docs/rules.md: its sections by their titles.
func referencePage(tb testing.TB) map[string]*section {
	tb.Helper()
	page, err := os.ReadFile("../docs/rules.md")
	if err != nil {
		tb.Fatal(err)
	}
	out := map[string]*section{}
	at := &section{}
	var head []string
	for line := range strings.Lines(string(page)) {
		line = strings.TrimRight(line, "\n")
		at.text += line + "\n"
		if title, ok := strings.CutPrefix(line, "## "); ok {
			at = &section{uses: map[string]string{}}
			out[title] = at
		}
		if !strings.HasPrefix(line, "|") {
			head = nil
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), " | ")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case head == nil:
			head = cells
		case strings.HasPrefix(line, "|--"):
		case head[0] == "written":
			at.errors = append(at.errors, cells)
		case head[0] == "field" && head[1] == "algorithms":
			at.uses[cells[0]] = cells[1]
			at.fields = append(at.fields, slices.Delete(cells, 1, 2))
		default:
			at.fields = append(at.fields, cells)
		}
	}
	return out
}

// names returns the fields that a section lists.
func (s *section) names() (out []string) {
	for _, f := range s.fields {
		out = append(out, unquote(f[0]))
	}
	return out
}

func unquote(s string) string { return strings.Trim(s, "`") }

// quotaUnits is a quota on which rules of inFile draw.
const quotaUnits = "quotas: [{name: units, key: [user], limits: [5/1m]}]\n"

// inFile returns a file in which a line of YAML stands in the mapping that a section is
// about. A limit has the algorithm.
func inFile(title, line, algorithm string) string {
	name, _, _ := strings.Cut(line, ":")
	with := func(line string, others ...string) string {
		fields := []string{}
		for _, o := range others {
			if unit := unitFor(name); unit != "" && o == "window: 1m" && title != "A rule" && title != "Defaults" {
				o = unit
			}
			if field, _, _ := strings.Cut(o, ":"); line == "" || field != name {
				fields = append(fields, o)
			}
		}
		if line != "" {
			fields = append(fields, line)
		}
		return "{" + strings.Join(fields, ", ") + "}"
	}
	limit := "limits: [" + with("", "limit: 5", "window: 1m") + "]"
	switch title {
	case "The file":
		if name == "rules" {
			return line
		}
		return line + "\nrules: []\n"
	case "Defaults":
		return "defaults: {" + line + "}\nrules: [{name: a, limits: [5/1m]}]"
	case "A rule", "Keys":
		if line == "unlimited: true" || name == "limits" || name == "deny" && line != "deny: false" {
			limit = "cost: 1"
		}
		if name == "quotas" {
			return quotaUnits + "rules: [" + with(line, "name: a", limit) + "]"
		}
		return "rules: [" + with(line, "name: a", limit) + "]"
	case "A quota":
		key := "key: [user]"
		if name == "keys" || line == "key: []" {
			key = "shadow: false"
		}
		if name == "limits" {
			limit = "shadow: false"
		}
		return "quotas: [" + with(line, "name: units", key, limit) + "]\nrules: [{name: a, quotas: [units]}]"
	case "A draw on a quota":
		if name == "any" {
			return "quotas: [{name: own, key: [user], limits: [5/1m]}, {name: pool, key: [rule], limits: [5/1m]}]\n" +
				"rules: [{name: a, " + limit + ", quotas: [" + with(line) + "]}]"
		}
		return quotaUnits + "rules: [{name: a, " + limit + ", quotas: [" + with(line, "name: units") + "]}]"
	case "Drips":
		return "rules: [{name: a, limits: [{limit: 30, window: 1m, algorithm: leaky_bucket, drip: " +
			with(line, "amount: 5") + "}]}]"
	case "Cost":
		from := "from: attr:n"
		if name == "cost" {
			from = "method: GET"
		}
		return "rules: [{name: a, " + limit + ", cost: [" + with(line, from) + "]}]"
	case "Attributes":
		if line == "" {
			line = "pattern: a"
		}
		return "rules: [{name: a, " + limit + ", match: {attributes: {a: {" + line + "}}}}]"
	case "Deny":
		return "rules: [{name: a, deny: " + with(line, "reason: a") + "}]"
	case "Match":
		return "rules: [{name: a, " + limit + ", match: {" + line + "}}]"
	}
	if algorithm != "" {
		return "rules: [{name: a, limits: [" + with(line, "limit: 5", "window: 1m", "algorithm: "+algorithm) + "]}]"
	}
	return "rules: [{name: a, limits: [" + with(line, "limit: 5", "window: 1m") + "]}]"
}

// unitFor returns what a limit has instead of a window for an option of calendars.
func unitFor(name string) string {
	return map[string]string{
		"zone": "calendar: minute", "anchor_day": "calendar: month", "week_start": "calendar: week", "at": "calendar: day",
		"calendar": "calendar: day",
	}[name]
}

// TestReferenceHasEveryField holds the fields of the page against those that the
// decoder names if it meets one that it does not know.
func TestReferenceHasEveryField(t *testing.T) {
	page := referencePage(t)
	known := func(title string) []string {
		text := strings.Join(problemsOf(t, inFile(title, "qqqqqqqqqqqq: 1", "")), "\n")
		m := regexp.MustCompile(`known: (.*) \(in`).FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("%s: no fields in %q", title, text)
		}
		return slices.Sorted(slices.Values(strings.Split(m[1], ", ")))
	}
	options := page["Options of a limit"].names()
	for title, more := range map[string][]string{"The file": nil, "A rule": options, "Match": nil, "Attributes": nil,
		"A quota": options, "A draw on a quota": nil, "Drips": nil, "Deny": nil,
		"Cost": page["Match"].names(), "A limit": options} {
		same(t, title+": the page", slices.Sorted(slices.Values(slices.Concat(page[title].names(), more))), known(title))
	}
	inherited := regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(page["Defaults"].text, -1)
	names := slices.Clone(options)
	for _, m := range inherited {
		if m[1] != "defaults" {
			names = append(names, m[1])
		}
	}
	slices.Sort(names)
	same(t, "Defaults: the page", slices.Compact(names), known("Defaults"))
	text := strings.Join(problemsOf(t, inFile("A rule", "key: [qqqqqqqqqqqq]", "")), "\n")
	if want := "known: " + strings.Join(page["Keys"].names(), ", "); !strings.HasSuffix(text, want) {
		t.Errorf("Keys: the page has %q, the decoder %q", want, text)
	}
}

// TestReferenceValues holds the values that the page lists for a field against those
// that the decoder names if it meets another.
func TestReferenceValues(t *testing.T) {
	for title, s := range referencePage(t) {
		for _, f := range s.fields {
			name := unquote(f[0])
			// parts have a table, quotas are the file's
			if len(f) != 5 || name == "key" || name == "quotas" || title == "A draw on a quota" {
				continue
			}
			_, err := rules.Parse("f", []byte(inFile(title, name+": qqqqqqqqqqqq", algorithmsOf(s, f)[0])), rules.Options{})
			if err == nil {
				continue
			}
			if _, list, ok := strings.Cut(err.Error(), "; known: "); ok && strings.Contains(err.Error(), `"qqqqqqqqqqqq"`) {
				if want := "`" + strings.ReplaceAll(list, ", ", "`, `") + "`"; f[1] != want {
					t.Errorf("%s: the page has %s, the decoder %s", name, f[1], want)
				}
			}
		}
	}
}

// algorithmsOf returns the algorithms for which the page lists an option, or an empty
// name for a field of no algorithm.
func algorithmsOf(s *section, f []string) []string {
	switch uses := s.uses[f[0]]; uses {
	case "":
		return []string{""}
	case "all":
		return limiter.AlgorithmNames()
	default:
		return strings.Split(strings.ReplaceAll(uses, "`", ""), ", ")
	}
}

// TestReferenceExamplesAndDefaults: every example is valid, of an option for exactly the
// algorithms that the page lists; and a file that sets a field to its default means the
// same as one without it.
func TestReferenceExamplesAndDefaults(t *testing.T) {
	examples, defaults := 0, 0
	for title, s := range referencePage(t) {
		for _, f := range s.fields {
			if len(f) != 5 {
				continue
			}
			name, example := unquote(f[0]), unquote(f[3])
			if !strings.HasPrefix(example, name+":") {
				t.Errorf("%s: %q is no example of it", name, example)
			}
			for _, a := range limiter.AlgorithmNames() {
				if s.uses[f[0]] == "" {
					a = ""
				}
				if name == "algorithm" {
					a = ""
				}
				_, err := rules.Parse("f", []byte(inFile(title, example, a)), rules.Options{})
				if want := a == "" || slices.Contains(algorithmsOf(s, f), a); (err == nil) != want {
					t.Errorf("%s: example %q with %q: %v", name, example, a, err)
				}
				examples++
			}
			if def := unquote(f[2]); f[2] == "`"+def+"`" {
				with, err := rules.Parse("f", []byte(inFile(title, name+": "+def, algorithmsOf(s, f)[0])), rules.Options{})
				bare := inFile(title, "", algorithmsOf(s, f)[0])
				if unitFor(name) != "" {
					bare = strings.Replace(inFile(title, name+": "+def, algorithmsOf(s, f)[0]), ", "+name+": "+def, "", 1)
				}
				without, err2 := rules.Parse("f", []byte(bare), rules.Options{})
				if err != nil || err2 != nil || with.Hash() != without.Hash() {
					t.Errorf("%s: %s is not its default: %v, %v", name, def, err, err2)
				}
				defaults++
			}
		}
	}
	if examples < 30 || defaults < 15 {
		t.Errorf("the page has %d examples and %d defaults: was it read?", examples, defaults)
	}
}

// TestReferenceErrors: what the page calls an error is one, with this text.
func TestReferenceErrors(t *testing.T) {
	n := 0
	for title, s := range referencePage(t) {
		for _, e := range s.errors {
			got := problemsOf(t, inFile(title, unquote(e[0]), ""))
			if len(got) != 1 || !strings.HasSuffix(got[0], ": "+e[1]) {
				t.Errorf("%s, %s:\n got %s\nwant %s", title, e[0], strings.Join(got, "\n"), e[1])
			}
			n++
		}
	}
	if n < 25 {
		t.Errorf("the page has %d errors: was it read?", n)
	}
}

// TestReferenceWarnings: what the page calls a warning is one, with this line to write.
func TestReferenceWarnings(t *testing.T) {
	n := 0
	for _, f := range referencePage(t)["Warnings"].fields {
		line, instead := unquote(f[0]), unquote(f[1])
		file := "rules: [{name: a, " + line + ", limits: [5/second]}]"
		if strings.HasPrefix(line, "limits:") {
			file = "rules: [{name: a, " + line + "}]"
		}
		if w := warningsOf(t, file); len(w) != 1 || w[0].Instead != instead {
			t.Errorf("%s: got %+v, want %s", line, w, instead)
		}
		n++
	}
	if n < 7 {
		t.Errorf("the page has %d warnings: was it read?", n)
	}
}

// TestReferenceFiles: the whole files of the page are valid.
func TestReferenceFiles(t *testing.T) {
	page, err := os.ReadFile("../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	files := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(page, -1)
	if len(files) == 0 {
		t.Error("the page has no files")
	}
	for i, f := range files {
		if set, err := rules.Parse(fmt.Sprint("file ", i), f[1], rules.Options{}); err != nil || len(set.Warnings()) > 0 {
			t.Errorf("%v, %v", err, set)
		}
	}
}
