package gossip

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/weirlimit/weir/internal/waiting"
)

const (
	// rejoinEvery is the interval at which the addresses to join by, and those of dead
	// members, are asked. A split of the network does not heal by itself.
	rejoinEvery = 5 * time.Second
	// eager is the interval while no node has answered yet, for the first eagerRounds
	// rounds; patient is the interval after those.
	eager, patient = 500 * time.Millisecond, 2 * time.Second
	eagerRounds    = 20
	// maxTargets bounds the addresses asked in one round. If there are more, each round
	// asks a random choice.
	maxTargets = 32
	// maxPerName bounds the addresses that one name stands for.
	maxPerName = 2 * MaxMembers
	// atOnce is how many addresses are asked at the same time.
	atOnce = 8
	// openFor is how long Open waits for the first round.
	openFor = 2 * time.Second
)

// joiner asks the addresses to join by, and those of dead members, as long as a node lives. It is safe for concurrent
// use.
type joiner struct {
	g *Gossip
	// mute is what [Gossip.Mute] returns; nil for nil. mu does not guard it, because
	// callers hold locks.
	mute atomic.Pointer[error]

	mu       sync.Mutex
	mirrors  int                 // exchanges of views with a node that knows only this node
	answered bool                // another node has been in contact
	silence  error               // error of the address that was silent last
	seeds    []string            // as configured
	resolved map[string][]string // each seed's addresses when it was last resolved
	own      map[string]bool     // addresses that mean this node
}

func (j *joiner) init(seeds []string, addr string, own []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seeds, j.resolved, j.own = seeds, map[string][]string{}, map[string]bool{addr: true}
	for _, a := range own {
		j.own[a] = true
	}
}

// addrs returns the distinct addresses that the seeds resolve to, except this node's
// own.
func (j *joiner) addrs() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []string
	for _, list := range j.resolved {
		for _, a := range list {
			if !j.own[a] {
				out = append(out, a)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// count returns the number of distinct addresses, this node's own included. A name that
// has not been resolved yet counts as one more, because a node may be there.
func (j *joiner) count() int {
	n := len(j.addrs()) + 1
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, seed := range j.seeds {
		if len(j.resolved[seed]) == 0 {
			n++
		}
	}
	return n
}

func (j *joiner) isOwn(addr string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.own[addr]
}

// outcome is the result of asking some addresses.
type outcome struct {
	joined       int
	refusals     []error // lasting ones: another attempt will not help
	waiting      bool    // another run has the name, and may be gone soon
	unheard      bool    // a node answered that does not count as alive here yet
	mute         bool    // something accepted the connection, and did not answer
	nameConflict error   // a live node that was started before this one has its name
}

// begin asks the addresses to join by once, and starts to ask them as long as the
// node lives. It returns the refusals if no node lets this one in. If two nodes of one
// name were let in by others, only the one that was started later is refused, so that
// not both end.
func (j *joiner) begin(ctx context.Context) error {
	run, cancel := context.WithCancel(context.Background())
	stop := j.g.cancel
	j.g.cancel = func() { cancel(); stop() }
	first := make(chan outcome, 1)
	j.g.wg.Go(func() { j.loop(run, first) })
	wait := time.NewTimer(openFor)
	defer wait.Stop()
	select {
	case o := <-first:
		if o.joined > 0 && o.nameConflict != nil {
			return fmt.Errorf("gossip: not all nodes let this one in: %w", o.nameConflict)
		}
		if o.joined == 0 && len(o.refusals) > 0 && !j.met() {
			return fmt.Errorf("gossip: no node lets this one in: %w", errors.Join(o.refusals...))
		}
		return nil
	case <-wait.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// loop asks the addresses to join by, and those of dead members, until ctx ends.
func (j *joiner) loop(ctx context.Context, first chan<- outcome) {
	o := j.round(ctx)
	first <- o
	unheard := 0 // such rounds in a row
	for n := 1; ; n++ {
		if unheard++; !o.unheard {
			unheard = 0
		}
		if waiting.Sleep(ctx, j.pause(o, n, unheard)) != nil {
			return
		}
		j.g.mu.Lock()
		over := j.g.leaving
		j.g.roster.expire(time.Now(), j.g.cfg.vouched)
		j.g.mu.Unlock()
		j.g.claims.judge(time.Now())
		if over {
			return
		}
		o = j.round(ctx)
		j.g.namesakes.check()
	}
}

// pause returns the wait after the n-th round. unheard is the number of rounds in a row
// in which a node answered that does not count as alive here.
func (j *joiner) pause(o outcome, n, unheard int) time.Duration {
	switch {
	case unheard > 0 && unheard <= 4: // not for ever, as it may be a member's second address
		return eager
	case o.waiting:
		return 2 * eager
	case j.met() || len(j.g.cfg.Join) == 0:
		// Random, so that nodes that were started together do not ask together.
		return rejoinEvery - time.Duration(rand.Int64N(int64(rejoinEvery/10)))
	case n < eagerRounds:
		return eager
	default:
		return patient
	}
}

// round asks all addresses that should be asked, once.
func (j *joiner) round(ctx context.Context) outcome {
	each(atOnce, j.g.cfg.Join, func(seed string) {
		defer j.g.cfg.Panicked.catch()
		j.resolve(ctx, seed)
	})
	var mu sync.Mutex
	var all outcome
	each(atOnce, j.targets(), func(addr string) {
		defer j.g.cfg.Panicked.catch()
		if ctx.Err() != nil {
			return
		}
		o := j.ask(addr)
		mu.Lock()
		defer mu.Unlock()
		all.joined += o.joined
		all.refusals = append(all.refusals, o.refusals...)
		all.waiting = all.waiting || o.waiting
		all.unheard = all.unheard || o.unheard
		all.mute = all.mute || o.mute
		all.nameConflict = cmp.Or(all.nameConflict, o.nameConflict)
	})
	if !all.mute {
		j.mute.Store(nil)
	}
	return all
}

// resolve looks up the addresses of one seed. If that fails, the earlier addresses
// stay.
func (j *joiner) resolve(ctx context.Context, seed string) {
	host, port, err := splitAddr(seed)
	if err != nil {
		return // Open has refused it
	}
	addrs, err := j.g.cfg.resolve(ctx, host)
	if err != nil {
		if ctx.Err() == nil {
			j.g.log.write(slog.LevelWarn, "resolve "+seed, "an address to join by cannot be resolved, and is tried again",
				slog.String("address", seed), slog.Any("error", err))
		}
		return
	}
	addrs = addrs[:min(len(addrs), maxPerName)]
	list := make([]string, len(addrs))
	for i, a := range addrs {
		list[i] = netip.AddrPortFrom(a, port).String()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.resolved[seed] = list
}

// targets returns the addresses to ask: those to join by and those of dead members,
// except where a live member is.
func (j *joiner) targets() []string {
	out := j.addrs()
	j.g.mu.Lock()
	for _, r := range j.g.roster.gone {
		if r.fate == dead && !slices.Contains(out, r.GossipAddr) {
			out = append(out, r.GossipAddr)
		}
	}
	there := make(map[string]bool, len(j.g.roster.live))
	for _, a := range j.g.roster.live {
		there[a.GossipAddr] = true
	}
	j.g.mu.Unlock()
	out = slices.DeleteFunc(out, func(a string) bool { return there[a] || j.isOwn(a) })
	rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out[:min(len(out), maxTargets)]
}

// ask exchanges views with the node at an address.
func (j *joiner) ask(addr string) outcome {
	mirrors := j.mirrored()
	if _, err := j.g.ml.Join([]string{addr}); err != nil {
		return j.failed(addr, err)
	}
	mirrored := j.mirrored() > mirrors
	j.g.mu.Lock()
	alone, there := len(j.g.roster.live) == 0, false
	for _, a := range j.g.roster.live {
		there = there || a.GossipAddr == addr
	}
	j.g.mu.Unlock()
	if alone && mirrored {
		// The node that answered knows only this node: it is this node.
		j.mu.Lock()
		j.own[addr] = true
		j.mu.Unlock()
		return outcome{}
	}
	// A node that answered and does not count as alive here was taken for dead. It has
	// learned that now and refutes it; the next exchange adds it.
	return outcome{joined: 1, unheard: !there}
}

// failed finds out why an exchange failed, and logs it.
func (j *joiner) failed(addr string, err error) outcome {
	text := err.Error()
	r := j.g.refusals.in(text)
	say := func(level slog.Level, what string, err error) {
		j.g.log.write(level, "join "+addr+what, what, slog.String("address", addr), slog.Any("error", err))
	}
	final := func(kind error, what string) outcome {
		err := fmt.Errorf("%s: %s: %w", addr, what, kind)
		j.g.refusals.log(func() { say(slog.LevelError, "cannot join", err) })
		return outcome{refusals: []error{err}}
	}
	switch {
	case r != nil && errors.Is(r, ErrNameTaken):
		if !j.alive(r.addr) {
			say(slog.LevelInfo, "waiting until this node's former run is known to be gone", r)
			return outcome{waiting: true}
		}
		err := fmt.Errorf("%s: %w; it is alive: give one of them another name", addr, r)
		j.g.refusals.log(func() { say(slog.LevelError, "cannot join", err) })
		o := outcome{refusals: []error{err}}
		if r.older {
			o.nameConflict = err
		}
		return o
	case r != nil:
		err := fmt.Errorf("%s: %w", addr, r)
		j.g.refusals.log(func() { say(slog.LevelError, "cannot join", err) })
		return outcome{refusals: []error{err}}
	case strings.Contains(text, "could decrypt the message"):
		return final(ErrOtherKey, "it answers in another gossip key than this node's")
	case strings.Contains(text, "encryption is not configured"):
		return final(ErrOtherKey, "it answers encrypted, and this node has no gossip key")
	case strings.Contains(text, "remote state is not encrypted"):
		return final(ErrOtherKey, "it answers without encryption, so it has no gossip key or is no gossip port")
	case isSilence(text) || j.knows(addr):
		say(slog.LevelDebug, "no member answers at this address yet", err)
		j.keepSilence(errors.New(plain(text)))
	case isReset(text):
		// A node's peer port does this, but so may the gossip port of a node that is
		// starting or ending.
		err := fmt.Errorf("%s: something answers there that ended the connection: is it a gossip address (--gossip-addr of "+
			"the others)? (%s)", addr, plain(text))
		j.keepMute(text)
		say(slog.LevelWarn, "cannot join, and tries again", err)
		return outcome{mute: true}
	default:
		err := fmt.Errorf("%s: %w: what listens there answers not as the gossip port of a Weir node (%s)", addr, ErrForeign,
			plain(text))
		mute := isMute(text)
		if mute {
			j.keepMute(text)
		}
		say(slog.LevelWarn, "cannot join", err)
		return outcome{mute: mute}
	}
	return outcome{}
}

// plain returns the text of memberlist's error about one address, in one line.
func plain(text string) string {
	if _, after, ok := strings.Cut(text, "* Failed to join "); ok {
		text = after
	} else if _, after, ok := strings.Cut(text, "* failed to join "); ok {
		text = after
	}
	return clip(strings.Join(strings.Fields(text), " "))
}

// isSilence reports whether an exchange failed because nothing answers at the address,
// rather than because of the answer.
func isSilence(text string) bool {
	return slices.ContainsFunc([]string{"dial tcp", "connection refused", "use of closed"}, func(s string) bool {
		return strings.Contains(text, s)
	})
}

// alive reports whether a node with this node's name answers at an address. The two
// refuse each other, so neither learns anything from the exchange; the answer to a probe
// could carry members along.
func (j *joiner) alive(addr string) bool {
	_, err := j.g.ml.Join([]string{addr})
	if err == nil {
		return false // another node is there by now
	}
	r := j.g.refusals.in(err.Error())
	return r != nil && errors.Is(r, ErrNameTaken) && r.addr == addr && !r.moved
}

// knows reports whether a member that is gone was at an address.
func (j *joiner) knows(addr string) bool {
	j.g.mu.Lock()
	defer j.g.mu.Unlock()
	for _, r := range j.g.roster.gone {
		if r.GossipAddr == addr {
			return true
		}
	}
	return false
}

// mirror counts exchanges of views with a node that knows only this node. An empty view
// comes from a node that is just starting and does not know itself yet.
func (j *joiner) mirror(nodes []*memberlist.Node) {
	if len(nodes) == 0 {
		return
	}
	for _, n := range nodes {
		if a, err := decode(n.Meta); err != nil || a.Instance != j.g.cfg.Instance {
			return
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mirrors++
}

func (j *joiner) mirrored() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mirrors
}

// meet notes that another node has been in contact.
func (j *joiner) meet() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.answered = true
}

// met reports whether one has.
func (j *joiner) met() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.answered
}

func (j *joiner) keepSilence(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.silence = err
}
