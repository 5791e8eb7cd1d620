# setup  make .venv              demo       search, derive, retrain, compare on the built-in corpus
# test   the quick tests         test-slow  the slow ones
# check  format, lint, types, then test          schema, lock, clean

PYTHON ?= python3
BIN := .venv/bin/python
# The order of the tests: make test SEED=7
SHUFFLE := $(if $(SEED),--randomly-seed=$(SEED))
PACKAGES := $(filter-out tests,$(patsubst %/,%,$(sort $(dir $(wildcard */*.py)))))

.PHONY: setup demo test test-slow check schema lock clean

setup: .venv/.ok

.venv/.ok: requirements.lock pyproject.toml tools/bootstrap.py
	@$(PYTHON) tools/bootstrap.py

demo: .venv/.ok
	$(BIN) search.py configs/quickstart.yaml
	$(BIN) derive.py runs/quickstart
	$(BIN) retrain.py runs/quickstart
	$(BIN) compare.py runs/quickstart

test: .venv/.ok
	OMP_NUM_THREADS=1 $(BIN) -m pytest -q --numprocesses auto --maxprocesses 8 --dist loadgroup $(SHUFFLE)

test-slow: .venv/.ok
	OMP_NUM_THREADS=1 $(BIN) -m pytest -q -m slow --timeout=1800 $(SHUFFLE)

check: .venv/.ok
	$(BIN) -m ruff format --check .
	$(BIN) -m ruff check .
	$(BIN) -m mypy $(wildcard *.py) $(PACKAGES)
	@$(MAKE) --no-print-directory test

# The file that editors complete configs/*.yaml from, and the page of all options.
schema: .venv/.ok
	$(BIN) -c "import experiment; print(experiment.json_schema(), end='')" > configs/experiment.schema.json
	$(BIN) -m tools.options > docs/options.md

# Needs uv. torch stays out: its builds differ by machine, so tools/bootstrap.py pins it.
lock:
	@{ echo "# Made by 'make lock' from pyproject.toml; torch is pinned in tools/bootstrap.py."; \
	$(PYTHON) tools/bootstrap.py --requirements | uv pip compile --quiet --universal \
	  --python-version 3.11 --no-header --no-annotate --no-emit-index-url -; } > requirements.lock.new
	@mv requirements.lock.new requirements.lock

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
