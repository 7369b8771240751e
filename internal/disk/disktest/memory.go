// Package disktest is a file system in memory for tests of what is kept on disk: it can fail, lose what was not synced,
// and be damaged.
package disktest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"sync"

	"github.com/weirlimit/weir/internal/disk"
)

// Memory is a directory in memory. The zero value is empty. It is safe for concurrent use.
type Memory struct {
	mu     sync.Mutex
	files  map[string]*content
	names  map[string]*content // those whose names last
	locked bool
	// Fail, unless nil, is asked before each operation: "create", "open", "list", "remove", "names",
	// "write", "sync" or "truncate". It is called without locks.
	Fail func(operation string) error
	// Most, unless 0, is how many bytes fit.
	Most int
	// Bad are bytes of each file, from the first on and before the second, that cannot be read.
	Bad [2]int64
}

// content is what a file has, and the length of what was synced.
type content struct {
	bytes  []byte
	synced int
}

// ErrBad is returned where bytes cannot be read.
var ErrBad = errors.New("input/output error")

// ErrFull is returned when no more bytes fit.
var ErrFull = errors.New("no space left on device")

func (m *Memory) fails(operation string) error {
	m.mu.Lock()
	fail := m.Fail
	m.mu.Unlock()
	if fail == nil {
		return nil
	}
	return fail(operation)
}

// SetFail sets Fail while the directory is used.
func (m *Memory) SetFail(fail func(operation string) error) {
	m.mu.Lock()
	m.Fail = fail
	m.mu.Unlock()
}

// Crash ends the process that has locked the directory. What was not synced is lost from the given part of it on: 0 is
// all of it, 1 none. Names that were not synced are lost with any.
func (m *Memory) Crash(kept float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.locked = false
	if kept < 1 {
		m.files = maps.Clone(m.names)
	}
	for _, c := range m.files {
		c.bytes = c.bytes[:c.synced+int(kept*float64(len(c.bytes)-c.synced))]
		c.synced = len(c.bytes)
	}
}

// Copy returns a copy of what is there, not locked.
func (m *Memory) Copy() *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := &Memory{files: make(map[string]*content), names: make(map[string]*content), Bad: m.Bad}
	copies := make(map[*content]*content)
	for from, to := range map[*map[string]*content]map[string]*content{&m.files: n.files, &m.names: n.names} {
		for name, c := range *from {
			if copies[c] == nil {
				copies[c] = &content{slices.Clone(c.bytes), c.synced}
			}
			to[name] = copies[c]
		}
	}
	return n
}

// Bytes returns the bytes of a file, which the caller may change.
func (m *Memory) Bytes(name string) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.files[name]; c != nil {
		return c.bytes
	}
	return nil
}

// Put replaces a file. It lasts.
func (m *Memory) Put(name string, b []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.files == nil {
		m.files = make(map[string]*content)
	}
	m.files[name] = &content{b, len(b)}
	m.names = maps.Clone(m.files)
}

// Create implements [disk.Files].
func (m *Memory) Create(name string) (disk.File, error) {
	if err := m.fails("create"); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.files == nil {
		m.files = make(map[string]*content)
	}
	if m.files[name] != nil {
		return nil, fmt.Errorf("%s: %w", name, fs.ErrExist)
	}
	c := new(content)
	m.files[name] = c
	return &file{m, c}, nil
}

// Open implements [disk.Files].
func (m *Memory) Open(name string) (disk.File, error) {
	if err := m.fails("open"); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.files[name]
	if c == nil {
		return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	return &file{m, c}, nil
}

// List implements [disk.Files].
func (m *Memory) List() (names []string, err error) {
	if err := m.fails("list"); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.files)), nil
}

// Remove implements [disk.Files].
func (m *Memory) Remove(name string) error {
	if err := m.fails("remove"); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.files[name] == nil {
		return fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	delete(m.files, name)
	return nil
}

// Rename implements [disk.Files].
func (m *Memory) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files[to] = m.files[from]
	delete(m.files, from)
	return nil
}

// SyncNames implements [disk.Files].
func (m *Memory) SyncNames() error {
	if err := m.fails("names"); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.names = maps.Clone(m.files)
	return nil
}

// Lock implements [disk.Files].
func (m *Memory) Lock() (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locked {
		return nil, disk.ErrLocked
	}
	m.locked = true
	return unlock{m}, nil
}

type unlock struct{ m *Memory }

func (u unlock) Close() error {
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	u.m.locked = false
	return nil
}

type file struct {
	m *Memory
	c *content
}

func (f *file) Write(b []byte) (int, error) {
	if err := f.m.fails("write"); err != nil {
		return 0, err
	}
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	n, all := len(b), 0
	for _, c := range f.m.files {
		all += len(c.bytes)
	}
	if f.m.Most > 0 {
		n = min(n, max(0, f.m.Most-all))
	}
	f.c.bytes = append(f.c.bytes, b[:n]...)
	if n < len(b) {
		return n, ErrFull
	}
	return n, nil
}

func (f *file) ReadAt(b []byte, at int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if at >= int64(len(f.c.bytes)) {
		return 0, io.EOF
	}
	if bad := f.m.Bad; at < bad[1] && at+int64(len(b)) > bad[0] {
		return 0, ErrBad
	}
	n := copy(b, f.c.bytes[at:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (f *file) Sync() error {
	if err := f.m.fails("sync"); err != nil {
		return err
	}
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.c.synced = len(f.c.bytes)
	return nil
}

func (f *file) Truncate(size int64) error {
	if err := f.m.fails("truncate"); err != nil {
		return err
	}
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.c.bytes = f.c.bytes[:size]
	f.c.synced = min(f.c.synced, int(size))
	return nil
}

func (f *file) Size() (int64, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return int64(len(f.c.bytes)), nil
}

func (*file) Close() error { return nil }
