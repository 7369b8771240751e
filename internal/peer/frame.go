package peer

import "slices"

// Frame is what one member sends to another at once: everything that had
// accumulated for it. Its parts are handled in the order of the fields, the
// items of each in their order. Frames of one connection arrive in the order in
// which they were sent, or the connection breaks.
type Frame struct {
	// From wrote the frame, To is who it is for. A frame that reaches somebody
	// else is passed on, once, if it is not Relayed yet: so one broken
	// connection changes nothing.
	From, To Instance
	// Relayed tells that the frame was passed on, by Via.
	Relayed bool
	Via     Instance
	// Number counts the frames that the sender has sent to this receiver
	// directly; 0 in one that is to be passed on. Got is the highest number that
	// the sender has received from the receiver directly: so each learns whether
	// what it sends arrives, also where only one direction is broken.
	Number, Got uint64

	// Rules are those that Keys, Entries and Replies below refer to by index.
	Rules []Rule
	// Limits are those that Entries refer to by index.
	Limits []Limit

	Claims    []Claim
	Answers   []Answer
	Announces []Announce
	Revokes   []Revoke
	Batches   []Batch
	Entries   []Entry // of the batches, in their order
	Acks      []Ack

	Checks  []Check
	Keys    []Key // of the checks and refunds, in their order
	Refunds []Refund
	Replies []Reply
	Results []Result // of the replies, in their order

	// Explained are the reasons of replies to checks that asked for them.
	Explained []Explanation

	// Known are the members that the sender knows by name, whatever became of
	// them; it comes with a new connection.
	Known []Known

	// Names are what people call keys that the receiver keeps in a list.
	Names []Name
}

// Name is the name of a key, without that of a limit.
type Name struct {
	Hi, Lo uint64
	// Closed is the class of the partition.
	Closed bool
	Text   string
}

// Known is what a member knows of another, in view or not.
type Known struct {
	Name     string
	Instance Instance
	// Gone tells that it left gracefully, or was forgotten by an operator.
	Gone bool
}

// Clone returns a frame that shares nothing that is ever changed with f.
func (f *Frame) Clone() *Frame {
	g := *f
	g.Rules, g.Limits = slices.Clone(f.Rules), slices.Clone(f.Limits)
	g.Claims, g.Answers, g.Announces = slices.Clone(f.Claims), slices.Clone(f.Answers), slices.Clone(f.Announces)
	g.Revokes, g.Batches, g.Acks = slices.Clone(f.Revokes), slices.Clone(f.Batches), slices.Clone(f.Acks)
	g.Entries = slices.Clone(f.Entries)
	for i := range g.Entries {
		g.Entries[i].Words = slices.Clone(g.Entries[i].Words)
	}
	g.Checks, g.Keys, g.Refunds = slices.Clone(f.Checks), slices.Clone(f.Keys), slices.Clone(f.Refunds)
	g.Replies, g.Results, g.Known = slices.Clone(f.Replies), slices.Clone(f.Results), slices.Clone(f.Known)
	g.Names, g.Explained = slices.Clone(f.Names), slices.Clone(f.Explained)
	return &g
}

// Reset empties a frame and keeps its memory.
func (f *Frame) Reset() {
	*f = Frame{
		Rules: clearAll(f.Rules), Limits: clearAll(f.Limits),
		Claims: f.Claims[:0], Answers: f.Answers[:0], Announces: f.Announces[:0], Revokes: f.Revokes[:0],
		Batches: f.Batches[:0], Entries: clearAll(f.Entries), Acks: f.Acks[:0],
		Checks: f.Checks[:0], Keys: f.Keys[:0], Refunds: f.Refunds[:0], Replies: f.Replies[:0], Results: f.Results[:0],
		Known: clearAll(f.Known), Names: clearAll(f.Names), Explained: clearAll(f.Explained),
	}
}

func clearAll[T any](s []T) []T {
	clear(s)
	return s[:0]
}

// Empty reports whether there is nothing to send.
func (f *Frame) Empty() bool {
	return len(f.Claims)+len(f.Answers)+len(f.Announces)+len(f.Revokes)+len(f.Batches)+len(f.Acks)+
		len(f.Checks)+len(f.Refunds)+len(f.Replies)+len(f.Known)+len(f.Names) == 0
}

// Limit is the definition of a limit, as limiter.Spec has it.
type Limit struct {
	Name                                              string
	Algorithm, Align, Coverage, Rounding, Drip, Count uint8
	Limit, Burst                                      int64
	Window, Block                                     int64 // microseconds
	SubWindows                                        int32
	Weight                                            int32 // thousandths
	HasWeight                                         bool
}

// Rule names a rule, and defines it where Defined is set.
type Rule struct {
	// ID is a hash of the name and of all that follows.
	ID      uint64
	Name    string
	Defined bool

	Shadow        bool
	OnUnreachable uint8
	Replication   uint8
	Limits        []Limit
}

// ClaimKind says what a claim is for.
type ClaimKind uint8

// The kinds.
const (
	// Ask asks what others know, and promises nothing.
	Ask ClaimKind = iota
	// Takeover: the heir of an owner that cannot be reached.
	Takeover
	// LastResort: neither owner nor heir is left.
	LastResort
	// Renew: the owner itself, to be rid of an heir that does not answer.
	Renew
	// Transfer: the owner, for the member that it hands over to.
	Transfer
	// Reopen: an owner that sealed for a transfer that went nowhere.
	Reopen
)

// Claim asks for the right to a new epoch of a partition, and for what the
// receiver knows of it.
type Claim struct {
	Partition uint16
	Kind      ClaimKind
	// Round comes back in the answer.
	Round uint32
	// Counter of the epoch that is claimed. It is 0 for an Ask, and where For is asked
	// to claim: a LastResort by its copy, a Takeover as heir of the owner that sends this.
	Counter uint64
	// For is who would own.
	For Instance
}

// Role is what a member holds of a partition.
type Role uint8

// The roles.
const (
	// Nothing is held.
	Nothing Role = iota
	// Copy: a copy that may be old or incomplete.
	Copy
	// Heir: the complete copy that the owner has appointed.
	Heir
	// Sealed: handed over, and not yet confirmed.
	Sealed
	// Owned: decides.
	Owned
)

// Answer answers a Claim.
type Answer struct {
	Partition uint16
	Round     uint32
	// Granted tells that the counter is the claimant's.
	Granted bool
	// Fresh tells that the member has not yet learned what there is to know: it
	// grants nothing, and what it does not know means little.
	Fresh bool
	// Role, Epoch and Seq are what it holds; Seq is how far.
	Role  Role
	Epoch Epoch
	Seq   uint64
	// Owner is the highest ownership that it knows of, Heir the heir that was
	// announced for it.
	Owner Epoch
	Heir  Instance
	// Top is the highest counter that it knows of. GrantKind, GrantFor and Grant
	// name the last counter that it granted.
	Top       uint64
	Grant     uint64
	GrantKind ClaimKind
	GrantFor  Instance
}

// Announce tells who owns a partition and who is heir.
type Announce struct {
	Partition uint16
	Epoch     Epoch
	// Heir that has acknowledged its appointment; 0: none has.
	Heir Instance
}

// Revoke asks an heir to be none. Seen from the heir, it is done when answered
// by an Ack of the same Appointment.
type Revoke struct {
	Partition uint16
	Epoch     Epoch
	// Appointment and all before it within the epoch are revoked; 0: none is.
	Appointment uint32
	// Drop tells that the copy is not needed any more.
	Drop bool
}

// BatchKind says what a batch is.
type BatchKind uint8

// The kinds.
const (
	// Delta: the keys that changed since Base.
	Delta BatchKind = iota
	// Snapshot: every key.
	Snapshot
	// Handover: a Delta with which the ownership passes to the receiver, under
	// the epoch Next.
	Handover
	// Push: the state of an owner that was overtaken, to be merged.
	Push
)

// Batch carries the state of keys from an owner to a copy.
type Batch struct {
	Partition uint16
	Kind      BatchKind
	// Epoch under which the sender owns (owned, for a Push).
	Epoch Epoch
	// Base, under BaseEpoch or Epoch, is the state that the batch builds on, Seq
	// the one it leads to.
	BaseEpoch Epoch
	Base, Seq uint64
	// First and Last mark the ends of a Snapshot or Push, which may take several
	// batches.
	First, Last bool
	// Appointment, unless it is 0, appoints the receiver, if it has the state
	// Appointed or a later one.
	Appointment uint32
	Appointed   uint64
	// Ping comes back in the acknowledgement.
	Ping uint32
	// Next is the epoch that a Handover passes on.
	Next Epoch
	// Keys is how many keys the batch has. Each is one Entry with First set and
	// those that follow it.
	Keys uint32
}

// Entry is one counter, or, with Gone, a key that has none.
type Entry struct {
	Hi, Lo uint64
	// Limit is an index into Frame.Limits.
	Limit uint16
	// First marks the first entry of a key, Gone a key without counters.
	First, Gone bool
	Time, Until int64
	A, B        uint32
	Words       []uint64
}

// AckStatus is what an acknowledgement says.
type AckStatus uint8

// The statuses.
const (
	// Acked: the copy has the state Seq, and its holder is heir under
	// Appointment, if that is not 0.
	Acked AckStatus = iota
	// Gap: the copy has only Seq; what was sent does not build on it.
	Gap
	// Refused: the appointment is not accepted; Owner.Counter is granted
	// elsewhere.
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
	// Epoch, Appointment and Ping are those of what is answered.
	Epoch       Epoch
	Appointment uint32
	Ping        uint32
	Seq         uint64
	// Owner is the highest ownership known to who answers, Top the highest
	// counter.
	Owner Epoch
	Top   uint64
}

// Check asks for a decision over the next Keys keys of the frame.
type Check struct {
	// ID names the check in its reply; unique among those of the sender.
	ID uint64
	// Keys is how many keys it has, all in partitions of one owner.
	Keys uint8
	// Peek and Reserve: a question only; a part of a check that is decided in
	// several places, so the reply must also tell what holds if another denies.
	Peek, Reserve bool
	// Heir asks the receiver as heir, the owner being out of reach. Sent tells
	// that the check may have reached the owner.
	Heir, Sent bool
	// Explain asks for the reasons too, of a Peek of one key. A member that does not
	// know it replies without them.
	Explain bool
	// Settles tells that a RefundReserved follows once the sender knows what became of
	// the whole check of a Reserve. A member that does not know it takes the charge for
	// settled.
	Settles bool
	// Wait is how long the sender waits for the reply, in microseconds.
	Wait uint32
}

// Key is one key of a check.
type Key struct {
	Hi, Lo uint64
	// Rule is an index into Frame.Rules.
	Rule uint16
	// Closed is the class of the partition.
	Closed bool
	Index  uint8
	Cost   uint32
}

// RefundKind says what a refund takes back.
type RefundKind uint8

// The kinds.
const (
	// RefundAll takes back the whole charge.
	RefundAll RefundKind = iota
	// RefundReserved ends a reservation: what Receipt.Charged names is taken back,
	// which may be nothing. A member that does not know it takes it for RefundAll,
	// which comes to the same.
	RefundReserved
	// ResetKeys forgets the counters.
	ResetKeys
)

// Refund takes back a charge of the next Keys keys of the frame, once.
type Refund struct {
	ID      uint64 // of the reply, 0 if none is wanted
	Keys    uint8
	Kind    RefundKind
	Heir    bool // asked as heir: see Check
	Sent    bool // the owner may have it
	Receipt Receipt
}

// Receipt names a charge.
type Receipt struct {
	Epoch   Epoch
	Time    int64
	Charged uint64
	Set     uint64
}

// ReplyStatus says what a reply is.
type ReplyStatus uint8

// The statuses.
const (
	// Decided: Results follow.
	Decided ReplyStatus = iota
	// NotOwner: not executed; Owner may say who owns.
	NotOwner
	// NeedRule: not executed; the receiver lacks the rule and wants it defined.
	NeedRule
	// Alive: not executed; the owner is alive, wait for its reply.
	Alive
	// Overloaded: not executed, a bound was met.
	Overloaded
	// Lost: not executed; a member that was to pass the request on to
	// Owner.Instance could not.
	Lost
	// Done: a refund or reset was carried out; Count tells how many counters.
	Done
	// Contested: not executed; part of a check that Settles would be denied, perhaps
	// by a charge that may yet be taken back.
	Contested
	// Forbidden: not executed; the receiver takes no resets from other members.
	Forbidden
)

// Reply answers a Check, or a Refund that asked for it.
type Reply struct {
	ID     uint64
	Status ReplyStatus
	// Source of a decision is the heir, not the owner.
	Heir bool
	// Idle tells that Results has a second set: what holds if the reservation is
	// cancelled.
	Idle bool
	// Provisional tells of a denial that a charge may have caused which may yet be
	// taken back. It is not to be given again.
	Provisional bool
	// Results is how many there are in one set.
	Results uint16
	// Owner of Partition, as far as the sender knows, where it is not the owner.
	Owner     Epoch
	Partition uint16
	Receipt   Receipt
	Count     uint32
	// Rules, one for each key, name by index into Frame.Rules the rules that were
	// applied; empty where all of them were those of the check.
	Rules []uint16
	// Unnamed has a bit for each key of the check, the lowest for the first, whose
	// name the sender would like to have.
	Unnamed uint32
}

// Result is the answer of one limit.
type Result struct {
	Allowed, Never, Blocked, Overflow bool
	Remaining                         uint32
	RetryAfter, ResetAfter            int64
}
