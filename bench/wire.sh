#!/usr/bin/env bash
# Takes the figures of checks over the wire: starts nodes on loopback, asks them with
# `weir bench`, and ends them. Name parts for a few of them only:
#
#   one     one node: unary, batches, columns of 1000 and of 100, the Go client
#   empty   the same from a server of grpc-go that decides nothing, beside a node's
#   three   three nodes, any of them asked: unary, columns, batches
#   ring    three nodes that share the ring, asked by the Go client, with ids and without
#   direct  three nodes, asked by the Go client, with the ring and without in turn: as fast as they answer, and at
#           RATE checks a second (5000)
#   idle    three nodes, one client: what it waits where the node owns the key, and where not
#   memory  what 1,000,000 keys take in three nodes, replication off and on
#   remote  three windows in Redis and in a node, side by side
#   envoy   calls of Envoy's service: an empty server and a node in turn; then three nodes at half of
#           what they bear, with and without the death of one
#   sizes   up to 10,000,000 keys in process, one at a time
#
#   TIME    how long each way to ask is measured (5s)
#   ROUNDS  how often (3)
set -euo pipefail
cd "$(dirname "$0")/.."
time="${TIME:-5s}"
rounds="${ROUNDS:-3}"
. bench/nodes.sh
work="$(mktemp -d)"
pids=()
finish() {
  for p in "${pids[@]}"; do kill "$p" 2>/dev/null || true; done
  wait 2>/dev/null || true
  pids=()
}
trap 'finish; rm -rf "$work"' EXIT

go build -o "$work/" ./cmd/node ./cmd/weir
"$work/weir" bench --print-rules >"$work/rules.yaml"

# one FLAGS: one node.
one() {
  free 20080 20081 20084
  "$work/node" serve --rules "${RULES:-$work/rules.yaml}" --http-addr 127.0.0.1:20080 --grpc-addr 127.0.0.1:20081 --admin-addr 127.0.0.1:20084 --health-addr off "$@" 2>"$work/1.log" &
  pids+=($!)
  ready "$!" 127.0.0.1:20080 "$work/1.log"
}

# three FLAGS: a cluster.
three() {
  free {200{8,9},2010}{0,1,2,3,4}
  for i in 0 1 2; do
    "$work/node" serve --rules "$work/rules.yaml" --name "node-$i" --join 127.0.0.1:20082,127.0.0.1:20092,127.0.0.1:20102 \
      --http-addr "127.0.0.1:$((20080 + 10 * i))" --grpc-addr "127.0.0.1:$((20081 + 10 * i))" \
      --gossip-addr "127.0.0.1:$((20082 + 10 * i))" --peer-addr "127.0.0.1:$((20083 + 10 * i))" \
      --admin-addr "127.0.0.1:$((20084 + 10 * i))" --health-addr off ${ENVOY:+--envoy-addr "127.0.0.1:$((20085 + 10 * i))" --envoy-config "$ENVOY"} "$@" 2>"$work/$i.log" &
    pids+=($!)
  done
  for i in 0 1 2; do ready "${pids[i]}" "127.0.0.1:$((20080 + 10 * i))" "$work/$i.log"; done
}

SERVERS=127.0.0.1:20081,127.0.0.1:20091,127.0.0.1:20101
ADMIN=127.0.0.1:20084,127.0.0.1:20094,127.0.0.1:20104

# ask FLAGS: one measurement, 90 % of whose keys are never denied.
ask() {
  echo "\$ weir bench --limited 10 --duration $time $*"
  "$work/weir" bench --limited 10 --duration "$time" "$@"
}

# resident: bytes of all nodes together.
resident() {
  local sum=0 kb
  for p in "${pids[@]}"; do
    kb=$(awk '/^VmRSS:/ {print $2}' "/proc/$p/status")
    sum=$((sum + kb * 1024))
  done
  echo "$sum"
}

part() {
  echo "== $1"
  case "$1" in
    one)
      one
      for _ in $(seq "$rounds"); do
        ask --mode unary,batch,stream,client --server 127.0.0.1:20081 --server-admin 127.0.0.1:20084
        ask --mode stream --batch 100 --server 127.0.0.1:20081 --server-admin 127.0.0.1:20084
      done
      ;;
    empty) go test -run '^$' -bench BenchmarkServer -benchtime 300000x -count "$rounds" ./transport ;;
    three)
      three
      for _ in $(seq "$rounds"); do
        ask --mode unary,stream,batch --server $SERVERS --server-admin $ADMIN
      done
      ;;
    ring)
      three --share-ring
      for _ in $(seq "$rounds"); do
        ask --mode client,client-batch --server $SERVERS --server-admin $ADMIN
        ask --mode client,client-batch --no-ids --server $SERVERS --server-admin $ADMIN
      done
      ;;
    direct)
      for _ in $(seq "$rounds"); do
        for flag in --share-ring --share-ring=false; do
          three "$flag"
          echo "nodes with $flag"
          ask --mode client --server $SERVERS --server-admin $ADMIN
          ask --mode client --rate "${RATE:-5000}" --server $SERVERS --server-admin $ADMIN
          for admin in ${ADMIN//,/ }; do # what each was asked, and the part of the keys that it owns
            curl -s "http://$admin/metrics" | awk '/^weir_checks_total/ {n += $2} /^weir_ring_share/ {s = $2} END {print "asked: " n ", owns: " s}'
          done
          finish
        done
      done
      ;;
    idle)
      three
      for _ in $(seq "$rounds"); do
        ask --mode unary --clients 1 --server $SERVERS --server-admin $ADMIN
      done
      ;;
    memory)
      for replication in off lag; do
        three --replication "$replication"
        before=$(resident)
        echo "replication $replication"
        "$work/weir" bench --mode stream --clients 3 --limited 0 --keys 1000000 --duration 30s --server $SERVERS --server-admin $ADMIN
        echo "bytes of resident memory per key, all three nodes: $((($(resident) - before) / 1000000))"
        curl -s http://127.0.0.1:20084/metrics | grep -E '^(weir_keys|weir_table_|go_memstats_(heap_inuse|heap_sys)_bytes|process_resident)' || true
        finish
      done
      ;;
    remote)
      (cd bench && go build -o "$work/remote" ./cmd/remote)
      "$work/remote" -print-rules >"$work/remote.yaml"
      redis-server --port 0 --unixsocket "$work/redis.sock" --save "" >/dev/null &
      pids+=($!)
      RULES="$work/remote.yaml" one
      "$work/remote" -redis "$work/redis.sock" -server 127.0.0.1:20081 -rounds "$rounds" | sort -s -k1,1
      ;;
    envoy)
      (cd bench && go build -o "$work/envoy" ./cmd/envoy)
      mkdir -p "$work/files"
      printf 'domain: edge\ndescriptors: [{key: remote_address, rate_limit: {unit: hour, requests_per_unit: 1000}}]\n' >"$work/files/edge.yaml"
      one --envoy-addr 127.0.0.1:20085 --envoy-config "$work/files"
      "$work/envoy" -empty 127.0.0.1:20086 &
      pids+=($!)
      for _ in $(seq "$rounds"); do
        echo "empty: $("$work/envoy" -ask 127.0.0.1:20086 -pids "${pids[1]}" -time "$time")"
        echo "node: $("$work/envoy" -ask 127.0.0.1:20085 -pids "${pids[0]}" -time "$time")"
      done
      finish
      for _ in $(seq "$rounds"); do
        ENVOY="$work/files" three
        most="$("$work/envoy" -ask 127.0.0.1:20085 -pids "${pids[0]},${pids[1]},${pids[2]}" -time "$time")"
        echo "three nodes, as many calls as they bear: $most"
        half=$((${most%% *} / 2))
        echo "half of it: $("$work/envoy" -ask 127.0.0.1:20085 -rate "$half" -time 10s -timeout 20ms)"
        (sleep 5 && kill -9 "${pids[1]}") &
        echo "half of it, and a node is killed after 5 s: $("$work/envoy" -ask 127.0.0.1:20085 -rate "$half" -time 10s -timeout 20ms)"
        echo "decided by policy: $(curl -s http://127.0.0.1:20084/metrics | grep -E '^weir_checks_total.*fallback' || echo none)"
        finish
      done
      ;;
    sizes) go test -run '^$' -bench BenchmarkSizes -count "$rounds" ./limiter/table ;;
    *)
      echo "there is no part $1: it is one, empty, three, ring, direct, idle, memory, remote, envoy or sizes" >&2
      exit 2
      ;;
  esac
  finish
}

if [ $# -eq 0 ]; then
  set -- one empty three ring direct idle memory remote envoy sizes
fi
for p in "$@"; do part "$p"; done
