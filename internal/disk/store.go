package disk

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/weirlimit/weir/internal/peer"
)

var (
	// ErrForeign is wrapped by the error of [Open] if the directory has records of another cluster, secret, member or
	// version of the format.
	ErrForeign = errors.New("the data directory is not this member's")
	// ErrLocked is wrapped by the error of [Open] if another process uses the directory.
	ErrLocked = errors.New("another process uses the data directory")
)

// The sizes of segments: an eighth of what is needed, within these bounds. leastFiles is what a directory may take
// however little is needed.
const (
	leastSegment = 1 << 20
	mostSegment  = 64 << 20
	leastFiles   = 4 << 20
	bufferBytes  = 256 << 10
)

// Config is what to open.
type Config struct {
	// Dir is the directory. It is made if it does not exist. Files, unless nil, takes its place.
	Dir   string
	Files Files
	// Identity is whose records these are.
	Identity Identity
	// Discard sets aside what the directory has, under names that end in ".discarded", whosever it is. Those set aside
	// before are deleted.
	Discard bool
}

// Store is an open directory. It is not safe for concurrent use.
type Store struct {
	config Config
	files  Files
	lock   io.Closer

	segments []*segment // oldest first; the last one is written if file is not nil
	first    uint64     // number of the first segment since the last failure or start
	next     uint64     // number of the next segment
	keys     map[uint32][]part
	needed   int64 // bytes that some key needs

	file   File
	buffer []byte
	synced int64 // bytes of the last segment that last

	// Written is the number of bytes written, Syncs that of successful calls of Sync.
	Written, Syncs int64
}

// segment is one file. needed is how many of its bytes some key needs.
type segment struct {
	number       uint64
	size, needed int64
}

// part is what a key needs of a segment.
type part struct {
	of    *segment
	bytes int64
}

// Open opens a directory. Nothing of it is read but the headers of its segments: [Store.Read] reads the rest, and must
// be called before the first [Store.Append].
func Open(c Config) (*Store, error) {
	if !c.Identity.valid() {
		return nil, errors.New("a name of more than 255 bytes")
	}
	s := &Store{config: c, files: c.Files, next: 1, keys: make(map[uint32][]part)}
	if s.files == nil {
		d, err := openDirectory(c.Dir)
		if err != nil {
			return nil, fmt.Errorf("cannot open the data directory: %w", err)
		}
		s.files = d
	}
	var err error
	if s.lock, err = s.files.Lock(); err != nil {
		return nil, fmt.Errorf("%s: %w", c.Dir, err)
	}
	if err := s.find(); err != nil {
		_ = s.lock.Close() // the error before says what is wrong
		return nil, fmt.Errorf("%s: %w", c.Dir, err)
	}
	return s, nil
}

// find lists the segments. It returns an error if one is not this member's.
func (s *Store) find() error {
	names, err := s.files.List()
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		if s.config.Discard && strings.HasSuffix(name, ".discarded") {
			if err := s.files.Remove(name); err != nil {
				return err
			}
		}
	}
	for _, name := range names {
		number, ok := segmentNumber(name)
		if !ok || number == math.MaxUint64 {
			continue
		}
		s.next = number + 1
		if s.config.Discard {
			if err := s.files.Rename(name, name+".discarded"); err != nil {
				return err
			}
			continue
		}
		if err := s.judge(name, number); err != nil {
			return fmt.Errorf("%s: %w: give the directory of this member, or start with --discard-data, which sets aside "+
				"what is there", name, err)
		}
		s.segments = append(s.segments, &segment{number: number})
	}
	s.first = s.next
	return nil
}

// judge returns an error if a segment is another one's. A damaged header is told when it is read.
func (s *Store) judge(name string, number uint64) error {
	f, err := s.files.Open(name)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was only read
	b := make([]byte, preamble+3*256+4)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if _, err = readHeader(b[:n], number, &s.config.Identity); errors.Is(err, ErrForeign) {
		return err
	}
	return nil
}

// Append adds a record. It lasts when [Store.Sync] has returned. After an error of Append or Sync nothing that was
// appended since the last successful Sync lasts, and all keys must be replaced: see [Store.Complete].
func (s *Store) Append(r *peer.Record) error {
	if len(r.Data) > MaxRecord || len(r.Keys) > MaxKeys {
		return fmt.Errorf("a record of %d bytes and %d keys is too large", len(r.Data), len(r.Keys))
	}
	if s.file == nil || s.last().size >= s.segmentBytes() {
		if err := s.begin(); err != nil {
			return s.fail(err)
		}
	}
	from := len(s.buffer)
	s.buffer = appendFrame(s.buffer, s.last().number, s.last().size, r)
	size := int64(len(s.buffer) - from)
	s.last().size += size
	s.account(s.last(), r, size)
	if len(s.buffer) >= bufferBytes {
		return s.flush()
	}
	return nil
}

func (s *Store) last() *segment { return s.segments[len(s.segments)-1] }

// segmentBytes is how large a segment becomes.
func (s *Store) segmentBytes() int64 { return min(max(s.needed/8, leastSegment), mostSegment) }

// account records what keys need of a record of so many bytes.
func (s *Store) account(in *segment, r *peer.Record, size int64) {
	sum := int64(0)
	for _, k := range r.Keys {
		sum += int64(k.Weight)
	}
	for _, k := range r.Keys {
		if k.Replaces {
			s.unneeded(k.Key)
		}
		if k.Weight == 0 {
			continue
		}
		bytes := max(1, int64(float64(size)*float64(k.Weight)/float64(sum)))
		in.needed += bytes
		s.needed += bytes
		all := s.keys[k.Key]
		if n := len(all); n > 0 && all[n-1].of == in {
			all[n-1].bytes += bytes
		} else {
			s.keys[k.Key] = append(all, part{in, bytes})
		}
	}
}

func (s *Store) unneeded(key uint32) {
	for _, p := range s.keys[key] {
		p.of.needed -= p.bytes
		s.needed -= p.bytes
	}
	delete(s.keys, key)
}

// Needed returns how many bytes the records of a key take.
func (s *Store) Needed(key uint32) (n int64) {
	for _, p := range s.keys[key] {
		n += p.bytes
	}
	return n
}

// Bytes returns the bytes of all segments, and how many of them some key needs.
func (s *Store) Bytes() (all, needed int64) {
	for _, g := range s.segments {
		all += g.size
	}
	return all, s.needed
}

// Aged returns keys that should be replaced by the next records, as the directory is more than twice as large as it
// need be: those that need the oldest segments. A segment is deleted when no key needs it and those before it are gone.
func (s *Store) Aged() (keys []uint32) {
	all, needed := s.Bytes()
	excess := all - max(2*needed, leastFiles)
	old := make(map[*segment]bool)
	for _, g := range s.segments[:max(0, len(s.segments)-1)] {
		if excess <= 0 {
			break
		}
		old[g] = true
		excess -= g.size - g.needed
	}
	for k, parts := range s.keys {
		if old[parts[0].of] {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

// begin begins a segment.
func (s *Store) begin() error {
	if s.file != nil {
		if err := s.sync(); err != nil {
			return err
		}
		f := s.file
		s.file = nil
		if err := f.Close(); err != nil {
			return err
		}
	}
	f, err := s.files.Create(segmentName(s.next))
	if err != nil {
		return err
	}
	g := &segment{number: s.next}
	s.segments = append(s.segments, g)
	s.file, s.synced, s.next = f, 0, s.next+1
	s.buffer = append(s.buffer[:0], header(g.number, &s.config.Identity)...)
	g.size = int64(len(s.buffer))
	return nil
}

func (s *Store) flush() error {
	if len(s.buffer) == 0 {
		return nil
	}
	n, err := s.file.Write(s.buffer)
	s.Written += int64(n)
	if err != nil {
		return s.fail(err)
	}
	s.buffer = s.buffer[:0]
	return nil
}

func (s *Store) sync() error {
	if s.file == nil {
		return nil
	}
	if err := s.flush(); err != nil {
		return err
	}
	if err := s.file.Sync(); err != nil {
		return s.fail(err)
	}
	s.synced = s.last().size
	return nil
}

// Sync returns when everything that was appended lasts. If that is complete, it deletes the segments that nobody needs
// any more: no key is half replaced, and all were replaced since the last error, or the start, so that what was written
// before it is not needed.
func (s *Store) Sync(complete bool) error {
	if err := s.sync(); err != nil {
		return err
	}
	s.Syncs++
	for complete && len(s.segments) > 1 {
		g := s.segments[0]
		if g.needed > 0 && g.number >= s.first {
			return nil
		}
		if err := s.files.Remove(segmentName(g.number)); err != nil {
			return fmt.Errorf("%s: %w", segmentName(g.number), err)
		}
		s.segments = s.segments[1:]
		for k, parts := range s.keys {
			if parts[0].of == g {
				s.needed -= parts[0].bytes
				if s.keys[k] = parts[1:]; len(parts) == 1 {
					delete(s.keys, k)
				}
			}
		}
	}
	return nil
}

// fail gives up the segment that is being written, but for what lasts of it: after an error it is not known what of
// the rest does. What is written from then on is in later segments, and those before stay until a Sync is complete.
func (s *Store) fail(err error) error {
	if s.file != nil {
		g := s.last()
		_ = s.file.Truncate(s.synced) // what is left there has checksums
		_ = s.file.Close()            // nothing more is written to it
		if g.size = s.synced; s.synced == 0 && s.files.Remove(segmentName(g.number)) == nil {
			s.segments, s.next = s.segments[:len(s.segments)-1], g.number
		}
		s.file = nil
	}
	s.buffer, s.first, s.needed = nil, s.next, 0
	clear(s.keys)
	for _, g := range s.segments {
		g.needed = 0
	}
	return err
}

// Close closes the directory. What was not synced may be lost.
func (s *Store) Close() error {
	var err error
	if s.file != nil {
		err = s.file.Close()
		s.file = nil
	}
	return errors.Join(err, s.lock.Close())
}
