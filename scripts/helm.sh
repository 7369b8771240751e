#!/usr/bin/env bash
# Runs helm at one version, so that everyone renders the same: the one on the PATH if it is that
# one, else one built now. It is built into the user's cache, once for a machine.
set -euo pipefail

version=3.21.4

built="${XDG_CACHE_HOME:-${HOME:?}/.cache}/weir/helm-$version"
at="$(command -v helm || true)"
if [ -n "$at" ] && [[ "$("$at" version --template '{{.Version}}' 2>/dev/null)" == "v$version" ]]; then
  exec "$at" "$@"
fi
if [ ! -x "$built/helm" ]; then
  echo "building helm v$version into $built; this takes some minutes, once" >&2
  GOBIN="$built" GOFLAGS= go install "helm.sh/helm/v3/cmd/helm@v$version"
fi
exec "$built/helm" "$@"
