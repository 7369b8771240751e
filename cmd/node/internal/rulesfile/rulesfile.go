// Package rulesfile follows a rules file: it notices when what is in it has
// changed, however it was changed, and applies it.
package rulesfile

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/weirlimit/weir/internal/smallfile"
	"github.com/weirlimit/weir/rules"
)

// Read reads a rules file, of at most [smallfile.MaxRules] bytes.
func Read(name string) ([]byte, error) {
	return smallfile.Read("rules file", name, smallfile.MaxRules)
}

// Config says what to follow.
type Config struct {
	// Name of the file. It may be a symbolic link, or lie behind some.
	Name string
	// First is what was read of it before, and is in force.
	First []byte
	// Apply puts the contents of the file into force. An error means that the
	// old ones stay.
	Apply func(data []byte) error
	// Unreadable is told when the file cannot be read.
	Unreadable func(error)
	// Log is told of all that happens; a problem that stays is told once.
	Log *slog.Logger

	// Quiet is how long a file must have been left alone before it is read, so
	// that it is not read while it is being written; default 50 ms. After
	// Longest (500 ms), it is read even so.
	Quiet, Longest time.Duration
	// Net is how often the file is looked at although the system says that
	// nothing has changed, because there are changes that it does not tell of;
	// default 10 s. Poll is how often where the system tells of none; default 1 s.
	Net, Poll time.Duration
	// Blind does without the system's word, for tests of that.
	Blind bool
}

// Follower follows one file. Make it with [New].
type Follower struct {
	config Config
	tried  [sha256.Size]byte // what Apply had last
	failed string            // why the file could not be read, "" if it could
	reload chan struct{}
}

// New returns a follower that has seen the file as c.First.
func New(c Config) *Follower {
	for d, def := range map[*time.Duration]time.Duration{
		&c.Quiet: 50 * time.Millisecond, &c.Longest: 500 * time.Millisecond, &c.Net: 10 * time.Second, &c.Poll: time.Second,
	} {
		if *d == 0 {
			*d = def
		}
	}
	return &Follower{config: c, tried: sha256.Sum256(c.First), reload: make(chan struct{}, 1)}
}

// Reload makes Run read the file and apply it, even if it has not changed. It
// does not wait. It may be called from any goroutine.
func (f *Follower) Reload() {
	select {
	case f.reload <- struct{}{}:
	default: // it is going to
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
		case <-w.events():
			w.touched()
			continue
		case err := <-w.errors(): // such as an overflow: something was missed
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

// look reads the file and applies what is in it. Unless asked it does so only
// if that is not what was tried last.
func (f *Follower) look(asked bool) {
	c := &f.config
	data, err := Read(c.Name)
	if err != nil {
		if text := err.Error(); asked || text != f.failed {
			f.failed = text
			c.Log.Error("the old rules stay in force", "error", text)
			c.Unreadable(err)
		}
		return
	}
	if f.failed != "" {
		c.Log.Info("the rules file can be read again", "file", c.Name)
		f.failed = ""
	}
	sum := sha256.Sum256(data)
	if sum == f.tried && !asked {
		return
	}
	f.tried = sum
	if err := c.Apply(data); err != nil {
		c.Log.Error("rules file refused; the old rules stay in force", "file", c.Name, "problems", problems(err))
	}
}

// problems returns all that is wrong with a file.
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
