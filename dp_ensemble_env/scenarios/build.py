"""The pieces that scenarios share: random streams, times, contexts, starts, programmes, the scale of tilts."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_ensemble_env.chain.markov import lazy_walk, stationary
from dp_ensemble_env.context import Context
from dp_ensemble_env.control.policies import centred, solve_standard
from dp_ensemble_env.model import DECLARABLE, EnsembleModel, FloatArray
from dp_ensemble_env.tools.validation import check_count

#: Of machines that run programmes: hours of a step, share that waits at the start, factor of the scale of tilts.
STEP_HOURS, WAITING, FACTOR = 0.25, 0.5, 2.6
#: Weights of the walk that stands for behaviour where there is no guess: as sticky as a programme is long.
STAY, DECAY = 10.0, 0.9


def streams(name: str, seed: int) -> tuple[np.random.Generator, np.random.Generator]:
    """Return one stream for what is public in an instance of a scenario, and one for what is private."""
    public, private = np.random.SeedSequence([check_count(seed, "seed", 0), zlib.crc32(name.encode())]).spawn(2)
    return np.random.default_rng(public), np.random.default_rng(private)


def clock_times(date: str, first_hour: float, step_hours: float, horizon: int) -> NDArray[np.datetime64]:
    """Return the times 0 … T of the decisions."""
    start = np.datetime64(date, "s") + np.timedelta64(round(3600 * first_hour), "s")
    return start + np.arange(horizon + 1) * np.timedelta64(round(3600 * step_hours), "s")


def neighbours(stay: Sequence[float]) -> FloatArray:
    """Return how one of three contexts moves in a step: it stays with its probability, or a neighbour follows."""
    low, mid, high = stay
    return np.array([[low, 1 - low, 0.0], [(1 - mid) / 2, mid, (1 - mid) / 2], [0.0, 1 - high, high]])


def usual_context(transition: FloatArray, names: tuple[str, ...]) -> Context:
    """Return a context that has been moving for long when the episode begins."""
    return Context(transition, names, start=stationary(transition))


def settled(behaviour: FloatArray, nature: Iterable[FloatArray], start: FloatArray, rounds: int) -> FloatArray:
    """Return how loads are spread that followed `behaviour` for so many rounds through the steps of `nature`."""
    steps = [behaviour @ matrix for matrix in nature]
    spread = start
    for _ in range(rounds):
        for step in steps:
            spread = spread @ step
    return np.asarray(spread / spread.sum())


def carried(table: FloatArray) -> FloatArray:
    """Write decisions that depend on a second axis k and keep it, (i, j, k), out as a matrix (i k, j k)."""
    i, j, k = table.shape
    return np.asarray(np.einsum("ijk,kl->ikjl", table, np.eye(k)).reshape(i * k, j * k))


def between(place: FloatArray, size: int) -> FloatArray:
    """Share places (…) between the two neighbouring points of a grid so that the mean is exact, (…, size)."""
    place = np.clip(place, 0.0, size - 1)
    below = np.minimum(place.astype(int), size - 2)
    part, points = (place - below)[..., None], np.eye(size)
    return np.asarray((1.0 - part) * points[below] + part * points[below + 1])


def assemble(
    overrides: Mapping[str, Any], *, factor: float | None = None, by_time: bool = False, **fields: Any
) -> EnsembleModel:
    """Make the model of a scenario: `fields` of `EnsembleModel`, and in the end the user's `overrides`.

    With a `factor` the scale of tilts is computed; see `tilt_scale`. By default the start is spread over the loads, and
    public like the levels. A misspelt name is refused.
    """
    usual = {"spread_start": True, "public_fields": ("levels", "utility", "penalty", "initial")}
    model = EnsembleModel(**{**usual, **fields})
    if factor is not None:
        model = model.override(tilt_scale=tilt_scale(model, factor, by_time))
    return model.override(**overrides) if overrides else model


def tilt_scale(model: EnsembleModel, factor: float, by_time: bool) -> FloatArray:
    """Return the scale of tilts (T,) that a plan without data needs, times `factor`.

    The plan is made on the model's guess, or on a sticky walk if there is none. The scale is the largest tilt at each
    time, or the largest of all at all times.
    """
    guess = lazy_walk(model.n_states, STAY, DECAY) if model.guess is None else np.asarray(model.guess, dtype=float)
    tilts = solve_standard(model.with_default(guess)).tilt
    taken = (guess > 0).reshape(-1, model.n_decisions).any(axis=0)
    widths = np.abs(centred(tilts, guess, taken)[..., taken]).reshape(model.horizon, -1).max(axis=1)
    return np.asarray(factor * (widths if by_time else np.full(model.horizon, widths.max())))


# ------------------------------------------------------------------ machines that run programmes
def programme(phases_kw: ArrayLike, idle_kw: float, start: float, dwell: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the default matrix and the power levels of a machine that waits, starts, and passes through its phases.

    It draws `idle_kw` while it waits, starts with probability `start`, and stays in a phase for another step with its
    `dwell`. States are in the order of their power, as a meter would show them. The levels are public; in which order
    they are visited, how often a machine starts and how long it dwells is private.
    """
    power = np.concatenate([[idle_kw], np.asarray(phases_kw, float)])
    chance = np.concatenate([[1.0 - start], dwell])
    matrix = np.diag(chance) + np.diag(1.0 - chance[:-1], 1)
    matrix[-1, 0] = 1.0 - chance[-1]
    order = np.argsort(power, kind="stable")
    return matrix[np.ix_(order, order)], power[order]


def machines(
    overrides: Mapping[str, Any],
    programme: tuple[FloatArray, FloatArray],
    prices: FloatArray,
    *,
    factor: float = FACTOR,
    **fields: Any,
) -> EnsembleModel:
    """Build the model of machines that pay `prices` (c,) in dollars per kWh, the price being known from the context."""
    default, power = programme
    utility = np.zeros((len(fields["times"]), len(prices), len(power)))
    utility[1:] = -STEP_HOURS * prices[:, None] * power
    initial = np.full(len(power), (1.0 - WAITING) / (len(power) - 1))
    initial[0] = WAITING
    return assemble(
        overrides,
        factor=factor,
        by_time=True,
        default=default,
        power_kw=power,
        utility=utility,
        initial=initial,
        public_fields=DECLARABLE,  # synthetic; levels and start are stipulated, not measured
        **fields,
    )
