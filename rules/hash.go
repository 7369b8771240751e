package rules

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/weirlimit/weir/limiter"
)

// hashDefinitions hashes the meaning of the rules. Each is written in a normal form,
// the same for every file with the same meaning: with defaults filled in, sets sorted,
// and limits as the arithmetic uses them. The order of keys and limits is included,
// because nodes refer to them by number.
func hashDefinitions(definitions, quotas []definition) uint64 {
	h := sha256.New()
	io.WriteString(h, "weir rules 1\n")
	for i := range definitions {
		writeDefinition(h, &definitions[i])
		for _, w := range definitions[i].draws {
			fmt.Fprintf(h, "  draw %q", quotas[w.quota].name)
			if w.given {
				writeCosts(h, &w.costs)
			}
			if w.upTo > 0 { // so other files keep the hash of versions without it
				fmt.Fprintf(h, " up to %d", w.upTo)
			}
			if w.any > 0 {
				fmt.Fprintf(h, " alternative %d", w.any)
			}
			io.WriteString(h, "\n")
		}
	}
	for i := range quotas { // so a file without quotas keeps the hash of versions without them
		io.WriteString(h, "quota ")
		writeDefinition(h, &quotas[i])
	}
	return binary.LittleEndian.Uint64(h.Sum(nil))
}

func writeDefinition(w io.Writer, r *definition) {
	fmt.Fprintf(w, "rule %q ", r.name)
	writeMatch(w, &r.match)
	fmt.Fprintf(w, " continue %t unlimited %t\n", r.more, r.unlimited)
	if r.denial != nil {
		fmt.Fprintf(w, " deny %d %q shadow %t\n", r.denial.Status, r.denial.Reason, r.shadow)
		return
	}
	if r.unlimited {
		return // the rest has no effect
	}
	fmt.Fprintf(w, " shadow %t unreachable %s replication %s skip %t keys %q",
		r.shadow, r.unreachable, r.replication, r.skip, r.keys)
	writeCosts(w, &r.costs)
	if r.share > 0 { // so a file without shares keeps the hash of versions without shares
		fmt.Fprintf(w, " share %d", r.share)
	}
	if r.leases.how != leasesAuto { // so a file without leases keeps the hash of versions without them
		fmt.Fprintf(w, " leases %s", r.leases.how)
	}
	io.WriteString(w, r.ids.hashText())
	for _, l := range r.limits {
		writeLimit(w, l.Spec())
	}
	if z := &r.zoning; z.at != nil {
		fmt.Fprintf(w, " zones of %d from %q", z.limits, z.from)
	}
	io.WriteString(w, r.choosing.hashText())
	io.WriteString(w, "\n")
}

func writeCosts(w io.Writer, o *costs) {
	fmt.Fprintf(w, " cost %d", o.def)
	for _, m := range o.methods {
		fmt.Fprintf(w, " %q=%d", m.method, m.cost)
	}
	for i := range o.cases {
		c := &o.cases[i]
		io.WriteString(w, " case ")
		writeMatch(w, &c.match)
		fmt.Fprintf(w, " cost %d from %q %d %d %d", c.units, c.from, c.def, c.min, c.max)
	}
}

// writeMatch writes conditions. Those that earlier versions lacked are written only if
// they are given, so a file without them keeps its hash.
func writeMatch(w io.Writer, m *matcher) {
	fmt.Fprintf(w, "path %q methods %q groups %q attributes", m.path.String(), m.methods, m.groups)
	for i := range m.attributes {
		a := &m.attributes[i]
		fmt.Fprintf(w, " %q=%q", a.name, a.is.list)
		if a.is.pattern != nil || !a.is.given {
			fmt.Fprintf(w, " given %t pattern %q", a.is.given, a.is.pattern.String())
		}
		if a.not.given {
			fmt.Fprintf(w, " not %q pattern %q", a.not.list, a.not.pattern.String())
		}
	}
	if m.notPath != nil {
		fmt.Fprintf(w, " not_path %q", m.notPath.text)
	}
	if u := &m.user; u.given() {
		fmt.Fprintf(w, " user %t %q pattern %q not %t %q pattern %q", u.is.given, u.is.list, u.is.pattern.String(),
			u.not.given, u.not.list, u.not.pattern.String())
	}
	for _, c := range []struct {
		name string
		list any
		n    int
	}{
		{"not_methods", m.notMethods, len(m.notMethods)}, {"not_groups", m.notGroups, len(m.notGroups)},
		{"ips", m.ips, len(m.ips)}, {"not_ips", m.notIPs, len(m.notIPs)},
		{"hosts", m.hosts, len(m.hosts)}, {"not_hosts", m.notHosts, len(m.notHosts)},
	} {
		if c.n > 0 {
			fmt.Fprintf(w, " %s %q", c.name, c.list)
		}
	}
}

func writeLimit(w io.Writer, s limiter.Spec) {
	weight := 0
	if s.Weight != nil {
		weight = *s.Weight
	}
	fmt.Fprintf(w, "\n  limit %q %s %d/%d align %s sub_windows %d coverage %s weight %d rounding %s burst %d drip %s "+
		"count_rejected %s block %d",
		s.Name, s.Algorithm, s.Limit, s.Window, s.Align, s.SubWindows, s.Coverage, weight, s.Rounding, s.Burst, s.Drip,
		s.CountRejected, s.Block)
	if s.DripUnits > 1 { // so other files keep the hash of versions without it
		fmt.Fprintf(w, " drip of %d", s.DripUnits)
	}
	if s.Calendar != limiter.CalendarNone { // so other files keep the hash of versions without calendars
		fmt.Fprintf(w, " calendar %s zone %q anchor_day %d week_start %s at %s of %s",
			s.Calendar, s.Zone, s.AnchorDay, s.WeekStart, s.At, limiter.ZoneDataVersion())
	}
}
