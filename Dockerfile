# The node program (/node, what the image runs) and the operator's tool (/weir),
# and nothing else: no shell, no libraries.
#
#   docker build -t weir --build-arg VERSION=v0.1.0 --build-arg COMMIT="$(git rev-parse HEAD)" .
#   docker run --rm -p 127.0.0.1:8080:8080 weir
#
# That compiles with whatever the tag below names today; to fix it, give the image by its digest:
# --build-arg GO_IMAGE=golang:1.26@sha256:... The image of a release, which deploy/release makes
# without this file, says the same of itself (docs/decisions.md, "The image names a tag").
ARG GO_IMAGE=golang:1.26
FROM ${GO_IMAGE} AS build
WORKDIR /src

# Where modules come from; without them Go's own defaults hold.
ARG GOPROXY
ARG GOSUMDB
ARG GONOSUMDB

# The modules are a layer of their own: it stays as long as go.mod does.
COPY go.mod go.sum ./
RUN go mod download

COPY . .
ARG VERSION=""
ARG COMMIT=""
# With cmd/node/wire.pgo, which bench/pgo.sh takes, it builds by a profile: somewhat
# faster, and minutes longer to build.
ARG PGO=off
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -pgo="$PGO" \
      -ldflags "-s -w -X github.com/weirlimit/weir/internal/built.released=$VERSION -X github.com/weirlimit/weir/internal/built.commit=$COMMIT" \
      -o /out/ ./cmd/node ./cmd/weir && mkdir -p /keys /data /authority /members/node-1 /members/node-2 /members/node-3 /members/node-4 /links/bin && ln -s /node /links/bin/ratelimit

FROM scratch
# For Redis over TLS.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/node /out/weir /

# Called by this name the node serves by the environment of envoyproxy/ratelimit.
COPY --from=build /links/ /

# Where volumes for a cluster's keys, for the key of its authority and for a member's counters are
# mounted: they get this owner from here.
COPY --from=build --chown=65532:65532 /keys /keys
COPY --from=build --chown=65532:65532 /authority /authority
COPY --from=build --chown=65532:65532 /data /data
# docker-compose.yaml has a volume for the keys of each member.
COPY --from=build --chown=65532:65532 /members /members

# A user that no machine knows. The node writes no files, but for "node keys" and --data-dir.
USER 65532:65532

# In a container loopback is nobody else's, so the node listens everywhere; which
# of it can be reached is up to whoever publishes ports. In a cluster, members
# use 7946 (gossip, TCP and UDP) and 7947 (checks). Administration (8082) and health
# (8083) stay on loopback, for commands that run in the container.
ENV WEIR_HTTP_ADDR=:8080 WEIR_GRPC_ADDR=:8081
EXPOSE 8080 8081 7946 7946/udp 7947

HEALTHCHECK --interval=5s --timeout=3s --start-period=15s --retries=3 CMD ["/node", "health"]
ENTRYPOINT ["/node"]
