# `make demo` and `make test` need only Python 3.11 to 3.13 with venv, and make.
PYTHON ?= python3
BIN := .venv/bin
# An absolute path, so that the demo can work in its own folder.
CLI := $(CURDIR)/$(BIN)/transformer-cli

.PHONY: help demo test fast format clean

help:
	@echo "make demo     train, translate and evaluate on a small corpus (a few minutes)"
	@echo "make test     everything that must hold: format, lint, types, tests"
	@echo "make fast     the tests that take seconds"
	@echo "make format   put the code into shape"
	@echo "make clean    remove the environment and the demo"

# Made once, and again when what it is made from changes.
.venv/done: pyproject.toml scripts/constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint scripts/constraints.txt --editable '.[dev]'
	touch $@

demo: .venv/done
	rm -rf demo
	$(CLI) init demo --template copy
	cd demo && $(CLI) train config.yaml
	cd demo && $(CLI) translate runs/copy-task "ba de ko ku la mi" "nu nu bo"
	cd demo && $(CLI) evaluate runs/copy-task

test: .venv/done
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -m "not gpu"

fast: .venv/done
	$(BIN)/pytest -m "not gpu and not slow"

format: .venv/done
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv demo
