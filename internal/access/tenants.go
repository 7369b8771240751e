package access

import (
	"maps"
	"strconv"
	"strings"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/limiter"
)

// TenantShares returns the tenants of the file and the share of a table that each may take, as a node's SetTenantShares
// takes them. A tenant that is the only one, with all callers, has the whole table.
func (a *Access) TenantShares() map[string]int {
	p := a.force.Load()
	out := maps.Clone(p.shares)
	if len(out) != 1 || p.anonymous != nil && p.anonymous.tenant == "" {
		return out
	}
	for _, c := range p.callers {
		if c.tenant == "" && (c.may[frontend.ActionCheck].allowed || c.may[frontend.ActionRefund].allowed) {
			return out
		}
	}
	for name, share := range out {
		if share == 0 {
			out[name] = limiter.WholeShare
		}
	}
	return out
}

// tenants returns the tenants of all callers, without shares.
func (p *policy) tenants() map[string]int {
	out := map[string]int{}
	note := func(c *caller) {
		if c.tenant != "" {
			out[c.tenant] = 0
		}
	}
	for _, c := range p.callers {
		note(c)
	}
	if p.anonymous != nil {
		note(p.anonymous)
	}
	return out
}

func (l *loader) tenant(n *node) {
	var name string
	share := 0
	l.fields(n, "a tenant", map[string]func(*node){
		"name": l.text("name", limiter.MaxTenantBytes, &name),
		"max_share": func(n *node) {
			text := ""
			l.text("max_share", maxText, &text)(n)
			if share = shareOf(text); share == 0 && text != "" {
				l.add(n, "max_share %.40q is not a share of the table: give 0.1%% to 100%%, such as 60%%", text)
			}
		},
	})
	switch was, known := l.policy.shares[name]; {
	case name == "":
		l.add(n, "a tenant needs a name")
	case !known:
		l.add(n, "no identity has the tenant %q: give the name of one that has, or leave it out", name)
	case was > 0:
		l.add(n, "tenant %q is given twice", name)
	default:
		l.policy.shares[name] = share
	}
}

// shareOf returns a share in thousandths, as a rule's max_share is written; 0 if it is none.
func shareOf(text string) int {
	digits, percent := strings.CutSuffix(text, "%")
	whole, tenth, point := strings.Cut(digits, ".")
	if !point {
		tenth = "0"
	}
	n, err := strconv.ParseUint(whole+tenth, 10, 16)
	if !percent || err != nil || len(tenth) != 1 || n > limiter.WholeShare {
		return 0
	}
	return int(n)
}
