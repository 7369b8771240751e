#!/usr/bin/env bash
# Makes the Go code of a .proto file, which is named as others import it, such as weir/v1/weir.proto.
# It needs protoc; the plugins it builds itself, protoc-gen-go at the version of the library in
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

protoc --plugin="$bin/protoc-gen-go" --plugin="$bin/protoc-gen-go-grpc" -I . \
  --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative "$1"

# Another protoc makes the same code, so its version is not written down.
made=("${1%.proto}.pb.go" "${1%.proto}_grpc.pb.go")
sed -i.bak -E '/^\/\/ (- )?[[:space:]]*protoc[[:space:]]+v/d' "${made[@]}"
rm -f "${made[@]/%/.bak}"
