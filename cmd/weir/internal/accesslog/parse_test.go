package accesslog

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
)

const plainLine = `10.0.0.1 - ada [17/May/2015:10:05:03 +0000] "GET /towns?page=2 HTTP/1.1" 200 512 "http://ex.org/" ` +
	`"curl/8"`

// want is an Entry in comparable form.
type want struct {
	time                     string // RFC 3339
	host, user, method, path string
}

func got(e Entry) want {
	return want{
		e.Time.Time().Format(time.RFC3339Nano),
		string(e.Host), string(e.User), string(e.Method), string(e.Path),
	}
}

func TestParseLinesThatCount(t *testing.T) {
	const at = "2015-05-17T10:05:03Z"
	const pre = `h - - [17/May/2015:10:05:03 +0000] `
	for name, c := range map[string]struct {
		line string
		want want
	}{
		"combined": {plainLine, want{at, "10.0.0.1", "ada", "GET", "/towns"}},
		"common": {`10.0.0.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.0" 200 -`,
			want{at, "10.0.0.1", "", "GET", "/"}},
		"host name, ipv6": {`fe80::1 id - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.0" 200 -`,
			want{at, "fe80::1", "", "GET", "/a"}},
		"cut in the agent":  {pre + `"GET /a HTTP/1.1" 200 235 "-" "Mozilla/5.0 (comp`, want{at, "h", "", "GET", "/a"}},
		"cut in protocol":   {pre + `"GET /a HT`, want{at, "h", "", "GET", "/a"}},
		"cut after path":    {pre + `"GET /a`, want{at, "h", "", "GET", "/a"}},
		"cut in path":       {pre + `"GET /`, want{at, "h", "", "GET", "/"}},
		"no protocol":       {pre + `"GET /a" 200 3`, want{at, "h", "", "GET", "/a"}},
		"path in spaces":    {pre + `"GET /a b c HTTP/1.1" 404 3`, want{at, "h", "", "GET", "/a"}},
		"query is dropped":  {pre + `"GET /a?b?c=/d HTTP/1.1"`, want{at, "h", "", "GET", "/a"}},
		"only a query":      {pre + `"GET ?a=b HTTP/1.1"`, want{at, "h", "", "GET", ""}},
		"cut in the query":  {pre + `"GET /a?b`, want{at, "h", "", "GET", "/a"}},
		"quote escaped":     {pre + `"GET /a\"b\\ HTTP/1.1"`, want{at, "h", "", "GET", `/a\"b\\`}},
		"quote escaped hex": {pre + `"GET /a\x22b HTTP/1.1"`, want{at, "h", "", "GET", `/a\x22b`}},
		"quote in query":    {pre + `"GET /a?q=\"x y\" HTTP/1.1"`, want{at, "h", "", "GET", "/a"}},
		"cut in an escape":  {pre + `"GET /a\`, want{at, "h", "", "GET", `/a\`}},
		"stray backslashes": {pre + `"GET /a\?b HTTP/1.1"`, want{at, "h", "", "GET", `/a\`}},
		"backslash, space":  {pre + `"GET /a\ b HTTP/1.1"`, want{at, "h", "", "GET", `/a\`}},
		"asterisk":          {pre + `"OPTIONS * HTTP/1.0" 200 -`, want{at, "h", "", "OPTIONS", "*"}},
		"a token as method": {pre + `"M-SEARCH /x HTTP/1.0" 200 -`, want{at, "h", "", "M-SEARCH", "/x"}},
		"utf-8 and bytes":   {pre + "\"GET /\xc3\xa9\xff HTTP/1.0\"", want{at, "h", "", "GET", "/\xc3\xa9\xff"}},
		"east":              {`h - - [17/May/2015:12:05:03 +0200] "GET / `, want{at, "h", "", "GET", "/"}},
		"west, other day":   {`h - - [16/May/2015:22:35:03 -1130] "GET / `, want{at, "h", "", "GET", "/"}},
		"fraction": {`h - - [17/May/2015:10:05:03.1234567 +0000] "GET / `,
			want{"2015-05-17T10:05:03.123456Z", "h", "", "GET", "/"}},
		"leap second": {`h - - [30/Jun/2015:23:59:60 +0000] "GET / `,
			want{"2015-07-01T00:00:00Z", "h", "", "GET", "/"}},
		"leap day": {`h - - [29/Feb/2016:00:00:00 +0000] "GET / `,
			want{"2016-02-29T00:00:00Z", "h", "", "GET", "/"}},
		"before the epoch": {`h - - [01/Jan/1960:00:00:00 +0000] "GET / `,
			want{"1970-01-01T00:00:00Z", "h", "", "GET", "/"}},
	} {
		t.Run(name, func(t *testing.T) {
			e, ok := Parse([]byte(c.line))
			if !ok {
				t.Fatalf("does not count: %s", c.line)
			}
			if got(e) != c.want {
				t.Errorf("\n got %+v\nwant %+v", got(e), c.want)
			}
		})
	}
}

func TestParseLinesThatDoNotCount(t *testing.T) {
	const pre = `h - - [17/May/2015:10:05:03 +0000] `
	for name, line := range map[string]string{
		"empty":               "",
		"words":               "this is no log",
		"comment":             "#Fields: date time c-ip",
		"json":                `{"time":"2015-05-17T10:05:03Z","path":"/"}`,
		"virtual host first":  "www.ex.org:80 " + plainLine,
		"leading space":       " " + plainLine,
		"two spaces":          strings.Replace(plainLine, " - ", "  - ", 1),
		"tabs":                strings.ReplaceAll(plainLine, " ", "\t"),
		"user of two words":   strings.Replace(plainLine, "ada", "ada lovelace", 1),
		"no user":             `h - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.0"`,
		"request missing":     pre,
		"request is -":        pre + `"-" 408 -`,
		"request empty":       pre + `"" 400 -`,
		"tls greeting":        pre + `"\x16\x03\x01\x02 \x01" 400 -`,
		"method only":         pre + `"GET" 400 -`,
		"method cut":          pre + `"GE`,
		"method and space":    pre + `"GET `,
		"method, empty path":  pre + `"GET  HTTP/1.0"`,
		"method quoted":       pre + `"GET "`,
		"no quote":            pre + `GET / HTTP/1.0`,
		"no space after time": `h - - [17/May/2015:10:05:03 +0000]"GET / HTTP/1.0"`,
		"time not closed":     `h - - [17/May/2015:10:05:03 +0000 "GET / HTTP/1.0"`,
		"time cut":            `h - - [17/May/20`,
	} {
		t.Run(name, func(t *testing.T) {
			if e, ok := Parse([]byte(line)); ok {
				t.Errorf("counts as %+v: %s", got(e), line)
			}
		})
	}
}

func TestParseRejectsBadTimes(t *testing.T) {
	for _, at := range []string{
		"", "-", "17/May/2015:10:05:03", "17/May/2015:10:05:03 UTC", "2015-05-17T10:05:03Z",
		"00/May/2015:10:05:03 +0000", "32/May/2015:10:05:03 +0000", "31/Apr/2015:10:05:03 +0000",
		"29/Feb/2015:10:05:03 +0000", "17/may/2015:10:05:03 +0000", "17/Mai/2015:10:05:03 +0000",
		"17/May/2015:24:05:03 +0000", "17/May/2015:10:60:03 +0000", "17/May/2015:10:05:61 +0000",
		"17/May/2015:10:05:03 +2400", "17/May/2015:10:05:03 +0060", "17/May/2015:10:05:03 00000",
		"17/May/2015:10:05:03 +000", "17/May/2015:10:05:03 +00000", "17/May/2015:10:05:03. +0000",
		"17/May/2015:10:05:03  +0000", "1x/May/2015:10:05:03 +0000", "17/May/20x5:10:05:03 +0000",
		"17/May/2015:1x:05:03 +0000", "17/May/2015:10:x5:03 +0000", "17/May/2015:10:05:x3 +0000",
		"17-May/2015:10:05:03 +0000", "17/May-2015:10:05:03 +0000", "17/May/2015-10:05:03 +0000",
		"17/May/2015:10-05:03 +0000", "17/May/2015:10:05-03 +0000", "17/May/2015:10:05:03 +x000",
		"17/May/2015:10:05:03 +00x0", "17/May/2015:10:05:03.123456789012345",
	} {
		if e, ok := Parse([]byte(`h - - [` + at + `] "GET / HTTP/1.0"`)); ok {
			t.Errorf("%q counts as %v", at, e.Time.Time())
		}
	}
}

// The slow parser: a regular expression and the standard library's time.
var (
	slowLine = regexp.MustCompile("(?s)^([^ ]+) ([^ ]+) ([^ ]+) \\[([^\\]]*)\\] \"([-!#$%&'*+.^_`|~0-9A-Za-z]+) " +
		"((?:\\\\[\\\\\"]|\\\\|[^ \"\\\\])+)")
	slowTime = regexp.MustCompile(`^(\d\d/[A-Z][a-z][a-z]/\d{4}:\d\d:\d\d:)(\d\d)((?:\.\d+)?) ([+-]\d\d)(\d\d)$`)
)

func slowParse(line []byte) (want, bool) {
	m := slowLine.FindSubmatch(line)
	if m == nil {
		return want{}, false
	}
	at, ok := slowParseTime(string(m[4]))
	if !ok {
		return want{}, false
	}
	user, path := string(m[3]), string(m[6])
	if user == "-" {
		user = ""
	}
	path, _, _ = strings.Cut(path, "?")
	return want{limiter.TickOf(at).Time().Format(time.RFC3339Nano), string(m[1]), user, string(m[5]), path}, true
}

func slowParseTime(s string) (time.Time, bool) {
	m := slowTime.FindStringSubmatch(s)
	if m == nil || m[4][1:] > "23" || m[5] > "59" {
		return time.Time{}, false
	}
	var leap time.Duration
	if m[2] == "60" {
		m[2], leap = "59", time.Second
	}
	at, err := time.Parse("02/Jan/2006:15:04:05 -0700", m[1]+m[2]+" "+m[4]+m[5])
	if err != nil {
		return time.Time{}, false
	}
	micros := 0
	if len(m[3]) > 1 {
		micros, _ = strconv.Atoi((m[3][1:] + "000000")[:6])
	}
	return at.Add(leap + time.Duration(micros)*time.Microsecond), true
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(plainLine))
	f.Add([]byte(`h - - [30/Jun/2015:23:59:60.5 -0730] "GET /a\"b?c HTTP/1.0" 200 -`))
	f.Add([]byte(`h - - [29/Feb/2016:00:00:00 +1400] "M-SEARCH *`))
	f.Add([]byte(`h - - [01/Jan/0001:00:00:00 +0000] "GET \`))
	f.Add([]byte("h - - [17/May/2015:10:05:03 +0000] \"GET /\xff\x00 "))
	f.Fuzz(func(t *testing.T, line []byte) {
		if bytes.ContainsAny(line, "\n") {
			return // a line holds no line end
		}
		before := bytes.Clone(line)
		e, ok := Parse(line)
		if _, isJSON := parseJSON(line); isJSON {
			return
		}
		slow, slowOK := slowParse(line)
		if ok != slowOK {
			t.Fatalf("counts: %v, by the slow parser: %v: %q", ok, slowOK, line)
		}
		if ok && got(e) != slow {
			t.Fatalf("%q\n got %+v\nslow %+v", line, got(e), slow)
		}
		if !bytes.Equal(before, line) {
			t.Fatal("the line was changed")
		}
	})
}

func BenchmarkParse(b *testing.B) {
	line := []byte(plainLine)
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		if _, ok := Parse(line); !ok {
			b.Fatal("does not count")
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "lines/s")
}
