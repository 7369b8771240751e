#!/usr/bin/env bash
# Takes the profile that `make build` has the program built by, cmd/node/wire.pgo: a
# node asked over the wire in every way, alone and with two others. It takes some
# minutes, and nothing else should run meanwhile.
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/nodes.sh
work="$(mktemp -d)"
pids=()
finish() {
  for p in "${pids[@]}"; do kill "$p" 2>/dev/null || true; done
  wait 2>/dev/null || true
  pids=()
}
new=cmd/node/wire.pgo.new
trap 'finish; rm -rf "$work" "$new"' EXIT
go build -trimpath -pgo=off -o "$work/" ./cmd/node ./cmd/weir
"$work/weir" bench --print-rules >"$work/rules.yaml"

# serve N FLAGS: node N.
serve() {
  local at="127.0.0.1:20$1" n="$1"
  shift
  free "20${n}80" "20${n}81" "20${n}82" "20${n}83" "20${n}84"
  "$work/node" serve --rules "$work/rules.yaml" --http-addr "${at}80" --grpc-addr "${at}81" --admin-addr "${at}84" --health-addr off "$@" 2>"$work/$n.log" &
  pids+=($!)
}

# profile NAME MODES SERVERS: asks, and profiles the first node meanwhile.
profile() {
  local mode
  for mode in $2; do
    "$work/weir" bench --mode "$mode" --limited 10 --duration 14s --server "$3" >"$work/bench.txt" &
    local asking=$!
    sleep 2
    if ! curl -fsS -o "$work/$1-$mode.prof" "http://127.0.0.1:20184/debug/pprof/profile?seconds=10"; then
      echo "no profile of the first node can be had, with $mode of $1: $(cat "$work/1.log")" >&2
      exit 1
    fi
    if ! wait "$asking"; then
      echo "weir bench --mode $mode failed with $1: $(cat "$work/bench.txt")" >&2
      exit 1
    fi
  done
}

join=127.0.0.1:20182,127.0.0.1:20282,127.0.0.1:20382
for n in 1 2 3; do serve "$n" --name "node-$n" --join "$join" --gossip-addr "127.0.0.1:20${n}82" --peer-addr "127.0.0.1:20${n}83"; done
for n in 1 2 3; do ready "${pids[n - 1]}" "127.0.0.1:20${n}80" "$work/$n.log"; done
profile three "unary batch stream" 127.0.0.1:20181,127.0.0.1:20281,127.0.0.1:20381
finish
serve 1
ready "$!" 127.0.0.1:20180 "$work/1.log"
profile one "unary batch stream client" 127.0.0.1:20181
# Only a whole profile takes the place of the one that is there.
go tool pprof -proto "$work"/*.prof >"$new"
mv "$new" cmd/node/wire.pgo
