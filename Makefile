# `make demo` and `make test` need only Python 3.11 to 3.13 with venv, and make.
PYTHON ?= python3
BIN := .venv/bin
# An absolute path, so that the demo can work in its own folder.
CLI := $(CURDIR)/$(BIN)/transformer-cli

.PHONY: help demo test fast format clean

help:
	@echo "make demo     train, evaluate and translate on a built-in corpus (a few minutes)"
	@echo "make test     everything that must hold: format, lint, types, tests"
	@echo "make fast     the tests that take seconds"
	@echo "make format   put the code into shape"
	@echo "make clean    remove the environment and the demo"

# Made once, and again when what it is made from changes.
.venv/done: pyproject.toml scripts/constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint scripts/constraints.txt --editable '.[dev]'
	touch $@

# Sentences that are not in the training text; a test sees to it.
demo: .venv/done
	rm -rf demo
	$(CLI) init demo
	cd demo && $(CLI) train config.yaml
	cd demo && $(CLI) evaluate runs/demo-en-de
	cd demo && $(CLI) translate runs/demo-en-de \
		"If it is cold, the woman wears a beautiful scarf." \
		"My colleague does not understand these poems because they are too difficult." \
		"Will you give your father beautiful flowers next week?"
	@echo
	@echo "Translate more:  cd demo && $(CLI) translate runs/demo-en-de \"The dog sleeps.\""
	@echo "Your own text:   $(CLI) init mine --source my.en --target my.de"
	@echo "                 $(CLI) train mine/config.yaml"

# A thread to each worker: threads of several programs that share a core wait for each other.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses auto --maxprocesses 4 --dist loadfile

test: .venv/done
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(PYTEST) -m "not gpu"

fast: .venv/done
	$(PYTEST) -m "not gpu and not slow"

format: .venv/done
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv demo
