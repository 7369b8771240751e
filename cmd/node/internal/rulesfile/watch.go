package rulesfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// watch notifies when a file may have changed. It watches directories and not the file:
// when an editor replaces the file, or a ConfigMap's links are switched to another
// directory, a watch on the file would stay with the old one.
type watch struct {
	config  *Config
	watcher *fsnotify.Watcher // nil: the system has no notifications
	warned  bool

	poll  *time.Ticker
	every time.Duration // of poll

	quiet *time.Timer // expires when the file may be read
	first time.Time   // of the first event since the file was read; zero: none
}

func newWatch(c *Config) *watch {
	w := &watch{config: c, quiet: time.NewTimer(time.Hour), poll: time.NewTicker(c.Net), every: c.Net}
	w.quiet.Stop()
	if !c.Blind {
		var err error
		if w.watcher, err = fsnotify.NewWatcher(); err != nil {
			w.watcher = nil
			w.warn(err)
		}
	}
	w.renew() // and schedule a read: the file may have changed since it was read
	return w
}

func (w *watch) close() {
	w.poll.Stop()
	w.quiet.Stop()
	if w.watcher != nil {
		_ = w.watcher.Close() // errors no longer matter
	}
}

func (w *watch) events() <-chan fsnotify.Event {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Events
}

func (w *watch) errors() <-chan error {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Errors
}

// touched records an event, and schedules a read for when no more events come.
func (w *watch) touched() {
	now := time.Now()
	if w.first.IsZero() {
		w.first = now
	}
	w.quiet.Reset(max(0, min(w.config.Quiet, w.first.Add(w.config.Longest).Sub(now))))
}

// settled is called before the file is read.
func (w *watch) settled() { w.first = time.Time{} }

// renew watches the relevant directories, and polls more often while one of them cannot
// be watched.
func (w *watch) renew() {
	every := w.config.Net
	if w.watcher == nil {
		w.setPoll(w.config.Poll)
		return
	}
	have, want := w.watcher.WatchList(), directories(w.config.Name)
	for _, dir := range have {
		if !slices.Contains(want, dir) {
			_ = w.watcher.Remove(dir) // fails if the directory is gone
		}
	}
	for _, dir := range want {
		if slices.Contains(have, dir) {
			continue
		}
		if err := w.watcher.Add(dir); err != nil {
			every = w.config.Poll
			w.warn(err)
			continue
		}
		// The file may have changed before the directory was watched. That is also
		// possible if it was watched earlier, was removed and came back.
		w.touched()
	}
	if len(want) == 0 {
		every = w.config.Poll
	}
	w.setPoll(every)
}

func (w *watch) setPoll(every time.Duration) {
	if every != w.every {
		w.every = every
		w.poll.Reset(every)
	}
}

// warn logs once that changes may be noticed late. It does not log a missing directory:
// the file is then missing, too, which is logged in any case.
func (w *watch) warn(err error) {
	if w.warned || errors.Is(err, fs.ErrNotExist) {
		return
	}
	w.warned = true
	w.config.Log.Warn("changes of the rules file cannot be watched, so it is read again and again",
		"file", w.config.Name, "every", w.config.Poll, "error", err)
}

// maxLinks bounds the symbolic links that are followed, as the system does.
const maxLinks = 40

// directories returns the directories in which a change can affect what a file's name
// leads to: its own, those of the links behind its name, and that of the file itself.
// Links in the result are resolved, so no directory occurs under two names.
func directories(name string) []string {
	var out []string
	add := func(dir string) {
		real, err := filepath.EvalSymlinks(dir)
		if err == nil {
			real, err = filepath.Abs(real)
		}
		if err == nil && !slices.Contains(out, real) {
			out = append(out, real)
		}
	}
	for range maxLinks {
		add(filepath.Dir(name))
		to, err := os.Readlink(name)
		if err != nil {
			break
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(name), to)
		}
		name = to
	}
	if real, err := filepath.EvalSymlinks(name); err == nil {
		add(filepath.Dir(real))
	}
	return out
}
