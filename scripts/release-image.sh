#!/usr/bin/env bash
# Builds the image of a release from the commit that is checked out. The image that compiles it is
# given by its digest: a tag names other bytes with each release of Go, and whoever can move it
# decides what is built.
#
#   scripts/release-image.sh TAG VERSION COMMIT golang:1.26@sha256:DIGEST
#
# `docker buildx imagetools inspect golang:1.26` prints the digest. DOCKER names another builder,
# such as podman.
set -euo pipefail

tag="${1:?give the tag of the image, such as registry.example.com/weir:v0.1.0}"
version="${2:?give the version, such as v0.1.0}"
commit="${3:?give the commit that is built}"
base="${4:?give the image that compiles, by its digest: golang:1.26@sha256:...}"

if ! [[ "$base" =~ ^[a-z0-9][a-z0-9._/:-]*@sha256:[0-9a-f]{64}$ ]]; then
  echo "$base is not an image by its digest: give NAME:TAG@sha256: and 64 hexadecimal digits; docker buildx imagetools inspect NAME:TAG prints them" >&2
  exit 1
fi
cd "$(dirname "$0")/.."
# Only these two may be the base of a stage: a third one would come by its tag.
while read -r from; do
  case "$from" in
  '${GO_IMAGE}' | scratch) ;;
  *)
    echo "the Dockerfile begins a stage from $from, which is given by no digest: make it an argument, and check it here" >&2
    exit 1
    ;;
  esac
done < <(awk 'toupper($1) == "FROM" { print $2 }' Dockerfile)
exec "${DOCKER:-docker}" build --pull --build-arg "GO_IMAGE=$base" --build-arg "VERSION=$version" --build-arg "COMMIT=$commit" --tag "$tag" .
