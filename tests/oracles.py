"""Independent definitions that tests compare with: random models of every kind, plain policies, the random streams."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import rel_entr

from dp_ensemble_env.context import Context
from dp_ensemble_env.coupling import Coupling
from dp_ensemble_env.envs.actions import action_scale
from dp_ensemble_env.envs.signals import signals_basis, signals_of
from dp_ensemble_env.model import EnsembleModel

N, M, C, T = 5, 4, 3, 6
MODES = ("signals", "price", "tilt", "policy", "discrete")
#: Shapes in front of behaviour, nature, moves of the context and utility; with coupling and spread start or not.
KINDS: dict[str, dict[str, Any]] = {
    "plain": {"behaviour": ()},
    "nature": {"behaviour": (), "nature": ()},
    "nature by time": {"behaviour": (T,), "nature": (T,), "spread": True},
    "context": {"behaviour": (1, C), "moves": ()},
    "everything": {"behaviour": (T, C), "nature": (T, C), "moves": (T,)},
    "nature by context": {"behaviour": (T,), "nature": (1, C), "moves": (T,), "spread": True},
    "target": {"behaviour": (T,), "nature": (), "coupling": "tracking", "spread": True},
    "limit": {"behaviour": (), "coupling": "limit", "spread": True},
}


def stochastic(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Random rows with zeros in different places of every block."""
    mask = rng.random(shape) < 0.5
    np.put_along_axis(mask, rng.integers(shape[-1], size=(*shape[:-1], 1)), True, axis=-1)
    weights = mask * (rng.gamma(0.7, size=shape) + 1e-3)
    return weights / weights.sum(axis=-1, keepdims=True)


def general_model(kind: str, seed: int = 0, **changes: object) -> EnsembleModel:
    shapes, rng = KINDS[kind], np.random.default_rng(seed)
    m = M if "nature" in shapes else N
    power = rng.uniform(0, 8, N)
    level, weight = rng.uniform(2, 5, T + 1), rng.uniform(0, 3, T + 1)
    fields = {
        "default": stochastic(rng, (*shapes["behaviour"], N, m)),
        "nature": stochastic(rng, (*shapes["nature"], m, N)) if "nature" in shapes else None,
        "context": Context(stochastic(rng, (*shapes["moves"], C, C)), start=[0, 2]) if "moves" in shapes else None,
        "utility": rng.normal(size=(T + 1, C, N) if "moves" in shapes else (T + 1, N)) * 3,
        "initial": rng.dirichlet(np.ones(N)),
        "spread_start": shapes.get("spread", False),
        "coupling": Coupling(shapes["coupling"], level, weight) if "coupling" in shapes else None,
        "discomfort_penalty": 1.5,
        "power_kw": power,
    }
    return EnsembleModel(**{**fields, **changes})


# ------------------------------------------------------------------ actions
def tilted(default: np.ndarray, tilt: np.ndarray) -> np.ndarray:
    """Rows proportional to the default times exp(tilt)."""
    with np.errstate(divide="ignore"):
        logs = np.log(default) + tilt
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def policy_of(model: EnsembleModel, mode: str, action: Any, t: int, w: int = 0) -> np.ndarray:
    """Rows (n, m) that an action stands for."""
    default = model.tables().behaviour[t, w]
    if mode == "policy":
        masked = np.where(default > 0, np.asarray(action, float), 0.0)
        total = masked.sum(axis=1, keepdims=True)
        return np.where(total > 0, masked / np.where(total > 0, total, 1.0), default)
    if mode == "tilt":
        return tilted(default, np.asarray(action, float) * action_scale(model)[t])
    if mode == "signals":
        return tilted(default, np.asarray(action, float) @ signals_basis(model)[t, w])
    price = -1.0 + 0.2 * float(action) if mode == "discrete" else float(action[0])
    power = model.tables().nature.mean(axis=(0, 1)) @ model.power_kw
    nats = signals_of(model).price[t, w]
    return tilted(default, -price * (2.0 * (power - power.min()) / np.ptp(power) - 1.0) * nats)


def divergences(policy: np.ndarray, default: np.ndarray) -> np.ndarray:
    """Nats of each row."""
    return rel_entr(policy, default).sum(axis=-1)


# ------------------------------------------------------------------ optima and draws of control problems
def flows_optimum(model: EnsembleModel) -> float:
    """The best expected return as a convex program in flows, the chance to be somewhere and to decide something."""
    import cvxpy as cp

    behaviour, nature, moves, utility = model.tables()
    (_, c, n, m), coupling = behaviour.shape, model.coupling
    chance = np.ones(1) if model.context is None else model.context.start
    here = [cp.Constant(p * model.initial) for p in chance]
    gain, constraints = 0, []
    for t in range(model.horizon):
        reached = [np.zeros(n)] * c
        for w in np.flatnonzero(chance):
            flow = cp.Variable((n, m), nonneg=True)
            usual = cp.multiply(cp.reshape(here[w], (n, 1), order="C") @ np.ones((1, m)), behaviour[t, w])
            able = behaviour[t, w] > 0
            constraints += [cp.sum(flow, axis=1) == here[w], *([flow[~able] == 0] if (~able).any() else [])]
            gain -= model.discomfort_penalty * cp.sum(cp.rel_entr(flow[able], usual[able]))
            reached[w] = cp.sum(flow, axis=0) @ nature[t, w]
        here = [sum(moves[t, w, v] * reached[w] for w in range(c)) for v in range(c)]
        chance = chance @ moves[t]
        gain += sum(here[v] @ utility[t + 1, v] for v in range(c))
        if coupling is None or coupling.weight[t + 1] == 0:
            continue
        level, weight = coupling.level[t + 1], coupling.weight[t + 1]
        for v in np.flatnonzero(chance):
            power = here[v] @ model.power_kw / chance[v]
            if np.isinf(weight):
                constraints.append(power <= level)
            else:
                miss = cp.square(power - level) if coupling.kind == "tracking" else cp.pos(power - level)
                gain -= chance[v] * weight * miss
    return float(cp.Problem(cp.Maximize(gain), constraints).solve(solver=cp.CLARABEL))


FREE = np.array([[0.5, 0.3, 0.2], [0.25, 0.25, 0.5], [0.1, 0.1, 0.8]])
UTILITY = np.array([[0.0, -1.0, -3.0], [0.0, -2.0, -0.4], [0.5, -1.0, -2.0]])
_CERTAIN = np.array([[0.0, 1.0, 0.0], [0.0, 0.4, 0.6], [1.0, 0.0, 0.0]])  # one row of two successors
#: Some transitions are impossible at one of two times only.
BOTH_WAYS = [EnsembleModel(np.stack(two), [0, 1, 2], UTILITY, 1.5) for two in ((FREE, _CERTAIN), (_CERTAIN, FREE))]


def one_row(p: Any, log_z: Any) -> EnsembleModel:
    """One-step problem whose every row is `p` and whose desirability ahead is `log_z`."""
    rows, utility = np.tile(p, (len(p), 1)), np.stack([np.zeros(len(p)), np.asarray(log_z, float)])
    return EnsembleModel(rows, np.arange(len(p)) + 1.0, utility, 1.0)


# ------------------------------------------------------------------ the random streams
WORD = 2**64 - 1


def rotated(x: int, k: int) -> int:
    return ((x << k) | (x >> (64 - k))) & WORD


def scrambled(word: int) -> int:
    """The finaliser of splitmix64."""
    z = (word + 0x9E3779B97F4A7C15) & WORD
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & WORD
    return z ^ (z >> 31)


class Stream:
    """xoroshiro128++ in plain Python."""

    def __init__(self, a: int, b: int) -> None:
        self.a, self.b = a, b

    def uniform(self) -> float:
        a, b = self.a, self.b
        out = (rotated((a + b) & WORD, 17) + a) & WORD
        b ^= a
        self.a, self.b = rotated(a, 49) ^ b ^ ((b << 21) & WORD), rotated(b, 28)
        return (out >> 11) / 2**53


class EpisodeKey:
    """A generator for `functional` that gives the numbers which a seeded environment draws.

    Rows, contexts and the start come from one stream, all at the start of an episode; moves come from another, which is
    derived from it.
    """

    def __init__(self, model: EnsembleModel, seed: int, rows: int = 1) -> None:
        words = np.random.SeedSequence(seed).generate_state(2, np.uint64)
        self.model, self.rows, self.row, self.episodes = model, rows, 0, Stream(*map(int, words))

    def begin(self) -> EpisodeKey:
        """Draw what an episode begins with."""
        draw, horizon = self.episodes.uniform, self.model.horizon
        if self.rows > 1:
            self.row = int(draw() * self.rows)
        self.contexts = [draw() if self.model.n_contexts > 1 else 0.0 for _ in range(horizon + 1)]
        self.spot = draw()
        first = scrambled(self.episodes.a)
        self.moves = Stream(first, scrambled(self.episodes.b ^ first))
        self.calls = 0
        return self

    def random(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return the next numbers: one for the context, or one for each load (its start, its decision, nature)."""
        if shape == ():
            return np.asarray(self.contexts.pop(0))
        self.calls += 1
        if self.calls == 1 and not self.model.spread_start:
            return np.full(shape, self.spot)
        if self.calls > 1 and self.calls % 2 == 1 and self.model.nature is None:
            return np.zeros(shape)  # the decision is the next state: nothing is drawn
        return np.array([self.moves.uniform() for _ in range(shape[0])])
