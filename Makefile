# make build   the program, into bin/
# make test    every test that needs no special build
# make lint    formatting, vet and staticcheck, for every system that is built for
# make demo    from a repository to a reviewed merge, in a folder of its own
# make bench   one table of ratios against plain git
# make ci      all that .ci/run does

GO ?= go
STATICCHECK = $(GO) tool -modfile=tools/go.mod staticcheck

.PHONY: build test lint cross demo bench ci deps

build:
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/agents ./cmd/agents

deps:
	@scripts/install-deps

test: deps
	scripts/test

lint:
	@out=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$out" ]; then echo "gofmt would change:"; echo "$$out"; exit 1; fi
	@bad=0; for tags in "" failpoint; do \
		$(GO) vet -tags "$$tags" ./... || bad=1; \
		$(STATICCHECK) -tags "$$tags" ./... || bad=1; \
	done; exit $$bad

cross:
	@set -e; for target in darwin/arm64 windows/amd64; do \
		echo "build and vet for $$target"; \
		export GOOS=$${target%/*} GOARCH=$${target#*/} CGO_ENABLED=0; \
		$(GO) build -o /dev/null ./cmd/agents; \
		$(GO) build ./...; \
		$(GO) vet ./...; \
	done

demo: build
	scripts/demo bin/agents

bench: deps build
	$(GO) run ./bench

ci:
	.ci/run
