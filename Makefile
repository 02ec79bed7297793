# `make demo` and `make test` set up everything they need. Prerequisites: Linux, Python >= 3.11 with
# venv, GNU make, and a Python package index that pip can reach.

PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2
# Options for make test-services; CI gives a failed test one more try (docs/decisions/0012).
AGAIN ?=

BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
READY := $(VENV)/.ready
MAKEFLAGS += --no-print-directory

.DEFAULT_GOAL := help
.PHONY: coverage broker-away demo-slurm up-local down-local help demo test setup check format test-services test-all bench bench-long replay grid quiet long clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(INSTALLED) ## a simulated cluster with faults: incident report here and as an HTML file
	@$(BIN)/nodewarden demo

demo-slurm: $(INSTALLED) ## a GPU is lost on a real Slurm: its node is drained, the job runs elsewhere
	@deploy/local/demo-slurm.sh

test: $(READY) ## all tests that need no services and are quick
	@$(BIN)/pytest -n $(WORKERS) -m "not slow and not bench and not kafka and not slurm and not kube and not prometheus" tests

setup: $(READY) ## the virtual environment in .venv, with the development tools
	@echo "ready: $(VENV)"

check: $(READY) ## formatting, lint, strict types, import rules
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(READY) ## rewrite the code in the one format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

coverage: $(READY) ## every line and branch of what decides: the ladder, the rails
	@$(BIN)/coverage run -m pytest -q tests/unit/test_policy.py tests/unit/test_ladder_branches.py \
		tests/unit/test_rails.py tests/unit/test_rails_demands.py tests/unit/test_act_site_facts.py \
		tests/unit/test_audit.py
	@$(BIN)/coverage report

test-services: $(READY) ## the slow tests, and those against real services: Kafka (Java 17, Maven), Slurm, Kubernetes (Go), Prometheus
	@$(BIN)/pytest -n $(WORKERS) $(AGAIN) -m "(slow or kafka or slurm or kube or prometheus) and not bench" tests || [ $$? -eq 5 ]

test-all: test test-services ## both

bench: $(READY) ## throughput, printed and never asserted; memory, asserted
	@$(BIN)/pytest -q -s -m "bench and not slow" tests/bench

bench-long: $(READY) ## the benchmarks that take minutes
	@$(BIN)/pytest -q -s -m "bench and slow" tests/bench

up-local: $(INSTALLED) ## live on this machine: real Kafka, two workers, archiver, act, a simulated cluster
	@deploy/local/cluster.sh up

down-local: ## stop what up-local started
	@deploy/local/cluster.sh down

replay: $(INSTALLED) ## FILE=capture or archive: what would have been said of it
	@test -n "$(FILE)" || { echo "make replay FILE=<directory of a capture or an archive>" >&2; exit 2; }
	@$(BIN)/nodewarden replay "$(FILE)"

grid: $(READY) ## every kind of fault, size and cluster size, five seeds; continues .grid.jsonl
	@$(BIN)/python -m evaluation.grid --out .grid.jsonl

quiet: $(READY) ## seven days of 256 nodes on which nothing happens
	@$(BIN)/python -m evaluation.quiet

long: check coverage test-all broker-away bench bench-long quiet grid ## everything there is; hours

broker-away: $(READY) ## five minutes without a broker
	@TEST_BROKER_AWAY_S=300 $(BIN)/pytest -q -s tests/kafka/test_broker_away.py

clean: ## remove the virtual environment and the caches
	rm -rf $(VENV) .coverage .mypy_cache .ruff_cache .hypothesis .import_linter_cache nodewarden-demo

$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "nodewarden needs Python 3.11 or newer: make PYTHON=python3.11 ..." >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet "pip>=25.1"
	@$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(READY): $(INSTALLED)
	@$(BIN)/python -m pip install --quiet --group dev
	@touch $@
