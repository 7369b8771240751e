package gossip

import (
	"context"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/seldom"
)

const (
	// maxLines bounds the lines that wait for the logger, and maxText the bytes of a line.
	maxLines, maxText = 256, 300
	// maxNews is the most lines about members that come and go at once: enough for the
	// start and the end of the largest cluster. Afterwards there is one more each
	// newsEvery, since without a gossip key strangers can invent members.
	maxNews   = 2 * MaxMembers
	newsEvery = 3 * time.Second
)

// throttledLog passes lines on to a logger. A caller may hold a lock of memberlist, so no
// call blocks: lines that do not fit are dropped and counted. It is safe for concurrent
// use.
type throttledLog struct {
	out   *slog.Logger
	now   func() time.Time
	lines chan line
	// refused is [Config.Refused]; nil for none.
	refused func(from, why string)

	mu      sync.Mutex
	closed  bool
	dropped int
	logged  seldom.Lines
	news    budget // of lines about members that come and go
}

type line struct {
	level slog.Level
	text  string
	attrs []slog.Attr
}

func newThrottledLog(out *slog.Logger, now func() time.Time) *throttledLog {
	return &throttledLog{out: out, now: now, lines: make(chan line, maxLines)}
}

// run passes lines on until close.
func (l *throttledLog) run() {
	for x := range l.lines {
		l.out.LogAttrs(context.Background(), x.level, x.text, x.attrs...)
	}
}

// close ends run after the waiting lines are passed on. Later lines are dropped.
func (l *throttledLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		close(l.lines)
	}
}

// write passes a line on. A kind is logged once a minute; the empty kind always.
func (l *throttledLog) write(level slog.Level, kind, text string, attrs ...slog.Attr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || !l.out.Enabled(context.Background(), level) {
		return
	}
	more, ok := l.due(kind)
	if !ok {
		return
	}
	if more > 0 {
		attrs = append(attrs, slog.Int("repeated", more))
	}
	if l.dropped > 0 {
		attrs = append(attrs, slog.Int("lines_dropped", l.dropped))
	}
	select {
	case l.lines <- line{level, text, attrs}:
		l.dropped = 0
	default:
		l.dropped++
	}
}

// refuse logs that input was refused, and tells so, once a minute for each kind and host.
func (l *throttledLog) refuse(kind, from, text string) {
	l.write(slog.LevelWarn, kind, text, slog.String("from", from))
	l.reportRefused(kind+" "+hostOf(from), from, text)
}

// reportRefused tells a refusal of a kind, once a minute, whatever is logged.
func (l *throttledLog) reportRefused(kind, from, why string) {
	if l.refused == nil {
		return
	}
	l.mu.Lock()
	_, due := l.due("told " + kind)
	due = due && !l.closed
	l.mu.Unlock()
	if due {
		l.refused(from, why)
	}
}

// budget is how many lines may be logged now, and the time up to which it has grown.
type budget struct {
	left int
	at   time.Time
}

// take reports whether there is room for a line, and takes it. The budget grows by one
// each period, up to most, with which it begins.
func (b *budget) take(now time.Time, most int, each time.Duration) bool {
	grown := now.Sub(b.at) / each
	switch {
	case b.at.IsZero() || grown >= time.Duration(most-b.left):
		b.left, b.at = most, now
	case grown > 0:
		b.left, b.at = b.left+int(grown), b.at.Add(grown*each)
	}
	if b.left == 0 {
		return false
	}
	b.left--
	return true
}

// writeNews passes on a line about a member that came or went, within the bound of maxNews.
func (l *throttledLog) writeNews(text string, attrs ...slog.Attr) {
	kind := ""
	l.mu.Lock()
	if !l.news.take(l.now(), maxNews, newsEvery) {
		kind, text, attrs = "news", "so many members come and go that not all of it is said", nil
	}
	l.mu.Unlock()
	l.write(slog.LevelInfo, kind, text, attrs...)
}

// due reports whether a kind may be logged again, and how often it was suppressed.
func (l *throttledLog) due(kind string) (more int, ok bool) {
	if kind == "" {
		return 0, true
	}
	return l.logged.Due(kind, l.now())
}

// lines is the handler of memberlist's log lines, which have no attributes.
type lines struct{ log *throttledLog }

// Enabled returns true: the level is part of the line.
func (lines) Enabled(context.Context, slog.Level) bool { return true }

// Handle passes a line on. It never fails.
func (l lines) Handle(_ context.Context, r slog.Record) error {
	level, kind, text, source := translate(r.Message)
	var attrs []slog.Attr
	if source != "" {
		attrs = []slog.Attr{slog.String("from", source)}
	}
	l.log.write(level, kind, text, attrs...)
	if text == textKey || text == textForeign {
		l.log.reportRefused(kind, source, text)
	}
	return nil
}

// WithAttrs returns the handler unchanged.
func (l lines) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup returns the handler unchanged.
func (l lines) WithGroup(string) slog.Handler { return l }

// lineRule is the translation of a line of memberlist.
type lineRule struct {
	part  string // a part of the line
	level slog.Level
	text  string // empty keeps memberlist's text
}

const (
	textKey     = "refused gossip that is encrypted with another key, or not at all"
	textForeign = "something that is no gossip arrived on the gossip port"
	textPadded  = "a packet of gossip was dropped: it is encrypted in a way that no node uses"
)

// lineRules returns the translations of memberlist's lines; the first that matches is
// used. Lines that are logged elsewhere in other words, or do not help operators, get
// the level Debug.
func lineRules() []lineRule {
	return []lineRule{
		{"could decrypt the message", slog.LevelWarn, textKey},
		{"remote state is not encrypted", slog.LevelWarn, textKey},
		{"encryption is not configured", slog.LevelWarn, textKey},
		{"Decrypt packet failed", slog.LevelWarn, textKey},
		{"too small to decrypt", slog.LevelWarn, textKey},
		{"unsupported encryption version", slog.LevelWarn, textKey},
		{"Failed push/pull merge", slog.LevelDebug, ""},
		{"ignoring alive message", slog.LevelDebug, ""},
		{"Conflicting address for", slog.LevelDebug, ""},
		{"Failed push/pull", slog.LevelDebug, ""},
		{"Push/Pull with", slog.LevelDebug, ""},
		{"Failed to send", slog.LevelDebug, ""},
		{"Failed fallback", slog.LevelDebug, ""},
		{"Failed to forward ack", slog.LevelDebug, ""},
		{"Failed to push local state", slog.LevelDebug, ""},
		{"use of closed network connection", slog.LevelDebug, ""},
		{"Received invalid msgType", slog.LevelWarn, textForeign},
		{"not supported", slog.LevelWarn, textForeign},
		{"Failed to decode", slog.LevelWarn, textForeign},
		{"Failed to decompress", slog.LevelWarn, textForeign},
		{"Failed to read remote state", slog.LevelWarn, textForeign},
		{"failed to receive", slog.LevelWarn, textForeign},
		{"missing message type", slog.LevelWarn, textForeign},
		{"unacceptable label", slog.LevelWarn, textForeign},
		{"cannot decode label", slog.LevelWarn, textForeign},
		{"label header", slog.LevelWarn, textForeign},
		{"invalid checksum", slog.LevelWarn, textForeign},
		{"truncated messages", slog.LevelWarn, textForeign},
		{"UDP packet too short", slog.LevelWarn, textForeign},
		{"Refuting", slog.LevelInfo, "another node took this one for dead, or for its former run; told it otherwise"},
		{"over TCP but UDP probes failed", slog.LevelWarn, ""},
		{"Got ping for unexpected node", slog.LevelDebug, ""},
		{"Binding to public address without encryption", slog.LevelWarn,
			"gossip listens on a public address without encryption: anyone who reaches it can join"},
	}
}

var sourceAt = regexp.MustCompile(`\s*from=(\S+)`)

// translate splits a line of memberlist into its level, its kind (text and host), the
// text to log, and the address that it came from.
func translate(s string) (level slog.Level, kind, text, source string) {
	tag, text, ok := strings.Cut(strings.TrimSpace(s), "] ")
	if !ok {
		tag, text = "[WARN", tag
	}
	switch tag {
	case "[ERR", "[ERROR", "[WARN":
		level = slog.LevelWarn
	default:
		level = slog.LevelDebug
	}
	text = strings.TrimPrefix(text, "memberlist: ")
	if m := sourceAt.FindStringSubmatch(text); m != nil {
		source = m[1]
		text = strings.Replace(text, m[0], "", 1)
	}
	if level > slog.LevelDebug {
		for _, m := range lineRules() {
			if strings.Contains(text, m.part) {
				level = m.level
				if m.text != "" {
					text = m.text
				}
				break
			}
		}
	}
	if level > slog.LevelDebug {
		kind = kindOf(text) + " " + hostOf(source)
	}
	return level, kind, clip(text), source
}

// kindOf returns a text without its digits: lines of one kind differ by addresses, ports
// and numbers.
func kindOf(text string) string {
	return clip(strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, text))
}

// hostOf returns an address without its port, which differs for each connection.
func hostOf(addr string) string {
	if i := strings.LastIndexByte(addr, ':'); i >= 0 {
		return addr[:i]
	}
	return addr
}

func clip(s string) string {
	if len(s) > maxText {
		return strings.ToValidUTF8(s[:maxText], "") + "…"
	}
	return s
}
