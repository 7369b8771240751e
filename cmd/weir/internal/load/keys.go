package load

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	mrand "math/rand/v2"
	"strconv"
	"strings"

	"github.com/weirlimit/weir/limiter"
)

// limit is how many checks of a limited key are allowed in a window.
const limit = 100

// The rules that decide, and the paths that they match: of ten rules with one regular
// expression each, the ninth and the tenth.
const (
	openRule, openPath       = "bench-load-open", "/api/resource/"
	limitedRule, limitedPath = "bench-load-limited", "/api/metered_/"
	others                   = 8
)

// window is the window of the limits. The algorithm is the default one, whose windows
// begin at the same instants for all keys, so one may end during a run. The first unit
// of a key is then available again after 1/limit of the next window, which is 21 min 36
// s. That must be longer than a point can take, from its first check to the last check
// of its limits. A table drops the keys after two windows at most.
const window = "36h"

// usersPerPath is the number of keys with the same path, if there are enough keys.
const usersPerPath = 100

// Rules returns the rules that nodes need, as elements of the list in a rules file.
func Rules() string {
	var out strings.Builder
	rule := func(name, path string, limit int64) {
		fmt.Fprintf(&out, "  - name: %s\n    match: {path: \"%s\"}\n    key: [path, user]\n    limits: [{name: l1, limit: "+
			"%d, window: %s}]\n", name, path, limit, window)
	}
	for i := range others {
		rule("bench-load-other-"+strconv.Itoa(i), fmt.Sprintf("^/bench/v%d/(items|orders)/[0-9]+$", i), limit)
	}
	rule(limitedRule, "^"+limitedPath+".*[0-9]$", limit)
	rule(openRule, "^/api/.*[0-9]$", limiter.NarrowUnits-1)
	return out.String()
}

// keys are the keys of a point: key n is user n/len(paths) on path n modulo len(paths),
// together 30 bytes. No other point has the same keys, so nodes have not counted them
// yet.
type keys struct {
	n       int
	paths   []string
	users   []string
	limited []bool // by path
}

func (c *Config) paths() int { return max(min(c.Keys, usersPerPath), c.Keys/usersPerPath) }

// limitsPath reports whether the keys of path i have a limit. 37 and 100 have no common
// divisor, so any 100 consecutive paths have the right number of limited ones.
func (c *Config) limitsPath(i int) bool { return i*37%100 < c.Limited }

// limitedKeys returns the number of keys with a limit. With few keys their share may
// differ from Config.Limited.
func (c *Config) limitedKeys() int {
	n, paths := 0, c.paths()
	for i := range paths {
		if c.limitsPath(i) {
			n += (c.Keys - i + paths - 1) / paths
		}
	}
	return n
}

func newKeys(c *Config) (*keys, error) {
	var run [4]byte
	if _, err := rand.Read(run[:]); err != nil {
		return nil, fmt.Errorf("cannot draw a random name for the keys: %w", err)
	}
	n := c.paths()
	k := &keys{n: c.Keys, paths: make([]string, n), limited: make([]bool, n), users: make([]string, (c.Keys+n-1)/n)}
	for i := range k.paths {
		path := openPath
		if k.limited[i] = c.limitsPath(i); k.limited[i] {
			path = limitedPath
		}
		k.paths[i] = path + fmt.Sprintf("%05d", i)
	}
	for i := range k.users {
		k.users[i] = hex.EncodeToString(run[:]) + fmt.Sprintf("%03d", i)
	}
	return k, nil
}

func (k *keys) isLimited(n uint32) bool { return k.limited[int(n)%len(k.limited)] }

// rule returns the rule that should decide key n.
func (k *keys) rule(n uint32) string {
	if k.isLimited(n) {
		return limitedRule
	}
	return openRule
}

func (k *keys) request(r *limiter.Request, n uint32) {
	r.Path, r.User = k.paths[int(n)%len(k.paths)], k.users[int(n)/len(k.paths)]
}

// drawer draws keys for one goroutine. With the same seed it draws the same keys in
// every run.
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
