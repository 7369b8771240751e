package accesslog

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"
	"net"
	"strconv"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// jsonLine has the fields of access logs in JSON: those of Caddy, and the names that are usual for
// nginx's variables and for Envoy's command operators. A line has some of them.
type jsonLine struct {
	TS          json.RawMessage `json:"ts"`
	Msec        json.RawMessage `json:"msec"`
	TimeISO     json.RawMessage `json:"time_iso8601"`
	TimeLocal   json.RawMessage `json:"time_local"`
	StartTime   json.RawMessage `json:"start_time"`
	Timestamp   json.RawMessage `json:"timestamp"`
	AtTimestamp json.RawMessage `json:"@timestamp"`
	Time        json.RawMessage `json:"time"`

	RemoteAddr  string          `json:"remote_addr"`
	Downstream  string          `json:"downstream_remote_address"`
	RemoteUser  string          `json:"remote_user"`
	UserID      string          `json:"user_id"`
	User        string          `json:"user"`
	ReqMethod   string          `json:"request_method"`
	Method      string          `json:"method"`
	RequestURI  string          `json:"request_uri"`
	URI         string          `json:"uri"`
	Path        string          `json:"path"`
	Request     json.RawMessage `json:"request"` // a line such as "GET / HTTP/1.1", or an object, as Caddy has it
	RequestLine struct {
		RemoteIP string `json:"remote_ip"`
		ClientIP string `json:"client_ip"`
		Method   string `json:"method"`
		URI      string `json:"uri"`
	} `json:"-"`
}

// parseJSON parses a line of a log in JSON, and reports whether it has a time, an address, a method and a
// path.
func parseJSON(line []byte) (e Entry, ok bool) {
	var j jsonLine
	if json.Unmarshal(line, &j) != nil {
		return e, false
	}
	request := ""
	if bytes.HasPrefix(j.Request, []byte("{")) {
		if json.Unmarshal(j.Request, &j.RequestLine) != nil {
			return e, false
		}
	} else if len(j.Request) > 0 && json.Unmarshal(j.Request, &request) != nil {
		return e, false
	}
	for _, t := range []json.RawMessage{j.TS, j.Msec, j.TimeISO, j.TimeLocal, j.StartTime, j.Timestamp, j.AtTimestamp,
		j.Time} {
		if e.Time, ok = jsonTime(t); ok {
			break
		}
	}
	r := &j.RequestLine
	host := cmp.Or(r.ClientIP, r.RemoteIP, j.RemoteAddr, j.Downstream)
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	method, path := cmp.Or(r.Method, j.ReqMethod, j.Method), cmp.Or(r.URI, j.RequestURI, j.URI, j.Path)
	if method == "" && path == "" {
		first, rest, _ := bytes.Cut([]byte(request), []byte(" "))
		to, _, _ := bytes.Cut(rest, []byte(" "))
		method, path = string(first), string(to)
	}
	e.Host, e.Method = []byte(host), []byte(method)
	e.Path, _, _ = bytes.Cut([]byte(path), []byte("?"))
	if user := cmp.Or(j.RemoteUser, j.UserID, j.User); user != "" && user != "-" {
		e.User = []byte(user)
	}
	return e, ok && host != "" && method != "" && isToken(e.Method) && len(e.Path) > 0
}

// jsonTime parses an instant: seconds since 1970, as a number or a text, or a text as RFC 3339 or logs in
// common format have it.
func jsonTime(raw json.RawMessage) (limiter.Tick, bool) {
	var text string
	if len(raw) == 0 || raw[0] == '"' && json.Unmarshal(raw, &text) != nil {
		return 0, false
	}
	if text == "" {
		text = string(raw)
	}
	if s, err := strconv.ParseFloat(text, 64); err == nil {
		if s > 1e11 { // milliseconds, as some write them
			s /= 1000
		}
		us := math.Round(s * 1e6)
		return limiter.Tick(max(0, us)), us < 1e17 // also not a number
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return limiter.Tick(max(0, t.UnixMicro())), true
	}
	return parseTime([]byte(text))
}
