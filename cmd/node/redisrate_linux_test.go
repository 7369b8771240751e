package main

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// namespaced starts three members in a network of their own, each with the Redis protocol at
// port 6379 of an address of its own, and runs a program there when they are ready.
const namespaced = `
set -e
ip link set lo up
cd "$1"
printf 'rules: []\n' >rules.yaml
pids=
trap 'kill $pids; wait' EXIT
for i in 1 2 3; do
  "$2" serve --rules rules.yaml --name "node-$i" --join 127.0.0.1:7946,127.0.0.2:7946,127.0.0.3:7946 \
    --http-addr "127.0.0.$i:8080" --grpc-addr "127.0.0.$i:8081" --gossip-addr "127.0.0.$i:7946" --peer-addr "127.0.0.$i:7947" \
    --admin-addr "127.0.0.$i:8082" --health-addr off --redis-listen "127.0.0.$i:6379" --allow-request-limits --allow-reset 2>"$i.log" &
  pids="$pids $!"
done
for i in 1 2 3; do
  n=0
  until curl -fs "http://127.0.0.$i:8080/readyz" >/dev/null; do
    n=$((n + 1))
    if [ $n -gt 300 ]; then cat ./*.log >&2; exit 1; fi
    sleep 0.1
  done
done
"$3" -test.v
for i in 1 2 3; do echo "asked $i:" $(redis-cli -h "127.0.0.$i" cl.throttle shared 2 3 60); done
`

// The tests of redis_rate, as its authors wrote them, pass against three members: nothing
// but the address changes. They want times to be right within 10 ms, so a machine that is
// busy with other work fails them.
func TestRedisRate(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the tests of another module; make wire and make test-long run it")
	}
	dir := t.TempDir()
	tests := filepath.Join(dir, "redis_rate.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", tests, "github.com/go-redis/redis_rate/v10")
	build.Dir = filepath.Join("..", "..", "internal", "resp", "testdata", "redis_rate")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	run := exec.CommandContext(ctx, "unshare", "--net", "sh", "-c", namespaced, "sh", dir, program, tests)
	out, err := run.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range []string{"TestAllow", "TestAllowN_IncrementZero", "TestRetryAfter", "TestAllowAtMost",
		"TestAllowAtMost_IncrementZero"} {
		if n := strings.Count(string(out), "--- PASS: "+name+" "); n != 1 {
			t.Errorf("%s passed %d times\n%s", name, n, out)
		}
	}
	// Each member counts what the others were asked: of a burst of 3, 2, 1 and 0 remain.
	for _, want := range []string{"asked 1: 0 3 2 ", "asked 2: 0 3 1 ", "asked 3: 0 3 0 "} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the members do not count together: no %q in\n%s", want, out)
		}
	}
}
