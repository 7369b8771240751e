// Package receipt has what a receipt contains. Package limiter shows its users a receipt without its fields; deciders
// reach them through package limiter/arith.
package receipt

// Receipt is a receipt as its holder sees it. Tick is [limiter.Tick], which this package, below limiter, cannot name.
type Receipt[Tick ~int64] struct{ fields Fields[Tick] }

// Of returns the fields of a receipt, to be read and written. The caller owns them as it owns the receipt.
func Of[Tick ~int64](r *Receipt[Tick]) *Fields[Tick] { return &r.fields }

// Fields are the fields of a receipt: those of one charge by one decider. The zero value names no charge.
type Fields[Tick ~int64] struct {
	// Epoch names the ownership of the partition at the charge. Without a cluster it tells a charge from a reset of
	// the same instant before it, and is 0 if there was none.
	Epoch uint64
	// Time is the instant of the charge, on the decider's clock.
	Time Tick
	// Charged has one bit for each of the decision's first 64 limits, set if that limit
	// was charged. Further limits are not refunded.
	Charged uint64
	// Set is a hash of the names of the limits and the costs, in their order. A receipt
	// that does not fit the request and the rules in force is void.
	Set uint64
	// Once, if it is not 0, is a number drawn for this receipt alone. The decider remembers
	// it, so that a second use does nothing, and the receipt is void [limiter.ReceiptLife] after
	// Time. It is 0 in the receipts of decisions, which must not be used twice.
	Once uint64
	// Sealed is the receipt as a server gives it to clients. If it is not empty, the other
	// fields are ignored. It contains them, and the node that made it detects any change.
	Sealed string
	// Parts are what each owner charged, if several owners in a cluster decided; else nil.
	// Epoch is then 0, and Time that of the first part. It is read, never changed.
	Parts *Parts[Tick]
}

// Parts are the parts of a receipt of several owners: at most [limiter.MaxKeys], and no key is in two of them.
type Parts[Tick ~int64] []Part[Tick]

// Part is what one owner charged. Its other fields are those of a receipt for these keys alone.
type Part[Tick ~int64] struct {
	// Keys has one bit for each key of the charge that the owner decided.
	Keys         uint16
	Epoch        uint64
	Time         Tick
	Charged, Set uint64
}

// Has reports whether limit i of the decision was charged.
func (f *Fields[Tick]) Has(i int) bool { return i < 64 && f.Charged&(1<<i) != 0 }

// creditTime is the time of a credit. It is later than any instant of a clock, and exact as a number of Lua.
const creditTime = 1 << 52

// Credit returns the fields of a credit, see [limiter.Credit].
func Credit[Tick ~int64]() Fields[Tick] { return Fields[Tick]{Time: creditTime} }

// IsCredit reports whether the receipt is a credit.
func (f *Fields[Tick]) IsCredit() bool {
	return f.Time == creditTime && f.Epoch == 0 && f.Once == 0 && f.Sealed == ""
}
