# make 3.81 is enough. `make setup` tells what this machine lacks; nothing outside this folder is changed.

PYTEST := .venv/bin/python -m pytest
OURS := appliance connectors spark tools
SEEDS ?= 500
WORKERS ?= 2
ARGS ?=

.PHONY: help setup setup-test demo up fmt lint test sim compat soak bench bench-scale bench-failover bench-replicated bench-groups bench-shares bench-tls profile bench-spark bench-tiering native wheel lock clean

help:
	@echo "make setup       check this machine and make .venv from the locked requirements"
	@echo "make demo        the whole road on real data; stays up until Ctrl-C (ONCE=1: ends by itself)"
	@echo "make up          an appliance in the foreground (ARGS=\"--brokers 3 ...\")"
	@echo "make fmt         format and fix what can be fixed"
	@echo "make lint        style, types and the layers of the imports"
	@echo "make test        lint and every test that is not marked soak"
	@echo "make sim         the simulations, longer (SEEDS=1000)"
	@echo "make compat      unmodified clients here and on Apache Kafka, table into docs/compat.md (ARGS=\"kafkajs sarama\")"
	@echo "make soak        the long tests"
	@echo "make bench       beside Apache Kafka, figures into docs/benchmarks.md (ARGS=--quick: not quotable)"
	@echo "make bench-scale 15,500 partitions beside Apache Kafka (ARGS=\"--partitions 2000 --ours-only\")"
	@echo "make bench-failover    leaders killed, beside Apache Kafka (ARGS=--quick; ARGS=\"--only one kafka\")"
	@echo "make bench-replicated  three replicas, acks=1 and acks=all, beside Apache Kafka (ARGS=--quick)"
	@echo "make bench-groups      groups of 100 members over 1,000 partitions, beside Apache Kafka (ARGS=--quick)"
	@echo "make bench-shares      members of a share group read and accept records, beside Apache Kafka (ARGS=--quick)"
	@echo "make bench-tls         produce and fetch under TLS, beside Apache Kafka (ARGS=--quick)"
	@echo "make profile     where the time of a produce request goes, into docs/benchmarks.md"
	@echo "make bench-spark the same for Spark"
	@echo "make native      Spark's compiled decoder, where there is cargo; nothing needs it"
	@echo "make wheel       the wheel that terraform/ installs on its nodes, in dist/"
	@echo "make lock        lock the versions in requirements/ anew"
	@echo "make clean       remove what was built, and .demo; .venv and .cache stay"

setup:
	@sh tools/needs.sh setup
	@sh tools/setup.sh

setup-test:
	@sh tools/needs.sh test
	@sh tools/setup.sh

demo: setup
	@.venv/bin/python -m tools.demo $(if $(ONCE),--once) $(ARGS)

up: setup
	@.venv/bin/appliance up $(ARGS)

fmt: setup
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

lint: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy $(OURS)
	.venv/bin/lint-imports

test: setup-test lint
	$(PYTEST) -m "not soak and not compat" -n $(WORKERS) --dist loadscope --no-loadscope-reorder --durations=15 $(ARGS)

sim: setup
	SEEDS=$(SEEDS) $(PYTEST) tests/simulation $(ARGS)

compat: setup-test
	.venv/bin/python -m tests.support.compat_table $(ARGS)

soak: setup-test
	$(PYTEST) -m soak $(ARGS)

bench: setup-test
	.venv/bin/python -m tests.benchmarks.run $(ARGS)

bench-scale: setup-test
	.venv/bin/python -m tests.benchmarks.scale $(ARGS)

bench-failover: setup-test
	.venv/bin/python -m tests.benchmarks.failover $(ARGS)

bench-replicated: setup-test
	.venv/bin/python -m tests.benchmarks.replicated $(ARGS)

bench-groups: setup-test
	.venv/bin/python -m tests.benchmarks.groups $(ARGS)

bench-shares: setup-test
	.venv/bin/python -m tests.benchmarks.shares $(ARGS)

bench-tls: setup-test
	.venv/bin/python -m tests.benchmarks.tls $(ARGS)

profile: setup-test
	.venv/bin/python -m tests.benchmarks.stages $(ARGS)

bench-tiering: setup-test
	.venv/bin/python -m tests.benchmarks.tiering $(ARGS)

bench-spark: setup-test
	.venv/bin/python -m tests.benchmarks.spark $(ARGS)

native:
	CARGO_TARGET_DIR=build/native cargo build --release --manifest-path spark/native/Cargo.toml
	cp build/native/release/lib_native.so spark/_native.abi3.so

wheel: setup
	@.tools/bin/uv --version >/dev/null 2>&1 && uv=.tools/bin/uv || uv=uv; \
	UV_PYTHON_DOWNLOADS=never $$uv build --quiet --wheel --no-build-isolation --python .venv/bin/python --out-dir dist
	@ls dist/*.whl

lock: setup
	sh tools/lock.sh

clean:
	rm -rf .demo dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache spark-warehouse
	find . -name __pycache__ -type d -not -path "./.venv/*" -not -path "./.tools/*" -prune -exec rm -rf {} +
