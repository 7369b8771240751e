package peer

// Explanation is why a check was answered as it was, in the words of who answered:
// for people, in whose clock it is too.
type Explanation struct {
	// ID is that of the reply.
	ID uint64
	// Limits are in the order of the reply's results.
	Limits []LimitExplanation
}

// LimitExplanation is limiter.LimitExplanation, without its names.
type LimitExplanation struct {
	Limit      string
	Known      bool
	State      []Field
	Counts     []WindowCount
	Arithmetic string
	Now        int64 // microseconds since 1970, as are those of Counts
}

// Field is a named value in words.
type Field struct{ Name, Value string }

// WindowCount is the units counted from Start up to, not including, End.
type WindowCount struct {
	Start, End int64
	Count      uint32
}
