package accesslog

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/weirlimit/weir/internal/smallfile"
)

// MaxLineBytes bounds how much of a line is kept. The rest of a longer line is read and
// dropped, so the line still counts if its beginning is valid. A path cut by this bound
// is far longer than servers accept.
const MaxLineBytes = 64 << 10

// Stdin is the name that means standard input.
const Stdin = "-"

// Source is one open log, plain or compressed.
type Source struct {
	name  string
	file  io.Closer
	size  int64
	bytes *counter
	lines *bufio.Reader
	long  []byte
}

// Open opens the log called name, or stdin for "-". Data that begins with the gzip
// magic number is decompressed, whatever its name. The error for a directory suggests
// what to give instead.
func Open(name string, stdin io.Reader) (*Source, error) {
	s := &Source{name: name}
	in := stdin
	if name != Stdin {
		f, err := os.Open(name)
		if err != nil {
			return nil, smallfile.Bare(err)
		}
		info, err := f.Stat()
		if err == nil && info.IsDir() {
			err = fmt.Errorf("is a directory; name the log files in it, for example %s/*.log", name)
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		if info.Mode().IsRegular() {
			s.size = info.Size()
		}
		s.file, in = f, f
	}
	s.bytes = &counter{r: in}
	raw := bufio.NewReaderSize(s.bytes, MaxLineBytes)
	s.lines = raw
	if mark, _ := raw.Peek(2); bytes.Equal(mark, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(raw)
		if err != nil {
			return nil, errors.Join(s.readError(err), s.Close())
		}
		s.lines = bufio.NewReaderSize(z, MaxLineBytes)
	}
	return s, nil
}

// Size returns the size of the file in bytes, before decompression, 0 if it is not
// known.
func (s *Source) Size() int64 { return s.size }

// Consumed returns how many of these bytes have been read.
func (s *Source) Consumed() int64 { return s.bytes.n }

// Close closes the file. It does not close standard input.
func (s *Source) Close() error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}

// Line returns the next line without its line break, cut at [MaxLineBytes]. It is valid
// until the next call. A last line without a line break counts, too. At the end Line
// returns [io.EOF].
func (s *Source) Line() ([]byte, error) {
	line, err := s.lines.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		s.long = append(s.long[:0], line...)
		line = s.long
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = s.lines.ReadSlice('\n')
		}
	}
	if err != nil && (!errors.Is(err, io.EOF) || len(line) == 0) {
		return nil, s.readError(err)
	}
	line = bytes.TrimSuffix(line, []byte("\n"))
	return bytes.TrimSuffix(line, []byte("\r")), nil
}

// readError adds to a read error what the user can do about it.
func (s *Source) readError(err error) error {
	var corrupt flate.CorruptInputError
	switch {
	case errors.Is(err, io.EOF):
		return io.EOF
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("the gzip data is cut short; to replay what is left of it: gzip -dc <%s | weir replay … -", s.name)
	case errors.Is(err, gzip.ErrChecksum), errors.Is(err, gzip.ErrHeader), errors.As(err, &corrupt):
		return fmt.Errorf("the gzip data is damaged: %w", err)
	}
	return fmt.Errorf("cannot be read: %w", smallfile.Bare(err))
}

// counter counts the bytes that are read through it.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}
