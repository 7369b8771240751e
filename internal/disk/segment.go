package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"strings"

	"github.com/weirlimit/weir/internal/peer"
)

// The format of a segment. Integers are little endian.
//
//	header: "weirdisk", version u16, number u64, end u64, length u16, identity, checksum u32 of all before
//	record: mark, length u32 of the body, checksum u32 of identity, number, offset, length and body; body
//	body:   at i64, keys uvarint, of each key: key uvarint * 2 + 1 if it replaces, weight uvarint, and unless it
//	        replaces the place of the key's record before: segments back uvarint, offset uvarint; data
//
// end is where the segment before ends: what follows there was not synced. A key's records form a chain by those
// places, so one that is missing is noticed whatever became of it, and costs the keys that it is about and no others.
// The mark is where reading goes on after a damage.
const (
	magic     = "weirdisk"
	version   = 2
	preamble  = len(magic) + 2 + 8 + 8 + 2
	mark      = "\xb5Wr\x1e"
	frameHead = len(mark) + 8
	suffix    = ".seg"

	// mostNumber is the highest number of a segment, and mostGap how many are missing between two at most: all bytes of a
	// disk are in fewer. A file beyond them is somebody else's. To count on from there would leave no room for later ones.
	mostNumber = 1 << 62
	mostGap    = 1 << 32

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
	// Second is that of another secret by which keys are named, too: what was written under it is read. Empty for none.
	Second string
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

// unknown is the end of a segment that could not be read.
const unknown = math.MaxInt64

func header(number uint64, end int64, i *Identity) []byte {
	b := append([]byte(nil), magic...)
	b = binary.LittleEndian.AppendUint16(b, version)
	b = binary.LittleEndian.AppendUint64(b, number)
	b = binary.LittleEndian.AppendUint64(b, uint64(end))
	id := i.append(nil)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(id)))
	b = append(b, id...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli()))
}

type head struct {
	size int   // of the header
	end  int64 // of the segment before
}

// readHeader checks the header of a segment. The errors are damages, and refusals that wrap [ErrForeign].
func readHeader(b []byte, number uint64, own *Identity) (head, error) {
	if len(b) < preamble || string(b[:len(magic)]) != magic {
		return head{}, fmt.Errorf("%w: it does not begin as a segment of Weir", errDamaged)
	}
	n := int(binary.LittleEndian.Uint16(b[preamble-2:]))
	whole := func(b []byte) bool {
		return len(b) >= preamble+n+4 &&
			binary.LittleEndian.Uint32(b[preamble+n:]) == crc32.Checksum(b[:preamble+n], castagnoli())
	}
	if v := binary.LittleEndian.Uint16(b[len(magic):]); v != version && v > 0 && v <= version+100 {
		ours := binary.LittleEndian.AppendUint16(append([]byte(nil), magic...), version)
		if whole(append(ours, b[len(ours):]...)) {
			return head{}, fmt.Errorf("%w: the version in its header differs", errDamaged)
		}
		return head{}, fmt.Errorf("%w: it has version %d of the format, and this program reads version %d", ErrForeign, v,
			version)
	}
	if !whole(b) {
		return head{}, fmt.Errorf("%w: the checksum of its header differs", errDamaged)
	}
	id, ok := readIdentity(b[preamble : preamble+n])
	end := binary.LittleEndian.Uint64(b[len(magic)+10:])
	switch {
	case !ok || end > unknown:
		return head{}, fmt.Errorf("%w: its header cannot be read", errDamaged)
	case id.Cluster != own.Cluster:
		return head{}, fmt.Errorf("%w: it is of the cluster %q, and this member is of %q", ErrForeign, id.Cluster,
			own.Cluster)
	case id.Secret != own.Secret && (own.Second == "" || id.Secret != own.Second):
		return head{}, fmt.Errorf("%w: it was written under another secret, so no key in it is known", ErrForeign)
	case id.Member != own.Member:
		return head{}, fmt.Errorf("%w: it is of the member %q, and this one is %q", ErrForeign, id.Member, own.Member)
	case binary.LittleEndian.Uint64(b[len(magic)+2:]) != number:
		return head{}, fmt.Errorf("%w: it is segment %d under another name", errDamaged,
			binary.LittleEndian.Uint64(b[len(magic)+2:]))
	}
	return head{preamble + n + 4, int64(end)}, nil
}

// place is where a record begins. That of no record is zero.
type place struct {
	number uint64
	offset int64
}

// appendFrame appends a record as it stands at a place. before has the place of each key's record before.
func appendFrame(b []byte, at place, id uint32, r *peer.Record, before func(key uint32) place) []byte {
	from := len(b)
	b = append(append(b, mark...), make([]byte, frameHead-len(mark))...)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.At))
	b = binary.AppendUvarint(b, uint64(len(r.Keys)))
	for _, k := range r.Keys {
		x := uint64(k.Key) << 1
		if k.Replaces {
			x |= 1
		}
		b = binary.AppendUvarint(binary.AppendUvarint(b, x), uint64(k.Weight))
		if !k.Replaces {
			p := before(k.Key)
			b = binary.AppendUvarint(binary.AppendUvarint(b, at.number-p.number), uint64(p.offset))
		}
	}
	b = append(b, r.Data...)
	body := b[from+frameHead:]
	binary.LittleEndian.PutUint32(b[from+len(mark):], uint32(len(body)))
	binary.LittleEndian.PutUint32(b[from+len(mark)+4:], checksum(id, at, body))
	return b
}

// sum returns the identity's part of the checksums of records.
func (i *Identity) sum() uint32 { return crc32.Checksum(i.append(nil), castagnoli()) }

// sums returns the sums of all identities whose records are read.
func (i *Identity) sums() []uint32 {
	if i.Second == "" {
		return []uint32{i.sum()}
	}
	second := *i
	second.Secret = i.Second
	return []uint32{i.sum(), second.sum()}
}

func checksum(id uint32, of place, body []byte) uint32 {
	var at [20]byte
	binary.LittleEndian.PutUint64(at[:], of.number)
	binary.LittleEndian.PutUint64(at[8:], uint64(of.offset))
	binary.LittleEndian.PutUint32(at[16:], uint32(len(body)))
	return crc32.Update(crc32.Update(id, castagnoli(), at[:]), castagnoli(), body)
}

// readBody takes a body apart, whose checksum is right. The memory of r.Keys and of before, the places of the keys'
// records before, is used again.
func readBody(b []byte, at place, r *peer.Record, before []place) ([]place, error) {
	bad := fmt.Errorf("%w: a record cannot be read", errDamaged)
	if len(b) < 9 {
		return before, bad
	}
	r.At, r.Keys, before = int64(binary.LittleEndian.Uint64(b)), r.Keys[:0], before[:0]
	b = b[8:]
	failed := false
	next := func(most uint64) uint64 {
		x, n := binary.Uvarint(b)
		if n <= 0 || x > most {
			failed = true
			return 0
		}
		b = b[n:]
		return x
	}
	for n := next(MaxKeys); n > 0 && !failed; n-- {
		x := next(2*MaxKeys - 1)
		k := peer.RecordKey{Key: uint32(x >> 1), Replaces: x&1 != 0, Weight: uint32(next(1 << 31))}
		p := place{}
		if !k.Replaces {
			p = place{at.number - next(at.number), int64(next(math.MaxInt64))}
		}
		r.Keys, before = append(r.Keys, k), append(before, p)
	}
	if failed {
		return before, bad
	}
	r.Data = b
	return before, nil
}

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
