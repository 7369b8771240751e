package peer

// Explanation is the reasons of a decision, as the member that decided gives them. It is
// for people, and its times are those of that member's clock.
type Explanation struct {
	ID uint64
	// Limits are the reasons, in the order of the reply's results.
	Limits []LimitExplanation
}

// LimitExplanation is limiter.LimitExplanation without the names.
type LimitExplanation struct {
	Limit      string
	Known      bool
	State      []Field
	Counts     []WindowCount
	Arithmetic string
	Now        int64 // microseconds since 1970, as are those of Counts
}

// Field is a named value as text.
type Field struct{ Name, Value string }

// WindowCount is the number of units counted from Start up to, but not including, End.
type WindowCount struct {
	Start, End int64
	Count      uint64
}

// Trace is the span of the check with the same ID, which what the receiver records is below.
type Trace struct {
	ID               uint64
	TraceHi, TraceLo uint64
	Span             uint64
}
