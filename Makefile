# The two commands: `make demo` and `make test`. Everything else stands on the same .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Compiled bytecode is worth ten seconds at each start of the flow's server.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install demo test test-all test-sweeps docs screenshots lint format bench clean

install: $(STAMP)

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	@touch $@

demo: install
	$(BIN)/lightmeter demo

# Test files run in parallel, in two processes more than there are cores, as many tests wait for timers; at most five.
PROCESSES ?= $(shell n=$$(($$(nproc 2>/dev/null || echo 2) + 2)); echo $$((n < 5 ? n : 5)))
PYTEST := $(BIN)/python -m pytest --numprocesses $(PROCESSES) --dist loadfile --no-loadscope-reorder --durations 50

test: install
	$(PYTEST)

# Also the sweeps: kills at every system call, mutations of every file. About 20 minutes on two cores.
test-all: install
	$(PYTEST) --sweeps all

# A share of the sweeps alone, such as 1/10.
SWEEPS ?= 1/10
test-sweeps: install
	$(PYTEST) -m sweep --sweeps $(SWEEPS)

# API reference as HTML.
docs: install
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	$(BIN)/python -m pdoc --output-directory out/docs lightmeter

# The README's pictures of the front end; needs Debian's chromium.
screenshots: install
	$(BIN)/python -m tests.screenshots

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# All of them take about half an hour; one: make bench BENCH=tests/bench/service
BENCH ?= tests/bench
bench: install
	$(BIN)/python -m pip install --quiet --editable '.[test,bench]'
	$(BIN)/python -m pytest $(BENCH) --override-ini addopts= --import-mode=importlib -s

clean:
	rm -rf $(VENV) out .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
