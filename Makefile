# Each target makes what it needs; a second call installs nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LLAMA_INDEX := integrations/llama-index-postprocessor-sift
DISTRIBUTIONS := . $(LLAMA_INDEX) integrations/langchain-sift
INSTALLED := $(VENV)/.installed
SOURCES := $(addsuffix /pyproject.toml,$(DISTRIBUTIONS)) constraints.txt requirements-dev.txt
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: help demo test check fix bench test-install clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

# torch alone first: any other way of asking for it may fetch the CUDA build.
$(INSTALLED): $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --constraint constraints.txt torch
	$(PIP) install --quiet --constraint constraints.txt --requirement requirements-dev.txt
	touch $(INSTALLED)

demo: $(INSTALLED) ## answer questions over the Python documentation; QUESTION="..." asks your own
	$(BIN)/python examples/demo.py $(if $(QUESTION),--question "$$QUESTION")

test: $(INSTALLED) ## run all tests that need no network
	$(BIN)/python -m pytest

check: $(INSTALLED) ## formatting, lint, types, import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	MYPYPATH=$(LLAMA_INDEX) $(BIN)/mypy --namespace-packages --explicit-package-bases -p llama_index.postprocessor.sift
	$(BIN)/lint-imports

fix: $(INSTALLED) ## format and mend what can be mended
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(INSTALLED) ## run the benchmarks; results go to benchmarks/results
	$(BIN)/python -m benchmarks.selection --json benchmarks/results/selection.json

test-install: $(INSTALLED) ## build the wheels and import them in empty environments
	$(BIN)/python -m pytest -m network tests/test_wheels.py

clean: ## remove the environment and the demo's cache
	rm -rf $(VENV) .cache

export QUESTION
