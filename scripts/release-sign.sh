#!/usr/bin/env bash
# Signs the checksums of a release with a key of SSH, and verifies the signature as a user does, by
# the public keys that the repository has: none of another key can be published.
#
#   scripts/release-sign.sh DIRECTORY KEY [ALLOWED_SIGNERS]
set -euo pipefail

out="${1:?give the directory of the release}"
key="${2:?give the file of the private key}"
allowed="${3:-$(dirname "$0")/../deploy/release/allowed_signers}"

rm -f "$out/SHA256SUMS.sig"
ssh-keygen -q -Y sign -f "$key" -n weir-release "$out/SHA256SUMS"
if ! ssh-keygen -q -Y verify -f "$allowed" -I release@weir -n weir-release -s "$out/SHA256SUMS.sig" <"$out/SHA256SUMS"; then
  rm -f "$out/SHA256SUMS.sig"
  echo "$key is not the key of releases: its public half is not in $allowed" >&2
  exit 1
fi
