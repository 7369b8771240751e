package accesslog

import (
	"testing"
)

// Lines of logs in JSON count as those in common format do.
func TestParseJSON(t *testing.T) {
	const at = "2026-01-01T12:00:03.5Z"
	for name, c := range map[string]struct {
		line string
		want want
	}{
		"Caddy": {`{"level":"info","ts":1767268803.5,"logger":"http.log.access","msg":"handled request","request":{` +
			`"remote_ip":"10.0.0.9","remote_port":"5","client_ip":"10.0.0.1","proto":"HTTP/2.0","method":"GET","host":"h",` +
			`"uri":"/towns?page=2","headers":{"User-Agent":["curl"]}},"bytes_read":0,"user_id":"ada","status":200}`,
			want{at, "10.0.0.1", "ada", "GET", "/towns"}},
		"nginx": {`{"time_iso8601":"2026-01-01T13:00:03.5+01:00","remote_addr":"10.0.0.1","remote_user":"",` +
			`"request_method":"POST","request_uri":"/login?x","status":"200"}`, want{at, "10.0.0.1", "", "POST", "/login"}},
		"nginx, with msec and the whole request": {`{"msec":"1767268803.500","remote_addr":"2001:db8::1","remote_user":"-",` +
			`"request":"GET /a?b HTTP/1.1"}`, want{at, "2001:db8::1", "", "GET", "/a"}},
		"nginx, with the local time": {`{"time_local":"01/Jan/2026:12:00:03 +0000","remote_addr":"h",` +
			`"request":"GET / HTTP/1.1"}`,
			want{"2026-01-01T12:00:03Z", "h", "", "GET", "/"}},
		"Envoy": {`{"start_time":"2026-01-01T12:00:03.500Z","method":"GET","path":"/towns?x=1","protocol":"HTTP/1.1",` +
			`"response_code":200,"downstream_remote_address":"10.0.0.1:51234","x_forwarded_for":"1.2.3.4"}`,
			want{at, "10.0.0.1", "", "GET", "/towns"}},
		"Envoy, IPv6": {`{"start_time":"2026-01-01T12:00:03.500Z","method":"GET","path":"/","downstream_remote_address":` +
			`"[2001:db8::1]:80"}`, want{at, "2001:db8::1", "", "GET", "/"}},
		"milliseconds": {`{"timestamp":1767268803500,"remote_addr":"h","method":"GET","path":"/"}`,
			want{at, "h", "", "GET", "/"}},
		"before 1970": {`{"ts":-5,"remote_addr":"h","method":"GET","path":"/"}`,
			want{"1970-01-01T00:00:00Z", "h", "", "GET", "/"}},
		"a host that begins so": {`{a - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.0"`,
			want{"2015-05-17T10:05:03Z", "{a", "", "GET", "/"}},
	} {
		if e, ok := Parse([]byte(c.line)); !ok || got(e) != c.want {
			t.Errorf("%s: %v %+v, want %+v", name, ok, got(e), c.want)
		}
	}
	for _, line := range []string{`{}`, `{`, `{"ts":1}`, `{"ts":"soon","remote_addr":"h","method":"GET","path":"/"}`,
		`{"ts":1e300,"remote_addr":"h","method":"GET","path":"/"}`, `{"ts":1,"remote_addr":"h","method":"G T","path":"/"}`,
		`{"ts":1,"remote_addr":"h","method":"GET","path":"?x"}`, `{"ts":1,"remote_addr":"h","request":5}`,
		`{"ts":1,"remote_addr":"h","request":{"method":5}}`, `{"ts":1,"method":"GET","path":"/"}`,
		`{"ts":"NaN","remote_addr":"h","method":"GET","path":"/"}`, `{"ts":1,"remote_addr":"h","request":"GET"}`} {
		if e, ok := Parse([]byte(line)); ok {
			t.Errorf("%s: %+v", line, got(e))
		}
	}
}
