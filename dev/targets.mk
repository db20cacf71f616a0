# What CI, maintainers and releases need on top of the Makefile, which includes this file.
.PHONY: test-user test-python attach clients cluster conformance fuzz coverage mutation soak bfcl servers bench bench-quick bench-cluster economics scaling recording

# CI: kernels in the sandbox as an ordinary user. Those without one need less.
test-user: $(VENV)/dev.stamp .npm/dev.stamp
	$(PYTEST) $(SPREAD) -m "user and kernel and sandbox" $(ARGS)

# CI: what depends on Python itself, with the newest one.
test-python: $(VENV)/dev.stamp .npm/dev.stamp
	$(PYTEST) $(SPREAD) -m "python and not sandbox" $(ARGS)

# JupyterLab, in an environment of its own, joins a running session. Not part of CI.
attach: $(VENV)/dev.stamp .npm/dev.stamp .venv-attach/stamp
	$(PYTEST) tests/attach $(ARGS)

# Other MCP clients, and the examples of docs/frameworks.md. Not part of CI: they follow the newest versions.
clients: $(VENV)/dev.stamp .npm/clients.stamp .venv-mcp1/clients.stamp .venv-mcp2/clients.stamp
	$(PYTEST) -rP tests/clients $(ARGS)

# A Slurm cluster of two nodes and two SSH hosts, in network namespaces of this machine: as root on Debian. CI runs
# tests/cluster.
ON_CLUSTER := trap 'tests/cluster/cluster.sh down' EXIT; trap 'exit 130' INT TERM; tests/cluster/cluster.sh up &&
cluster: $(VENV)/dev.stamp .npm/dev.stamp
	@tests/install-programs.sh
	$(ON_CLUSTER) $(PYTEST) -m cluster $(or $(TESTS),tests/cluster tests/remote) $(ARGS)

# MCP's own suite, which `make test-all` includes.
conformance: $(VENV)/dev.stamp .npm/dev.stamp
	$(PYTEST) tests/conformance $(ARGS)

# More hostile schemas, malformed messages and texts than the tests try. SEED=7 picks others; the default is today's date.
fuzz: $(VENV)/dev.stamp
	FUZZ_SCHEMAS=50000 FUZZ_MESSAGES=10000 FUZZ_READERS=50 $(BIN)/python -m pytest tests/mcp_apigen/test_fuzz.py tests/mcp_fuzz tests/fuzz_readers $(ARGS)

# Lines and branches of ipybox that the tests run, in all processes: dev/coverage.md.
coverage: $(VENV)/dev.stamp .npm/dev.stamp .bfcl/stamp
	PATH="$(NODE_BIN):$$PATH" $(BIN)/python -m tests.measure.run_coverage -m "not ($(APART))" $(ARGS)

# Mutants of modules that their tests notice: MODULES="seal naming" picks some, ARGS=--survivors shows the others.
mutation: $(VENV)/mutation.stamp
	$(BIN)/python -m tests.measure.mutation $(MODULES) $(ARGS)

# Concurrent sessions with faults: `make soak MINUTES=60 ARGS="-k plain"`.
MINUTES ?= 10
soak: $(VENV)/dev.stamp .npm/dev.stamp
	PATH="$(NODE_BIN):$$PATH" SOAK_MINUTES=$(MINUTES) $(BIN)/python -m pytest tests/soak $(ARGS)

# All 800 multi-turn tasks of the Berkeley Function Calling Leaderboard as code actions, in each mode.
bfcl: $(VENV)/dev.stamp .npm/dev.stamp .bfcl/stamp
	@tests/install-programs.sh
	BFCL_TASKS=200 $(PYTEST) $(SPREAD) tests/bfcl $(ARGS)

# The published MCP servers of tests/published/servers.toml, 3 GB in .servers. Without ARGS, it writes dev/servers.md.
servers: $(VENV)/dev.stamp .npm/dev.stamp .servers/installed.stamp
	$(PYTEST) tests/published/test_published.py $(ARGS); status=$$?; cat .servers/report.md; exit $$status
	$(if $(ARGS),,cp .servers/report.md dev/servers.md)

# ipybox, the same without it, and ipybox 0.9.2, for 20 minutes on a quiet machine. It writes to docs/benchmarks.md.
BENCH = PATH="$(NODE_BIN):$$PATH" $(BIN)/python -m benchmarks
RESULTS := benchmarks/results.json
bench: $(VENV)/dev.stamp .npm/dev.stamp .venv-peer/stamp
	$(BENCH) --peer .venv-peer/bin/python --json $(RESULTS) $(ARGS); status=$$?; \
		$(BENCH).performance $(RESULTS) && exit $$status

# Everything once, with less data and without 0.9.2, to see that it works.
bench-quick: $(VENV)/dev.stamp .npm/dev.stamp
	@mkdir -p .bench
	$(BENCH) --quick --json .bench/results.json $(ARGS)
	$(BENCH).performance .bench/results.json --docs .bench

# Kernels on the cluster and on this machine, for three minutes on a quiet machine.
bench-cluster: $(VENV)/dev.stamp .npm/dev.stamp
	$(ON_CLUSTER) $(BENCH).cluster --json benchmarks/cluster.json $(ARGS)

# Tokens, for half an hour. It writes to docs/benchmarks.md. ARGS="--tasks loop --counts 10" measures only these again.
economics: $(VENV)/dev.stamp .npm/dev.stamp .venv-tokens/stamp
	PATH="$(NODE_BIN):$$PATH" $(BIN)/python -m benchmarks.economics measure .venv-tokens/bin/python $(ARGS)
	$(BIN)/python -m benchmarks.economics write

# Simulates the capacity of hosts, after half a minute of measurement with MEASURE=1. It writes dev/scaling.md.
scaling: $(VENV)/dev.stamp .npm/dev.stamp
	$(if $(MEASURE),PATH="$(NODE_BIN):$$PATH" $(BIN)/python -m benchmarks.scaling measure)
	$(BIN)/python -m benchmarks.scaling write $(ARGS)

# The recordings for the README and docs/approvals.md.
recording: $(VENV)/dev.stamp .npm/dev.stamp
	PATH="$(NODE_BIN):$$PATH" $(BIN)/python -m docs.recording docs

$(VENV)/mutation.stamp: PACKAGES = --constraint constraints.txt --editable '.[mutation]'
$(VENV)/mutation.stamp: $(VENV)/dev.stamp
	$(call install,$(VENV))
	@touch $@

.venv-attach/stamp: PACKAGES = 'jupyterlab>=4.4,<5'
.venv-attach/stamp: | $(BIN)/uv
	$(PYTHON) -m venv .venv-attach
	$(call install,.venv-attach)
	@touch $@

# mcp 2 breaks the import of 0.9.2.
.venv-peer/stamp: PACKAGES = 'ipybox==0.9.2' 'mcp<2'
.venv-peer/stamp: | $(BIN)/uv
	$(PYTHON) -m venv .venv-peer
	$(call install,.venv-peer)
	@touch $@

# Without what its command line needs.
.bfcl/stamp: PACKAGES = --target .bfcl --no-deps 'bfcl-eval==2026.3.23' 'mpmath>=1.3,<1.4'
.bfcl/stamp: | $(BIN)/uv
	$(BIN)/uv pip install --quiet $(PACKAGES) || $(BIN)/python -m pip install --quiet $(PACKAGES)
	@touch $@

# A tokenizer and its vocabulary only.
.venv-tokens/stamp: PACKAGES = --no-deps 'anthropic==0.38.0' 'tokenizers>=0.20,<1'
.venv-tokens/stamp: | $(BIN)/uv
	$(PYTHON) -m venv .venv-tokens
	$(call install,.venv-tokens)
	@touch $@

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
