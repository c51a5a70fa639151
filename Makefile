# make train, make test: each sets up the environment if it is not there, then does its work.
SHELL := /bin/sh
VENV := .venv
READY := $(VENV)/.ready
BIN := $(VENV)/bin
ARGS ?=
# The first Python that runs and is new enough; PYTHON=... chooses another.
PYTHON ?= $(shell for p in python3.12 python3.11 python3 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)

.PHONY: help setup train test soak guard mutants check tensorboard clean

help: ## Show these targets
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 20

setup: $(READY) ## Make the environment in .venv from requirements.txt

$(READY): requirements.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or newer found; install one, or say make PYTHON=/path/to/python3" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "error: $(PYTHON) lacks venv; on Debian or Ubuntu: apt install python3-venv" >&2; exit 2; }
	@echo "Setting up $(VENV) with $$($(PYTHON) --version) (once, some minutes)"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.txt
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

train: $(READY) ## Train and evaluate; ARGS="model=birnn seed=2" overrides settings
	@$(BIN)/python scripts/train.py $(ARGS)

test: $(READY) ## Run the tests
	@$(BIN)/python -m pytest --numprocesses 2 $(ARGS)

soak: $(READY) ## Stop training at 30 random moments for each model, and compare: what takes longer than a test may
	@OMP_NUM_THREADS=1 $(BIN)/python tests/interruptions.py $(ARGS)

guard: $(READY) ## Compare training, translation and the corpus with the recorded bits
	@$(BIN)/python tests/guard.py $(ARGS)

mutants: $(READY) ## Change the source one line at a time; a test must notice each
	@$(BIN)/python tests/mutants.py --jobs 2 $(ARGS)

check: $(READY) ## Run the linters: ruff and mypy
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

tensorboard: $(READY) ## Look at the runs in outputs/ on http://127.0.0.1:6006, every image kept
	@$(BIN)/tensorboard --logdir outputs --host 127.0.0.1 --samples_per_plugin images=100000,text=100000 $(ARGS)

clean: ## Remove the environment (runs stay)
	rm -rf $(VENV)
