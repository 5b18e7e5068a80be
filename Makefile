# Two commands set everything up on a fresh machine: `make demo` and `make test`.
# Both share one virtual environment; a second run finds it and starts at once.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
REQUIREMENTS := pyproject.toml constraints.txt
# What `make demo` and `make test` install is locked: versions and hashes.
LOCKED = $(BIN)/python lock/install.py
LOCKS := pyproject.toml lock/install.py $(wildcard lock/*.txt)
INTEGRATIONS := .venv-integrations
RLLIB := .venv-rllib
DOCS := .venv-docs
RELEASE := .venv-release
LOWEST := .venv-lowest
README := .venv-readme
OTHER = .venv-$(notdir $(PYTHON))
# What may depend on the versions of Python and of libraries: readers, mathematics, one of each kind of release and environment.
SMALL := tests/chain tests/meter tests/control tests/privacy/mechanisms \
  $(addprefix tests/envs/test_,$(addsuffix .py,step ensemble vector)) $(addprefix tests/test_,$(addsuffix .py,coupling model package))
# Python compiles a module when it is first imported; to compile all of them when they are installed takes a minute more.
export PIP_NO_COMPILE := 1
CHECK_PYTHON = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
  { echo "Python 3.11 or newer is needed; run 'make PYTHON=python3.12 ...' with one you have."; exit 1; }

.DEFAULT_GOAL := help
.PHONY: help demo reproduce test test-slow test-lowest test-python test-integrations lint types format docs readme \
  scenario-pages notebooks speed dist lock licences audit mutants soak clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 20

demo: $(VENV)/.demo ## See what a private plan and PPO reach on the scenario "call"; writes runs/demo
	$(BIN)/python -m dp_ensemble_env.experiments.demo runs/demo

reproduce: $(VENV)/.demo ## Make the paper's figures and check its claims; writes runs/reproduction
	$(BIN)/dp-ensemble reproduce --output runs/reproduction $(REPRODUCE_ARGS)

test: $(VENV)/.dev ## Run the test suite but for the slow tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal -m "not slow" $(PYTEST_ARGS)

test-slow: $(VENV)/.dev ## Run the slow tests: statistics with many draws, and installation from the built wheel
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal -m slow $(PYTEST_ARGS)

# Another Numba throws away what ours has compiled, so it has a place of its own.
test-lowest: $(LOWEST)/.done ## Run part of the tests with the lowest versions declared
	NUMBA_CACHE_DIR=$(abspath $(LOWEST))/compiled $(LOWEST)/bin/python -m pytest -n auto -m "not slow" $(SMALL) $(addprefix tests/agents/test_,$(addsuffix .py,base plans sb3)) $(PYTEST_ARGS)

# Tests that are marked torch are left out: it is a large download.
test-python: ## Run part of the core tests, without torch, on another Python: make test-python PYTHON=python3.13
	@$(MAKE) --no-print-directory $(OTHER)/.done
	$(OTHER)/bin/python -m pytest -n auto -m "not slow and not torch" $(SMALL) $(PYTEST_ARGS)

# The files run side by side, each with one thread for torch: the networks are small. What RLlib's older Gymnasium does
# to the environments themselves is seen by test-lowest, which has the same one.
test-integrations: $(INTEGRATIONS)/.done $(RLLIB)/.done ## Run the tests with the other RL libraries, Ray and a browser
	OMP_NUM_THREADS=1 $(INTEGRATIONS)/bin/python -m pytest -n 2 --dist loadfile tests/integrations --ignore=tests/integrations/rllib $(PYTEST_ARGS)
	$(RLLIB)/bin/python -m pytest tests/integrations/rllib $(PYTEST_ARGS)

lint: $(VENV)/.dev ## Check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(MAKE) --no-print-directory types

# The folder agents/ is installed as dp_ensemble_env.agents; for mypy a tree of links puts it in its place.
types: $(VENV)/.dev ## Check types alone
	@rm -rf build/types && mkdir -p build/types/dp_ensemble_env && ln -s $(abspath $(wildcard dp_ensemble_env/*) agents) build/types/dp_ensemble_env/
	$(BIN)/mypy

format: $(VENV)/.dev ## Reformat the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(DOCS)/.done ## Build the documentation site into site/
	$(DOCS)/bin/python -m sphinx --quiet --fail-on-warning --keep-going -b html docs site
	@$(DOCS)/bin/python scripts/documentation.py links site
	@echo "The site is in site/index.html"

# The clone is fresh; its environment stays from one time to the next, and has only what the pages install.
readme: $(README)/.created ## Run the commands and examples of README, quick start and first notebook in a fresh clone
	@rm -rf build/clone && git clone --quiet . build/clone
	PIP_RETRIES=1 PYTHONUTF8=1 $(README)/bin/python build/clone/scripts/documentation.py readme

dist: $(RELEASE)/.done ## Build the wheel and the sdist into dist/ and check what PyPI will show
	@rm -rf dist
	$(RELEASE)/bin/python -m build --quiet --outdir dist .
	$(RELEASE)/bin/python -m twine check --strict dist/*

scenario-pages: $(VENV)/.dev ## Write the pages and pictures of the scenarios from what was recorded
	$(BIN)/python scripts/pages.py --pictures

notebooks: $(VENV)/.dev ## Run the notebooks and write them with what they print
	$(BIN)/python scripts/documentation.py notebooks

speed: $(VENV)/.dev ## Measure the speed of solver and environments as ratios in one run
	$(BIN)/python scripts/speed.py solver
	$(BIN)/python scripts/speed.py env

licences: $(VENV)/.dev ## Check the licences of what is installed against the list in pyproject.toml
	$(BIN)/python scripts/dependencies.py licences

audit: $(VENV)/.created ## Look for known vulnerabilities in what is locked; fails if there are any
	@$(BIN)/python scripts/dependencies.py audit

lock: ## Write the lock files anew after a change of pyproject.toml or constraints.txt (development; needs the network)
	@$(PYTHON) -m venv build/lock && build/lock/bin/python -m pip install --quiet --disable-pip-version-check "uv>=0.5" packaging
	build/lock/bin/python scripts/dependencies.py lock

mutants: $(VENV)/.dev ## Change the code in a sample of places and see whether the tests notice: make mutants SAMPLE=40
	nice -n 10 $(BIN)/python scripts/mutants.py --sample $(or $(SAMPLE),60) $(MUTANTS_ARGS)

soak: $(VENV)/.dev ## Kill, race and fuzz for some minutes, and count what was lost: make soak MINUTES=5
	$(BIN)/python scripts/soak.py --minutes $(or $(MINUTES),5) $(SOAK_ARGS)

clean: ## Remove the virtual environments, the site and caches; keeps runs/
	rm -rf .venv* build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.created:
	@echo "Creating the virtual environment in $(VENV) ..."
	@$(CHECK_PYTHON)
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.demo: $(VENV)/.created $(LOCKS)
	@echo "Installing what the demonstration needs (a minute or two) ..."
	@$(LOCKED) demo
	@$(BIN)/python -c "from dp_ensemble_env.envs import precompile; precompile()"
	@touch $@

$(VENV)/.dev: $(VENV)/.created $(LOCKS)
	@echo "Installing what the tests need (a few minutes the first time) ..."
	@$(LOCKED) test
	@$(BIN)/python -c "from dp_ensemble_env.envs import precompile; precompile()"
	@touch $@ $(VENV)/.demo

# A place of its own: what other targets install must not hide what the site misses.
$(DOCS)/.done: $(REQUIREMENTS)
	@echo "Installing what the documentation site needs in $(DOCS) (a minute the first time) ..."
	@$(CHECK_PYTHON)
	@$(PYTHON) -m venv $(DOCS)
	@$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	@touch $@

$(README)/.created:
	@$(CHECK_PYTHON)
	@$(PYTHON) -m venv $(README)
	@touch $@

$(RELEASE)/.done:
	@$(CHECK_PYTHON)
	@$(PYTHON) -m venv $(RELEASE)
	@$(RELEASE)/bin/python -m pip install --quiet --disable-pip-version-check "build>=1.2" "twine>=6"
	@touch $@

$(INTEGRATIONS)/.done: $(REQUIREMENTS)
	@echo "Installing the RL libraries in $(INTEGRATIONS) (several minutes the first time) ..."
	@$(CHECK_PYTHON)
	@$(PYTHON) -m venv $(INTEGRATIONS)
	@$(INTEGRATIONS)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[integrations]"
	@touch $@

# uv finds the lowest versions that fit together, pip installs them; torch stays at the version of constraints.txt.
$(LOWEST)/.done: $(REQUIREMENTS)
	@echo "Installing the lowest versions in $(LOWEST) (a few minutes the first time) ..."
	@$(CHECK_PYTHON)
	@$(PYTHON) -m venv $(LOWEST)
	@$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check "uv>=0.5"
	@grep '^torch==' constraints.txt > $(LOWEST)/torch.txt
	@$(LOWEST)/bin/uv pip compile --quiet --no-annotate --resolution lowest-direct --python $(LOWEST)/bin/python \
	  --constraint $(LOWEST)/torch.txt --extra test pyproject.toml --output-file $(LOWEST)/constraints.txt
	@$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check -c $(LOWEST)/constraints.txt -e ".[test]"
	@touch $@

$(OTHER)/.done: $(REQUIREMENTS)
	@echo "Installing the core in $(OTHER) (a minute the first time) ..."
	@$(CHECK_PYTHON)
	@$(PYTHON) -m venv $(OTHER)
	@$(OTHER)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[test-core]"
	@touch $@

# RLlib asks for Gymnasium 1.2.2: the same constraints but that one.
$(RLLIB)/.done: $(REQUIREMENTS)
	@echo "Installing RLlib in $(RLLIB) (a few minutes the first time) ..."
	@$(CHECK_PYTHON)
	@$(PYTHON) -m venv $(RLLIB)
	@grep -v '^gymnasium==' constraints.txt > $(RLLIB)/constraints.txt
	@$(RLLIB)/bin/python -m pip install --quiet --disable-pip-version-check -c $(RLLIB)/constraints.txt -e ".[rllib,test]"
	@touch $@
