#!/usr/bin/env bash
# Runs every fuzz target for the given time (10m), one after the other, or
# those whose name matches the regular expression in FUZZ. Stops at the first
# failure, whose input go test leaves in testdata/fuzz beside the target.
set -euo pipefail
cd "$(dirname "$0")/.."

each="${1:-10m}"
match="${FUZZ:-.}"

# A package that does not build ends this, rather than being passed over.
list="$(
  for package in $(go list ./...); do
    go test -list '^Fuzz' "$package" | awk -v p="$package" -v m="$match" '/^Fuzz/ && $0 ~ m {print p, $0}' || exit 1
  done
)"
targets=()
while read -r target; do
  if [ -n "$target" ]; then
    targets+=("$target")
  fi
done <<<"$list"
if [ ${#targets[@]} -eq 0 ]; then
  echo "no fuzz target matches $match" >&2
  exit 1
fi

n=0
for target in "${targets[@]}"; do
  read -r package name <<<"$target"
  n=$((n + 1))
  echo "--- $n of ${#targets[@]}: $name in $package, $each"
  go test -run '^$' -fuzz "^$name\$" -fuzztime "$each" -fuzzminimizetime 20x "$package"
done
