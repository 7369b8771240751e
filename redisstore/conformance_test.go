package redisstore_test

import (
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter/limitertest"
	"github.com/weirlimit/weir/redisstore"
)

// Only a backend without reservations is refused any rules, so `weir validate` need not know of Redis.
var _ weir.Backend = (*redisstore.Store)(nil)

// C1, C3, C4: the suite and every transcript that the table passes, in a real
// Redis whose instants the suite gives.
func TestRedisConforms(t *testing.T) {
	if raceEnabled && testing.Short() {
		t.Skip("one caller, many times slower under the race detector; make wire runs it")
	}
	srv := startServer(t)
	limitertest.Run(t, func(tb testing.TB, yaml string) limitertest.Subject {
		srv.do("FLUSHALL")
		return newSubject(tb, openStore(tb, redisstore.Config{Addrs: []string{srv.addr()}}), yaml)
	})
}
