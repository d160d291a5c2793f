# `make demo` and `make test` do all set-up themselves on Debian with Python 3.11 or newer.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2

.PHONY: demo test lint bench bench-small setup wheel-check lock clean

setup: $(VENV)/.installed

$(VENV)/.installed: requirements.lock pyproject.toml
	@bash .ci/bootstrap "$(PYTHON)" "$(VENV)"
	@touch $@

demo: setup            ## the main job on an embedded synthetic fleet: no cluster, no GPU
	@$(BIN)/fallow demo

test: setup            ## every test; those whose server or data is absent say so
	@bash .ci/test-servers
	@$(BIN)/pytest -n $(JOBS) --dist loadgroup

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/sqlfluff lint -q warehouse analyzers actions dashboards

bench: setup           ## full size: minutes; writes bench-results/*.json
	@bash .ci/test-servers
	@$(BIN)/python -m benchmarks

bench-small: setup     ## the same benchmarks, small: keeps them working
	@$(BIN)/python -m benchmarks --small

wheel-check: setup     ## build the wheel and run it outside the checkout
	@bash .ci/wheel-check "$(VENV)"

lock:                  ## refresh requirements.lock: hashes, no addresses
	@$(BIN)/uv pip compile -q --generate-hashes --no-header --no-annotate --no-emit-index-url \
	  --universal --python-version 3.11 pyproject.toml --extra dashboards --group dev -o requirements.lock

clean:
	rm -rf $(VENV) dist build bench-results
