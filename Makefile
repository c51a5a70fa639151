# Every target that needs the environment in .venv sets it up first.
SHELL := /bin/sh
VENV := .venv
READY := $(VENV)/.ready
BIN := $(VENV)/bin
ARGS ?=
# The first Python found that is at least 3.11; PYTHON=... chooses another.
PYTHON ?= $(shell for p in python3.12 python3.11 python3 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)

.PHONY: help setup train test soak guard mutants check tensorboard clean

help: ## Show these targets
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 20

setup: $(READY) ## Create the environment in .venv from requirements.txt

$(READY): requirements.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or newer found; install one, or run make PYTHON=/path/to/python3" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "error: $(PYTHON) lacks venv; on Debian or Ubuntu: apt install python3-venv" >&2; exit 2; }
	@echo "Setting up $(VENV) with $$($(PYTHON) --version) (needed once, takes some minutes)"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.txt
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

train: $(READY) ## Train and evaluate; ARGS="model=birnn seed=2" overrides settings
	@$(BIN)/python scripts/train.py $(ARGS)

test: $(READY) ## Run the tests
	@$(BIN)/python -m pytest --numprocesses 2 $(ARGS)

soak: $(READY) ## Stop and resume training at 30 random moments per model, and compare with uninterrupted runs (too slow for `test`)
	@OMP_NUM_THREADS=1 $(BIN)/python tests/interruptions.py $(ARGS)

guard: $(READY) ## Compare training, translation and the corpus bit for bit with recorded results
	@$(BIN)/python tests/guard.py $(ARGS)

mutants: $(READY) ## Change the source one line at a time; a test must fail each time
	@$(BIN)/python tests/mutants.py --jobs 2 $(ARGS)

check: $(READY) ## Run the linters: ruff and mypy
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

tensorboard: $(READY) ## Show the runs in outputs/ at http://127.0.0.1:6006, with all images
	@$(BIN)/tensorboard --logdir outputs --host 127.0.0.1 --samples_per_plugin images=100000,text=100000 $(ARGS)

clean: ## Remove the environment, but not the runs
	rm -rf $(VENV)
