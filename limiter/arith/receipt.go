package arith

import (
	"github.com/weirlimit/weir/internal/charged"
	"github.com/weirlimit/weir/limiter"
)

// What a receipt contains is for deciders: those who only ask keep it and give it back.
type (
	// ReceiptFields are the fields of a [limiter.Receipt].
	ReceiptFields = charged.Fields[limiter.Tick]
	// ReceiptParts are what each owner charged, if several decided.
	ReceiptParts = charged.Parts[limiter.Tick]
	// ReceiptPart is what one of them charged.
	ReceiptPart = charged.Part[limiter.Tick]
)

// Fields returns the fields of a receipt, to be read and written.
func Fields(r *limiter.Receipt) *ReceiptFields {
	return charged.Of((*charged.Receipt[limiter.Tick])(r))
}

// NewReceipt returns the receipt with these fields.
func NewReceipt(f ReceiptFields) (r limiter.Receipt) {
	*Fields(&r) = f
	return r
}
