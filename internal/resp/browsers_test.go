package resp

import "testing"

// A web page can have a browser send a request over HTTP whose body has commands, one in each line.
// None is carried out.
func TestRequestsOfBrowsers(t *testing.T) {
	f := start(t, nil)
	if got := f.dial(t).ask("CL.THROTTLE k 0 1 60"); got != "[0 1 0 -1 60]" {
		t.Fatalf("premise: %s", got)
	}
	for _, head := range []string{
		"POST / HTTP/1.1\r\nHost: 127.0.0.1:6379\r\n", "post / HTTP/1.1\r\n", "PUT /a HTTP/1.1\r\nhost: x\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\n",
	} {
		p := f.dial(t)
		p.send(head + "Origin: http://page.example\r\n\r\nFLUSHDB\r\n" + encode("DEL k") + "PING\r\n")
		reply := ""
		for reply != "EOF" {
			if reply = p.read(); reply == "PONG" || reply == "OK" {
				t.Fatalf("%q: a command of the body is carried out", head)
			}
		}
	}
	if got := f.dial(t).ask("CL.THROTTLE k 0 1 60"); got != "[1 1 0 60 60]" {
		t.Errorf("afterwards: %s", got)
	}
}
