package ring

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/buraksezer/consistent"
	"github.com/dchest/siphash"
)

// All nodes of a cluster must agree on these constants; ConfigHash compares them.
const (
	// replicas is the number of points of each member on the circle. More points make
	// the shares more equal and building slower.
	replicas = 160
	// load bounds the share of a member, in multiples of the mean. With 1.25 the
	// members together have room for at least a quarter more partitions than there are,
	// so one of them always has room.
	load = 1.25
	// hashKey0 and hashKey1 are the key of the hash: arbitrary numbers, the same in all
	// clusters.
	hashKey0, hashKey1 = 0x77656972_2e72696e, 0x672e7631_31303231
)

// ConfigHash returns a hash of everything, besides the members, that determines the
// owners. Nodes with different values would never agree, so they must not join the same
// cluster.
func ConfigHash() uint64 {
	return configHash(Partitions, replicas, load, hashKey0, hashKey1)
}

func configHash(partitions, replicas int, load float64, k0, k1 uint64) uint64 {
	all := fmt.Sprintf("consistent/v1.0.0 siphash-2-4/%016x%016x partitions=%d replicas=%d load=%s",
		k0, k1, partitions, replicas, strconv.FormatFloat(load, 'g', -1, 64))
	return siphash.Hash(hashKey0, hashKey1, []byte(all))
}

// hasher is the hash function of points and partitions.
type hasher struct{}

// Sum64 returns the hash of b.
func (hasher) Sum64(b []byte) uint64 { return siphash.Hash(hashKey0, hashKey1, b) }

// point is one member on the circle.
type point struct {
	name  string
	index int16
}

// String returns the name, by which the library distinguishes members.
func (p point) String() string { return p.name }

// newCircle returns the circle of some members.
//
// The library panics in three cases, none of which can occur here. It needs a hash,
// which it is given. It needs room for all partitions: n members have room for n times
// the mean times load, rounded up, which is at least 1.25 times the number of
// partitions if every member is on the circle. And it needs a member at each point of
// the circle; distinct ensures that, and that every member is on the circle.
func newCircle(names []string) *consistent.Consistent {
	members := make([]consistent.Member, len(names))
	for i, name := range names {
		members[i] = point{name, int16(i)}
	}
	return consistent.New(members, consistent.Config{
		Hasher:            hasher{},
		PartitionCount:    Partitions,
		ReplicationFactor: replicas,
		Load:              load,
	})
}

// ownerIn returns the index of the owner of a partition in a circle, -1 for none.
func ownerIn(c *consistent.Consistent, p int) int16 {
	if owner, ok := c.GetPartitionOwner(p).(point); ok {
		return owner.index
	}
	return -1
}

// distinct returns an error if two points of the circle have the same hash. The library
// would then assign the point to the later member, lose it when either is removed, and
// find no member there.
func distinct(names []string, hash func([]byte) uint64) error {
	hashes := make([]uint64, 0, len(names)*replicas)
	var buf []byte
	for _, name := range names {
		for i := range replicas {
			// The name that the library itself gives to a point.
			buf = append(append(strconv.AppendInt(buf[:0], int64(i), 10), ':'), name...)
			hashes = append(hashes, hash(buf))
		}
	}
	slices.Sort(hashes)
	if len(slices.Compact(hashes)) != len(names)*replicas {
		return fmt.Errorf("%w: rename one of the %d", ErrCollision, len(names))
	}
	return nil
}
