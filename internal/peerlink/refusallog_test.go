package peerlink

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/peer"
	peerv1 "github.com/weirlimit/weir/proto/weir/peer/v1"
)

// noted returns a log with a clock that the test moves, and what it writes.
func noted(now *time.Time) (*refusalLog, *bytes.Buffer) {
	log := new(bytes.Buffer)
	n := newRefusalLog(slog.New(slog.NewTextHandler(log, nil)))
	n.now = func() time.Time { return *now }
	return n, log
}

// A stranger chooses what a hello contains, so that makes no lines: a host has one for
// each reason.
func TestStrangersNamesMakeNoLines(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	n, log := noted(&now)
	l := &Links{refusals: n, handshake: handshake{cluster: "test", ring: 7,
		self: peer.Member{Name: "a", Instance: 1, Wire: Wire}}}
	for i := range 1000 {
		now = now.Add(time.Minute)
		from := &net.TCPAddr{IP: net.ParseIP(fmt.Sprintf("2001:db8::%x", i)), Port: 1 + i}
		name := fmt.Sprintf(`\"%d\\`, i) + strings.Repeat("x", 1000)
		hello := &peerv1.Hello{Wire: uint32(l.handshake.self.Wire), Name: name, Cluster: name,
			RingConfig: uint64(i) * 0x9e3779b97f4a7c15}
		(&service{links: l}).refusedFrom(from, hello, l.handshake.judge(hello))
		hello.Cluster = "test"
		hello.RingConfig |= 8
		(&service{links: l}).refusedFrom(from, hello, l.handshake.judge(hello))
		hello.Wire = uint32(100 + i)
		(&service{links: l}).refusedFrom(from, hello, l.handshake.judge(hello))
	}
	if got := strings.Count(log.String(), "was refused"); got != 3 {
		t.Errorf("%d lines about a stranger who is refused for three reasons", got)
	}
	if log.Len() > 3000 {
		t.Errorf("%d bytes are logged of three refusals:\n%s", log.Len(), log)
	}
}

// From however many hosts strangers come, there are so many lines in a minute, and it is
// told how many were not written.
func TestLinesAboutStrangersAreBounded(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	n, log := noted(&now)
	say := func(from, to int) {
		for i := from; i < to; i++ {
			n.logOnce(slog.LevelWarn, "it was refused", &net.TCPAddr{IP: net.IPv4(10, 0, byte(i>>8), byte(i))},
				"it speaks HTTP/1")
		}
	}
	say(0, 3000)
	if got := strings.Count(log.String(), "it was refused"); got != maxLinesAMinute {
		t.Errorf("%d lines in a moment, want %d", got, maxLinesAMinute)
	}
	now = now.Add(time.Minute)
	say(0, maxLinesAMinute+1) // the last was not logged before
	if got := strings.Count(log.String(), "it was refused"); got != maxLinesAMinute+1 {
		t.Errorf("%d lines, want one more than %d", got, maxLinesAMinute)
	}
	if want := fmt.Sprintf("not_logged=%d", 3000-maxLinesAMinute); !strings.Contains(log.String(), want) {
		t.Errorf("it is not told that some were not written, %s:\n%s", want, log)
	}
}
