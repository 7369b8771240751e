package envoy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"net/url"
	"slices"
	"time"

	"github.com/weirlimit/weir/internal/envoy/config"
	"github.com/weirlimit/weir/limiter"
)

// maxKey bounds the text of a counter, in bytes; a key of the node has at most 256.
const maxKey = 200

// keyOf returns the text that names a counter: the domain and the entries, escaped, such as
// edge/remote_address=10.0.0.1. Of a longer one it has the begin and a hash of the whole.
func keyOf(domain string, entries []config.Entry) string {
	var k keyText
	k.escape(domain)
	for _, e := range entries {
		k.write("/")
		k.escape(e.Key)
		k.write("=")
		k.escape(e.Value)
	}
	if k.length <= maxKey {
		return string(k.begin)
	}
	sum := k.hash.Sum(nil)
	return string(k.begin[:maxKey-2*len(sum)]) + hex.EncodeToString(sum)
}

// keyText is the text of a counter as it is written: its begin, and the hash of the whole. So a long
// text is never in memory.
type keyText struct {
	begin  []byte // at most maxKey
	length int
	hash   hash.Hash // nil until the text is longer than maxKey
}

// escapeAtOnce is how many bytes of a string are escaped at a time.
const escapeAtOnce = 4 << 10

// escape writes a string of any bytes as [url.QueryEscape] has it.
func (k *keyText) escape(text string) {
	for len(text) > escapeAtOnce {
		k.write(url.QueryEscape(text[:escapeAtOnce]))
		text = text[escapeAtOnce:]
	}
	k.write(url.QueryEscape(text))
}

func (k *keyText) write(text string) {
	if k.length += len(text); k.length > maxKey {
		if k.hash == nil {
			k.hash = sha256.New()
			k.hash.Write(k.begin)
		}
		k.hash.Write([]byte(text))
	}
	k.begin = append(k.begin, text[:min(len(text), maxKey-len(k.begin))]...)
}

// request returns the request that charges items, which have different keys and one tenant.
// Each key is an attribute with a name of its own, so that the order of the items has no
// influence on it.
func request(items ...*item) limiter.Request {
	r := limiter.Request{Attributes: make(map[string]string, len(items)), Tenant: items[0].by.session.Tenant(),
		Caller: items[0].by.session.Name(), ID: items[0].id}
	for _, it := range items {
		sum := sha256.Sum256([]byte(it.key))
		name := hex.EncodeToString(sum[:16])
		r.Attributes[name] = it.key
		r.Limits = append(r.Limits, it.counter)
		r.LimitKeys = append(r.LimitKeys, []string{"attr:" + name})
	}
	return r
}

// charger charges the items of a request as the mode has it.
type charger struct {
	mode         Mode
	quotas       bool // every limit is one
	stopWhenOver bool // see [Options]
}

// decide asks, and calls f with each item and its decision.
func (c charger) decide(ctx context.Context, b *batch, f func(*item, *limiter.Decision)) error {
	if len(b.requests) == 0 {
		return nil
	}
	ds := make([]limiter.Decision, len(b.requests))
	if err := b.items[0].by.session.Decide(ctx, b.requests, ds, b.peeks); err != nil {
		if some, ok := errors.AsType[*limiter.BatchError](err); ok {
			return some.Errs[0]
		}
		return err
	}
	for i := range ds {
		f(b.items[i], &ds[i])
	}
	return nil
}

// uncounted fills in an item without a counter. It reports whether the item is one.
func (it *item) uncounted() bool {
	if it.counter != nil {
		return false
	}
	// A limit of 0 admits nothing. The original lets those that only look pass until something was counted.
	it.over = it.limit != nil && !it.limit.Unlimited && !it.back
	return true
}

// each charges every descriptor by itself: what is denied is charged too, and one
// descriptor's denial does not concern the others.
func (c charger) each(ctx context.Context, items []item) error {
	stop, err := c.stops(ctx, items)
	if err != nil {
		return err
	}
	var b batch
	var credits []*item
	for i := range items {
		switch it := &items[i]; {
		case it.uncounted(), it.held != notHeld:
		case it.back:
			credits = append(credits, it)
		case stop && !it.over && it.hits > 0:
			// Another limit denies the request, and this one stays as it is.
		default:
			it.over = false
			b.charge(it)
		}
	}
	if err := c.decide(ctx, &b, (*item).told); err != nil {
		return err
	}
	if err := c.credit(ctx, credits); err != nil {
		return err
	}
	return c.looks(ctx, items, &b)
}

// stops reports whether only the items that are over their limits are charged, as the request would
// be denied. It fills in all items.
func (c charger) stops(ctx context.Context, items []item) (stop bool, err error) {
	if !c.stopWhenOver {
		return false, nil
	}
	var b batch
	for i := range items {
		if it := &items[i]; !it.uncounted() && !it.back && it.held == notHeld {
			b.ask(it, it.hits, true)
		}
	}
	if err = c.decide(ctx, &b, (*item).told); err == nil {
		err = c.looks(ctx, items, new(batch))
	}
	return err == nil && c.denies(items), err
}

// credit takes the hits of items back, and then asks what remains. A limit is not over where
// hits are taken back.
func (c charger) credit(ctx context.Context, items []*item) error {
	for _, it := range items {
		if it.hits == 0 {
			continue
		}
		r := request(it)
		r.Cost = limiter.Units(int64(it.hits))
		if err := it.by.session.Refund(ctx, r, limiter.Credit()); err != nil {
			return err
		}
	}
	if err := c.peek(ctx, items); err != nil {
		return err
	}
	for _, it := range items {
		it.over = false
	}
	return nil
}

// remains returns what remains of a limit, as far as the protocol can say it.
func remains(l *limiter.LimitDecision) uint32 { return uint32(min(l.Remaining, limiter.NarrowUnits)) }

// told takes an answer over. A second one about the same item adds to the first.
func (it *item) told(d *limiter.Decision) {
	l := d.Limit(0)
	if it.measuring {
		it.measuring, it.left = false, remains(l)
		return
	}
	it.over = it.over || !l.Allowed
	it.remaining, it.reset = remains(l), l.ResetAfter
	if it.over {
		it.remaining = 0
	}
	if d.Allowed {
		it.charged = d.Receipt
	}
}

// looks decides the descriptors that only look. They are over their limit if more was
// charged than it admits; a peek tells only whether one more would be. b is what was charged with them: what comes
// after a look in the request counts after it.
func (c charger) looks(ctx context.Context, items []item, b *batch) error {
	for i := range items {
		it := &items[i]
		if it.counter == nil || it.back || it.held != notHeld || it.hits > 0 || !it.over || c.mode == Atomic ||
			it.counter.Algorithm() != limiter.FixedWindow {
			continue
		}
		r := request(it)
		r.ID = "" // it charges nothing
		e, err := it.by.session.Explain(ctx, r)
		if err != nil {
			return err
		}
		it.over = false
		most := uint64(it.limit.Requests) + b.after(it)
		for _, l := range e.Limits {
			for _, w := range l.Counts {
				it.over = it.over || w.Count > most
			}
		}
	}
	return nil
}

// atomic charges all descriptors or none: ordinary limits together, whatever their owners,
// and quotas and shadows if those allow.
func (c charger) atomic(ctx context.Context, items []item) error {
	var ordinary, credits []*item
	var quotas, shadows, looks batch
	refused := false
	for i := range items {
		it := &items[i]
		switch {
		case it.uncounted(), it.held != notHeld:
			refused = refused || it.over && !it.shadow() && !c.quota(it)
		case it.back:
			credits = append(credits, it)
		case it.hits == 0:
			looks.add(it, 0)
		case it.limit.Shadow:
			shadows.add(it, it.hits)
		case c.quota(it):
			quotas.add(it, it.hits)
		default:
			ordinary = append(ordinary, it)
		}
	}
	if err := c.decide(ctx, &looks, (*item).told); err != nil {
		return err
	}
	for _, it := range looks.items {
		refused = refused || it.over && !it.shadow() && !c.quota(it)
	}
	if refused {
		for _, it := range ordinary {
			looks.add(it, 0)
		}
		looks = merge(looks, quotas, shadows)
		return errors.Join(c.decide(ctx, &looks, (*item).told), c.uncredited(ctx, credits))
	}
	if err := c.decide(ctx, &quotas, (*item).told); err != nil {
		return err
	}
	denied := c.overQuota(items)
	var err error
	if denied {
		err = c.peek(ctx, ordinary)
	} else {
		denied, err = c.together(ctx, ordinary)
	}
	if err != nil || denied {
		return errors.Join(err, c.back(ctx, quotas.items), c.peek(ctx, shadows.items), c.uncredited(ctx, credits))
	}
	return errors.Join(c.decide(ctx, &shadows, (*item).told), c.credit(ctx, credits))
}

// uncredited fills in items that are not over their limits whatever was charged: their hits are
// not taken back, as the request is denied, or were settled.
func (c charger) uncredited(ctx context.Context, items []*item) error {
	err := c.peek(ctx, items)
	for _, it := range items {
		it.over = false
	}
	return err
}

// peek asks about items without charging them.
func (c charger) peek(ctx context.Context, items []*item) error {
	var b batch
	for _, it := range items {
		b.add(it, 0)
	}
	return c.decide(ctx, &b, (*item).told)
}

// maxTogether is the most keys of one check.
const maxTogether = 16

// together charges items all or nothing, and reports whether they were denied.
func (c charger) together(ctx context.Context, items []*item) (denied bool, err error) {
	if len(items) == 0 {
		return false, nil
	}
	keys := make(map[string]bool, len(items))
	alike := true
	for _, it := range items {
		alike = alike && !keys[it.key] && it.hits == items[0].hits
		keys[it.key] = true
	}
	if !alike || len(items) > maxTogether {
		return c.inTurn(ctx, items)
	}
	r := request(items...)
	r.Cost = limiter.Units(int64(items[0].hits))
	var d limiter.Decision
	if err := items[0].by.session.Check(ctx, &r, &d, false); err != nil {
		return false, err
	}
	known := slices.Clone(items)
	for i := range d.Len() {
		l := d.Limit(i)
		it := items[l.Key]
		it.over, it.remaining, it.reset, known[l.Key] = !l.Allowed, remains(l), l.ResetAfter, nil
	}
	// A denial tells nothing of the keys for which the id is known: an earlier call has charged these.
	known = slices.DeleteFunc(known, func(it *item) bool { return it == nil })
	return !d.Allowed, c.uncredited(ctx, known)
}

// inTurn charges items one after the other, and takes back what was charged if one is
// denied. It is for those that one check cannot hold: with different hits, two of one key,
// or too many. Meanwhile others may be denied because of what is taken back.
func (c charger) inTurn(ctx context.Context, items []*item) (denied bool, err error) {
	for i, it := range items {
		var b batch
		b.add(it, it.hits)
		if err := c.decide(ctx, &b, (*item).told); err != nil {
			return false, errors.Join(err, c.back(ctx, items[:i]))
		}
		if it.over {
			return true, errors.Join(c.back(ctx, items[:i]), c.peek(ctx, items[i+1:]))
		}
	}
	return false, nil
}

// back takes back what was charged for items that were allowed, and asks what they have then: a
// bucket may get less back than it was charged, and two items may be of one counter. It takes back
// also if the caller has gone, within a second.
func (c charger) back(ctx context.Context, items []*item) error {
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	var errs []error
	var taken []*item
	for _, it := range items {
		if it.over || it.charged == (limiter.Receipt{}) {
			continue
		}
		r := request(it)
		r.Cost = limiter.Units(int64(it.hits))
		if err := it.by.session.Refund(within, r, it.charged); err != nil {
			errs = append(errs, err)
		}
		it.charged, taken = limiter.Receipt{}, append(taken, it)
	}
	return errors.Join(append(errs, c.uncredited(ctx, taken))...)
}

// shadow reports whether an item's limit never denies.
func (it *item) shadow() bool { return it.limit != nil && it.limit.Shadow }

// quota reports whether an item's limit denies only together with all other quotas.
func (c charger) quota(it *item) bool {
	return it.limit != nil && (c.quotas || it.limit.Quota)
}

// denies reports whether decided items deny their request.
func (c charger) denies(items []item) bool {
	return c.overQuota(items) || slices.ContainsFunc(items, func(it item) bool {
		return it.over && !it.shadow() && !c.quota(&it)
	})
}

// overQuota reports whether there are quotas and all of them are over. One in shadow never is.
func (c charger) overQuota(items []item) bool {
	quotas := 0
	for i := range items {
		if it := &items[i]; c.quota(it) && !it.limit.Unlimited && !it.back {
			if quotas++; !it.over || it.limit.Shadow {
				return false
			}
		}
	}
	return quotas > 0
}
