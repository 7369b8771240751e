package console

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/denials"
)

// refusedLook answers: who is being refused?
type refusedLook struct {
	User    string       `json:"user,omitempty"`
	Rule    string       `json:"rule,omitempty"`
	Tenant  string       `json:"tenant,omitempty"`
	Since   string       `json:"since,omitempty"`
	Until   string       `json:"until,omitempty"`
	Rows    []refusedRow `json:"rows"`
	Left    int          `json:"left,omitempty"`
	Missing []Missing    `json:"missing"`
	Late    []Knows      `json:"late"`
	Off     bool         `json:"off,omitempty"`
}

type refusedRow struct {
	denials.Key
	Again time.Time `json:"free_again,omitzero"`
}

// Sample returns the last one, nil if there is none.
func (r *refusedRow) Sample() *denials.Taken {
	if n := len(r.Samples); n > 0 {
		return &r.Samples[n-1]
	}
	return nil
}

func (r *refusedRow) Why() string { return whyLink(r.Rule, r.Tenant, r.Sample()) }

// Used is how much of the limit was used, as a part of 100; -1 if it is not known.
func (r *refusedRow) Used() int {
	s := r.Sample()
	if s == nil || s.Capacity == 0 {
		return -1
	}
	return int(100 * (s.Capacity - min(s.Capacity, s.Remaining)) / s.Capacity)
}

func (r *refusedRow) UsedText() string {
	s := r.Sample()
	if s == nil || s.Capacity == 0 {
		return ""
	}
	return group(s.Capacity-min(s.Capacity, s.Remaining)) + " of " + group(s.Capacity)
}

// whyLink returns the address of the page Why for a request that was refused.
func whyLink(rule, tenant string, s *denials.Taken) string {
	if s == nil {
		return "/why"
	}
	v := newQuery("path", s.Path, "method", s.Method, "user", s.User, "ip", s.IP, "tenant", tenant)
	if s.Path == "" {
		v = newQuery("rule", rule, "user", s.User, "ip", s.IP, "tenant", tenant)
	}
	return "/why?" + v
}

// What a member says of a time beyond these is not shown: no JSON has it.
const (
	maxAgain = 10 * 366 * 24 * 3600 * 1000 // milliseconds
	maxAhead = 24 * time.Hour
)

func (c *Console) lookRefused(ctx context.Context, asked url.Values, tenant string) (*refusedLook, error) {
	get := asked.Get
	out := &refusedLook{User: get("user"), Rule: get("rule"), Tenant: get("tenant"), Since: cmp.Or(get("since"), "1h"),
		Until: get("until"), Rows: []refusedRow{}, Missing: []Missing{}}
	if tenant != "" {
		out.Tenant = tenant
	}
	if c.config.Denials == nil {
		out.Off = true
		return out, nil
	}
	now := c.config.Now()
	q := denials.Query{User: out.User, Rule: out.Rule, Tenant: out.Tenant, Most: 50}
	var err error
	if q.Since, q.Until, err = spanOf(out.Since, out.Until, now); err != nil {
		return nil, err
	}
	name := "refused " + strings.Join([]string{q.User, q.Rule, q.Tenant, out.Since, out.Until}, "\x00")
	d, err := shared(ctx, &c.snapshots, name,
		func(ctx context.Context) (*Denied, error) { return c.denied(ctx, q, false) })
	if err != nil {
		return nil, err
	}
	out.Left, out.Missing = d.Left, d.Missing
	for _, k := range d.Members {
		if k.Late(q.Since) && q.Since.Before(now.Add(-time.Hour-time.Minute)) || k.Late(q.Since) && out.Until != "" {
			out.Late = append(out.Late, k)
		}
	}
	for i := range d.Keys {
		row := refusedRow{Key: d.Keys[i]}
		if s := row.Sample(); s != nil && s.RetryAfterMs > 0 && s.RetryAfterMs < maxAgain &&
			s.Time.Before(now.Add(maxAhead)) {
			if again := s.Time.Add(time.Duration(s.RetryAfterMs) * time.Millisecond); again.After(now) {
				row.Again = again
			}
		}
		out.Rows = append(out.Rows, row)
	}
	slices.SortStableFunc(out.Rows, func(a, b refusedRow) int {
		return cmp.Or(cmp.Compare(b.LastMinute, a.LastMinute), cmp.Compare(b.Count, a.Count))
	})
	return out, nil
}
