package console

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/denials"
	"github.com/weirlimit/weir/transport"
)

// Denied are the denials that the members of a cluster know.
type Denied struct {
	// Since and Until are what was asked for; zero for no bound.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
	// Members are those that answered, and Missing those that did not: what they alone knew is not in Keys.
	Members []Knows   `json:"members"`
	Missing []Missing `json:"missing"`
	// Keys are ordered by their counts, the highest first. Left is how many keys there are besides.
	Keys []denials.Key `json:"keys"`
	Left int           `json:"left,omitempty"`
}

// Knows is a member that answered.
type Knows struct {
	Member string `json:"member"`
	// Began is since when it knows denials: its start.
	Began time.Time `json:"began"`
	// Evicted is how many keys it had to forget for want of memory, Missed how many denials it did not record.
	Evicted uint64 `json:"evicted,omitempty"`
	Missed  uint64 `json:"missed,omitempty"`
}

// Late reports whether a member knows only a part of the time that was asked for.
func (k *Knows) Late(since time.Time) bool { return !since.IsZero() && k.Began.After(since) }

// denied gathers denials of all members, or, if one is set, of this node only.
func (c *Console) denied(ctx context.Context, q denials.Query, one bool) (*Denied, error) {
	if c.config.Denials == nil {
		return nil, errNotRecorded
	}
	if q.Most = min(q.Most, denials.MaxFound); q.Most <= 0 {
		q.Most = 100
	}
	out := &Denied{Since: q.Since, Until: q.Until, Missing: []Missing{}}
	add := func(member string, f *denials.Found) {
		out.Keys = denials.Merge(out.Keys, member, f.Keys)
		out.Members = append(out.Members, Knows{member, f.Began, f.Evicted, f.Missed})
		out.Left += f.Left
	}
	own := c.config.Denials.Find(q)
	add(c.name(), &own)
	if !one {
		var err error
		asks := question{Kind: "denials", Denials: &q}
		out.Missing, err = gather(ctx, c, asks, func(member string, f *denials.Found) error {
			add(member, f)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	keys, left := denials.Most(out.Keys, q.Most)
	out.Keys, out.Left = keys, out.Left+left
	if out.Keys == nil {
		out.Keys = []denials.Key{}
	}
	return out, nil
}

// serveDenials serves /v1/denials.
func (c *Console) serveDenials(w http.ResponseWriter, r *http.Request, by transport.AdminCaller) {
	q, err := queryOf(r, c.config.Now(), &by)
	var out *Denied
	if err == nil {
		out, err = c.denied(r.Context(), q, r.URL.Query().Get("one") == "true")
	}
	answer(w, &by, out, err)
}

// queryOf reads which denials are asked for. A caller with a tenant sees those of its tenant.
func queryOf(r *http.Request, now time.Time, by *transport.AdminCaller) (q denials.Query, err error) {
	if err := only(r, "user", "rule", "tenant", "key", "since", "until", "n", "one"); err != nil {
		return q, err
	}
	get := r.URL.Query().Get
	q = denials.Query{User: get("user"), Rule: get("rule"), Tenant: get("tenant"), Key: get("key")}
	for _, x := range []string{q.User, q.Rule, q.Tenant, q.Key} {
		if len(x) > 8<<10 {
			return q, invalid("a parameter has %d bytes: at most %d are possible", len(x), 8<<10)
		}
	}
	if q.Since, q.Until, err = spanOf(get("since"), get("until"), now); err != nil {
		return q, err
	}
	if text := get("n"); text != "" {
		if q.Most, err = strconv.Atoi(text); err != nil || q.Most < 1 || q.Most > denials.MaxFound {
			return q, invalid("n must be a number from 1 to %d", denials.MaxFound)
		}
	}
	if one := get("one"); one != "" && one != "true" && one != "false" {
		return q, invalid("one must be true or false")
	}
	if t := by.Tenant(); t != "" {
		if q.Tenant != "" && q.Tenant != t {
			return q, by.MayAll()
		}
		q.Tenant = t
	}
	return q, nil
}

// spanOf reads the begin and the end of a span, each of which may be empty.
func spanOf(since, until string, now time.Time) (from, to time.Time, err error) {
	if from, err = TimeOf("since", since, now); err == nil {
		to, err = TimeOf("until", until, now)
	}
	if err == nil && !from.IsZero() && !to.IsZero() && !from.Before(to) {
		err = invalid("until %q is not later than since %q, so nothing lies between: change one of them", until, since)
	}
	return from, to, err
}

// TimeOf reads a time: RFC 3339, how long ago it was, such as 10m, or a time of the last 24 hours in UTC, such as 10:32
// or 10:32:05.
func TimeOf(name, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{"15:04", "15:04:05"} {
		if t, err := time.Parse(layout, text); err == nil {
			day := now.UTC().Truncate(24 * time.Hour)
			at := day.Add(time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute +
				time.Duration(t.Second())*time.Second)
			if at.After(now) {
				at = at.Add(-24 * time.Hour)
			}
			return at, nil
		}
	}
	return time.Time{}, invalid("%s %.40q is not a time: give one such as 10:32 (UTC), 10m (ago) or %s", name, text,
		now.UTC().Truncate(time.Second).Format(time.RFC3339))
}

// missingText names members whose answers are missing.
func missingText(missing []Missing) string {
	texts := make([]string, len(missing))
	for i, m := range missing {
		texts[i] = m.Member + " (" + m.Why + ")"
	}
	slices.Sort(texts)
	return strings.Join(texts, ", ")
}
