#!/usr/bin/env bash
# Takes the figures of the Redis protocol: a node and Redis 7 side by side, asked in turn by
# redis-benchmark with 64 connections and 100,000 keys. It prints how many commands each of
# them answers for a second of its own processor time, and the ratio. Redis runs a script:
# a fixed window (INCR and PEXPIRE), and three sliding logs. Name parts for some only:
#
#   one     one window, a round trip for each command
#   one50   one window, pipelines of 50
#   three   three windows, a round trip for each command
#   three50 three windows, pipelines of 50
#
#   N       commands of a measurement (200000; five times as many in pipelines)
#   ROUNDS  how often (6)
#   NODE    the program that is measured (default: built here)
#   PPROF   a file for a profile of the node during the last measurement of a part
set -euo pipefail
cd "$(dirname "$0")/.."
n="${N:-200000}"
rounds="${ROUNDS:-6}"
. bench/nodes.sh
work="$(mktemp -d)"
pids=()
finish() {
  for p in "${pids[@]}"; do kill "$p" 2>/dev/null || true; done
  wait "${pids[@]}" 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT

if [ -z "${NODE:-}" ]; then
  go build -o "$work/node" ./cmd/node
  NODE="$work/node"
fi
cat >"$work/rules.yaml" <<'RULES'
version: 1
rules:
  - name: three
    match: {path: ^/three$}
    key: [user]
    limits:
      - {name: second, algorithm: sliding_window, limit: 1000000, window: 1s}
      - {name: minute, algorithm: sliding_window, limit: 1000000, window: 1m}
      - {name: hour, algorithm: sliding_window, limit: 1000000, window: 1h}
RULES
free 20080 20081 20084 20085 20086
"$NODE" serve --rules "$work/rules.yaml" --http-addr 127.0.0.1:20080 --grpc-addr 127.0.0.1:20081 \
  --admin-addr 127.0.0.1:20084 --health-addr off --redis-listen 127.0.0.1:20085 --allow-request-limits 2>"$work/node.log" &
node=$!
pids+=("$node")
redis-server --port 20086 --save "" --appendonly no >/dev/null &
redis=$!
pids+=("$redis")
ready "$node" 127.0.0.1:20080 "$work/node.log"
until redis-cli -p 20086 PING >/dev/null 2>&1; do sleep 0.1; done

window="$(redis-cli -p 20086 SCRIPT LOAD "$(cat bench/remote/window.lua)")"
logs="$(redis-cli -p 20086 SCRIPT LOAD "$(cat bench/remote/log3.lua)")"

# spent PID: nanoseconds of processor time of all its threads.
spent() { awk '{sum += $1} END {printf "%.0f\n", sum}' /proc/"$1"/task/*/schedstat; }

# measure PID PORT COUNT DEPTH COMMAND...: commands for a second of processor time.
measure() {
  local pid="$1" port="$2" count="$3" depth="$4" before rps
  shift 4
  before="$(spent "$pid")"
  rps="$(redis-benchmark -p "$port" -c 64 -n "$count" -r 100000 -P "$depth" --csv "$@" | awk -F'"' 'END {print $4}')"
  awk -v n="$count" -v ns="$(($(spent "$pid") - before))" -v rps="$rps" 'BEGIN {printf "%.0f %.0f\n", n / ns * 1e9, rps}'
}

part() {
  local depth=1 count="$n" ratios=() a b x y
  if [[ "$1" == *50 ]]; then depth=50 count=$((5 * n)); fi
  for round in $(seq "$rounds"); do
    case "$1" in
      one | one50)
        a="$(measure "$redis" 20086 "$count" "$depth" EVALSHA "$window" 1 key:__rand_int__ 1000000 86400000)"
        profile "$round" &
        b="$(measure "$node" 20085 "$count" "$depth" CL.THROTTLE key:__rand_int__ 999999 1000000 86400)"
        ;;
      three | three50)
        # A window that is full makes Redis cheaper than one that is not, so none is.
        a="$(measure "$redis" 20086 "$((count / 4))" "$depth" EVALSHA "$logs" 3 {key:__rand_int__}s {key:__rand_int__}m {key:__rand_int__}h 1000000 1000000 1000000 60000000 1000000 3600000000 __rand_int__)"
        profile "$round" &
        b="$(measure "$node" 20085 "$count" "$depth" WEIR.CHECK /three USER key:__rand_int__)"
        ;;
    esac
    wait $! || true
    read -r x _ <<<"$a"
    read -r y _ <<<"$b"
    ratios+=("$(awk -v x="$x" -v y="$y" 'BEGIN {printf "%.2f", y / x}')")
    echo "$1: Redis $x for a CPU second (${a#* }/s), a node $y (${b#* }/s): ${ratios[-1]} times"
  done
}

profile() {
  if [ -n "${PPROF:-}" ] && [ "$1" = "$rounds" ]; then
    sleep 0.2
    curl -fsS -o "$PPROF" "http://127.0.0.1:20084/debug/pprof/profile?seconds=${PPROF_SECONDS:-2}"
  fi
}

if [ $# -eq 0 ]; then
  set -- one one50 three three50
fi
for p in "$@"; do part "$p"; done
