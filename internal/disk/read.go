package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/weirlimit/weir/internal/peer"
)

// DamageError is a place that could not be read.
type DamageError struct {
	File   string
	Offset int64
	Err    error
}

func (d DamageError) Error() string { return fmt.Sprintf("%s at byte %d: %v", d.File, d.Offset, d.Err) }

// reading is one pass over all segments.
type reading struct {
	store   *Store
	take    func(*peer.Record) error
	damages []DamageError
	// whole are the keys that a record has replaced since the start, and since the last damage. Later records of others
	// build on one that was not read, or that was deleted with its segment because a later one replaces it.
	whole map[uint32]bool
	keys  []peer.RecordKey // those of the record that is passed on
}

// Read calls take with all records, oldest first. The memory of a record is valid until take returns. Keys whose
// records would build on one that is not there or cannot be read are left out of a record, until a record replaces
// them; a record without any is not passed. It returns what could not be read; if take returns an error, that is
// damage, too. A record at the end of the last segment that is cut short is none: it was being written when the
// process ended.
func (s *Store) Read(take func(*peer.Record) error) []DamageError {
	r := reading{store: s, take: take, whole: make(map[uint32]bool)}
	for i, g := range s.segments {
		name := segmentName(g.number)
		if i > 0 && g.number != s.segments[i-1].number+1 {
			r.lost(name, 0, fmt.Errorf("%w: the segment before it is missing", errDamaged))
		}
		r.segment(name, g, i == len(s.segments)-1)
	}
	return r.damages
}

func (r *reading) lost(name string, offset int64, err error) {
	r.damages = append(r.damages, DamageError{name, offset, err})
	clear(r.whole)
}

func (r *reading) segment(name string, g *segment, last bool) {
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
	g.size = size
	in := &input{from: io.NewSectionReader(f, 0, size)}
	head, err := in.next(min(size, int64(preamble+3*256+4)))
	if err != nil {
		r.lost(name, 0, err)
		return
	}
	n, err := readHeader(head, g.number, &r.store.config.Identity)
	if err != nil {
		if !last || size >= int64(preamble) { // else the process ended when it had made the file
			r.lost(name, 0, err)
		}
		return
	}
	in.back(len(head) - n)
	var record peer.Record
	for in.offset < size {
		at := in.offset
		whole, err := in.record(g.number, size, &record)
		if err != nil {
			if whole || !last {
				r.lost(name, at, err)
			} else if f.Truncate(at) == nil { // else it is told once later segments follow
				g.size = at
			}
			return
		}
		if err := r.pass(&record); err != nil {
			r.lost(name, at, fmt.Errorf("%w: %w", errDamaged, err))
		}
		r.store.account(g, &record, in.offset-at)
	}
}

// pass passes a record on, without the keys that lack something.
func (r *reading) pass(record *peer.Record) error {
	r.keys = r.keys[:0]
	for _, k := range record.Keys {
		if k.Replaces {
			r.whole[k.Key] = true
		}
		if r.whole[k.Key] {
			r.keys = append(r.keys, k)
		}
	}
	if len(r.keys) == 0 {
		return nil
	}
	some := *record
	some.Keys = r.keys
	return r.take(&some)
}

// input reads a segment in its order.
type input struct {
	from   *io.SectionReader
	offset int64
	have   []byte // read and not used
	memory []byte
}

// next returns the next n bytes. They are valid until the next call.
func (in *input) next(n int64) ([]byte, error) {
	if int64(len(in.have)) < n {
		size := max(n, 1<<20)
		if int64(cap(in.memory)) < size {
			in.memory = make([]byte, size)
		}
		rest := copy(in.memory[:size], in.have)
		got, err := io.ReadFull(in.from, in.memory[rest:size])
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, err
		}
		in.have = in.memory[:rest+got]
		if int64(len(in.have)) < n {
			return nil, io.ErrUnexpectedEOF
		}
	}
	b := in.have[:n]
	in.have, in.offset = in.have[n:], in.offset+n
	return b, nil
}

// back puts the last n bytes back.
func (in *input) back(n int) {
	if n == 0 {
		return
	}
	used := cap(in.memory) - cap(in.have)
	in.have, in.offset = in.memory[used-n:used+len(in.have)], in.offset-int64(n)
}

// record reads one record of a segment of a size. whole reports, with an error, that the record is not merely cut
// short.
func (in *input) record(number uint64, size int64, r *peer.Record) (whole bool, err error) {
	at := in.offset
	head, err := in.next(frameHead)
	if err != nil {
		return !errors.Is(err, io.ErrUnexpectedEOF), cut(err)
	}
	length, sum := binary.LittleEndian.Uint32(head), binary.LittleEndian.Uint32(head[4:])
	if length > MaxRecord+20*MaxKeys || length == 0 {
		return true, fmt.Errorf("%w: a record of %d bytes", errDamaged, length)
	}
	if int64(length) > size-in.offset {
		return false, cut(io.ErrUnexpectedEOF)
	}
	body, err := in.next(int64(length))
	if err != nil {
		return true, err
	}
	if checksum(number, at, body) != sum {
		// The last record may be there in part: the size of a file may last before what is in it.
		return in.offset < size, fmt.Errorf("%w: the checksum of a record differs", errDamaged)
	}
	return true, readBody(body, r)
}

func cut(err error) error { return fmt.Errorf("%w: a record is cut short: %w", errDamaged, err) }
