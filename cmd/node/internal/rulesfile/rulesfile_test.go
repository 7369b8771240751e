package rulesfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlimit/weir/internal/smallfile"
	"github.com/weirlimit/weir/rules"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// soon is how long a test waits for what must happen. It is long because
// machines are slow at times; no test waits for it to pass.
const soon = 20 * time.Second

// log is a buffer that may be written to while it is read.
type log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// following is a follower at work.
type following struct {
	*Follower
	t       *testing.T
	applied chan string // what Apply got
	failed  chan error  // what Unreadable got
	log     *log
}

// follow follows a file until the test ends. Rules with "bad" in them are
// refused.
func follow(t *testing.T, name, first string, change func(*Config)) *following {
	t.Helper()
	f := &following{t: t, applied: make(chan string, 1000), failed: make(chan error, 1000), log: &log{}}
	c := Config{
		Name: name, First: []byte(first), Quiet: 5 * time.Millisecond, Longest: 100 * time.Millisecond,
		Net: time.Hour, Poll: time.Hour, // unless a test is about them
		Log:        slog.New(slog.NewTextHandler(f.log, nil)),
		Unreadable: func(err error) { f.failed <- err },
		Apply: func(data []byte) error {
			defer func() { f.applied <- string(data) }()
			if bytes.Contains(data, []byte("bad")) {
				return &rules.Error{File: "x", Problems: []rules.Problem{{Line: 1, Column: 2, Text: "this"},
					{Line: 3, Column: 4, Text: "and that"}}}
			}
			return nil
		},
	}
	if change != nil {
		change(&c)
	}
	f.Follower = New(c)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { f.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return f
}

// next waits until something is applied, and wants it to be that in the end.
func (f *following) next(want string) {
	f.t.Helper()
	timeout := time.After(soon)
	for {
		select {
		case got := <-f.applied:
			if got == want {
				return
			}
			if !strings.HasPrefix(want, got) { // a file that is being written
				f.t.Fatalf("applied %q, want %q", got, want)
			}
		case <-timeout:
			f.t.Fatalf("%q was not applied\n%s", want, f.log)
		}
	}
}

func (f *following) nothingElse() {
	f.t.Helper()
	select {
	case got := <-f.applied:
		f.t.Errorf("applied %q too", got)
	case err := <-f.failed:
		f.t.Errorf("unreadable: %v", err)
	default:
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// replace does what editors and careful scripts do.
func replace(t *testing.T, name, text string) {
	t.Helper()
	write(t, name+".new", text)
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, to, name string) {
	t.Helper()
	if err := os.Symlink(to, name+".new"); err != nil {
		t.Skip(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
}

func TestChanges(t *testing.T) {
	name := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, name, "one")
	f := follow(t, name, "one", nil)
	write(t, name, "two, written in place")
	f.next("two, written in place")
	replace(t, name, "three, renamed")
	f.next("three, renamed")
	replace(t, name, "four, renamed again") // the watch did not stay with the old file
	f.next("four, renamed again")
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if err := receive(t, f.failed); !strings.Contains(err.Error(), "rules file "+name+" cannot be opened: ") {
		t.Error(err)
	}
	write(t, name, "five, after it was gone")
	f.next("five, after it was gone")
	f.nothingElse()
	if got := f.log.String(); strings.Count(got, "level=ERROR") != 1 || strings.Count(got, "can be read again") != 1 {
		t.Error(got)
	}
}

func receive[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(soon):
		t.Fatal("nothing came")
	}
	return v
}

// A file that changed between being read and being watched.
func TestChangedBefore(t *testing.T) {
	name := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, name, "two")
	follow(t, name, "one", nil).next("two")
}

// A ConfigMap update of Kubernetes: the file is a link through a link to a directory,
// and the middle link is switched to another directory.
func TestConfigMap(t *testing.T) {
	dir := t.TempDir()
	version := func(n int) string {
		d := fmt.Sprintf("..2026_01_02_%d", n)
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, d, "rules.yaml"), fmt.Sprint("version ", n))
		link(t, d, filepath.Join(dir, "..data"))
		return filepath.Join(dir, d)
	}
	old := version(1)
	name := filepath.Join(dir, "rules.yaml")
	link(t, filepath.Join("..data", "rules.yaml"), name)
	f := follow(t, name, "version 1", nil)
	for n := 2; n < 6; n++ {
		now := version(n)
		if err := os.RemoveAll(old); err != nil {
			t.Fatal(err)
		}
		old = now
		f.next(fmt.Sprint("version ", n))
	}
	f.nothingElse()
}

// A file that is a link into another directory, whose own file changes, and
// which is then made to point elsewhere.
func TestLinkElsewhere(t *testing.T) {
	here, there, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "rules.yaml"),
		filepath.Join(t.TempDir(), "other.yaml")
	name := filepath.Join(here, "rules.yaml")
	write(t, there, "one")
	write(t, elsewhere, "three")
	link(t, there, name)
	f := follow(t, name, "one", nil)
	replace(t, there, "two")
	f.next("two")
	link(t, elsewhere, name)
	f.next("three")
	replace(t, elsewhere, "four")
	f.next("four")
	f.nothingElse()
}

// A directory that goes away is polled for until it is back, and watched then.
func TestDirectoryGone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "conf")
	name := filepath.Join(dir, "rules.yaml")
	make := func(text string) {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, name, text)
	}
	make("one")
	f := follow(t, name, "one", func(c *Config) { c.Poll = 10 * time.Millisecond })
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	receive(t, f.failed)
	make("two")
	f.next("two")
	replace(t, name, "three")
	f.next("three")
}

// Without notifications the file is polled. With them, polling covers the changes that
// are not notified.
func TestPolling(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"poll": func(c *Config) { c.Blind, c.Poll = true, 5*time.Millisecond },
		"net":  func(c *Config) { c.Net, c.Quiet, c.Longest = 5*time.Millisecond, time.Hour, time.Hour },
	} {
		t.Run(name, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "rules.yaml")
			write(t, name, "one")
			f := follow(t, name, "one", change)
			replace(t, name, "two")
			f.next("two")
			replace(t, name, "two") // the same again
			replace(t, name, "three")
			f.next("three")
			f.nothingElse()
		})
	}
}

// An invalid file is logged once, with all its problems, and not again until its
// contents change.
func TestBadFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, name, "one")
	f := follow(t, name, "one", nil)
	replace(t, name, "bad")
	f.next("bad")
	replace(t, name, "bad")
	replace(t, name, "good")
	f.next("good")
	f.nothingElse()
	got := f.log.String()
	if strings.Count(got, "\n") != 1 || !strings.Contains(got, "the old rules stay in force") ||
		!strings.Contains(got, "1:2: this") || !strings.Contains(got, "3:4: and that") || !strings.Contains(got, name) {
		t.Error(got)
	}
}

// On request the follower applies the file even if it is unchanged, and logs its
// problems again.
func TestReload(t *testing.T) {
	name := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, name, "one")
	f := follow(t, name, "one", func(c *Config) { c.Quiet, c.Longest = time.Hour, time.Hour })
	f.Reload()
	f.next("one")
	replace(t, name, "bad")
	for range 2 {
		f.Reload()
		f.next("bad")
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		f.Reload()
		receive(t, f.failed)
	}
	f.nothingElse()
	if got := f.log.String(); strings.Count(got, "level=ERROR") != 4 {
		t.Error(got)
	}
}

// ReloadNow waits for the result, and not beyond its context.
func TestReloadNow(t *testing.T) {
	name := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, name, "one")
	f := follow(t, name, "one", func(c *Config) { c.Quiet, c.Longest = time.Hour, time.Hour })
	if data, err := f.ReloadNow(t.Context()); err != nil || string(data) != "one" {
		t.Errorf("%q, %v", data, err)
	}
	f.next("one")
	replace(t, name, "bad")
	if data, err := f.ReloadNow(t.Context()); !errors.As(err, new(*rules.Error)) || data != nil {
		t.Errorf("%q, %v", data, err)
	}
	f.next("bad")
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if data, err := f.ReloadNow(t.Context()); !errors.Is(err, os.ErrNotExist) || data != nil {
		t.Errorf("%q, %v", data, err)
	}
	receive(t, f.failed)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := New(Config{Name: name}).ReloadNow(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("nobody follows: %v", err)
	}
}

// Reload never waits, and asking a hundred times while the file is being read
// has it read once more.
func TestReloadDoesNotWait(t *testing.T) {
	name := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, name, "one")
	begun, proceed := make(chan struct{}), make(chan struct{})
	n := 0
	f := follow(t, name, "one", func(c *Config) {
		apply := c.Apply
		c.Apply = func(data []byte) error {
			if n++; n == 1 {
				close(begun)
				<-proceed
			}
			return apply(data)
		}
	})
	f.Reload()
	receive(t, begun)
	for range 100 {
		f.Reload()
	}
	close(proceed)
	f.next("one")
	f.next("one")
	f.nothingElse()
}

// A file that is written without end is read nevertheless, after a while.
func TestDebounceIsBounded(t *testing.T) {
	name := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, name, "one")
	f := follow(t, name, "one", func(c *Config) { c.Quiet, c.Longest = time.Hour, 50*time.Millisecond })
	timeout := time.After(soon)
	for n := 0; ; n++ {
		replace(t, name, fmt.Sprint("edit ", n))
		select {
		case got := <-f.applied:
			if !strings.HasPrefix(got, "edit ") {
				t.Errorf("%q", got)
			}
			return
		case <-timeout:
			t.Fatal("it was never read")
		default:
		}
	}
}

// A file of numbers beside the rules is followed as they are, and a bad one leaves the old rules in
// force.
func TestNumbersAreFollowed(t *testing.T) {
	dir := t.TempDir()
	name, plans := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "plans.yaml")
	write(t, plans, "pro: 5/minute\n")
	write(t, name, "rules: [{name: a, limits: [{limit: {by: tenant, of: {file: plans.yaml}, else: 1/minute}}]}]")
	first, err := Read(name)
	if err != nil || !strings.Contains(string(first), `"5/minute pro\n"`) {
		t.Fatalf("%s, %v", first, err)
	}
	f := follow(t, name, string(first), nil)
	replace(t, plans, "pro: 6/minute\n")
	f.next(strings.Replace(string(first), "5/minute", "6/minute", 1))
	replace(t, plans, "pro: 7/minute\nfree 5\n")
	if err := receive(t, f.failed); !strings.Contains(err.Error(), `plans.yaml:2:1: "free 5" is not a `) {
		t.Error(err)
	}
	replace(t, plans, "pro: 8/minute\n")
	f.next(strings.Replace(string(first), "5/minute", "8/minute", 1))
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "rules.yaml")
	write(t, name, "one")
	if got, err := Read(name); err != nil || string(got) != "one" {
		t.Errorf("%q, %v", got, err)
	}
	if err := os.Truncate(name, smallfile.MaxRules); err != nil {
		t.Fatal(err)
	}
	if got, err := Read(name); err != nil || len(got) != smallfile.MaxRules {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if err := os.Truncate(name, smallfile.MaxRules+1); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(name); err == nil || !strings.Contains(err.Error(), "larger than 16 MiB") {
		t.Error(err)
	}
	if _, err := Read(dir); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Error(err)
	}
	if _, err := Read(name + ".none"); err == nil || strings.Count(err.Error(), name) != 1 {
		t.Error(err)
	}
}

// A watch that cannot be set up is logged once.
func TestWarnOnce(t *testing.T) {
	var out log
	c := Config{Name: "rules.yaml", Poll: time.Second, Log: slog.New(slog.NewTextHandler(&out, nil))}
	w := &watch{config: &c}
	w.warn(os.ErrNotExist)
	w.warn(os.ErrPermission)
	w.warn(os.ErrPermission)
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "every=1s") ||
		!strings.Contains(got, "permission denied") {
		t.Error(got)
	}
}

func TestProblems(t *testing.T) {
	if got := problems(os.ErrInvalid); len(got) != 1 || got[0] != os.ErrInvalid.Error() {
		t.Error(got)
	}
}

// A directory that went and came back before it is looked at again is watched anew, and
// what was written there meanwhile is read.
func TestDirectoryBackAtOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "conf")
	name := filepath.Join(dir, "rules.yaml")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, name, "one")
	w := newWatch(&Config{Name: name, Log: slog.New(slog.DiscardHandler), Quiet: time.Hour, Longest: time.Hour,
		Net: time.Hour, Poll: time.Hour})
	defer w.close()
	w.settled()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for late := time.After(10 * time.Second); len(w.watcher.WatchList()) > 0; {
		select {
		case <-w.events():
		case <-time.After(time.Millisecond): // the last event comes before the list is shorter
		case <-late:
			t.Fatal("the system does not tell that the directory is gone")
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, name, "two")
	if w.renew(); w.first.IsZero() || !slices.Equal(w.watcher.WatchList(), []string{dir}) {
		t.Errorf("to be read: %v; watched: %v, want true and %s", !w.first.IsZero(), w.watcher.WatchList(), dir)
	}
}
