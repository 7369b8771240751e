package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/weirlimit/weir/internal/peer"
)

// DamageError is a place that could not be read. It wraps [peer.ErrTorn] if it is the end of what was being written
// when the process ended.
type DamageError struct {
	File   string
	Offset int64
	Err    error
}

func (d DamageError) Error() string { return fmt.Sprintf("%s at byte %d: %v", d.File, d.Offset, d.Err) }

func (d DamageError) Unwrap() error { return d.Err }

// mostFile is how large a segment is at most: one that is almost full, and a record.
const mostFile = mostSegment + int64(frameHead) + MaxRecord + 40*MaxKeys

// reading is one pass over all segments.
type reading struct {
	store   *Store
	take    func(*peer.Record) error
	damages []DamageError
	more    int // damages that are not listed
	// last is where the last record of each key is that was passed on. A record that does not build on that one builds
	// on one that was not read, or that was deleted with its segment because a later one replaces it.
	last   map[uint32]place
	keys   []peer.RecordKey // those of the record that is passed on
	before []place
}

// mostDamages is how many damages are listed. Of more only the number is told.
const mostDamages = 1000

// Read calls take with all records, oldest first. The memory of a record is valid until take returns. Keys whose
// records would build on one that is not there or cannot be read are left out of a record, until a record replaces
// them; a record without any is not passed. It returns what could not be read. If take returns an error, that is
// damage, too: of the keys that it has put into the record's Refused, or of all if there are none.
//
// After a damage it goes on with the next record that is whole.
func (s *Store) Read(take func(*peer.Record) error) []DamageError {
	r := reading{store: s, take: take, last: make(map[uint32]place)}
	whole := -1 // the last segment with a header
	for i, g := range s.segments {
		if g.header == nil {
			whole = i
		}
	}
	for _, name := range s.strange {
		r.lost(name, 0, fmt.Errorf("%w: no segment has such a number", errDamaged))
	}
	for i, g := range s.segments {
		if i > 0 && g.number != s.segments[i-1].number+1 {
			r.lost(segmentName(g.number), 0, fmt.Errorf("%w: the segment before it is missing", errDamaged))
		}
		end := int64(unknown)
		if i+1 < len(s.segments) && s.segments[i+1].number == g.number+1 {
			end = s.segments[i+1].before
		}
		r.segment(g, end, i >= whole)
	}
	if r.more > 0 {
		r.damages = append(r.damages, DamageError{"the data directory", 0, fmt.Errorf("%w: at %d more places", errDamaged,
			r.more)})
	}
	return r.damages
}

func (r *reading) lost(name string, offset int64, err error) {
	if len(r.damages) == mostDamages {
		r.more++
		return
	}
	r.damages = append(r.damages, DamageError{name, offset, err})
}

// segment reads a segment up to its end. Without one, if it is the last, what is not whole there was being written.
func (r *reading) segment(g *segment, end int64, last bool) {
	name := segmentName(g.number)
	if end == 0 {
		g.end = 0 // nothing of it was synced
		return
	}
	f, err := r.store.files.Open(name)
	if err != nil {
		r.lost(name, 0, err)
		return
	}
	defer func() { _ = f.Close() }() // it was only read
	size, err := f.Size()
	if err != nil {
		r.lost(name, 0, err)
		return
	}
	if size < end && end != unknown {
		r.lost(name, size, fmt.Errorf("%w: it is cut short, and had %d bytes", errDamaged, end))
	}
	if size = min(size, end); size > mostFile {
		// Something else has made it longer, such as a restore with holes: to look for records in all of it could take hours.
		r.lost(name, mostFile, fmt.Errorf("%w: it has %d bytes, and a segment has no more than these", errDamaged, size))
		size = mostFile
	}
	g.size = size
	in := &input{from: f, size: size, number: g.number, ids: r.store.config.Identity.sums()}
	at, err := int64(g.head), g.header
	from := at // what follows could not be read, if there is an error
	var record peer.Record
	for err == nil && at < size || err != nil {
		n := int64(0)
		if err == nil {
			from = at
			n, err = in.record(at, &record, &r.before)
		}
		if err != nil {
			at, n = in.next(from, &record, &r.before)
			if n == 0 && last && in.failed == 0 {
				err = fmt.Errorf("%w: %w", peer.ErrTorn, err)
				g.size, g.end = from, from
			}
			r.lost(name, from, err)
			if n == 0 {
				return
			}
			err = nil
		}
		if failed := r.pass(&record, place{g.number, at}); failed != nil {
			r.lost(name, at, fmt.Errorf("%w: %w", errDamaged, failed))
		}
		r.store.account(g, &record, place{g.number, at}, n)
		at += n
	}
	g.end = size
}

// pass passes a record on, without the keys that lack something.
func (r *reading) pass(record *peer.Record, at place) error {
	r.keys = r.keys[:0]
	for i, k := range record.Keys {
		if k.Replaces || r.last[k.Key] == r.before[i] {
			r.last[k.Key] = at
			r.keys = append(r.keys, k)
		} else {
			delete(r.last, k.Key)
		}
	}
	if len(r.keys) == 0 {
		return nil
	}
	some := *record
	some.Keys, some.Refused = r.keys, nil
	err := r.take(&some)
	if err == nil {
		return nil
	}
	for _, k := range some.Refused {
		delete(r.last, k)
	}
	if len(some.Refused) == 0 {
		for _, k := range r.keys {
			delete(r.last, k.Key)
		}
	}
	return err
}

// input reads the records of a segment.
type input struct {
	from   io.ReaderAt
	size   int64
	number uint64
	ids    []uint32 // of the identities whose records are read

	start  int64 // of window
	window []byte
	memory []byte
	wasted int64 // bytes whose checksum was computed in vain
	failed int   // sectors that the file system did not give
}

// Where the file system does not give a page, a sector is skipped, so many times at most.
const (
	page, sector = 4 << 10, 1 << 9
	mostFailed   = 1 << 10
)

// bytes returns n bytes at an offset, which the segment has. They are valid until the next call.
func (in *input) bytes(at, n int64) ([]byte, error) {
	if i := at - in.start; i >= 0 && i+n <= int64(len(in.window)) {
		return in.window[i : i+n], nil
	}
	size := min(max(n, 1<<20), in.size-at)
	if int64(cap(in.memory)) < size {
		in.memory = make([]byte, size)
	}
	in.start, in.window = at, nil
	got, err := in.from.ReadAt(in.memory[:size], at)
	if int64(got) < n && err != nil && !errors.Is(err, io.EOF) { // of what is wanted, or of what follows
		got, err = in.from.ReadAt(in.memory[:n], at)
	}
	if int64(got) < n {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	in.window = in.memory[:got]
	return in.window[:n], nil
}

// record reads the record at an offset, and returns its size. An error wraps errDamaged.
func (in *input) record(at int64, r *peer.Record, before *[]place) (size int64, err error) {
	if in.size-at < int64(frameHead) {
		return 0, errCut
	}
	head, err := in.bytes(at, int64(frameHead))
	if err != nil {
		return 0, err
	}
	length, sum := binary.LittleEndian.Uint32(head[len(mark):]), binary.LittleEndian.Uint32(head[len(mark)+4:])
	if string(head[:len(mark)]) != mark || length > MaxRecord+40*MaxKeys || length == 0 {
		return 0, fmt.Errorf("%w: no record begins here", errDamaged)
	}
	if int64(length) > in.size-at-int64(frameHead) {
		return 0, errCut
	}
	body, err := in.bytes(at+int64(frameHead), int64(length))
	if err != nil {
		return 0, err
	}
	if !slices.ContainsFunc(in.ids, func(id uint32) bool { return checksum(id, place{in.number, at}, body) == sum }) {
		in.wasted += int64(length) * int64(len(in.ids))
		return 0, fmt.Errorf("%w: the checksum of a record differs", errDamaged)
	}
	if *before, err = readBody(body, place{in.number, at}, r, *before); err != nil {
		in.wasted += int64(length)
		return 0, err
	}
	return int64(frameHead) + int64(length), nil
}

var errCut = fmt.Errorf("%w: a record is cut short", errDamaged)

// next reads the first record that is whole after an offset, and returns where it is and its size, 0 if there is none.
// It gives up a segment that has marks without end.
func (in *input) next(after int64, r *peer.Record, before *[]place) (at, size int64) {
	for at = after + 1; in.size-at >= int64(frameHead) && in.wasted <= 4*in.size; at++ {
		n := min(1<<16, in.size-at)
		b, err := in.bytes(at, n)
		if err != nil {
			n = min(page, in.size-at)
			b, err = in.bytes(at, n)
		}
		if err != nil {
			if in.failed++; in.failed > mostFailed {
				return 0, 0
			}
			at += sector - 1
			continue
		}
		i := bytes.Index(b, []byte(mark))
		if i < 0 {
			at += n - int64(len(mark))
			continue
		}
		at += int64(i)
		if size, err := in.record(at, r, before); err == nil {
			return at, size
		}
	}
	return 0, 0
}
