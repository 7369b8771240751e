package peerlink

import (
	"context"
	"log/slog"
	"net"
	"regexp"
	"strings"
	"sync"
	"time"
)

const (
	// maxKinds bounds the remembered lines. At the bound all are forgotten, and may be
	// logged again.
	maxKinds = 1024
	// maxLinesAMinute bounds the lines per minute, whatever hosts they are about.
	maxLinesAMinute = 30
	// maxShown is the most bytes of a stranger's name that are logged.
	maxShown = 64
)

// refusalLog logs each kind of refusal of a host once, because a refused node tries again
// many times a second. The text of a refusal has what a stranger has sent, so its names and
// numbers make no new kind. It is safe for concurrent use.
type refusalLog struct {
	log *slog.Logger
	now func() time.Time

	report func(from, why string) // receives each refusal; nil: none does

	mu    sync.Mutex
	said  map[string]bool // by host and kind
	since time.Time       // when the present minute began
	lines int             // lines of the present minute
	left  int             // refusals that were not logged because of maxLinesAMinute
}

func newRefusalLog(log *slog.Logger) *refusalLog {
	return &refusalLog{log: log, now: time.Now, said: make(map[string]bool)}
}

// logOnce logs a refusal of a host, unless one of the kind was logged for that host before,
// or there are too many lines.
func (n *refusalLog) logOnce(level slog.Level, text string, from net.Addr, reason string) {
	host, network := "unknown", ""
	if from != nil {
		host, network = from.String(), hostOf(from)
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
	}
	reason = cut(reason, maxReason)
	if n.report != nil && from != nil && level >= slog.LevelWarn {
		n.report(from.String(), text+": "+reason)
	}
	left, ok := n.due(network + "\x00" + general(text) + "\x00" + general(reason))
	if !ok {
		return
	}
	args := []any{"host", host, "reason", reason}
	if left > 0 {
		args = append(args, "not_logged", left)
	}
	n.log.Log(context.Background(), level, text+"; this is said once", args...)
}

// due reports whether to log a refusal, and how many before it were not logged.
func (n *refusalLog) due(key string) (left int, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.said[key] {
		return 0, false
	}
	if now := n.now(); now.Sub(n.since) >= time.Minute {
		n.since, n.lines = now, 0
	}
	if n.lines >= maxLinesAMinute {
		n.left++
		return 0, false
	}
	if len(n.said) >= maxKinds {
		clear(n.said)
	}
	n.said[key] = true
	n.lines++
	left, n.left = n.left, 0
	return left, true
}

// particulars are what a text quotes, instances, hashes and numbers.
var particulars = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|[0-9a-f]{8,}|[0-9]+`)

// general returns a text without its particulars.
func general(text string) string { return particulars.ReplaceAllString(text, "") }

// cut returns the beginning of a text, of at most so many bytes and an ellipsis.
func cut(s string, most int) string {
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
