package console

import (
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// What is sent to another member is told by the second, of one run of it only.
func TestTrafficIsOfOneSecond(t *testing.T) {
	at, s := time.Unix(1000, 0), new(sends)
	look := func(instance string, frames, bytes uint64) map[string]traffic {
		at = at.Add(2 * time.Second)
		s.look([]weir.Member{{Name: "n1", Self: true, SentBytes: bytes}, {Name: "n2", Instance: instance, SentFrames: frames,
			SentBytes: bytes}}, at)
		return s.rates()
	}
	if got := look("a", 10, 1000); len(got) != 0 {
		t.Errorf("after one look: %v", got)
	}
	if got := look("a", 14, 4000); len(got) != 1 || got["n2"] != (traffic{2, 1500}) {
		t.Errorf("after two: %v", got)
	}
	if got := look("b", 100, 90000); len(got) != 0 {
		t.Errorf("of another run: %v", got)
	}
	for n, want := range map[float64]string{0: "0 B", 999: "999 B", 1500: "2 kB", 999_600: "1 MB", 25e6: "25 MB",
		3.25e9: "3.2 GB"} {
		if got := bytesOf(n); got != want {
			t.Errorf("%v is %q, want %q", n, got, want)
		}
	}
}
