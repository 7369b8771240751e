package resp

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// The scripts of redis_rate get their answers, by their names only.
func TestScripts(t *testing.T) {
	f := start(t, nil)
	c := f.dial(t)
	allowN, atMost := "EVALSHA "+scriptAllowN+" 1 rate:id 10 10 1 ", "EVALSHA "+strings.ToUpper(scriptAllowAtMost)+" 1 rate:id 10 10 1 "
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
		{"EVALSHA " + scriptAllowN + " 2 k l 1 10 1 1", "-ERR the script of redis_rate takes 1 key and 4 arguments: burst, rate, period and cost"},
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
