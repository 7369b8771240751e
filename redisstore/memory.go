package redisstore

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// watchEvery is how often the memory of the servers is looked at.
const watchEvery = time.Minute

// servers is what is known of the servers. One that evicts a counter lifts its limit, and no answer shows it.
type servers struct {
	log    *slog.Logger
	worked atomic.Bool // one was usable since the store opened

	mu        sync.Mutex
	memory    map[string]memoryOf // by address
	evicted   uint64
	clustered bool // a server said that it is a node of a Redis Cluster
}

// memoryOf is what one server said of its memory.
type memoryOf struct {
	run     string // which process it is: a new one counts from zero
	most    uint64 // 0: no bound
	policy  string
	mode    string
	evicted uint64
}

// evicts reports whether a server drops keys that expire, as all counters do, when memory is short.
func (m memoryOf) evicts() bool { return m.most > 0 && m.policy != "noeviction" && m.policy != "" }

// watchMemory looks at the memory of the servers until the store closes.
func (s *Store) watchMemory() {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.closing:
			return
		case <-tick.C:
			if !s.lookAtMemory() {
				return
			}
		}
	}
}

// lookAtMemory asks each server once. It reports whether it may be asked again.
func (s *Store) lookAtMemory() bool {
	ctx, cancel := context.WithTimeout(context.Background(), s.config.Timeout)
	defer cancel()
	ask := func(ctx context.Context, client *redis.Client) error {
		text, err := client.Info(ctx).Result()
		if err == nil {
			s.servers.note(client.Options().Addr, memoryFrom(text))
		}
		return err
	}
	var err error
	if s.cluster != nil {
		err = s.cluster.ForEachMaster(ctx, ask)
	} else {
		err = ask(ctx, s.single.client)
	}
	if text, _ := said(err); !strings.Contains(text, "NOPERM") {
		return true // an outage is logged elsewhere
	}
	s.config.Log.Info("this user of redis may not use INFO: whether redis evicts counters is not watched")
	return false
}

// memoryFrom reads an answer of INFO.
func memoryFrom(info string) (m memoryOf) {
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		n, _ := strconv.ParseUint(value, 10, 64) // where it is a number
		switch name {
		case "redis_mode":
			m.mode = value
		case "run_id":
			m.run = value
		case "maxmemory":
			m.most = n
		case "maxmemory_policy":
			m.policy = value
		case "evicted_keys":
			m.evicted = n
		}
	}
	return m
}

// note keeps what a server said, and logs that it may evict counters, and that it does.
func (w *servers) note(addr string, m memoryOf) {
	w.mu.Lock()
	defer w.mu.Unlock()
	last, known := w.memory[addr]
	if w.memory == nil || len(w.memory) >= maxServers && !known {
		w.memory = make(map[string]memoryOf)
	}
	w.memory[addr] = m
	w.clustered = w.clustered || m.mode == "cluster"
	if m.evicts() && (!known || !last.evicts()) {
		w.log.Warn("redis may evict counters, which silently lifts their limits: set maxmemory-policy noeviction",
			"address", addr, "maxmemory", m.most, "policy", m.policy)
	}
	if !known || last.run != m.run || m.evicted <= last.evicted {
		return
	}
	w.evicted += m.evicted - last.evicted
	w.log.Warn("redis has evicted keys, and counters may be among them: limits may be exceeded",
		"address", addr, "keys", m.evicted-last.evicted, "policy", m.policy)
}

// maxServers bounds the servers of a Cluster whose memory is remembered.
const maxServers = 1024

// Evicted returns how many keys the servers have evicted while the store looked, which it does
// once a minute. Not all need be counters. It is safe for concurrent use.
func (s *Store) Evicted() uint64 {
	s.servers.mu.Lock()
	defer s.servers.mu.Unlock()
	return s.servers.evicted
}

// warnings describes servers that may evict counters; nil if none does.
// It is safe for concurrent use.
func (w *servers) warnings() (out []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for addr, m := range w.memory {
		if m.evicts() {
			out = append(out, fmt.Sprintf("redis at %s may evict counters (maxmemory-policy %s): set noeviction", addr,
				m.policy))
		}
	}
	return out
}
