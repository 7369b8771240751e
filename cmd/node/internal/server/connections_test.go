package server

import (
	"net"
	"strings"
	"testing"
)

// The metrics have the connections of each listener of clients, and those that it refuses.
func TestConnectionsOfEachListener(t *testing.T) {
	c, _ := plain()
	c.RedisListen, c.MaxConnectionsPerAddress = "127.0.0.1:0", 1
	s := start(t, c)
	for _, addr := range []string{s.Addresses().HTTP, s.Addresses().GRPC, s.Addresses().Redis} {
		dial := func() {
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
		}
		told := func(metric string) {
			t.Helper()
			eventually(t, metric, func() bool {
				_, text := get(t, "http://"+s.Addresses().Admin+"/metrics")
				return strings.Contains(text, metric+"\n")
			})
		}
		dial()
		told(`weir_client_connections{listener="` + addr + `"} 1`)
		dial()
		told(`weir_client_connections_refused_total{listener="` + addr + `",reason="per_address"} 1`)
	}
}
