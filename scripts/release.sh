#!/usr/bin/env bash
# Builds what a release consists of: node and weir for each system, the bill of materials of
# each, and the checksums of all. The same commit, version and Go give the same bytes, whatever
# directory it is built in.
#
#   scripts/release.sh DIRECTORY VERSION COMMIT [SYSTEM/PROCESSOR ...]
set -euo pipefail

out="${1:?give the directory that the files go to}"
version="${2:?give the version, such as v0.1.0}"
commit="${3:?give the commit that is built}"
shift 3
systems=("$@")
if [ ${#systems[@]} -eq 0 ]; then
  systems=(linux/amd64 linux/arm64 darwin/amd64 darwin/arm64)
fi

if [ -e "$out" ] && [ -n "$(ls -A "$out")" ]; then
  echo "$out is not empty: remove what is in it, or give another directory" >&2
  exit 1
fi
mkdir -p "$out"
out="$(cd "$out" && pwd)"
cd "$(dirname "$0")/.."

go="${GO:-go}"
built=github.com/weirlimit/weir/internal/built
for system in "${systems[@]}"; do
  for program in node weir; do
    file="$out/$program-${system/\//-}"
    # Nothing of the machine goes in: no paths, no state of a repository, no C compiler, and no
    # processor's level or flags that its user has set.
    env -u GOFLAGS -u GOEXPERIMENT CGO_ENABLED=0 GOOS="${system%/*}" GOARCH="${system#*/}" GOAMD64=v1 GOARM64=v8.0 \
      "$go" build -trimpath -buildvcs=false -pgo=off \
      -ldflags "-s -w -X $built.released=$version -X $built.commit=$commit" -o "$file" "./cmd/$program"
    "$go" run ./deploy/sbom "$file" >"$file.cdx.json"
  done
done
cd "$out"
sums="$(sha256sum -- *)"
printf '%s\n' "$sums" >SHA256SUMS
