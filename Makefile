# Two commands set everything up on a fresh machine: `make demo` and `make test`.
# Both share one virtual environment; a second run finds it and starts at once.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
REQUIREMENTS := pyproject.toml constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test lint format benchmark clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/.demo ## Compare the controllers, a PPO trained on the spot among them; writes runs/demo
	$(BIN)/python scripts/compare.py --output runs/demo

test: $(VENV)/.dev ## Run the test suite
	$(BIN)/python -m pytest -n auto --dist worksteal $(PYTEST_ARGS)

lint: $(VENV)/.dev ## Check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev ## Reformat the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

benchmark: $(VENV)/.dev ## Measure the speed claims as ratios in one run
	$(BIN)/python scripts/benchmark.py solver
	$(BIN)/python scripts/benchmark.py env

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.created:
	@echo "Creating the virtual environment in $(VENV) ..."
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; run 'make PYTHON=python3.12 ...' with one you have."; exit 1; }
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
