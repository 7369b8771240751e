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

// ErrFull is returned by [Trace.Read] if a log has more requests than the trace may
// hold.
var ErrFull = errors.New("too many lines")

// ErrMemory is returned by [Trace.Read] if the requests take more memory than the trace
// may use.
var ErrMemory = errors.New("too many bytes")

// ErrNoLog is wrapped by the errors of [Trace.Read] for a file without a valid line.
var ErrNoLog = errors.New("not an access log")

// ErrEmpty is wrapped, together with [ErrNoLog], by the error for a file of 0 bytes.
var ErrEmpty = errors.New("empty")

// MaxTraceLines is the largest capacity of a [Trace], in requests.
const MaxTraceLines = math.MaxInt32

// Trace holds requests in little memory: 24 bytes for each request, and each distinct
// host, user, method and path once.
type Trace struct {
	most    int
	room    int64 // bytes that may still be used
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

// record is one request. Its strings are indexes into the pools.
type record struct {
	time                     limiter.Tick
	host, user, method, path uint32
}

// chunkRecords is how many records are allocated and sorted together. So a trace grows
// without being copied, and a chunk is sorted within the cache.
const chunkRecords = 1 << 16

// Approximate memory in bytes: of a record, and of a distinct string in addition to its
// text, with its share of the spare room of maps and of growth.
const (
	recordBytes = 24
	stringBytes = 128
)

// NewTrace returns an empty trace for at most `most` requests, 1 to [MaxTraceLines],
// and about `bytes` bytes of memory.
func NewTrace(most int, bytes int64) *Trace {
	t := &Trace{most: most, room: bytes}
	for _, p := range []*pool{&t.hosts, &t.users, &t.methods, &t.paths} {
		p.ids = make(map[string]uint32)
	}
	return t
}

// Len returns the number of requests.
func (t *Trace) Len() int { return t.n }

// Bytes returns the approximate memory of the trace in bytes.
func (t *Trace) Bytes() int64 { return t.bytes }

// Span returns the times of the earliest and the latest request, 0 and 0 for an empty
// trace.
func (t *Trace) Span() (first, last limiter.Tick) { return t.first, t.last }

// FileStats is what [Trace.Read] found in one file.
type FileStats struct {
	// Lines is the number of lines read, Skipped the number of invalid ones among them.
	Lines, Skipped int
	// FirstSkipped is the beginning of the first skipped line and FirstSkippedAt its
	// number, from 1; "" and 0 if none was skipped.
	FirstSkipped   string
	FirstSkippedAt int
	// NUL reports that a skipped line contains a NUL byte, so the file is not text.
	NUL bool
}

// excerptBytes bounds [FileStats.FirstSkipped].
const excerptBytes = 100

// Read adds the requests of src. It calls tick now and then, if that is not nil. The
// error wraps [ErrNoLog] if no line is valid, [ErrFull] if there are more requests than
// the trace may hold, or [ErrMemory] if they take more memory.
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

// Add appends one request and copies its strings. If the trace is full it adds nothing
// and reports false.
func (t *Trace) Add(e Entry) bool {
	need := int64(recordBytes) + t.hosts.needs(
		e.Host) + t.users.needs(e.User) + t.methods.needs(e.Method) + t.paths.needs(e.Path)
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

// pool stores every distinct string once.
type pool struct {
	ids map[string]uint32
	all []string
}

// needs returns the approximate bytes that adding a string takes.
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
