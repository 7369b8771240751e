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

// read begins the session of a caller, reads what it asks, of the fields given, and charges its budget for it.
func (f *front) read(w http.ResponseWriter, r *http.Request, h *listen.Hold, fields func() []field) (frontend.Session,
	*question, error) {
	by, err := overhttp.Identify(f.callers, r)
	if err != nil {
		return by, nil, err
	}
	if r.Method == http.MethodGet {
		if err := by.Spend(1, len(r.URL.RawQuery)); err != nil {
			return by, nil, err
		}
		q, err := parseQuery(r.URL.RawQuery)
		return by, q, err
	}
	body, err := readBody(w, r, h)
	if err := spendRead(&by, w, 1, err); err != nil {
		return by, nil, err
	}
	q, err := parseQuestion(body, fields())
	return by, q, err
}

// ask is read, and admits what is asked.
func (f *front) ask(w http.ResponseWriter, r *http.Request, h *listen.Hold, fields func() []field,
	a Action) (frontend.Session, *question, error) {
	by, q, err := f.read(w, r, h, fields)
	if err == nil {
		err = by.Admit(&q.request, a)
	}
	return by, q, err
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
