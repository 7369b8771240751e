package table

import (
	crand "crypto/rand"
	"encoding/binary"
	"math/rand/v2"
	"slices"

	"github.com/weirlimit/weir/limiter/arith"
)

// order is the order of counters in memory: a permutation of 64-bit hashes that is
// private to the process. Slots store the permuted hash (the place), and an export
// undoes the permutation. So nodes exchange hashes and learn nothing of each other's
// orders.
//
// If the hash of keys has no secret, or an attacker knows it, keys can be found whose
// hashes are neighbours. They must not be neighbours in memory, since every search
// would then have to pass all of them.
//
// Multiplication by a random odd number gives any two hashes the same home with a
// probability of at most 2 divided by the number of homes. (Their difference is an odd
// multiple of a power of two. The product makes it any other such multiple with equal
// probability, and the home is taken from the top bits.) So among n hashes chosen
// without knowledge of the number, the longest run is at most of the order of the
// square root of n. As far as is known, it is as long as for random hashes.
//
// Multiplication alone is linear: an attacker who found two neighbours, by measuring
// the duration of checks, could continue with their difference. The random sum and the
// shift before the multiplication are not linear together, so a difference that makes
// two hashes neighbours does so for few others.
//
// This is no cipher: from many exports in their order the numbers might be
// reconstructed. Even then memory is proportional to the number of counters, see
// [slots]. It takes 1 to 2 ns.
type order struct {
	add, factor uint64 // factor is odd
	undo        uint64 // the inverse of factor, modulo 2^64
}

// newOrder draws a random order from r.
func newOrder(r rand.Source) order {
	o := order{add: r.Uint64(), factor: r.Uint64() | 1}
	o.undo = inverse(o.factor)
	return o
}

// systemRandom is the system's source of random numbers.
type systemRandom struct{}

func (systemRandom) Uint64() uint64 {
	var b [8]byte
	_, _ = crand.Read(b[:]) // it never fails
	return binary.LittleEndian.Uint64(b[:])
}

// of returns the place of a hash.
func (o *order) of(hash uint64) uint64 {
	x := hash + o.add
	return (x ^ x>>32) * o.factor
}

// hash returns the hash of a place.
func (o *order) hash(place uint64) uint64 {
	x := place * o.undo
	return (x ^ x>>32) - o.add
}

// inverse returns the inverse of an odd number modulo 2^64, by Newton's method: each
// round doubles the number of correct bits, of which x itself has three.
func inverse(x uint64) uint64 {
	y := x
	for range 5 {
		y *= 2 - x*y
	}
	return y
}

// partitions returns the partitions of a charge in locking order, each once.
func partitions(c *arith.Charge, dst []int) []int {
	for i := range c.Len() {
		dst = append(dst, PartitionOf(c.Key(i)))
	}
	slices.Sort(dst)
	return slices.Compact(dst)
}
