package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/weirlimit/weir/internal/peer"
)

// The format of a segment. Integers are little endian.
//
//	header: "weirdisk", version u16, number u64, length u16, identity, checksum u32 of all before
//	record: length u32 of the body, checksum u32 of number, offset, length and body; body
//	body:   at i64, keys uvarint, of each key: key uvarint * 2 + 1 if it replaces, weight uvarint; data
const (
	magic     = "weirdisk"
	version   = 1
	preamble  = len(magic) + 2 + 8 + 2
	frameHead = 8
	suffix    = ".seg"

	// MaxRecord is the most bytes of a record's data.
	MaxRecord = 16 << 20
	// MaxKeys is the most keys of a record, and the number of keys there are.
	MaxKeys = 1 << 14
)

// Identity is whose records a directory holds. A directory of another one is refused.
type Identity struct {
	// Cluster and Member are names of up to 255 bytes.
	Cluster, Member string
	// Secret is a fingerprint of what keys are named by: not the secret, and no more than 255 bytes.
	Secret string
}

// castagnoli returns the polynomial of the checksums. It is made once.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// errDamaged is wrapped by what is wrong with a segment.
var errDamaged = errors.New("damaged")

func (i *Identity) append(b []byte) []byte {
	for _, s := range []string{i.Cluster, i.Member, i.Secret} {
		b = append(b, byte(len(s)))
		b = append(b, s...)
	}
	return b
}

func (i *Identity) valid() bool {
	return len(i.Cluster) <= 255 && len(i.Member) <= 255 && len(i.Secret) <= 255
}

func readIdentity(b []byte) (i Identity, ok bool) {
	for _, to := range []*string{&i.Cluster, &i.Member, &i.Secret} {
		if len(b) == 0 || len(b) < 1+int(b[0]) {
			return i, false
		}
		*to, b = string(b[1:1+int(b[0])]), b[1+int(b[0]):]
	}
	return i, len(b) == 0
}

func header(number uint64, i *Identity) []byte {
	b := append([]byte(nil), magic...)
	b = binary.LittleEndian.AppendUint16(b, version)
	b = binary.LittleEndian.AppendUint64(b, number)
	id := i.append(nil)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(id)))
	b = append(b, id...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli()))
}

// readHeader checks the header of a segment and returns its length. The errors are damages, and refusals that wrap
// [ErrForeign].
func readHeader(b []byte, number uint64, own *Identity) (int, error) {
	if len(b) < preamble || string(b[:len(magic)]) != magic {
		return 0, fmt.Errorf("%w: it does not begin as a segment of Weir", errDamaged)
	}
	v := binary.LittleEndian.Uint16(b[len(magic):])
	n := int(binary.LittleEndian.Uint16(b[preamble-2:]))
	if len(b) < preamble+n+4 ||
		binary.LittleEndian.Uint32(b[preamble+n:]) != crc32.Checksum(b[:preamble+n], castagnoli()) {
		return 0, fmt.Errorf("%w: the checksum of its header differs", errDamaged)
	}
	if v != version {
		return 0, fmt.Errorf("%w: it has version %d of the format, and this program reads version %d", ErrForeign, v,
			version)
	}
	id, ok := readIdentity(b[preamble : preamble+n])
	switch {
	case !ok:
		return 0, fmt.Errorf("%w: its header cannot be read", errDamaged)
	case id.Cluster != own.Cluster:
		return 0, fmt.Errorf("%w: it is of the cluster %q, and this member is of %q", ErrForeign, id.Cluster, own.Cluster)
	case id.Secret != own.Secret:
		return 0, fmt.Errorf("%w: it was written under another secret, so no key in it is known", ErrForeign)
	case id.Member != own.Member:
		return 0, fmt.Errorf("%w: it is of the member %q, and this one is %q", ErrForeign, id.Member, own.Member)
	case binary.LittleEndian.Uint64(b[len(magic)+2:]) != number:
		return 0, fmt.Errorf("%w: it is segment %d under another name", errDamaged,
			binary.LittleEndian.Uint64(b[len(magic)+2:]))
	}
	return preamble + n + 4, nil
}

// appendFrame appends a record as it stands at an offset of a segment.
func appendFrame(b []byte, number uint64, offset int64, r *peer.Record) []byte {
	from := len(b)
	b = append(b, make([]byte, frameHead)...)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.At))
	b = binary.AppendUvarint(b, uint64(len(r.Keys)))
	for _, k := range r.Keys {
		x := uint64(k.Key) << 1
		if k.Replaces {
			x |= 1
		}
		b = binary.AppendUvarint(binary.AppendUvarint(b, x), uint64(k.Weight))
	}
	b = append(b, r.Data...)
	body := b[from+frameHead:]
	binary.LittleEndian.PutUint32(b[from:], uint32(len(body)))
	binary.LittleEndian.PutUint32(b[from+4:], checksum(number, offset, body))
	return b
}

func checksum(number uint64, offset int64, body []byte) uint32 {
	var at [20]byte
	binary.LittleEndian.PutUint64(at[:], number)
	binary.LittleEndian.PutUint64(at[8:], uint64(offset))
	binary.LittleEndian.PutUint32(at[16:], uint32(len(body)))
	return crc32.Update(crc32.Checksum(at[:], castagnoli()), castagnoli(), body)
}

// readBody takes a body apart, whose checksum is right. r.Keys is used again.
func readBody(b []byte, r *peer.Record) error {
	bad := fmt.Errorf("%w: a record cannot be read", errDamaged)
	if len(b) < 9 {
		return bad
	}
	r.At, r.Keys = int64(binary.LittleEndian.Uint64(b)), r.Keys[:0]
	b = b[8:]
	n, used := binary.Uvarint(b)
	if used <= 0 || n > MaxKeys {
		return bad
	}
	b = b[used:]
	for range n {
		x, used := binary.Uvarint(b)
		if used <= 0 || x>>1 >= MaxKeys {
			return bad
		}
		w, more := binary.Uvarint(b[used:])
		if more <= 0 || w > 1<<31 {
			return bad
		}
		b = b[used+more:]
		r.Keys = append(r.Keys, peer.RecordKey{Key: uint32(x >> 1), Replaces: x&1 != 0, Weight: uint32(w)})
	}
	r.Data = b
	return nil
}

// segmentName returns the name of the file of a segment.
func segmentName(number uint64) string { return fmt.Sprintf("%016x%s", number, suffix) }

// segmentNumber is its opposite.
func segmentNumber(name string) (number uint64, ok bool) {
	hex, ok := strings.CutSuffix(name, suffix)
	if !ok || len(hex) != 16 {
		return 0, false
	}
	if _, err := fmt.Sscanf(hex, "%016x", &number); err != nil || segmentName(number) != name || number == 0 {
		return 0, false
	}
	return number, true
}
