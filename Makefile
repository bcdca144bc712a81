# `make lab` and `make test` are all you need; `make -n test` prints lines that you could type.
PYTHON ?= python3
BIN = .venv/bin
# Lists of names with comments. The tests skip what cannot be fetched, and fail for it under CI.
DATA_SETS = $(shell sed 's/\#.*//' tests/data_sets.txt)
PUBLISHED_WITH = $(patsubst %,--data-set %,$(shell sed 's/\#.*//' tests/notebooks/data_sets.txt))
FETCH = $(BIN)/workbench datasets fetch $(DATA_SETS) || true
# The editable installation follows all sources but these.
INSTALLED = pyproject.toml hatch_build.py workbench/load/_traces/kineto/_scanner.c \
  workbench/analyze/_lib/_sweep.c workbench/analyze/_perfmodel/timing/_longest_path.c
PARALLEL = --numprocesses=auto --dist=loadfile
# Where it is not kept, each of the thousand processes of the tests compiles the package anew.
export PYTHONDONTWRITEBYTECODE =

.PHONY: help lab test test-all quick check claims fuzz report docs publish bench lock
help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:[^#]*##/\t/'

lab: .venv/ready  ## set up and open JupyterLab on the notebooks
	$(BIN)/workbench lab

# What `make test` runs, and what `make test-all` adds.
EVERYDAY = not (long or slow or browser) or essential
REST = (long or slow or browser) and not essential
EXAMPLES ?= usual

test: .venv/ready-to-test .venv/browser  ## set up; run checks, tests, each notebook: minutes (EXAMPLES=thorough)
	$(FETCH)
	$(MAKE) --jobs=2 check everyday-tests

test-all: test rest-of-tests  ## what CI runs: also slow and browser tests, all damages, every claim

# Beside the checks: one process of mypy would leave the other cores idle for a minute.
.PHONY: everyday-tests rest-of-tests
everyday-tests: .venv/ready-to-test
	$(BIN)/pytest $(PARALLEL) --no-loadscope-reorder -m '$(EVERYDAY)' --hypothesis-profile=$(EXAMPLES)

rest-of-tests: .venv/ready-to-test .venv/browser
	$(BIN)/pytest $(PARALLEL) --no-loadscope-reorder -m '$(REST)'

quick: .venv/ready-to-test  ## format, lint and a first look at every part: under 90 seconds
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pytest --quick $(PARALLEL)

check: .venv/ready-to-test  ## format, lint, types, layers, spelling, wording: seconds
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/pytest -q -n0 -k style_list tests/test_house_rules.py

claims: .venv/ready-to-test  ## recompute published results and compare with the printed numbers
	$(BIN)/python -m claims

COUNT ?= 100000
ONLY ?= *
fuzz: .venv/ready-to-test  ## load damaged copies of the files at hand (COUNT=100000 ONLY='made/*')
	$(BIN)/python -m tests.fuzz --workers $$(nproc) --count $(COUNT) --only '$(ONLY)'

report: .venv/ready  ## write the notebooks as an offline site to _report/
	$(BIN)/workbench report --out _report

docs: .venv/ready-to-test  ## write the documentation site to _site/ (CLAIMS=claims.json)
	$(BIN)/python docs/build.py $(if $(CLAIMS),--claims $(CLAIMS))

publish: .venv/ready-to-test .venv/browser  ## run the notebooks and save them as they are committed
	$(BIN)/workbench publish $(PUBLISHED_WITH) notebooks/*.ipynb
	$(BIN)/python docs/refresh.py

bench: .venv/ready-to-test  ## compare speed and memory with other tools
	$(BIN)/python -m benchmarks

lock:  ## write uv.lock anew, from the public index only
	uv lock --no-config --default-index https://pypi.org/simple

.venv/ready: $(INSTALLED)
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --no-compile --editable '.[all]'
	touch .venv/ready

.venv/ready-to-test: $(INSTALLED)
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --no-compile --editable '.[dev]'
	touch .venv/ready .venv/ready-to-test

# Pictures of figures and the browser tests need Chromium or Chrome. Without one both say so.
.venv/browser: .venv/ready-to-test
	command -v chromium || command -v google-chrome || $(BIN)/playwright install chromium || true
	touch .venv/browser
