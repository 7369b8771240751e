package transport

import (
	"net/http"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/frontend/overhttp"
	"github.com/weirlimit/weir/internal/listen"
)

// front is the HTTP interface. It is safe for concurrent use.
type front struct {
	*service
	*site
	callers *frontend.Frontend // what their sessions share
}

// readQuestion reads a check, and charges the caller's budget for it.
func (f *front) readQuestion(w http.ResponseWriter, r *http.Request, h *listen.Hold, by *frontend.Session) (*question,
	error) {
	if r.Method == http.MethodGet {
		if err := by.Spend(1, len(r.URL.RawQuery)); err != nil {
			return nil, err
		}
		return parseQuery(r.URL.RawQuery)
	}
	body, err := readBodyOf(by, w, r, h)
	if err != nil {
		return nil, err
	}
	return parseQuestion(body, f.checkFields())
}

// ask reads what a caller posts to have something done, of the fields given, charges the
// caller's budget for it, and admits it.
func (f *front) ask(w http.ResponseWriter, r *http.Request, h *listen.Hold, fields []field, a Action) (frontend.Session,
	*question, error) {
	by, err := overhttp.Identify(f.callers, r)
	if err != nil {
		return by, nil, err
	}
	body, err := readBodyOf(&by, w, r, h)
	var q *question
	if err == nil {
		q, err = parseQuestion(body, fields)
	}
	if err == nil {
		err = by.Admit(&q.request, a)
	}
	return by, q, err
}

// readBodyOf reads the body of a message that asks for one thing, and charges the caller's budget
// for it.
func readBodyOf(by *frontend.Session, w http.ResponseWriter, r *http.Request, h *listen.Hold) ([]byte, error) {
	body, err := readBody(w, r, h)
	return body, spendRead(by, w, 1, err)
}

// spendRead charges the caller's budget for the body of a message of so many checks, which may
// be no message at all: err is why. One for which there was no room costs nothing, as it is to
// be sent again. It returns the first error, of the budget before that of the message.
func spendRead(by *frontend.Session, w http.ResponseWriter, checks int, err error) error {
	if listen.LacksRoom(err) {
		return err
	}
	if over := by.Spend(checks, readBytes(w)); over != nil {
		return over
	}
	return err
}

// readBytes returns how many bytes of a body were read.
func readBytes(w http.ResponseWriter) int {
	if seen, ok := w.(*statusWriter); ok {
		return seen.body.n
	}
	return 0
}
