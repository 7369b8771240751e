package weir

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	randv2 "math/rand/v2"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// sealKey seals receipts for clients: a client cannot make one, change one, or use it for another request
// than that of its charge.
type sealKey [sha256.Size]byte

// newSealKey returns the key of all nodes with a secret, a cluster name, and one kind of
// counters: those of members of a cluster, or of a backend. They read the fields of a
// receipt differently. A kind has no line feed.
func newSealKey(secret []byte, kind, cluster string) (k sealKey) {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("weir receipt 1\n" + kind + "\n" + cluster))
	mac.Sum(k[:0])
	return k
}

// randomSealKey returns a key of this process alone.
func randomSealKey() (k sealKey) {
	_, _ = rand.Read(k[:]) // which never fails
	return k
}

// A receipt of several owners has another version: the number of its parts follows the
// four fields that all parts share, and then come the parts.
const (
	sealVersion      = 1
	sealVersionParts = 2
	tagSize          = 16
	sealSize         = 1 + 5*8 + tagSize
	headOfParts      = 1 + 4*8 + 1
	partSize         = 2 + 4*8
	// maxSize is the greatest length of a receipt, in bytes; as a text it is a third longer.
	maxSize = headOfParts + limiter.MaxKeys*partSize + tagSize
	// wideMark, in the place of the number of limits, says that the rest of a cost above
	// [limiter.NarrowUnits] follows.
	wideMark = 1<<32 - 1
)

// seal returns the receipt of a charge, with a number of its own, as a text.
func (k *sealKey) seal(r limiter.Receipt, c *arith.Charge) string {
	f := arith.Fields(&r)
	number := randv2.Uint64()
	if number == 0 {
		number = 1
	}
	if f.Parts != nil {
		return k.sealParts(r, number, c)
	}
	b := make([]byte, 0, sealSize)
	b = append(b, sealVersion)
	for _, v := range [...]uint64{f.Epoch, uint64(f.Time), f.Charged, f.Set, number} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	return base64.RawURLEncoding.EncodeToString(k.tag(b, c))
}

// sealParts is seal of a receipt of several owners.
func (k *sealKey) sealParts(r limiter.Receipt, number uint64, c *arith.Charge) string {
	f := arith.Fields(&r)
	parts := *f.Parts
	if len(parts) == 0 || len(parts) > limiter.MaxKeys {
		return ""
	}
	b := make([]byte, 0, maxSize)
	b = append(b, sealVersionParts)
	for _, v := range [...]uint64{uint64(f.Time), f.Charged, f.Set, number} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	b = append(b, byte(len(parts)))
	for _, p := range parts {
		b = binary.BigEndian.AppendUint16(b, p.Keys)
		for _, v := range [...]uint64{p.Epoch, uint64(p.Time), p.Charged, p.Set} {
			b = binary.BigEndian.AppendUint64(b, v)
		}
	}
	return base64.RawURLEncoding.EncodeToString(k.tag(b, c))
}

// tag appends the tag of a receipt for a charge: of its keys, their costs, and all that
// makes their limits decide as they do. A limit of the same name with another window or
// time zone counts other charges, so it is another limit here.
func (k *sealKey) tag(b []byte, c *arith.Charge) []byte {
	mac := hmac.New(sha256.New, k[:])
	mac.Write(b)
	for i := range c.Len() {
		key := c.Key(i)
		var inline [256]byte
		of := binary.BigEndian.AppendUint64(inline[:0], key.Hash.Hi)
		of = binary.BigEndian.AppendUint64(of, key.Hash.Lo)
		if of = binary.BigEndian.AppendUint32(of,
			uint32(key.Cost)); key.Cost > limiter.NarrowUnits { //nolint:gosec // its high half follows
			// So other receipts keep the tag of versions without such costs. The number of
			// limits is smaller than this mark.
			of = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(of, wideMark), uint32(key.Cost>>32))
		}
		of = binary.BigEndian.AppendUint32(of, uint32(len(key.Rule.Limits)))
		for _, l := range key.Rule.Limits {
			of = binary.BigEndian.AppendUint64(of, arith.ParamsID(l))
		}
		mac.Write(of)
	}
	var sum [sha256.Size]byte
	return append(b, mac.Sum(sum[:0])[:tagSize]...)
}

// open returns the receipt in a text that seal returned for a charge with the same keys,
// costs and limits.
// For any other text the error wraps [limiter.ErrInvalid].
func (k *sealKey) open(text string, c *arith.Charge) (limiter.Receipt, error) {
	b, ok := decodeSealed(text)
	if !ok {
		return limiter.Receipt{},
			fmt.Errorf("%w: this text of %d bytes is not a receipt: send the one that came with the answer, unchanged",
				limiter.ErrInvalid, len(text))
	}
	body := b[: len(b)-tagSize : len(b)-tagSize]
	if !hmac.Equal(k.tag(body, c), b) {
		return limiter.Receipt{},
			fmt.Errorf("%w: the receipt is not of this request: send the request of its check, to nodes with the same secret "+
				"(a node without a secret opens only its own receipts), under the same rules", limiter.ErrInvalid)
	}
	at := func(i int) uint64 { return binary.BigEndian.Uint64(b[1+8*i:]) }
	if b[0] == sealVersion {
		return arith.NewReceipt(arith.ReceiptFields{Epoch: at(0), Time: limiter.Tick(at(1)), Charged: at(2), Set: at(3),
			Once: at(4)}), nil
	}
	parts := make(arith.ReceiptParts, b[headOfParts-1])
	for i := range parts {
		p := b[headOfParts+i*partSize:]
		of := func(i int) uint64 { return binary.BigEndian.Uint64(p[2+8*i:]) }
		parts[i] = arith.ReceiptPart{Keys: binary.BigEndian.Uint16(p), Epoch: of(0), Time: limiter.Tick(of(1)),
			Charged: of(2), Set: of(3)}
	}
	return arith.NewReceipt(arith.ReceiptFields{Time: limiter.Tick(at(0)), Charged: at(1), Set: at(2), Once: at(3),
		Parts: &parts}), nil
}

// decodeSealed returns the bytes of a text, if they have the form of a receipt.
func decodeSealed(text string) ([]byte, bool) {
	if len(text) > base64.RawURLEncoding.EncodedLen(maxSize) {
		return nil, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	switch {
	case err != nil || len(b) < headOfParts+partSize+tagSize && len(b) != sealSize:
		return nil, false
	case b[0] == sealVersion:
		return b, len(b) == sealSize
	}
	n := int(b[headOfParts-1])
	return b, b[0] == sealVersionParts && n > 0 && n <= limiter.MaxKeys && len(b) == headOfParts+n*partSize+tagSize
}
