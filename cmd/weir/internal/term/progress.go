package term

import (
	"fmt"
	"io"
	"time"
)

// Progress shows the progress of long work on one line. It writes nothing until the
// work has taken [ProgressAfter], and nothing at all if the stream is not a terminal.
// It is not safe for concurrent use.
type Progress struct {
	w       io.Writer
	width   int
	now     func() time.Time
	next    time.Time
	visible bool
}

const (
	// ProgressAfter is how long work takes before its progress is shown.
	ProgressAfter = 500 * time.Millisecond
	// ProgressEvery is how often the display is updated.
	ProgressEvery = 100 * time.Millisecond
)

// NewProgress returns the progress of work that begins now.
func NewProgress(w io.Writer, s Style, now func() time.Time) *Progress {
	p := &Progress{w: w, width: s.Width, now: now}
	if s.Terminal {
		p.next = now().Add(ProgressAfter)
	}
	return p
}

// Show shows how much of a whole is done, if an update is due. A whole of 0 is unknown;
// then only the name of the work is shown.
func (p *Progress) Show(work string, done, whole int64) {
	if p.next.IsZero() {
		return
	}
	t := p.now()
	if t.Before(p.next) {
		return
	}
	p.next, p.visible = t.Add(ProgressEvery), true
	text := work + " …"
	if whole > 0 {
		text = fmt.Sprintf("%s … %d %%", work, min(100, done*100/whole))
	}
	// A wrapped line could not be erased.
	p.write("\r\x1b[K" + Cut(text, p.width-1))
}

// Clear erases the line, so that something else can be printed.
func (p *Progress) Clear() {
	if p.visible {
		p.write("\r\x1b[K")
		p.visible = false
	}
}

// write ignores errors, since the work does not depend on its display.
func (p *Progress) write(text string) { _, _ = io.WriteString(p.w, text) }
