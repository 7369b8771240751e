package transport

import (
	"errors"
	"io"
	"net/http"
	"strconv"

	fields "github.com/weirlimit/weir/internal/front"
	"github.com/weirlimit/weir/internal/frontend"
)

type statusWriter struct {
	http.ResponseWriter
	status int
	begun  bool
	body   body // of the request

	instead int // the status that a web proxy wants for refusals; 0: the refusal's own

	// For the audit.
	why, did, subject string // did: of what is done
	refusedParts      int    // checks of a batch that were refused
	decided           bool   // the status is that of a decision, not of a refusal
}

func (w *statusWriter) WriteHeader(status int) {
	if w.instead != 0 {
		w.Header().Set(fields.InsteadOf, strconv.Itoa(status))
		status = w.instead
	}
	w.status, w.begun = status, true
	if status >= http.StatusBadRequest && w.body.unread() {
		// Otherwise the server would read from the body first, and answer then.
		_ = http.NewResponseController(w.ResponseWriter).EnableFullDuplex()
		w.Header().Set("Connection", "close") // what follows is no request, if the body never ends
	}
	w.ResponseWriter.WriteHeader(status)
}

// body is the body of a request. It knows whether it was read to its end.
type body struct {
	io.ReadCloser
	over bool
	n    int // bytes that were read
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.over = b.over || errors.Is(err, io.EOF)
	b.n += n
	return n, err
}

// unread reports whether there is a body, and it was not read to its end.
func (b *body) unread() bool { return b.ReadCloser != nil && b.ReadCloser != http.NoBody && !b.over }

// discard reads the rest of a body that was refused, up to its bound, and keeps nothing of
// it. The answer is sent before. A connection that is closed while its client still sends
// is reset, and the client may then see no answer. A client that waits for leave to send
// (Expect: 100-continue) does not get it.
func (w *statusWriter) discard(r *http.Request) {
	if w.status < http.StatusBadRequest || !w.body.unread() || r.Header.Get("Expect") != "" {
		return
	}
	if http.NewResponseController(w.ResponseWriter).Flush() == nil {
		_, _ = io.CopyN(io.Discard, &w.body, MaxBodyBytes) // whatever becomes of it, the answer is sent
	}
}

// Refused records why the request is refused, for the auditor.
func (w *statusWriter) Refused(why error) { w.why = frontend.AuditText(why) }

// Unwrap gives [http.ResponseController] access to the underlying writer.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// subject notes, for the auditor, what a request is about.
func subject(w http.ResponseWriter, text string) {
	if seen, ok := w.(*statusWriter); ok {
		seen.subject = text
	}
}
