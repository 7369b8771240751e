#!/usr/bin/env bash
# Makes gubernator.pb.go and gubernator_grpc.pb.go of gubernator.proto. It needs protoc; the
# plugins it builds itself, protoc-gen-go at the version of the library in
# go.mod, so that the code that is made fits the code that runs it.
set -euo pipefail
cd "$(dirname "$0")"

command -v protoc >/dev/null || {
  echo "protoc is missing: install it (Debian: apt-get install protobuf-compiler), then run go generate again" >&2
  exit 1
}
bin="$(mktemp -d)"
trap 'rm -rf "$bin"' EXIT
go build -o "$bin/protoc-gen-go" google.golang.org/protobuf/cmd/protoc-gen-go
GOBIN="$bin" go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2

# The name by which others import the file is gubernator/v1/gubernator.proto.
protoc --plugin="$bin/protoc-gen-go" --plugin="$bin/protoc-gen-go-grpc" -I ../.. \
  --go_out=../.. --go_opt=paths=source_relative \
  --go-grpc_out=../.. --go-grpc_opt=paths=source_relative ../../gubernator/v1/gubernator.proto

# Another protoc makes the same code, so its version is not written down.
sed -i.bak -E '/^\/\/ (- )?[[:space:]]*protoc[[:space:]]+v/d' gubernator.pb.go gubernator_grpc.pb.go
rm -f gubernator.pb.go.bak gubernator_grpc.pb.go.bak
