package resp

import (
	"bytes"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// said is a connection whose client says something and then nothing more.
type said struct {
	net.Conn
	in  bytes.Reader
	out bytes.Buffer
}

func (s *said) Read(p []byte) (int, error)     { return s.in.Read(p) }
func (s *said) Write(p []byte) (int, error)    { return s.out.Write(p) }
func (*said) SetReadDeadline(time.Time) error  { return nil }
func (*said) SetWriteDeadline(time.Time) error { return nil }
func (*said) RemoteAddr() net.Addr             { return &net.TCPAddr{} }

// skipReply returns what follows the first reply in some text; ok is false if it is none.
func skipReply(text string) (rest string, ok bool) {
	line, rest, ended := strings.Cut(text, "\r\n")
	if !ended || line == "" || strings.ContainsAny(line, "\r\n") {
		return "", false
	}
	n, err := strconv.Atoi(line[1:])
	switch line[0] {
	case '+', '-', '#', '_':
		return rest, true
	case ':':
		return rest, err == nil
	case '$':
		if err != nil || n < 0 {
			return rest, n == -1
		}
		if len(rest) < n+2 || rest[n:n+2] != "\r\n" {
			return "", false
		}
		return rest[n+2:], true
	case '*', '%':
		if line[0] == '%' {
			n *= 2
		}
		for ok = err == nil; ok && n > 0; n-- {
			rest, ok = skipReply(rest)
		}
		return rest, ok
	}
	return "", false
}

// Whatever a client says, it gets whole replies, one for each command at most, and nothing of its
// memory is left over.
func FuzzCommands(f *testing.F) {
	for _, text := range []string{
		"CL.THROTTLE k 1 2 60 1", "WEIR.CHECK /towns USER ada COST 2",
		"WEIR.CHECK /plans ATTR plan gold METHOD GET GROUP g IP 10.0.0.1",
		"WEIR.CHECK /towns USER u ID i HOLD 1000", "WEIR.SETTLE /towns USER u ID i ACTUAL 1 IF_UNKNOWN charge",
		"WEIR.EXTEND /towns USER u ID i HOLD 5000 COST 1",
		"WEIR.CANCEL /towns USER u ID i", "WEIR.PEEK /towns RULE towns", "WEIR.RESET /towns USER ada",
		"EVALSHA x 1 k 1 2 3 4", "SCRIPT EXISTS a b", "DEL k k",
		"FLUSHDB", "MULTI", "EXEC", "DISCARD", "HELLO 3 AUTH a b SETNAME c", "CLIENT SETINFO LIB-NAME x", "COMMAND DOCS",
		"INFO", "PING x", "QUIT",
	} {
		f.Add([]byte(encode(text) + encode("PING")))
		f.Add([]byte(text + "\r\n"))
		f.Add([]byte("MULTI\r\n" + encode(text) + "EXEC\r\n"))
	}
	server := start(f, func(o *Options) { o.Config.AllowRefunds = true }).server
	f.Fuzz(func(t *testing.T, data []byte) {
		s := new(said)
		s.in.Reset(data)
		c := &conn{of: server, Conn: s}
		c.serve(t.Context())
		server.release(c) // as Serve does
		rest, n := s.out.String(), 0
		for ; rest != ""; n++ {
			left, ok := skipReply(rest)
			if !ok {
				t.Fatalf("no reply, after %d: %q", n, s.out.String())
			}
			rest = left
		}
		if most := bytes.Count(data, []byte("\n")) + 1; n > most {
			t.Errorf("%d replies, and no more than %d commands", n, most)
		}
		if left := server.large.InUse(); left != 0 {
			t.Errorf("%d bytes are left over", left)
		}
	})
}
