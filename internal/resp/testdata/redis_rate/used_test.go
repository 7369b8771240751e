// Package redis_rate names what the tests of that library need, so that its own tests can be
// built here, as they are.
package redis_rate

import (
	"testing"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestUsed(t *testing.T) {
	require.NotNil(t, redis_rate.NewLimiter(redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})))
}
