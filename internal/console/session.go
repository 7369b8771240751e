package console

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/transport"
)

// Sessions of people who have signed in with a token.
const (
	cookieName  = "__Host-weir" // browsers take it over TLS only, for this host and all paths
	sessionLife = 12 * time.Hour
	maxSessions = 1000 // an identity has at most a quarter
	maxToken    = 8 << 10
	signInPath  = "/sign-in"
)

// sessions keeps the tokens of those who have signed in. A browser gets a random number in their place.
type sessions struct {
	mu  sync.Mutex
	of  map[string]signedIn
	key [32]byte // of the marks in forms
}

type signedIn struct {
	name  string
	token string
	until time.Time
}

func newSessions() *sessions {
	s := &sessions{of: map[string]signedIn{}}
	_, _ = rand.Read(s.key[:]) // which never fails
	return s
}

// add returns the number of a new session of an identity. At a bound the one that ends first goes, of all or of the
// identity's.
func (s *sessions) add(name, token string, now time.Time) string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // which never fails
	id := hex.EncodeToString(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	oldest, own, n := "", "", 0
	first := func(a, b string) bool { return b == "" || s.of[a].until.Before(s.of[b].until) }
	for k, v := range s.of {
		if !v.until.After(now) {
			delete(s.of, k)
			continue
		}
		if first(k, oldest) {
			oldest = k
		}
		if v.name == name {
			if n++; first(k, own) {
				own = k
			}
		}
	}
	if n >= maxSessions/share {
		delete(s.of, own)
	} else if len(s.of) >= maxSessions {
		delete(s.of, oldest)
	}
	s.of[id] = signedIn{name, token, now.Add(sessionLife)}
	return id
}

func (s *sessions) token(id string, now time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.of[id]
	if !v.until.After(now) {
		return ""
	}
	return v.token
}

func (s *sessions) end(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, id)
}

// cookie returns the number of the session of a request, empty for none.
func cookie(r *http.Request) string {
	c, err := r.Cookie(cookieName)
	if err != nil {
		return ""
	}
	return c.Value
}

// Token returns the token of a request to a page: that of its session, or, of one that signs in, that of the form.
func (c *Console) Token(r *http.Request) string {
	if r.URL.Path == signInPath && r.Method == http.MethodPost {
		if r.TLS == nil || !form(r) {
			return ""
		}
		return strings.TrimSpace(r.PostForm.Get("token"))
	}
	return c.site.sessions.token(cookie(r), c.config.Now())
}

// form reads the form of a request, of a bounded size.
func form(r *http.Request) bool {
	r.Body = http.MaxBytesReader(nil, r.Body, maxBody)
	return r.ParseForm() == nil
}

// mark returns what a form must have that a caller sends: pages of other sites do not know it.
func (s *site) mark(r *http.Request, by *transport.AdminCaller) string {
	return s.sessions.signed("form", cookie(r), by.Name())
}

// signed returns a mark of texts that this node alone can make.
func (s *sessions) signed(texts ...string) string {
	m := hmac.New(sha256.New, s.key[:])
	for _, t := range texts {
		_, _ = fmt.Fprintf(m, "%d:%s", len(t), t)
	}
	return hex.EncodeToString(m.Sum(nil))
}

// errMark is why a form is not taken.
const errMark = frontend.ForbiddenError("the form is not one of a page that this node has sent, or it is too old: " +
	"load the page again")

// plainText is what is said of a token without TLS.
const plainText = "a token is taken over TLS only: serve the administration with --tls-cert, or open the page from " +
	"the node's own machine"

// marked returns why the form of a request is not taken, nil if it is.
func (s *site) marked(r *http.Request, by *transport.AdminCaller) error {
	if by.Err != nil {
		return by.Err
	}
	if !form(r) {
		return invalid("the form cannot be read, or has more than %d bytes", maxBody)
	}
	if !hmac.Equal([]byte(r.PostForm.Get("mark")), []byte(s.mark(r, by))) {
		return errMark
	}
	return nil
}

// serveSignIn begins the session of one who shows a token.
func (s *site) serveSignIn(w http.ResponseWriter, r *http.Request, by transport.AdminCaller) {
	if r.TLS == nil {
		s.page(w, r, &by, "sign-in", http.StatusForbidden, plainText)
		return
	}
	token := strings.TrimSpace(r.PostForm.Get("token"))
	if by.Err != nil || token == "" || len(token) > maxToken {
		why := "the form has no token"
		if by.Err != nil {
			why = by.Err.Error()
		}
		s.page(w, r, &by, "sign-in", http.StatusForbidden, why)
		return
	}
	id := s.sessions.add(by.Name(), token, s.console.config.Now())
	http.SetCookie(w, &http.Cookie{Name: cookieName, Value: id, Path: "/", Secure: true, HttpOnly: true,
		SameSite: http.SameSiteStrictMode, MaxAge: int(sessionLife.Seconds())})
	by.Subject(by.Name(), "signed in to the console")
	seeOther(w, "/")
}

func (s *site) serveSignOut(w http.ResponseWriter, r *http.Request, by transport.AdminCaller) {
	if err := s.marked(r, &by); err != nil {
		s.page(w, r, &by, "sign-in", http.StatusForbidden, err.Error())
		return
	}
	s.sessions.end(cookie(r))
	http.SetCookie(w, &http.Cookie{Name: cookieName, Path: "/", Secure: true, HttpOnly: true,
		SameSite: http.SameSiteStrictMode, MaxAge: -1})
	seeOther(w, "/")
}

// seeOther sends a browser to a path of this site.
func seeOther(w http.ResponseWriter, to string) {
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}
