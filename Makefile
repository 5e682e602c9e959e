# Sojourn: every task of the project. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
# The models solve many small systems: threads of the linear algebra only get in each other's way.
export OPENBLAS_NUM_THREADS ?= 1
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SOURCES := operator/sojourn tests benchmarks deploy

.PHONY: help setup demo test test-all unit lint format generate verify build lock clean \
	bench bench-model bench-memory bench-tick bench-admission

help: ## list these targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 18

setup: $(READY) ## make the virtual environment from the lock file (network only when it changes)

$(READY): requirements.lock pyproject.toml
	@echo "setup: installing the locked dependencies into $(VENV)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --no-index --editable .
	@touch $(READY)

demo: setup ## a real control plane, Prometheus and simulated engines; DEMO=short, KEEP=1
	$(BIN)/python -m tests.e2e.demo

test: setup ## unit, integration and the short end-to-end tests
	$(BIN)/python -m tests.controlplane.binaries
	$(BIN)/python -m pytest -m "not slow and not scale and not soak"

test-all: setup ## every test, the slow and the large ones too
	$(BIN)/python -m tests.controlplane.binaries
	$(BIN)/python -m pytest

unit: setup ## the unit tests alone
	$(BIN)/python -m pytest -q tests/unit -m "not slow"

lint: setup ## style, types and the import law
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(SOURCES)
	$(BIN)/lint-imports

format: setup ## rewrite the sources in the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

generate: setup ## write CRDs, chart copies and reference pages from their one source
	$(BIN)/python deploy/generate.py

verify: setup ## fail if a generated file differs from its source
	$(BIN)/python deploy/generate.py --check

bench: bench-model bench-memory bench-tick ## print every benchmark that needs no cluster

bench-model: setup ## accuracy and speed of the queueing models
	$(BIN)/python -m benchmarks.queueing --rows tests/data/queueing_reference.json
	$(BIN)/python -m benchmarks.queueing_honesty tests/data/queueing_reference.json
	$(BIN)/python -m benchmarks.model_speed

bench-memory: setup ## memory verdicts and service-time fits against published cases
	$(BIN)/python -m benchmarks.memory --cases tests/data/memory_cases.json
	$(BIN)/python -m benchmarks.profiles --profiles tests/data/service_profiles.json

bench-tick: setup ## a tick of thousands of services, by phase
	$(BIN)/python -m benchmarks.observe
	$(BIN)/python -m benchmarks.tick

bench-admission: setup ## admission latency through a real API server
	$(BIN)/python -m benchmarks.admission
	$(BIN)/python -m benchmarks.admission_in_tick

build: setup ## wheel and source distribution into dist/
	$(BIN)/python -m hatchling build

lock: ## resolve the dependencies anew and pin them with hashes
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --generate-hashes --universal --python-version 3.11 \
		--custom-compile-command "make lock" --group dev --output-file requirements.lock \
		--upgrade pyproject.toml

clean: ## remove what the targets above made here
	rm -rf $(VENV) dist demo-output .mypy_cache .ruff_cache .pytest_cache .hypothesis
