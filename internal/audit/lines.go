package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf16"
)

// maxLines is how many lines wait to be written. What comes beyond it is left out, and counted.
const maxLines = 4096

// Lines writes objects as lines of JSON to a file, which programs can rotate as that of a [Log]. It is safe for
// concurrent use.
type Lines struct {
	out   output
	what  string
	log   *slog.Logger
	lines chan []byte
	left  atomic.Uint64
	done  chan struct{}
	ended chan struct{}
	once  sync.Once
	bad   trouble
}

// OpenLines opens a file, or standard error for "stderr". what names a line, for the log.
func OpenLines(to, what string, log *slog.Logger) (*Lines, error) {
	out, err := openOutput(to, what+" log")
	if err != nil {
		return nil, err
	}
	l := &Lines{out: out, what: what, log: log, lines: make(chan []byte, maxLines), done: make(chan struct{}),
		ended: make(chan struct{})}
	go l.run()
	return l, nil
}

// Write writes an object as a line. It does not wait: beyond the bound the line is left out, and a later line says how
// many were.
func (l *Lines) Write(v any) {
	if len(l.lines) == cap(l.lines) {
		l.left.Add(1)
		return
	}
	b, err := json.Marshal(v)
	if err != nil {
		l.left.Add(1)
		return
	}
	select {
	case l.lines <- append(visible(b), '\n'):
	default:
		l.left.Add(1)
	}
}

// visible returns JSON with escapes in place of characters that cannot be seen: those that control a terminal, and
// those that change the direction of what stands beside them. Clients choose names.
func visible(text []byte) []byte {
	hidden := func(r rune) bool { return r >= 0x7f && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) }
	if !bytes.ContainsFunc(text, hidden) {
		return text
	}
	var b bytes.Buffer
	for _, r := range string(text) {
		if !hidden(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.Bytes()
}

// Close writes what waits, and ends. It waits for at most two seconds.
func (l *Lines) Close() {
	l.once.Do(func() { close(l.done) })
	select {
	case <-l.ended:
	case <-time.After(closeWithin):
	}
}

func (l *Lines) run() {
	defer close(l.ended)
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		select {
		case b := <-l.lines:
			l.write(b)
		case <-tick.C:
			l.sayLeft()
			l.trouble(l.out.look())
		case <-l.done:
			for len(l.lines) > 0 {
				l.write(<-l.lines)
			}
			l.sayLeft()
			l.trouble(l.out.Close())
			return
		}
	}
}

func (l *Lines) write(b []byte) {
	_, err := l.out.Write(b)
	l.trouble(err)
}

func (l *Lines) sayLeft() {
	if n := l.left.Swap(0); n > 0 {
		b, _ := json.Marshal(struct {
			Time    string `json:"time"`
			LeftOut uint64 `json:"left_out"`
		}{time.Now().UTC().Format(time.RFC3339Nano), n})
		l.write(append(b, '\n'))
	}
}

func (l *Lines) trouble(err error) {
	if err != nil && l.bad.begins(time.Now()) {
		l.log.Error(l.what+" lines cannot be written", "error", err)
	}
}
