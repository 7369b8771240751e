// Package accesslog reads the access logs of web servers, in common and combined
// format and in JSON, and holds their requests compactly, in the order of the logs' own time.
//
// The package is not safe for concurrent use.
package accesslog

import (
	"bytes"
	"strings"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// Entry is one request of a log. Its slices refer to the line.
type Entry struct {
	// Time is the log's own time, in ticks; a time before 1970 is the epoch.
	Time limiter.Tick
	// Host is the first field: an address, or a name if the server resolves names.
	Host []byte
	// User is the third field, nil if the line has "-".
	User []byte
	// Method and Path are from the request; Path has no query. Both are as logged: the
	// escapes of servers (\", \x22) are kept.
	Method, Path []byte
}

// Parse parses a line that starts with
//
//	host ident user [17/May/2015:10:05:03 +0000] "METHOD PATH
//
// and reports whether it does. The rest of the line may be anything, cut off or
// missing. The fields are separated by single spaces and contain none, so a line in
// another format, such as one with a virtual host in front, is rejected and not
// misread. A line that begins with { is one of a log in JSON, such as those of Caddy, nginx and Envoy.
func Parse(line []byte) (Entry, bool) {
	var e Entry
	var ok bool
	if len(line) > 0 && line[0] == '{' {
		if e, ok = parseJSON(line); ok {
			return e, true
		}
		e = Entry{}
	}
	if e.Host, line, ok = word(line); !ok {
		return e, false
	}
	if _, line, ok = word(line); !ok {
		return e, false
	}
	if e.User, line, ok = word(line); !ok {
		return e, false
	}
	if len(e.User) == 1 && e.User[0] == '-' {
		e.User = nil
	}
	if len(line) == 0 || line[0] != '[' {
		return e, false
	}
	end := bytes.IndexByte(line, ']')
	if end < 0 {
		return e, false
	}
	if e.Time, ok = parseTime(line[1:end]); !ok {
		return e, false
	}
	line, ok = bytes.CutPrefix(line[end:], []byte(`] "`))
	if !ok {
		return e, false
	}
	e.Method, line, ok = word(line)
	if !ok || !isToken(e.Method) {
		return e, false
	}
	e.Path, ok = target(line)
	return e, ok
}

// word splits a line at the first space. There must be at least one byte before it.
func word(line []byte) (w, rest []byte, ok bool) {
	i := bytes.IndexByte(line, ' ')
	if i <= 0 {
		return nil, nil, false
	}
	return line[:i], line[i+1:], true
}

// target returns the path at the beginning of rest. It ends at the query, a space, an
// unescaped quote, or the end of a cut line.
func target(rest []byte) (path []byte, ok bool) {
	end, query := len(rest), -1
scan:
	for i := 0; i < len(rest); i++ {
		switch rest[i] {
		case '\\':
			if i+1 < len(rest) && (rest[i+1] == '"' || rest[i+1] == '\\') {
				i++ // an escaped quote does not end it
			}
		case ' ', '"':
			end = i
			break scan
		case '?':
			if query < 0 {
				query = i
			}
		}
	}
	if end == 0 {
		return nil, false
	}
	if query >= 0 {
		return rest[:query], true
	}
	return rest[:end], true
}

// isToken reports whether b may be a method. Escaped garbage (\x16\x03\x01, a TLS
// greeting on a plain port) may not.
func isToken(b []byte) bool {
	for _, c := range b {
		switch {
		case 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		case strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return true
}

// parseTime parses 17/May/2015:10:05:03 +0000, with an optional fraction after the
// seconds, which some servers can be configured to write.
func parseTime(b []byte) (limiter.Tick, bool) {
	const shortest = len("17/May/2015:10:05:03 +0000")
	if len(b) < shortest || b[2] != '/' || b[6] != '/' || b[11] != ':' || b[14] != ':' || b[17] != ':' {
		return 0, false
	}
	day, ok1 := number(b[0:2])
	year, ok2 := number(b[7:11])
	hour, ok3 := number(b[12:14])
	minute, ok4 := number(b[15:17])
	second, ok5 := number(b[18:20])
	month, ok6 := monthOf(b[3:6])
	// A leap second has second 60.
	if !(ok1 && ok2 && ok3 && ok4 && ok5 && ok6) || day < 1 || hour > 23 || minute > 59 || second > 60 {
		return 0, false
	}
	micros, rest, ok := fraction(b[20:])
	if !ok {
		return 0, false
	}
	offset, ok := zone(rest)
	if !ok {
		return 0, false
	}
	date := time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
	if date.Day() != day { // 31 April becomes 1 May
		return 0, false
	}
	seconds := date.Unix() + int64(hour*3600+minute*60+second) - offset
	return max(0, limiter.Tick(seconds)*limiter.Second+micros), true
}

// fraction parses ".123" as microseconds and drops further digits. The fraction may be
// missing.
func fraction(b []byte) (micros limiter.Tick, rest []byte, ok bool) {
	if b[0] != '.' {
		return 0, b, true
	}
	unit := limiter.Second
	i := 1
	for ; i < len(b) && '0' <= b[i] && b[i] <= '9'; i++ {
		unit /= 10
		micros += limiter.Tick(b[i]-'0') * unit
	}
	return micros, b[i:], i > 1
}

// zone parses " +0130" as seconds east of UTC.
func zone(b []byte) (int64, bool) {
	if len(b) != len(" +0000") || b[0] != ' ' || b[1] != '+' && b[1] != '-' {
		return 0, false
	}
	hours, ok1 := number(b[2:4])
	minutes, ok2 := number(b[4:6])
	if !ok1 || !ok2 || hours > 23 || minutes > 59 {
		return 0, false
	}
	offset := int64(hours*3600 + minutes*60)
	if b[1] == '-' {
		offset = -offset
	}
	return offset, true
}

func number(b []byte) (int, bool) {
	n := 0
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, true
}

func monthOf(b []byte) (time.Month, bool) {
	const names = "JanFebMarAprMayJunJulAugSepOctNovDec"
	for m := time.January; m <= time.December; m++ {
		if i := 3 * int(m-1); string(b) == names[i:i+3] {
			return m, true
		}
	}
	return 0, false
}
