package disk

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
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
	// Segment is how large segments become at least. 0 means 1 MiB.
	Segment int64
}

// Store is an open directory. It is not safe for concurrent use.
type Store struct {
	config Config
	files  Files
	lock   io.Closer

	segments []*segment // oldest first; the last one is written if file is not nil
	strange  []string   // files whose numbers no segment has
	first    uint64     // number of the first segment since the last failure or start
	next     uint64     // number of the next segment
	keys     map[uint32]*chain
	needed   int64  // bytes that some key needs
	id       uint32 // the identity's part of checksums

	file   File
	buffer []byte

	// Written is the number of bytes written.
	Written int64
}

// segment is one file. needed is how many of its bytes some key needs.
type segment struct {
	number       uint64
	size, needed int64
	// end is where it ends: what the file has beyond was not synced. It is unknown if the file could not be read.
	end int64
	// head is the size of its header, before the end of the segment before by it. header is why it cannot be read.
	head   int
	before int64
	header error
}

// chain is what a key needs, and where its last record is.
type chain struct {
	parts []part
	last  place
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
	s := &Store{config: c, files: c.Files, next: 1, keys: make(map[uint32]*chain),
		id: c.Identity.sum()}
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
		if !ok {
			continue
		}
		if s.config.Discard {
			if err := s.files.Rename(name, name+".discarded"); err != nil {
				return err
			}
			continue
		}
		if number > mostNumber || len(s.segments) > 0 && number-s.last().number > mostGap {
			s.strange = append(s.strange, name)
			continue
		}
		if number > mostNumber-mostGap {
			return fmt.Errorf("%s: its number leaves no room for later segments: start with --discard-data, which sets aside "+
				"what is there", name)
		}
		s.next = number + 1
		g := &segment{number: number, end: unknown, before: unknown}
		if err := s.judge(name, g); err != nil {
			what := "give the directory of this member"
			if !errors.Is(err, ErrForeign) {
				what = "mend what keeps it from being read"
			}
			return fmt.Errorf("%s: %w: %s, or start with --discard-data, which sets aside what is there", name, err, what)
		}
		s.segments = append(s.segments, g)
	}
	s.first = s.next
	if s.config.Discard {
		return s.files.SyncNames() // else what was set aside may be back
	}
	return nil
}

// judge reads the header of a segment. It returns an error if the segment is another one's. A damaged header is told
// when the segment is read.
func (s *Store) judge(name string, g *segment) error {
	f, err := s.files.Open(name)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was only read
	b := make([]byte, preamble+3*256+4)
	n, _ := f.ReadAt(b, 0) // what cannot be read is a damaged header
	h, err := readHeader(b[:n], g.number, &s.config.Identity)
	switch {
	case errors.Is(err, ErrForeign):
		return err
	case err != nil:
		g.header = err
	default:
		g.head, g.before = h.size, h.end
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
	from, at := len(s.buffer), place{s.last().number, s.last().size}
	s.buffer = appendFrame(s.buffer, at, s.id, r, func(key uint32) place {
		if c := s.keys[key]; c != nil {
			return c.last
		}
		return place{} // it follows no record, and is not read
	})
	size := int64(len(s.buffer) - from)
	s.last().size += size
	s.account(s.last(), r, at, size)
	if len(s.buffer) >= bufferBytes {
		return s.flush()
	}
	return nil
}

func (s *Store) last() *segment { return s.segments[len(s.segments)-1] }

// segmentBytes is how large a segment becomes.
func (s *Store) segmentBytes() int64 {
	return min(max(s.needed/8, cmp.Or(s.config.Segment, leastSegment)), mostSegment)
}

// account records what keys need of a record of so many bytes at a place.
func (s *Store) account(in *segment, r *peer.Record, at place, size int64) {
	sum := int64(0)
	for _, k := range r.Keys {
		sum += int64(k.Weight)
	}
	for _, k := range r.Keys {
		c := s.keys[k.Key]
		if k.Replaces {
			s.unneeded(c)
			if k.Weight == 0 {
				delete(s.keys, k.Key)
				continue
			}
		}
		if c == nil {
			c = new(chain)
			s.keys[k.Key] = c
		}
		c.last = at
		if k.Weight == 0 {
			continue
		}
		bytes := max(1, int64(float64(size)*float64(k.Weight)/float64(sum)))
		in.needed += bytes
		s.needed += bytes
		if n := len(c.parts); n > 0 && c.parts[n-1].of == in {
			c.parts[n-1].bytes += bytes
		} else {
			c.parts = append(c.parts, part{in, bytes})
		}
	}
}

func (s *Store) unneeded(c *chain) {
	if c == nil {
		return
	}
	for _, p := range c.parts {
		p.of.needed -= p.bytes
		s.needed -= p.bytes
	}
	c.parts = c.parts[:0]
}

// Needed returns how many bytes the records of a key take.
func (s *Store) Needed(key uint32) (n int64) {
	if c := s.keys[key]; c != nil {
		for _, p := range c.parts {
			n += p.bytes
		}
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
	for k, c := range s.keys {
		if len(c.parts) > 0 && old[c.parts[0].of] {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

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
	end := int64(unknown)
	if n := len(s.segments); n > 0 {
		end = s.segments[n-1].end
	}
	f, err := s.files.Create(segmentName(s.next))
	if errors.Is(err, fs.ErrExist) { // an error kept it from being removed
		if err = s.remove(s.next); err == nil {
			f, err = s.files.Create(segmentName(s.next))
		}
	}
	if err != nil {
		return err
	}
	if err := s.files.SyncNames(); err != nil {
		_ = f.Close() // the error before says what is wrong
		_ = s.files.Remove(segmentName(s.next))
		return err
	}
	g := &segment{number: s.next}
	s.segments = append(s.segments, g)
	s.file, s.next = f, s.next+1
	s.buffer = append(s.buffer[:0], header(g.number, end, &s.config.Identity)...)
	g.size = int64(len(s.buffer))
	return nil
}

// remove deletes a segment, if it is there.
func (s *Store) remove(number uint64) error {
	if err := s.files.Remove(segmentName(number)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
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
	s.last().end = s.last().size
	return nil
}

// Sync returns when everything that was appended lasts. If that is complete, it deletes the segments that nobody needs
// any more: no key is half replaced, and all were replaced since the last error, or the start, so that what was written
// before it is not needed.
func (s *Store) Sync(complete bool) error {
	if err := s.sync(); err != nil {
		return err
	}
	removed := false
	for complete && len(s.segments) > 1 {
		g := s.segments[0]
		if g.needed > 0 && g.number >= s.first {
			break
		}
		if err := s.remove(g.number); err != nil {
			return fmt.Errorf("%s: %w", segmentName(g.number), err)
		}
		removed = true
		s.segments = s.segments[1:]
		for _, c := range s.keys {
			if len(c.parts) > 0 && c.parts[0].of == g {
				s.needed -= c.parts[0].bytes
				c.parts = c.parts[1:]
			}
		}
	}
	if removed {
		return s.files.SyncNames()
	}
	return nil
}

// GiveUp does what an error of the disk does: nothing is built on what was appended since the last Sync, and all keys
// must be replaced.
func (s *Store) GiveUp() { _ = s.fail(nil) }

// fail gives up the segment that is being written, but for what lasts of it: after an error it is not known what of
// the rest does. What is written from then on is in later segments, and those before stay until a Sync is complete.
func (s *Store) fail(err error) error {
	if s.file != nil {
		g := s.last()
		_ = s.file.Truncate(g.end) // what is left there is beyond the end that the next segment names
		_ = s.file.Close()         // nothing more is written to it
		if g.size = g.end; g.end == 0 && errors.Join(s.remove(g.number), s.files.SyncNames()) == nil {
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
