package weirwire

import (
	"encoding/binary"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	fields "github.com/weirlimit/weir/internal/front"
	"github.com/weirlimit/weir/internal/frontend/overgrpc"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// The fields of proto/weir/v1/weir.proto that are encoded here. A test encodes every
// decision both ways and compares.
const (
	responseResults = 1

	resultDecision = 1
	resultError    = 2

	errorCode    = 1
	errorMessage = 2
	errorRetry   = 3

	checkAllowed      = 1
	checkNever        = 2
	checkShadowDenied = 3
	checkRule         = 4
	checkBlockedBy    = 5
	checkRetryAfter   = 6
	checkSource       = 7
	checkLimits       = 8
	checkReceipt      = 9
	checkDrawnBy      = 10
	checkZoneDefault  = 11
	checkRepeated     = 12
	checkOverridden   = 15
	checkDenyStatus   = 13
	checkDenyReason   = 14

	limitRule       = 1
	limitName       = 2
	limitKey        = 3
	limitAlgorithm  = 4
	limitLimit      = 5
	limitCapacity   = 6
	limitWindow     = 7
	limitRemaining  = 8
	limitResetAfter = 9
	limitRetryAfter = 10
	limitAllowed    = 11
	limitNever      = 12
	limitBlocked    = 13
	limitShadow     = 14
	limitOverflow   = 15
	limitCost       = 16
	limitKeyIndex   = 17
	limitOwner      = 18
	limitInForce    = 19
	limitCalendar   = 20

	columnsRemaining  = 3
	columnsResetAfter = 4
	columnsRetryAfter = 5
	columnsLimitRefs  = 6
	columnsInForce    = 13
)

// open starts a message within a message. closed ends it; it takes the position that
// open returned.
func open(dst []byte, field protowire.Number) (out []byte, at int) {
	dst = protowire.AppendTag(dst, field, protowire.BytesType)
	return append(dst, 0), len(dst)
}

// closed writes the length of what was appended since open. Usually it fits into the
// one byte that open reserved.
func closed(dst []byte, at int) []byte {
	n := len(dst) - at - 1
	if n < 1<<7 {
		dst[at] = byte(n)
		return dst
	}
	more := protowire.SizeVarint(uint64(n)) - 1
	for range more {
		dst = append(dst, 0)
	}
	copy(dst[at+1+more:], dst[at+1:at+1+n])
	protowire.AppendVarint(dst[:at], uint64(n))
	return dst
}

func appendString(dst []byte, field protowire.Number, s string) []byte {
	if s == "" {
		return dst
	}
	return protowire.AppendString(protowire.AppendTag(dst, field, protowire.BytesType), s)
}

func appendNumber(dst []byte, field protowire.Number, n uint64) []byte {
	if n == 0 {
		return dst
	}
	return protowire.AppendVarint(protowire.AppendTag(dst, field, protowire.VarintType), n)
}

func appendBool(dst []byte, field protowire.Number, is bool) []byte {
	if !is {
		return dst
	}
	return append(protowire.AppendTag(dst, field, protowire.VarintType), 1)
}

// appendPacked encodes a column of numbers.
func appendPacked[T uint32 | int64 | uint64](dst []byte, field protowire.Number, column []T) []byte {
	if len(column) == 0 {
		return dst
	}
	dst, at := open(dst, field)
	for _, v := range column {
		n := len(dst)
		if cap(dst)-n < binary.MaxVarintLen64 {
			dst = slices.Grow(dst, binary.MaxVarintLen64)
		}
		dst = dst[:n+binary.PutUvarint(dst[n:n+binary.MaxVarintLen64], uint64(v))]
	}
	return closed(dst, at)
}

// Names are what a node says of decisions beside their numbers.
type Names interface {
	// Answer returns a decision in its JSON form.
	Answer(r *limiter.Request, d *limiter.Decision) limiter.Answer
	// KeyName returns the name of the counter of a limit of a decision.
	KeyName(r *limiter.Request, l *limiter.LimitDecision) string
}

// Encoder encodes decisions. Its methods are safe for concurrent use if those of Names are.
type Encoder struct {
	Names Names
	// AppendKeyName is KeyName without a string to allocate; nil: Names has none.
	AppendKeyName func(dst []byte, r *limiter.Request, l *limiter.LimitDecision) []byte
}

// AppendResponse encodes a decision as a CheckResponse.
func (e *Encoder) AppendResponse(dst []byte, r *limiter.Request, d *limiter.Decision) []byte {
	dst = appendBool(dst, checkAllowed, d.Allowed)
	dst = appendBool(dst, checkNever, d.Never)
	dst = appendBool(dst, checkShadowDenied, d.ShadowDenied)
	dst = appendString(dst, checkRule, d.Rule)
	if b := d.BlockedBy(); b != nil {
		dst = protowire.AppendTag(dst, checkBlockedBy, protowire.BytesType)
		rule, name := b.Rule.Name, b.Limit.Name()
		dst = protowire.AppendVarint(dst, uint64(len(rule)+1+len(name)))
		dst = append(append(append(dst, rule...), '/'), name...)
	}
	dst = appendNumber(dst, checkRetryAfter, uint64(limiter.Span(d.RetryAfter)))
	dst = appendNumber(dst, checkSource, uint64(weirv1.Source(d.Source)))
	for i := range d.Len() {
		var at int
		dst, at = open(dst, checkLimits)
		dst = closed(e.appendLimit(dst, r, d.Limit(i)), at)
	}
	drawnBy, zone := remarks(e.Names, r, d)
	dst = appendString(dst, checkDrawnBy, drawnBy)
	dst = appendString(dst, checkZoneDefault, zone)
	dst = appendBool(dst, checkRepeated, d.Repeated)
	if deny := d.Remarks().Deny; deny != nil {
		dst = appendNumber(dst, checkDenyStatus, uint64(deny.Status))
		dst = appendString(dst, checkDenyReason, deny.Reason)
	}
	dst = appendBool(dst, checkOverridden, d.Overridden)
	return dst
}

// remarks returns what the node's answer says beside the decision: the rule that draws on
// the quota that denied, and the rule whose default time zone counted. Most decisions have
// neither, and for those the answer is not made.
func remarks(by Names, r *limiter.Request, d *limiter.Decision) (drawnBy, zoneDefault string) {
	b := d.BlockedBy()
	some := b != nil && b.Rule.Quota
	for i := 0; i < d.Len() && !some; i++ {
		some = d.Limit(i).Rule.InDefaultZone()
	}
	if !some {
		return "", ""
	}
	a := by.Answer(r, d)
	return a.DrawnBy, a.ZoneDefault
}

// AppendReceipt adds the receipt of a decision, which may be empty, to a CheckResponse.
func AppendReceipt(dst []byte, receipt string) []byte {
	return appendString(dst, checkReceipt, receipt)
}

// appendLimit encodes the result of one limit as a LimitDecision.
func (e *Encoder) appendLimit(dst []byte, r *limiter.Request, l *limiter.LimitDecision) []byte {
	dst = appendString(dst, limitRule, l.Rule.Name)
	dst = appendString(dst, limitName, l.Limit.Name())
	if e.AppendKeyName != nil {
		var at int
		dst, at = open(dst, limitKey)
		dst = closed(e.AppendKeyName(dst, r, l), at)
	} else {
		dst = appendString(dst, limitKey, e.Names.KeyName(r, l))
	}
	dst = appendNumber(dst, limitAlgorithm, uint64(weirv1.Algorithm(l.Limit.Algorithm())))
	dst = appendNumber(dst, limitLimit, l.Limit.Limit())
	dst = appendNumber(dst, limitCapacity, l.Limit.Capacity())
	dst = appendNumber(dst, limitWindow, uint64(limiter.Span(l.Limit.Window())))
	dst = appendNumber(dst, limitRemaining, l.Remaining)
	dst = appendNumber(dst, limitResetAfter, uint64(limiter.Span(l.ResetAfter)))
	dst = appendNumber(dst, limitRetryAfter, uint64(limiter.Span(l.RetryAfter)))
	dst = appendBool(dst, limitAllowed, l.Allowed)
	dst = appendBool(dst, limitNever, l.Never)
	dst = appendBool(dst, limitBlocked, l.Blocked)
	dst = appendBool(dst, limitShadow, l.Rule.Shadow)
	dst = appendBool(dst, limitOverflow, l.Overflow)
	dst = appendNumber(dst, limitCost, l.Cost)
	dst = appendNumber(dst, limitKeyIndex, uint64(l.KeyIndex))
	dst = appendString(dst, limitOwner, l.Owner)
	dst = appendNumber(dst, limitInForce, l.InForce)
	return appendNumber(dst, limitCalendar, uint64(weirv1.Calendar(l.Limit.Calendar())))
}

// appendError encodes the error of a check as a CheckError.
func appendError(dst []byte, err error) []byte {
	dst = appendNumber(dst, errorCode, uint64(overgrpc.Code(err)))
	dst = appendString(dst, errorMessage, errorText(err))
	return appendNumber(dst, errorRetry, uint64(limiter.Span(fields.RetryAfter(err))))
}

// AppendResult encodes a decision and its receipt as a result of a CheckBatchResponse.
func (e *Encoder) AppendResult(dst []byte, r *limiter.Request, d *limiter.Decision, receipt string) []byte {
	dst, at := open(dst, responseResults)
	dst, in := open(dst, resultDecision)
	return closed(closed(AppendReceipt(e.AppendResponse(dst, r, d), receipt), in), at)
}

// AppendErrorResult encodes the error of a check as a result of a CheckBatchResponse.
func AppendErrorResult(dst []byte, err error) []byte {
	dst, at := open(dst, responseResults)
	dst, in := open(dst, resultError)
	return closed(closed(appendError(dst, err), in), at)
}
