# The two commands: `make demo` and `make test`. Everything else stands on the same .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Compiled bytecode is worth ten seconds at each start of the flow's server.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install demo test lint format bench clean

install: $(STAMP)

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	@touch $@

demo: install
	$(BIN)/lightmeter demo

# Test files run beside each other, a process for each core, four at most.
test: install
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

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
