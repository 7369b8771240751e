package accesslog

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/weirlimit/weir/limiter"
)

func line(second int, path string) string {
	return fmt.Sprintf("h - - [17/May/2015:10:%02d:%02d +0000] \"GET %s HTTP/1.1\" 200 1\n", second/60, second%60, path)
}

func zipped(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := io.WriteString(z, text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func read(t *testing.T, data []byte) (*Trace, FileStats, error) {
	t.Helper()
	src, err := Open(Stdin, bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	trace := NewTrace(MaxTraceLines, math.MaxInt64)
	st, err := trace.Read(src, nil)
	return trace, st, err
}

func paths(trace *Trace) []string {
	var out []string
	var r limiter.Request
	for c := trace.Cursor(); ; {
		if _, ok := c.Next(&r); !ok {
			return out
		}
		out = append(out, r.Path)
	}
}

func TestReadSortsByTimeAndKeepsTheOrderOfEquals(t *testing.T) {
	text := line(5, "/c") + line(1, "/a") + line(5, "/d") + line(1, "/b") + line(59, "/e")
	trace, st, err := read(t, []byte(text))
	if err != nil || st.Lines != 5 || st.Skipped != 0 || trace.Len() != 5 {
		t.Fatalf("%d requests, %+v, %v", trace.Len(), st, err)
	}
	if got := strings.Join(paths(trace), " "); got != "/a /b /c /d /e" {
		t.Errorf("order: %s", got)
	}
	first, last := trace.Span()
	if first.Time().Second() != 1 || last.Time().Second() != 59 {
		t.Errorf("span: %v to %v", first.Time(), last.Time())
	}
}

// Over many chunks, the order is that of one stable sort; and adding after a
// first walk does not disturb it.
func TestCursorMergesChunksStably(t *testing.T) {
	const n = 3*chunkRecords + 12345
	rng := rand.New(rand.NewPCG(1, 2))
	type item struct {
		time limiter.Tick
		path string
	}
	var all []item
	trace := NewTrace(n, math.MaxInt64)
	add := func(count int) {
		for range count {
			it := item{limiter.Tick(rng.IntN(5000)), fmt.Sprintf("/%d", len(all))}
			if !trace.Add(Entry{Time: it.time, Host: []byte("h"), Method: []byte("GET"), Path: []byte(it.path)}) {
				t.Fatal("full")
			}
			all = append(all, it)
		}
	}
	check := func() {
		t.Helper()
		sorted := slices.Clone(all)
		slices.SortStableFunc(sorted, func(a, b item) int { return cmp.Compare(a.time, b.time) })
		c := trace.Cursor()
		var r limiter.Request
		for i, want := range sorted {
			at, ok := c.Next(&r)
			if !ok || at != want.time || r.Path != want.path {
				t.Fatalf("request %d: got %d %s %v, want %+v", i, at, r.Path, ok, want)
			}
		}
		if _, ok := c.Next(&r); ok {
			t.Fatal("more requests than were added")
		}
	}
	add(n / 2)
	check()
	add(n - n/2)
	check()
	if trace.Add(Entry{}) {
		t.Error("more than the bound was taken")
	}
	if trace.Len() != n {
		t.Errorf("%d requests, want %d", trace.Len(), n)
	}
}

func TestNextFillsInTheRequestAndNothingElse(t *testing.T) {
	text := plainLine + "\n" + `h2 - - [17/May/2015:10:05:04 +0000] "POST /x HTTP/1.1" 200 1` + "\n"
	trace, _, err := read(t, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	c := trace.Cursor()
	r := limiter.Request{Group: "kept"}
	c.Next(&r)
	if r.Path != "/towns" || r.Method != http.MethodGet || r.User != "ada" || r.IP != "10.0.0.1" || r.Group != "kept" {
		t.Errorf("first: %+v", r)
	}
	c.Next(&r)
	if r.Path != "/x" || r.Method != http.MethodPost || r.User != "" || r.IP != "h2" {
		t.Errorf("second: %+v", r)
	}
}

func TestReadForms(t *testing.T) {
	two := line(1, "/a") + line(2, "/b")
	for name, data := range map[string][]byte{
		"plain":             []byte(two),
		"cut last line":     []byte(strings.TrimSuffix(two, " HTTP/1.1\" 200 1\n")),
		"windows line ends": []byte(strings.ReplaceAll(strings.TrimSuffix(two, " HTTP/1.1\" 200 1\n")+"\n", "\n", "\r\n")),
		"byte order mark":   []byte("\ufeff" + two),
		"gzip":              zipped(t, two),
		"gzip, two members": append(zipped(t, line(1, "/a")), zipped(t, line(2, "/b"))...),
	} {
		t.Run(name, func(t *testing.T) {
			trace, st, err := read(t, data)
			if err != nil || st.Skipped != 0 {
				t.Fatalf("%+v, %v", st, err)
			}
			if got := strings.Join(paths(trace), " "); got != "/a /b" {
				t.Errorf("paths: %s", got)
			}
		})
	}
}

func TestReadSkipsLines(t *testing.T) {
	_, st, err := read(t, []byte(line(1, "/a")+"\nrubbish "+strings.Repeat("x", 200)+"\n"+line(2, "/b")+"more\n"))
	if err != nil {
		t.Fatal(err)
	}
	if st.Lines != 5 || st.Skipped != 3 || st.FirstSkippedAt != 2 || st.FirstSkipped != "" || st.NUL {
		t.Errorf("%+v", st)
	}
	_, st, err = read(t, []byte("\x00\x00"+strings.Repeat("x", 200)+"\n"+line(1, "/a")))
	if err != nil || !st.NUL || len(st.FirstSkipped) != excerptBytes {
		t.Errorf("%+v, %v", st, err)
	}
}

func TestLongLines(t *testing.T) {
	const mb = 1 << 20
	agent := strings.TrimSuffix(line(1, "/a"), "\n") + strings.Repeat("x", mb) + "\n"
	path := line(2, "/"+strings.Repeat("p", mb))
	junk := strings.Repeat("junk ", mb/5) + "\n"
	for name, last := range map[string]string{"in between": line(3, "/z"),
		"at the end": strings.TrimSuffix(line(3, "/z")+junk, "\n")} {
		trace, st, err := read(t, []byte(agent+path+junk+last))
		if err != nil {
			t.Fatal(err)
		}
		if trace.Len() != 3 || st.Skipped != st.Lines-3 {
			t.Fatalf("%s: %d requests, %+v", name, trace.Len(), st)
		}
		got := paths(trace)
		if got[0] != "/a" || got[2] != "/z" {
			t.Errorf("paths around the long one: %s, %s", got[0], got[2])
		}
		if n := len(got[1]); n >= MaxLineBytes || n < MaxLineBytes-100 {
			t.Errorf("a path of 1 MB was kept with %d bytes", n)
		}
	}
}

func TestReadErrors(t *testing.T) {
	good := zipped(t, strings.Repeat(line(1, "/a")+line(2, "/b"), 500))
	damaged := bytes.Clone(good)
	damaged[len(damaged)-5] ^= 0xff
	for name, c := range map[string]struct {
		data []byte
		is   error
		text string
	}{
		"empty":      {nil, ErrEmpty, "empty"},
		"empty gzip": {zipped(t, ""), ErrEmpty, "empty"},
		"binary":     {[]byte("\x7fELF\x00\x01\x02\nmore\x00"), ErrNoLog, "binary"},
		"text": {[]byte("version: 1\nrules: []\n"), ErrNoLog,
			`none of 2 lines begins as the common or combined format does; line 1 is "version: 1"`},
		"blank lines":     {[]byte("\n\n"), ErrNoLog, "none of 2 lines"},
		"gzip cut":        {good[:len(good)/2], nil, "cut short"},
		"gzip sum":        {damaged, gzip.ErrChecksum, "damaged"},
		"gzip, then junk": {append(bytes.Clone(good), "junk after the end"...), gzip.ErrHeader, "damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := read(t, c.data)
			if err == nil || !strings.Contains(err.Error(), c.text) {
				t.Fatalf("error %v, want %q in it", err, c.text)
			}
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("error %v does not wrap %v", err, c.is)
			}
		})
	}
}

func TestReadStopsAtTheBound(t *testing.T) {
	src, err := Open(Stdin, strings.NewReader(line(1, "/a")+"junk\n"+line(2, "/b")+line(3, "/c")))
	if err != nil {
		t.Fatal(err)
	}
	trace := NewTrace(2, math.MaxInt64)
	if _, err := trace.Read(src, nil); !errors.Is(err, ErrFull) {
		t.Errorf("error %v, want %v", err, ErrFull)
	}
}

// The bound in bytes counts records and every distinct string once.
func TestReadStopsAtTheBoundOfBytes(t *testing.T) {
	const same = recordBytes
	path := strings.Repeat("x", 60_000)
	fresh := int64(recordBytes + stringBytes + 1 + len(path) + 2) // and "/" and two digits
	read := func(bytes int64, text string) (*Trace, error) {
		src, err := Open(Stdin, strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		trace := NewTrace(1000, bytes)
		_, err = trace.Read(src, nil)
		return trace, err
	}
	first, err := read(math.MaxInt64, line(1, "/a"))
	if err != nil {
		t.Fatal(err)
	}
	if trace, err := read(first.Bytes()+10*same, strings.Repeat(line(1, "/a"), 11)); err != nil || trace.Len() != 11 {
		t.Errorf("the same eleven times: %d, %v", trace.Len(), err)
	}
	if trace, err := read(first.Bytes()+10*same-1, strings.Repeat(line(1, "/a"), 11)); !errors.Is(err, ErrMemory) ||
		trace.Len() != 10 {
		t.Errorf("with a byte less: %d, %v", trace.Len(), err)
	}
	text := line(1, "/a")
	for i := range 50 {
		text += line(2, fmt.Sprintf("/%s%02d", path, i))
	}
	trace, err := read(first.Bytes()+20*fresh, text)
	if !errors.Is(err, ErrMemory) || trace.Len() != 21 || trace.Bytes() != first.Bytes()+20*fresh {
		t.Errorf("long paths: %d, %d bytes, %v", trace.Len(), trace.Bytes(), err)
	}
}

// Lines of a megabyte are read through buffers of [MaxLineBytes]: what is read ahead and what is
// kept of one line. Nothing else grows with a line. The bytes are those that the reader took from
// the heap, so neither the race detector nor the machine has a part in them.
func TestLongLinesAreNotKept(t *testing.T) {
	const lines, long = 40, 1 << 20
	rest := strings.Repeat("x", long) + "\n"
	var parts []io.Reader
	for i := range lines {
		parts = append(parts, strings.NewReader(strings.TrimSuffix(line(i, "/"), "\n")), strings.NewReader(rest))
	}
	src, err := Open(Stdin, io.MultiReader(parts...))
	if err != nil {
		t.Fatal(err)
	}
	trace := NewTrace(1000, math.MaxInt64)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = trace.Read(src, nil)
	runtime.ReadMemStats(&after)
	if err != nil || trace.Len() != lines {
		t.Fatalf("%d requests, %v", trace.Len(), err)
	}
	if took, most := after.TotalAlloc-before.TotalAlloc, uint64(8*MaxLineBytes); took > most {
		t.Errorf("%d lines of %d bytes took %d bytes of memory, more than %d", lines, long, took, most)
	}
	if got := cap(src.long) + src.lines.Size(); got > 3*MaxLineBytes {
		t.Errorf("%d bytes are kept of lines, more than three times %d", got, MaxLineBytes)
	}
}

func TestOpenFiles(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "access.log")
	text := strings.Repeat(line(1, "/a"), 10_000)
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	src, err := Open(name, nil)
	if err != nil {
		t.Fatal(err)
	}
	ticks := 0
	if _, err := NewTrace(MaxTraceLines, math.MaxInt64).Read(src, func() { ticks++ }); err != nil {
		t.Fatal(err)
	}
	if src.Size() != int64(len(text)) || src.Consumed() != src.Size() || ticks == 0 {
		t.Errorf("size %d, consumed %d of %d, %d ticks", src.Size(), src.Consumed(), len(text), ticks)
	}
	if err := src.Close(); err != nil {
		t.Error(err)
	}
	if _, err := Open(dir, nil); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("a directory: %v", err)
	}
	if _, err := Open(filepath.Join(dir, "none"), nil); !errors.Is(err, os.ErrNotExist) ||
		strings.Contains(err.Error(), dir) {
		t.Errorf("a missing file: %v", err)
	}
	if err := os.WriteFile(name, []byte{0x1f, 0x8b, 0}, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(name, nil); err == nil || !strings.Contains(err.Error(), "cut short") {
		t.Errorf("a gzip file of three bytes: %v", err)
	}
}

func TestReadReportsAFailingDisk(t *testing.T) {
	broken := errors.New("the disk is on fire")
	src, err := Open(Stdin, io.MultiReader(strings.NewReader(line(1, "/a")), iotest.ErrReader(broken)))
	if err != nil {
		t.Fatal(err)
	}
	_, err = NewTrace(9, math.MaxInt64).Read(src, nil)
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("error %v", err)
	}
	if err := src.Close(); err != nil {
		t.Error(err)
	}
}

// BenchmarkRead measures reading, parsing and storing.
func BenchmarkRead(b *testing.B) {
	var text strings.Builder
	const lines = 20_000
	for i := range lines {
		fmt.Fprintf(&text,
			"10.0.%d.%d - - [17/May/2015:10:%02d:%02d +0000] \"GET /path/%d HTTP/1.1\" 200 1234 \"http://ex.org/from\" "+
				"\"Mozilla/5.0 (X11; Linux x86_64; rv:6.0a1) Gecko/20110421 Firefox/6.0a1\"\n",
			i%7, i%251, i/60%60, i%60, i%1000)
	}
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		src, err := Open(Stdin, strings.NewReader(text.String()))
		if err != nil {
			b.Fatal(err)
		}
		if _, err := NewTrace(lines, math.MaxInt64).Read(src, nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(lines*float64(b.N)/b.Elapsed().Seconds(), "lines/s")
}
