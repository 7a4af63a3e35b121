# Everything that is made here stays below this folder: .venv/ for Python, .programs/ for the agents' programs.

# The first of these that is new enough; `make PYTHON=...` chooses another.
PYTHON ?= $(shell for python in python3 python3.11 python3.12 python3.13 python3.14; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
PY := .venv/bin/python
PIP := $(PY) -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
# Four at once, because tests wait for programs, the tests of a file together, in the order of tests/conftest.py;
# `make test PYTEST_ARGS=` runs one after the other.
PYTEST_ARGS ?= -n 4 --dist loadfile --no-loadscope-reorder
QUICK := not ci and not full and not timed
N ?= 200
SEED ?= 1
# Code whose errors lose or leak work: storage, git, trust, spending. pyproject.toml has the floor of the whole package.
GUARDED := 'sessions/*' 'git/*' 'loading/trust*' 'runs/budget*' 'runs/spending*'
GUARDED_FLOOR ?= 95

# The tests start Python a thousand times: without its caches each start compiles everything anew.
unexport PYTHONDONTWRITEBYTECODE

# Pyright would ask the network whether it is the newest.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup setup-test setup-demo terminal-tools agents agents-more shells test test-ci test-full journeys coverage check fmt demo record-demo schemas torture torture-ralph bench docs reference prose house providers-doc clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-13s %s\n", $$1, $$2}' Makefile

setup: .venv/.setup terminal-tools .programs/.setup ## install the package, the tools and the agents (quick the second time)

terminal-tools: # tmux and Chromium, for the tests of the screen
	@sh scripts/terminal_tools.sh

setup-test: # what `make test` needs: no tmux, no Chromium, no linters; pip and npm at the same time
	@$(MAKE) --no-print-directory --jobs=2 .venv/.tests-compiled .programs/.setup

setup-demo: .venv/.setup-demo ## install only the package itself into .venv

agents: .venv/.setup-test .programs/.setup ## install the agents' programs: Claude Code, OpenCode, Copilot

agents-more: .venv/.setup-test .programs/more/.setup ## install more agents for `make test-full`: Codex, Gemini, Claude over ACP (830 MB)

# `venv` runs again each time: it repairs one that was interrupted or whose Python has gone.
.venv/.setup: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Atomic needs Python 3.11 or newer; give its path: make PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(PIP) --editable '.[dev]'
	@touch .venv/.setup-demo .venv/.setup-test $@

.venv/.setup-test: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Atomic needs Python 3.11 or newer; give its path: make PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(PIP) --editable '.[test]'
	@touch .venv/.setup-demo $@

# On a fresh clone each worker of pytest would compile all tests. An error in a test is reported when it runs.
.venv/.tests-compiled: .venv/.setup-test
	@ls -d tests/*/ | xargs -n 17 -P 2 $(PY) -m pytest --collect-only --quiet >/dev/null 2>&1 || true
	@touch $@

.venv/.setup-demo: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Atomic needs Python 3.11 or newer; give its path: make PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(PIP) --editable .
	@touch $@

.programs/.setup: programs.txt scripts/agents.sh
	@sh scripts/agents.sh
	@touch $@

shells: # zsh and fish, for the tests of completion that `make test-full` runs
	@sh scripts/shells.sh

.programs/more/.setup: programs.txt scripts/agents.sh
	@sh scripts/agents.sh more
	@touch $@

test: setup-test ## run the quick tests (at most six minutes on two cores)
	HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-quick} $(PY) -m pytest -m "$(QUICK)" $(PYTEST_ARGS)

test-ci: setup ## run what `make test` leaves out and each commit needs: real agents, terminals, kills (25 minutes)
	$(PY) -m pytest -m "(ci or timed) and not full" $(PYTEST_ARGS)

test-full: setup agents-more shells ## run all tests, those of `make test` and `make test-ci` too
	$(PY) -m pytest $(PYTEST_ARGS)

# They are part of `make test-full`; here one after the other, with the time of each.
journeys: setup shells ## do what a newcomer does first, each on an empty home folder, and print how long it takes
	$(PY) -m pytest tests/journeys tests/cli/test_plain_install.py tests/cli/test_wrong_lines.py --durations=0 --durations-min=0.1

coverage: setup ## run the quick tests; fail if they reach too few lines and branches of the package
	rm -rf .coverage && mkdir .coverage
	@# Tests of what a start imports fail while coverage is loaded; `make test` judges them.
	-HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-quick} $(PY) -m coverage run -m pytest -m "$(QUICK)" $(PYTEST_ARGS)
	$(PY) -m coverage combine --quiet
	@status=0; $(PY) -m coverage report || status=1; \
	for files in $(GUARDED); do \
		echo; echo "$$files:"; \
		$(PY) -m coverage report --include="src/atomic/$$files" --fail-under=$(GUARDED_FLOOR) || status=1; \
	done; exit $$status

check: setup ## all that must be clean before a commit lands
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m pyright
	.venv/bin/lint-imports
	$(PY) -m pytest --quiet tests/docs/test_rooms.py
	$(MAKE) test

fmt: setup ## format the code and repair what can be repaired
	$(PY) -m ruff check --fix-only .
	$(PY) -m ruff format .

demo: setup-demo ## Ralph builds a small program, from plan to accepted work; no key, no network
	.venv/bin/atomic demo

record-demo: setup ## record the demo again: real Claude Code on the scripted model (four minutes)
	$(PY) scripts/record_demo.py
	$(PY) scripts/draw_demo.py

docs: setup ## build the documentation's site into build/site; a warning is an error
	$(PY) scripts/reference.py --check
	$(PY) scripts/ports.py --check
	$(PY) -m sphinx --quiet --fail-on-warning --keep-going -b html -c scripts/site -d build/doctrees docs build/site
	@echo "build/site/index.html"

reference: setup ## write the parts of the documentation that repeat the source
	$(PY) scripts/reference.py
	$(PY) scripts/ports.py

screenshots: setup ## draw the screenshots of the documentation
	$(PY) scripts/screenshots.py

schemas: setup-demo ## write docs/schemas/ again, from the types
	@mkdir -p docs/schemas
	for name in config tasks events recording; do .venv/bin/atomic schema $$name > docs/schemas/$$name.json || exit 1; done

torture: setup ## kill and resume a run N times: make torture N=200 SEED=1, FLOW=1 for a workflow function
	$(PY) tests/torture/$(if $(FLOW),flow,run).py --runs $(N) --seed $(SEED)

torture-ralph: setup ## kill Ralph and its agents N times: make torture-ralph N=200 SEED=1 ISOLATE=overlay
	$(PY) tests/torture/ralph.py --runs $(N) --seed $(SEED) --isolate $(or $(ISOLATE),all)

bench: setup ## measure side by side with the others, and judge the time limits of the tests
	ATOMIC_JUDGE_TIMES=1 $(PY) -m pytest -m timed
	$(PY) bench/run.py

prose: ## report how plain the prose is: make prose ARGS="--room cli --show 20"
	@$(PYTHON) scripts/prose.py $(ARGS)

house: ## count what makes the code hard to read: make house ARGS="--show doors 20"
	@$(PYTHON) scripts/house.py $(ARGS)

providers-doc: setup agents-more ## play the contract on every agent, offline, and write docs/providers.md (half an hour)
	-$(PY) scripts/offline.py $(PY) -m pytest tests/providers/conformance -k contract --junitxml=.programs/conformance.xml
	for agent in claude opencode copilot; do \
		$(PY) scripts/offline.py $(PY) -m tests.providers.conformance.interruptions --agent $$agent --turns 200 --seed $(SEED) || exit 1; \
	done | tee .programs/interruptions.txt
	$(PY) -m tests.providers.conformance.report .programs/conformance.xml .programs/interruptions.txt

clean: ## remove all that make has made
	rm -rf .venv .programs .bench .coverage build dist .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests examples bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
