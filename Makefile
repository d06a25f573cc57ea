# `make` alone lists what there is. All of it works in a fresh clone: needed are Python 3.11 and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOCK := requirements.lock
# Frameworks with an environment each, and what their tests need beside them.
APART := crewai chainlit
APART_BESIDE := packaging aiosqlite sqlalchemy greenlet aiohttp aiofiles
# All but what only benchmarks compare with, and frameworks that take versions which the others do not.
EXTRAS := $(filter-out peers $(APART),$(shell sed -n '/^\[project.optional-dependencies\]/,/^\[project.scripts\]/s/^\([a-z0-9-]*\) = .*/\1/p' pyproject.toml))
# Its wheel brings a program of 178 MB, its source does not. All that it needs is in the lock.
FROM_SOURCE := claude-agent-sdk
SOURCE := $(FROM_SOURCE)==0.2.189 --hash=sha256:1d859a142ee6cd97aef972215ed7ab5c09f623018194a6577c7dafbbfa481216
UV := $(shell sed -n 's/.*"\(uv==[0-9.]*\)".*/\1/p' pyproject.toml)
ARGS ?=
# An environment with the oldest versions that pyproject.toml allows, and the tests that meet them.
FLOORS := .venv-floors
FLOORS_BESIDE := 'langgraph>=1.1' 'langgraph-checkpoint-conformance>=0.0.2' 'langgraph-checkpoint-sqlite>=3.1' \
  'openai-agents[redis,encrypt]' 'llama-index-storage-chat-store-redis>=0.8'
FLOORS_TESTS := tests/adapters tests/mcp tests/settings/test_extras.py tests/memory/test_memory.py
# Two files need channels of a langgraph that wants a newer langchain-core. Old packages warn of themselves.
FLOORS_OPTIONS := -W ignore::DeprecationWarning \
  --ignore tests/adapters/test_langgraph_beside.py --ignore tests/adapters/test_langgraph_upkeep.py
# Most tests wait for something: four processes keep two cores busy. The tests of the page run in one of them, so more than
# eight do not pay.
CORES = $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
TEST_PROCESSES ?= $(shell echo $$(( $(CORES) < 4 ? 2 * $(CORES) : 8 )))
# What the outages are of.
OUTAGE_ON ?= node
OUTAGES_node := tests/store/test_outages.py
OUTAGES_cluster := tests/nodes/test_outages.py::test_on_a_cluster_only_affected_sessions_are_degraded \
  tests/nodes/test_outages.py::test_a_cluster_that_is_down_as_a_whole_is_degraded
OUTAGES_sentinel := tests/nodes/test_outages.py::test_behind_sentinels_without_a_primary_all_is_degraded

# Stamps. Another PYTHON, or a changed lock, builds the environment anew.
LOCKED := $(VENV)/.locked-$(notdir $(PYTHON))
READY := $(VENV)/.ready
PIP := bin/python -m pip --quiet --disable-pip-version-check
PINNED := --require-hashes --no-deps --only-binary :all:

# The tests start hundreds of processes: without bytecode each of them compiles everything anew.
unexport PYTHONDONTWRITEBYTECODE

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory --no-builtin-rules
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test lint format types unit floors apart quick nightly coverage explore model outages faults once turns have-redis have-chromium redis bench api client picture build release-check lock clean

help: ## this list
	@printf 'redismem: Redis-native session memory for chat backends\n\n'
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' Makefile
	@printf '\n  PYTHON=python3.12   another Python than python3\n'
	@printf '  ARGS="..."          more arguments for demo, unit, coverage, bench and lock, such as ARGS="-k window"\n'
	@printf '  PACE=3              longer deadlines of the tests, for a machine that is slow or busy\n'
	@printf '  REDISMEM_URL=...    the Redis that demo uses; without it, it brings its own store\n'

setup: $(READY) ## install everything into .venv, pinned with hashes

demo: $(READY) ## see it at work: a filled page, until Ctrl-C; without a terminal, a conversation played through
	@if [ -t 0 ]; then exec $(BIN)/redismem serve --demo $(ARGS); else exec $(BIN)/redismem demo $(ARGS); fi

test: $(READY) have-redis have-chromium ## all that a change must pass; installs redis-server and chromium if they are missing
# mypy uses one core for half a minute, in which the tests do not need both.
	@$(MAKE) --jobs=2 lint types unit

lint: $(READY) ## ruff: rules and format
	@echo '==> ruff'
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@find redismem tests benchmarks examples -name '*.py' -exec wc -l {} + | awk '$$2 != "total" && $$1 > 300 {print "note: " $$2 " has " $$1 " lines; is it one thing?"}'

format: $(READY) ## put the format right, and what ruff can mend by itself
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

types: $(READY) ## mypy, strict
	@echo '==> mypy'
	@$(BIN)/mypy

unit: $(READY) have-redis have-chromium ## the tests alone: make unit ARGS="tests/protocol/test_keys.py -x"
	@echo '==> pytest'
	@$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist each $(ARGS)

quick: $(READY) have-redis ## the tests that need no process, browser or node of their own, while you work on the package
	@QUICK=1 $(BIN)/python -m pytest -n 2 $(ARGS)

nightly: $(READY) have-redis have-chromium ## all tests, also on both stores and those that another one shows nearly as well
	@EVERYTHING=1 PYTEST_TIMEOUT=600 $(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadfile $(ARGS)
	@$(MAKE) floors
	@$(MAKE) apart

floors: $(READY) have-redis ## the tests of adapters and of every command and route, with the oldest versions that pyproject.toml allows
	@echo '==> $(FLOORS): installing the oldest versions'
	@$(PYTHON) -m venv --clear --without-pip $(FLOORS)
	@install() { $(BIN)/uv pip install --quiet --no-config --python $(FLOORS)/bin/python "$$@"; }; \
	install --resolution lowest-direct --no-binary $(FROM_SOURCE) --requirement pyproject.toml $(addprefix --extra ,$(EXTRAS)) $(FLOORS_BESIDE); \
	install --group tests; \
	install --no-deps --no-build-isolation --editable .
	@$(FLOORS)/bin/python -m pytest -n $(TEST_PROCESSES) --dist loadfile $(FLOORS_TESTS) $(FLOORS_OPTIONS) $(ARGS)

apart: $(READY) have-redis ## the tests of frameworks that need an environment of their own, and of every command and route there
	@for name in $(APART); do \
	  echo "==> .venv-$$name: installing"; \
	  $(PYTHON) -m venv --clear --without-pip .venv-$$name; \
	  install() { $(BIN)/uv pip install --quiet --no-config --python .venv-$$name/bin/python "$$@"; }; \
	  install --requirement pyproject.toml --extra $$name --group tests $(APART_BESIDE); \
	  install --no-deps --no-build-isolation --editable .; \
	  export CHAINLIT_APP_ROOT=$$PWD/.venv-$$name CREWAI_DISABLE_TELEMETRY=true; \
	  EVERYTHING=1 .venv-$$name/bin/python -m pytest tests/settings/test_extras.py tests/repository/test_docs.py \
	    tests/adapters/test_$$name.py tests/examples/test_$${name}_*.py -k "$$name or apart" $(ARGS); \
	done

coverage: $(READY) have-redis have-chromium ## the tests, and how much of the package they reach; fails under what pyproject.toml asks for
	@$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist each --cov --cov-report=term:skip-covered $(ARGS)

explore: $(READY) have-redis ## the properties, each with a thousand new examples; a failure prints what repeats it
	@EXPLORE=1 PYTEST_TIMEOUT=600 $(BIN)/python -m pytest -n $(TEST_PROCESSES) -m hypothesis $(ARGS)

model: $(READY) have-redis ## check the queue protocol for ten minutes, MODEL_SECONDS=, MODEL_SEED=; then records
	@MODEL_SECONDS=$${MODEL_SECONDS:-600} $(BIN)/python -m pytest tests/model_check/test_model_check.py $(ARGS)
	@EXPLORE=1 $(BIN)/python -m pytest tests/record/test_model.py

outages: $(READY) have-redis ## outages of Redis of 1, 10 and 60 s under five pods, and what they took; OUTAGE_SECONDS="1 10 60", OUTAGE_ON="node cluster sentinel"
	@EVERYTHING=1 OUTAGE_SECONDS="$${OUTAGE_SECONDS:-1 10 60}" $(BIN)/python -m pytest $(foreach place,$(OUTAGE_ON),$(OUTAGES_$(place))) -s $(ARGS)

faults: $(READY) have-redis ## bad days of a cluster and of sentinels under producers and workers, and what they cost; FAULT_ROUNDS=10, FAULT_CONFIRM=1
	@EVERYTHING=1 FAULT_ROUNDS="$${FAULT_ROUNDS:-10}" $(BIN)/python -m pytest tests/nodes/test_campaign.py tests/nodes/test_parted.py -s $(ARGS)

once: $(READY) have-redis ## eight writers while connections deliver late and Redis is killed, and what was lost or doubled; ONCE_SECONDS=30
	@cd tests && PYTHONPATH=.:.. ../$(BIN)/python -m support.once_campaign $${ONCE_SECONDS:-30}

turns: $(READY) have-redis ## writers and listeners of turns die, and so does Redis, and what was lost or doubled; TURNS_SECONDS=60
	@cd tests && PYTHONPATH=.:.. ../$(BIN)/python -m support.turn_campaign $${TURNS_SECONDS:-60} $(ARGS)

redis: ## start a private Redis on a free port and print its URL
	@exec $(PYTHON) .ci/redis_server.py run

bench: $(READY) have-redis ## measure turns; REDISMEM_BENCH_URL=... to measure a Redis of yours
	@$(BIN)/python -m benchmarks.turns $(ARGS)

api: $(READY) ## write docs/api.md from the docstrings
	@$(BIN)/python .ci/api_reference.py

client: $(READY) ## generate the types of the TypeScript client, build/client.d.ts, and check its examples; needs Node.js
	@command -v npm >/dev/null || { echo 'There is no npm here: install Node.js 20 or newer.' >&2; exit 1; }
	@mkdir -p build; $(BIN)/python .ci/openapi.py > build/openapi.json
	@cd examples/typescript; npm install --no-package-lock --no-audit --no-fund --ignore-scripts --silent; \
	REDISMEM_OPENAPI=../../build/openapi.json npm run --silent client; npm run --silent check; cp client.d.ts ../../build

picture: $(READY) have-redis have-chromium ## take the picture of the page, docs/page.png
	@EVERYTHING=1 PICTURE=docs/page.png $(BIN)/python -m pytest -q tests/web/page/test_picture.py $(ARGS)

build: $(READY) ## wheel and sdist, into dist/
	@rm -rf dist
	@$(BIN)/python -m build --no-isolation --outdir dist

release-check: build ## build, install the wheel into a new environment, and run it there as a user would
	@new=$$(mktemp -d); trap 'rm -rf "$$new"' EXIT; wheel=$$(echo "$$PWD"/dist/*.whl); \
	$(PYTHON) -m venv "$$new/venv"; \
	"$$new/venv/bin/python" -m pip --quiet --disable-pip-version-check install "$$wheel"; \
	cd "$$new"; venv/bin/redismem --help > help.txt; grep -q doctor help.txt; venv/bin/redismem demo

lock: ## write requirements.lock from pyproject.toml; newest versions: ARGS=--upgrade
	@echo '==> $(LOCK)'
	@new=$$(mktemp -d); trap 'rm -rf "$$new"' EXIT; \
	cp $(LOCK) "$$new/lock" 2>/dev/null || true; \
	$(PYTHON) -m venv "$$new/venv"; \
	"$$new/venv/bin/python" -m pip --quiet --disable-pip-version-check install '$(UV)'; \
	"$$new/venv/bin/uv" pip compile pyproject.toml --quiet --no-config --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' $(ARGS) \
	  --output-file "$$new/lock" --group dev $(addprefix --extra ,$(EXTRAS)) --no-emit-package $(FROM_SOURCE); \
	if grep -nE '://|^ *--?(i|f|index|extra|find|trusted)' "$$new/lock"; then \
	  echo 'No address belongs into a lock; it stays as it was.' >&2; exit 1; \
	fi; \
	cat "$$new/lock" > $(LOCK)

clean: ## remove all that make has made, .venv too
	@rm -rf $(VENV) $(FLOORS) $(APART:%=.venv-%) build dist examples/typescript/{node_modules,build,client.d.ts,package-lock.json} .screenshots .hypothesis .mypy_cache .pytest_cache .ruff_cache .coverage .coverage.* htmlcov
	@find redismem tests benchmarks examples .ci -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

have-redis:
	@$(PYTHON) .ci/redis_server.py ensure

have-chromium:
	@$(PYTHON) .ci/chromium.py

# An environment: first what its lock names and nothing else, then the project itself, editable, without a download.
# Without --no-deps, the pip of Python 3.11 looks for the newest google-auth[requests], and refuses it as not pinned.
# uv takes a fifth of pip's time. It does not know the indexes of pip.conf: where it fails, pip does it.
define install_lock
@echo '==> $(1): installing what $(2) pins'
@$(PYTHON) -m venv --clear $(1)
@sed -n '/^uv==/,/[^\\]$$/p' $(2) > $(1)/uv.lock
@$(1)/$(PIP) install $(PINNED) --requirement $(1)/uv.lock
@$(1)/bin/uv pip install --quiet --no-config --compile-bytecode --python $(1)/bin/python $(PINNED) --requirement $(2) || \
  $(1)/$(PIP) install $(PINNED) --requirement $(2)
@$(1)/$(PIP) check
endef
define install_project
@echo '==> $(1): installing redismem, editable'
@$(1)/$(PIP) install --no-index --no-deps --no-build-isolation --editable .
@echo '$(SOURCE)' > $(1)/source.lock
@$(1)/$(PIP) install --require-hashes --no-deps --no-binary :all: --no-build-isolation --requirement $(1)/source.lock
@touch $@
endef

$(LOCKED): $(LOCK)
	@command -v $(PYTHON) >/dev/null || { echo 'There is no $(PYTHON) here. Name another: make PYTHON=python3.11' >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) -V 2>&1). Name another: make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo 'This Python cannot make environments. On Debian and Ubuntu: sudo apt-get install python3-venv' >&2; exit 1; }
	$(call install_lock,$(VENV),$(LOCK))
	@touch $@

$(READY): $(LOCKED) pyproject.toml
	$(call install_project,$(VENV))
