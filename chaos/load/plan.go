//go:build linux

package load

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"

	"github.com/weirlimit/weir/chaos/history"
)

const (
	// keysPerRule are asked about at a time.
	keysPerRule = 3
	// enough denials retire a key whose limit never recovers; another takes its
	// place.
	enough = 12
	// again is the part of the checks of such rules that ask about one of the
	// latest retired keys: what is used up must stay so.
	again       = 0.15
	mostRetired = 60 // of each rule
)

// plan says what is asked about.
type plan struct {
	rules  []history.Rule
	drawn  []history.Rule // which clients draw from: pairs that never recover, and what is lent, have their own
	prefix string

	mu     sync.Mutex
	made   int
	keys   map[string][]string // by rule
	denied map[string]int      // by key
	used   map[string][]string // retired keys, by rule
}

// target is one check to ask for.
type target struct {
	rule     string
	keys     []string
	question question
}

func newPlan(rules []history.Rule, prefix string) *plan {
	p := &plan{rules: rules, prefix: prefix, keys: make(map[string][]string), denied: make(map[string]int),
		used: make(map[string][]string)}
	for _, r := range rules {
		if r.Once && r.Several || r.Lent {
			continue
		}
		p.drawn = append(p.drawn, r)
		for range keysPerRule {
			p.keys[r.Name] = append(p.keys[r.Name], p.another())
		}
	}
	return p
}

// pathsOf returns the paths of a rule.
func (p *plan) pathsOf(rule string) []string {
	for i := range p.rules {
		if p.rules[i].Name == rule {
			return p.rules[i].Paths()
		}
	}
	return []string{"/" + rule}
}

// another makes a key.
func (p *plan) another() string {
	p.made++
	return fmt.Sprintf("%s-%d", p.prefix, p.made)
}

// pick chooses a check.
func (p *plan) pick(rng *rand.Rand) target {
	r := &p.drawn[rng.IntN(len(p.drawn))]
	p.mu.Lock()
	defer p.mu.Unlock()
	key := p.keys[r.Name][rng.IntN(keysPerRule)]
	if used := p.used[r.Name]; len(used) > 0 && rng.Float64() < again {
		key = used[rng.IntN(len(used))]
	}
	paths := r.Paths()
	t := target{rule: r.Name, keys: []string{key}, question: question{Path: paths[rng.IntN(len(paths))], User: key}}
	if r.Several {
		t.question.IP = address(p.keys[r.Name][rng.IntN(keysPerRule)])
		t.keys = []string{"ip " + t.question.IP, "user " + key}
	}
	return t
}

// address makes an address of a key, in a network of 64 bits of its own, for what counts by such networks.
func address(key string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key)) // it does not fail
	return fmt.Sprintf("2001:db8:%x:%x::1", h.Sum32()>>16, h.Sum32()&0xffff)
}

// answered retires keys that are used up.
func (p *plan) answered(o *history.Op) {
	if o.Outcome != history.Denied || !o.Counted() {
		return
	}
	for i := range p.rules {
		if r := &p.rules[i]; r.Name == o.Rule && r.Once {
			p.mu.Lock()
			p.denied[o.Keys[0]]++
			for j, k := range p.keys[r.Name] {
				if k == o.Keys[0] && p.denied[k] >= enough {
					p.keys[r.Name][j] = p.another()
					if p.used[r.Name] = append(p.used[r.Name], k); len(p.used[r.Name]) > mostRetired {
						p.used[r.Name] = p.used[r.Name][1:]
					}
				}
			}
			p.mu.Unlock()
		}
	}
}
