package client_test

import (
	"testing"

	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/internal/front"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/transport"
)

const remarked = `
version: 1
quotas:
  - {name: units, key: [user], limits: [{limit: 1, calendar: year}]}
rules:
  - {name: search, match: {path: "^/search$"}, quotas: [units]}
  - {name: partners, key: [user], limits: [{limit: 9, calendar: day, zone: "attr:tz"}]}
`

// A decision says which rule drew on the quota that denied, and whose default time zone
// counted, by each way to ask for every limit. An answer made of it says so, too.
func TestRemarks(t *testing.T) {
	denied := limiter.Request{Path: "/search", User: "ada"}
	unzoned := limiter.Request{User: "ada", Attributes: map[string]string{"tz": "Nowhere"}}
	zoned := limiter.Request{User: "ada", Attributes: map[string]string{"tz": "Europe/Berlin"}}
	for name, ask := range map[string]func(*client.Client, limiter.Request) (limiter.Decision, error){
		"a stream": func(c *client.Client, r limiter.Request) (limiter.Decision, error) { return c.Check(t.Context(), r) },
		"a call": func(c *client.Client, r limiter.Request) (limiter.Decision, error) {
			return c.CheckWithReceipt(t.Context(), r)
		},
		"a batch": func(c *client.Client, r limiter.Request) (limiter.Decision, error) {
			ds, err := c.CheckBatch(t.Context(), []limiter.Request{r})
			return ds[0], err
		},
	} {
		addr := serve(t, newNode(t, remarked), "", func(o *transport.Options) { o.AllowRefunds = true }).addr
		c := open(t, client.Config{Addrs: []string{addr}, Timeout: long, EveryLimit: true})
		for i, step := range []struct {
			r    limiter.Request
			want limiter.Remarks
		}{
			{denied, limiter.Remarks{}}, {denied, limiter.Remarks{DrawnBy: "search"}},
			{unzoned, limiter.Remarks{ZoneDefault: "partners"}}, {zoned, limiter.Remarks{}},
		} {
			d, err := ask(c, step.r)
			if err != nil {
				t.Fatal(err)
			}
			a := limiter.NewAnswer(&d, func(int) string { return "" })
			if got := d.Remarks(); got != step.want || a.DrawnBy != got.DrawnBy || a.ZoneDefault != got.ZoneDefault {
				t.Errorf("by %s, check %d: %+v, want %+v; the answer %+v", name, i, got, step.want, a)
			}
		}
	}
}

// A limit of a calendar has no length in RateLimit-Policy, and a denial names its unit, as where the node itself
// answers. So it is with one limit of each decision, and with every one.
func TestCalendarsAreTold(t *testing.T) {
	addr := serve(t, newNode(t, remarked), "", func(o *transport.Options) { o.AllowRefunds = true }).addr
	for _, every := range []bool{false, true} {
		c := open(t, client.Config{Addrs: []string{addr}, Timeout: long, EveryLimit: every})
		for range 2 {
			d, err := c.Check(t.Context(), limiter.Request{Path: "/search", User: "eve"})
			if err != nil {
				t.Fatal(err)
			}
			policy := string(front.AppendPolicy(nil, front.Limits(nil, &d)))
			if rate := front.Rate(d.Limit(0).Limit); policy != `"units/year";q=1` || rate != "1/calendar year" {
				t.Errorf("every limit %v: policy %s, rate %s", every, policy, rate)
			}
		}
		d, err := c.CheckWithReceipt(t.Context(), limiter.Request{User: "eve"})
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Limit(0).Limit.Calendar(); got != limiter.CalendarDay {
			t.Errorf("by a call: %s", got)
		}
	}
}
