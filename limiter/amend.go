package limiter

import (
	"time"
)

// Amend is a change of a hold. The zero value settles it.
type Amend struct {
	// Extend lets the hold of the charge's ID last for another [Request.Hold]. A key with
	// a cost above its estimate is charged the difference, if all of them admit it. Without
	// Extend the hold is settled: the costs of the keys are the units that were used, 0 to
	// cancel it.
	Extend bool
	// IgnoreUnknown charges nothing if the id is not known. Without it the keys are charged
	// with the costs. An extension never charges an unknown id.
	IgnoreUnknown bool
	// Named lets a settlement have a number for each key: what was used of each is known, so the costs are not
	// compared, see [Estimates].
	Named bool
	// Lacks means that the request lacks something by which its rules may count it. The hold is left alone if the
	// check was charged to keys that the request does not name.
	Lacks bool
	// Lent means that whoever is lent units says what it has used beyond them: an id that is not known is charged no
	// more than lets each limit count twice its capacity. [Request.Lent] sets it.
	Lent bool
}

// SettleOption changes how a reservation is settled. By default an id that is not known is charged with the units
// that were used, since they were used all the same: its hold has ended, its owner was lost, or it was never reserved.
type SettleOption func(*Settling)

// Settling is what the options of a settlement say.
type Settling struct {
	Amend
	// Actual is what was used by attribute, if Amend.Named is set: see the option [Actual].
	Actual map[string]int64
}

// IgnoreUnknown charges nothing if the id is not known: see [Amend.IgnoreUnknown].
func IgnoreUnknown() SettleOption { return func(a *Settling) { a.IgnoreUnknown = true } }

// Settlement returns what options say, for whoever implements Settle. It ignores nil ones.
func Settlement(opts ...SettleOption) Settling {
	var a Settling
	for _, set := range opts {
		if set != nil {
			set(&a)
		}
	}
	return a
}

// AmendState is the result for a hold.
type AmendState uint8

// The states.
const (
	// AmendDone: the hold was settled, or extended.
	AmendDone AmendState = iota
	// AmendRepeated: it was settled with the same cost before. Nothing has changed.
	AmendRepeated
	// AmendCharged: the id is not known for some key, which was charged with its cost.
	AmendCharged
	// AmendUnknown: the id is not known, and nothing has changed.
	AmendUnknown
	// AmendSettled: the id has no hold, since it was settled with another cost, was kept when
	// it expired, or was never a hold. Nothing has changed.
	AmendSettled
	// AmendDenied: a limit denied what an extension adds to the estimate. The hold is as it was.
	AmendDenied
	// AmendFull: there is no room for the charge. Nothing has changed.
	AmendFull
	// AmendRaised: the estimate was raised as often as it may be, [MaxHoldParts] - 1 times. The hold is
	// as it was.
	AmendRaised
	// AmendDiffers: a settlement gives one number, and the rules have reserved different ones.
	// Nothing has changed.
	AmendDiffers
	// AmendLacks: the check was charged to keys that this request does not name, see [Amend.Lacks].
	// Nothing has changed.
	AmendLacks
)

// String returns the state's name in answers.
func (s AmendState) String() string {
	return nameOf([]string{"done", "repeated", "charged", "unknown", "settled", "denied", "full", "raised", "differs",
		"lacks"}, int(s))
}

// Amended is the result of an [Amend].
type Amended struct {
	State AmendState
	// First, with AmendSettled, is the cost for which the id stands; with AmendDiffers it is an estimate
	// that differs from Estimate, or 0 if what several rules draw on one quota differs.
	First uint64
	// Estimate is the estimate before a settlement, or after an extension, of the first key
	// that had a hold.
	Estimate uint64
	// Over is the number of units that were charged beyond what a limit had left. With several
	// limits it is the largest of their numbers.
	Over uint64
	// RetryAfter, with AmendDenied, is the shortest wait until the extension is admitted, if
	// there are no other checks; 0 if it never is, or the hold ends before.
	RetryAfter time.Duration
	// Keys, with AmendCharged, is the number of keys that were charged. A node sets it; deciders
	// need not.
	Keys int
	// Known is how many of them had counters before, also empty ones that are not swept yet. It is 0 if the decider does
	// not say, as with Redis.
	Known int
}
