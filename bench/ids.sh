#!/usr/bin/env bash
# Measures what ids and holds cost a check: a table without ids beside the commit before there were any, and
# with them, by processor time of the thread. Prints a median of the ratios of adjacent rounds for each.
#
#   ROUNDS  how often each is measured, one after the other (10)
#   BEFORE  the commit to compare with (80ed099)
#   UNDER   a command that runs each measurement; on a busy machine with Linux, as root:
#           "chrt -r 50 taskset -c 1" keeps a core for it. Not -f: collections would last long, and slow each check
set -euo pipefail
cd "$(dirname "$0")/.."
rounds="${ROUNDS:-10}" under="${UNDER:-}" tmp="$(mktemp -d)"
trap 'git worktree remove --force "$tmp/before"; rm -r "$tmp"' EXIT
git worktree add -q --detach "$tmp/before" "${BEFORE:-80ed099}"
cp limiter/table/cost_linux_test.go "$tmp/before/limiter/table/"
(cd "$tmp/before" && go test -vet=off -c -o "$tmp/old" ./limiter/table)
go test -vet=off -c -o "$tmp/new" ./limiter/table
go test -vet=off -c -o "$tmp/weir" .

# run NAME PATTERN: lines of round, name, benchmark, processor time and bytes.
run() {
  $under "$tmp/$1" -test.run '^$' -test.bench "$2" -test.benchtime 500000x -test.cpu 1 |
    awk -v round="$i" -v of="$1" '/^Benchmark/ { for (j = 3; j < NF; j += 2) v[$(j + 1)] = $j; print round, of, $1, v["cpu-ns/op"], v["B/key"], v["ids"] + 0 }'
}
for i in $(seq "$rounds"); do
  if [ $((i % 2)) = 1 ]; then
    run old '^BenchmarkCost$'
  fi
  run new '^BenchmarkCost$'
  if [ $((i % 2)) = 0 ]; then
    run old '^BenchmarkCost$'
  fi
  run new '^BenchmarkCostOfIDs$'
  run weir '^BenchmarkCostOfIDs$'
done > "$tmp/lines"
awk '
  { cpu[$1, $2, $3] = $4; bytes[$2, $3] = $5; ids[$2, $3] = $6; if ($1 > rounds) rounds = $1; all[$2 " " $3] = 1 }
  function median(of, than, name, base, i, j, t, v) {
    for (i = 1; i <= rounds; i++) v[i] = cpu[i, of, name] / (than == "" ? 1 : cpu[i, than, base])
    for (i = 2; i <= rounds; i++) for (j = i; j > 1 && v[j] < v[j - 1]; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
    return (v[int((rounds + 1) / 2)] + v[int((rounds + 2) / 2)]) / 2
  }
  END {
    for (a in all) {
      split(a, k, " ")
      than = k[1] == "old" ? "" : k[1] == "new" && k[2] ~ /^BenchmarkCost\// ? "old" : k[1]
      base = than == "old" ? k[2] : "BenchmarkCostOfIDs/without"
      printf "%-5s %-32s %7.1f ns %8.1f B/key %7d ids", k[1], k[2], median(k[1], "", k[2], ""), bytes[k[1], k[2]], ids[k[1], k[2]]
      if (than != "") printf "  %5.3f of %s", median(k[1], than, k[2], base), than == "old" ? "before" : "without"
      print ""
    }
  }' "$tmp/lines" | sort
