# One environment, one folder of jars, and the commands that use them.
PYTHON ?= python3
UV_VERSION := 0.13.8
VENV := .venv
PY := $(VENV)/bin/python
UV := build/uv/bin/uv
JARS := build/jars
STAMP := build/environment.stamp
MERMAID_VERSION := 11.17.2
MERMAID_SHA256 := 581ed7d74bd9048d0e3a91363927d72ef22942d7722546b27f7cc29e35390eb8
MERMAID := build/mermaid/mermaid.min.js

export PYTHONPATH := $(CURDIR)
export DB2CDC_JARS ?= $(CURDIR)/$(JARS)
# Whatever the shell says: else each process that a test starts compiles again what it imports.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: $(STAMP) ## Install the locked environment and the jars (once)

$(UV):
	$(PYTHON) -m venv build/uv
	build/uv/bin/pip install --quiet uv==$(UV_VERSION)

$(STAMP): requirements.lock pyproject.toml | $(UV)
	@command -v javac >/dev/null || { echo "A JDK of version 17 or newer is needed: no javac on PATH."; exit 1; }
	$(UV) venv --quiet --allow-existing --python $(PYTHON) $(VENV)
	$(UV) pip sync --quiet --python $(PY) --require-hashes requirements.lock
	$(UV) pip install --quiet --python $(PY) --no-deps --editable .
	$(PY) -m airflow_provider_db2cdc.cli.main jars --into $(JARS) --sandbox --kafka
	@touch $@

demo: setup ## Run the whole way once: source, capture, DAG, Spark, Delta, and compare
	$(PY) -m airflow_provider_db2cdc.cli.main demo

cluster: setup ## The same on a Spark standalone cluster: one master, two workers
	$(PY) -m airflow_provider_db2cdc.cli.main demo --cluster --folder build/cluster

ui: setup ## Start Airflow's own UI with the sandbox; backfills in it need Debian's postgresql
	$(PY) -m airflow_provider_db2cdc.cli.main ui

sandbox: setup ## Start the stand-in source in the foreground
	$(PY) -m airflow_provider_db2cdc.cli.main sandbox up --foreground

test: setup ## Run the suite
	$(PY) -m pytest -n 2 --dist worksteal -m "not long and not cluster"

STORE_STAMP := build/store/environment.stamp
test-cluster: setup $(STORE_STAMP) ## Run the tests that need servers of their own: Spark clusters, an S3 store, Airflow
	$(PY) -m pytest -m cluster tests/cluster tests/store tests/production

production: export DB2CDC_PRODUCTION_TABLES ?= 30
production: export DB2CDC_PRODUCTION_EVERY_MINUTES ?= 10
production: export DB2CDC_PRODUCTION_REPORT ?= build/production.json
production: setup ## Run three pipelines of 30 tables for more than an hour, and kill each process of Airflow
	$(PY) -m pytest -s -m cluster tests/production/test_restarts.py

$(STORE_STAMP): requirements-store.lock | $(UV)
	$(UV) venv --quiet --allow-existing --python $(PYTHON) build/store
	$(UV) pip sync --quiet --python build/store/bin/python --require-hashes requirements-store.lock
	$(PY) -m airflow_provider_db2cdc.cli.main jars --into $(JARS) --with s3
	@touch $@

SOAK ?= 20
soak: setup ## Run what `make test` leaves out, and play histories: SOAK=40 the first forty, SOAK=41-80 others
	DB2CDC_SOAK=$(SOAK) $(PY) -m pytest -n 2 --dist worksteal -m "long and not cluster"
	$(PY) -m pytest -n 2 --hypothesis-profile soak tests/cdc tests/sql

mutants: setup ## Make one-line mistakes in copies of the package; each must fail the tests that guard it
	$(PY) -m tests.mutants

check: setup lint ## Lint, types and the fast tests
	$(PY) -m pytest -m "not spark and not sandbox and not airflow and not slow and not cluster" -n 2

lint: setup ## Format, lint, types, spelling and file ends: what .pre-commit-config.yaml lists
	$(VENV)/bin/pre-commit run --all-files --show-diff-on-failure

docs: setup ## Build the documentation site into build/site; a broken link or anchor fails it
	@$(MAKE) --silent $(MERMAID) || echo "Diagrams stay as text: Mermaid could not be fetched by npm."
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build

$(MERMAID):
	@mkdir -p $(@D)
	npm pack --silent --pack-destination $(@D) mermaid@$(MERMAID_VERSION)
	tar -xzf $(@D)/mermaid-$(MERMAID_VERSION).tgz -C $(@D) package/dist/mermaid.min.js
	echo "$(MERMAID_SHA256)  $(@D)/package/dist/mermaid.min.js" | sha256sum --check --quiet
	mv $(@D)/package/dist/mermaid.min.js $@
	rm -r $(@D)/package $(@D)/*.tgz

bench: export PYTHONPATH := $(CURDIR):$(CURDIR)/tests
bench: setup ## Measure against the same work done barely; writes build/bench.json
	$(PY) -m tests.bench

lock: $(UV) ## Resolve the dependencies again into requirements.lock
	$(UV) pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	  --group pyproject.toml:dev --all-extras pyproject.toml -o requirements.lock
	$(UV) pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	  --group pyproject.toml:store -o requirements-store.lock
	for name in airflow-3.1 airflow-3.2 celery; do \
	  $(UV) pip compile --python-version 3.11 --generate-hashes --no-header --no-annotate \
	    --group pyproject.toml:$$name pyproject.toml -o tests/production/$$name.lock || exit 1; \
	done

clean: ## Remove what was built, the environment included
	rm -rf build $(VENV)

.PHONY: help setup demo cluster ui sandbox test test-cluster production soak mutants check lint docs bench lock clean
