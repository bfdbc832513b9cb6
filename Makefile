# One command per habit. Everything works on a machine that has Python 3.11; what else a target needs, it fetches or says.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Compiled modules are kept: a broker then starts in half the time, and the tests start hundreds.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup run test check lint format bench soak docs docs-site dist release lock clean \
  prove-simulation prove-crash prove-disk prove-power prove-mutants prove-clients prove-chaos prove-lockstep prove-eos prove-spark-eos \
  prove-pipelines prove-neighbours prove-upgrade prove-attacks prove-console prove-soak fuzz

setup: $(VENV)/.complete

$(VENV)/.complete: requirements.lock pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

run: setup
	$(BIN)/penstock up --demo $(ARGS)

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: setup lint
	$(BIN)/python scripts/run_tests.py

# Three minutes for the inner loop: what breaks first and tells most.
check: setup lint
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not java and not spark and not cluster and not slow" \
	  tests/base tests/protocol tests/log tests/store tests/replication tests/client \
	  tests/broker/test_broker_hot_path.py tests/broker/test_broker_fetch_sessions.py \
	  tests/coordinator/test_classic_groups.py tests/coordinator/test_consumer_groups.py \
	  tests/coordinator/test_transaction_coordinator.py tests/cluster/test_controller_stories.py

bench: setup
	$(BIN)/python -m bench $(ARGS)

# The real log, files that lose unsynced pages, min.insync.replicas changing under way.
prove-simulation: setup
	$(BIN)/python -m penstock.testing.simulation --real-logs --min-isr-changes --seeds $(or $(SEEDS),1000) $(ARGS)

soak: setup
	$(BIN)/python -m penstock.testing.simulation --seeds $(or $(SEEDS),1000)

prove-crash: setup
	PENSTOCK_KILLS=$(or $(KILLS),200) $(BIN)/python -m pytest -s -p no:xdist --timeout 3600 \
	  tests/broker/test_broker_process.py -k killed_again

prove-disk: setup
	$(BIN)/python -m penstock.testing.disk calls $(ARGS)

prove-power: setup
	$(BIN)/python -m penstock.testing.disk power --seeds $(or $(SEEDS),10) $(ARGS)

# Every wrong rule of the list into a copy of the tree, one by one; the named test or seed must notice it.
prove-mutants: setup
	$(BIN)/python -m penstock.testing.mutants $(ARGS)

prove-chaos: setup
	$(BIN)/python -m penstock.testing.chaos --minutes $(or $(MINUTES),30) --seed $(or $(SEED),30) --wide 200 $(ARGS)

prove-lockstep: setup
	$(BIN)/python -m penstock.testing.lockstep --sequences $(or $(SEQUENCES),2000) --seed $(or $(SEED),1)

# Exactly-once loops of Java, C, Go and Python clients at once on three brokers, with kills.
prove-clients: setup
	$(BIN)/python -m penstock.testing.clients --records $(or $(RECORDS),60000) $(ARGS)

prove-eos: setup
	$(BIN)/python -m penstock.testing.eos_chain --records $(or $(RECORDS),1000000) $(ARGS)

prove-spark-eos: setup
	$(BIN)/python -m penstock.testing.spark_eos $(ARGS)

prove-pipelines: setup
	PENSTOCK_LONG_STORIES=1 $(BIN)/python -m pytest -v -p no:xdist --timeout 1800 -m slow tests/pipelines

# Flink, Kafka Streams, Connect, MirrorMaker 2, Storm and Spark's own connector, unmodified, with kills.
prove-neighbours: setup
	$(BIN)/python -m penstock.testing.neighbours $(ARGS)

docs: setup
	$(BIN)/python scripts/render_docs.py
	$(BIN)/python scripts/render_shapes.py

docs-site: setup docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "build/site/index.html"

dist: setup
	$(BIN)/python scripts/make_dist.py

release: setup
	$(BIN)/python scripts/make_release.py $(VERSION)

prove-upgrade: setup
	$(BIN)/python -m penstock.testing.upgrade $(ARGS)

prove-console: setup
	$(BIN)/python -m penstock.testing.console_proof $(ARGS)

prove-attacks: setup
	$(BIN)/python -m penstock.testing.attacks --kafka --record docs/proofs/attacks.md $(ARGS)

prove-soak: setup
	$(BIN)/python -m penstock.testing.soak --minutes $(or $(MINUTES),60) --record docs/proofs

# Longer than in the suite, from a seed of its own; SEED=n repeats a run.
FUZZ_SECONDS ?= 600
fuzz: setup
	PENSTOCK_FUZZ_SECONDS=$(FUZZ_SECONDS) PENSTOCK_FUZZ_SEED=$(or $(SEED),$(shell date +%s)) \
	  $(BIN)/python -m pytest -p no:xdist --timeout=0 tests/searches/test_fuzz_requests.py tests/searches/test_fuzz_parsers.py

lock: setup
	$(BIN)/uv pip compile --quiet --all-extras --no-annotate --no-header pyproject.toml -o requirements.lock

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis penstock-data
