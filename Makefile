# make help lists the targets. Nothing here needs more than Go, except where a
# line says so.

GO        ?= go
PLATFORMS := linux/amd64 linux/arm64 darwin/arm64 windows/amd64 freebsd/amd64
URLS      := redis://127.0.0.1:7001,redis://127.0.0.1:7002,redis://127.0.0.1:7003,redis://127.0.0.1:7004,redis://127.0.0.1:7005
SEED      ?= 1
MODULES   := bench chaos contrib/certmagic contrib/gocron contrib/goredis contrib/grpc contrib/otel contrib/prometheus contrib/redsync examples/sqlfence
DURATION  ?= 2m
SCENARIO  ?= steady
CROSSED   ?= ./...
SERVERS   ?= redis valkey
SCHEDULES ?= 20000
VERSION   ?=
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0
GORELEASER  := github.com/goreleaser/goreleaser/v2@v2.15.1

.DEFAULT_GOAL := help
.PHONY: help demo quick test servers-test race modules check full fmt vet cross mutants lint vuln schedules seed soak bench benchmarks chaos image release snapshot up down

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## take and lose a lock on five servers in this process
	$(GO) run ./cmd/redlock demo

# Those that start no servers.
UNIT = $$($(GO) list ./... | grep -Ev 'redquorum$$|/cmd/redlock$$|/(examples|integration|spec)(/|$$)|/internal/(demo|doctor|fleet|job|evidence/mutants)(/|$$)')

# A server that is not there makes the tests on real servers skip themselves.
quick: export REDLOCK_TEST_SERVER = /none
quick: ## while you work: vet, the unit tests without servers, a hundred schedules; under a minute
	$(GO) vet ./...
	$(GO) test -short $(UNIT)
	$(GO) test -run '^TestQuorumSchedules$$' . -schedules 100

test: ## run the tests but for what takes long (REDLOCK_LONG=1); parts without redis-server or Docker are skipped
	@command -v "$${REDLOCK_TEST_SERVER:-redis-server}" >/dev/null || command -v valkey-server >/dev/null || \
		echo "no redis-server here: the tests on real servers are SKIPPED (REDLOCK_REQUIRE=redis makes them fail)"
	@docker info >/dev/null 2>&1 || echo "no Docker here: the tests in containers are SKIPPED (REDLOCK_REQUIRE=docker makes them fail)"
	$(GO) test ./...

# Containers have a server of their own, so there must seem to be no Docker. Two servers at a time:
# most of it is waiting.
servers-test: ## test on the newest Redis and Valkey: make servers-test SERVERS="redis-6 valkey" (needs Debian's apt-get)
	@servers=$$(./integration/servers.sh $(SERVERS)) || exit 1; \
	export DOCKER_HOST=unix:///dev/null REDLOCK_REQUIRE="$${REDLOCK_REQUIRE:-redis}"; \
	echo "$$servers" | tr ' ' = | GO="$(GO)" xargs -P 2 -I SERVER ./integration/on-server.sh SERVER

race: ## run the tests under the race detector
	$(GO) test -race -count=1 -timeout 30m ./...

# Two at a time: much of it is waiting.
modules: ## run the tests of the modules beside this one
	@printf '%s\n' $(MODULES) | xargs -P 2 -I MODULE $(GO) -C MODULE test ./...

check: SCHEDULES = 2000
check: fmt vet lint test schedules mutants ## before a change: format, vet, staticcheck, the tests, 2,000 schedules, all mutants; under ten minutes

full: export REDLOCK_LONG = 1
full: fmt vet cross lint test race modules schedules mutants ## everything but the servers that CI starts: all platforms, -race, tests that take long, all mutants; over half an hour

fmt: ## fail if a file is not gofmt'ed
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "$$unformatted" >&2; exit 1; }

vet: ## go vet, all modules
	$(GO) vet ./...
	@for m in $(MODULES); do $(GO) -C $$m vet ./... || exit 1; done

cross: ## vet, and so compile, for every platform
	@for p in $(PLATFORMS); do \
		echo "$$p"; \
		GOOS=$${p%/*} GOARCH=$${p#*/} CGO_ENABLED=0 $(GO) vet $(CROSSED) || exit 1; \
	done

mutants: ## break each guard on purpose, and see its test fail, in two minutes
	$(GO) run ./internal/evidence/mutants

lint: ## staticcheck
	$(GO) run $(STATICCHECK) ./...

vuln: ## look for known vulnerabilities that are called, all modules (asks vuln.go.dev)
	@for m in . $(MODULES); do $(GO) -C $$m run $(GOVULNCHECK) ./... || exit 1; done

schedules: ## schedules of the simulation: make schedules SCHEDULES=20000
	$(GO) test -count=1 -timeout 0 -run '^TestQuorumSchedules$$' -v . -schedules $(SCHEDULES)

seed: ## replay one schedule of the simulation: make seed SEED=42
	$(GO) test -count=1 -run '^TestQuorumSchedules$$' -v . -seed $(SEED)

soak: ## try new schedules of the simulation for a while: make soak DURATION=10m
	$(GO) test -count=1 -timeout 0 -run '^TestQuorumSchedules$$' -v . -soak $(DURATION)

bench: ## measure beside other libraries: make bench SCENARIO=pause (needs redis-server)
	$(GO) -C bench run . --nodes process --scenario $(SCENARIO)

benchmarks: ## measure docs/BENCHMARKS.md and its pictures anew, on a quiet machine, in a quarter of an hour (needs redis-server)
	$(GO) -C bench run . --document ../docs/BENCHMARKS.md

chaos: ## break real servers, clients and the network: make chaos DURATION=10m (needs redis-server)
	$(GO) -C chaos run . --duration $(DURATION)

image: ## make the test image from this machine's redis-server (needs Docker)
	./integration/image.sh

release: ## commit and tag a release here: make release VERSION=1.0.0 (docs/RELEASING.md)
	@echo "$(VERSION)" | grep -Eqx '[01]\.[0-9]+\.[0-9]+(-[0-9a-z.]+)?' || { echo "VERSION must be one such as 1.0.0 or 1.1.0-rc.1" >&2; exit 1; }
	@test -z "$$(git status --porcelain)" || { echo "there are changes that are not committed" >&2; exit 1; }
	for module in contrib/*/; do $(GO) -C $$module mod edit -require=github.com/redquorum/redquorum@v$(VERSION) || exit 1; done
	sed -i.old "s/^## \[Unreleased\]$$/&\n\n## [$(VERSION)] - $$(date +%F)/" CHANGELOG.md && rm CHANGELOG.md.old
	git commit -qam "release: $(VERSION)"
	for module in "" $$(ls -d contrib/*/); do git tag -am "$${module}v$(VERSION)" "$${module}v$(VERSION)" || exit 1; done

snapshot: ## build what a release publishes, into dist, without a release
	$(GO) run $(GORELEASER) release --snapshot --clean

up: ## start five Redis by docker-compose on ports 7001 to 7005 (needs Docker)
	docker-compose up -d

down: ## stop them and delete their data
	docker-compose down -v
