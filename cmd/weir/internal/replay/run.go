package replay

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"

	"github.com/weirlimit/weir/cmd/weir/internal/accesslog"
	"github.com/weirlimit/weir/internal/address"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// ErrMemory is wrapped by the error of [Run.Do] for a replay that takes more memory
// than allowed.
var ErrMemory = errors.New("the replay takes too much memory")

// Decider decides the requests of a replay: a node whose clock the replay sets.
type Decider interface {
	CheckInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error
	KeyName(r *limiter.Request, l *limiter.LimitDecision) string
}

// Run replays a trace once.
type Run struct {
	// RulesFile is the name of the rules. Rules lists them in order, with all counts
	// zero.
	RulesFile string
	Rules     []RuleResult
	// Decider decides. SetTime sets its clock before each request, and never sets it
	// back.
	Decider Decider
	SetTime func(limiter.Tick)
	// Keys resolves a request to its keys, so that they can be counted. It is called
	// for requests that were decided, and returns the name of the first rule that matches.
	Keys func(r *limiter.Request, d *limiter.Decision, c *arith.Charge) (rule string, err error)
	// Held returns the bytes that the decider holds. MaxBytes bounds that plus the
	// memory of the result. At the bound Do ends with an error that wraps [ErrMemory].
	// This is checked every few thousand requests.
	Held     func() int64
	MaxBytes int64
	// Attributes are those of all requests, since logs have none.
	Attributes map[string]string
	// Compare keeps each verdict, one byte for each request, for [Result.Since].
	Compare bool
	// Tick, if not nil, is called now and then with the number of requests done.
	Tick func(done int)
	// Seen, if not nil, is called with every request and its decision, or with the
	// reason for its refusal.
	Seen func(at limiter.Tick, r *limiter.Request, d *limiter.Decision, refusal error)
}

// Do decides every request of the trace in order. For a host by name, as logs have them, stands an address
// that is made of the name. A request with values that are too long, which a node refuses, is decided with
// shortened ones. A request that is refused all the same is counted as refused. Any other error of the
// decider ends the run.
func (run *Run) Do(ctx context.Context, trace *accesslog.Trace) (*Result, error) {
	out := &Result{RulesFile: run.RulesFile, Rules: run.Rules}
	if run.Compare {
		out.verdicts = make([]verdict, trace.Len())
	}
	out.startSeries(trace.Span())
	t := newTally(out)
	var (
		r = limiter.Request{Attributes: run.Attributes}
		d limiter.Decision
		c arith.Charge
	)
	name := func(l *limiter.LimitDecision) string { return run.Decider.KeyName(&r, l) }
	cursor := trace.Cursor()
	for i := 0; ; i++ {
		at, ok := cursor.Next(&r)
		if i%lookEvery == 0 || !ok {
			if out.Bytes = int64(len(out.verdicts)) + t.bytes; out.Bytes+run.Held() > run.MaxBytes {
				return nil, fmt.Errorf("%w: at request %d of %d", ErrMemory, i, trace.Len())
			}
		}
		if !ok {
			return out, nil
		}
		if run.Tick != nil && i%lookEvery == 0 {
			run.Tick(i)
		}
		run.SetTime(at)
		asked := r
		asked.IP = addressFor(r.IP)
		err := run.Decider.CheckInto(ctx, &asked, &d)
		if errors.Is(err, limiter.ErrInvalid) && shorten(&asked) {
			out.noteLong(err)
			err = run.Decider.CheckInto(ctx, &asked, &d)
		}
		switch {
		case err == nil:
			t.add(&d, name)
			rule, err := run.Keys(&asked, &d, &c)
			if err != nil {
				return nil, fmt.Errorf("finding the keys of request %d of %d: %w", i+1, trace.Len(), err)
			}
			t.addKeys(&c, rule)
			out.place(i, at, d.Allowed)
		case errors.Is(err, limiter.ErrInvalid):
			out.refuse(err)
		default:
			return nil, fmt.Errorf("deciding request %d of %d: %w", i+1, trace.Len(), err)
		}
		if run.Seen != nil {
			run.Seen(at, &r, &d, err)
		}
	}
}

// lookEvery is the number of requests between two reports of progress and checks of
// memory.
const lookEvery = 4096

func (r *Result) noteLong(err error) {
	if r.Shortened == 0 {
		r.FirstLong = err
	}
	r.Shortened++
}

// addressFor returns the address of a host: itself, or of a name one in a network of its own, among
// those that no one has (fd00::/8).
func addressFor(host string) string {
	if _, ok := address.Parse(host); ok || host == "" {
		return host
	}
	sum := sha256.Sum256([]byte(host))
	return netip.AddrFrom16([16]byte(append([]byte{0xfd}, sum[:15]...))).String()
}

func (r *Result) refuse(err error) {
	if r.Refused == 0 {
		r.FirstRefusal = err
	}
	r.Refused++
}

// place records the verdict on request i in the course and, if verdicts are kept, among
// them.
func (r *Result) place(i int, at limiter.Tick, ok bool) {
	v, slot := denied, r.slot(at)
	if ok {
		v = allowed
		slot.Allowed++
	} else {
		slot.Denied++
	}
	if r.verdicts != nil {
		r.verdicts[i] = v
	}
}
