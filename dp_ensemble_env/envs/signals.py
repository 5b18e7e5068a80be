r"""Signals: a few directions of tilts with units in which the optimum is of order one (MATH 15).

An action of `k` numbers in [-1, 1] gives the tilt :math:`\ell_t[w] = \sum_j a_j\,u_j(t, w)\,d_j`. Directions and
units come from a family of public models, never from the model that is played:

- the *design family*: eight separate instances of a scenario. The signals are recorded with the scenario
  (``python scripts/data.py signals``), for its models with the same numbers of times, contexts and decisions;
- the *public family*: textbook or lazy walks in place of the behaviour, for all other models.

With the optimal tilts :math:`L_i` of the family and the metric :math:`M = \sum_i M_i/\mathrm{tr}\,M_i + 10^{-4}/m`,
:math:`M_i = \sum_{t,w,s} \rho_i(t,w,s)\,(\mathrm{diag}\,\pi_i - \pi_i\pi_i^\top)`
(:math:`\tfrac12\gamma\,\delta\ell^\top M\,\delta\ell` is the cost of a wrong tilt), the directions are the leading
right singular vectors of the rows
:math:`L_i M^{1/2}`, times :math:`M^{-1/2}`; an amplitude is :math:`b_{ij} = L_i M d_j`, and units are its root mean
squares :math:`\sqrt{q_j(t, w)}` over the family. So that a constant action does not already follow the context, `q` is
replaced by :math:`q_j(t,w)^\alpha\,\overline{q_j(t,\cdot)}^{\,1-\alpha}` with :math:`\alpha = 1/2`, and contexts that
look the same have the same units. A price is the same with one given direction, the power.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env import scenarios
from dp_ensemble_env.chain.markov import lazy_walk
from dp_ensemble_env.control.policies import centred, tilted_policy
from dp_ensemble_env.control.returns import optimal_tilts, shares
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.mechanisms.public import public_guess

FloatArray = NDArray[np.float64]
#: The recorded signals of the scenarios.
RECORD = Path(__file__).parent / "signals.json"
#: Directions from a design family and from a public one.
DESIGN_SIZE, PUBLIC_SIZE = 6, 8
#: How much of the context the units carry, the least unit in parts of the mean, and the share that others lend.
ALPHA, FLOOR, SHARE = 0.5, 0.15, 0.3
#: Weights of staying and decay with distance of the walks that stand for behaviour where there is no textbook.
WALKS = ((0.4, 0.3), (0.8, 0.3), (0.6, 0.2), (0.6, 0.4), (10.0, 0.9), (3.0, 0.9), (10.0, 0.6))
#: Factors by which a textbook may be wrong about how often loads do anything but the usual.
RATES = (1 / 3, 5 / 3)
_OWN: WeakKeyDictionary[EnsembleModel, Signals] = WeakKeyDictionary()


class Signals(NamedTuple):
    """Directions and units."""

    directions: FloatArray  #: (k, m)
    units: FloatArray  #: (T, c, k) nats that an action of one stands for along each direction
    price: FloatArray  #: (T, c) the same along the power


def signals_basis(model: EnsembleModel) -> FloatArray:
    """Return the tilts of the signals, shape (T, c, k, m)."""
    signals = signals_of(model)
    basis: FloatArray = signals.units[..., None] * signals.directions
    return basis


def price_basis(model: EnsembleModel) -> FloatArray:
    """Return the tilts of a price of one, shape (T, c, 1, m): a positive price lowers the power."""
    basis: FloatArray = -signals_of(model).price[..., None, None] * power_direction(model)
    return basis


def power_direction(model: EnsembleModel) -> FloatArray:
    """Return the power that decisions lead to, rescaled to [-1, 1]; zeros if it is always the same."""
    power = model.decision_power
    low, high = power.min(), power.max()
    if high == low:
        return np.zeros(model.n_decisions)
    direction: FloatArray = 2.0 * (power - low) / (high - low) - 1.0
    return direction


def signals_of(model: EnsembleModel) -> Signals:
    """Return the signals of a model: recorded with its scenario, or found on its public family."""
    known = recorded(model.scenario)
    shape = model.horizon, model.n_contexts, model.n_decisions
    if known is not None and (*known.price.shape, known.directions.shape[1]) == shape:
        return known
    if model not in _OWN:
        _OWN[model] = find(public_family(model), PUBLIC_SIZE, design=False)
    return _OWN[model]


# ------------------------------------------------------------------ families
def design_family(name: str) -> list[EnsembleModel]:
    """Return the instances of a scenario that nobody plays."""
    return [scenarios.make(name, instance=i, split=scenarios.DESIGN) for i in scenarios.instances(scenarios.DESIGN)]


def public_family(model: EnsembleModel) -> list[EnsembleModel]:
    """Return the model with public guesses in the place of its behaviour."""
    guess = public_guess(model).matrix
    likeliest = guess == guess.max(axis=-1, keepdims=True)
    weights = [np.where(likeliest, guess, rate * guess) for rate in RATES]  # whatever is not the usual
    others = [one / one.sum(axis=-1, keepdims=True) for one in weights]
    if model.guess is None and model.n_states == model.n_decisions and model.coupling is None:
        walks = [lazy_walk(model.n_states, *weights, reach=None if weights[0] >= 1 else 5) for weights in WALKS]
        others = [np.broadcast_to(walk, guess.shape) for walk in walks]
    return [model.with_default(behaviour) for behaviour in (guess, *others)]


# ------------------------------------------------------------------ directions and units
def find(family: Sequence[EnsembleModel], size: int, *, design: bool) -> Signals:
    """Find at most `size` directions, and the units, of a family of models."""
    plans = np.stack([_plan(model) for model in family])  # (i, T, c, m)
    m = plans.shape[-1]
    covariances = [_covariance(model, plan) for model, plan in zip(family, plans, strict=True)]
    # Where the optimum is deterministic, a covariance is rounding alone.
    metric = sum((one / max(np.trace(one), 1e-9) for one in covariances), 1e-4 / m * np.eye(m))
    values, vectors = np.linalg.eigh(metric)
    values = np.maximum(values, 1e-4 / m)
    metric = (vectors * values) @ vectors.T
    root, inverse = (vectors * np.sqrt(values)) @ vectors.T, (vectors / np.sqrt(values)) @ vectors.T
    strength, right = np.linalg.svd(plans.reshape(-1, m) @ root, full_matrices=False)[1:]
    right = right[: max(1, min(size, int((strength > 1e-9 * strength[0]).sum())))]
    signs = np.sign(right[np.arange(len(right)), np.abs(right).argmax(axis=1)])
    right *= (signs * (-1.0) ** np.arange(len(right)))[:, None]  # by turns, so that they tell nothing
    directions, along = right @ inverse, -power_direction(family[0])
    weight = along @ metric @ along
    price = plans @ (metric @ along) / weight if weight > 0 else np.zeros(plans.shape[:-1])
    units = _units(family[0], plans @ metric @ directions.T, design)
    return Signals(directions, units, _units(family[0], price[..., None], design)[..., 0])


def _plan(model: EnsembleModel) -> FloatArray:
    """Return the optimal tilts (T, c, m), centred, zero for decisions that nobody takes at that time."""
    behaviour = model.tables().behaviour
    taken = (behaviour > 0).any(axis=-2)
    return np.where(taken, centred(optimal_tilts(model), behaviour, taken), 0.0)


def _covariance(model: EnsembleModel, tilts: FloatArray) -> FloatArray:
    """Return the covariance (m, m) of the decisions that loads take, summed over an episode."""
    policy = tilted_policy(model, tilts if model.context is not None else tilts[:, 0])
    rows = policy.reshape(-1, model.n_decisions)
    flow = shares(model, policy)[:-1].reshape(-1, 1) * rows
    covariance: FloatArray = np.diag(flow.sum(axis=0)) - flow.T @ rows
    return covariance


def _units(model: EnsembleModel, amplitudes: FloatArray, design: bool) -> FloatArray:
    """Return the units (T, c, k) of amplitudes (i, T, c, k)."""
    square = (amplitudes**2).mean(axis=0)
    possible = np.ones((model.horizon, 1))
    if model.context is not None:
        square = model.context.as_shown(square)
        possible = (model.context.distributions(model.horizon - 1) > 0).astype(float)
    weights = possible[..., None] / possible.sum(axis=1)[:, None, None]
    square = square**ALPHA * (weights * square).sum(axis=1, keepdims=True) ** (1.0 - ALPHA)
    total = square if design else square.sum(axis=-1, keepdims=True)
    mean = (possible[..., None] * total).sum(axis=(0, 1)) / possible.sum()
    if design:
        floored: FloatArray = np.maximum(np.sqrt(square), FLOOR * np.sqrt(mean))
        return floored
    units: FloatArray = np.sqrt(square + SHARE**2 * np.maximum(total, SHARE**2 * mean))
    return units


# ------------------------------------------------------------------ the record
def recorded(scenario: str) -> Signals | None:
    """Return the signals recorded with this version of a scenario, if there are any."""
    entry = _content().get(scenario)
    if entry is None or scenario not in scenarios.names() or scenarios.card(scenario).version != entry["version"]:
        return None
    return _read(scenario)


def entry_of(name: str) -> dict[str, Any]:
    """Compute what is recorded of a scenario: its signals to five digits, with a digest."""
    signals = find(design_family(name), DESIGN_SIZE, design=True)
    numbers = {field: _rounded(getattr(signals, field)) for field in Signals._fields}
    return {"version": scenarios.card(name).version, "digest": digest_of(numbers), **numbers}


def digest_of(numbers: dict[str, Any]) -> str:
    """Return a short digest of recorded numbers."""
    plain = json.dumps([numbers[field] for field in Signals._fields], separators=(",", ":"))
    return hashlib.sha256(plain.encode()).hexdigest()[:16]


def _rounded(array: FloatArray) -> Any:
    return [float(f"{x:.4e}") for x in array.tolist()] if array.ndim == 1 else [_rounded(row) for row in array]


@lru_cache(maxsize=1)
def _content() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    return content


@lru_cache(maxsize=64)
def _read(scenario: str) -> Signals:
    arrays = [np.array(_content()[scenario][field]) for field in Signals._fields]
    for array in arrays:
        array.setflags(write=False)
    return Signals(*arrays)
