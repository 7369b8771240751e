package arith

import (
	"github.com/weirlimit/weir/internal/receipt"
	"github.com/weirlimit/weir/limiter"
)

// What a receipt contains is for deciders: those who only ask keep it and give it back.
type (
	// ReceiptFields are the fields of a [limiter.Receipt].
	ReceiptFields = receipt.Fields[limiter.Tick]
	// ReceiptParts are what each owner charged, if several decided.
	ReceiptParts = receipt.Parts[limiter.Tick]
	// ReceiptPart is what one of them charged.
	ReceiptPart = receipt.Part[limiter.Tick]
)

// Fields returns the fields of a receipt, to be read and written.
func Fields(r *limiter.Receipt) *ReceiptFields {
	return receipt.Of((*receipt.Receipt[limiter.Tick])(r))
}

// NewReceipt returns the receipt with these fields.
func NewReceipt(f ReceiptFields) (r limiter.Receipt) {
	*Fields(&r) = f
	return r
}
