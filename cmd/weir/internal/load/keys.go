package load

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	mrand "math/rand/v2"
	"strconv"

	"github.com/weirlimit/weir/limiter"
)

// limit is how many checks of a limited key are allowed in a window, which begins
// with the key's first check and outlasts every run.
const limit = 100

// The rules that decide, and the paths that they match.
const (
	openRule, openPath       = "bench-load-open", "/bench/load/open"
	limitedRule, limitedPath = "bench-load-limited", "/bench/load/limited"
)

// Rules returns the rules that nodes need, as elements of the list of rules in a
// rules file.
func Rules() string {
	rule := func(name, path string, limit int64) string {
		return fmt.Sprintf("  - name: %s\n    match: {path: \"^%s$\"}\n    limits:\n"+
			"      - {name: l1, limit: %d, window: 1h, algorithm: fixed_window, align: first_hit}\n", name, path, limit)
	}
	return rule(openRule, openPath, limiter.MaxUnits) + rule(limitedRule, limitedPath, limit)
}

// keys are what a point asks for. No other point has the same ones, so that nodes
// have not counted them yet.
type keys struct {
	users   []string
	limited []bool
}

func newKeys(c *Config) (*keys, error) {
	var run [6]byte
	if _, err := rand.Read(run[:]); err != nil {
		return nil, fmt.Errorf("no name for the keys can be drawn: %w", err)
	}
	k := &keys{users: make([]string, c.Keys), limited: make([]bool, c.Keys)}
	for i := range k.users {
		k.users[i] = hex.EncodeToString(run[:]) + "-" + strconv.Itoa(i)
		// 37 has no divisor in common with 100, so that of any 100 keys in a row as
		// many are limited as should be.
		k.limited[i] = i*37%100 < c.Limited
	}
	return k, nil
}

// path returns the path that is asked for with key n.
func (k *keys) path(n uint32) string {
	if k.limited[n] {
		return limitedPath
	}
	return openPath
}

// rule returns the rule that should decide key n.
func (k *keys) rule(n uint32) string {
	if k.limited[n] {
		return limitedRule
	}
	return openRule
}

// request makes r the check of key n.
func (k *keys) request(r *limiter.Request, n uint32) { r.Path, r.User = k.path(n), k.users[n] }

// drawer draws keys for one goroutine. Of one seed it draws the same in every run.
type drawer func() uint32

func newDrawer(c *Config, seed uint64) drawer {
	source := mrand.New(mrand.NewPCG(seed, 0x77656972))
	if c.Dist == Zipf && c.Keys > 1 {
		z := mrand.NewZipf(source, zipfExponent, 1, uint64(c.Keys-1))
		return func() uint32 { return uint32(z.Uint64()) }
	}
	return func() uint32 { return source.Uint32N(uint32(c.Keys)) }
}

// zipfExponent must be above 1.
const zipfExponent = 1.1
