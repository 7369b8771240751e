package accesslog

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/weirlimit/weir/limiter"
)

// ErrFull is returned by [Trace.Read] when a log has more requests than the
// trace may hold.
var ErrFull = errors.New("too many lines")

// ErrMemory is returned by [Trace.Read] when the requests take more memory than the
// trace may hold.
var ErrMemory = errors.New("too many bytes")

// ErrNoLog is wrapped by the errors of [Trace.Read] for a file that holds no
// line that counts.
var ErrNoLog = errors.New("not an access log")

// ErrEmpty is wrapped, beside [ErrNoLog], by the error for a file of 0 bytes.
var ErrEmpty = errors.New("empty")

// MaxTraceLines is the most requests that a [Trace] can be made to hold.
const MaxTraceLines = math.MaxInt32

// Trace holds requests in little memory: 24 bytes for each, and every distinct
// host, user, method and path once.
type Trace struct {
	most    int
	room    int64 // bytes that may yet be taken
	bytes   int64
	n       int
	first   limiter.Tick
	last    limiter.Tick
	chunks  [][]record
	sorted  bool
	hosts   pool
	users   pool
	methods pool
	paths   pool
}

// record is one request; the strings are indices into the pools.
type record struct {
	time                     limiter.Tick
	host, user, method, path uint32
}

// chunkRecords is how many records are allocated, and sorted, together: a trace
// grows without ever being copied, and a chunk is sorted within the cache.
const chunkRecords = 1 << 16

// What a trace takes in memory, about: a record; and beside its bytes a distinct
// string, with its share of the empty room that maps keep and of growing.
const (
	recordBytes = 24
	stringBytes = 128
)

// NewTrace returns an empty trace for at most `most` requests, 1 to
// [MaxTraceLines], that take at most about so many bytes of memory.
func NewTrace(most int, bytes int64) *Trace {
	t := &Trace{most: most, room: bytes}
	for _, p := range []*pool{&t.hosts, &t.users, &t.methods, &t.paths} {
		p.ids = make(map[string]uint32)
	}
	return t
}

// Len returns the number of requests.
func (t *Trace) Len() int { return t.n }

// Bytes returns about how much memory the trace takes.
func (t *Trace) Bytes() int64 { return t.bytes }

// Span returns the times of the earliest and the latest request, 0 and 0 if
// there is none.
func (t *Trace) Span() (first, last limiter.Tick) { return t.first, t.last }

// FileStats tells what [Trace.Read] found in one file.
type FileStats struct {
	// Lines is the number of lines read, Skipped of those that do not count.
	Lines, Skipped int
	// FirstSkipped is the beginning of the first line that does not count and
	// FirstSkippedAt its number, from 1; "" and 0 if there was none.
	FirstSkipped   string
	FirstSkippedAt int
	// NUL tells that a skipped line holds a NUL byte, which text does not.
	NUL bool
}

// excerptBytes bounds [FileStats.FirstSkipped].
const excerptBytes = 100

// Read adds the requests of src. Now and then it calls tick, if that is not
// nil. Its error wraps [ErrNoLog] if no line counts, [ErrFull] if there are more
// requests than the trace may hold, or [ErrMemory] if they take more memory.
func (t *Trace) Read(src *Source, tick func()) (FileStats, error) {
	var st FileStats
	before := t.n
	for {
		line, err := src.Line()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return st, fmt.Errorf("line %d: %w", st.Lines+1, err)
		}
		st.Lines++
		if st.Lines == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
		}
		if tick != nil && st.Lines%4096 == 0 {
			tick()
		}
		e, ok := Parse(line)
		if !ok {
			st.skip(line)
			continue
		}
		if t.n >= t.most {
			return st, ErrFull
		}
		if !t.Add(e) {
			return st, ErrMemory
		}
	}
	if t.n > before {
		return st, nil
	}
	return st, st.noLog()
}

func (st *FileStats) skip(line []byte) {
	st.Skipped++
	st.NUL = st.NUL || bytes.IndexByte(line, 0) >= 0
	if st.FirstSkippedAt == 0 {
		st.FirstSkippedAt = st.Lines
		st.FirstSkipped = string(line[:min(len(line), excerptBytes)])
	}
}

func (st *FileStats) noLog() error {
	switch {
	case st.Lines == 0:
		return fmt.Errorf("%w: the file is %w", ErrNoLog, ErrEmpty)
	case st.NUL:
		return fmt.Errorf("%w: the file is binary", ErrNoLog)
	}
	return fmt.Errorf("%w: none of %d lines begins as the common or combined format does; line %d is %q",
		ErrNoLog, st.Lines, st.FirstSkippedAt, st.FirstSkipped)
}

// Add appends one request, whose strings are copied. It reports false, and adds
// nothing, when the trace is full.
func (t *Trace) Add(e Entry) bool {
	need := int64(recordBytes) + t.hosts.needs(e.Host) + t.users.needs(e.User) + t.methods.needs(e.Method) + t.paths.needs(e.Path)
	if t.n >= t.most || t.bytes+need > t.room {
		return false
	}
	t.bytes += need
	if t.n == 0 {
		t.first, t.last = e.Time, e.Time
	}
	t.first, t.last = min(t.first, e.Time), max(t.last, e.Time)
	if t.n%chunkRecords == 0 {
		t.chunks = append(t.chunks, nil)
	}
	c := &t.chunks[len(t.chunks)-1]
	*c = append(*c, record{
		time: e.Time, host: t.hosts.id(e.Host), user: t.users.id(e.User),
		method: t.methods.id(e.Method), path: t.paths.id(e.Path),
	})
	t.n++
	t.sorted = false
	return true
}

// sort sorts each chunk; a [Cursor] merges them.
func (t *Trace) sort() {
	if t.sorted {
		return
	}
	for _, c := range t.chunks {
		slices.SortStableFunc(c, func(a, b record) int { return cmp.Compare(a.time, b.time) })
	}
	t.sorted = true
}

// pool keeps every distinct string once.
type pool struct {
	ids map[string]uint32
	all []string
}

// needs is about how many bytes it takes to add a string.
func (p *pool) needs(b []byte) int64 {
	if _, ok := p.ids[string(b)]; ok {
		return 0
	}
	return stringBytes + int64(len(b))
}

func (p *pool) id(b []byte) uint32 {
	if id, ok := p.ids[string(b)]; ok {
		return id
	}
	id, s := uint32(len(p.all)), string(b)
	p.ids[s], p.all = id, append(p.all, s)
	return id
}
