package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/address"
	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// Bounds. Each kind of event has a rate of its own: what anyone can cause must not keep out what
// was done, nor what a caller is refused who is known. Each caller has a part of it, and so has each address of those
// that are not known.
const (
	doneRate, doneBurst       = 100, 1000                    // lines a second
	refusedRate, refusedBurst = 20, 200                      // and failures
	sharesOfRate              = 4                            // a caller gets one of so many parts
	maxWaiting                = 2*doneBurst + 6*refusedBurst // events that wait to be written: all bursts at once
	maxActs                   = 1000                         // and acts of administration
	maxText                   = 300                          // bytes of a text of an event
	// maxShares bounds the callers, with the kind, whose lines are counted apart. Beyond it a new one has no bound but
	// that of the kind. Those that have caused none lately go within a second.
	maxShares = 4096
	// maxLeft bounds the callers for each of which it is counted what was left out. Beyond it no caller is named.
	maxLeft = 256
)

// leftEvery is the interval at which lines say how much was left out.
const leftEvery = 10 * time.Second

// tickEvery is how often the log looks whether its file is still in its place, and writes
// how many lines were left out.
const tickEvery = time.Second

// closeWithin bounds how long Close waits for a file system that hangs.
const closeWithin = 2 * time.Second

// sayAgain is the interval at which it is logged that lines cannot be written, or that the file
// cannot be opened again.
const sayAgain = time.Minute

// line is an event as it is written. The names of its fields do not change.
type line struct {
	Time    string `json:"time"`
	Action  string `json:"action"`
	Outcome string `json:"outcome,omitempty"`
	Caller  string `json:"caller,omitempty"`
	Tenant  string `json:"tenant,omitempty"`
	From    string `json:"from,omitempty"`
	Over    string `json:"over,omitempty"`
	Subject string `json:"subject,omitempty"`
	Checks  int    `json:"checks,omitempty"`
	Why     string `json:"why,omitempty"`
	LeftOut uint64 `json:"left_out,omitempty"`
}

// kind is what events share a rate by.
type kind uint8

const (
	acts kind = iota // of administration, and files that were read: they have no rate
	done
	refused
	failed
	strangersDone
	strangersRefused
	strangersFailed
	handshakes      // of clients
	membersRefusals // what the ports of members refuse
	kinds
)

func kindOf(e *frontend.AuditEvent) kind {
	k := done
	switch {
	case e.Over == "peer" && e.Outcome != frontend.AuditDone:
		return membersRefusals
	case e.Outcome == frontend.AuditDone && (e.Over == "administration" || e.Over == "file" || e.Over == "clock"):
		return acts
	case e.Action == "connect":
		return handshakes
	case e.Outcome == frontend.AuditRefused:
		k = refused
	case e.Outcome == frontend.AuditFailed:
		k = failed
	}
	if isStranger(e) {
		k += strangersDone - done
	}
	return k
}

// isStranger reports whether anyone could have caused an event.
func isStranger(e *frontend.AuditEvent) bool {
	return (e.Caller == "" || e.Caller == "anonymous") && e.From != "unix" && e.Over != "file"
}

// rates bounds the lines of each kind, and those of each caller.
type rates struct {
	limits, ofOne [kinds]*limiter.Limit
	all           [kinds]*arith.Counter
	of            map[share]*arith.Counter
	decision      limiter.Decision
}

// share is whose lines of a kind are counted together: an identity's, or those from an address, or a network of 64 bits
// of IPv6, of callers that are not known.
type share struct {
	kind   kind
	caller string
	from   netip.Prefix
}

func shareOf(k kind, e *frontend.AuditEvent) share {
	if k < strangersDone {
		return share{kind: k, caller: e.Caller}
	}
	from, _ := address.Parse(e.From)
	return share{kind: k, from: address.Counted(from, address.IPv6Bits)}
}

func newRates() (r rates, err error) {
	r.of = make(map[share]*arith.Counter)
	for k := done; k < kinds; k++ {
		rate, burst := int64(refusedRate), int64(refusedBurst)
		if k == done || k == strangersDone {
			rate, burst = doneRate, doneBurst
		}
		if r.limits[k], err = bucket(rate, burst); err != nil {
			return r, err
		}
		if r.ofOne[k], err = bucket(rate/sharesOfRate, burst/sharesOfRate); err != nil {
			return r, err
		}
		r.all[k] = arith.NewCounter(r.limits[k])
	}
	return r, nil
}

// admit reports whether the rates allow another line.
func (r *rates) admit(s share, now limiter.Tick) bool {
	if s.kind == acts {
		return true
	}
	own := r.of[s]
	if own == nil && len(r.of) < maxShares {
		own = arith.NewCounter(r.ofOne[s.kind])
		r.of[s] = own
	}
	if own != nil {
		if own.Check(now, 1, &r.decision); !r.decision.Allowed {
			return false
		}
	}
	r.all[s.kind].Check(now, 1, &r.decision)
	return r.decision.Allowed
}

// sweep forgets those whose lines do not count any more.
func (r *rates) sweep(now limiter.Tick) {
	for s, own := range r.of {
		if own.Peek(now, 1, &r.decision); r.decision.Limit(0).ResetAfter == 0 {
			delete(r.of, s)
		}
	}
}

type event struct {
	frontend.AuditEvent
	at time.Time
}

// Log writes events. It is safe for concurrent use. A nil Log writes nothing.
type Log struct {
	out  output
	log  *slog.Logger
	now  func() time.Time
	tick <-chan time.Time

	events chan event
	done   chan struct{} // closed by Close
	ended  chan struct{} // closed when all is written
	close  sync.Once

	mu    sync.Mutex
	rates rates
	left  map[string]uint64 // events of callers that were not written since the last line that counts them

	// Used by the writer.
	saidLeft  time.Time // when it was written what was left out
	unwritten trouble
	unopened  trouble
	lost      uint64 // events that could not be written since that was logged as over
}

// trouble bounds how often something is logged that goes wrong, and that it is over.
type trouble struct {
	said time.Time
	open bool // it was logged, and not that it is over
}

// begins reports whether to log that something went wrong.
func (t *trouble) begins(now time.Time) bool {
	if !t.said.IsZero() && now.Sub(t.said) < sayAgain {
		return false
	}
	t.said, t.open = now, true
	return true
}

// ends reports whether to log that it is over.
func (t *trouble) ends() bool {
	was := t.open
	t.open = false
	return was
}

type output interface {
	// Write writes a line.
	Write(line []byte) (int, error)
	// look makes sure that lines go to the file that has the name now.
	look() error
	Close() error
}

// Open opens a file, or standard error for "stderr". A file that is renamed or removed is
// made anew within a second, so that programs can rotate it.
func Open(to string, log *slog.Logger) (*Log, error) {
	out, err := openOutput(to, "audit file")
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(tickEvery)
	l, err := open(out, log, time.Now, tick.C)
	if err != nil {
		return nil, err
	}
	go func() {
		<-l.ended
		tick.Stop()
	}()
	return l, nil
}

func open(out output, log *slog.Logger, now func() time.Time, tick <-chan time.Time) (*Log, error) {
	l := &Log{
		out: out, log: log, now: now, tick: tick,
		events: make(chan event, maxWaiting+maxActs), done: make(chan struct{}), ended: make(chan struct{}),
		left: make(map[string]uint64),
	}
	var err error
	if l.rates, err = newRates(); err != nil {
		return nil, err
	}
	go l.run()
	return l, nil
}

func bucket(rate, burst int64) (*limiter.Limit, error) {
	return limiter.NewLimit(limiter.Spec{Algorithm: limiter.TokenBucket, Limit: rate, Burst: burst, Window: time.Second})
}

// Audited implements [frontend.Auditor]. It does not wait: beyond the rate, or when lines
// are written too slowly, the event is only counted.
func (l *Log) Audited(e frontend.AuditEvent) {
	if l == nil {
		return
	}
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	s := shareOf(kindOf(&e), &e)
	if s.kind != acts && len(l.events) >= maxWaiting || !l.rates.admit(s, limiter.TickOf(now)) {
		l.leaveOut(e.Caller, 1)
		return
	}
	select {
	case l.events <- event{e, now}:
	default:
		l.leaveOut(e.Caller, 1)
	}
}

// leaveOut counts n events of a caller that are not written. The lock is held.
func (l *Log) leaveOut(caller string, n uint64) {
	if _, counted := l.left[caller]; !counted && len(l.left) >= maxLeft {
		caller = ""
	}
	l.left[caller] += n
}

// lose is leaveOut without the lock.
func (l *Log) lose(caller string, n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leaveOut(caller, n)
}

// Close writes what waits and closes the file. It returns after closeWithin at the latest.
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	l.close.Do(func() { close(l.done) })
	t := time.NewTimer(closeWithin)
	defer t.Stop()
	select {
	case <-l.ended:
		return nil
	case <-t.C:
		return fmt.Errorf("the audit file was not written within %v: its last lines may be missing", closeWithin)
	}
}

// run writes events until Close.
func (l *Log) run() {
	defer close(l.ended)
	for {
		select {
		case e := <-l.events:
			l.write(e)
		case <-l.tick:
			l.looked(l.out.look())
			l.mu.Lock()
			l.rates.sweep(limiter.TickOf(l.now()))
			l.mu.Unlock()
			if now := l.now(); now.Sub(l.saidLeft) >= leftEvery {
				l.writeLeft(now)
			}
		case <-l.done:
			l.rest()
			return
		}
	}
}

func (l *Log) rest() {
	for {
		select {
		case e := <-l.events:
			l.write(e)
		default:
			l.writeLeft(l.now())
			if err := l.out.Close(); err != nil {
				l.failed(err)
			}
			return
		}
	}
}

// writeLeft writes how many events of each caller were left out since the last time.
func (l *Log) writeLeft(now time.Time) {
	l.mu.Lock()
	left := l.left
	l.left = make(map[string]uint64)
	l.mu.Unlock()
	for _, caller := range slices.Sorted(maps.Keys(left)) {
		if !l.put(line{Time: stamp(now), Action: "left_out", Caller: bounded(caller), LeftOut: left[caller]}) {
			l.lose(caller, left[caller])
			continue
		}
		l.saidLeft = now
	}
}

func (l *Log) write(e event) {
	if !l.put(line{
		Time: stamp(e.at), Action: bounded(e.Action), Outcome: e.Outcome, Caller: bounded(e.Caller),
		Tenant: bounded(e.Tenant),
		From:   bounded(e.From), Over: e.Over, Subject: bounded(e.Subject), Checks: e.Count, Why: bounded(e.Why),
	}) {
		l.lost++
		l.lose(e.Caller, 1)
	}
}

// put writes a line, and reports whether it was written.
func (l *Log) put(one line) bool {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	err := e.Encode(one) // it ends the line
	if err == nil {
		_, err = l.out.Write(visible(text.Bytes()))
	}
	if err != nil {
		l.failed(err)
		return false
	}
	if l.unwritten.ends() {
		l.log.Info("audit lines are written again", "lost", l.lost)
		l.lost = 0
	}
	return true
}

// failed logs, once a minute, that lines cannot be written.
func (l *Log) failed(err error) {
	if l.unwritten.begins(l.now()) {
		l.log.Error("audit lines cannot be written; they are counted, and requests are answered all the same", "error", err)
	}
}

// looked logs, once a minute, that the file cannot be opened again, and that it was.
func (l *Log) looked(err error) {
	switch {
	case err != nil:
		if l.unopened.begins(l.now()) {
			l.log.Error("the audit file cannot be opened again; lines still go to the file that had its name before, and are "+
				"gone with it if that was removed", "error", err)
		}
	case l.unopened.ends():
		l.log.Info("the audit file was opened again; lines go to the file that has its name now")
	}
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z07:00") }

// bounded returns the beginning of a text.
func bounded(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "..."
}
