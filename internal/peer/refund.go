package peer

// RefundKind is what a refund takes back.
type RefundKind uint8

// The kinds.
const (
	// RefundAll takes back the whole charge.
	RefundAll RefundKind = iota
	// RefundReserved ends a reservation and takes back what Receipt.Charged names,
	// possibly nothing. A version that does not know it treats it as RefundAll, with the
	// same result.
	RefundReserved
	// ResetKeys forgets the counters.
	ResetKeys
	// AmendHold settles or extends the reservation with the charge ID: the costs of the keys
	// are what was used, or the new estimate. A [Hold] of the frame says the rest.
	AmendHold
	// RecallLease asks the holder of the lease with the charge ID to give it back at once. It is not answered.
	RecallLease
	// RefundLeased takes back a check that a lease of the receiver admitted: the epoch of the receipt is the id of the
	// lease. It is not answered. A version that does not know it ignores the message, and the units stay charged.
	RefundLeased
)

// Refund takes back a charge of the next Keys keys of the frame, once, or resets the
// keys.
type Refund struct {
	ID   uint64 // ID of the reply; 0 if none is wanted
	Keys uint8
	Kind RefundKind
	Heir bool // the receiver is asked as heir, see Check
	Sent bool // another member may have received it
	// Denied, in a RefundReserved, means that the whole check was denied, so its id is
	// forgotten.
	Denied  bool
	Receipt Receipt
	Once    uint64 // the number of a receipt that can be used once only; 0 if it has none
	// ChargeID is that of the check whose charge is taken back; 0 if it had none.
	ChargeID uint64
}

// Receipt names a charge, see limiter.Receipt. Epoch.Counter is the number that names the
// ownership; in a reply it lacks the sender's instance.
type Receipt struct {
	Epoch   Epoch
	Time    int64
	Charged uint64
	Set     uint64
}

// Hold is what the check, or the refund of the kind AmendHold, with the same ID says of a
// reservation.
type Hold struct {
	ID uint64
	// Span is how long the reservation lasts from now on, in microseconds; 0 if it is settled.
	Span uint64
	// Life, of an amendment, is how long the id is remembered once it is settled, in
	// microseconds. A check says that itself.
	Life uint64
	// Keep, of a check, leaves what is charged when the reservation ends unsettled.
	Keep bool
	// Lent, of a check, asks for a lease: its units count as charged now at every instant until it is settled. Members
	// before [LeaseWire] would charge them at once, so they are not asked. Of a settlement it is that of limiter.Amend.
	Lent bool
	// Extend, of an amendment, extends the reservation; otherwise it is settled. Ignore means
	// that an id which is not known is not charged.
	Extend, Ignore bool
	// Named, of a settlement, means that the costs of the keys are their own, and are not compared. A version that does
	// not know it refuses keys that have reserved different numbers.
	Named bool
	// Lacks, of an amendment, means that the request lacks something by which its rules may count it, see
	// limiter.Amend. A version that does not know it amends the keys that it finds.
	Lacks bool
	// Shape, of a check, is what the holds of its keys know of all of them, see arith.Shape.
	Shape uint8
	// Rate, of a check that asks for a lease, asks for a slice with so many units a second; 0: it asks for none.
	Rate uint64
	// Fast, of a slice, see limiter.Request. A member that does not know it lowers rates as their times end.
	Fast bool
	// Back, of an amendment, takes back the extension after which the reservation ends at End:
	// it ends at WasEnd again, and the cost of the key is its estimate. Both are of the clock of
	// the member that extended it. If the reservation ends at another instant, nothing changes, and the answer
	// has the estimate: with End 1 this asks for it. Earlier versions answer without it.
	Back        bool
	End, WasEnd uint64
}

// Amended is the result of the amendment with the same ID: limiter.Amended, with a span in
// microseconds.
type Amended struct {
	ID uint64
	// State is a limiter.AmendState. A version that does not know it drops the answer, so its caller hears that no
	// member has answered: states that are new must change nothing.
	State           uint8
	First, Estimate uint64
	Over            uint64
	RetryAfter      int64
	// Was, End and WasEnd, of an extension of one key, are the estimate before it, the end of the
	// reservation and that before it, see Hold. End is 0 if nothing was extended: WasEnd is then when a settlement charged
	// what was used, by the clock of the sender.
	Was         uint64
	End, WasEnd uint64
	// Shape is what the hold knows of its check, of a question for what a key has reserved, see Hold.
	Shape uint8
	// Known is that of limiter.Amended: a version that does not say it makes all keys new.
	Known uint8
}
