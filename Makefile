# Two commands to start with: `make demo` and `make test`. Both create their environment in .venv.
# `make test-all` is what CI runs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Some containers set it. Then every process of the tests would compile the project's sources again.
unexport PYTHONDONTWRITEBYTECODE

# Tests run in one process per core, at most 8: each opens sandboxes and servers of its own.
PYTEST := $(BIN)/python -m pytest -n auto --maxprocesses 8 --dist loadgroup

.PHONY: demo test test-all check style types fast-tests every-test newest-python format bench docs lock clean

demo: $(VENV)/.serving
	$(BIN)/tirjudge demo

# Format, lint, types and the fast tests. Types are checked beside the tests, because neither uses all cores all the time.
test: style
	+$(MAKE) --no-print-directory -j2 types fast-tests

# Every test; then the fast tests of the core, the server and the harness on the newest supported Python.
test-all: style
	+$(MAKE) --no-print-directory -j3 types every-test newest-python
	tests/newest_python.sh

check: style types

style: $(VENV)/.developing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.developing
	$(BIN)/pyrefly check --python-interpreter-path $(BIN)/python

fast-tests: $(VENV)/.developing
	$(PYTEST) -m "not slow"

every-test: $(VENV)/.developing
	tests/chromium.sh tests/postgres.sh $(PYTEST) --durations=10

newest-python: $(VENV)/.developing
	tests/newest_python.sh prepare

format: $(VENV)/.developing
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Measures the pieces (benchmarks/pieces), saves the run in runs/benchmarks, and compares it with the last saved run.
# BASE=COMMIT compares with that commit instead, in alternating runs. OPTIONS go to pytest, or to benchmarks/compare.py.
BENCHMARKS := runs/benchmarks
bench: $(VENV)/.developing
ifdef BASE
	$(BIN)/python -m benchmarks.compare $(BASE) $(OPTIONS)
else
	$(BIN)/python -m pytest -p benchmark benchmarks/pieces --benchmark-only --benchmark-storage=$(BENCHMARKS) \
		--benchmark-autosave $(if $(wildcard $(BENCHMARKS)/*/*.json),--benchmark-compare) --benchmark-max-time=0.5 \
		--benchmark-group-by=fullname --benchmark-columns=median,iqr,ops,rounds $(OPTIONS)
endif

# Builds the documentation as a site in runs/docs. A dead link or a page without a place is an error. LINKS=1 also opens the links
# to other sites.
docs: $(VENV)/.developing
	$(BIN)/python -m sphinx -q -W --keep-going -b html -d runs/docs/.doctrees docs runs/docs
	$(if $(LINKS),$(BIN)/python -m sphinx -q -b linkcheck -d runs/docs/.doctrees docs runs/docs/links)
	@echo "runs/docs/index.html"

# What the images install: exact versions with their hashes, for every Python from 3.11 and every machine. LOCK_OPTIONS=--upgrade
# takes newer ones.
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url \
	--no-annotate $(LOCK_OPTIONS)

lock: $(VENV)/.locking
	$(LOCK) --extra server --extra otel pyproject.toml server/image/programs.in --output-file server/image/requirements.lock
	$(LOCK) server/image/build.in --output-file server/image/build.lock
	$(LOCK) sandbox/image/programs.in --output-file sandbox/image/requirements.lock

$(VENV)/.locking:
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet 'uv>=0.9'
	touch $@

# The environment that serves the bundled judge: about 60 MB of wheels, no torch.
$(VENV)/.serving: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	@echo "Installing the server into $(VENV): about 60 MB of wheels."
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[server]'
	touch $@

# The environment for tests and training: torch too, which dominates the download.
$(VENV)/.developing: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	@echo "Installing a pip that supports dependency groups into $(VENV): 2 MB."
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@echo "Installing the packages for tests and training into $(VENV): hundreds of MB with torch, GBs with CUDA."
	$(BIN)/python -m pip install --quiet --no-compile --group dev --editable '.[server,train]'
	touch $@ $(VENV)/.serving

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis
