package peer

import (
	"cmp"
	"fmt"
)

// Instance identifies one run of a node. It is drawn at random at each start, so a node
// that restarts quickly is a different member. 0 is no instance.
type Instance uint64

// String returns the instance in 16 hexadecimal digits.
func (i Instance) String() string { return fmt.Sprintf("%016x", uint64(i)) }

// State is the state of a member, as it says itself or as others say.
type State uint8

// The states.
const (
	// Joining: it has not seen the cluster yet, owns nothing and becomes no heir.
	Joining State = iota
	// Active: it is in the ring.
	Active
	// Leaving: it is handing over what it owns.
	Leaving
	// Dead: it does not answer, and has not left gracefully.
	Dead
)

// String returns the state's name, such as "active".
func (s State) String() string {
	return [...]string{"joining", "active", "leaving", "dead"}[min(s, Dead)]
}

// LeaseWire is the first version of the wire whose members lend units to each other, see [Hold], and whose batches
// carry ids apart from keys.
const LeaseWire = 4

// Member is a node as membership describes it.
type Member struct {
	// Name is unique among the members and stays the same when a node restarts.
	Name string
	// Instance identifies the node's present run.
	Instance Instance
	// State is the member's state.
	State State
	// GossipAddr, PeerAddr, GRPCAddr and HTTPAddr are addresses as host:port. GRPCAddr
	// and HTTPAddr may be empty.
	GossipAddr, PeerAddr, GRPCAddr, HTTPAddr string
	// AdminAddr is the address, as host:port, for operators on other machines; empty if
	// there is none.
	AdminAddr string
	RulesHash uint64
	// Wire is the version of the frames that the member speaks.
	Wire uint16
	// Version is the version of its program, for people.
	Version string
	// ZoneData is the release of its time zone database; empty if it is not known.
	ZoneData string
}

// Epoch names one ownership of one partition. The zero value is before all others.
type Epoch struct {
	// Counter grows with each successful claim.
	Counter uint64
	// Instance is the owner. It orders epochs with the same counter, which only arise if
	// two sides of a split could not reach each other.
	Instance Instance
}

// Compare returns -1 if e is before f, 0 if they are equal and 1 if e is after f.
func (e Epoch) Compare(f Epoch) int {
	if c := cmp.Compare(e.Counter, f.Counter); c != 0 {
		return c
	}
	return cmp.Compare(e.Instance, f.Instance)
}

// Before reports whether e is before f.
func (e Epoch) Before(f Epoch) bool { return e.Compare(f) < 0 }

// String returns the epoch as counter/instance.
func (e Epoch) String() string { return fmt.Sprintf("%d/%s", e.Counter, e.Instance) }
