// Package ring assigns each partition of the key space to a member.
//
// A [Ring] depends only on the names of the members, so all nodes that see the same
// members agree, whatever they saw before and in any order. It is immutable: for
// another view another ring is built, outside the event loop, and published as a whole.
//
// The assignment is consistent hashing with bounded loads: each member has many points
// on a circle, and a partition belongs to the member at the next point that does not
// yet have 1.25 times the mean load. A joining member takes partitions from all others,
// which keep nearly all of theirs.
//
// The successor of a partition is its owner in the ring without its present owner,
// which is the member that will own it if the owner leaves. It is not simply the next
// point on the circle, because some members are full there, too.
//
// Building takes 0.3 ms for 3 members, 7 ms for 33, 100 ms for 128 and 400 ms for 256:
// it grows with the square of their number. More than [MaxMembers] are refused.
package ring
