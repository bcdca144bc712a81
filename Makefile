# Every line is one that a person could type. `make lab` and `make test` are all you need.
PYTHON ?= python3
BIN = .venv/bin
PUBLISHED_WITH = --data-set kineto-dlrm-8rank --data-set kineto-hta --data-set stragglers-bytedance --data-set lengths-documents --data-set failures-spot --data-set flight-recorder --data-set power-mlperf-gpt3-512gpu --data-set power-zeus-sweeps

.PHONY: help lab test check fuzz report publish bench lock
help:  ## list the targets
	@grep -E '^[a-z]+:.*##' Makefile | sed 's/:[^#]*##/\t/'

lab: .venv/ready  ## set up, write the demo report to _report/, open JupyterLab on the notebooks
	$(BIN)/workbench report --out _report
	$(BIN)/workbench lab

test: check .venv/browser  ## set up and run every check and every test
	$(BIN)/workbench datasets fetch kineto-dlrm-8rank kineto-hta kineto-h100 kineto-resnet chakra-et stragglers-bytedance lengths-documents lengths-wikipedia lengths-requests iterations-vtrain profiles-h100 profiles-h100-llama2 dlrm-locality failures-kmsg failures-slurm failures-spot flight-recorder power-mlperf-gpt3-512gpu power-nvidia-smi power-zeus-sweeps || true
	$(BIN)/pytest --numprocesses=auto --dist=loadfile
	$(BIN)/workbench fidelity
	$(BIN)/workbench publish --check $(PUBLISHED_WITH) notebooks/*.ipynb

check: .venv/ready-to-test  ## format, lint, types, layers, spelling: seconds
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

COUNT ?= 100000
fuzz: .venv/ready-to-test  ## load damaged copies of every file at hand (COUNT=100000)
	$(BIN)/python -m tests.fuzz --workers $$(nproc) --count $(COUNT)

report: .venv/ready  ## write the notebooks as an offline site to _report/
	$(BIN)/workbench report --out _report

publish: .venv/ready-to-test .venv/browser  ## run the notebooks and save them as they are committed
	$(BIN)/workbench publish $(PUBLISHED_WITH) notebooks/*.ipynb
	$(BIN)/python docs/refresh.py

bench: .venv/ready-to-test  ## compare speed and memory with other tools
	$(BIN)/python -m benchmarks

lock:  ## write uv.lock anew, from the public index only
	uv lock --no-config --default-index https://pypi.org/simple

.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --editable '.[all]'
	touch .venv/ready

.venv/ready-to-test: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --editable '.[dev]'
	touch .venv/ready .venv/ready-to-test

# Pictures of figures and the browser tests need Chromium or Chrome. Without one both say so.
.venv/browser: .venv/ready-to-test
	command -v chromium || command -v google-chrome || $(BIN)/playwright install chromium || true
	touch .venv/browser
