package resp

import (
	"fmt"
	"strings"
	"testing"
)

// A key of any length that a server in front passes on counts, or is answered with an error, and the connection
// goes on with the commands that follow.
func TestLongKeys(t *testing.T) {
	f := start(t, nil)
	c := f.dial(t)
	throttle := func(key string) string {
		return fmt.Sprintf("*5\r\n$11\r\nCL.THROTTLE\r\n$%d\r\n%s\r\n$1\r\n0\r\n$1\r\n1\r\n$2\r\n60\r\n", len(key), key)
	}
	const denied = "[1 1 0 60 60]"
	for _, n := range []int{16 << 10, 16<<10 + 1, 65000} {
		c.send(throttle(strings.Repeat("k", n)) + throttle(strings.Repeat("k", n)))
		if first, then := c.read(), c.read(); first != "[0 1 0 -1 60]" || then != denied {
			t.Errorf("a key of %d bytes: %s, %s", n, first, then)
		}
	}
	c.send(throttle("short"))
	_ = c.read()
	for _, n := range []int{65536, 70000, 1<<20 - 100} {
		c.send(throttle(strings.Repeat("k", n)) + throttle("short"))
		if first, then := c.read(), c.read(); !strings.Contains(first, "ERR the command has") || then != denied {
			t.Errorf("a key of %d bytes: %s, then %s", n, first, then)
		}
	}
	c.send("*1\r\n$5\r\nMULTI\r\n" + throttle(strings.Repeat("k", 70000)) + "*1\r\n$4\r\nEXEC\r\n")
	if multi, long, exec := c.read(), c.read(), c.read(); multi != "OK" || !strings.Contains(long, "ERR") ||
		!strings.Contains(exec, "EXECABORT") {
		t.Errorf("in a transaction: %s, %s, %s", multi, long, exec)
	}
	if n := f.server.large.InUse(); n > 2*maxCommand {
		t.Errorf("long commands take %d bytes", n)
	}
	c.send(throttle(strings.Repeat("k", 1<<20)))
	if got, then := c.read(), c.read(); got != "-ERR Protocol error: invalid bulk length" ||
		then != "EOF" && !strings.Contains(then, "reset") {
		t.Errorf("a key of 1 MiB: %s, then %s", got, then)
	}
}

// What is given twice, or is empty, is refused: it may be meant for another counter.
func TestGivenTwice(t *testing.T) {
	c := start(t, nil).dial(t)
	for ask, want := range map[string]string{
		"WEIR.CHECK /towns USER ada user bob":         "-ERR USER is given twice: give it once",
		"WEIR.CHECK /towns ATTR a 1 ATTR a 2":         `-ERR ATTR "a" is given twice: give it once`,
		"WEIR.SETTLE /towns ID 7 ACTUAL 1 ACTUAL 100": "-ERR ACTUAL is given twice: give it once",
	} {
		if got := c.ask(ask); got != want {
			t.Errorf("%s: %s, want %s", ask, got, want)
		}
	}
	c.send("*4\r\n$10\r\nWEIR.CHECK\r\n$6\r\n/towns\r\n$2\r\nID\r\n$0\r\n\r\n")
	if got := c.read(); got != "-ERR ID is empty: give an id of the request's own, or leave ID out" {
		t.Errorf("an empty id: %s", got)
	}
}
