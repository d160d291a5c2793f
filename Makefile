# `make demo` and `make test` do all set-up themselves on Debian with Python 3.11 or newer.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 3
MINUTES ?= 15
SEED ?= 1

.PHONY: demo test test-fast test-long test-field test-kube test-ray soak mutate lint bench bench-small setup wheel-check release sbom audit written lock clean

setup: $(VENV)/.installed

$(VENV)/.installed: requirements.lock pyproject.toml
	@bash .ci/bootstrap "$(PYTHON)" "$(VENV)"
	@touch $@

demo: setup            ## the main job on an embedded synthetic fleet: no cluster, no GPU
	@$(BIN)/fallow demo

# The hundreds of processes that tests start need not compile our modules each anew.
test: setup            ## every test but long ones, with the slowest 20; those whose server or data is absent say so (REQUIRE=1: fail)
	@bash .ci/test-servers $(if $(REQUIRE),--require)
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest -n $(JOBS) -m "not long" --durations=20

test-fast: setup       ## what one runs at every save: no server, no browser, 90 seconds on two cores
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest -q -n $(JOBS) --no-servers --hypothesis-profile=fast \
	  -m "not (slow or long or server or browser or real_data)"

test-long: setup       ## what is too heavy for make test; a release runs it
	@bash .ci/test-servers $(if $(REQUIRE),--require)
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest -n $(JOBS) -m long --durations=20; \
	  code=$$?; [ $$code = 5 ] && { echo "make test-long: no test is marked long"; exit 0; } || exit $$code

test-field: setup      ## the long situations of tests/field (CI runs them)
	@bash .ci/test-servers $(if $(REQUIRE),--require)
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest -q -n $(JOBS) -m long tests/field --durations=20

test-kube: setup       ## what a real API server answers (KUBEBUILDER_ASSETS: its binaries and its controllers'); fails without one
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest -q -n $(JOBS) --kube

test-ray: setup        ## the runner of Ray, on two local nodes, in an environment of its own (285 MB)
	@bash .ci/ray $(VENV)

soak: setup            ## the service among real faults; what it acknowledged is counted at the end (MINUTES=15, SEED=1)
	@bash .ci/test-servers $(if $(REQUIRE),--require)
	@$(BIN)/python -m tests.soak --minutes $(MINUTES) --seed $(SEED)

mutate: setup          ## how many planted faults the tests of what counts notice: 30 minutes, outside CI
	@$(BIN)/python -m tests.mutation --jobs $(JOBS)

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m tests.lint.names
	@$(BIN)/python -m tests.lint.prose
	@$(BIN)/python -m tests.lint.unused
	@! $(BIN)/radon cc -n D actions analyzers capacity collectors dashboards fallow runtime simulator tools warehouse | grep .
	@$(BIN)/sqlfluff lint -q --processes 0 warehouse capacity analyzers actions dashboards
	@$(BIN)/python -m tests.lint.size

bench: setup           ## full size, quiet cores; writes bench-results/*.json and fails where a gate is crossed (benchmarks/gates.csv)
	@bash .ci/test-servers
	@$(BIN)/python -m benchmarks

bench-small: setup     ## the same benchmarks, small: keeps them working
	@$(BIN)/python -m benchmarks --small

wheel-check: setup     ## build the wheel and run it outside the checkout
	@bash .ci/wheel-check "$(VENV)"

release: setup         ## dist/: the wheel, the chart, and the image where a builder and its base can be had (BASE=...)
	@bash .ci/release "$(VENV)"

sbom: setup            ## dist/fallow.cdx.json: what the image contains, as CycloneDX
	@bash .ci/supply-chain sbom "$(VENV)"

audit: setup           ## known vulnerabilities of what the image contains; fails where no source of advisories answers
	@bash .ci/supply-chain audit "$(VENV)"

written: setup         ## write what the code declares: reference pages, architecture, roles, the chart, its manifests
	@$(BIN)/uv pip install -q --require-hashes -r deploy/helm/tools.lock
	@$(BIN)/python -m tools.reference docs
	@$(BIN)/python -m tools.architecture docs
	@$(BIN)/python -m tools.rbac deploy/rbac
	@$(BIN)/python -m tools.chart deploy/helm/fallow
	@$(BIN)/python -m tools.manifests deploy

lock:                  ## refresh requirements.lock: hashes, no addresses
	@$(BIN)/uv pip compile -q --generate-hashes --no-header --no-annotate --no-emit-index-url \
	  --universal --python-version 3.11 pyproject.toml --extra dashboards --extra reports --group dev -o requirements.lock
	@$(BIN)/uv pip compile -q --generate-hashes --no-header --no-annotate --no-emit-index-url \
	  --universal --python-version 3.11 pyproject.toml --extra dashboards --extra reports --extra otel \
	  --group image -c requirements.lock -o deploy/container/requirements.lock
	@$(BIN)/uv pip compile -q --generate-hashes --no-header --no-annotate --no-emit-index-url \
	  --universal --python-version 3.11 pyproject.toml --extra dashboards --extra reports --extra otel --extra ray \
	  --group image -c requirements.lock -c deploy/container/requirements.lock -o deploy/container/requirements.ray.lock
	@$(BIN)/uv pip compile -q --generate-hashes --no-header --no-annotate --no-emit-index-url \
	  --universal --python-version 3.11 --group chart -c requirements.lock -o deploy/helm/tools.lock
	@$(BIN)/uv pip compile -q --generate-hashes --no-header --no-annotate --no-emit-index-url \
	  --universal --python-version 3.11 --group supply-chain -o .ci/supply-chain.lock

clean:
	rm -rf $(VENV) dist build bench-results
