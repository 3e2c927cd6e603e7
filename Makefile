# `make help` says what there is. Every stage of `make test` can be run alone: `make race`, `make fuzz FUZZTIME=1m`, ...

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# A workspace file of the person who builds must not change what is tested.
export GOWORK := off

PKG       ?= ./...
FUZZTIME  ?= 10s
SOAKTIME  ?= 2m
# Of make microbench and make bench.
BENCH      ?= .
BENCHTIME  ?= 1s
BENCHFLAGS ?=

STATICCHECK_VERSION := v0.8.2

BIN      := $(CURDIR)/.tools/bin
STATICCHECK := $(BIN)/staticcheck-$(STATICCHECK_VERSION)
RESULTS  := $(CURDIR)/.tools/results
TESTRUN  := $(BIN)/testrun
SKIPS    := test/skips.txt
DOCS     := README.md $(wildcard docs/*.md)
# A test binary that hangs is ended, with all its stacks, after this time.
TIMEOUT  := $(if $(BAREWIRE_FULL),40m,15m)

# The packages that have tests for a guest (build tag guest, see docs/guest.md).
GUESTPKG = $(sort $(dir $(shell find . -name '*_guest_test.go' -not -path './.tools/*')))

# The packages whose tests drive programs of others, DPDK's, on this machine (build tag interop).
INTEROPPKG = $(sort $(dir $(shell find . -name '*_interop_test.go' -not -path './.tools/*')))

STAGES := fmt vet lint build arm64 plain race interop benchtest guest tooltest cost docs fuzz

.PHONY: help
help: ## what the targets are
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: test
test: ## everything that must hold before a change goes in (at most 30 minutes on two cores)
	@if [ -n "$${BAREWIRE_DOCS:-}" ]; then \
	  echo "make test runs the documentation's blocks, so it is not run again from inside one"; \
	else .ci/stages $(STAGES); fi

.PHONY: full
full: export BAREWIRE_FULL := 1
full: ## make test with the whole matrices, and mutants and the soak (at most 90 minutes)
	@.ci/stages $(STAGES) mbufcheck mutants soak

# --- The stages of make test.

.PHONY: fmt
fmt: ## gofmt has nothing to say
	@find . -name '*.go' -not -path './.tools/*' -print0 | xargs -0 gofmt -l | awk '{print "gofmt -w " $$0} END {exit NR > 0}'

.PHONY: vet
vet: ## go vet, also with the buffer checks and with the tests for guests; go.mod says what is used
	go mod tidy -diff
	go -C tools mod tidy -diff
	go -C bench mod tidy -diff
	go vet $(PKG)
	go vet -tags mbufcheck $(PKG)
	go vet -tags guest $(PKG)
	go vet -tags interop $(PKG)
	go -C tools vet ./...
	go -C bench vet ./...

.PHONY: lint
lint: $(STATICCHECK) tools ## staticcheck and the project's own analyzers
	printf '%s\n' 'plain: -tags=' 'checks: -tags=mbufcheck' 'guest: -tags=guest' 'interop: -tags=interop' 'arm: GOARCH=arm64' | $(STATICCHECK) -matrix $(PKG)
	cd tools && $(STATICCHECK) ./...
	cd bench && $(STATICCHECK) ./...
	$(BIN)/lint $(PKG)
	GOFLAGS="$${GOFLAGS:-} -tags=mbufcheck" $(BIN)/lint $(PKG)
	GOFLAGS="$${GOFLAGS:-} -tags=guest" $(BIN)/lint $(PKG)
	GOFLAGS="$${GOFLAGS:-} -tags=interop" $(BIN)/lint $(PKG)

.PHONY: build
build: ## everything builds without cgo
	CGO_ENABLED=0 go build $(PKG)
	CGO_ENABLED=0 go build -tags mbufcheck $(PKG)
	CGO_ENABLED=0 go -C bench build -o /dev/null ./...

.PHONY: arm64
arm64: ## everything builds and vets for arm64
	CGO_ENABLED=0 GOARCH=arm64 go build $(PKG)
	CGO_ENABLED=0 GOARCH=arm64 go vet $(PKG)

.PHONY: plain
plain: tools ## the tests as a user's build runs them: results, allocations
	@.ci/need xz ip
	CGO_ENABLED=0 $(TESTRUN) -name plain -skips $(SKIPS) $(if $(filter ./...,$(PKG)),-complete '!^Test(Guest|Interop)') -save $(RESULTS)/plain.json -- -timeout $(TIMEOUT) $(PKG)

.PHONY: race
race: tools ## the tests under the race detector and the buffer checks
	@.ci/need gcc /usr/include/stdlib.h xz ip
	CGO_ENABLED=1 $(TESTRUN) -name race -skips $(SKIPS) -save $(RESULTS)/race.json -- -race -tags mbufcheck -timeout $(TIMEOUT) $(PKG)

# One at a time (-p 1): each keeps two processors busy.
.PHONY: interop
interop: tools ## the tests against DPDK's virtio on this machine (INTEROPPKG=./dir/ for some of them)
	@.ci/need dpdk-testpmd
	CGO_ENABLED=0 $(TESTRUN) -name interop -skips $(SKIPS) $(if $(filter file,$(origin INTEROPPKG)),-complete '^TestInterop') -save $(RESULTS)/interop.json -- -tags interop -run Interop -count 1 -p 1 -timeout $(TIMEOUT) $(INTEROPPKG)

# One guest at a time (-p 1): each takes the whole machine, and go test's time-outs count while it waits for another.
# Nothing is taken from an earlier run (-count 1): the go command does not see what a test has built by it.
.PHONY: guest
guest: tools ## the tests that run in virtual machines (GUESTPKG=./dir/ for some of them)
	@.ci/need qemu-system-x86_64 xz ip
	CGO_ENABLED=0 $(TESTRUN) -name guest -skips $(SKIPS) $(if $(filter file,$(origin GUESTPKG)),-complete '^TestGuest') -save $(RESULTS)/guest.json -- -tags guest -run Guest -count 1 -p 1 -timeout $(TIMEOUT) $(GUESTPKG)

.PHONY: tooltest
tooltest: tools ## the tests of the tools themselves
	@.ci/need valgrind
	$(TESTRUN) -name tooltest -C tools -save $(RESULTS)/tooltest.json -- -timeout $(TIMEOUT) ./...

# Nothing is taken from an earlier run (-count 1): the go command does not see DPDK.
.PHONY: benchtest
benchtest: tools ## the tests of bench/: the peers that we are measured against move every frame, too
	@.ci/need gcc pkg-config /usr/include/stdlib.h /usr/include/dpdk/rte_ethdev.h
	CGO_ENABLED=0 $(TESTRUN) -name benchtest -C bench -save $(RESULTS)/benchtest.json -- -count 1 -timeout $(TIMEOUT) ./...

.PHONY: cost
cost: tools ## instructions per packet, against test/cost.txt
	@.ci/need valgrind
	$(BIN)/cost -v -least 2 -file test/cost.txt

.PHONY: docs
docs: tools ## the documentation's shell blocks, as written, here or in a guest
	@.ci/need qemu-system-x86_64 xz ip
	$(BIN)/docsh -kinds ci,guest -save $(RESULTS)/docs.json $(DOCS)

.PHONY: fuzz
fuzz: tools ## every fuzz target for FUZZTIME each (10s)
	$(TESTRUN) -name fuzz -fuzz $(FUZZTIME) -save $(RESULTS)/fuzz.json $(PKG)

# --- What make full adds.

.PHONY: mbufcheck
mbufcheck: tools ## the tests under the buffer checks alone
	CGO_ENABLED=0 $(TESTRUN) -name mbufcheck -skips $(SKIPS) -save $(RESULTS)/mbufcheck.json -- -tags mbufcheck -timeout $(TIMEOUT) $(PKG)

.PHONY: mutants
mutants: tools ## faults put into the code on purpose: each must make a test fail; faults of the software card, and who notices them
	$(BIN)/mutants -save $(RESULTS)/mutants.json test/mutants/*.mut
	@.ci/need qemu-system-x86_64 xz
	BAREWIRE_FAULTS=1 CGO_ENABLED=0 go test -tags guest -run 'TestGuestFaults|TestGuestTestpmd$$' -v -count 1 -p 1 -timeout 60m ./test/judges/linux ./test/judges/dpdk \
	  | awk '/^[-=]|^(ok|FAIL|PASS)/ {p = 0} /fault × judge/ {p = 1} p || /^(ok|FAIL|---)/'

.PHONY: soak
soak: tools ## the tests named Soak under the race detector for SOAKTIME each (2m)
	@.ci/need gcc /usr/include/stdlib.h
	BAREWIRE_SOAK=$(SOAKTIME) CGO_ENABLED=1 $(TESTRUN) -name soak -skips $(SKIPS) -save $(RESULTS)/soak.json -- -race -tags mbufcheck -run Soak -timeout 60m $(PKG)

# --- By hand.

.PHONY: cost-update
cost-update: tools ## write the measured figures to test/cost.txt
	@.ci/need valgrind
	$(BIN)/cost -file test/cost.txt -update

.PHONY: bench
bench: ## peers side by side, for some minutes: virtio front ends on DPDK's vhost (BENCHFLAGS='-runs 3 -rate'; see docs/performance.md)
	@.ci/need gcc pkg-config /usr/include/stdlib.h /usr/include/dpdk/rte_ethdev.h
	@CGO_ENABLED=0 go -C bench build -o $(BIN)/bench-vhost ./vhost
	$(BIN)/bench-vhost $(BENCHFLAGS)

.PHONY: microbench
microbench: ## the benchmarks of the packages (BENCH=regexp BENCHTIME=1s)
	go test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -benchmem $(PKG)

.PHONY: hw
hw: ## the driver's tests on a real card in MAC loopback, and a report to send in (PCI=ADDR ACCESS=vfio|noiommu|sysfs)
	@[ -n "$(PCI)" ] || { echo "say which card: make hw PCI=0000:03:00.0 (go run ./cmd/pktgen devices lists them)" >&2; exit 2; }
	CGO_ENABLED=0 go test -c -o $(BIN)/hw.test ./test/hw
	PCI='$(PCI)' ACCESS='$(ACCESS)' $(BIN)/hw.test -test.run '^TestCard$$' -test.timeout 30m

.PHONY: clean
clean: ## forget built tools and results
	rm -rf .tools

.PHONY: tools
tools: # the project's own tools, in .tools/bin
	@go -C tools build -o $(BIN)/ ./cmd/...

$(STATICCHECK):
	GOBIN=$(BIN) go install honnef.co/go/tools/cmd/staticcheck@$(STATICCHECK_VERSION)
	@mv $(BIN)/staticcheck $@
