package table

import (
	crand "crypto/rand"
	"encoding/binary"
	"math/rand/v2"
)

// order is the order of counters in memory: a permutation of the 64 bits by which
// keys are known, private to the process. Slots hold what it makes of a hash, and an
// export undoes it, so nodes exchange hashes and nothing of their orders.
//
// Where the hash of keys has no secret, or whoever asks knows it, keys can be
// searched for that are neighbours by their hashes. They must not be neighbours in
// memory, where every search would have to pass them all.
//
// The product by a random odd number gives any two hashes one home with a probability
// of at most 2 in the number of homes, whatever they are: their difference before it
// is an odd multiple of a power of two, the product makes that any other such multiple
// with the same chance, and a home is told from the top bits. So of any n hashes that
// were chosen without knowing the number, the longest run is in the order of the root
// of n at most, and that of random ones for all that are known.
//
// The product alone is linear: whoever found two neighbours, by the time that checks
// take, could go on by their difference. The random sum and the shift before it are
// not linear in the same numbers, so a difference that brings two hashes together
// does so for few others.
//
// It is no cipher: who sees many exports in their order might find the numbers.
// Memory follows the number of counters even then, see [slots]. It takes 1 to 2 ns.
type order struct {
	add, factor uint64 // factor is odd
	undo        uint64 // the inverse of factor, modulo 2^64
}

// newOrder draws an order from r.
func newOrder(r rand.Source) order {
	o := order{add: r.Uint64(), factor: r.Uint64() | 1}
	o.undo = inverse(o.factor)
	return o
}

// systemRandom is the system's source of random numbers.
type systemRandom struct{}

func (systemRandom) Uint64() uint64 {
	var b [8]byte
	_, _ = crand.Read(b[:]) // which never fails
	return binary.LittleEndian.Uint64(b[:])
}

// of returns where a hash stands.
func (o *order) of(hash uint64) uint64 {
	x := hash + o.add
	return (x ^ x>>32) * o.factor
}

// hash returns the hash that stands there.
func (o *order) hash(place uint64) uint64 {
	x := place * o.undo
	return (x ^ x>>32) - o.add
}

// inverse returns the number by which an odd one must be multiplied to make 1, by
// Newton's method: each round doubles the bits that are right, of which x itself has
// three.
func inverse(x uint64) uint64 {
	y := x
	for range 5 {
		y *= 2 - x*y
	}
	return y
}
