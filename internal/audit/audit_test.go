package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlimit/weir/internal/frontend"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is an output in memory, which a test can make fail or wait.
type memory struct {
	mu   sync.Mutex
	text bytes.Buffer
	err  error
	wait chan struct{} // nil: it does not wait
}

func (m *memory) Write(p []byte) (int, error) {
	if m.wait != nil {
		<-m.wait
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return 0, m.err
	}
	return m.text.Write(p)
}
func (m *memory) look() error  { return nil }
func (m *memory) Close() error { return nil }

func (m *memory) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

func (m *memory) lines(t *testing.T) (out []map[string]any) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	return linesOf(t, m.text.String())
}

func linesOf(t *testing.T, text string) (out []map[string]any) {
	t.Helper()
	for _, l := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if l == "" {
			continue
		}
		var one map[string]any
		if err := json.Unmarshal([]byte(l), &one); err != nil {
			t.Fatalf("%q: %v", l, err)
		}
		out = append(out, one)
	}
	return out
}

// start opens a log whose clock stands still, unless a test moves it.
func start(t *testing.T, to output) (l *Log, tick chan time.Time, log *bytes.Buffer) {
	t.Helper()
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	tick, log = make(chan time.Time), &bytes.Buffer{}
	l, err := open(to, slog.New(slog.NewTextHandler(log, nil)), func() time.Time { return at }, tick)
	if err != nil {
		t.Fatal(err)
	}
	return l, tick, log
}

func TestLine(t *testing.T) {
	m := &memory{}
	l, _, _ := start(t, m)
	l.Audited(frontend.AuditEvent{Action: "forget", Outcome: frontend.AuditDone, Caller: "ada", From: "10.0.0.1:7",
		Over: "administration", Subject: "node-3"})
	l.Audited(frontend.AuditEvent{Action: "check", Outcome: frontend.AuditRefused, Tenant: "shop", Count: 2,
		Why: strings.Repeat("é", 400) + "\n"})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	want := `{"time":"2026-01-02T03:04:05.000006Z","action":"forget","outcome":"done","caller":"ada",` +
		`"from":"10.0.0.1:7","over":"administration","subject":"node-3"}` + "\n"
	if got := m.text.String(); !strings.HasPrefix(got, want) {
		t.Errorf("got %s\nwant %s", got, want)
	}
	second := m.lines(t)[1]
	if why, _ := second["why"].(string); len(why) > maxText+3 || !strings.HasSuffix(why, "é...") ||
		second["checks"] != 2.0 || second["tenant"] != "shop" {
		t.Errorf("%v", second)
	}
	l.Audited(frontend.AuditEvent{}) // after its end
	var none *Log
	none.Audited(frontend.AuditEvent{})
	if err := none.Close(); err != nil {
		t.Error(err)
	}
}

// TestRefusalsKeepNothingOut: a flood of refusals is cut off and counted, and what was done
// is written all the same.
func TestRefusalsKeepNothingOut(t *testing.T) {
	m := &memory{}
	l, _, _ := start(t, m)
	for range 500 {
		l.Audited(frontend.AuditEvent{Action: "check", Outcome: frontend.AuditRefused})
	}
	l.Audited(frontend.AuditEvent{Action: "reset", Outcome: frontend.AuditDone})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	seen := map[any]int{}
	for _, one := range m.lines(t) {
		seen[one["action"]]++
		if n, ok := one["left_out"]; ok && n != 500.0-refusedBurst/sharesOfRate {
			t.Errorf("%v were left out, want %d", n, 500-refusedBurst/sharesOfRate)
		}
	}
	if seen["check"] != refusedBurst/sharesOfRate || seen["reset"] != 1 || seen["left_out"] != 1 {
		t.Errorf("%v", seen)
	}
}

// TestFailuresKeepNothingOut: a stranger can cause failures as well as refusals, such as by
// messages that cannot be read. They leave room for what was done, and for refusals.
func TestFailuresKeepNothingOut(t *testing.T) {
	m := &memory{}
	l, _, _ := start(t, m)
	for range 2 * doneBurst {
		l.Audited(frontend.AuditEvent{Action: "failure", Outcome: frontend.AuditFailed})
	}
	l.Audited(frontend.AuditEvent{Action: "reset", Outcome: frontend.AuditDone})
	l.Audited(frontend.AuditEvent{Action: "check", Outcome: frontend.AuditRefused})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	seen := map[any]int{}
	for _, one := range m.lines(t) {
		seen[one["action"]]++
	}
	if seen["failure"] != refusedBurst/sharesOfRate || seen["reset"] != 1 || seen["check"] != 1 || seen["left_out"] != 1 {
		t.Errorf("%v", seen)
	}
}

// TestStrangersKeepNothingOut: neither handshakes, nor what the ports of members refuse, nor callers
// that are not known, keep out what a known caller is refused, or failed at, or what was done on
// the node's own machine.
func TestStrangersKeepNothingOut(t *testing.T) {
	type event = frontend.AuditEvent
	var want []event
	for _, outcome := range []string{frontend.AuditDone, frontend.AuditRefused, frontend.AuditFailed} {
		want = append(want, event{Action: "reset", Outcome: outcome, Caller: "shop", From: "10.0.0.1:7", Over: "grpc"})
	}
	want = append(want, event{Action: "reload", Outcome: frontend.AuditDone, From: "unix", Over: "administration"},
		event{Action: "rules", Outcome: frontend.AuditFailed, Over: "file"})
	floods := []event{
		{Action: "connect", Outcome: frontend.AuditRefused, From: "10.0.0.2:7", Over: "grpc"},
		{Action: "connect", Outcome: frontend.AuditRefused, From: "10.0.0.2:7", Over: "peer"},
	}
	for _, outcome := range []string{frontend.AuditDone, frontend.AuditRefused, frontend.AuditFailed} {
		for _, caller := range []string{"", "anonymous"} {
			floods = append(floods, event{Action: "check", Outcome: outcome, Caller: caller, From: "10.0.0.2:7", Over: "http"})
		}
	}
	for i, flood := range floods {
		m := &memory{}
		l, _, _ := start(t, m)
		for range 2 * doneBurst {
			l.Audited(flood)
		}
		for _, e := range want {
			l.Audited(e)
		}
		others := append(slices.Clone(floods[:i]), floods[i+1:]...)
		for _, e := range others {
			l.Audited(e)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		has := func(e event) bool {
			return slices.ContainsFunc(m.lines(t), func(one map[string]any) bool {
				get := func(field string) string { text, _ := one[field].(string); return text }
				return get("action") == e.Action && get("outcome") == e.Outcome && get("caller") == e.Caller &&
					get("over") == e.Over
			})
		}
		for _, e := range want {
			if !has(e) {
				t.Errorf("a flood of %+v keeps out %+v", flood, e)
			}
		}
		for _, e := range others {
			if kindOf(&e) != kindOf(&flood) && !has(e) {
				t.Errorf("a flood of %+v keeps out %+v", flood, e)
			}
		}
	}
}

// TestNoCallerHidesOthers: what one caller is refused, fails at or does takes a quarter of the lines of its kind at
// most, and so does an address of callers that are not known. What was left out is counted for each caller.
func TestNoCallerHidesOthers(t *testing.T) {
	m := &memory{}
	l, _, _ := start(t, m)
	const flood = 4 * doneBurst
	kinds := []string{frontend.AuditRefused, frontend.AuditFailed, frontend.AuditDone}
	for i := range flood {
		for _, outcome := range kinds {
			l.Audited(frontend.AuditEvent{Action: "reset", Outcome: outcome, Caller: "flood", From: "10.0.0.9:1", Over: "grpc"})
			l.Audited(frontend.AuditEvent{Action: "reset", Outcome: outcome, From: fmt.Sprintf("[2001:db8::%x]:%d", i, 1000+i),
				Over: "grpc"})
		}
	}
	for _, outcome := range kinds {
		for i := range 3 {
			l.Audited(frontend.AuditEvent{Action: "reset", Outcome: outcome, Caller: fmt.Sprint("shop-", i), From: "10.0.0.9:1",
				Over: "grpc"})
			l.Audited(frontend.AuditEvent{Action: "reset", Outcome: outcome, From: fmt.Sprintf("192.0.2.%d:7", i), Over: "grpc"})
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	seen, left := map[string]int{}, map[string]float64{}
	for _, one := range m.lines(t) {
		caller, _ := one["caller"].(string)
		if n, ok := one["left_out"].(float64); ok {
			left[caller] = n
			continue
		}
		from, _ := one["from"].(string)
		if !strings.HasPrefix(from, "192.") {
			from = ""
		}
		seen[fmt.Sprint(one["outcome"], " ", caller, from)]++
	}
	written := (2*refusedBurst + doneBurst) / sharesOfRate
	if left["flood"] != float64(3*flood-written) || left[""] != float64(3*flood-written) {
		t.Errorf("%v were left out, want %d of each", left, 3*flood-written)
	}
	for _, outcome := range kinds {
		for i := range 3 {
			if seen[fmt.Sprintf("%s shop-%d", outcome, i)] != 1 || seen[fmt.Sprintf("%s 192.0.2.%d:7", outcome, i)] != 1 {
				t.Errorf("the lines of others: %v", seen)
			}
		}
	}
}

// TestActsAreNotLeftOut: what an administrator does is written, however much else there was, and whoever did it.
func TestActsAreNotLeftOut(t *testing.T) {
	m := &memory{}
	l, _, _ := start(t, m)
	acts := []frontend.AuditEvent{
		{Action: "members forget", Outcome: frontend.AuditDone, Caller: "operator", From: "10.0.0.1:7",
			Over: "administration"},
		{Action: "reload", Outcome: frontend.AuditDone, From: "unix", Over: "administration"},
		{Action: "rules", Outcome: frontend.AuditDone, Over: "file"},
	}
	const each = maxActs / 4
	for range 2 * doneBurst {
		for _, caller := range []string{"operator", "shop", ""} {
			l.Audited(frontend.AuditEvent{Action: "reset", Outcome: frontend.AuditDone, Caller: caller, From: "10.0.0.1:7",
				Over: "grpc"})
		}
	}
	for range each {
		for _, e := range acts {
			l.Audited(e)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	seen := map[any]int{}
	for _, one := range m.lines(t) {
		seen[one["action"]]++
	}
	for _, e := range acts {
		if seen[e.Action] != each {
			t.Errorf("%d lines of %q, want %d", seen[e.Action], e.Action, each)
		}
	}
}

// TestLeftOutIsSaidInTime: a line for each caller every ten seconds, and the callers that are counted are bounded.
func TestLeftOutIsSaidInTime(t *testing.T) {
	m := &memory{}
	var seconds atomic.Int64
	tick := make(chan time.Time)
	l, err := open(m, slog.New(slog.DiscardHandler), func() time.Time { return time.Unix(1e9+seconds.Load(), 0) }, tick)
	if err != nil {
		t.Fatal(err)
	}
	flood := func(caller string) {
		for range refusedBurst {
			l.Audited(frontend.AuditEvent{Action: "check", Outcome: frontend.AuditRefused, Caller: caller})
		}
	}
	said := func() (n int) {
		for len(l.events) > 0 {
			tick <- time.Time{}
		}
		tick <- time.Time{}
		tick <- time.Time{} // the one before was served
		for _, one := range m.lines(t) {
			if one["left_out"] != nil {
				n++
			}
		}
		return n
	}
	for _, step := range []struct {
		after  int64
		caller string
		want   int
	}{{0, "a", 1}, {1, "b", 1}, {8, "a", 1}, {1, "", 3}, {9, "", 3}, {1, "a", 4}} {
		seconds.Add(step.after)
		if step.caller != "" {
			flood(step.caller)
		}
		if got := said(); got != step.want {
			t.Errorf("after %d s there are %d lines, want %d", seconds.Load(), got, step.want)
		}
	}
	for i := range 2 * maxShares {
		flood(fmt.Sprint(i))
	}
	l.mu.Lock()
	shares, left := len(l.rates.of), len(l.left)
	l.mu.Unlock()
	if shares > maxShares || left > maxLeft+1 {
		t.Errorf("%d shares and %d counts of callers are kept", shares, left)
	}
	seconds.Add(60)
	said()
	if l.mu.Lock(); len(l.rates.of) > 0 {
		t.Errorf("%d shares are kept of callers that are quiet", len(l.rates.of))
	}
	l.mu.Unlock()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestFileThatHangs: no caller waits for a file, and what finds no room is counted.
func TestFileThatHangs(t *testing.T) {
	m := &memory{wait: make(chan struct{})}
	var seconds atomic.Int64
	now := func() time.Time { return time.Unix(seconds.Add(1), 0) } // so that the rate leaves nothing out
	l, err := open(m, slog.New(slog.DiscardHandler), now, nil)
	if err != nil {
		t.Fatal(err)
	}
	const asked = 3 * maxWaiting
	for range asked {
		l.Audited(frontend.AuditEvent{Action: "reset", Outcome: frontend.AuditDone})
	}
	close(m.wait)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	written, left := 0, 0.0
	for _, one := range m.lines(t) {
		if n, ok := one["left_out"].(float64); ok {
			left += n
		} else {
			written++
		}
	}
	if float64(written)+left != asked || left == 0 {
		t.Errorf("%d lines and %v left out, want %d in all", written, left, asked)
	}
}

// TestDiskIsFull: lines that cannot be written are logged once and counted when others can.
func TestDiskIsFull(t *testing.T) {
	m := &memory{err: errors.New("no space left on device")}
	l, tick, log := start(t, m)
	for range 3 {
		l.Audited(frontend.AuditEvent{Action: "reset", Outcome: frontend.AuditDone})
	}
	tick <- time.Time{} // the count cannot be written either
	for len(l.events) > 0 {
		tick <- time.Time{}
	}
	tick <- time.Time{}
	m.fail(nil)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	all := m.lines(t)
	if len(all) != 1 || all[0]["left_out"] != 3.0 {
		t.Errorf("%v", all)
	}
	if n := strings.Count(log.String(), "no space left"); n != 1 {
		t.Errorf("%d lines in the log: %s", n, log)
	}
	if again := `msg="audit lines are written again" lost=3`; strings.Count(log.String(), again) != 1 {
		t.Errorf("the log does not have %s once: %s", again, log)
	}
}

// TestRotation: a file that was renamed or removed is made anew, with nothing lost.
func TestRotation(t *testing.T) {
	name := filepath.Join(t.TempDir(), "audit.jsonl")
	out, err := openOutput(name, "audit file")
	if err != nil {
		t.Fatal(err)
	}
	l, tick, log := start(t, out)
	add := func(action string) {
		l.Audited(frontend.AuditEvent{Action: action, Outcome: frontend.AuditDone})
		for len(l.events) > 0 {
			tick <- time.Time{}
		}
		tick <- time.Time{}
	}
	add("one")
	if err := os.Rename(name, name+".1"); err != nil {
		t.Fatal(err)
	}
	tick <- time.Time{}
	add("two")
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	tick <- time.Time{}
	add("three")
	if err := errors.Join(os.Rename(name, name+".2"), os.WriteFile(name, nil, 0o600)); err != nil { // as logrotate does
		t.Fatal(err)
	}
	tick <- time.Time{}
	add("four")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{name + ".1": "one", name + ".2": "three", name: "four"} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if all := linesOf(t, string(data)); len(all) != 1 || all[0]["action"] != want {
			t.Errorf("%s has %v, want %s", file, all, want)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has the mode %v", file, info.Mode())
		}
	}
	if log.Len() > 0 {
		t.Error(log)
	}
}

// TestFileCannotBeOpenedAgain: lines go to the file that is open, the log says so and not that
// they are lost, and says when the file has its name again.
func TestFileCannotBeOpenedAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "audit.jsonl")
	out, err := openOutput(name, "audit file")
	if err != nil {
		t.Fatal(err)
	}
	l, tick, log := start(t, out)
	add := func(action string) {
		l.Audited(frontend.AuditEvent{Action: action, Outcome: frontend.AuditDone})
		for len(l.events) > 0 {
			tick <- time.Time{}
		}
		tick <- time.Time{}
	}
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	add("one")
	add("two")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	tick <- time.Time{}
	add("three")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string][]string{filepath.Join(dir+".old", "audit.jsonl"): {"one", "two"},
		name: {"three"}} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, one := range linesOf(t, string(data)) {
			got = append(got, fmt.Sprint(one["action"]))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s has %v, want %v", file, got, want)
		}
	}
	text := log.String()
	for _, once := range []string{
		"lines still go to the file that had its name before", name +
			" cannot be opened: no such file or directory: let the node write",
		"the audit file was opened again",
	} {
		if strings.Count(text, once) != 1 {
			t.Errorf("the log does not have %q once: %s", once, text)
		}
	}
	for _, untrue := range []string{"cannot be written", "written again"} {
		if strings.Contains(text, untrue) {
			t.Errorf("the log has %q: %s", untrue, text)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	for name, want := range map[string]string{dir: "not a regular file",
		filepath.Join(dir, "a", "b"): "cannot be opened"} {
		if _, err := Open(name, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := OpenLines(name, "denial", slog.New(slog.DiscardHandler)); err == nil ||
			!strings.Contains(err.Error(), "the denial log "+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	l, err := Open("stderr", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestRefusedMembersKeepNoOverrideOut: what the ports of members refuse, from any number of addresses, keeps out
// neither what a member tells nor that an override ended.
func TestRefusedMembersKeepNoOverrideOut(t *testing.T) {
	m := &memory{}
	l, _, _ := start(t, m)
	for i := range 2 * refusedBurst {
		from := fmt.Sprintf("10.0.%d.%d:7", i/250, i%250)
		l.Audited(frontend.AuditEvent{Action: "connect", Outcome: frontend.AuditRefused, From: from, Over: "peer"})
	}
	for i := range 2 * doneBurst {
		from := fmt.Sprintf("10.1.%d.%d:7", i/250, i%250)
		l.Audited(frontend.AuditEvent{Action: "check", Outcome: frontend.AuditDone, From: from, Over: "http"})
	}
	l.Audited(frontend.AuditEvent{Action: "override", Outcome: frontend.AuditDone, Over: "clock"})
	l.Audited(frontend.AuditEvent{Action: "override", Outcome: frontend.AuditDone, Over: "peer", Caller: "member n2"})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, one := range m.lines(t) {
		if one["action"] == "override" {
			n++
		}
	}
	if n != 2 {
		t.Errorf("%d lines about overrides, want 2", n)
	}
}
