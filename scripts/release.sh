#!/usr/bin/env bash
# Builds what a release consists of: for each system an archive with both programs, their bills of
# materials, packages of Debian and RPM, images, the chart, and the checksums of all. The same
# commit, version and Go give the same bytes, whatever directory it is built in.
#
#   scripts/release.sh DIRECTORY VERSION COMMIT SECONDS [SYSTEM/PROCESSOR ...]
#
# SECONDS since 1970 is the time that files in archives get, such as that of the commit.
set -euo pipefail

out="${1:?give the directory that the files go to}"
version="${2:?give the version, such as v0.1.0}"
commit="${3:?give the commit that is built}"
seconds="${4:?give the time of all files, in seconds since 1970}"
shift 4
systems=("$@")
if [ ${#systems[@]} -eq 0 ]; then
  systems=(linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64)
fi

if [ -e "$out" ] && [ -n "$(ls -A "$out")" ]; then
  echo "$out is not empty: remove what is in it, or give another directory" >&2
  exit 1
fi
mkdir -p "$out"
out="$(cd "$out" && pwd)"
cd "$(dirname "$0")/.."
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

go="${GO:-go}"
built=github.com/weirlimit/weir/internal/built

# Nothing of the machine goes in: no paths, no state of a repository, no C compiler, and no
# processor's level or flags that its user has set.
compile() { # SYSTEM PROCESSOR PROGRAM FILE
  env -u GOFLAGS -u GOEXPERIMENT CGO_ENABLED=0 GOOS="$1" GOARCH="$2" GOAMD64=v1 GOARM64=v8.0 \
    "$go" build -trimpath -buildvcs=false -pgo=off \
    -ldflags "-s -w -X $built.released=$version -X $built.commit=$commit" -o "$4" "./cmd/$3"
}

for system in "${systems[@]}"; do
  os="${system%/*}" arch="${system#*/}"
  mkdir "$work/${os}_$arch"
  for program in node weir; do
    # Node.js is "node" on many machines, so what is installed has a name of its own.
    name="${program/node/weir-node}"
    file="$work/${os}_$arch/$name"
    if [ "$os" = windows ]; then
      file+=.exe
    fi
    compile "$os" "$arch" "$program" "$file"
    "$go" run ./deploy/sbom "$file" >"$out/${name}_${version#v}_${os}_$arch.cdx.json"
  done
done

# Manual pages and completions come from the programs, by their flags. All systems have the same.
mkdir "$work/host" "$work/share"
for program in node weir; do
  name="${program/node/weir-node}"
  compile "$("$go" env GOHOSTOS)" "$("$go" env GOHOSTARCH)" "$program" "$work/host/$name"
  "$work/host/$name" man >"$work/share/$name.1"
  gzip -9 -n <"$work/share/$name.1" >"$work/share/$name.1.gz"
  "$work/host/$name" completion bash >"$work/share/$name.bash"
  "$work/host/$name" completion zsh >"$work/share/_$name"
  "$work/host/$name" completion fish >"$work/share/$name.fish"
  "$work/host/$name" completion powershell >"$work/share/$name.ps1"
done

(cd deploy/release && GOWORK=off "$go" run . "$version" "$seconds" "$work" "$out")
cd "$out"
sums="$(sha256sum -- *)"
printf '%s\n' "$sums" >SHA256SUMS
