package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// call is one call of a script: a decision or the part of one with keys in one slot, a
// refund, or a reset.
type call struct {
	kind   kind
	script *script
	keys   []string
	args   []any // the head, then the parameters of each limit
	ids    int   // of its keys, how many are ids, behind those of the limits
	adopts bool  // its script is the one that adopts
	holds  bool  // its script knows holds, and its keys are those that this takes
	uses   families
	params *params // of its first limit
	route  string  // a key, whose server the call is sent to
	part   int     // 1 + the index of the part of a charge that it asks about again, else 0
	at     int     // its index in the list that is waited for
	lane   *lane   // of a Cluster: to the server that it was sent to; nil: that is not known
	reply  []int64
	err    error

	// calendars are the arguments of calendar windows, by their index in args.
	calendars map[int]*params

	cmd *redis.IntSliceCmd
}

// kind is what a call is for.
type kind uint8

const (
	kindCheck   kind = iota // a check, a peek, or the part of one
	kindCancel              // it cancels reservations
	kindRemains             // it asks what remains after cancellations
	kindRefund              // it refunds for a caller
	kindReset
	kindAmend // it settles or extends a hold
)

// add appends the parameters of a limit. For calendar windows these have the bounds
// around the instant now.
func (c *call) add(p *params, rule *limiter.Rule, now limiter.Tick) {
	if p.chosen != nil && chosen(rule) {
		c.args = append(c.args, p.chosen)
		return
	}
	if p.limit != nil {
		if c.calendars == nil {
			c.calendars = make(map[int]*params)
		}
		c.calendars[len(c.args)] = p
	}
	c.args = append(c.args, p.argument(now))
}

// tag returns the part of its keys that chooses their slot.
func (c *call) tag() string { return c.route[:strings.IndexByte(c.route, '}')+1] }

// strayError reports that the server's clock is outside the bounds of calendar windows
// that the call was given. Nothing was decided.
type strayError struct{ now limiter.Tick }

func (e *strayError) Error() string {
	return "the server's clock is at " + e.now.Time().String() + ", outside the calendar windows that it was given"
}

// adopting repeats the call with the script that adopts, and the keys that it may write; or, if
// the key has holds, with the script that knows these.
func (c *call) adopting(s *composer) {
	held := errors.Is(c.err, errHeld)
	if held {
		c.params.held.Store(int64(s.clock.now() + holdsLinger))
	}
	switch {
	case c.adopts:
	case held && !c.holds:
		if script, err := s.scripts.decider(c.uses.with(withHolds)); err == nil {
			c.script = script
			c.holding()
			return
		}
		fallthrough
	default:
		if c.adopts, c.script = true, s.scripts.adopt; c.ids > 0 {
			c.script = s.scripts.adoptIDs
		}
		c.holding()
	}
}

// holdsLinger is for how long checks of a limit use the script that knows holds, after one has
// met some.
const holdsLinger = limiter.Minute

// holding adds the keys that scripts which know holds, or adopt, may read and write.
func (c *call) holding() {
	if c.holds {
		return
	}
	c.holds = true
	last := ""
	for _, k := range c.keys[:len(c.keys)-c.ids] {
		if tag := k[:strings.IndexByte(k, '}')+1]; tag != last {
			c.keys = append(c.keys, tag+holdsSuffix, tag+pastSuffix, tag+markSuffix, tag+leftSuffix)
			last = tag
		}
	}
}

// rebound gives a call that strayed the bounds around the server's clock.
func (c *call) rebound() (now limiter.Tick, strayed bool) {
	var stray *strayError
	if !errors.As(c.err, &stray) {
		return 0, false
	}
	for i, p := range c.calendars {
		c.args[i] = p.argument(stray.now)
	}
	return stray.now, true
}

// errChanged reports a counter that another limit made. Only the script that adopts can
// handle it.
var errChanged = errors.New("a limit changed")

// errHeld reports a counter whose key has holds. Only the scripts that know holds can handle it.
var errHeld = fmt.Errorf("%w: its key has holds", errChanged)

var errReply = errors.New("the script's answer is not valid")

// command returns the call with the hash of the script, or with its full text.
func (c *call) command(ctx context.Context, whole bool) *redis.IntSliceCmd {
	args := make([]any, 0, 3+len(c.keys)+len(c.args))
	if whole {
		args = append(args, "EVAL", c.script.text)
	} else {
		args = append(args, "EVALSHA", c.script.sha)
	}
	args = append(args, len(c.keys))
	for _, k := range c.keys {
		args = append(args, k)
	}
	c.cmd = redis.NewIntSliceCmd(ctx, append(args, c.args...)...)
	return c.cmd
}

func (c *call) take() {
	c.reply, c.err = c.cmd.Result()
	c.widen()
	switch {
	case c.err != nil:
	case len(c.reply) == 1 && c.reply[0] == -1:
		c.err = errChanged
	case len(c.reply) == 1 && c.reply[0] == -3:
		c.err = errHeld
	case len(c.reply) == 2 && c.reply[0] == -2:
		c.err = &strayError{limiter.Tick(c.reply[1])}
	case len(c.reply) == 0:
		c.err = errReply
	}
}

// widen joins the parts of remaining numbers that a script has returned apart, so that a reply has
// the same numbers for all limits.
func (c *call) widen() {
	limits := len(c.args) - 1
	whole := 1 + perLimit*limits + perID*c.ids
	if limits == 0 || len(c.reply) != whole+limits {
		return
	}
	for i, high := range c.reply[whole:] {
		c.reply[1+perLimit*i] += high << (32 + flagBits)
	}
	c.reply = c.reply[:whole]
}

// Modes of a decision.
const (
	modeCheck = iota
	modePeek
	modeShadowPeeks // limits in shadow are asked and not charged
	modeNever       // modePeek for a check with a hold, which may be over

	extends = 4 // added to a mode: the check extends the hold of its id
	modeDry = 8 // modePeek that writes nothing
)

// The flags of one limit in a script's answer.
const (
	flagAllowed = 1 << iota
	flagBlocked
	flagCharged
	flagBits = iota
)

// perLimit is how many numbers a script returns for each limit.
const perLimit = 3

// composer writes the calls of scripts for charges. It is safe for concurrent use.
type composer struct {
	prefix  string
	clock   *clock
	scripts *library
	spelled spellings
}

// decision returns the call that decides the keys [first, last) of a charge, with its id or
// without.
func (s *composer) decision(w when, mode int64, c *arith.Charge, id *arith.Idempotency, i, first, last int,
	name arith.KeyNamer) (*call, error) {
	var buf [512]byte
	extend := mode&extends != 0
	mode &^= extends
	out, used := &call{}, families(0)
	head := strconv.AppendInt(append(w.append(make([]byte, 0, 64)), ','), mode, 10)
	limits, plain := 0, mode == modeCheck && w == when{serverClock, 0} && id == nil
	around := s.clock.around(w)
	for n := first; n < last; n++ {
		limits += len(c.Key(n).Rule.Limits)
	}
	out.keys, out.args = make([]string, 0, limits), make([]any, 1, 1+limits)
	for n := first; n < last; n++ {
		k := c.Key(n)
		plain = plain && k.Cost == 1 && !k.Rule.Shadow
		tag := appendTag(buf[:0], s.prefix, k, i, n, name)
		for _, l := range k.Rule.Limits {
			p := s.spelled.of(l)
			if used = used.with(p.family); out.params == nil {
				out.params = p
			}
			out.keys = append(out.keys, string(append(append(tag, ':'), l.Name()...)))
			out.add(p, k.Rule, around)
			head = strconv.AppendUint(append(head, ','), k.Cost, 10)
			if k.Rule.Shadow {
				head = append(head, ",1"...)
			} else {
				head = append(head, ",0"...)
			}
		}
	}
	if id != nil {
		head = s.addIDs(head, out, id, c, extend, digit(last-first < c.Len()), i, first, last, name)
		used = used.with(withIDs)
	}
	if out.params != nil {
		if id != nil && id.Hold > 0 {
			s.expectHolds(c, first, last, around)
			if mode != modePeek && mode != modeDry || extend {
				head = s.addHold(head, c, id, extend, first, last)
			}
		}
		if s.expectsHolds(c, first, last, around) || used&(1<<familySlots) != 0 {
			used = used.with(withHolds)
			out.holding()
		}
	}
	out.uses = used
	if out.args[0] = ""; !plain { // see prelude.lua: the plain check has an empty argument
		out.args[0] = string(append(head, ']'))
	}
	if len(out.keys) > 0 {
		out.route = out.keys[0]
	}
	var err error
	out.script, err = s.scripts.decider(used)
	return out, err
}

// refund returns the call that takes back what was charged for key n, by the receipt's
// time and number, and forgets the id, unless that is nil. charged reports whether a limit of
// the charge was charged; first is the number of the key's first limit. It returns nil if
// there is nothing to do.
func (s *composer) refund(w when, r limiter.Receipt, charged func(limit int) bool, c *arith.Charge, id *forgotten, i, n,
	first int, name arith.KeyNamer) *call {
	of := arith.Fields(&r)
	var buf [512]byte
	k := c.Key(n)
	tag := appendTag(buf[:0], s.prefix, k, i, n, name)
	out := &call{kind: kindRefund, script: s.scripts.refund, args: make([]any, 1)}
	head, around := strconv.AppendInt(append(w.append(nil), ','), int64(of.Time), 10), s.clock.around(w)
	if head = append(head, ",0"...); of.Set == 0 { // the store's own, see undo
		head[len(head)-1] = '1'
	}
	any := false
	for j, l := range k.Rule.Limits {
		units := uint64(0)
		if charged(first + j) {
			units, any = k.Cost, true
		}
		out.keys = append(out.keys, string(append(append(tag, ':'), l.Name()...)))
		out.add(s.spelled.of(l), k.Rule, around)
		head = strconv.AppendUint(append(head, ','), units, 10)
	}
	if !any && id == nil || k.Cost == 0 {
		return nil
	}
	out.args[0] = string(append(head, ']'))
	out.keys = append(out.keys, string(append(tag, markSuffix...)))
	out.keys = append(out.keys, string(append(tag, leftSuffix...))) // apart: both are made in the memory of tag
	if of.Once != 0 {
		out.keys = append(out.keys, string(strconv.AppendUint(append(tag, onceSuffix...), of.Once, 36)))
	}
	if id != nil {
		out.keys = append(out.keys, string(appendID(tag, c.ID)))
		out.args = append(out.args, id.argument(k.Cost, c.ID.Hold > 0))
	}
	out.route = out.keys[0]
	return out
}

// reset returns the call that deletes the counters of a key.
func (s *composer) reset(w when, c *arith.Charge, n int, name arith.KeyNamer) *call {
	var buf [512]byte
	k := c.Key(n)
	tag := appendTag(buf[:0], s.prefix, k, 0, n, name)
	out := &call{kind: kindReset, script: s.scripts.resets}
	keeps := limiter.Tick(0)
	for _, l := range k.Rule.Limits {
		out.keys = append(out.keys, string(append(append(tag, ':'), l.Name()...)))
		keeps = max(keeps, s.spelled.of(l).keeps)
	}
	head := strconv.AppendInt(append(w.append(nil), ','), limiter.Millis(keeps.Duration()), 10)
	out.args = []any{string(append(head, ']'))}
	out.keys = append(out.keys, string(append(tag, markSuffix...)))
	out.route = out.keys[0]
	return out
}
