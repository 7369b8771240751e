#!/usr/bin/env bash
# Takes all figures of docs/benchmarks.md anew and prints them as benchstat
# does. For a few of them name the parts: bench/run.sh speed memory
#
#   ROUNDS  how often each is measured (10)
#   WHO     which contenders, a regular expression (.)
#   UNDER   a command that runs each measurement; on a busy machine with Linux, as
#           root, "chrt -f 50" keeps the cores for it
#   REST    how long the goroutines rest in every 10 ms while pauses are measured
#           (0); under chrt give 1.5ms: the kernel stops real-time threads that
#           never rest for 50 ms in each second
#   OUT     where the lines go that benchstat reads (bin/bench)
set -euo pipefail
out="${OUT:-$(dirname "$0")/../bin/bench}"
mkdir -p "$out"
out="$(cd "$out" && pwd)"
cd "$(dirname "$0")"

rounds="${ROUNDS:-10}"
who="${WHO:-.}"
under="${UNDER:-}"
rest="${REST:-0}"
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

# take NAME ARGUMENTS: one run of compare, into NAME.txt, and its table. The
# lines are sorted, since benchstat keeps their order, and theirs is random.
take() {
  local name="$1" file="$out/$1.txt"
  shift
  echo "== compare $*"
  "$bin/compare" "$@" >"$file.new"
  { grep -v '^Benchmark' "$file.new"; grep '^Benchmark' "$file.new" | sort -s -k1,1; } >"$file"
  rm "$file.new"
  "$benchstat" "$name=$file"
}

part() {
  case "$1" in
    speed) take speed speed -rounds "$rounds" -who "$who" -under "$under" ;;
    join) take join speed -rounds "$rounds" -who "$who" -variants admitted -join -under "$under" ;;
    memory) take memory memory -rounds "$rounds" -who "$who" -under "$under" ;;
    pause)
      take pause pause -rounds "$rounds" -who '^(table|weir)/(gcra|sliding_counter)$' -rest "$rest" -under "$under"
      take pause-garbage pause -rounds "$rounds" -who '^(table|weir)/gcra$' -provoke garbage -rest "$rest" -under "$under"
      take pause-rivals pause -rounds "$rounds" -keys 1000000 -who '^(x-time-rate/sharded|go-limiter|throttled/map|ulule|weir/gcra)$' -rest "$rest" -under "$under"
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
