package resp

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// parsed shows what a parser makes of data: the arguments of each command, then the error
// and how many bytes are left.
func parsed(data string) string {
	p := parser{most: maxArgs, mostBytes: maxArg}
	var out []string
	for {
		args, n, err := p.next([]byte(data))
		if _, long := errors.AsType[longError](err); long {
			args = [][]byte{[]byte(err.Error())}
		} else if err != nil {
			return strings.Join(append(out, err.Error()), "; ")
		}
		if n == 0 {
			if data != "" {
				out = append(out, "rest "+data)
			}
			return strings.Join(out, "; ")
		}
		out = append(out, string(bytes.Join(args, []byte("|"))))
		data = data[n:]
	}
}

// Commands are arrays of texts, or lines. What cannot be a command ends the connection with
// the text of Redis.
func TestParser(t *testing.T) {
	for data, want := range map[string]string{
		"":                                       "",
		"*1\r\n$4\r\nPING\r\n":                   "PING",
		"*2\r\n$4\r\nECHO\r\n$0\r\n\r\nPING\r\n": "ECHO|; PING",
		"*1\r\n$4\r\nPI\r\n\r\n":                 "PI\r\n",
		"*0\r\n*-1\r\nPING\n":                    "; ; PING",
		"\r\nPING\r\n":                           "; PING",
		"  set  a\t\"b \\n\\x\\\"c\" 'd\\'e'  \r\n": "set|a|b \nx\"c|d'e",
		"a \"b\r\n":            "Protocol error: unbalanced quotes in request",
		"a \"b\"c\r\n":         "Protocol error: unbalanced quotes in request",
		"*2\r\n$4\r\nPI":       "rest *2\r\n$4\r\nPI",
		"*2\r\n$4\r\nPING\r\n": "rest *2\r\n$4\r\nPING\r\n",
		"*2":                   "rest *2",
		"PIN":                  "rest PIN",
		"*x\r\n":               "Protocol error: invalid multibulk length",
		"*007\r\n":             "rest *007\r\n",
		"*+1\r\n$000000000000000004\r\nPING\r\n*1\r\n$0000000000000000004\r\nPING\r\n": "PING; PING",
		"*\r\n":   "Protocol error: invalid multibulk length",
		"*1\rx\n": "Protocol error: invalid multibulk length",
		"*1\n":    "Protocol error: invalid multibulk length",
		"*65\r\n" + strings.Repeat("$1\r\na\r\n", 65) + "PING\r\n": "the command has more than 64 arguments: " +
			"nothing of it was carried out; PING",
		"*65\r\n:1\r\n": "Protocol error: expected '$', got \":\"",
		"*70\r\n" + strings.Repeat("$16000\r\n"+strings.Repeat("a", 16000)+"\r\n",
			66): "Protocol error: invalid bulk length",
		"*1048577\r\n":                           "Protocol error: invalid multibulk length",
		`a foo"b c" "\x41\a\b\xZZ\q\x"` + "\r\n": "a|foob c|A\a\bxZZqx",
		"a b\rc\vd 'e'\v'f\\n'\x00 g\r\n":        "a|b|c\vd|e|f\\n",
		"a \"b\x00\"\r\n":                        "Protocol error: unbalanced quotes in request",
		`a \"b\"` + "\r\n":                       "Protocol error: unbalanced quotes in request",
		"*" + strings.Repeat("1", 22):            "Protocol error: too big mbulk count string",
		"*1\r\n:1\r\n":                           "Protocol error: expected '$', got \":\"",
		"*1\r\n$-7\r\n":                          "Protocol error: invalid bulk length",
		"*1\r\n$1048577\r\n":                     "Protocol error: invalid bulk length",
		"*1\r\n$" + strings.Repeat("1", 22):      "Protocol error: too big bulk count string",
		"*1\r\n$1\r\nabc":                        "Protocol error: expected the end of a line after an argument",
		strings.Repeat("a", maxInline):           "Protocol error: too big inline request",
		strings.Repeat("a ", 65) + "\r\nPING\r\n": "the command has more than 64 arguments: nothing of it " +
			"was carried out; PING",
		"*5\r\n" + strings.Repeat("$16000\r\n"+strings.Repeat("a", 16000)+"\r\n",
			5): "the command has 80054 bytes; at most 65536 are carried out",
	} {
		if got := parsed(data); got != want && !strings.HasSuffix(got, want) {
			t.Errorf("%.60q: %.200q, want %q", data, got, want)
		}
	}
}

// A parser neither panics nor takes more than its bounds, and what it takes from the begin of
// some data does not depend on what follows.
func FuzzParser(f *testing.F) {
	for _, s := range []string{"*2\r\n$4\r\nECHO\r\n$1\r\na\r\n", "*2\r\n$-7\r\n", "a 'b' \"c\\n\"\r\n",
		"*1\r\n$99999999999999999999\r\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p := parser{most: maxArgs, mostBytes: maxArg}
		args, n, err := p.next(data)
		_, long := errors.AsType[longError](err)
		passed := long || p.passing != passing{}
		switch {
		case n < 0 || n > len(data) || n > maxCommand && !passed || len(args) > maxArgs || err != nil && n != 0 && !long ||
			passed && args != nil:
			t.Fatalf("%d arguments, %d bytes, %v", len(args), n, err)
		case n == 0 || passed:
			return
		}
		before := make([]string, len(args))
		for i, a := range args {
			if before[i] = string(a); len(a) > maxArg {
				t.Fatalf("an argument of %d bytes", len(a))
			}
		}
		again, m, err := p.next(append(append([]byte(nil), data[:n]...), "*2\r\n"...))
		if m != n || err != nil || len(again) != len(before) {
			t.Fatalf("%d bytes and %q; followed by another %d, %v and %q", n, before, m, err, again)
		}
		for i, a := range again {
			if string(a) != before[i] {
				t.Fatalf("%q, followed by another %q", before[i], a)
			}
		}
	})
}
