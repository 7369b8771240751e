package rules

import (
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weirlimit/weir/internal/yamltree"
	"github.com/weirlimit/weir/limiter"
)

// maxReason is the most bytes of the reason of a denial.
const maxReason = 200

// deny decodes what a rule says about the requests that it denies; nil if it denies none.
func (d *decoder) deny(n *node) *limiter.Denial {
	out := &limiter.Denial{Status: http.StatusForbidden}
	if n.Kind == yamltree.Mapping {
		before := d.found()
		d.mapping(n, "deny", d.denyFields(out), func(name string) string {
			switch name {
			case "code", "message", "text", "body":
				return "unknown field " + quote(name) + " (in deny); write deny: {status: 403, reason: " + quote("why") + "}"
			}
			return ""
		})
		if len(n.Keys) == 0 {
			d.add(n, `deny is empty: write "deny: true", or {status: 403, reason: "why"}`)
		}
		if d.found() > before {
			return nil
		}
		return out
	}
	if !d.scalar(n, "deny") {
		return nil
	}
	is, bad := boolean(n)
	if bad != "" {
		if _, odd := integer(n.Text); odd == "" {
			bad = "write {status: " + clip(n.Text) + "} for another status than 403"
		} else if strings.ContainsRune(n.Text, ' ') {
			bad = "write {reason: " + quote(n.Text) + "} for a reason"
		}
		d.add(n, "deny: %s", bad)
		return nil
	}
	if !is {
		return nil
	}
	return out
}

func (d *decoder) denyFields(out *limiter.Denial) []field {
	return []field{
		{"status", func(_, v *node) {
			if !d.scalar(v, "status") {
				return
			}
			status, bad := integer(v.Text)
			if bad != "" || status < 400 || status > 499 {
				d.add(v, "status %s is not that of a denial: give 400 to 499, such as 403 or 429", quote(v.Text))
			}
			out.Status = int(status)
		}},
		{"reason", func(_, v *node) {
			switch {
			case !d.scalar(v, "reason"):
			case v.Text == "" || len(v.Text) > maxReason || !utf8.ValidString(v.Text) ||
				strings.ContainsFunc(v.Text, unicode.IsControl):
				d.add(v, "reason has %d bytes, or a character that cannot be shown: give 1 to %d bytes in one line", len(v.Text),
					maxReason)
			default:
				out.Reason = v.Text
			}
		}},
	}
}

// denying reports what cannot stand beside deny, and notes what has no effect there.
func (d *decoder) denying(r *definition, at *ruleNodes, counting []*node) {
	for _, other := range []struct {
		name  string
		at    *node
		wrong bool
	}{{"limits", at.limits, at.limits != nil}, {"quotas", at.quotas, at.quotas != nil},
		{"unlimited", at.unlimited, r.unlimited}} {
		if other.wrong {
			d.add(other.at, `"deny" and %q exclude each other: a rule that denies counts nothing`, other.name)
		}
	}
	if r.more && !r.shadow {
		d.add(at.more, `"continue: true" cannot be combined with "deny: true": no rule after it can allow the request`)
	}
	for _, k := range counting {
		if k.Text != "limits" && k.Text != "quotas" && k.Text != "shadow" {
			r.spare = append(r.spare, k)
		}
	}
}
