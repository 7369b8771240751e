package gossip

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/seldom"
)

func TestTranslate(t *testing.T) {
	for _, c := range []struct {
		line  string
		level slog.Level
		text  string
		from  string
	}{
		{"[DEBUG] memberlist: Stream connection from=1.2.3.4:5\n", slog.LevelDebug, "Stream connection", "1.2.3.4:5"},
		{"[INFO] memberlist: Suspect x has failed, no acks received\n", slog.LevelDebug,
			"Suspect x has failed, no acks received", ""},
		{"[ERR] memberlist: Decrypt packet failed: no installed keys could decrypt the message from=1.2.3.4:5\n",
			slog.LevelWarn, textKey, "1.2.3.4:5"},
		{"[ERR] memberlist: msg type (99) not supported from=[::1]:5\n", slog.LevelWarn, textForeign, "[::1]:5"},
		{"[WARN] memberlist: Refuting a suspect message (from: x)\n", slog.LevelInfo,
			"another node took this one for dead, or for its former run; told it otherwise", ""},
		{"[WARN] memberlist: Was able to connect to x over TCP but UDP probes failed, network may be misconfigured\n",
			slog.LevelWarn,
			"Was able to connect to x over TCP but UDP probes failed, network may be misconfigured", ""},
		{"[ERR] memberlist: Push/Pull with x failed: dial tcp\n", slog.LevelDebug, "Push/Pull with x failed: dial tcp", ""},
		{"Err: something new\n", slog.LevelWarn, "Err: something new", ""},
	} {
		level, _, text, from := translate(c.line)
		if level != c.level || text != c.text || from != c.from {
			t.Errorf("%q:\n got %v %q %q\nwant %v %q %q", c.line, level, text, from, c.level, c.text, c.from)
		}
	}
}

// Lines that differ in numbers or in the port of their source are of one kind; lines
// about different hosts are not.
func TestKinds(t *testing.T) {
	kind := func(line string) string {
		_, k, _, _ := translate(line)
		return k
	}
	a := kind("[WARN] memberlist: new trouble (17) from=1.2.3.4:5000")
	if b := kind("[WARN] memberlist: new trouble (18) from=1.2.3.4:6000"); a != b {
		t.Errorf("%q and %q should be one kind", a, b)
	}
	if b := kind("[WARN] memberlist: new trouble (18) from=1.2.3.5:6000"); a == b {
		t.Errorf("two hosts have one kind, %q", a)
	}
	if k := kind("[ERR] memberlist: " + strings.Repeat("long ", 1000)); len(k) > maxText+10 {
		t.Errorf("a kind of %d bytes", len(k))
	}
}

// throttled returns a log whose clock is the value at the pointer, and what it logs.
func throttled(now *time.Time) (*throttledLog, *bytes.Buffer) {
	var b bytes.Buffer
	h := slog.NewTextHandler(&b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
	return newThrottledLog(slog.New(h), func() time.Time { return *now }), &b
}

func TestOnceAMinute(t *testing.T) {
	now := someday
	l, out := throttled(&now)
	for range 5 {
		l.write(slog.LevelWarn, "a", "again")
	}
	l.write(slog.LevelWarn, "b", "other")
	l.write(slog.LevelInfo, "", "always")
	l.write(slog.LevelInfo, "", "always")
	l.write(slog.LevelDebug, "", "not asked for")
	now = now.Add(seldom.Every)
	l.write(slog.LevelWarn, "a", "again")
	l.close()
	l.close()
	l.write(slog.LevelWarn, "", "too late")
	l.run()
	want := "level=WARN msg=again\nlevel=WARN msg=other\nlevel=INFO msg=always\nlevel=INFO msg=always\nlevel=WARN " +
		"msg=again repeated=4\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out, want)
	}
}

// A slow logger blocks no caller, and lost lines are counted.
func TestLinesAreDroppedNotWaitedFor(t *testing.T) {
	now := someday
	l, out := throttled(&now)
	for range maxLines + 7 {
		l.write(slog.LevelInfo, "", "line")
	}
	<-l.lines
	l.write(slog.LevelInfo, "", "after")
	l.close()
	l.run()
	if got := strings.Count(out.String(), "msg=line"); got != maxLines-1 {
		t.Errorf("%d lines, want %d", got, maxLines-1)
	}
	if !strings.Contains(out.String(), "msg=after lines_dropped=7") {
		t.Error("it is not said that 7 lines were dropped")
	}
}

// Any number of sources takes bounded memory: beyond the bound they are one kind.
func TestKindsAreBounded(t *testing.T) {
	now := someday
	l, out := throttled(&now)
	const kinds = 512
	l.lines = make(chan line, 10*kinds) // the bound of lines is another test's
	from := slog.NewLogLogger(lines{l}, slog.LevelInfo)
	for i := range 10 * kinds {
		from.Printf("[ERR] memberlist: trouble from=host-%d:1", i)
	}
	l.close()
	l.run()
	if n := strings.Count(out.String(), "\n"); n > kinds+1 {
		t.Errorf("%d lines, want %d", n, kinds+1)
	}
}

// The lines about members that come and go are bounded, and a line says that there were
// more. Whoever invents members all the time gets 20 a minute.
func TestNewsHaveABound(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(1, 0)
	l := newThrottledLog(slog.New(slog.NewTextHandler(&out, nil)), func() time.Time { return now })
	drain := func() int {
		for len(l.lines) > 0 {
			x := <-l.lines
			l.out.LogAttrs(t.Context(), x.level, x.text, x.attrs...)
		}
		n := strings.Count(out.String(), "\n")
		return n
	}
	for range 3 * maxNews {
		l.writeNews("a member joined")
		drain()
	}
	if n := drain(); n != maxNews+1 || !strings.Contains(out.String(), "not all of it is said") {
		t.Errorf("%d lines, want %d", n, maxNews+1)
	}
	now = now.Add(seldom.Every)
	before := drain()
	for range maxNews {
		l.writeNews("a member joined")
		drain()
	}
	if n := drain() - before; n != 20+1 {
		t.Errorf("a minute later there are %d lines more, want 20 and that there were more", n)
	}
	now = now.Add(maxNews * newsEvery)
	before = drain()
	for range maxNews {
		l.writeNews("a member joined")
		drain()
	}
	if n := drain() - before; n != maxNews {
		t.Errorf("after a pause there are %d lines, want %d", n, maxNews)
	}
}

// What was refused is told once a minute for each host and reason, whatever is logged.
func TestRefusalsAreTold(t *testing.T) {
	now := time.Unix(0, 0)
	l := newThrottledLog(slog.New(slog.DiscardHandler), func() time.Time { return now })
	var told []string
	l.refused = func(from, why string) { told = append(told, from+" "+why) }
	for _, from := range []string{"10.0.0.1:7", "10.0.0.1:8", "10.0.0.2:7"} {
		l.refuse("key", from, textKey)
	}
	now = now.Add(seldom.Every)
	l.refuse("key", "10.0.0.1:9", textKey)
	l.close()
	l.refuse("key", "10.0.0.3:9", textKey)
	want := []string{"10.0.0.1:7 " + textKey, "10.0.0.2:7 " + textKey, "10.0.0.1:9 " + textKey}
	if !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}
