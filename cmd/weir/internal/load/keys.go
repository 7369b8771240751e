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

// The rules that decide, and the paths that they match: of ten rules with a regular
// expression each, the last but one and the last.
const (
	openRule, openPath       = "bench-load-open", "/api/resource/"
	limitedRule, limitedPath = "bench-load-limited", "/api/metered_/"
	others                   = 8
)

// window is how long keys are counted for. The algorithm is the default one, whose
// windows begin at the same instants for all keys, so that one may end within a run;
// then the first unit of a key comes back a limit-th of the window later. That must be
// longer than a point can last, from its first check to the last look at its limits:
// 21 min 36 s are. The table is rid of a key after two windows at the most.
const window = "36h"

// usersPerPath is how many keys have one path, where there are enough.
const usersPerPath = 100

// Rules returns the rules that nodes need, as elements of the list of rules in a
// rules file.
func Rules() string {
	var out strings.Builder
	rule := func(name, path string, limit int64) {
		fmt.Fprintf(&out, "  - name: %s\n    match: {path: \"%s\"}\n    limits: [{name: l1, limit: %d, window: %s}]\n", name, path, limit, window)
	}
	for i := range others {
		rule("bench-load-other-"+strconv.Itoa(i), fmt.Sprintf("^/bench/v%d/(items|orders)/[0-9]+$", i), limit)
	}
	rule(limitedRule, "^"+limitedPath+".*[0-9]$", limit)
	rule(openRule, "^/api/.*[0-9]$", limiter.MaxUnits)
	return out.String()
}

// keys are what a point asks for: key n is the user n/len(paths) of the path n
// modulo len(paths), together 30 bytes. No other point has the same ones, so that
// nodes have not counted them yet.
type keys struct {
	n       int
	paths   []string
	users   []string
	limited []bool // by path
}

// paths is how many paths the keys have.
func (c *Config) paths() int { return max(min(c.Keys, usersPerPath), c.Keys/usersPerPath) }

// limitsPath tells whether the keys of path i are under a limit. 37 has no divisor in
// common with 100, so that of any 100 paths in a row as many are as should be.
func (c *Config) limitsPath(i int) bool { return i*37%100 < c.Limited }

// limitedKeys is how many keys are under a limit; of a few that may be another share than
// was wished for.
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
		return nil, fmt.Errorf("no name for the keys can be drawn: %w", err)
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

// isLimited tells whether key n is under a limit.
func (k *keys) isLimited(n uint32) bool { return k.limited[int(n)%len(k.limited)] }

// rule returns the rule that should decide key n.
func (k *keys) rule(n uint32) string {
	if k.isLimited(n) {
		return limitedRule
	}
	return openRule
}

// request makes r the check of key n.
func (k *keys) request(r *limiter.Request, n uint32) {
	r.Path, r.User = k.paths[int(n)%len(k.paths)], k.users[int(n)/len(k.paths)]
}

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
