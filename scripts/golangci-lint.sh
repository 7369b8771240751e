#!/usr/bin/env bash
# Runs golangci-lint at one version, so that everyone sees the same findings: the one
# in bin/, else the one on the PATH, else one built now. It is built into the user's
# cache and not into bin/, so that it is built once for a machine and not for each clone.
set -euo pipefail

version=2.15.0

bin="$(cd "$(dirname "$0")/.." && pwd)/bin"
gobin="$(go env GOBIN)"
built="${XDG_CACHE_HOME:-${HOME:-$bin}/.cache}/weir/golangci-lint-$version"
for at in "$bin/golangci-lint" "$(command -v golangci-lint || true)" "${gobin:-$(go env GOPATH)/bin}/golangci-lint" "$built/golangci-lint"; do
  if [ -x "$at" ] && [ "$("$at" version --short 2>/dev/null)" = "$version" ]; then
    exec "$at" "$@"
  fi
done
echo "building golangci-lint v$version into $built; this takes some minutes, once" >&2
GOBIN="$built" GOFLAGS= go install "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v$version"
exec "$built/golangci-lint" "$@"
