package procstat

import (
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	for line, want := range map[string]time.Duration{
		"12 (node) S 1 1 1 0 -1 4194560 1 2 3 4 150 25 0 0 20 0 1 0 5 6 7":     1750 * time.Millisecond,
		"12 (a) b (c 9 9) R 1 1 1 0 -1 4194560 1 2 3 4 1 2 0 0 20 0 1 0 5 6 7": 30 * time.Millisecond,
		"12 (node) S 1 1 1": -1,
		"":                  -1,
		"12 (node) S 1 1 1 0 -1 4 1 2 3 4 x 25 0 0": -1,
	} {
		got, err := parseStat(line)
		if want < 0 && err == nil || want >= 0 && (err != nil || got != want) {
			t.Errorf("%q: %v, %v", line, got, err)
		}
	}
}

// The processor times of this process, read as another process and as its own, agree
// within their units.
func TestOf(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no /proc here")
	}
	for {
		before, ok := Self()
		got, err := Of(os.Getpid())
		after, _ := Self()
		if err != nil || !ok {
			t.Fatal(got, err, ok)
		}
		if got < before-3*tick || got > after+3*tick {
			t.Fatalf("%v is not between %v and %v", got, before, after)
		}
		if got >= 5*tick {
			break // it moves
		}
	}
	if _, err := Of(1 << 30); err == nil || !strings.Contains(err.Error(), "is it running") {
		t.Error(err)
	}
}
