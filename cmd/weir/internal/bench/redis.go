package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// redisWait bounds the wait for each answer of Redis.
	redisWait = 5 * time.Second
	// scanCount is how many keys Redis examines in one SCAN.
	scanCount = 1000
)

// redisConn reads what the store does not show: what Redis uses, and which keys it has.
type redisConn struct {
	addr   string
	client *redis.Client
}

func dialRedis(ctx context.Context, addr string) (*redisConn, error) {
	c := &redisConn{addr, redis.NewClient(&redis.Options{
		Addr: addr, Protocol: 2, DisableIdentity: true, MaxRetries: -1, DialerRetries: 1, DialTimeout: redisWait,
		ReadTimeout: redisWait, WriteTimeout: redisWait,
	})}
	var refused redis.Error // INFO will be, too
	if err := c.client.Ping(ctx).Err(); err != nil && !errors.As(err, &refused) {
		return nil, errors.Join(fmt.Errorf("redis %s cannot be reached: %w", addr, err), c.close())
	}
	return c, nil
}

func (c *redisConn) close() error { return c.client.Close() }

func (c *redisConn) failed(command string, err error) error {
	return fmt.Errorf("redis %s: %s failed: %w", c.addr, command, err)
}

// redisUsage is what Redis reports about itself.
type redisUsage struct {
	cpu    time.Duration // since it was started
	memory float64       // in bytes, including buffers of its clients
}

func (c *redisConn) usage() (u redisUsage, err error) {
	fields := map[string]float64{"used_cpu_sys": 0, "used_cpu_user": 0, "used_memory": 0}
	for _, section := range []string{"cpu", "memory"} {
		text, err := c.client.Info(context.Background(), section).Result()
		if err != nil {
			return u, c.failed("INFO", err)
		}
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			if _, wanted := fields[name]; !wanted {
				continue
			}
			if fields[name], err = strconv.ParseFloat(value, 64); err != nil {
				return u, c.failed("INFO", err)
			}
		}
	}
	if fields["used_memory"] == 0 {
		return u, c.failed("INFO", errors.New("the answer has no used_memory"))
	}
	u.cpu = time.Duration((fields["used_cpu_sys"] + fields["used_cpu_user"]) * float64(time.Second))
	u.memory = fields["used_memory"]
	return u, nil
}

// scan calls f with batches of the names of keys that begin with prefix. A name may
// occur twice.
func (c *redisConn) scan(prefix string, f func(names []string) error) error {
	for cursor := uint64(0); ; {
		names, next, err := c.client.Scan(context.Background(), cursor, prefix+"*", scanCount).Result()
		if err != nil {
			return c.failed("SCAN", err)
		}
		names = slices.DeleteFunc(names, func(n string) bool { return !strings.HasPrefix(n, prefix) })
		if len(names) > 0 {
			if err := f(names); err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// count returns the number of keys that begin with prefix.
func (c *redisConn) count(prefix string) (int, error) {
	seen := map[string]struct{}{}
	err := c.scan(prefix, func(names []string) error {
		for _, n := range names {
			seen[n] = struct{}{}
		}
		return nil
	})
	return len(seen), err
}

// forget deletes the keys that begin with prefix.
func (c *redisConn) forget(prefix string) error {
	return c.scan(prefix, func(names []string) error {
		if err := c.client.Unlink(context.Background(), names...).Err(); err != nil {
			return c.failed("UNLINK", err)
		}
		return nil
	})
}
