package console

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weirlimit/weir/metrics"
)

// look is what a page is made of, and what it answers as JSON.
type look struct {
	At    time.Time `json:"at"`
	Frame frame     `json:"cluster"`

	Now     *nowLook     `json:"now,omitempty"`
	Refused *refusedLook `json:"refused,omitempty"`
	Why     *whyLook     `json:"why,omitempty"`
	Rules   *rulesLook   `json:"rules,omitempty"`
	Members *membersLook `json:"members,omitempty"`
}

// frame is what every page has.
type frame struct {
	Cluster string `json:"name"`
	Member  string `json:"member"`
	Active  int    `json:"members_active"`
	All     int    `json:"members"`
	Rules   string `json:"rules"`
	Same    bool   `json:"rules_same"`
	// Cert is the certificate that ends first; CertSoon: in its last quarter.
	Cert      string    `json:"certificate,omitempty"`
	CertEnds  time.Time `json:"certificate_ends,omitzero"`
	CertSoon  bool      `json:"certificate_soon,omitempty"`
	Overrides int       `json:"overrides"`
	// Where is where overrides are in force.
	Where    string    `json:"-"`
	Problems []problem `json:"problems"`
}

// problem is something that is wrong now, and where one sees more. Soon: it is not wrong yet.
type problem struct {
	Text string `json:"text"`
	Link string `json:"-"`
	Soon bool   `json:"soon,omitempty"`
}

// frame returns it. An administrator of a tenant sees nothing of what all tenants share.
func (c *Console) frame(tenant string) frame {
	if tenant != "" {
		return frame{Cluster: c.config.Cluster, Member: c.name(), Problems: []problem{}, Where: c.config.where(),
			Overrides: len(c.Overriding.active(tenant).Overrides)}
	}
	node, now := c.config.Node(), c.config.Now()
	f := frame{Cluster: c.config.Cluster, Member: c.name(), Rules: fmt.Sprintf("%08x", node.RulesHash()>>32), Same: true,
		All: 1, Active: 1, Where: c.config.where(), Problems: []problem{}, Overrides: len(c.config.Overrides.Active(now))}
	if members := c.outlook.members(); len(members) > 0 {
		f.All, f.Active = 0, 0
		for i := range members {
			m := &members[i]
			switch {
			case m.State == "expelled":
				continue
			case m.State == "dead":
				f.Problems = append(f.Problems, problem{Text: "member " + m.Name + " is dead", Link: "/members"})
			case m.Unreachable:
				f.Problems = append(f.Problems, problem{Text: "this member has no connection to " + m.Name, Link: "/members"})
			case m.State == "active":
				f.Active++
			}
			f.All++
			if m.State != "dead" && m.RulesHash != node.RulesHash() && f.Same {
				f.Same = false
				f.Problems = append(f.Problems, problem{Text: "the members do not have the same rules", Link: "/rules"})
			}
		}
	}
	for _, w := range node.Warnings() {
		f.Problems = append(f.Problems, problem{Text: w, Link: "/members"})
	}
	f.certificates(c.config.Certificates, now)
	return f
}

func (f *frame) certificates(of func() map[string]metrics.Validity, now time.Time) {
	if of == nil {
		return
	}
	all := of()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		v := all[name]
		if v.Expires.IsZero() || !f.CertEnds.IsZero() && !v.Expires.Before(f.CertEnds) {
			continue
		}
		f.Cert, f.CertEnds = name, v.Expires.UTC()
		f.CertSoon = v.Expires.Sub(now) < v.Expires.Sub(v.Begins)/4
	}
	switch {
	case f.CertEnds.IsZero():
	case f.CertEnds.Before(now):
		f.Problems = append(f.Problems, problem{Text: "the certificate \"" + f.Cert + "\" has ended"})
	case f.CertSoon:
		f.Problems = append(f.Problems, problem{Text: fmt.Sprintf("the certificate %q ends in %s", f.Cert,
			long(f.CertEnds.Sub(now))), Soon: true})
	}
}

// long writes a duration in words of its two largest units.
func long(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d d", int(d.Hours()/24))
}
