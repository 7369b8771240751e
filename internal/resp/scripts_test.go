package resp

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The scripts of redis_rate get their answers, by their names only.
func TestScripts(t *testing.T) {
	f := start(t, nil)
	c := f.dial(t)
	allowN, atMost := "EVALSHA "+scriptAllowN+" 1 rate:id 10 10 1 ",
		"EVALSHA "+strings.ToUpper(scriptAllowAtMost)+" 1 rate:id 10 10 1 "
	for i, want := range []struct{ ask, reply string }{
		{allowN + "0", "[0 10 -1 0]"},
		{allowN + "1", "[1 9 -1 0.1]"},
		{atMost + "2", "[2 7 -1 0.3]"},
		{atMost + "0", "[0 7 -1 0.3]"},
		{atMost + "10", "[7 0 -1 1]"},
		{allowN + "0", "[0 0 -1 1]"},
		{atMost + "0", "[0 0 0.1 1]"},
		{atMost + "1000", "[0 0 0.1 1]"},
		{allowN + "1000", "[0 0 100 1]"},
		{allowN + "3", "[0 0 0.3 1]"},
		{"DEL rate:id rate:other", "1"},
		{allowN + "1", "[1 9 -1 0.1]"},
		{allowN + "9", "[9 0 -1 1]"},
		{"EVALSHA " + scriptAllowN + " 1 rate:id 4 10 1 0", "[0 0 0.6 1]"}, // a look with a smaller burst
		{"EVALSHA " + scriptAllowN + " 1 rate:id 10 10 1 0", "[0 0 -1 1]"},
		{"DEL rate:id", "1"},
		{allowN + "1", "[1 9 -1 0.1]"},
		// Another limit of the same key goes on with its counter, as the script does.
		{"EVALSHA " + scriptAllowN + " 1 rate:id 5 10 1 1", "[1 3 -1 0.2]"},
		{"SCRIPT EXISTS " + scriptAllowN + " abc", "[1 0]"},
		{"EVALSHA abc 1 k", "-NOSCRIPT No matching script. Please use EVAL."},
		{"EVAL return 0", "-ERR " + errScript},
		{"SCRIPT LOAD return", "-ERR " + errScript},
		{"SCRIPT FLUSH", "-ERR give SCRIPT LOAD <script> or SCRIPT EXISTS <sha1> [<sha1> ...]"},
		{allowN + "-1", "-ERR the cost is -1: give 0 to 9007199254740991"},
		{"EVALSHA " + scriptAllowN + " 1 k 0 10 1 1", "-ERR the burst is 0: give 1 to 9007199254740991"},
		{"EVALSHA " + scriptAllowN + " 1 k 1 10 0.0001 1", "-ERR the period is \"0.0001\": give 0.001 to 3.456e+07 seconds"},
		{"EVALSHA " + scriptAllowN + " 1 k 1 10 NaN 1", "-ERR the period is \"NaN\": give 0.001 to 3.456e+07 seconds"},
		{"EVALSHA " + scriptAllowN + " 2 k l 1 10 1 1",
			"-ERR the script of redis_rate takes 1 key and 4 arguments: burst, rate, period and cost"},
	} {
		if got := c.ask(want.ask); got != want.reply {
			t.Errorf("case %d, %s: %s, want %s", i, want.ask, got, want.reply)
		}
	}
}

// allowAtMost charges what is left at the time, whatever others charge meanwhile: together
// never more than there is.
func TestAtMostOfMany(t *testing.T) {
	f := start(t, nil)
	var sum atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		c := f.dial(t)
		all.Go(func() {
			for range 20 {
				reply := c.ask("EVALSHA " + scriptAllowAtMost + " 1 k 100 1 60 7")
				n, err := strconv.Atoi(strings.TrimPrefix(strings.Fields(reply)[0], "["))
				if err != nil {
					t.Error(reply)
				}
				sum.Add(int64(n))
			}
		})
	}
	if all.Wait(); sum.Load() != 100 {
		t.Errorf("%d of 100 were allowed", sum.Load())
	}
}

// The scripts of ulule/limiter count in a window that begins with the first charge of a key.
func TestWindowScripts(t *testing.T) {
	f := start(t, nil)
	c := f.dial(t)
	add, look := "EVALSHA "+scriptIncrement+" 1 limiter:ada ", "EVALSHA "+scriptCount+" 1 limiter:ada"
	for i, x := range []struct {
		wait       time.Duration
		ask, reply string
	}{
		{0, look, "[0 0]"},
		{0, add + "1 60000", "[1 60000]"},
		{1500 * time.Millisecond, add + "3 60000", "[4 58500]"},
		{0, look, "[4 58500]"},
		{0, "EVALSHA " + scriptIncrement + " 1 limiter:bob 2 1000", "[2 1000]"},
		{58500*time.Millisecond - time.Microsecond, look, "[4 1]"},
		{time.Microsecond, look, "[0 0]"},
		{0, add + "1 60000", "[1 60000]"},
		{0, "DEL limiter:ada limiter:none", "1"},
		{0, look, "[0 0]"},
		{0, add + "9007199254740990 60000", "[9007199254740990 60000]"},
		{0, add + "1 60000", "-ERR increment or decrement would overflow"},
		{0, "CL.THROTTLE limiter:ada 0 1 60", "[0 1 0 -1 60]"}, // another counter, as it has another form
		{0, "FLUSHDB", "OK"},
		{time.Second, look, "[0 0]"},
		{0, add + "0 60000", "-ERR the count is 0: give 1 to 9007199254740990"},
		{0, add + "1 0", "-ERR the period is 0: give 1 to 34560000000 milliseconds"},
		{0, add + "1", "-ERR the script of ulule/limiter takes 1 key and 2 arguments: count and period"},
		{0, look + " 1", "-ERR the script of ulule/limiter takes 1 key and no argument"},
		{0, "SCRIPT EXISTS " + scriptIncrement + " " + scriptCount, "[1 1]"},
	} {
		f.clock.move(x.wait)
		if got := c.ask(x.ask); got != x.reply {
			t.Errorf("case %d, %s: %s, want %s", i, x.ask, got, x.reply)
		}
	}
}
