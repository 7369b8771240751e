//go:build linux

package scenario

import (
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/chaos/netlab"
)

// What links did is held against what they were told: those that did nothing of it are
// named, and those that did are not.
func TestWhatLinksDid(t *testing.T) {
	const ms = time.Millisecond
	cut, blocked := netlab.Link{Cut: true}, netlab.Link{Blocked: []uint16{7946}}
	lossy := netlab.Link{Loss: 0.01, Duplicate: 0.1, Reorder: 0.2}
	late, narrow := netlab.Link{Delay: 50 * ms}, netlab.Link{Bandwidth: 20_000}
	for _, of := range []struct {
		what      string
		link      netlab.Link
		did       netlab.Counts
		each, all string // what is said of one direction, and of all together
	}{
		{"a cut", cut, netlab.Counts{Dropped: 9}, "", ""},
		{"a cut that carries", cut, netlab.Counts{Carried: 900}, "carried 900", "dropped none of 900"},
		{"a cut over which nothing comes", cut, netlab.Counts{}, "dropped none", ""},
		{"a cut that carries a little", cut, netlab.Counts{Carried: 1, Dropped: 50}, "carried 1", ""},
		{"a blocked port", blocked, netlab.Counts{Carried: 900, Dropped: 3}, "", ""},
		{"a port that is not blocked", blocked, netlab.Counts{Carried: 900}, "dropped none", "dropped none of 900"},
		{"all ports blocked", blocked, netlab.Counts{Dropped: 900}, "carried nothing", ""},
		{"loss", lossy, netlab.Counts{Carried: 4000, Dropped: 1, Twice: 1, Overtaken: 1}, "", ""},
		{"no loss", lossy, netlab.Counts{Carried: 4000, Twice: 1, Overtaken: 1}, "", "lost none"},
		{"too few frames for any to be lost", lossy, netlab.Counts{Carried: 50}, "", ""},
		{"none twice", lossy, netlab.Counts{Carried: 4000, Dropped: 1, Overtaken: 1}, "", "none of 4001 frames twice"},
		{"all in order", lossy, netlab.Counts{Carried: 4000, Dropped: 1, Twice: 1}, "", "came in their order"},
		{"a delay", late, netlab.Counts{Carried: 100, Held: 100 * 51 * ms}, "", ""},
		{"no delay", late, netlab.Counts{Carried: 100, Held: 100 * ms}, "", "under way for 1ms"},
		{"a delay of what never comes", late, netlab.Counts{}, "carried nothing", ""},
		{"narrow", narrow, netlab.Counts{Carried: 1000, Bytes: 200_000, Held: 11 * time.Second}, "", ""},
		{"as wide as ever", narrow, netlab.Counts{Carried: 1000, Bytes: 200_000, Held: 20 * ms}, "", "20000 bytes/s"},
	} {
		says(t, of.what+", each", eachDid(of.link, of.did), of.each)
		says(t, of.what+", all", allDid(of.link, of.did), of.all)
	}
}

// says fails the test unless an error says something; "": there must be none.
func says(t *testing.T, of string, err error, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("%s: %v, want what says %q", of, err, want)
	}
}
