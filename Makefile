# The few commands. `make demo` and `make test` set up what they need by themselves.
PY := .venv/bin/python
.DEFAULT_GOAL := help
.PHONY: help setup demo test unit lint format bench crds controlplane clean

help:           ## this list
	@grep -hE '^[a-z]+: .*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

setup:          ## make .venv (once)
	@scripts/setup.sh

demo: setup     ## real models share one device: placed, offloaded, preempted, woken; checks every step
	@$(PY) -m estiba.demo

test: setup     ## lint, types, import rules and every test
	@$(MAKE) --no-print-directory lint
	@$(PY) -m pytest

unit: setup     ## the quick tests alone
	@$(PY) -m pytest tests/unit

lint: setup     ## ruff, mypy, import-linter
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports

format: setup   ## let ruff rewrite the files
	@.venv/bin/ruff check --fix .
	@.venv/bin/ruff format .

bench: setup    ## Estiba against what users have today, on this machine
	@$(PY) bench/one_machine.py

crds: setup     ## write crds/ anew from the types
	@$(PY) -m estiba_operator.crds

controlplane: setup  ## an API server to play with, until Ctrl-C
	@$(PY) -m tests.controlplane

clean:          ## remove .venv and caches inside the checkout
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info
