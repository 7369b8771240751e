//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const cutRules = `version: 1
rules:
  - {name: open, match: {path: "^/open"}, key: [user],
    limits: [{limit: 100, window: 30d, algorithm: fixed_window, align: first_hit}]}
  - {name: shut, match: {path: "^/shut"}, key: [user], on_unreachable: closed,
    limits: [{limit: 100, window: 30d, algorithm: fixed_window, align: first_hit}]}
`

const (
	cutLimit = 100
	cutD     = 5
	cutUsers = 12
	cutEvery = 75 * time.Millisecond // a check of each key
)

// cut is one run: three nodes with data directories that are cut off while clients ask.
type cut struct {
	t      *testing.T
	all    []*seat
	dirs   []string
	rng    *rand.Rand
	client *http.Client
	again  time.Time // what was given after that may be given again: the earliest start of the nodes' last saves

	mu    sync.Mutex
	given map[string][]time.Time // grants of each key, by path and user, that no policy gave
}

func newCut(t *testing.T, seed uint64) *cut {
	t.Helper()
	c := &cut{t: t, rng: rand.New(rand.NewPCG(seed, 7)), given: map[string][]time.Time{},
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * cutUsers}}}
	t.Cleanup(c.client.CloseIdleConnections)
	c.all = places(t, 3, cutRules, "--persist-interval", "1s", "--restore-wait", "20s", "--deadline", "20s",
		"--allow-reset", "--secret-file", secretFile(t, "a"))
	for _, s := range c.all {
		dir := filepath.Join(t.TempDir(), s.name)
		c.dirs = append(c.dirs, dir)
		s.args = append(s.args, "--data-dir", dir)
		s.start(t)
	}
	settle(t, c.all)
	return c
}

func secretFile(t *testing.T, of string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(name, []byte(strings.Repeat(of, 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// check asks a node for a unit of a key, and notes a grant. It reports whether it was one, and whether an owner, an
// heir or a node by what it was lent decided.
func (c *cut) check(ctx context.Context, s *seat, key string) (allowed, decided bool) {
	path, user, _ := strings.Cut(key, " ")
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.http+"/v1/check?path="+path+"&user="+user, nil)
	if err != nil {
		return false, false
	}
	res, err := c.client.Do(r)
	if err != nil {
		return false, false
	}
	defer res.Body.Close()
	var out struct {
		Allowed bool   `json:"allowed"`
		Source  string `json:"source"`
	}
	text, err := io.ReadAll(res.Body)
	if err != nil || json.Unmarshal(text, &out) != nil ||
		!slices.Contains([]string{"owner", "heir", "leased"}, out.Source) {
		return false, false
	}
	if out.Allowed {
		c.mu.Lock()
		c.given[key] = append(c.given[key], time.Now())
		c.mu.Unlock()
	}
	return out.Allowed, true
}

// keys returns all keys.
func cutKeys() (keys []string) {
	for _, path := range []string{"/open", "/shut"} {
		for u := range cutUsers {
			keys = append(keys, fmt.Sprintf("%s u%d", path, u))
		}
	}
	return keys
}

// load has all keys asked for until stop is called.
func (c *cut) load() (stop func()) {
	ctx, cancel := context.WithCancel(c.t.Context())
	var asking sync.WaitGroup
	for i, key := range cutKeys() {
		asking.Go(func() {
			tick := time.NewTicker(cutEvery)
			defer tick.Stop()
			for n := i; ; n++ {
				select {
				case <-tick.C:
				case <-ctx.Done():
					return
				}
				within, done := context.WithTimeout(ctx, 2*time.Second)
				c.check(within, c.all[n%3], key)
				done()
			}
		})
	}
	return func() { cancel(); asking.Wait() }
}

// lasts waits until all nodes have saved so many times.
func (c *cut) lasts(saves int) {
	for _, s := range c.all {
		before := c.saved(s)
		for n := 0; n < saves; {
			if now := c.saved(s); now != before {
				before = now
				n++
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-c.t.Context().Done():
				c.t.Fatal("no node saves")
			}
		}
	}
}

func (c *cut) saved(s *seat) string {
	_, body := get(c.t, c.client, "http://"+s.admin+"/metrics")
	_, value, _ := strings.Cut(body, "\nweir_store_saved_timestamp_seconds ")
	value, _, _ = strings.Cut(value, "\n")
	return value
}

// before notes what the promise for a cut depends on: when each node began to save what it saved last.
func (c *cut) before() {
	for _, s := range c.all {
		seconds, err := strconv.ParseFloat(c.saved(s), 64)
		if err != nil {
			c.t.Fatal(err)
		}
		// The metric is rounded down to milliseconds.
		if at := time.UnixMilli(int64(seconds * 1000)); c.again.IsZero() || at.Before(c.again) {
			c.again = at
		}
	}
}

// kill ends nodes with SIGKILL, some time apart at most.
func (c *cut) kill(some []*seat, apart time.Duration) {
	for _, s := range some {
		if apart > 0 {
			<-time.After(time.Duration(c.rng.Int64N(int64(apart)))) // what is to happen, and no wait for it
		}
		s.signal(syscall.SIGKILL)
	}
	for _, s := range some {
		<-s.done
	}
}

// start starts nodes with more flags.
func (c *cut) start(some []*seat, more ...string) {
	for _, s := range some {
		args := s.args
		s.args = append(slices.Clone(args), more...)
		s.start(c.t)
		s.args = args
	}
}

// unsaved returns how many of each key were given since the saves that [cut.before] has noted. A charge that was
// answered before is in those saves, or its owner's heir has it in its own, but for D.
func (c *cut) unsaved() map[string]int {
	n := map[string]int{}
	for key, given := range c.given {
		for _, at := range given {
			if at.After(c.again) {
				n[key]++
			}
		}
	}
	return n
}

// spent asks for each key until it is denied, and compares what was given in all with the promise: once is what may be
// given once more of each key.
func (c *cut) spent(kills int, once map[string]int) {
	var asking sync.WaitGroup
	for i, key := range cutKeys() {
		asking.Go(func() {
			for n, denied := i, 0; n < i+4*cutLimit && denied < 3; n++ {
				if allowed, decided := c.check(c.t.Context(), c.all[n%3], key); decided && !allowed {
					denied++
				}
			}
		})
	}
	asking.Wait()
	for _, key := range cutKeys() {
		given, most := len(c.given[key]), cutLimit+cutD*kills+once[key]
		if given > most {
			c.t.Errorf("%s: %d were given, at most %d, of which %d again", key, given, most, once[key])
		}
		if given < cutLimit*3/4 {
			c.t.Errorf("%s: only %d were given of %d", key, given, cutLimit)
		}
	}
}

// Three real nodes, of which all or most end at once while clients ask, and that are back with their directories, or
// with those of before, or without one: what is given in all is the limit, D, and what was given since the last save.
// The cases of a round run at once: they mostly wait.
func TestCuts(t *testing.T) {
	runs, err := strconv.Atoi(os.Getenv("WEIR_CUTS"))
	if os.Getenv("WEIR_CUTS") != "" && err != nil {
		t.Fatal(err)
	}
	for run := range max(1, runs) {
		t.Run(fmt.Sprint(run), func(t *testing.T) {
			for _, kind := range []string{"absent", "secret", "all", "staggered", "two", "lost", "yesterday", "back", "ahead"} {
				t.Run(kind, func(t *testing.T) {
					t.Parallel()
					oneCut(t, kind, uint64(run))
				})
			}
		})
	}
}

func oneCut(t *testing.T, kind string, seed uint64) {
	t.Helper()
	c := newCut(t, seed)
	one := c.rng.IntN(3)
	stop := c.load()
	c.lasts(1)
	old := filepath.Join(t.TempDir(), "old")
	if kind == "yesterday" {
		if err := os.CopyFS(old, os.DirFS(c.dirs[one])); err != nil {
			t.Fatal(err)
		}
	}
	c.lasts(1 + c.rng.IntN(2))
	kills, apart, some := 1, time.Duration(0), c.all
	switch kind {
	case "staggered":
		kills, apart = 3, 600*time.Millisecond
	case "two":
		kills, some = 2, slices.Delete(slices.Clone(c.all), one, one+1)
	}
	c.before()
	c.kill(some, apart)
	stop()
	once := c.unsaved()
	switch kind {
	case "lost", "yesterday":
		if err := os.RemoveAll(c.dirs[one]); err != nil {
			t.Fatal(err)
		}
		if kind == "yesterday" {
			if err := os.CopyFS(c.dirs[one], os.DirFS(old)); err != nil {
				t.Fatal(err)
			}
		}
		c.start(c.all)
	case "back":
		c.start(c.all, "--test-clock-offset", "-1h")
	case "ahead":
		c.start(c.all, "--test-clock-offset", "24h")
	case "secret":
		s := c.all[one]
		c.start([]*seat{s}, "--secret-file", secretFile(t, "b"))
		s.until(s.log, "was written under another secret")
		s.end(1)
		c.start(c.all)
	case "absent":
		here := slices.Delete(slices.Clone(c.all), one, one+1)
		c.start(here, "--deadline", "500ms", "--restore-wait", "1s")
		for _, s := range here {
			s.until(s.log, "the node is ready")
		}
		for u := range cutUsers {
			if allowed, decided := c.check(t.Context(), here[u%2], fmt.Sprint("/shut u", u)); allowed || decided {
				t.Errorf("a closed rule decides for u%d, and a member is not back", u)
			}
		}
		c.start([]*seat{c.all[one]})
	default:
		c.start(some)
	}
	settle(t, c.all)
	c.spent(kills, once)
}

// Overrides survive the end of all nodes.
func TestOverridesSurviveACut(t *testing.T) {
	c := newCut(t, 1)
	asked(t, http.DefaultClient, http.MethodPost, "http://"+c.all[0].admin+"/v1/overrides/set",
		`{"rule":"open","user":"u1","deny":true,"why":"a test"}`, "Content-Type", "application/json")
	c.lasts(2)
	c.kill(c.all, 0)
	c.start(c.all)
	settle(t, c.all)
	if _, text := asked(t, http.DefaultClient, http.MethodGet, "http://"+c.all[0].admin+"/v1/overrides", ""); !strings.
		Contains(text, `"why":"a test"`) {
		t.Errorf("the override is gone: %s", text)
	}
	_, text := asked(t, http.DefaultClient, http.MethodGet, "http://"+c.all[0].http+"/v1/check?path=/open&user=u1", "")
	if !strings.Contains(text, `"allowed":false`) {
		t.Errorf("the override is not in force: %s", text)
	}
}

// Counters of three nodes are exported at one of them, and imported at another one, each where it is decided about.
func TestCountersMove(t *testing.T) {
	c := newCut(t, 1)
	for range 7 {
		for i, key := range cutKeys() {
			if allowed, _ := c.check(t.Context(), c.all[i%3], key); !allowed {
				t.Fatalf("%s is denied", key)
			}
		}
	}
	post := func(s *seat, path, body string) string {
		t.Helper()
		status, text := asked(t, http.DefaultClient, http.MethodPost, "http://"+s.admin+path, body, "Content-Type",
			"application/json")
		if status != http.StatusOK {
			t.Fatalf("%s: %d %s", path, status, text)
		}
		return text
	}
	lines := strings.Split(strings.TrimSpace(post(c.all[0], "/v1/export", `{}`)), "\n")
	if len(lines) != 2*cutUsers+1 || !strings.Contains(lines[2*cutUsers], `"missing":[],"end":true`) {
		t.Fatalf("%d lines: %s", len(lines), lines[len(lines)-1])
	}
	for u := range cutUsers { // half of them are gone
		asked(t, http.DefaultClient, http.MethodPost, "http://"+c.all[1].http+"/v1/reset",
			fmt.Sprintf(`{"path": "/shut", "user": "u%d"}`, u), "Content-Type", "application/json")
	}
	text := post(c.all[2], "/v1/import", `{"lines": [`+strings.Join(lines[:2*cutUsers], ",")+`]}`)
	if added, merged := strings.Count(text, `"added"`), strings.Count(text, `"merged"`); added != cutUsers ||
		merged != cutUsers {
		t.Errorf("%d added, %d merged: %s", added, merged, text)
	}
	c.lasts(1)
	c.kill(c.all[:1], 0) // the heirs have what was imported
	c.all = c.all[1:]
	for _, key := range cutKeys() {
		n := 7
		for n < cutLimit+20 {
			allowed, decided := c.check(t.Context(), c.all[n%2], key)
			if decided && !allowed {
				break
			}
			if allowed {
				n++
			}
		}
		if n > cutLimit+cutD {
			t.Errorf("%s: %d are given", key, n)
		}
	}
}
