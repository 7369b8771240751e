package accesslog

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"math"
	"testing"

	"github.com/weirlimit/weir/limiter"
)

// FuzzRead: whatever a file holds, zipped or not, it is refused, or its requests are
// those of its lines, in the order of their times.
func FuzzRead(f *testing.F) {
	lines := line(2, "/b") + "\n" + line(1, "/a") + "no request\r\n" + line(1, "/c")
	f.Add([]byte(lines))
	f.Add([]byte("\ufeff" + lines[:len(lines)-1]))
	f.Add([]byte("\x00\n"))
	f.Add([]byte{})
	f.Add(append([]byte(lines), bytes.Repeat([]byte("x"), MaxLineBytes+9)...))
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := io.WriteString(z, lines); err != nil {
		f.Fatal(err)
	}
	if err := z.Close(); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add(b.Bytes()[:b.Len()-5])
	f.Add(append(bytes.Clone(b.Bytes()[:12]), 0xff, 0xff))
	f.Add([]byte("\x1f\x8b\x08"))
	f.Fuzz(func(t *testing.T, data []byte) {
		// A few bytes unzip to so much that a fuzzer would be long about it.
		const most = 1000
		src, err := Open(Stdin, bytes.NewReader(data))
		if err != nil {
			return
		}
		trace := NewTrace(most, math.MaxInt64)
		st, err := trace.Read(src, nil)
		if err == nil && trace.Len() == 0 || errors.Is(err, ErrNoLog) && trace.Len() > 0 {
			t.Errorf("%d requests, and %v", trace.Len(), err)
		}
		full := 0
		if errors.Is(err, ErrFull) {
			full = 1
		}
		if st.Lines != st.Skipped+trace.Len()+full || src.Consumed() > int64(len(data)) ||
			len(st.FirstSkipped) > excerptBytes || (st.Skipped > 0) != (st.FirstSkippedAt > 0) {
			t.Errorf("of %d bytes %d were read, with %d requests: %+v", len(data), src.Consumed(), trace.Len(), st)
		}
		n, last := 0, limiter.Tick(0)
		first, end := trace.Span()
		var r limiter.Request
		for c := trace.Cursor(); ; n++ {
			at, ok := c.Next(&r)
			if !ok {
				break
			}
			if n > 0 && at < last || at < first || at > end {
				t.Errorf("request %d is at %v, after %v, of a log from %v to %v", n, at, last, first, end)
			}
			last = at
		}
		if n != trace.Len() {
			t.Errorf("%d of %d requests", n, trace.Len())
		}
	})
}
