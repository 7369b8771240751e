// Package receipt seals receipts for clients: a client cannot make one, change one, or use
// it for another request than that of its charge.
package receipt

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	randv2 "math/rand/v2"

	"github.com/weirlimit/weir/limiter"
)

// Key is the key of a seal.
type Key [sha256.Size]byte

// NewKey returns the key of all nodes with a secret, a cluster name, and one kind of
// counters: those of members of a cluster, or of a backend. They read the fields of a
// receipt differently. A kind has no line feed.
func NewKey(secret []byte, kind, cluster string) (k Key) {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("weir receipt 1\n" + kind + "\n" + cluster))
	mac.Sum(k[:0])
	return k
}

// RandomKey returns a key of this process alone.
func RandomKey() (k Key) {
	_, _ = rand.Read(k[:]) // which never fails
	return k
}

const (
	version = 1
	tagSize = 16
	size    = 1 + 5*8 + tagSize
)

// Seal returns the receipt of a charge, with a number of its own, as a text.
func (k *Key) Seal(r limiter.Receipt, c *limiter.Charge) string {
	b := make([]byte, 0, size)
	b = append(b, version)
	number := randv2.Uint64()
	if number == 0 {
		number = 1
	}
	for _, v := range [...]uint64{r.Epoch, uint64(r.Time), r.Charged, r.Set, number} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	return base64.RawURLEncoding.EncodeToString(k.tag(b, c))
}

// tag appends the tag of a receipt for a charge: of its keys, their costs, and all that
// makes their limits decide as they do. A limit of the same name with another window or
// time zone counts other charges, so it is another limit here.
func (k *Key) tag(b []byte, c *limiter.Charge) []byte {
	mac := hmac.New(sha256.New, k[:])
	mac.Write(b)
	for i := range c.Len() {
		key := c.Key(i)
		var inline [256]byte
		of := binary.BigEndian.AppendUint64(inline[:0], key.Hash.Hi)
		of = binary.BigEndian.AppendUint64(of, key.Hash.Lo)
		of = binary.BigEndian.AppendUint32(of, key.Cost)
		of = binary.BigEndian.AppendUint32(of, uint32(len(key.Rule.Limits)))
		for _, l := range key.Rule.Limits {
			of = binary.BigEndian.AppendUint64(of, limiter.ParamsID(l))
		}
		mac.Write(of)
	}
	var sum [sha256.Size]byte
	return append(b, mac.Sum(sum[:0])[:tagSize]...)
}

// Open returns the receipt in a text that Seal returned for a charge with the same keys,
// costs and limits.
// For any other text the error wraps [limiter.ErrInvalid].
func (k *Key) Open(text string, c *limiter.Charge) (limiter.Receipt, error) {
	if len(text) != base64.RawURLEncoding.EncodedLen(size) {
		return limiter.Receipt{}, fmt.Errorf("%w: the receipt has %d bytes, not %d: send the one that came with the answer, unchanged",
			limiter.ErrInvalid, len(text), base64.RawURLEncoding.EncodedLen(size))
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || b[0] != version {
		return limiter.Receipt{}, fmt.Errorf("%w: this is not a receipt: send the one that came with the answer, unchanged", limiter.ErrInvalid)
	}
	body := b[: size-tagSize : size-tagSize]
	if !hmac.Equal(k.tag(body, c), b) {
		return limiter.Receipt{}, fmt.Errorf("%w: the receipt is not of this request: send the request of its check, to nodes with the same secret (a node without a secret opens only its own receipts), under the same rules", limiter.ErrInvalid)
	}
	at := func(i int) uint64 { return binary.BigEndian.Uint64(b[1+8*i:]) }
	return limiter.Receipt{Epoch: at(0), Time: limiter.Tick(at(1)), Charged: at(2), Set: at(3), Once: at(4)}, nil
}
