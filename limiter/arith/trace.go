package arith

// TraceContext names a span of a trace, as Trace Context of the W3C does. A [Charge] that has one
// belongs to a request that is traced. Nothing is decided by it.
type TraceContext struct {
	// TraceHi and TraceLo are the halves of the trace's number, big-endian.
	TraceHi, TraceLo uint64
	Span             uint64
}
