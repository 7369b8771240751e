#!/usr/bin/env bash
# Takes all figures of docs/benchmarks.md anew and prints them as benchstat
# does. For a few of them name the parts: bench/run.sh speed memory
#
#   ROUNDS  how often each is measured (10)
#   WHO     which contenders, a regular expression (.)
#   UNDER   a command that runs each measurement of speed and memory; on a busy
#           machine with Linux, as root, "chrt -f 50" keeps the cores for it
#   OUT     where the lines go that benchstat reads (bin/bench)
#
# Pauses are measured without UNDER: the collector's own threads must get a turn
# beside those that ask, so nothing but a quiet machine will do.
set -euo pipefail
out="${OUT:-$(dirname "$0")/../bin/bench}"
mkdir -p "$out"
out="$(cd "$out" && pwd)"
cd "$(dirname "$0")"

rounds="${ROUNDS:-10}"
who="${WHO:-.}"
under="${UNDER:-}"
version=v0.0.0-20260908200009-22c9c6c9d4da

bin="$(cd .. && pwd)/bin"
benchstat="$(command -v benchstat || true)"
if [ -x "$bin/benchstat" ]; then
  benchstat="$bin/benchstat"
elif [ -z "$benchstat" ]; then
  GOBIN="$bin" GOFLAGS= go install "golang.org/x/perf/cmd/benchstat@$version"
  benchstat="$bin/benchstat"
fi
go build -o "$bin/compare" ./cmd/compare

# take FILE ARGUMENTS: one run of compare, into FILE, and its table.
take() {
  local file="$out/$1.txt"
  shift
  echo "== compare $*"
  "$bin/compare" "$@" >"$file"
  "$benchstat" "$file"
}

part() {
  case "$1" in
    speed) take speed speed -rounds "$rounds" -who "$who" -under "$under" ;;
    join) take join speed -rounds "$rounds" -who "$who" -variants admitted -join -under "$under" ;;
    memory) take memory memory -rounds "$(((rounds + 1) / 2))" -who "$who" -under "$under" ;;
    pause)
      take pause pause -rounds 3 -who '^(table|weir)/(gcra|sliding_counter)$'
      take pause-garbage pause -rounds 3 -who '^(table|weir)/gcra$' -provoke garbage
      take pause-rivals pause -rounds 3 -keys 1000000 -who '^(x-time-rate/sharded|go-limiter|throttled/map|ulule|weir/gcra)$'
      ;;
    *)
      echo "there is no part $1: it is speed, join, memory or pause" >&2
      exit 2
      ;;
  esac
}

if [ $# -eq 0 ]; then
  set -- speed join memory pause
fi
for p in "$@"; do
  part "$p"
done
