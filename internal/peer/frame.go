package peer

import "slices"

// Frame is everything that one member sends to another at once. The receiver handles
// first Rules, then Announces, Claims, Answers, Revokes, Batches, Acks, Checks, Refunds,
// Replies, Known, Expelled, Names and Notes, the items of each in their order. Frames of one connection
// arrive in the order in which they were sent, or the connection breaks.
type Frame struct {
	// From is the member that wrote the frame, To the one that it is for. Any other
	// member that receives it relays it once, unless it is Relayed already. So one
	// broken connection changes nothing.
	From, To Instance
	// Relayed means that the member Via has relayed the frame.
	Relayed bool
	Via     Instance
	// Number counts the frames that the sender has sent directly to this receiver; it is
	// 0 in a frame to be relayed. Got is the highest number that the sender has received
	// directly from the receiver. So each side learns whether what it sends arrives,
	// even if only one direction is broken.
	Number, Got uint64

	// Rules are the rules to which Keys and Replies below refer by index.
	Rules []Rule
	// Limits are the limits to which Entries refer by index.
	Limits []Limit

	Claims    []Claim
	Answers   []Answer
	Announces []Announce
	Revokes   []Revoke
	Batches   []Batch
	IDs       []ID    // of the batches, in their order
	Entries   []Entry // of the batches, in their order
	Acks      []Ack

	Checks  []Check
	Keys    []Key // of the checks and refunds, in their order
	Refunds []Refund
	Replies []Reply
	Results []Result // of the replies, in their order

	// Explained are the reasons of those replies whose checks asked for them.
	Explained []Explanation

	// Traces are the spans of those checks that are traced, in the order of the checks. A
	// version that does not know them records no span.
	Traces []Trace

	// Holds are what those checks and refunds that concern reservations say of them, in the
	// order of the checks, then of the refunds.
	Holds []Hold

	// Amended are the results of those replies whose refunds amended a reservation, in the order
	// of the replies.
	Amended []Amended

	// Known are the members that the sender knows by name, in any state. They are sent
	// on a new connection, and when there is news of a member.
	Known []Known

	// Expelled are the members that operators have thrown out or let in again, as far as the
	// sender knows. They are sent on a new connection, and when there is news of one.
	Expelled []Expulsion

	// Names are the readable names of keys that the receiver keeps in a list of top
	// keys.
	Names []Name

	// Notes are what the program of the sender says to that of the receiver.
	Notes []Note
}

// Name is the readable name of a key, without that of a limit.
type Name struct {
	Hi, Lo uint64
	// Closed is true for the class of closed partitions.
	Closed bool
	Text   string
}

// Known is what a member knows about another, in its view or not.
type Known struct {
	Name     string
	Instance Instance
	// Gone means that the member left gracefully, or that an operator had it forgotten.
	Gone bool
	// Joining means that the member has not been active yet, as far as the sender has
	// heard in the last two seconds: it decides nothing anywhere.
	Joining bool
	// Left is what a member says over its own link once it has left: Gone alone says there that it leaves.
	Left bool
	// Path are the names of the members on whose word alone the sender knows it: the one that told the sender comes
	// first. It is empty if the sender has met it on a link, or if members say so that do not have it from each other.
	// A version that does not know it never says, or names one of them.
	Path []string
}

// Equal reports whether both say the same.
func (k Known) Equal(o Known) bool {
	return k.Name == o.Name && k.Instance == o.Instance && k.Gone == o.Gone && k.Joining == o.Joining &&
		k.Left == o.Left && slices.Equal(k.Path, o.Path)
}

// Expulsion says that operators have thrown a member out, or let it in again.
type Expulsion struct {
	Name string
	// Number orders those about one name, the highest counts: microseconds since 1970 when the
	// operator said so.
	Number uint64
	// Back means that the member is let in again.
	Back bool
	// Path are the names of the members that told it on, the one that the operator told first. It
	// is empty at that one.
	Path []string
}

// ClaimKind is the purpose of a claim.
type ClaimKind uint8

// The kinds.
const (
	// Ask is a question about the receiver's state. It claims nothing.
	Ask ClaimKind = iota
	// Takeover is by the heir of an owner that cannot be reached.
	Takeover
	// LastResort is for a partition with neither owner nor heir left.
	LastResort
	// Renew is by the owner, to get rid of an heir that does not answer.
	Renew
	// Transfer is by the owner, for the member that it hands over to.
	Transfer
	// Reopen is by an owner that sealed for a transfer that failed.
	Reopen
)

// Claim asks for the right to a new epoch of a partition, and for the receiver's state
// of it.
type Claim struct {
	Partition uint16
	Kind      ClaimKind
	// Round is repeated in the answer.
	Round uint32
	// Counter is that of the claimed epoch. It is 0 for an Ask, and in a request to For
	// to claim: a LastResort by its copy, or a Takeover as heir of the sender.
	Counter uint64
	// For is the member that would own.
	For Instance
}

// Role is what a member holds of a partition. Higher roles hold more.
type Role uint8

// The roles.
const (
	// Nothing: the member holds nothing.
	Nothing Role = iota
	// Copy: the member has a copy that may be old or incomplete.
	Copy
	// Heir: the member has the complete copy and the owner's appointment.
	Heir
	// Sealed: the owner has handed over, and the receiver has not confirmed yet.
	Sealed
	// Owned: the member is the owner and decides.
	Owned
)

// Answer answers a Claim.
type Answer struct {
	Partition uint16
	Round     uint32
	// Granted means that the counter is granted to the claimant.
	Granted bool
	// Fresh means that the member has not learned yet what others hold. It grants
	// nothing, and the absence of something in its answer proves little.
	Fresh bool
	// Role, Epoch and Seq identify the state that the member holds.
	Role  Role
	Epoch Epoch
	Seq   uint64
	// FromDisk means that it was read from the member's disk, and no owner has confirmed it
	// since: others may have a later one on theirs. A version that does not know it leaves it
	// out.
	FromDisk bool
	// Ended is the member's instance of before, if that ended in good order with all that it had on its disk; else 0.
	Ended Instance
	// Owner is the highest ownership that the member knows, Heir the heir announced for
	// it.
	Owner Epoch
	Heir  Instance
	// Top is the highest counter that the member knows. Grant, GrantKind and GrantFor
	// describe the last claim that it granted.
	Top       uint64
	Grant     uint64
	GrantKind ClaimKind
	GrantFor  Instance
}

// Announce names the owner and the heir of a partition.
type Announce struct {
	Partition uint16
	Epoch     Epoch
	// Heir is the heir that has accepted its appointment; 0 if there is none.
	Heir Instance
}

// Revoke asks an heir to give up its appointment. The heir answers with an Ack that has
// the status Revoked and the same Appointment.
type Revoke struct {
	Partition uint16
	Epoch     Epoch
	// Appointment is the last appointment of the epoch that is revoked, with all before
	// it; 0 revokes none.
	Appointment uint32
	// Drop means that the copy is not needed any more.
	Drop bool
}

// BatchKind is the kind of a batch.
type BatchKind uint8

// The kinds.
const (
	// Delta has the keys that changed since Base.
	Delta BatchKind = iota
	// Snapshot has every key.
	Snapshot
	// Handover is a Delta that also passes the ownership to the receiver, under the
	// epoch Next.
	Handover
	// Push has the state of a fenced owner, to be merged.
	Push
)

// Batch carries the state of keys from an owner to a copy, or from a fenced owner to
// the present one.
type Batch struct {
	Partition uint16
	Kind      BatchKind
	// Epoch is the epoch under which the sender owns; of a Push, under which it owned.
	Epoch Epoch
	// Base is the sequence, under BaseEpoch or Epoch, of the state that the batch builds
	// on. In a Snapshot or Push it is the index of the batch, from 0. Seq is the
	// sequence of the state that the batch leads to.
	BaseEpoch Epoch
	Base, Seq uint64
	// First and Last mark the first and last batch of a Snapshot or Push.
	First, Last bool
	// Appointment, unless 0, appoints the receiver heir, if it has the sequence
	// Appointed or a later one.
	Appointment uint32
	Appointed   uint64
	// Ping is repeated in the acknowledgement.
	Ping uint32
	// Next is the receiver's epoch in a Handover.
	Next Epoch
	// Keys is the number of keys in the batch. Each has one Entry with First set,
	// followed by others of the same key.
	Keys uint32
	// IDs is the number of ids in the batch: those that came to the sender since the state of Base, in the order in which
	// they came. They count before the keys, some of which may say what has become of them. Versions before [LeaseWire]
	// do not know them, and are sent each as a key.
	IDs uint32
}

// ID is an id that is remembered for a key, with the state of its counter, like an Entry.
type ID struct {
	Hi, Lo      uint64
	Time, Until int64
	A, B        uint32
}

// Entry is the state of one counter or, if Gone, a key without counters.
type Entry struct {
	Hi, Lo uint64
	// Limit is an index into Frame.Limits.
	Limit uint16
	// First marks the first entry of a key. Gone marks a key without counters.
	First, Gone bool
	Time, Until int64
	A, B        uint32
	Words       []uint64
}

// AckStatus is the result of a Batch or a Revoke.
type AckStatus uint8

// The statuses.
const (
	// Acked: the copy has the sequence Seq, and its holder is heir under Appointment,
	// unless that is 0.
	Acked AckStatus = iota
	// Gap: the copy has only the sequence Seq, and the batch does not build on it. 0
	// asks for a snapshot.
	Gap
	// Refused: the appointment, or the handover, is not accepted. The reason may be a
	// grant: Top has its counter. In the answer to a copy without an appointment: none
	// would be accepted yet.
	Refused
	// Fenced: there is an owner under the higher epoch Owner.
	Fenced
	// Revoked: appointments up to Appointment are void.
	Revoked
	// Merged: a Push was merged.
	Merged
)

// Ack answers a Batch or a Revoke.
type Ack struct {
	Partition uint16
	Status    AckStatus
	// Epoch and Ping are those of the message that is answered. Appointment is the one
	// under which the sender is heir, 0 if it is not; with the status Revoked it is the
	// one that is revoked.
	Epoch       Epoch
	Appointment uint32
	Ping        uint32
	Seq         uint64
	// Owner is the highest ownership that the sender knows, Top the highest counter.
	Owner Epoch
	Top   uint64
}

// Check asks for a decision over the next Keys keys of the frame.
type Check struct {
	// ID names the check in its reply. It is unique among the checks of the sender.
	ID uint64
	// Keys is the number of keys, all in partitions of one owner.
	Keys uint8
	// Peek means that nothing is charged. Prepare means that this is a part of a check
	// over several owners, so the reply must also say what holds if another part denies.
	Peek, Prepare bool
	// Heir asks the receiver as heir, because the owner is out of reach. Sent means that
	// another member may have received the check.
	Heir, Sent bool
	// Explain, in a Peek of one key, asks for the reasons too. A version that does not
	// know it replies without them.
	Explain bool
	// Settles, in a Prepare, means that a RefundReserved follows once the sender knows
	// the result of the whole check. A version that does not know it treats the charge
	// as settled.
	Settles bool
	// Final, in a check that Settles, means that there is no time to begin it anew: it is
	// answered, not Contested. A version that does not know it may refuse it so. In a peek it means that the
	// check is no peek, and would be allowed nowhere: if its id is that of a reservation that is over, it is denied
	// for good. A version that does not know it repeats the answer of that reservation.
	Final bool
	// Wait is how long the sender waits for the reply, in microseconds.
	Wait uint32
	// ChargeID, unless 0, is the keyed hash of the id by which the charge is made once, and
	// Life how long the id is remembered, in microseconds.
	ChargeID, Life uint64
}

// Key is one key of a check.
type Key struct {
	Hi, Lo uint64
	// Rule is an index into Frame.Rules.
	Rule uint16
	// Closed is true for the class of closed partitions.
	Closed bool
	Index  uint8
	Cost   uint64
	// By is arith.Key.By. A version that does not know it leaves it out.
	By uint16
}

// ReplyStatus is the result of a request.
type ReplyStatus uint8

// The statuses.
const (
	// Decided: the check is decided, with Results.
	Decided ReplyStatus = iota
	// NotOwner: not executed. Owner may name the owner.
	NotOwner
	// NeedRule: not executed. The receiver does not know the rule and needs its
	// definition.
	NeedRule
	// Alive: not executed. The owner, or the member that has just handed over to this one, is
	// alive, so wait for its reply.
	Alive
	// Overloaded: not executed, because a bound was reached.
	Overloaded
	// Lost: not executed. A member that was asked to relay the request to Owner.Instance
	// could not.
	Lost
	// Done: a refund, a reset or an amendment was executed. Count is the number of counters of
	// a reset; an [Amended] of the frame is the result of an amendment.
	Done
	// Contested: not executed. The part of a check that Settles would be denied, perhaps
	// because of a charge that may be taken back.
	Contested
	// Forbidden: not executed. The receiver refuses resets of other members.
	Forbidden
)

// Reply answers a Check, or a Refund with an ID.
type Reply struct {
	ID     uint64
	Status ReplyStatus
	// Heir means that the heir decided, not the owner.
	Heir bool
	// Idle means that there is a second set of results: what holds if the reservation is
	// cancelled.
	Idle bool
	// Provisional marks a denial that may have been caused by a charge that may be taken
	// back. It must not be cached.
	Provisional bool
	// Repeated means that the id of the check was remembered, and nothing was charged.
	Repeated bool
	// Results is the number of results in one set.
	Results uint16
	// Owner is the owner of Partition, as far as the sender knows, if the sender is not
	// the owner.
	Owner     Epoch
	Partition uint16
	Receipt   Receipt
	Count     uint32 // of a slice that was asked for, the units a second that it was assigned
	// Rules are indices into Frame.Rules, one for each key: the rules that were applied.
	// It is empty if they are the rules of the check.
	Rules []uint16
	// Unnamed has a bit for each key of the check whose name the sender lacks. The
	// lowest bit is the first key.
	Unnamed uint32
	// Known has a bit for each key of a denied check for which its id is remembered. The
	// results are those of the other keys.
	Known uint32
}

// Result is the answer of one limit.
type Result struct {
	Allowed, Never, Blocked, Overflow bool
	Remaining, InForce                uint64 // InForce is the share of the limit that was applied; 0: the limit itself was
	RetryAfter, ResetAfter            int64
}
