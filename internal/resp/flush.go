package resp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// flushes tells how often a tenant's keys were flushed. That number is itself a counter of
// the node, so all members of a cluster agree on it and a crash keeps it. It is part of
// each key, so a flush leaves the old counters behind, to recover unseen. A member learns
// of a flush at another one within flushSeen.
type flushes struct {
	by    frontend.Session // nobody's
	limit *limiter.Limit
	now   func() time.Time

	mu    sync.Mutex
	known map[string]flushed // by tenant
}

// flushed is what is known of a tenant.
type flushed struct {
	user string // what its keys have in place of a user
	at   time.Time
}

const (
	// flushSeen is how long the number of a tenant's flushes is believed.
	flushSeen  = 100 * time.Millisecond
	maxTenants = 4096

	// maxFlushes bounds how often a tenant's counters are flushed within a window of flushes.
	maxFlushes = limiter.NarrowUnits - 1
)

// flushKey is the path of the counters of flushes. Each has a tenant of its own, made of the
// tenant that it is about, so that no check of a client reaches it.
const flushKey = "flushes"

func flushTenant(tenant string) string {
	sum := sha256.Sum256([]byte(tenant))
	return arith.OwnTenants + "flushes " + hex.EncodeToString(sum[:20])
}

func newFlushes(front *frontend.Frontend, now func() time.Time) (*flushes, error) {
	l, err := limiter.NewLimit(limiter.Spec{
		Name: "flushes", Algorithm: limiter.FixedWindow, Limit: maxFlushes, Window: limiter.MaxWindow,
	})
	if err != nil {
		return nil, err
	}
	return &flushes{by: front.Anyone(nil), limit: l, now: now, known: make(map[string]flushed)}, nil
}

// of returns what the keys of a tenant have in place of a user. If the number of flushes
// cannot be asked for, the last known one counts.
func (f *flushes) of(ctx context.Context, tenant string) (string, error) {
	f.mu.Lock()
	known, ok := f.known[tenant]
	f.mu.Unlock()
	if ok && f.now().Sub(known.at) < flushSeen {
		return known.user, nil
	}
	user, err := f.ask(ctx, tenant, 0)
	if err != nil && ok {
		return known.user, nil
	}
	return user, err
}

// flush begins new counters for all keys of a tenant.
func (f *flushes) flush(ctx context.Context, tenant string) error {
	_, err := f.ask(ctx, tenant, 1)
	return err
}

func (f *flushes) ask(ctx context.Context, tenant string, flushes int64) (string, error) {
	asked, by := f.now(), f.by
	rs := []limiter.Request{{Path: flushKey, Tenant: flushTenant(tenant), Limits: []*limiter.Limit{f.limit},
		Cost: limiter.Units(flushes)}}
	ds := make([]limiter.Decision, 1)
	if err := by.Decide(ctx, rs, ds, []bool{flushes == 0}); err != nil {
		if some, ok := err.(*limiter.BatchError); ok { //nolint:errorlint // the first one is told
			err = some.Errs[0]
		}
		return "", err
	}
	user := ""
	if n := maxFlushes - int64(ds[0].Limit(0).Remaining); n > 0 {
		user = "\x00" + strconv.FormatInt(n, 10)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.known) >= maxTenants {
		clear(f.known)
	}
	f.known[tenant] = flushed{user, asked}
	return user, nil
}
