# Everything sets itself up: `make demo` and `make test` need Python 3.11 or newer, and nothing else.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
INSTALLED := .venv/installed
DEMO := $(BIN)/longseal run --lengths 512,1k,2k --samples 12 --questions 6 \
	--out runs/demo --resume

.PHONY: demo demo-short test test-fast lint types figures support clean

demo: $(INSTALLED)  ## The main job on a real model; a second call reuses what is there.
	$(DEMO)

demo-short: $(INSTALLED)  ## The same in little, for CI.
	$(BIN)/longseal run --lengths 512 --samples 8 --train-samples 48 --out runs/demo-short --overwrite

test: $(INSTALLED)  ## All tests; those marked slow use the real model or take minutes.
	$(BIN)/pytest -q -n auto

test-fast: $(INSTALLED)  ## All but the slow ones.
	$(BIN)/pytest -q -n auto -m "not slow"

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy

figures: $(INSTALLED)  ## More of the figures of docs/results.md, about half an hour on two cores.
	$(BIN)/python benchmarks/lines.py

support: $(INSTALLED)  ## docs/support.md: every architecture proved anew, some five minutes.
	$(BIN)/python tests/support_page.py

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv runs
