package resp

import (
	"context"
	"net"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Stock clients connect and throttle. Each prints the replies that it got.
func TestStockClients(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("scripts/deps.sh installs these clients on Debian")
	}
	f := start(t, nil)
	_, port, err := net.SplitHostPort(f.addr)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		command []string
		want    string
	}{
		"redis-cli": {[]string{"redis-cli", "-p", port, "CL.THROTTLE", "cli", "0", "1", "60"}, "0\n1\n0\n-1\n60\n"},
		"redis-cli with RESP3": {
			[]string{"redis-cli", "-3", "-p", port, "WEIR.CHECK", "/towns", "USER", "cli"},
			"allowed (true)\nrule towns\nlimit 2\nremaining 1\nretry_after_ms -1\nreset_after_ms 3600000\nsource " +
				"owner\nrepeated (false)\n",
		},
		"python3-redis": {[]string{"/usr/bin/python3", "-c", `
import redis
r = redis.Redis(port=int("` + port + `"), client_name="python")
r.ping()
print(r.execute_command("CL.THROTTLE", "python", 0, 1, 60))
p = r.pipeline(transaction=False)
for _ in range(3):
    p.execute_command("CL.THROTTLE", "python", 0, 1, 60)
print(p.execute())
p = r.pipeline()
p.execute_command("CL.THROTTLE", "python", 0, 1, 60)
p.echo("x")
print(p.execute())
p = r.pipeline()
p.execute_command("CL.THROTTLE", "python2", 0, 1, 60)
p.get("x")
try:
    p.execute()
except redis.ResponseError as e:
    print(str(e)[:41])
print(r.execute_command("CL.THROTTLE", "python2", 0, 1, 60))
print(r.delete("python"), r.execute_command("CL.THROTTLE", "python", 0, 1, 60))
try:
    r.get("python")
except redis.ResponseError as e:
    print(str(e)[:15])
`}, "[0, 1, 0, -1, 60]\n[[1, 1, 0, 60, 60], [1, 1, 0, 60, 60], [1, 1, 0, 60, 60]]\n" +
			"[[1, 1, 0, 60, 60], b'x']\nCommand # 2 (GET x) of pipeline caused er\n[0, 1, 0, -1, 60]\n1 [0, 1, 0, -1, " +
			"60]\nunknown command\n"},
		"python3-redis for a cluster": {[]string{"/usr/bin/python3", "-c", `
from redis.cluster import RedisCluster
r = RedisCluster(host="127.0.0.1", port=int("` + port + `"))
print(r.execute_command("CL.THROTTLE", "cluster", 0, 1, 60), r.execute_command("CL.THROTTLE", "cluster", 0, 1, 60))
print(r.execute_command("WEIR.CHECK", "/towns", "USER", "cluster")[:2])
print(r.execute_command("WEIR.RESET", "/towns", "USER", "cluster"))
r = RedisCluster(host="127.0.0.1", port=int("` + port + `"), read_from_replicas=True)
print(r.execute_command("CL.THROTTLE", "cluster", 0, 1, 60))
`}, "[0, 1, 0, -1, 60] [1, 1, 0, 60, 60]\n[b'allowed', 1]\n1\n[1, 1, 0, 60, 60]\n"},
		"ruby-redis": {[]string{"ruby", "-e", `
require "redis"
r = Redis.new(port: ` + port + `)
p r.ping, r.call("CL.THROTTLE", "ruby", 0, 1, 60), r.call("CL.THROTTLE", "ruby", 0, 1, 60)
p r.pipelined { |q| 2.times { q.call("CL.THROTTLE", "ruby", 0, 1, 60) } }
p r.multi { |q| 2.times { q.call("CL.THROTTLE", "ruby2", 0, 1, 60) } }
`}, "\"PONG\"\n[0, 1, 0, -1, 60]\n[1, 1, 0, 60, 60]\n[[1, 1, 0, 60, 60], [1, 1, 0, 60, 60]]\n[[0, 1, 0, -1, 60], [1, " +
			"1, 0, 60, 60]]\n"},
		"php-redis": {[]string{"php", "-r", `
$r = new Redis();
$r->connect("127.0.0.1", ` + port + `);
echo json_encode([$r->rawCommand("CL.THROTTLE", "php", 0, 1, 60), $r->rawCommand("CL.THROTTLE", "php", 0, 1, 60)]), "\n";
`}, "[[0,1,0,-1,60],[1,1,0,60,60]]\n"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		out, err := exec.CommandContext(ctx, c.command[0], c.command[1:]...).CombinedOutput()
		cancel()
		if err != nil || strings.TrimSpace(string(out)) != strings.TrimSpace(c.want) {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, out, c.want)
		}
	}
	out, err := exec.CommandContext(t.Context(), "redis-benchmark", "-p", port, "-n", "3000", "-c", "16", "-P", "16", "-r",
		"50", "--csv",
		"CL.THROTTLE", "key:__rand_int__", "1000000", "1000000", "60").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "CL.THROTTLE") || strings.Contains(string(out), "rror from server") {
		t.Errorf("redis-benchmark: %v\n%s", err, out)
	}
}
