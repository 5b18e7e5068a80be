# Two commands set everything up on a fresh machine: `make demo` and `make test`.
# Both share one virtual environment; a second run finds it and starts at once.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
REQUIREMENTS := pyproject.toml constraints.txt
INTEGRATIONS := .venv-integrations
RLLIB := .venv-rllib
CHECK_PYTHON = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
  { echo "Python 3.11 or newer is needed; run 'make PYTHON=python3.12 ...' with one you have."; exit 1; }

.DEFAULT_GOAL := help
.PHONY: help demo reproduce test test-integrations lint format docs benchmark clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 20

demo: $(VENV)/.demo ## Compare the controllers, a PPO trained on the spot among them; writes runs/demo
	$(BIN)/dp-ensemble compare --output runs/demo

reproduce: $(VENV)/.demo ## Make the paper's figures and check its claims; writes runs/reproduction
	$(BIN)/dp-ensemble reproduce --output runs/reproduction $(REPRODUCE_ARGS)

test: $(VENV)/.dev ## Run the test suite
	$(BIN)/python -m pytest -n auto --dist worksteal $(PYTEST_ARGS)

test-integrations: $(INTEGRATIONS)/.done $(RLLIB)/.done ## Run the tests with the other RL libraries, Ray and a browser
	$(INTEGRATIONS)/bin/python -m pytest tests/integrations --ignore=tests/integrations/rllib $(PYTEST_ARGS)
	$(RLLIB)/bin/python -m pytest tests/integrations/rllib $(PYTEST_ARGS)
	$(RLLIB)/bin/python -m pytest -n auto tests/envs $(PYTEST_ARGS)

# The folder agents/ is installed as dp_ensemble_env.agents; for mypy a tree of links puts it in its place.
lint: $(VENV)/.dev ## Check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@rm -rf build/types && mkdir -p build/types/dp_ensemble_env && ln -s $(abspath $(wildcard dp_ensemble_env/*) agents) build/types/dp_ensemble_env/
	$(BIN)/mypy

format: $(VENV)/.dev ## Reformat the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.docs ## Build the documentation site into site/
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -b html docs site
	@echo "The site is in site/index.html"

benchmark: $(VENV)/.dev ## Measure the speed claims as ratios in one run
	$(BIN)/dp-ensemble benchmark solver
	$(BIN)/dp-ensemble benchmark env

clean: ## Remove the virtual environments, the site and caches; keeps runs/
	rm -rf $(VENV) $(INTEGRATIONS) $(RLLIB) site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.created:
	@echo "Creating the virtual environment in $(VENV) ..."
	@$(CHECK_PYTHON)
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.demo: $(VENV)/.created $(REQUIREMENTS)
	@echo "Installing what the demonstration needs (a minute or two) ..."
	@$(PIP) -e ".[plots,privacy,rl]"
	@touch $@

$(VENV)/.dev: $(VENV)/.created $(REQUIREMENTS)
	@echo "Installing what the tests need (a few minutes the first time) ..."
	@$(PIP) -e ".[dev]"
	@touch $@ $(VENV)/.demo

$(VENV)/.docs: $(VENV)/.created $(REQUIREMENTS)
	@echo "Installing what the documentation site needs ..."
	@$(PIP) -e ".[docs]"
	@touch $@

# Of SimBench only a data file is read, so its own requirements are left out.
$(INTEGRATIONS)/.done: $(REQUIREMENTS)
	@echo "Installing the RL libraries in $(INTEGRATIONS) (several minutes the first time) ..."
	@$(CHECK_PYTHON)
	@$(PYTHON) -m venv $(INTEGRATIONS)
	@$(INTEGRATIONS)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[integrations]"
	@$(INTEGRATIONS)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps simbench
	@touch $@

# RLlib asks for Gymnasium 1.2.2: the same constraints but that one.
$(RLLIB)/.done: $(REQUIREMENTS)
	@echo "Installing RLlib in $(RLLIB) (a few minutes the first time) ..."
	@$(CHECK_PYTHON)
	@$(PYTHON) -m venv $(RLLIB)
	@grep -v '^gymnasium==' constraints.txt > $(RLLIB)/constraints.txt
	@$(RLLIB)/bin/python -m pip install --quiet --disable-pip-version-check -c $(RLLIB)/constraints.txt -e ".[rllib,test]"
	@touch $@
