"""Try to break the claim that a participant is protected, from the noisy sums to a trained agent.

A canary joins a fleet of simulated participants, or does not (`dp_ensemble_env.privacy.audit`). What is attacked is
made anew for every draw: the noisy numbers that the guarantee is about, the release, the plan solved on it, and an
agent that learned in the environment of the release. The training seed is fixed and known to the attacker, as it
would be from a run folder. The same without privacy is the positive control: a plan made on the true estimate, and an
agent trained on it, must give the canary away.

The attacker shows the less the further a thing is from the noise: there are fewer draws of it, and a release drops most
of what the noisy sums tell. "Nothing shown" is no proof of privacy; the proof is that of the mechanism.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.agents.z_learning import learn
from dp_ensemble_env.control.lsmdp import log_probabilities, solve
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.experiments.studies.attacks import CONFIDENCE
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.audit import Claim, Kind, audit_pair, guess_canary, with_canary
from dp_ensemble_env.privacy.fleet import Fleet
from dp_ensemble_env.privacy.mechanisms import Mechanism, mechanism
from dp_ensemble_env.privacy.mechanisms.base import make_permit
from dp_ensemble_env.privacy.mechanisms.dirichlet import DirichletMechanism
from dp_ensemble_env.privacy.mechanisms.fleet_sums import OneQuery
from dp_ensemble_env.privacy.mechanisms.laplace import LaplaceMechanism
from dp_ensemble_env.privacy.release import Release
from dp_ensemble_env.tools.console import Monitor
from dp_ensemble_env.tools.validation import check_count

FloatArray = NDArray[np.float64]
HEADINGS = ("attacked", "draws", "claimed", "shown, at least", "verdict")
#: Largest reward of the attacked problem, in nats, and its number of decisions.
STEEP, HORIZON = 2.0, 8
#: Transitions that an agent learns from; a seed that everyone knows.
TRANSITIONS, TRAINING_SEED = 1600, 7
#: δ of a claim whose mechanism does not name one.
DELTA = 1e-6
_LEAST = 1e-6


@dataclass(frozen=True)
class CanarySettings:
    """What is attacked, and how hard.

    Attributes
    ----------
    privacy : str
        The mechanism that is attacked. The Dirichlet mechanism gets every transition as its public support, and at most
        `clip` transitions of a participant out of a level.
    participants : int
        Participants beside the canary.
    states : int
        Levels of power.
    steps, clip : int
        Transitions of each participant, and how many of them a Dirichlet release uses.
    draws, releases, agents : int
        Noisy sums, releases (and plans on them) and trained agents, each with the canary and without it.
    seed : int
    """

    privacy: str = "gaussian:epsilon=4"
    participants: int = 60
    states: int = 6
    steps: int = 96
    clip: int = 10
    draws: int = 20_000
    releases: int = 10_000
    agents: int = 800
    seed: int = 0

    def __post_init__(self) -> None:
        check_count(self.participants, "participants")
        if not 3 <= check_count(self.states, "states") <= HORIZON:
            raise ValueError(f"states must be 3 to {HORIZON}, got {self.states}: the attacked problem is a small one.")
        for name in ("draws", "releases", "agents"):
            check_count(getattr(self, name), name, 100)  # half of them fit a direction
        if self.agents > self.releases:
            raise ValueError(f"agents={self.agents} need as many releases, got releases={self.releases}; raise it.")


@dataclass(frozen=True)
class Finding:
    """One attack: the ε that is claimed at δ, the lower bound that is shown, and whether that is as it should be."""

    attacked: str
    draws: int
    delta: float
    claimed: float
    shown: float
    verdict: str
    good: bool

    def cells(self) -> tuple[str, ...]:
        """Format a row for people."""
        return (self.attacked, f"{self.draws:,}", _number(self.claimed), _number(self.shown), self.verdict)


def _number(value: float) -> str:
    return "unbounded" if math.isinf(value) else f"{value:.3g}"


# ------------------------------------------------------------------ the problem
def make_fleets(settings: CanarySettings, kind: Kind = "stays") -> tuple[Fleet, Fleet]:
    """Return two adjacent fleets: with the canary, and without it. Nobody else jumps by more than a level."""
    n = settings.states
    step = 0.15 * (np.eye(n, k=1) + np.eye(n, k=-1))
    behaviour = step + np.diag(1.0 - step.sum(axis=1))
    without = Fleet.simulate(behaviour, settings.participants, settings.seed, steps=settings.steps)
    return with_canary(without, kind), without


def utility_of(n: int) -> FloatArray:
    """Return public rewards that favour other levels at every time, so that a plan tells much about each row."""
    times, levels = np.arange(HORIZON + 1), np.arange(n)
    return np.asarray(STEEP * np.sin(np.outer(times + 1.0, levels + 1.0)))


def model_of(fleet: Fleet) -> EnsembleModel:
    """Return the true model: everybody's transitions, pooled without any protection."""
    everything = np.ones(fleet.shape, dtype=bool)
    pooled = fleet.chain(int(fleet.counts.sum(axis=2).max()), everything).default
    return EnsembleModel(pooled, np.arange(1.0, fleet.n_states + 1.0), utility_of(fleet.n_states), 1.0)


# ------------------------------------------------------------------ what is attacked
def draw_sums(mechanisms: Sequence[OneQuery], fleet: Fleet, seed: int) -> FloatArray:
    """Draw the noisy numbers of one or several releases; all get the same seed, as in a sweep."""
    permits = [make_permit(one.event(fleet, seeding="seed"), seed, fleet) for one in mechanisms]
    return np.concatenate([one.noisy(fleet, p).ravel() for one, p in zip(mechanisms, permits, strict=True)])


def matrix_features(matrix: FloatArray) -> FloatArray:
    """Describe a matrix by its entries and their logarithms."""
    return np.concatenate([matrix.ravel(), np.log(np.maximum(matrix, _LEAST)).ravel()])


def plan_features(matrix: FloatArray) -> FloatArray:
    r"""Solve the problem on a matrix, and describe the plan by the matrix that its desirabilities give away.

    Theorem 1 is linear in the matrix, :math:`z_t e^{-U_t} = P z_{t+1}`: with as many times as levels it can be solved.
    """
    utility = utility_of(len(matrix))
    log_z = solve(log_probabilities(matrix), utility, 1.0).log_desirability
    level = log_z[1:].max(axis=1, keepdims=True)
    seen, later = np.exp(log_z[:-1] - utility[:-1] - level), np.exp(log_z[1:] - level)
    return matrix_features(np.linalg.lstsq(later, seen)[0].T)


def agent_features(model: EnsembleModel, privacy: Release | None, seed: int = TRAINING_SEED) -> FloatArray:
    """Train an agent by Z-learning in the environment of a release, or of the truth, and describe it by its tilts."""
    env = EnsembleEnv(model=model, privacy=privacy, action="tilt", population="single")
    return learn(env, TRANSITIONS, "passive", seed=seed, batch=100, tolerance=0.0).tilt[:-1].ravel()


# ------------------------------------------------------------------ the attacks
def terms_of(attacked: Mechanism, fleet: Fleet, clip: int) -> dict[str, Any]:
    """Return the public terms of a draw from a fleet: a support and a clip, where the mechanism needs them."""
    if isinstance(attacked, DirichletMechanism):
        return {"support": np.ones(fleet.shape, dtype=bool), "clip": clip}
    return {}


def claim_of(mechanisms: Sequence[Mechanism], fleet: Fleet, **terms: Any) -> Claim:
    """Return what the draws together claim, at the largest δ of theirs (0 for Laplace noise)."""
    events = [one.event(fleet, seeding="seed", **terms) for one in mechanisms]
    deltas = [0.0 if isinstance(one, LaplaceMechanism) else float(getattr(one, "delta", DELTA)) for one in mechanisms]
    return Claim.of(*events, delta=max(deltas))


def attack_participants(settings: CanarySettings, monitor: Monitor | None = None) -> list[Finding]:
    """Attack the mechanism from the noisy sums to the agent, and then the same without privacy."""
    attacked, fleets = mechanism(settings.privacy), make_fleets(settings)
    claim = claim_of([attacked], fleets[1], **terms_of(attacked, fleets[1], settings.clip))
    drawn = _draw_all(attacked, fleets, settings, monitor or Monitor())
    return [_private(name, claim, *features) for name, features in drawn.items()] + _controls(fleets, claim)


def _draw_all(
    attacked: Mechanism, fleets: tuple[Fleet, Fleet], settings: CanarySettings, monitor: Monitor
) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Draw everything that is attacked, with the canary and without it."""
    seeds = np.random.default_rng([settings.seed, 1])
    models = [model_of(fleet) for fleet in fleets]
    releases: tuple[list[Release], list[Release]] = ([], [])

    def seed() -> int:
        return int(seeds.integers(2**62))

    def both(text: str, number: int, make: Callable[[int, int], FloatArray]) -> tuple[FloatArray, FloatArray]:
        monitor.stage(text, 2 * number)

        def one(side: int, i: int) -> FloatArray:
            monitor.advance(side * number + i)
            return make(side, i)

        with_it, without_it = (np.stack([one(side, i) for i in range(number)]) for side in (0, 1))
        return with_it, without_it

    def release(side: int, _: int) -> FloatArray:
        terms = terms_of(attacked, fleets[side], settings.clip)
        releases[side].append(attacked.release(fleets[side], seed(), **terms))
        return matrix_features(releases[side][-1].matrix)

    found = {}
    if isinstance(attacked, OneQuery):
        drawer, pair = [attacked], (with_canary(fleets[1], "jumps"), fleets[1])  # no cell is dropped from the sums
        found["noisy sums"] = both("drawing sums", settings.draws, lambda s, _: draw_sums(drawer, pair[s], seed()))
    found["release"] = both("drawing releases", settings.releases, release)
    found["plan on the release"] = both(
        "solving plans", settings.releases, lambda s, i: plan_features(releases[s][i].matrix)
    )
    found["agent on the release"] = both(
        "training agents", settings.agents, lambda s, i: agent_features(models[s], releases[s][i])
    )
    return found


def _private(name: str, claim: Claim, first: FloatArray, second: FloatArray) -> Finding:
    shown = guess_canary(first, second, claim, confidence=CONFIDENCE).epsilon
    held = shown <= claim.epsilon
    return Finding(name, len(first), claim.delta, claim.epsilon, shown, "held" if held else "BROKEN", held)


def _controls(fleets: tuple[Fleet, Fleet], claim: Claim) -> list[Finding]:
    """Attack the same without privacy: deterministic functions of the data, for which no ε holds (E8)."""
    pipelines: dict[str, Callable[[Fleet], FloatArray]] = {
        "estimate, no privacy": lambda fleet: model_of(fleet).default,
        "plan, no privacy": lambda fleet: plan_features(model_of(fleet).default),
        "agent, no privacy": lambda fleet: agent_features(model_of(fleet), None),
    }
    found = []
    for name, pipeline in pipelines.items():
        shown = audit_pair(pipeline, *fleets)
        caught = shown > claim.epsilon
        found.append(Finding(name, 3, claim.delta, claim.epsilon, shown, "caught" if caught else "NOT caught", caught))
    return found
