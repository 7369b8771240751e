#!/usr/bin/env bash
# Fails if `go generate` would change anything. Work that is not committed yet
# is left alone: what counts is the difference that generating makes.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! grep -rlq --include='*.go' '^//go:generate ' .; then
  exit 0
fi
state() { git diff --binary; git ls-files -z --others --exclude-standard | xargs -0 -r sha256sum; }
before="$(state)"
go generate ./...
if [ "$(state)" != "$before" ]; then
  echo "generated code is out of date; it has been generated now, so commit this:" >&2
  git status --short >&2
  exit 1
fi
