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
func hashDefinitions(definitions []definition) uint64 {
	h := sha256.New()
	io.WriteString(h, "weir rules 1\n")
	for i := range definitions {
		writeDefinition(h, &definitions[i])
	}
	return binary.LittleEndian.Uint64(h.Sum(nil))
}

func writeDefinition(w io.Writer, r *definition) {
	path := ""
	if r.match.path != nil {
		path = r.match.path.text
	}
	fmt.Fprintf(w, "rule %q path %q methods %q groups %q attributes", r.name, path, r.match.methods, r.match.groups)
	for _, a := range r.match.attributes {
		fmt.Fprintf(w, " %q=%q", a.name, a.values)
	}
	fmt.Fprintf(w, " continue %t unlimited %t\n", r.more, r.unlimited)
	if r.unlimited {
		return // the rest has no effect
	}
	fmt.Fprintf(w, " shadow %t unreachable %s replication %s skip %t keys %q",
		r.shadow, r.unreachable, r.replication, r.skip, r.keys)
	fmt.Fprintf(w, " cost %d", r.costs.def)
	for _, m := range r.costs.methods {
		fmt.Fprintf(w, " %q=%d", m.method, m.cost)
	}
	if r.share > 0 { // so a file without shares keeps the hash of versions without shares
		fmt.Fprintf(w, " share %d", r.share)
	}
	for _, l := range r.limits {
		writeLimit(w, l.Spec())
	}
	io.WriteString(w, "\n")
}

func writeLimit(w io.Writer, s limiter.Spec) {
	weight := 0
	if s.Weight != nil {
		weight = *s.Weight
	}
	fmt.Fprintf(w, "\n  limit %q %s %d/%d align %s sub_windows %d coverage %s weight %d rounding %s burst %d drip %s count_rejected %s block %d",
		s.Name, s.Algorithm, s.Limit, s.Window, s.Align, s.SubWindows, s.Coverage, weight, s.Rounding, s.Burst, s.Drip,
		s.CountRejected, s.Block)
}
