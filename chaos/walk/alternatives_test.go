package walk

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
)

// fall is a rule that draws on the first of several quotas that admits, and rules that draw on each of them.
type fall struct {
	name     string
	required []*lim
	quotas   []poured
}

// poured is one of the quotas.
type poured struct {
	name, key string
	skips     bool // a request without the part of the key is not counted by it, else in a counter of its own
	limits    []*lim
	upTo      int64 // percent; 0: all
}

func newFall(rng *rand.Rand, name string) *fall {
	f := &fall{name: name}
	limits := func(most int, blocks bool) (out []*lim) {
		for i := range most {
			l := newLimit(rng, fmt.Sprint("l", i), false)
			if l.reject = "none"; !blocks {
				l.block = 0
			}
			out = append(out, l)
		}
		return out
	}
	f.required = limits(rng.IntN(3), true)
	for i := range 2 + rng.IntN(3) {
		q := poured{name: fmt.Sprintf("%sq%d", name, i), key: pick(rng, "user", "ip", "rule")}
		q.skips = q.key == "ip" && rng.IntN(2) == 0
		if rng.IntN(3) == 0 {
			q.upTo = pick(rng, int64(1), 20, 50, 80, 99)
		}
		q.limits = limits(1+rng.IntN(2), q.upTo == 0)
		f.quotas = append(f.quotas, q)
	}
	return f
}

func list(limits []*lim) string {
	var out []string
	for _, l := range limits {
		out = append(out, l.String())
	}
	return "limits: [" + strings.Join(out, ", ") + "]"
}

func (f *fall) String() string {
	var b strings.Builder
	b.WriteString("version: 1\nquotas:\n")
	var draws []string
	for _, q := range f.quotas {
		key := "key: [" + q.key + "]"
		if q.skips {
			key = "keys: [[" + q.key + "]]"
		}
		fmt.Fprintf(&b, "- {name: %s, %s, %s}\n", q.name, key, list(q.limits))
		draw := q.name
		if q.upTo > 0 {
			draw = fmt.Sprintf("{name: %s, up_to: %d%%}", q.name, q.upTo)
		}
		draws = append(draws, draw)
	}
	own := ""
	if len(f.required) > 0 {
		own = ", key: [user], " + list(f.required)
	}
	fmt.Fprintf(&b, "rules:\n- {name: %s%s, quotas: [{any: [%s]}]}\n", f.name, own, strings.Join(draws, ", "))
	for _, q := range f.quotas {
		fmt.Fprintf(&b, "- {name: %s_only, quotas: [%s]}\n", q.name, q.name)
	}
	return b.String()
}

// pour is what a step asks: the alternatives of the rule, or one quota only.
type pour struct {
	f        *fall
	m        *model
	user, ip string
	cost     int64
	peek     bool
	only     int // a quota; -1: the rule with alternatives
}

func (p *pour) counters(rule, key string, limits []*lim, upTo int64) (out []*counter) {
	value := map[string]string{"user": p.user, "ip": p.ip}[key]
	for _, l := range limits {
		name := rule + "|" + value + "|" + l.name
		c := p.m.counters[name]
		if c == nil {
			c = &counter{}
			p.m.counters[name] = c
		}
		if c.lim = l; upTo > 0 {
			part := *l
			part.ceiling = max(1, part.capacity()*upTo/100)
			c.lim = &part
		}
		out = append(out, c)
	}
	return out
}

// ask returns the model's request for an alternative, and where its limits begin.
func (p *pour) ask(k int) (q *request, from int) {
	q = &request{keys: fmt.Sprint(p.f.name, k, p.user, p.ip), cost: p.cost, peek: p.peek}
	x := p.f.quotas[k]
	if p.only >= 0 {
		q.cs = p.counters(x.name, x.key, x.limits, 0)
		return q, 0
	}
	q.cs = p.counters(p.f.name, "user", p.f.required, 0)
	from = len(q.cs)
	q.cs = append(q.cs, p.counters(x.name, x.key, x.limits, x.upTo)...)
	return q, from
}

// able are the places of the quotas that can count the request.
func (p *pour) able() (out []int) {
	for k, q := range p.f.quotas {
		if !q.skips || p.ip != "" {
			out = append(out, k)
		}
	}
	return out
}

// decide is "the first quota that admits is charged, with the other keys of the check or not at all. If all deny, the
// answer is that of the one with the least retry_after", for n such requests of one batch: those that go on to the next
// quota do so after the others. A quota of whose key the request lacks a part is none of them.
func (p *pour) decide(n int) ([]answer, []*record) {
	best, charged := make([]answer, n), make([]*record, n)
	if p.only >= 0 {
		for i := range best {
			q, _ := p.ask(p.only)
			best[i], charged[i] = p.m.check(q)
		}
		return best, charged
	}
	final := make([]bool, n)
	for n, k := range p.able() {
		for i := range best {
			if final[i] {
				continue
			}
			q, from := p.ask(k)
			a, r := p.m.check(q)
			if n == 0 || a.allowed || !a.never && (best[i].never || a.retry < best[i].retry) {
				best[i], charged[i] = a, r
			}
			denies := false
			for j, l := range a.limits {
				denies = denies || j >= from && !l.allowed
				if j < from && !l.allowed && !best[i].never { // others of the batch may have charged what all alternatives have
					best[i].retry = max(best[i].retry, l.retry)
				}
			}
			final[i] = !denies // the others deny whichever quota is drawn on
		}
	}
	return best, charged
}

func (p *pour) request() weir.Request {
	r := weir.Request{Rule: p.f.name, User: p.user, IP: p.ip, Cost: weir.Units(p.cost)}
	if p.only >= 0 {
		r.Rule = p.f.quotas[p.only].name + "_only"
	}
	return r
}

// alternatives walks with rules that draw on the first quota that admits.
func (a *asked) alternatives(t *testing.T) {
	t.Helper()
	counts := map[string]int{}
	for seed := range uint64((steps(t) + perSeed - 1) / perSeed) {
		rng := rand.New(rand.NewPCG(seed, 4))
		a.walks++
		f := newFall(rng, fmt.Sprintf("f%d", a.walks))
		if err := a.set([]byte(f.String())); err != nil {
			t.Fatalf("seed %d: %v\n%v", seed, err, f)
		}
		start := (a.now.Load()/60e6 + 1) * 60e6
		a.now.Store(start)
		m := newModel(start)
		type done struct {
			p       pour
			receipt weir.Receipt
			charged *record
		}
		var charges []done
		was, retry := "", int64(0)
		for n := range perSeed {
			p := pour{f: f, m: m, user: pick(rng, "a", "b"), ip: pick(rng, "10.0.0.1", "10.0.0.2"), cost: 1 + rng.Int64N(6),
				only: -1}
			if rng.IntN(10) == 0 {
				p.cost = pick(rng, int64(0), 15, 40)
			}
			if rng.IntN(4) == 0 {
				p.ip = ""
			}
			if len(p.able()) == 0 {
				p.ip = "10.0.0.1"
			}
			by := pick(rng, 0, 0, 1, rng.Int64N(1e6), rng.Int64N(3e6), rng.Int64N(20e6), retry)
			if retry = 0; rng.IntN(200) == 0 {
				by = rng.Int64N(48 * 3600e6)
			}
			if was == "reset" { // one of each alternative, and two calls over a network are not of one microsecond
				by = max(by, int64(len(f.quotas)))
			}
			m.advance(by)
			a.now.Store(m.now)
			ctx, node := context.Background(), a.nodes[rng.IntN(len(a.nodes))]
			var err error
			var d weir.Decision
			switch k := rng.IntN(100); {
			case k < 15:
				able := p.able()
				p.only = able[rng.IntN(len(able))]
				fallthrough
			case k < 75:
				was = "check"
				d, err = node.Check(ctx, p.request())
				want, charged := p.decide(1)
				if err = compare(&d, err, &want[0]); charged[0] != nil {
					charges = append(charges, done{p, d.Receipt, charged[0]})
				}
				retry = max(0, want[0].retry)
				counts[fmt.Sprint("allowed ", want[0].allowed)]++
			case k < 80:
				was, p.peek = "peek", true
				d, err = node.Peek(ctx, p.request())
				want, _ := p.decide(1)
				err = compare(&d, err, &want[0])
			case k < 85:
				was, p.peek = "explain", true
				var e *weir.Explanation
				if e, err = node.Explain(ctx, p.request()); err == nil {
					want, _ := p.decide(1)
					err = compare(e.Decision, nil, &want[0])
				}
			case k < 90:
				was = "batch"
				var ds []weir.Decision
				size := 3
				if len(a.nodes) > 1 {
					size = 1 // several owners decide the checks of a batch that they share in no order
				}
				ds, err = node.CheckBatch(ctx, slices.Repeat([]weir.Request{p.request()}, size))
				want, charged := p.decide(size)
				for i := range ds {
					if err == nil {
						err = compare(&ds[i], nil, &want[i])
					}
					if charged[i] != nil {
						charges = append(charges, done{p, ds[i].Receipt, charged[i]})
					}
				}
			case k < 97 && len(charges) > 0:
				was = "refund"
				i := max(0, len(charges)-1-rng.IntN(4))
				c := charges[i]
				charges = append(charges[:i], charges[i+1:]...)
				m.refund(c.charged)
				err = node.Refund(ctx, c.p.request(), c.receipt)
				counts["refunds"]++
			default:
				was = "reset"
				for _, k := range p.able() {
					q, _ := p.ask(k)
					m.reset(q)
				}
				_, err = node.Reset(ctx, p.request())
			}
			if err != nil {
				t.Errorf("seed %d, step %d, %s of %+v at %d: %v\n%v", seed, n, was, p.request(), m.now-start, err, f)
				break
			}
		}
	}
	t.Logf("%v", counts)
}
