# make test    everything: lint, types, the whole suite (sets up what it needs)
# make test-cifs   the suites on a kernel CIFS mount, in a virtual machine that it builds
# make check   lint and types
# make fmt     format
# make bench   every benchmark beside its limit and its peers, in one table (BENCH_ARGS=--quick: minutes)
# make demo    a whole lab on this machine: a sweep, a node that dies, a table and a plot
# make docs    the reference and the README's picture, from the code
# make clean   remove everything that make built

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.installed-demo
# Tests mostly wait for processes: more workers than cores pays.
PYTEST_ARGS ?= -n 4 --dist loadgroup

.PHONY: test test-cifs check fmt demo docs clean venv bench
.DEFAULT_GOAL := test

test: check
	tests/system_packages.sh
	$(BIN)/python -m pytest $(PYTEST_ARGS)

test-cifs: $(STAMP)
	tests/system_packages.sh --cifs
	LUDWIG_TEST_CIFS_VM=always $(BIN)/python -m pytest tests/cifs $(CIFS_ARGS)

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m tests.check_types
	$(BIN)/python -m tests.check_imports

fmt: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

demo: $(DEMO_STAMP)
	$(BIN)/ludwig demo $(ARGS)

docs: $(STAMP)
	$(BIN)/python docs/make_reference.py
	$(BIN)/python docs/make_screenshot.py

bench: $(STAMP)
	tests/system_packages.sh
	$(BIN)/python -m benchmarks.bench $(BENCH_ARGS)

venv: $(STAMP)

$(STAMP): pyproject.toml | $(BIN)/pip
	$(BIN)/python -m pip install -qq --editable '.[worker,test]'
	@touch $(DEMO_STAMP) $@

# A newcomer need not wait for the tools of the tests.
$(DEMO_STAMP): pyproject.toml | $(BIN)/pip
	@echo "Setting up $(VENV), once."
	$(BIN)/python -m pip install -qq --editable '.[worker]'
	@touch $@

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit( \
	    "Ludwig needs Python 3.11 or newer; $(PYTHON) is %d.%d. Try: make PYTHON=python3.11" % v[:2])'
	@# Debian's python3 has no ensurepip without python3-venv: then the pip outside helps.
	$(PYTHON) -m venv $(VENV) || { \
	    $(PYTHON) -m venv --clear --without-pip $(VENV) && \
	    $(PYTHON) -m pip --python $(BIN)/python install --quiet pip; }

clean:
	rm -rf $(VENV) .staged .mypy_cache .ruff_cache .pytest_cache .hypothesis \
	    .import_linter_cache .coverage htmlcov build dist *.egg-info ludwig-demo ludwig-demo-* \
	    .cache/cifs-vm
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
