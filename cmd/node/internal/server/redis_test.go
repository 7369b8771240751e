package server

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/redisstore"
)

// E2: two nodes that use one Redis share their counters, and answer by policy
// when it is gone.
func TestRedis(t *testing.T) {
	redisServer := redistest.Start(t)
	var nodes []*Server
	for range 2 {
		c, _ := plain()
		c.Rules = []byte(townRules)
		c.Redis = &redisstore.Config{Addrs: []string{redisServer.Socket}, Nodes: 2, Log: c.Log}
		nodes = append(nodes, start(t, c))
	}
	ask := func(i int, user string) (int, string) {
		return get(t, "http://"+nodes[i%2].Addresses().HTTP+"/v1/check?path=/towns&user="+user)
	}
	for i := range 4 {
		status, body := ask(i, "ada")
		if (status == http.StatusTooManyRequests) != (i == 3) || !strings.Contains(body, `"source":"redis"`) {
			t.Errorf("check %d: %d %s", i, status, body)
		}
	}
	_, text := get(t, "http://"+nodes[0].Addresses().Admin+"/metrics")
	if !strings.Contains(text, "weir_table_keys 0\n") || !strings.Contains(text, `source="redis"`) {
		t.Errorf("the metrics are not those of a node that counts in Redis:\n%s", text)
	}
	if status, _ := get(t, "http://"+nodes[0].Addresses().HTTP+"/readyz"); status != http.StatusOK {
		t.Errorf("readyz says %d", status)
	}
	redisServer.Stop()
	if status, body := ask(0, "bob"); status != http.StatusOK || !strings.Contains(body, `"source":"fallback_local"`) {
		t.Errorf("without Redis: %d %s", status, body)
	}
	if status, _ := get(t, "http://"+nodes[0].Addresses().HTTP+"/readyz"); status != http.StatusOK {
		t.Errorf("readyz says %d without Redis, though policies answer", status)
	}
}

// What policies count while Redis is gone is in the node's table: its bounds apply, and it
// is reported when it is full.
func TestRedisPoliciesFillTheTable(t *testing.T) {
	c, log := plain()
	c.Rules, c.MaxKeys, c.Overflow = []byte(townRules), 1, weir.OverflowAllow
	server := redistest.Start(t)
	c.Redis = &redisstore.Config{Addrs: []string{server.Socket}, Log: c.Log}
	node := start(t, c)
	server.Stop()
	for i := range 3 {
		status, body := get(t, fmt.Sprint("http://", node.Addresses().HTTP, "/v1/check?path=/towns&user=u", i))
		if status != http.StatusOK || !strings.Contains(body, `"source":"fallback_local"`) ||
			strings.Contains(body, "overflow") != (i > 0) {
			t.Errorf("check %d: %d %s", i, status, body)
		}
	}
	if n := strings.Count(log.String(), "the table of counters is full"); n != 1 {
		t.Errorf("the log says %d times that the table is full:\n%s", n, log)
	}
	if _, text := get(t, "http://"+node.Addresses().Admin+"/metrics"); !strings.Contains(text,
		`weir_table_overflow_total{bound="table"} 2`) || !strings.Contains(text, "weir_table_max_keys 1\n") {
		t.Errorf("the metrics do not say that the table is full:\n%s", text)
	}
	_, text := get(t, "http://"+node.Addresses().HTTP+"/readyz")
	if !strings.Contains(text, "the table of counters is full") {
		t.Errorf("readyz says %s", text)
	}
}

// An invalid Redis configuration keeps a node from starting; an unreachable Redis does
// not.
func TestRedisConfig(t *testing.T) {
	c, log := plain()
	c.Redis = &redisstore.Config{Log: c.Log}
	if _, err := Start(t.Context(), c); err == nil || !strings.Contains(err.Error(), "address is missing") {
		t.Errorf("got %v", err)
	}
	c.Redis.Addrs = []string{filepath.Join(t.TempDir(), "none")}
	c.Rules = []byte("rules: [")
	if _, err := Start(t.Context(), c); err == nil {
		t.Error("it starts with bad rules")
	}
	c.Rules = []byte(townRules)
	start(t, c)
	if !strings.Contains(log.String(), "redis is unavailable") {
		t.Errorf("the log has %s", log)
	}
}
