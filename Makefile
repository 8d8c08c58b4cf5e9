# make demo   a real session asks, parks, and resumes on another runner
# make test   every check, the simulator, every test
# Both set up `.venv` first. Only Python 3.11 or newer, pip, git and make have to be there.

PYTHON ?= python3
SEEDS ?= 2000
BIN := .venv/bin
SET_UP := pyproject.toml constraints.txt tools/bootstrap.py

.PHONY: help demo test test-rooms test-systems check format sim chaos bench-core bench-snapshots map lock clean
.DEFAULT_GOAL := help

help:
	@echo "make demo      a real session asks, parks, and resumes on another runner"
	@echo "make test      every check, the simulator ($(SEEDS) seeds), every test"
	@echo "make check     format, lint, types, floors, house rules (under a minute)"
	@echo "make format    formats, and mends what the linter can mend"
	@echo "make sim       one seed of the simulator, told step by step: make sim SEED=17"
	@echo "make chaos     a fleet of real processes, broken for CHAOS_SECONDS (120) and judged; CHAOS_SEED repeats a run"
	@echo "make bench-core  ingest, publishing, a million parked sessions, subscribers: a table (under six minutes)"
	@echo "make bench-snapshots  checkpoints beside tar, restic and borg: a table (half an hour; BENCH_ONLY=small: a minute)"
	@echo "make map       writes docs/map.md anew"
	@echo "make lock      resolves the dependencies anew into constraints.txt"
	@echo "make clean     removes .venv and every cache"

demo: .venv/.stamp-demo
	@$(BIN)/bide demo --json

# Half of all tests mostly wait for real processes, so both halves run side by side. Each is shown when it is over.
test: .venv/.stamp-test
	@$(MAKE) --no-print-directory check
	@echo "The simulator with the tests of rooms, and the tests of whole systems: both run now, ten to fifteen minutes."
	@$(MAKE) --no-print-directory -j2 --output-sync=target test-rooms test-systems

SYSTEMS := tests/chaos tests/deploy tests/e2e tests/rehearsal tests/web

test-rooms: .venv/.stamp-test
	@$(BIN)/python -m sim --seeds $(SEEDS)
	@$(BIN)/python -m pytest $(SYSTEMS:%=--ignore=%)

test-systems: .venv/.stamp-test
	@$(BIN)/python -m pytest $(SYSTEMS)

check: .venv/.stamp-test
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m pytest tests/test_tidy.py

format: .venv/.stamp-test
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

sim: .venv/.stamp-test
	@test -n "$(SEED)" || { echo "Which seed? For instance: make sim SEED=17" >&2; exit 2; }
	@$(BIN)/python -m sim --seed $(SEED)

# About four minutes: two of faults, one without a database, and the end of every session.
chaos: .venv/.stamp-test
	@$(BIN)/python -m chaos

bench-core: .venv/.stamp-test
	@$(BIN)/python -m bench

bench-snapshots: .venv/.stamp-test
	@$(BIN)/python -m bench.snapshots

map: .venv/.stamp-test
	@$(BIN)/python tools/map.py

# In an environment of its own, so that nothing installed by hand gets in. The comment at the top of the file stays.
lock:
	@$(PYTHON) -m venv --clear .venv-lock
	@.venv-lock/bin/python -m pip install '.[claude,dev]'
	@grep '^#' constraints.txt > .venv-lock/constraints.txt
	@.venv-lock/bin/python -m pip freeze --exclude bide --exclude pip --exclude setuptools >> .venv-lock/constraints.txt
	@mv .venv-lock/constraints.txt constraints.txt
	@rm -rf .venv-lock

clean:
	@rm -rf .venv .venv-lock build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

.venv/.stamp-%: $(SET_UP)
	@command -v $(PYTHON) >/dev/null || { echo "bide needs Python 3.11 or newer; there is no $(PYTHON) on PATH." >&2; exit 1; }
	@$(PYTHON) tools/bootstrap.py $*
