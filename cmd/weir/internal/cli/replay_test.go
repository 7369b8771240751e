package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir/cmd/weir/internal/term"
)

// townReport is the expected report of townLog under townRules.
const townReport = `requests	6
allowed	4
denied	2
unmatched	1
skipped_lines	0
first	2015-05-17T10:00:01Z
last	2015-05-17T10:01:01Z
rule	towns	allowed	3	denied	2	keys	1
limit	towns/minute	allowed	3	denied	2
rule	admins	allowed	0	denied	0	keys	0
top_denied	/towns:ada:minute	denied	2	rule	towns
over_time	allowed	from	2015-05-17T10:00:00Z	each	2s	most	1	█    █    █                   █
over_time	denied	from	2015-05-17T10:00:00Z	each	2s	most	1	               █             █ 
`

func TestReplay(t *testing.T) {
	rules, log := file(t, "rules.yaml", townRules), file(t, "access.log", townLog())
	lines := strings.SplitAfter(townLog(), "\n")
	first, second := file(t, "1.log", strings.Join(lines[:3], "")),
		file(t, "2.log.gz", zipped(t, strings.Join(lines[3:], "")))
	cut := strings.TrimSuffix(townLog(), " HTTP/1.1\" 200 1\n")
	for name, c := range map[string]struct {
		stdin string
		args  []string
	}{
		"a file":            {"", []string{"--rules", rules, log}},
		"two files, one gz": {"", []string{"--rules", rules, first, second}},
		"stdin":             {townLog(), []string{"--rules", rules, "-"}},
		"stdin, gz":         {zipped(t, townLog()), []string{"--rules", rules, "-"}},
		"stdin and a file":  {strings.Join(lines[:3], ""), []string{"--rules", rules, "-", second}},
		"rules from stdin":  {townRules, []string{"--rules", "-", log}},
		"as many as may be": {"", []string{"--rules", rules, "--max-lines", "6", log}},
		"cut in a line":     {cut, []string{"--rules", rules, "-"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := person{stdin: c.stdin}.run(t, append([]string{"replay"}, c.args...)...)
			if diff := cmp.Diff(outcome{0, townReport, ""}, got, cmp.AllowUnexported(outcome{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReplayJSON(t *testing.T) {
	rules, log := file(t, "rules.yaml", townRules), file(t, "access.log", townLog())
	strict := file(t, "strict.yaml", strings.Replace(townRules, "limit: 2", "limit: 1", 1))
	decode := func(args ...string) (v any) {
		t.Helper()
		got := person{step: time.Second}.run(t, args...)
		if got.status != 0 || got.err != "" {
			t.Fatalf("%+v", got)
		}
		if err := json.Unmarshal([]byte(got.out), &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	object := func(denied, seconds float64) map[string]any {
		return map[string]any{
			"requests": 6.0, "allowed": 6 - denied, "denied": denied, "unmatched": 1.0, "skipped_lines": 0.0, "seconds": seconds,
			"rules": map[string]any{
				"towns": map[string]any{"allowed": 5 - denied, "denied": denied, "keys": 1.0,
					"limits": map[string]any{"minute": map[string]any{"denied": denied}}},
				"admins": map[string]any{"allowed": 0.0, "denied": 0.0, "keys": 0.0, "limits": map[string]any{}},
			},
			"top_denied": []any{map[string]any{"key": "/towns:ada:minute", "denied": denied}},
		}
	}
	// The clock moves a second at each look: the reading takes one, each replay
	// another.
	if diff := cmp.Diff(any(object(2, 2)), decode("replay", "--json", "--rules", rules, log)); diff != "" {
		t.Error(diff)
	}
	a, b := object(2, 2), object(3, 2)
	a["rules_file"], b["rules_file"] = rules, strict
	if diff := cmp.Diff(any([]any{a, b}), decode("replay", "--json", "--rules", rules, "--rules", strict,
		log)); diff != "" {
		t.Error(diff)
	}
	none := object(2, 2)
	none["top_denied"] = []any{}
	if diff := cmp.Diff(any(none), decode("replay", "--json", "--top", "0", "--rules", rules, log)); diff != "" {
		t.Error(diff)
	}
}

// A prefix without a key limits no caller who varies the path: the number of distinct
// keys shows that.
func TestReplayShowsDistinctKeys(t *testing.T) {
	var log strings.Builder
	for i := range 20 {
		fmt.Fprintf(&log, "10.0.0.1 - ada [17/May/2015:10:00:00 +0000] \"GET /towns/%d HTTP/1.1\" 200 1\n", i)
	}
	for key, want := range map[string]string{
		"":                      "rule\ttowns\tallowed\t20\tdenied\t0\tkeys\t20\n",
		", key: [path, user]":   "rule\ttowns\tallowed\t20\tdenied\t0\tkeys\t20\n",
		", key: [rule, user]":   "rule\ttowns\tallowed\t5\tdenied\t15\tkeys\t1\n",
		", keys: [[path],[ip]]": "rule\ttowns\tallowed\t5\tdenied\t15\tkeys\t21\n",
	} {
		rules := file(t, "rules.yaml", "rules:\n- {name: towns, match: {path: \"^/towns\"}, limits: [5/second]"+key+"}\n")
		got := person{stdin: log.String()}.run(t, "replay", "--rules", rules, "-")
		if !strings.Contains(got.out, want) {
			t.Errorf("%q: %q is not in %+v", key, want, got)
		}
	}
}

// The keys of a quota are counted also if it is tried after another.
func TestReplayShowsKeysOfAlternatives(t *testing.T) {
	var log strings.Builder
	for i := range 4 {
		fmt.Fprintf(&log, "10.0.0.%d - ada [17/May/2015:10:00:00 +0000] \"GET / HTTP/1.1\" 200 1\n", i%3)
	}
	rules := file(t, "rules.yaml", "quotas:\n- {name: own, key: [user], limits: [1/day]}\n"+
		"- {name: pool, key: [ip], limits: [9/day]}\nrules: [{name: any, quotas: [{any: [own, pool]}]}]\n")
	got := person{stdin: log.String()}.run(t, "replay", "--rules", rules, "-")
	for _, want := range []string{"quota\town\tallowed\t1\tdenied\t0\tkeys\t1\n",
		"quota\tpool\tallowed\t3\tdenied\t0\tkeys\t3\n"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("%q is not in %+v", want, got)
		}
	}
}

// A replay counts quotas beside the rules that draw on them, and validate tells their
// number.
func TestReplayShowsQuotas(t *testing.T) {
	var log strings.Builder
	for i, path := range []string{"search", "towns", "towns", "search", "towns"} {
		fmt.Fprintf(&log, "10.0.0.1 - ada [17/May/2015:10:00:%02d +0000] \"GET /%s HTTP/1.1\" 200 1\n", i, path)
	}
	rules := file(t, "rules.yaml", "quotas:\n- {name: units, key: [user], limits: [7/day]}\nrules:\n"+
		"- {name: search, match: {path: \"^/search\"}, key: [user], limits: [5/minute], quotas: [{name: units, cost: 5}]}\n"+
		"- {name: towns, match: {path: \"^/towns\"}, quotas: [units]}\n")
	got := person{stdin: log.String()}.run(t, "replay", "--rules", rules, "-")
	want := "rule\tsearch\tallowed\t2\tdenied\t0\tkeys\t1\nlimit\tsearch/minute\tallowed\t2\tdenied\t0\n" +
		"rule\ttowns\tallowed\t3\tdenied\t0\tkeys\t0\n" +
		"quota\tunits\tallowed\t3\tdenied\t2\tkeys\t1\nlimit\tunits/day\tallowed\t3\tdenied\t2\n" +
		"top_denied\tada:day\tdenied\t2\trule\tunits\n"
	if !strings.Contains(got.out, want) {
		t.Errorf("%s\nlacks\n%s", got.out, want)
	}
	got = person{stdin: log.String()}.run(t, "replay", "--json", "--rules", rules, "-")
	if want := `"quotas":{"units":{"allowed":3,"denied":2,"keys":1,"limits":{"day":{"denied":2}}}}`; !strings.Contains(
		strings.Join(strings.Fields(got.out), ""), want) {
		t.Errorf("%s\nlacks\n%s", got.out, want)
	}
	if got := (person{}).run(t, "validate", rules); !strings.Contains(got.out, "2 rules, 1 quota, 2 limits") {
		t.Errorf("%+v", got)
	}
}

// Above --max-memory a replay ends with an error that suggests what to set.
func TestReplayIsBoundedInBytes(t *testing.T) {
	rules := file(t, "rules.yaml", "rules:\n- {name: all, key: [path], limits: [5/second]}\n")
	log := func(requests int, path func(i int) string) string {
		var b strings.Builder
		for i := range requests {
			fmt.Fprintf(&b, "10.0.0.1 - ada [17/May/2015:10:00:00 +0000] \"GET %s HTTP/1.1\" 200 1\n", path(i))
		}
		return b.String()
	}
	long := log(200, func(i int) string { return fmt.Sprintf("/%d/%s", i, strings.Repeat("x", 50_000)) })
	short := log(5000, func(i int) string { return fmt.Sprintf("/%d", i) })
	for name, row := range map[string]struct{ log, memory, want string }{
		"what is read": {long, "5MiB", "log -: the first 104 requests take 5MiB of memory; allow more with --max-memory"},
		"what is decided": {short, "1MiB",
			"the replay takes too much memory: at request 4096 of 5000 (1MiB); allow more with --max-memory"},
	} {
		got := person{stdin: row.log}.run(t, "replay", "--rules", rules, "--max-memory", row.memory, "-")
		if got.status != 1 || got.out != "" || !strings.Contains(got.err, row.want) {
			t.Errorf("%s: %+v", name, got)
		}
		if got := (person{stdin: row.log}).run(t, "replay", "--rules", rules, "--max-memory", "32MiB", "-"); got.status != 0 {
			t.Errorf("%s, with room: %+v", name, got)
		}
	}
	for _, bad := range []string{"0", "-1", "1.5GiB", "GiB", "4Gi", "9999999999TiB", ""} {
		if got := (person{}).run(t, "replay", "--rules", rules, "--max-memory", bad, "-"); got.status != 2 ||
			!strings.Contains(got.err, "512MiB") {
			t.Errorf("--max-memory %q: %+v", bad, got)
		}
	}
}

func TestReplayOnATerminal(t *testing.T) {
	rules, log := file(t, "rules.yaml", townRules), file(t, "access.log", townLog())
	strict := file(t, "strict.yaml", strings.Replace(townRules, "limit: 2", "limit: 1", 1))
	got := person{screen: term.Style{Terminal: true, Width: 80}}.run(t, "replay", "--rules", rules, log)
	for _, want := range []string{"\ndenied         2  33.3 %\n", "\n  minute               3       2\n",
		"\n/towns:ada:minute       2  towns\n"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("%q is not in:\n%s", want, got.out)
		}
	}
	got = person{screen: term.Style{Terminal: true, Color: true, Width: 200}}.run(t, "replay", "--rules", rules, "--rules",
		strict, log)
	if !strings.Contains(got.out, "newly denied") || !strings.Contains(got.out, "\x1b[31m") {
		t.Error(got.out)
	}
}

// Lines that do not count are counted and named, and requests that a node would
// refuse are named; they end nothing.
func TestReplaySkips(t *testing.T) {
	rules := file(t, "rules.yaml", townRules)
	const mb = 1 << 20
	log := file(t, "access.log", "\n"+townLog()+"rubbish\n"+
		logLine("ada", 5, "/towns/"+strings.Repeat("x", 300))+
		logLine("ada", 6, "/towns/"+strings.Repeat("y", mb))+
		logLine("ada", 7, "/elsewhere/"+strings.Repeat("z", mb))+
		strings.Repeat("long rubbish ", mb/13)+"\n")
	got := person{}.run(t, "replay", "--rules", rules, log)
	want := strings.NewReplacer("requests\t6", "requests\t9", "\nallowed\t4", "\nallowed\t7", "unmatched\t1",
		"unmatched\t2",
		"skipped_lines\t0", "skipped_lines\t3",
		"towns\tallowed\t3\tdenied\t2\tkeys\t1", "towns\tallowed\t5\tdenied\t2\tkeys\t3", "towns/minute\tallowed\t3",
		"towns/minute\tallowed\t5",
		"most\t1\t█    █    █                   █", "most\t2\t▄ ▄█ ▄    ▄                   ▄").Replace(townReport)
	if got.status != 0 || got.out != want {
		t.Errorf("status %d\n%s", got.status, cmp.Diff(want, got.out))
	}
	for _, want := range []string{
		`access.log: 3 lines skipped; the first, line 1: ""`,
		"rules.yaml: a node refuses 2 requests, decided here by shortened values; the first: ", "at most 8192",
	} {
		if !strings.Contains(got.err, want) {
			t.Errorf("%q is not in:\n%s", want, got.err)
		}
	}
	if n := len(got.err); n > 1000 {
		t.Errorf("%d bytes of notes", n)
	}
}

func TestReplayOfARotatedLog(t *testing.T) {
	rules, log := file(t, "rules.yaml", townRules), file(t, "access.log.1", townLog())
	empty := file(t, "access.log", "")
	got := person{}.run(t, "replay", "--rules", rules, empty, log)
	if got.status != 0 || got.out != townReport || !strings.Contains(got.err, "access.log is empty") {
		t.Errorf("%+v", got)
	}
}

// Progress is for people who wait: on a terminal, and only when it takes long.
func TestReplayShowsProgress(t *testing.T) {
	var text strings.Builder
	for i := range 10_000 {
		text.WriteString(logLine("ada", i%3600, fmt.Sprintf("/towns/%d", i%7)))
	}
	rules, log := file(t, "rules.yaml", townRules), file(t, "access.log", text.String())
	tty := term.Style{Terminal: true, Width: 80}
	got := person{screen: tty, step: time.Second}.run(t, "replay", "--rules", rules, log)
	if got.status != 0 || !strings.Contains(got.err, "reading ") || !strings.Contains(got.err, "deciding under ") ||
		!strings.HasSuffix(got.err, "\r\x1b[K") || strings.Contains(got.out, "\x1b[K") {
		t.Errorf("status %d, %q", got.status, got.err)
	}
	if got := (person{screen: tty}).run(t, "replay", "--rules", rules, log); got.err != "" {
		t.Errorf("short work: %q", got.err)
	}
	if got := (person{step: time.Second}).run(t, "replay", "--rules", rules, log); got.err != "" {
		t.Errorf("off a terminal: %q", got.err)
	}
}

// A2, E1: users, addresses and methods are taken from the log: "-" means no user, and
// such requests count by address, even if that is a name.
func TestReplayReadsWhoAsks(t *testing.T) {
	rules := file(t, "rules.yaml", `version: 1
rules:
  - {name: writes, match: {path: "^/", method: [POST]}, key: [user, method], limits: [{limit: 1, window: 1h, algorithm: fixed_window}]}
  - {name: reads, match: {path: "^/"}, key: [ip], limits: [{limit: 1, window: 1h, algorithm: fixed_window}]}
`)
	entry := func(host, user, method string) string {
		return fmt.Sprintf("%s - %s [17/May/2015:10:00:00 +0000] \"%s / HTTP/1.1\" 200 1\n", host, user, method)
	}
	log := entry("crawler.example.org", "-", "POST") + entry("crawler.example.org", "-", "POST") +
		entry("10.0.0.1", "ada", "POST") + entry("10.0.0.2", "ada", "POST") +
		entry("10.0.0.1", "ada", "GET") + entry("10.0.0.1", "bob", "GET") + entry("10.0.0.1", "-", "GET")
	got := person{stdin: log}.run(t, "replay", "--rules", rules, "-")
	for _, want := range []string{
		"\nrule\twrites\tallowed\t2\tdenied\t2\tkeys\t2\n", "\nrule\treads\tallowed\t1\tdenied\t2\tkeys\t1\n",
		"\ntop_denied\t10.0.0.1:hour\tdenied\t2\trule\treads\n",
		"\ntop_denied\tada:POST:hour\tdenied\t1\trule\twrites\n",
		"\ntop_denied\tcrawler.example.org:POST:hour\tdenied\t1\trule\twrites\n",
	} {
		if !strings.Contains(got.out, want) {
			t.Errorf("%q is not in:\n%s", want, got.out)
		}
	}
}

// The clock is the log's own: the offset of each line counts.
func TestReplayRespectsTimeZones(t *testing.T) {
	rules := file(t, "rules.yaml", townRules)
	log := `h - ada [17/May/2015:12:00:30 +0200] "GET /towns HTTP/1.1" 200 1
h - ada [17/May/2015:04:30:10 -0530] "GET /towns HTTP/1.1" 200 1
h - ada [17/May/2015:10:00:59 +0000] "GET /towns HTTP/1.1" 200 1
h - ada [17/May/2015:10:00:59 +0100] "GET /towns HTTP/1.1" 200 1
`
	got := person{stdin: log}.run(t, "replay", "--rules", rules, "-")
	for _, want := range []string{"first\t2015-05-17T09:00:59Z\n", "last\t2015-05-17T10:00:59Z\n",
		"\nrule\ttowns\tallowed\t3\tdenied\t1\tkeys\t1\n"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("%q is not in:\n%s", want, got.out)
		}
	}
}

// Logs in JSON are replayed as others are, several beside each other, and all requests have the attributes
// of --attr.
func TestReplayJSONLogsWithAttributes(t *testing.T) {
	rules := file(t, "rules.yaml", `rules:
- {name: api, key: [user], limits: [{limit: {by: "attr:plan", of: {pro: 3/minute}, else: 1/minute}}]}
`)
	caddy, nginx := "", ""
	for i := range 2 {
		caddy += fmt.Sprintf(`{"ts":%d,"request":{"client_ip":"10.0.0.1","method":"GET","uri":"/a"},"user_id":"ada"}`+"\n",
			1767268800+i)
		nginx += fmt.Sprintf(`{"msec":"%d","remote_addr":"10.0.0.1","remote_user":"ada","request":"GET /a HTTP/1.1"}`+"\n",
			1767268800+i)
	}
	logs := []string{file(t, "caddy.log", caddy), file(t, "nginx.log", nginx)}
	for _, c := range []struct {
		args []string
		want string
	}{{nil, "allowed\t1\n"}, {[]string{"--attr", "plan=pro"}, "allowed\t3\n"},
		{[]string{"--attr", "plan=x"}, "allowed\t1\n"}} {
		got := person{}.run(t, append(append([]string{"replay", "--rules", rules}, c.args...), logs...)...)
		if got.status != 0 || !strings.Contains(got.out, c.want) || !strings.Contains(got.out, "requests\t4\n") {
			t.Errorf("%v: %+v, want %q", c.args, got, c.want)
		}
	}
	if got := (person{}).run(t, "replay", "--rules", rules, "--attr", "plan", logs[0]); got.status != 2 ||
		!strings.Contains(got.err, `--attr "plan" is no attribute: give KEY=VALUE`) {
		t.Errorf("%+v", got)
	}
}
