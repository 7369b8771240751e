package disktest

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
)

// Damages returns the kinds of [Memory.Damage].
func Damages() []string {
	return []string{"truncated", "bit", "zeros", "swapped", "old", "missing", "foreign", "appended", "moved"}
}

// Damage damages a segment in one of the ways of [Damages], and returns which one and where. early is what the
// directory had before, and other that of another member. silent means that a reader may take it for the end of what
// was being written, or need not notice it. There must be a segment, here and in other.
func (m *Memory) Damage(kind string, rng *rand.Rand, early, other *Memory) (name string, at int, silent bool) {
	names := m.segments()
	name = names[rng.IntN(len(names))]
	b := m.Bytes(name)
	if len(b) == 0 {
		return name, 0, true
	}
	at = rng.IntN(len(b))
	last := name == names[len(names)-1]
	switch kind {
	case "truncated":
		m.Put(name, b[:at])
		return name, at, last
	case "bit":
		b[at] ^= 1 << rng.IntN(8)
		return name, at, last
	case "zeros":
		page := b[at&^4095 : min(at&^4095+4096, len(b))]
		nothing := len(bytes.Trim(page, "\x00")) == 0
		clear(page)
		return name, at, last || nothing
	case "swapped":
		o := names[rng.IntN(len(names))]
		c := m.Bytes(o)
		m.Put(name, c)
		m.Put(o, b)
		return name, at, o == name
	case "old":
		for _, o := range early.segments() {
			if m.Bytes(o) == nil {
				m.Put(o, bytes.Clone(early.Bytes(o)))
			}
		}
		return name, at, true // if it fits, it is replaced by what follows
	case "missing":
		_ = m.Remove(name) // it is there
		return name, at, last || name == names[0]
	case "foreign":
		theirs := bytes.Clone(other.Bytes(other.segments()[0]))
		m.Put(name, theirs)
		return name, at, len(theirs) == 0
	case "appended":
		m.Put(name, append(bytes.Clone(b), b[at:]...))
		return name, at, true // the next segment says where this one ends
	default: // moved
		before := bytes.Clone(b)
		copy(b[at/2:], before[at:min(at+5000, len(b))])
		return name, at, last || bytes.Equal(b, before)
	}
}

// segments returns the names of the segments.
func (m *Memory) segments() []string {
	all, _ := m.List() // it fails where a test says so
	return slices.DeleteFunc(all, func(n string) bool { return !strings.HasSuffix(n, ".seg") })
}
