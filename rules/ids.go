package rules

import (
	"cmp"
	"fmt"
	"time"

	"github.com/dchest/siphash"

	"github.com/weirlimit/weir/limiter"
)

// idTimes is how long ids of requests are remembered. The zero value is the default.
type idTimes struct {
	ttl time.Duration // 0: limiter.DefaultIDTTL
}

// fields decodes the fields of a rule, or of the defaults, that are about ids.
func (t *idTimes) fields(d *decoder) []field {
	return []field{idTime(d, "id_ttl", &t.ttl)}
}

// idFieldNames returns the names of these fields, which a quota does not have.
func idFieldNames() []string { return []string{"id_ttl"} }

// idTime returns a field for a time in the range of [limiter.MinIDTTL] and
// [limiter.MaxIDTTL].
func idTime(d *decoder, name string, out *time.Duration) field {
	return field{name, func(_, v *node) {
		if !d.scalar(v, name) {
			return
		}
		t, bad := duration(v.text)
		if bad == "" && (t < limiter.MinIDTTL || t > limiter.MaxIDTTL) {
			bad = fmt.Sprintf("%s is out of range: give 1ms to 24h", quote(v.text))
		}
		if bad != "" {
			d.add(v, "%s: %s", name, bad)
			return
		}
		*out = t
	}}
}

// life returns how long ids are remembered, at most.
func (t *idTimes) life() time.Duration { return cmp.Or(t.ttl, limiter.DefaultIDTTL) }

// hashText returns what the hash of the rules includes of it: nothing if it is the default,
// so that a file without ids keeps the hash of earlier versions.
func (t *idTimes) hashText() string {
	if t.ttl == 0 || t.ttl == limiter.DefaultIDTTL {
		return ""
	}
	return fmt.Sprintf(" id_ttl %d", t.ttl)
}

// identify adds the id of a request to its charge. The rule with the name, which is the
// first that counts it, says how long the id is remembered; if there is none, the request
// has limits of its own and says it itself.
func identify(s *Set, r *limiter.Request, c *limiter.Charge, name string) {
	if c.Len() == 0 {
		return
	}
	ttl := cmp.Or(r.IDTTL, limiter.DefaultIDTTL)
	if i, ok := s.byName[name]; ok && i < len(s.rules) {
		most := s.rules[i].ids.life()
		ttl = min(cmp.Or(r.IDTTL, most), most)
	}
	c.ID = &limiter.Idempotency{ID: hashID(s, r.ID), Life: ttl}
}

// hashID returns the number by which an id is remembered. It is keyed as the counters of the
// set are, so that nobody outside can construct two ids with one number. It is never 0.
func hashID(s *Set, id string) uint64 {
	var buf [limiter.MaxIDBytes]byte
	return max(siphash.Hash(s.own.k0, s.own.k1, buf[:copy(buf[:], id)]), 1)
}
