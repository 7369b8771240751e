package transport

import (
	"google.golang.org/grpc/codes"

	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// turn is the memory of one message of a stream and its reply. It is pooled, so a
// stream that waits for its next message holds none.
type turn struct {
	batch
	reply weirv1.DecisionColumns
	every weirv1.LimitColumns
	names dictionary

	// Indexes within a batch, ascending: peeks are the checks that peek, fulls those
	// that the protobuf library decoded, refused those that are invalid.
	peeks   []int
	fulls   []fullCheck
	refused []refusal
}

// dictionary numbers the limits and rules of one reply in the order of their first use.
type dictionary struct {
	last    counter // the limit used last, which is often used next
	lastAt  uint32
	limits  map[counter]uint32
	infos   []*weirv1.LimitInfo // includes those of earlier replies, for reuse
	used    int
	rules   map[string]uint32
	ordered []string // rules
}

// counter is a limit of a rule.
type counter struct {
	rule  *limiter.Rule
	limit *limiter.Limit
}

func (t *dictionary) clear() {
	t.last, t.used, t.ordered = counter{}, 0, t.ordered[:0]
	clear(t.limits)
	clear(t.rules)
}

// limit returns the index of a limit. It adds the limit if it is new.
func (t *dictionary) limit(l *limiter.LimitDecision) uint32 {
	c := counter{l.Rule, l.Limit}
	if c == t.last {
		return t.lastAt
	}
	at, known := t.limits[c]
	if !known {
		at = t.add(c)
	}
	t.last, t.lastAt = c, at
	return at
}

func (t *dictionary) add(c counter) uint32 {
	if t.limits == nil {
		t.limits = make(map[counter]uint32)
	}
	if t.used == len(t.infos) {
		t.infos = append(t.infos, new(weirv1.LimitInfo))
	}
	at, m := uint32(t.used), t.infos[t.used]
	t.used++
	t.limits[c] = at
	m.Rule, m.Name, m.Algorithm = c.rule.Name, c.limit.Name(), weirv1.Algorithm(c.limit.Algorithm())
	m.Limit, m.Capacity, m.WindowUs = c.limit.Limit(), c.limit.Capacity(), int64(limiter.Span(c.limit.Window()))
	m.Shadow = c.rule.Shadow
	return at
}

// rule returns 1 + the index of a rule's name, 0 for an empty name.
func (t *dictionary) rule(name string) uint32 {
	if name == "" {
		return 0
	}
	at, known := t.rules[name]
	if !known {
		if t.rules == nil {
			t.rules = make(map[string]uint32)
		}
		t.ordered = append(t.ordered, name)
		at = uint32(len(t.ordered))
		t.rules[name] = at
	}
	return at
}

// sized returns a slice of length n, which uses the memory of s if that is large
// enough. Its elements have old values.
func sized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// place returns the index in the message of the i-th request that was decided.
func (t *turn) place(i int) int {
	for _, r := range t.refused {
		if r.at > i {
			break
		}
		i++
	}
	return i
}

// refuse makes the reply an error for the whole message.
func (t *turn) refuse(err error) {
	t.reply.Reset()
	t.reply.Error = checkError(err)
}

// code returns the status code of the reply as a whole, for the observer.
func (t *turn) code() codes.Code {
	if e := t.reply.Error; e != nil {
		return codes.Code(e.Code)
	}
	return codes.OK
}

// fullRequest is a request that the protobuf library has decoded. Its message is nil if
// it has too many parts to be decoded.
type fullRequest struct {
	message *weirv1.CheckRequest
	parts   parts
}

// receipt reports whether the answer is to have a receipt.
func (f *fullRequest) receipt() bool { return f != nil && f.message.GetReceipt() }

// tenant returns whose counters are asked about, empty if the request does not say so.
func (f *fullRequest) tenant() string {
	if f == nil {
		return ""
	}
	return f.message.GetTenant()
}

// fullCheck is a check of a batch that the protobuf library has decoded.
type fullCheck struct {
	at int
	*fullRequest
}
