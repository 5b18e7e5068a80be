"""Instances and commands that several test files share."""

from __future__ import annotations

import importlib
import itertools
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.special import rel_entr

from dp_ensemble_env.context import Context
from dp_ensemble_env.control.kernel import world
from dp_ensemble_env.control.lsmdp import evaluate_policy
from dp_ensemble_env.control.policies import solve_standard, tilted_policy
from dp_ensemble_env.coupling import Coupling
from dp_ensemble_env.envs import EnsembleEnv, EnsembleVectorEnv
from dp_ensemble_env.model import EnsembleModel

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "scripts"


def refuses(words: str, call: Any, *args: Any, **kwargs: Any) -> None:
    """Check that a call raises a ValueError whose one line matches some words."""
    with pytest.raises(ValueError, match=words) as caught:
        call(*args, **kwargs)
    assert "\n" not in str(caught.value)


def recipe(title: str) -> str:
    """Return the code of a recipe of CONTRIBUTING.md, by its heading."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split(f"## {title}\n")[1].split("\n## ")[0]
    return "\n".join(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL))


def load(command: str) -> Any:
    """Return the module that runs a command."""
    module = importlib.import_module(f"dp_ensemble_env.cli.{command}")
    if hasattr(module, "main"):
        return module
    return SimpleNamespace(main=lambda words: importlib.import_module("dp_ensemble_env.cli").main([command, *words]))


def random_chain(rng: np.random.Generator, n: int, density: float = 0.5) -> np.ndarray:
    """Random stochastic matrix with zeros; every row keeps at least one successor."""
    mask = rng.random((n, n)) < density
    mask[np.arange(n), rng.integers(n, size=n)] = True
    weights = rng.gamma(0.7, size=(n, n)) * mask
    weights[mask] += 1e-3
    return weights / weights.sum(axis=1, keepdims=True)


def random_model(seed: int, n: int = 6, horizon: int = 5, density: float = 0.5, varying: bool = False) -> EnsembleModel:
    rng = np.random.default_rng(seed)
    default = (
        np.stack([random_chain(rng, n, density) for _ in range(horizon)]) if varying else random_chain(rng, n, density)
    )
    return EnsembleModel(
        default=default,
        power_kw=np.sort(rng.uniform(10, 400, n)),
        utility=-rng.uniform(0, 60, (horizon + 1, n)),
        discomfort_penalty=float(rng.uniform(2, 20)),
    )


class TiltEnv(EnsembleEnv):
    """The environment with tilts and dollars, as the paper has them, unless it is said otherwise."""

    def __init__(self, model: Any = None, population: Any = "mean-field", action: str = "tilt", **more: Any) -> None:
        super().__init__(model, population, action, **{"reward": "dollars", **more})


class TiltVectorEnv(EnsembleVectorEnv):
    """Many of them."""

    def __init__(
        self, num_envs: int, model: Any = None, population: Any = "mean-field", action: str = "tilt", **more: Any
    ) -> None:
        super().__init__(num_envs, model, population, action, **{"reward": "dollars", **more})


def write_meter(path: Path, days: int = 28) -> Path:
    """Write a meter file of quarter hours from 11 June 2018 on."""
    rng = np.random.default_rng(0)
    start = np.datetime64("2018-06-11T00:00")
    lines = [
        f"{start + np.timedelta64(15 * i, 'm')},{150 + 90 * np.sin(i / 96 * 6.28) ** 2 + rng.normal(0, 12):.3f}"
        for i in range(days * 96)
    ]
    path.write_text("timestamp,power_kw\n" + "\n".join(lines) + "\n")
    return path


def stochastic(rng, shape):
    weights = rng.gamma(0.5, size=shape) * (rng.random(shape) < 0.7)
    weights[..., 0] += 0.05
    return weights / weights.sum(axis=-1, keepdims=True)


def general_model(seed=0, *, context=True, nature=True, coupling=None, sizes=(4, 5, 6, 3), **changes):
    """Small random problem with a context, nature or a coupling; `sizes` are horizon, states, decisions, contexts."""
    rng = np.random.default_rng(seed)
    T, N, M, C = sizes
    m = M if nature else N
    fields = {
        "default": stochastic(rng, (T, C, N, m) if context else (T, N, m)),
        "power_kw": rng.uniform(0, 8, N),
        "utility": 2 * rng.normal(size=(T + 1, C, N) if context else (T + 1, N)),
        "discomfort_penalty": 0.7,
        "nature": stochastic(rng, (T, C, m, N) if context else (m, N)) if nature else None,
        "context": Context(stochastic(rng, (T, C, C)), start=rng.dirichlet(np.ones(C))) if context else None,
        "coupling": coupling,
        "initial": rng.dirichlet(np.ones(N)),
        "spread_start": True,
    }
    return EnsembleModel(**{**fields, **changes})


def along_contexts(model, tilts):
    """Expected return of tilts (T, c, m) by walking every path of contexts: plain NumPy, nothing shared."""
    behaviour, nature, moves, utility = model.tables()
    total = 0.0
    for path in itertools.product(range(model.n_contexts), repeat=model.horizon + 1):
        chance = model.context.start[path[0]] * np.prod([moves[t, path[t], path[t + 1]] for t in range(model.horizon)])
        rho, earned = model.initial, 0.0
        for t in range(model.horizon):
            weights = behaviour[t, path[t]] * np.exp(tilts[t, path[t]])
            policy = weights / weights.sum(axis=1, keepdims=True)
            earned -= model.discomfort_penalty * rho @ rel_entr(policy, behaviour[t, path[t]]).sum(axis=1)
            rho = rho @ policy @ nature[t, path[t]]
            earned += rho @ utility[t + 1, path[t + 1]]
        total += chance * earned
    return total


LEVEL, WEIGHT = np.array([0.0, 2.0, 5.0, 3.0, 4.0]), np.array([0.0, 1.0, 0.5, 2.0, 0.3])
GENERAL = {
    "paper": lambda: general_model(1, context=False, nature=False),
    "nature": lambda: general_model(2, context=False),
    "context": lambda: general_model(3, nature=False),
    "both": lambda: general_model(4),
    "tracking": lambda: general_model(5, context=False, coupling=Coupling.tracking(LEVEL, WEIGHT)),
    "limit": lambda: general_model(6, context=False, coupling=Coupling.limit(LEVEL, WEIGHT)),
}


def switches(seed: int) -> EnsembleModel:
    """A heater in one of four states that is switched on or off; in a cold spell it is switched on more often."""
    rng = np.random.default_rng([seed, 3])
    on = np.array([[0.9, 0.7, 0.5, 0.1], [0.99, 0.95, 0.8, 0.6]]) + rng.uniform(-0.05, 0.0, (2, 4))
    default, guess = (np.zeros((1, 2, 4, 8)) for _ in range(2))
    nature = np.zeros((8, 4))
    for state in range(4):  # a decision is the state that one is in, and the switch
        for table, share in ((default, on[:, state]), (guess, np.full(2, 0.5))):
            table[0, :, state, 2 * state], table[0, :, state, 2 * state + 1] = 1.0 - share, share
        nature[2 * state, max(state - 1, 0)] += 1.0
        nature[2 * state + 1, min(state + 1, 3)] += 0.8
        nature[2 * state + 1, state] += 0.2
    fields = {"power_kw": [1.0, 2.0, 3.0, 4.0], "discomfort_penalty": 1.5, "nature": nature, "guess": guess}
    utility = np.broadcast_to(np.array([[0.2], [1.5]]) * -np.array([0.0, 1.0, 2.0, 4.0]), (13, 2, 4))
    public = ("levels", "utility", "penalty", "initial")
    return EnsembleModel(
        default, utility=utility, context=Context([[0.8, 0.2], [0.4, 0.6]]), public_fields=public, **fields
    )


def deployed(model: EnsembleModel, matrix: np.ndarray | None) -> float:
    """Return of the plan on a matrix, deployed as a tilt, by hand; without a matrix of no interference."""
    tilt = np.zeros((model.horizon, model.n_contexts, model.n_decisions))
    if matrix is not None:
        tilt = solve_standard(model.with_default(matrix)).tilt
    policy = tilted_policy(model, tilt)
    cost = evaluate_policy(policy, model.default, model.utility, model.discomfort_penalty, **world(model))[0]
    return -float((model.start_weights * (cost + model.utility[0])).sum())
