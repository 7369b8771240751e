// Package rulesfile follows a rules file: it detects any change of its contents,
// however it was made, and applies it.
package rulesfile

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/weirlimit/weir/internal/smallfile"
	"github.com/weirlimit/weir/rules"
)

// Read reads a rules file, of at most [smallfile.MaxRules] bytes, with the files of numbers that it
// names: see [rules.Expand].
func Read(name string) ([]byte, error) { return read(name, func(string, string) {}) }

// read tells look of each file.
func read(name string, look func(kind, name string)) ([]byte, error) {
	part := func(kind, name string) ([]byte, error) {
		look(kind, name)
		return smallfile.Read(kind, name, smallfile.MaxRules)
	}
	data, err := part("rules file", name)
	if err != nil {
		return nil, err
	}
	return rules.Expand(data, func(numbers string) ([]byte, error) {
		return part("file of numbers", filepath.Join(filepath.Dir(name), filepath.FromSlash(numbers)))
	})
}

// Warnings returns one for a rules file, and for each file of numbers that it names, if everyone on the machine may
// write it.
func Warnings(name string) (out []string) {
	_, _ = read(name, func(kind, name string) { // Read says what cannot be read
		if w := smallfile.Writable(kind, name); w != "" {
			out = append(out, w)
		}
	})
	return out
}

// Config is what to follow.
type Config struct {
	// Name of the file. It may be a symbolic link, or be reached through links.
	Name string
	// First is the contents that are in force at the start.
	First []byte
	// Apply puts the contents of the file into force. If it returns an error, the old
	// contents stay in force.
	Apply func(data []byte) error
	// Unreadable is called when the file cannot be read.
	Unreadable func(error)
	// Log receives all events. A persistent problem is logged once.
	Log *slog.Logger

	// Quiet is how long the file must be unchanged before it is read, so that it is not
	// read while it is being written; default 50 ms. After Longest (default 500 ms) it
	// is read in any case.
	Quiet, Longest time.Duration
	// Net is how often the file is read without a notification of the system, because
	// some changes are not notified; default 10 s. Poll is how often if there are no
	// notifications at all; default 1 s.
	Net, Poll time.Duration
	// Blind ignores notifications, for tests.
	Blind bool
}

// Follower follows one file. Make it with [New].
type Follower struct {
	config Config
	tried  [sha256.Size]byte // hash of what Apply was last called with
	failed string            // why the file could not be read, "" if it could
	reload chan struct{}
	asks   chan chan<- result
}

// result is what became of a file that was read.
type result struct {
	data []byte
	err  error
}

// New returns a follower for which c.First is the present contents.
func New(c Config) *Follower {
	c.Quiet, c.Longest = cmp.Or(c.Quiet, 50*time.Millisecond), cmp.Or(c.Longest, 500*time.Millisecond)
	c.Net, c.Poll = cmp.Or(c.Net, 10*time.Second), cmp.Or(c.Poll, time.Second)
	return &Follower{config: c, tried: sha256.Sum256(c.First), reload: make(chan struct{}, 1),
		asks: make(chan chan<- result)}
}

// Reload makes Run read the file and apply it, even if it has not changed. It does not
// wait, and is safe for concurrent use.
func (f *Follower) Reload() {
	select {
	case f.reload <- struct{}{}:
	default: // a reload is pending already
	}
}

// ReloadNow makes Run read the file and apply it, even if it has not changed, and waits for
// the result: the contents that are in force now, or why the file was not read or applied.
// If the context ends first, its error is returned, and the file may still be applied. It
// is safe for concurrent use.
func (f *Follower) ReloadNow(ctx context.Context) ([]byte, error) {
	done := make(chan result, 1)
	select {
	case f.asks <- done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case r := <-done:
		return r.data, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Run follows the file until the context ends.
func (f *Follower) Run(ctx context.Context) {
	w := newWatch(&f.config)
	defer w.close()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.reload:
			f.look(true)
		case done := <-f.asks:
			done <- f.look(true)
		case <-w.events():
			w.touched()
			continue
		case err := <-w.errors(): // such as an overflow, after which events are missing
			f.config.Log.Debug("watching the rules file", "error", err)
			w.touched()
			continue
		case <-w.quiet.C:
			w.settled()
			f.look(false)
		case <-w.poll.C:
			f.look(false)
		}
		w.renew()
	}
}

// look reads the file and applies its contents. Unless asked, it does so only if they
// differ from those last tried.
func (f *Follower) look(asked bool) result {
	c := &f.config
	data, err := Read(c.Name)
	if err != nil {
		if text := err.Error(); asked || text != f.failed {
			f.failed = text
			c.Log.Error("the old rules stay in force", "error", text)
			c.Unreadable(err)
		}
		return result{err: err}
	}
	if f.failed != "" {
		c.Log.Info("the rules file can be read again", "file", c.Name)
		f.failed = ""
	}
	sum := sha256.Sum256(data)
	if sum == f.tried && !asked {
		return result{}
	}
	f.tried = sum
	if err := c.Apply(data); err != nil {
		c.Log.Error("rules file refused; the old rules stay in force", "file", c.Name, "problems", problems(err))
		return result{err: err}
	}
	return result{data: data}
}

func problems(err error) []string {
	var invalid *rules.Error
	if !errors.As(err, &invalid) {
		return []string{err.Error()}
	}
	out := make([]string, len(invalid.Problems))
	for i, p := range invalid.Problems {
		out[i] = fmt.Sprintf("%d:%d: %s", p.Line, p.Column, p.Text)
	}
	return out
}
