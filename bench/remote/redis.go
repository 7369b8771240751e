package remote

import (
	"context"
	_ "embed"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
)

//go:embed log3.lua
var log3 string

func openRedis(c Config, workers int) (*redis.Client, error) {
	if c.Redis == "" {
		return nil, errors.New("there is no Redis: give its address")
	}
	network := "tcp"
	if strings.HasPrefix(c.Redis, "/") {
		network = "unix"
	}
	return redis.NewClient(&redis.Options{Network: network, Addr: c.Redis, PoolSize: workers, Protocol: 2}), nil
}

// rate asks with package redis_rate, a GCRA, by a round trip for each check.
type rate struct {
	client  *redis.Client
	limiter *redis_rate.Limiter
	run     string
}

func openRate(_ context.Context, c Config, run string) (asker, error) {
	client, err := openRedis(c, singles)
	if err != nil {
		return nil, err
	}
	return &rate{client, redis_rate.NewLimiter(client), run}, nil
}

func (r *rate) close() error { return r.client.Close() }

func (r *rate) worker() (func(context.Context, []int, []bool) error, error) {
	limit := redis_rate.Limit{Rate: Limit, Burst: Limit, Period: windows[2].long}
	return func(ctx context.Context, keys []int, allowed []bool) error {
		for i, n := range keys {
			got, err := r.limiter.Allow(ctx, joined(r.run, n), limit)
			if err != nil {
				return err
			}
			allowed[i] = got.Allowed == 1
		}
		return nil
	}, nil
}

// logs asks a script with three sliding logs, pipelined.
type logs struct {
	client *redis.Client
	sha    string
	run    string
	checks atomic.Uint64
}

func openLogs(ctx context.Context, c Config, run string) (asker, error) {
	client, err := openRedis(c, singles)
	if err != nil {
		return nil, err
	}
	sha, err := client.ScriptLoad(ctx, log3).Result()
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &logs{client: client, sha: sha, run: run}, nil
}

func (l *logs) close() error { return l.client.Close() }

func (l *logs) worker() (func(context.Context, []int, []bool) error, error) {
	limits := make([]any, 0, 7)
	for _, w := range windows {
		limits = append(limits, w.limit, w.long.Microseconds())
	}
	return func(ctx context.Context, keys []int, allowed []bool) error {
		pipe := l.client.Pipeline()
		answers := make([]*redis.Cmd, len(keys))
		for i, n := range keys {
			name := "{" + joined(l.run, n) + "}:"
			args := slices.Concat(limits, []any{strconv.FormatUint(l.checks.Add(1), 36)})
			answers[i] = pipe.EvalSha(ctx, l.sha, []string{name + "1", name + "2", name + "3"}, args...)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
		for i, a := range answers {
			n, err := a.Int()
			if err != nil {
				return err
			}
			allowed[i] = n == 1
		}
		return nil
	}, nil
}

const (
	singles = 64  // goroutines with a round trip for each check
	depth   = 100 // checks in a pipeline
	batch   = 1000
)

// Contenders returns all.
func Contenders() []Contender {
	day := int(windows[2].long / time.Hour)
	return []Contender{
		{
			Name: "redis/redis_rate", What: "go-redis/redis_rate: one window by GCRA, a round trip for each check",
			Workers: singles, Batch: 1, slack: 1 + Limit/day/60, open: openRate,
		},
		{Name: "redis/log3", What: "a script with three sliding logs, a round trip for each check", Workers: singles,
			Batch: 1, open: openLogs},
		{Name: "redis/log3-pipelined", What: "the same, 100 checks in a pipeline", Workers: 16, Batch: depth, open: openLogs},
		{Name: "weir/log3-batch", What: "a node: three sliding logs, 1000 checks in a call", Workers: 2, Batch: batch,
			open: openBatch("/log/")},
		{Name: "weir/counter3-batch", What: "a node: three windows of the default algorithm, 1000 checks in a call",
			Workers: 2, Batch: batch, open: openBatch("/api/")},
		{Name: "weir/log3-columns", What: "a node: three sliding logs, columns of 1000 on a stream", Workers: 2, Batch: batch,
			open: openColumns("/log/")},
		{Name: "weir/counter3-columns", What: "a node: three windows of the default algorithm, columns of 1000", Workers: 2,
			Batch: batch, open: openColumns("/api/")},
	}
}
