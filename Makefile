# make, without a target, lists all commands: what stands behind ## here, and the first lines of
# the scripts and tools.

PYTHON ?= python3
BIN := .venv/bin/python
# The order of the tests: make test SEED=7
SHUFFLE := $(if $(SEED),--randomly-seed=$(SEED))
# Tests start hundreds of processes; where no bytecode is kept, each compiles all modules anew.
FOR_TESTS := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1
PYTEST := $(FOR_TESTS) $(BIN) -m pytest -q --numprocesses auto --maxprocesses 8 --dist loadgroup $(SHUFFLE)
PACKAGES := $(filter-out tests,$(patsubst %/,%,$(sort $(dir $(wildcard */*.py)))))

.PHONY: help setup demo test test-slow test-extras check schema site lock lock-extras clean
.DEFAULT_GOAL := help

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-35s %s\n", "make " $$1, $$2 }' Makefile
	@awk 'FNR == 1 { says = substr($$0, 4) } \
	  /^if __name__ == "__main__"/ && FILENAME != "tools/bootstrap.py" { \
	    name = FILENAME; \
	    if (sub("^tools/", "-m tools.", name)) sub("[.]py$$", "", name); \
	    printf "%-35s %s\n", "python " name, says }' \
	  search.py derive.py retrain.py compare.py \
	  $(filter-out search.py derive.py retrain.py compare.py,$(wildcard *.py tools/*.py))
	@echo "each takes --help; python is .venv/bin/python, which make setup makes"

setup: .venv/.ok ## make .venv

.venv/.ok: requirements.lock pyproject.toml tools/bootstrap.py
	@$(PYTHON) tools/bootstrap.py

demo: .venv/.ok ## search, derive, retrain, compare on the built-in corpus
	$(BIN) search.py configs/quickstart.yaml
	$(BIN) derive.py runs/quickstart --workers 2
	$(BIN) retrain.py runs/quickstart --seeds 0,1,2,3 --workers 2
	$(BIN) compare.py runs/quickstart --workers 2

test: .venv/.ok ## the quick tests, in random order (SEED=7: in that one)
	$(PYTEST)

test-slow: .venv/.ok ## the slow ones
	$(PYTEST) -m slow --timeout=1800

# The exporters, trackers and pages that need more packages than the rest.
test-extras: .venv-extras/.ok ## the tests of the extras, in .venv-extras
	$(FOR_TESTS) .venv-extras/bin/python -m pytest -q --numprocesses auto --maxprocesses 8 \
	  --dist loadgroup --timeout=900 tests/extras

.venv-extras/.ok: .venv/.ok requirements-extras.lock
	@$(PYTHON) tools/bootstrap.py --extras

check: .venv/.ok ## format, lint, types, then test
	$(BIN) -m ruff format --check .
	$(BIN) -m ruff check .
	$(BIN) -m mypy $(wildcard *.py) $(PACKAGES)
	@$(MAKE) --no-print-directory test

schema: .venv/.ok ## the page of all options, and the file that editors complete experiments from
	$(BIN) -c "from docs.make_options import json_schema; print(json_schema(), end='')" > configs/experiment.schema.json
	$(BIN) -m docs.make_options > docs/options.md

# Not --quiet: mkdocs counts no warning that it does not show, and --strict would let it pass.
site: .venv-extras/.ok ## README and docs as pages, in site/
	@NO_MKDOCS_2_WARNING=1 .venv-extras/bin/python -m mkdocs build --strict
	@echo "site: site/index.html"

# torch stays out: its builds differ by machine, so tools/bootstrap.py pins it.
LOCK := uv pip compile --quiet --universal --python-version 3.11 --no-header --no-annotate \
	--no-emit-index-url --no-emit-package torch
TITLE := \# Made by 'make lock' from pyproject.toml; torch is pinned in tools/bootstrap.py.
lock: ## both lock files anew from pyproject.toml; needs uv
	@{ echo "$(TITLE)"; $(PYTHON) tools/bootstrap.py --requirements | $(LOCK) -; } \
	  > requirements.lock.new
	@mv requirements.lock.new requirements.lock
	@$(MAKE) --no-print-directory lock-extras

# Accelerate would bring torch's own packages for a GPU into the lock.
lock-extras: ## requirements-extras.lock alone, with the versions of requirements.lock
	@echo 'torch; python_version < "3"' > no-torch.txt
	@{ echo "$(TITLE)"; $(PYTHON) tools/bootstrap.py --requirements --extras | \
	  $(LOCK) --overrides no-torch.txt --constraints requirements.lock -; } > requirements-extras.lock.new
	@mv requirements-extras.lock.new requirements-extras.lock && rm no-torch.txt

clean: ## remove .venv and caches
	rm -rf .venv .venv-extras site .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
