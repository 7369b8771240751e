package console

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/transport"
)

// act serves a form that changes something.
func (s *site) act(do func(http.ResponseWriter, *http.Request, *transport.AdminCaller)) func(http.ResponseWriter,
	*http.Request, transport.AdminCaller) {
	return func(w http.ResponseWriter, r *http.Request, by transport.AdminCaller) {
		if err := s.marked(r, &by); err != nil {
			s.page(w, r, &by, "problem", statusOf(err), err.Error())
			return
		}
		do(w, r, &by)
	}
}

// back returns to the page that the form was on.
func (s *site) back(w http.ResponseWriter, r *http.Request, by *transport.AdminCaller, why *whyLook, done string,
	n int) {
	v := newQuery("path", why.Path, "method", why.Method, "user", why.User, "ip", why.IP, "group", why.Group, "rule",
		why.Rule,
		"tenant", why.Tenant, "attributes", why.Attributes, "done", done, "n", fmt.Sprint(n),
		"said", s.said(r, by, done, fmt.Sprint(n)))
	seeOther(w, "/why?"+v)
}

// actReset forgets the counters of a request.
func (s *site) actReset(w http.ResponseWriter, r *http.Request, by *transport.AdminCaller) {
	why := readWhy(r.PostForm.Get, by.Tenant())
	q, err := why.requestOf()
	if err == nil {
		err = by.Admit(&q, why.Tenant, transport.ActionReset)
	}
	var e *limiter.Explanation
	if err == nil {
		e, err = s.console.config.Node().Explain(r.Context(), q)
	}
	n := 0
	if err == nil {
		n, err = s.console.config.Node().Reset(r.Context(), q)
		keys := []string{}
		for i := range e.Limits {
			keys = append(keys, e.Limits[i].Key)
		}
		by.Subject("rule "+e.Answer.Rule+" keys "+strings.Join(keys, " "), fmt.Sprintf("%d counters deleted", n))
	}
	if err != nil {
		s.page(w, r, by, "problem", http.StatusForbidden, err.Error())
		return
	}
	s.back(w, r, by, why, "reset", n)
}

// wantedOf reads the form of an override.
func wantedOf(r *http.Request, tenant string) *Wanted {
	get := r.PostForm.Get
	w := &Wanted{Rule: get("orule"), User: get("ouser"), IP: get("oip"), Tenant: get("tenant"), For: get("for"),
		Why: get("why")}
	if tenant != "" {
		w.Tenant = tenant
	}
	switch get("kind") {
	case "deny":
		w.Deny = true
	case "unlimited":
		w.Unlimited = true
	case "limit":
		w.Limit = strings.TrimSpace(get("limit"))
	}
	return w
}

func (s *site) actOverride(w http.ResponseWriter, r *http.Request, by *transport.AdminCaller) {
	want := wantedOf(r, by.Tenant())
	by.Subject(subjectOf(want), want.what())
	if err := s.console.Overriding.set(want, by); err != nil {
		s.page(w, r, by, "problem", http.StatusBadRequest, err.Error())
		return
	}
	s.back(w, r, by, readWhy(r.PostForm.Get, by.Tenant()), "set", 0)
}

func (s *site) actRemove(w http.ResponseWriter, r *http.Request, by *transport.AdminCaller) {
	want := wantedOf(r, by.Tenant())
	by.Subject(subjectOf(want), "removed")
	if err := s.console.Overriding.remove(want, by); err != nil {
		s.page(w, r, by, "problem", http.StatusBadRequest, err.Error())
		return
	}
	s.back(w, r, by, readWhy(r.PostForm.Get, by.Tenant()), "removed", 0)
}
