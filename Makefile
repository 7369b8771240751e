# All that CI does is here, and can be done anywhere: `make test`.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c

GO        ?= go
FUZZTIME  ?= 10m   # per fuzz target, for `make fuzz` and `make test-long`
WEIR_SEEDS ?= 2000 # per randomised test, for `make test-long`
BENCH     ?= .     # which benchmarks, a regular expression
COUNT     ?= 1     # how often each benchmark runs; 10 for benchstat
TRIALS    ?= 2     # of each fault, for `make chaos` and `make chaos-docker`
CUTS      ?= 2     # of each way to end all members, for `make cuts`
SOAK      ?= 30m   # how long `make soak` lasts
ATTACK    ?= 1h    # how long `make attack` lasts
SHORT     ?= -short # leaves long tests out of `make race` and two thirds of the suite out of `make wire`; empty: all of them
PACKAGES  ?= 3     # how many packages `make race` builds and tests at a time: some only wait
TESTFLAGS ?=       # more flags for go test, such as -v or -count=1

# The packages whose tests take the longest, or wait for real time the longest: they begin first.
WAITING := ./limiter/table ./redisstore ./internal/cluster/gossip ./internal/peerlink

# What `make race` leaves to `make wire`, where there is SHORT: packages in which, tests included,
# one goroutine does everything, so that the race detector has nothing to find and makes them many
# times slower (internal/archtest holds the list); and chaos, which is for tests only.
MODULE := github.com/weirlimit/weir
ALONE  := internal/archtest limiter/limitertest limiter/calendar internal/cluster/replica internal/cluster/view internal/disk
SPARED := ^$(MODULE)/(chaos(/.*)?|$(subst $() $(),|,$(strip $(ALONE))))$$

# What `make quick` leaves to `make test`: packages whose tests are of real servers and real
# processes, and those that simulate or start whole clusters.
WHOLE := ^$(MODULE)/(redisstore|cluster|cmd/node|cmd/weir|cmd/weir/internal/cli|chaos/(sim|compose|scenario))$$

# The compiler and the linker live for seconds: without collections they take a fifth less time.
TOOLEXEC := -toolexec=env GOGC=off GOMEMLIMIT=2GiB
COMPILE  := '$(TOOLEXEC)'

.DEFAULT_GOAL := help
.NOTPARALLEL:

.PHONY: help
help: ## This list
	@grep -hE '^[a-z][a-z-]*:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

.PHONY: test
test: deps tidy fmt lint race wire kill systems generated docs-module ## All that CI runs, in minutes: nothing that takes long, which is for `make test-long`

.PHONY: quick
quick: vet ## go vet, and the unit tests that are not long: the round while you work
	$(GO) test -short -skip '^TestConformance$$' -vet=off $(COMPILE) -p 5 -timeout 5m $(TESTFLAGS) $(filter-out ./redisstore,$(WAITING)) ./cmd/node/internal/server $$($(GO) list ./... | grep -vE '$(WHOLE)')

.PHONY: test-long
test-long: deps tidy fmt lint lint-modules ## All tests, with and without the race detector, and then with WEIR_SEEDS seeds; other systems compiled, the image, the protections taken out, 200 mixes of faults on real processes, every fuzz target for FUZZTIME (10m); all of it, also when a part fails
	@failed=(); trap 'exit 130' INT TERM; part() { echo "$$*"; "$$@" || failed+=("$$*"); }; \
	part $(MAKE) race SHORT=; \
	part $(MAKE) wire SHORT=; \
	part $(MAKE) cross; \
	part $(MAKE) generated; \
	part $(MAKE) bench-module; \
	part $(MAKE) examples-module; \
	part $(MAKE) deploy-module; \
	part $(MAKE) docs-module; \
	part $(MAKE) compose-test; \
	part $(MAKE) pods-test; \
	part $(MAKE) upgrade-test; \
	part $(MAKE) release-module; \
	part $(MAKE) release-test; \
	part $(MAKE) packages-test; \
	part $(MAKE) alerts-test; \
	part env WEIR_SEEDS=$(strip $(WEIR_SEEDS)) WEIR_SIM_SEEDS=2500 WEIR_JOIN_KEYS=1000000 $(GO) test -count=1 -timeout 4h $(TESTFLAGS) ./... ./chaos/...; \
	part $(MAKE) mutate; \
	part $(MAKE) mutate-real; \
	part $(GO) run ./chaos -only mix -trials 200; \
	part $(MAKE) attack; \
	part scripts/fuzz.sh $(strip $(FUZZTIME)); \
	if [ $${#failed[@]} -gt 0 ]; then printf 'failed: %s\n' "$${failed[@]}"; exit 1; fi

.PHONY: fuzz
fuzz: ## Every fuzz target for FUZZTIME (10m), or those that match FUZZ
	scripts/fuzz.sh $(strip $(FUZZTIME))

.PHONY: mutate
mutate: ## Each protection of the protocol taken out, and the seed that notices
	$(GO) run ./chaos/mutate

.PHONY: mutate-real
mutate-real: deps ## The same on real processes, where their clients can notice: up to an hour; as root
	$(GO) run ./chaos/mutate -real

.PHONY: chaos
chaos: deps ## Real processes in network namespaces, every fault TRIALS (2) times, the report in chaos-out; as root
	$(GO) run ./chaos -trials $(strip $(TRIALS))

.PHONY: chaos-docker
chaos-docker: ## The same on the containers of docker-compose.yaml, for those of the faults that they allow; as root
	$(GO) run ./chaos -on docker -trials $(strip $(TRIALS))

.PHONY: soak
soak: deps ## Real processes under load and random faults for SOAK (30m): nothing may grow
	$(GO) run ./chaos -soak $(strip $(SOAK))

.PHONY: attack
attack: ## Three nodes on loopback attacked in every way for ATTACK (1h) while clients ask: no promise may break
	$(GO) run ./chaos -attack $(strip $(ATTACK))

# -vet=off: `make lint` runs all of go vet.
.PHONY: race
race: ## The tests, under the race detector; with SHORT= the long ones too
	$(GO) test -race $(SHORT) -vet=off $(COMPILE) -p $(PACKAGES) -timeout 30m $(TESTFLAGS) $(WAITING) $(if $(strip $(SHORT)),$$($(GO) list ./... | grep -vE '$(SPARED)'),./... ./chaos/...)

.PHONY: wire
wire: ## What the race detector hides or makes long: allocations, nodes in one process, the suite over each protocol, the simulator; with SHORT= all of the suite
	$(GO) test -vet=off $(COMPILE) $(TESTFLAGS) -run Alloc ./metrics ./internal/cluster
	$(GO) test -vet=off $(COMPILE) -p $(PACKAGES) -timeout 10m $(TESTFLAGS) ./cluster ./chaos/sim . ./chaos/attack ./limiter/limitertest ./limiter/calendar ./limiter/table ./ring ./rules ./internal/cluster/replica ./internal/cluster/view ./internal/disk
	$(GO) test $(SHORT) -vet=off $(COMPILE) -timeout 30m $(TESTFLAGS) ./client ./internal/archtest
	$(GO) test $(SHORT) -count=1 -vet=off $(COMPILE) -timeout 30m $(TESTFLAGS) $$($(GO) list ./chaos/... | grep -vE '/(sim|attack)$$') # -count=1: they read files of another module, which the cache does not see
	$(GO) test -vet=off $(COMPILE) -timeout 10m $(TESTFLAGS) -run '^Test(.*OnThreeMembers|Traces.*|Bench|BenchText)$$' ./cmd/node/internal/server ./cmd/weir/internal/cli
	$(GO) test $(SHORT) -vet=off $(COMPILE) -timeout 10m $(TESTFLAGS) -run '^Test(Conformance|RedisConforms|RedisClusterConforms|.*DecideAlike)$$' ./transport ./redisstore

.PHONY: kill
kill: ## Three real processes, of which one is killed while clients ask
	$(GO) test -vet=off -timeout 5m $(TESTFLAGS) -run '^TestKilledOwner$$' ./cmd/node

.PHONY: cuts
cuts: ## Three real processes that all, or mostly, end at once and are back with their directories, each case CUTS (2) times; a full disk, as root
	WEIR_CUTS=$(strip $(CUTS)) $(GO) test -count=1 -vet=off -timeout 90m -parallel 9 $(TESTFLAGS) -run '^Test(Cuts|FullDisk|OverridesSurviveACut)$$' ./cmd/node

.PHONY: systems
systems: ## The type checker finds nothing wrong with code and tests for macOS and Windows
	$(GO) test -count=1 -vet=off $(TESTFLAGS) -run '^TestOtherSystems' ./internal/archtest

.PHONY: build
build: ## bin/node and bin/weir; the node by a profile if bench/pgo.sh took one: somewhat faster, minutes to compile
	$(GO) build -trimpath -pgo=$(or $(wildcard cmd/node/wire.pgo),off) -o bin/ ./cmd/node
	$(GO) build -trimpath -o bin/ ./cmd/weir

.PHONY: bench
bench: ## The benchmarks that match BENCH, COUNT times, and the rivals beside them
	$(GO) test -run '^$$' -bench '$(strip $(BENCH))' -benchmem -count $(strip $(COUNT)) ./...
	if [ -f bench/go.mod ]; then cd bench && $(GO) test -run '^$$' -bench '$(strip $(BENCH))' -benchmem -count $(strip $(COUNT)) ./...; fi

.PHONY: bench-module
bench-module: ## The nested module of rivals builds, and its premises hold
	if [ -f bench/go.mod ]; then cd bench && $(GO) mod tidy -diff && $(GO) vet ./... && $(GO) test $(TESTFLAGS) ./...; fi

.PHONY: examples-module
examples-module: ## The nested module of examples builds, and each of them says 429
	cd examples/middleware && export GOWORK=off && $(GO) mod tidy -diff && $(GO) test -vet=off $(TESTFLAGS) ./...

# Its first run on a machine builds helm; after that it takes seconds.
.PHONY: deploy-module
deploy-module: ## The chart and the Kustomize base: what they render, and the rules for pods
	scripts/helm.sh version >/dev/null
	cd deploy/test && export GOWORK=off && $(GO) mod tidy -diff && $(GO) test -vet=off $(TESTFLAGS) ./...

.PHONY: docs
docs: deps ## site/: the documentation as a web site with search, which loads nothing from elsewhere
	cd docs/site && export GOWORK=off && $(GO) run . "$(CURDIR)/site"

.PHONY: docs-module
docs-module: ## The site is built, and a browser follows each link on it and finds no error
	cd docs/site && export GOWORK=off && $(GO) mod tidy -diff && $(GO) vet ./... && $(GO) test -vet=off $(TESTFLAGS) ./...

.PHONY: console-shots
console-shots: deps ## console-shots/: pictures of all pages of the console, in both widths and themes, for a person to look at
	cd docs/site && export GOWORK=off && CONSOLE_SHOTS="$(CURDIR)/console-shots" $(GO) test -count=1 -timeout 20m -run '^TestConsoleShots$$' .

.PHONY: pods-test
pods-test: ## The pods of the chart as containers, where a Docker engine answers; says so where none does
	scripts/helm.sh version >/dev/null
	cd deploy/test && export GOWORK=off && WEIR_COMPOSE=1 $(GO) test -count=1 -timeout 30m -v -run '^TestPods$$' $(TESTFLAGS) ./...

.PHONY: alerts-test
alerts-test: deps ## Prometheus with the alerts watches three real nodes that are restarted, killed and filled; 45 minutes
	WEIR_ALERTS=1 $(GO) test -count=1 -timeout 90m -v -run '^TestAlertsOnRealNodes$$' $(TESTFLAGS) ./chaos/compose

.PHONY: upgrade-test
upgrade-test: ## A cluster of the last version becomes one of this, member by member, and goes back, while clients ask
	WEIR_UPGRADE=1 $(GO) test -count=1 -timeout 15m -v -run '^TestUpgrade$$' $(TESTFLAGS) ./cmd/node

.PHONY: release
release: ## dist/: archives, packages, images and the chart, with bills of materials and checksums; VERSION=v0.1.0
	scripts/release.sh dist "$${VERSION:?give the version, such as VERSION=v0.1.0}" "$$(git rev-parse HEAD)" "$$(git show -s --format=%ct HEAD)"

.PHONY: release-sign
release-sign: ## dist/SHA256SUMS.sig, by a key of SSH that deploy/release/allowed_signers has; KEY=file
	scripts/release-sign.sh dist "$${KEY:?give the file of the private key}"

.PHONY: release-push
release-push: ## The images in dist/ to a registry, under one tag; TAG=registry.example.com/weir:0.1.0
	cd deploy/release && GOWORK=off $(GO) run . push "$(CURDIR)/dist" "$${TAG:?give the tag of the image}"

.PHONY: release-publish
release-publish: ## dist/ as a release of the repository on GitHub, by its tool gh; VERSION=v0.1.0
	case "$${VERSION:?give the version, such as VERSION=v0.1.0}" in *-*) pre=--prerelease ;; *) pre= ;; esac; \
	gh release create "$$VERSION" $$pre --verify-tag --generate-notes dist/*

.PHONY: release-module
release-module: ## The nested module that packs releases: what is in packages, images and archives
	cd deploy/release && export GOWORK=off && $(GO) mod tidy -diff && $(GO) vet ./... && $(GO) test -vet=off $(TESTFLAGS) ./...

.PHONY: release-test
release-test: ## Two builds of a release have the same bytes; minutes
	cd deploy/release && export GOWORK=off && WEIR_RELEASE=1 $(GO) test -count=1 -timeout 60m -v -run '^TestReproducible$$' $(TESTFLAGS) ./...

.PHONY: packages-test
packages-test: ## A release is installed, upgraded and removed on clean systems, where a Docker engine answers; says so where none does; as root
	scripts/deps.sh packages
	scripts/helm.sh version >/dev/null
	cd deploy/release && export GOWORK=off && WEIR_PACKAGES=1 $(GO) test -count=1 -timeout 60m -v -run '^TestInstalled$$' $(TESTFLAGS) ./...

.PHONY: deps
deps: ## Install what the tests need and this machine lacks (Debian: as root)
	scripts/deps.sh

.PHONY: tidy
tidy: ## go.mod and go.sum are what `go mod tidy` makes them
	$(GO) mod tidy -diff
	cd chaos && $(GO) mod tidy -diff

.PHONY: fmt
fmt: ## Every file is as gofmt makes it
	@files=$$(gofmt -l -s .); if [ -n "$$files" ]; then echo "not formatted; run gofmt -s -w on:"; echo "$$files"; exit 1; fi

.PHONY: vet
vet: ## go vet; `make lint` runs the same analyzers and more
	$(GO) vet ./... ./chaos/...

.PHONY: lint
lint: ## golangci-lint with all of go vet, at the version that scripts/golangci-lint.sh names
	GOFLAGS="$$($(GO) env GOFLAGS) $(COMPILE)" scripts/golangci-lint.sh run ./... ./chaos/...

.PHONY: lint-modules
lint-modules: ## The same for the nested modules
	if [ -f bench/go.mod ]; then cd bench && ../scripts/golangci-lint.sh run ./...; fi
	cd examples/middleware && export GOWORK=off && ../../scripts/golangci-lint.sh run ./...
	cd deploy/test && export GOWORK=off && ../../scripts/golangci-lint.sh run ./...
	cd deploy/release && export GOWORK=off && ../../scripts/golangci-lint.sh run ./...
	cd docs/site && export GOWORK=off && ../../scripts/golangci-lint.sh run ./...

.PHONY: compose-test
compose-test: ## The image and docker-compose.yaml, where a Docker engine answers; says so where none does
	WEIR_COMPOSE=1 $(GO) test -count=1 -timeout 30m -v -run '^TestCompose$$' $(TESTFLAGS) ./chaos/compose

.PHONY: cross
cross: ## Code and tests compile for macOS and Windows
	for os in darwin windows; do \
		echo "GOOS=$$os"; \
		GOOS=$$os CGO_ENABLED=0 $(GO) build ./... ./chaos/...; \
		GOOS=$$os CGO_ENABLED=0 $(GO) vet ./... ./chaos/...; \
	done

.PHONY: generated
generated: ## Generated code is what `go generate` makes of its source
	scripts/generated.sh

.PHONY: clean
clean: ## Remove what the targets above leave behind
	rm -rf bin dist site
