package peer

import (
	"cmp"
	"fmt"
)

// Instance tells the runs of a node apart: it is drawn at random at each start,
// so that a node that restarts quickly is another member. 0 is no instance.
type Instance uint64

// String returns the instance in 16 hexadecimal digits.
func (i Instance) String() string { return fmt.Sprintf("%016x", uint64(i)) }

// State is what a member says of itself, or what is said of it.
type State uint8

// The states.
const (
	// Joining: it has not seen the cluster yet, owns nothing and becomes no heir.
	Joining State = iota
	// Active: it is in the ring.
	Active
	// Leaving: it hands over what it owns.
	Leaving
	// Dead: it does not answer, and has not left gracefully.
	Dead
)

// String returns the state's name in answers.
func (s State) String() string {
	switch s {
	case Joining:
		return "joining"
	case Active:
		return "active"
	case Leaving:
		return "leaving"
	default:
		return "dead"
	}
}

// Member is a node as membership describes it.
type Member struct {
	// Name is unique among the members, and stays when a node restarts.
	Name string
	// Instance of the node's present run.
	Instance Instance
	// State of the member.
	State State
	// GossipAddr, PeerAddr, GRPCAddr and HTTPAddr are host:port; those of the
	// public ports may be empty.
	GossipAddr, PeerAddr, GRPCAddr, HTTPAddr string
	// AdminAddr is where operators on other machines ask it, as host:port; empty if
	// they cannot.
	AdminAddr string
	// RulesHash is the hash of the rules that it has in force.
	RulesHash uint64
	// Wire is the version of the frames that it speaks.
	Wire uint16
	// Version of its program, for people.
	Version string
}

// Epoch names one ownership of one partition. The zero value is before all
// others.
type Epoch struct {
	// Counter grows with each claim that succeeds.
	Counter uint64
	// Instance that owns. It orders epochs of one counter, which can only come
	// about where two sides of a split could not ask each other.
	Instance Instance
}

// Compare returns -1, 0 or 1 as e is before, equal to or after f.
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
