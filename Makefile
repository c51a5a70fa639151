# Every target that needs the environment in .venv sets it up first.
SHELL := /bin/sh
VENV := .venv
READY := $(VENV)/.ready
DEV := $(VENV)/.ready-dev
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check
ARGS ?=
LOWEST := .venv-lowest
LOWEST_VERSIONS = $$($(PYTHON) -c 'import tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	extras = project["optional-dependencies"]; \
	print(*(line.replace(">=", "==") for line in project["dependencies"] + extras["export"] + extras["launchers"]))')
# PYTHON is the first Python found that is 3.11 or newer; `make PYTHON=...` chooses another.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
# Runs a command and, every 4 seconds, prints the number of installed packages, since pip may be silent for a minute.
watch = @(while sleep 4 >/dev/null 2>&1 && kill -0 $$$$ 2>/dev/null; do \
	echo "      ... $$(ls -d $(VENV)/lib/python*/site-packages/*.dist-info 2>/dev/null | wc -l) packages so far"; done) & \
	$(1); code=$$?; kill $$!; exit $$code

.PHONY: help setup setup-dev train test test-all test-lowest soak guard check tensorboard clean

help: ## Show these targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 20

setup: $(READY) ## Create the environment in .venv with what training needs
setup-dev: $(DEV) ## Add what the tests, the linters and the benchmark need

$(READY): requirements.txt pyproject.toml
	@echo "Setting up $(VENV) (once, 1 to 3 minutes)"
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or newer found; install one, or run make PYTHON=/path/to/python3" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "error: $(PYTHON) lacks venv; on Debian or Ubuntu: apt install python3-venv" >&2; exit 2; }
	@echo "[1/3] Creating $(VENV) with $$($(PYTHON) --version)"
	$(call watch,$(PYTHON) -m venv --clear $(VENV))
	@echo "[2/3] Installing the $$(grep -c == requirements.txt) packages of requirements.txt"
	$(call watch,$(PIP) -r requirements.txt)
	@echo "[3/3] Installing Entente"
	$(call watch,$(PIP) --no-deps --no-build-isolation --editable .)
	@touch $@

# requirements-dev.txt pins all dependencies. Without --no-deps, pip would list every package that is already installed.
$(DEV): requirements-dev.txt $(READY)
	@echo "Installing the packages of requirements-dev.txt (once, about 1 minute)"
	$(call watch,$(PIP) --no-deps -r requirements-dev.txt)
	@touch $@

train: $(READY) ## Train and evaluate; ARGS="model=birnn seed=2" overrides settings
	@$(BIN)/entente train $(ARGS)

test: $(DEV) ## Run all tests except the slow ones
	@$(BIN)/python -m pytest --numprocesses 2 --dist worksteal -m "not slow" $(ARGS)

test-all: $(DEV) ## Run all tests
	@$(BIN)/python -m pytest --numprocesses 2 --dist worksteal $(ARGS)

test-lowest: ## Run all tests except the slow ones with the lowest versions that pyproject.toml allows, in .venv-lowest
	@$(PYTHON) -m venv --clear $(LOWEST)
	@$(LOWEST)/bin/pip install $(LOWEST_VERSIONS) $$(sed -n '/^# dev:/,$$s/^[a-z].*==.*/&/p' requirements-dev.txt)
	@$(LOWEST)/bin/pip install --no-deps --editable .
	@$(LOWEST)/bin/python -m pytest --numprocesses 2 --dist worksteal -m "not slow" -p no:anyio -W default --disable-warnings $(ARGS)

soak: $(DEV) ## Stop and resume training at 30 random moments per model, and compare with uninterrupted runs (too slow for `test`)
	@OMP_NUM_THREADS=1 $(BIN)/python tests/tools/interruptions.py $(ARGS)

guard: $(DEV) ## Compare training, translation and the corpus bit for bit with recorded results
	@$(BIN)/python tests/tools/guard.py $(ARGS)

check: $(DEV) ## Run the linters: ruff and mypy
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

tensorboard: $(READY) ## Show the runs in outputs/ at http://127.0.0.1:6006, with all images
	@$(BIN)/tensorboard --logdir outputs --host 127.0.0.1 --samples_per_plugin images=100000,text=100000 $(ARGS)

clean: ## Remove the environments, but not the runs
	rm -rf $(VENV) $(LOWEST)
