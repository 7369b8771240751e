package transport

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/frontend/overhttp"
)

// The requests of a connection of HTTP have one place for who its certificate proves, and
// those of another have another.
func TestConnectionsOfHTTPAreKnown(t *testing.T) {
	request := func(conn context.Context) *Known {
		return overhttp.Credentials(httptest.NewRequestWithContext(conn, http.MethodGet, "/", nil)).Known
	}
	one, other := overhttp.WithKnown(t.Context(), nil), overhttp.WithKnown(t.Context(), nil)
	if k := request(one); k == nil || k != request(one) || k == request(other) {
		t.Errorf("%p, %p and %p", k, request(one), request(other))
	}
	if s, err := NewServer(Options{Decider: noDecider{}}); err != nil || s.http.ConnContext == nil {
		t.Errorf("%v: a server's connections are not known", err)
	}
}

// noDecider decides nothing.
type noDecider struct{ Decider }

// accessAt is an Access that notes the time it is given, and refuses.
type accessAt struct{ at time.Time }

func (a *accessAt) Identify(c Credentials) (Caller, error) {
	a.at = c.At
	return nil, ErrUnauthenticated
}

// A unary check reads the clock once for its duration and for its caller. A server that
// does not measure the duration leaves the clock to the Access.
func TestCallersAreIdentifiedAtTheTimeOfTheCall(t *testing.T) {
	access := new(accessAt)
	s := newService(Options{Decider: noDecider{}, Access: access})
	for _, begin := range []time.Time{time.Unix(1000, 0), {}} {
		err := (&check{service: s}).decide(t.Context(), begin)
		if !errors.Is(err, ErrUnauthenticated) || !access.at.Equal(begin) {
			t.Errorf("a check of %v is identified at %v: %v", begin, access.at, err)
		}
	}
}
