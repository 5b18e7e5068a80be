"""Attack the protection of rows and participants, and compare the lower bounds with the claims.

Rows: the Dirichlet mechanism and practices that only look private. Participants: a canary joins a fleet of simulated
participants, or does not (`dp_ensemble_env.privacy.audit`). Each draw is attacked in four forms: the noisy numbers that
the guarantee covers, the release, a plan computed from it, and an agent trained on it. The training seed is fixed and
known to the attacker, as it would be from a run folder. The positive control has no privacy: a plan from the true
estimate, and an agent trained on it, must reveal the canary. An attack that fails does not prove privacy; the
mechanism's proof does.
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
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy import audit
from dp_ensemble_env.privacy.accounting.compose import RowGroup, composed_epsilon
from dp_ensemble_env.privacy.accounting.divergence import adjacent_row, worst_case_epsilon
from dp_ensemble_env.privacy.audit import Claim, Kind
from dp_ensemble_env.privacy.fleet import Fleet
from dp_ensemble_env.privacy.mechanisms import Mechanism, mechanism
from dp_ensemble_env.privacy.mechanisms.base import make_permit
from dp_ensemble_env.privacy.mechanisms.dirichlet import DirichletMechanism
from dp_ensemble_env.privacy.mechanisms.fleet_sums import OneQuery
from dp_ensemble_env.privacy.mechanisms.laplace import LaplaceMechanism
from dp_ensemble_env.privacy.release import Release
from dp_ensemble_env.tools.console import Monitor
from dp_ensemble_env.tools.validation import check_count, check_positive

FloatArray = NDArray[np.float64]
#: Confidence of each lower bound, and draws of each input.
CONFIDENCE, DRAWS = 1.0 - 1e-6, 400_000
HEADINGS = ("attacked", "draws", "claimed", "shown, at least", "verdict")
#: Largest reward of the attacked problem, in nats, and its number of decisions.
STEEP, HORIZON = 2.0, 8
#: Transitions that an agent learns from; a seed that everyone knows.
TRANSITIONS, TRAINING_SEED = 1600, 7
#: δ of a claim whose mechanism does not name one.
DELTA = 1e-6
_LEAST = 1e-6


# ------------------------------------------------------------------ rows
@dataclass(frozen=True)
class AttackSettings:
    """The mechanism that is attacked, and how hard."""

    k: float = 50.0
    """Concentration of the Dirichlet mechanism."""
    floor: float = 0.1
    """Least entry before the draw."""
    h: float = 0.03
    """Adjacency: L1 distance of two rows."""
    delta: float = 0.05
    """Probability of exceeding epsilon."""
    draws: int | None = None
    """Draws of each input: 400,000 unless given, 20,000 with --participants."""
    samples: int = 16
    """Draws in the attacked average."""
    seed: int = 0
    """Seed of the attack."""

    def __post_init__(self) -> None:
        check_positive(self.k, "k")
        check_count(DRAWS if self.draws is None else self.draws, "draws", 4)
        check_count(self.samples, "samples")
        if self.floor * 3 + self.h / 2 > 1 or self.floor <= 0:
            raise ValueError(f"floor must lie above 0 and leave space for rows that differ by h={self.h:g}.")


@dataclass(frozen=True)
class Attack:
    """One attack: a lower bound on epsilon that it shows, what is claimed, and whether the two go together."""

    name: str
    shown: float
    claimed: str
    verdict: str
    good: bool


def attack(settings: AttackSettings, monitor: Monitor | None = None) -> list[Attack]:
    """Attack the mechanism, two mutants, a deterministic policy and an average of draws."""
    k, h, delta, omega = settings.k, settings.h, settings.delta, settings.floor
    count = DRAWS if settings.draws is None else settings.draws
    rng, monitor = np.random.default_rng(settings.seed), monitor or Monitor()
    row = np.array([omega + h / 2, omega, 1 - 2 * omega - h / 2])  # the worst row: its pair dominates all others
    claim = worst_case_epsilon(delta, k, h, omega)
    composed = composed_epsilon(delta, [RowGroup(k, omega, h, settings.samples)])

    def bound(factor: float, draws: int, samples: int = 1) -> float:
        drawn = DirichletMechanism(k * factor)
        return audit.audit_epsilon(drawn, row, 0, 1, h, delta, draws, rng, samples=samples, confidence=CONFIDENCE)

    said = f"{claim:.4g}"
    plan: list[tuple[str, Callable[[], float], str, str, Callable[[float], bool]]] = [
        ("the mechanism", lambda: bound(1, count), said, "below the claim", lambda shown: shown <= claim),
        ("mutant with 2k", lambda: bound(2, count), said, "caught", lambda shown: shown > claim),
        ("mutant with 4k", lambda: bound(4, count), said, "caught", lambda shown: shown > claim),
        ("Taylor on the truth", lambda: audit.audit_pair(taylor_row(k), row, adjacent_row(row, 0, 1, h)), "inf",
         "unbounded", math.isinf),
        (f"mean of {settings.samples} draws", lambda: bound(1, max(4, count // 4), settings.samples),
         f"{claim:.4g} .. {composed:.4g}", "tracks the sum", lambda shown: claim < shown <= composed),
    ]  # fmt: skip
    attacks = []
    monitor.stage("attacking", len(plan))
    for name, run, claimed, verdict, judge in plan:
        shown = run()
        good = judge(shown)
        attacks.append(Attack(name, shown, claimed, verdict if good else f"NOT {verdict}", good))
        monitor.advance(len(attacks), name)
    return attacks


def taylor_row(k: float) -> Callable[[FloatArray], FloatArray]:
    """Return the Taylor policy of one step with a fixed desirability, as a function of the true row."""
    log_z = np.array([0.9854, 0.0, 2.2244])

    def policy(row: FloatArray) -> FloatArray:
        weights = np.log(row) - (1 - row) / (2 * row * (k + 1)) + log_z
        weights = np.exp(weights - weights.max())
        return np.asarray(weights / weights.sum())

    return policy


# ------------------------------------------------------------------ participants
@dataclass(frozen=True)
class CanarySettings:
    """What is attacked, and how hard; draws, releases and agents are made with the canary and without it."""

    #: The Dirichlet mechanism gets every transition as its public support.
    privacy: str = "gaussian:epsilon=4"
    participants: int = 60  #: beside the canary
    states: int = 6  #: levels of power
    steps: int = 96  #: transitions of each participant
    clip: int = 10  #: transitions of a participant out of a level that a Dirichlet release uses
    draws: int = 20_000  #: noisy sums
    releases: int = 10_000  #: releases, and plans on them
    agents: int = 800  #: trained agents
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
        claimed, shown = ("unbounded" if math.isinf(x) else f"{x:.3g}" for x in (self.claimed, self.shown))
        return (self.attacked, f"{self.draws:,}", claimed, shown, self.verdict)


def make_fleets(settings: CanarySettings, kind: Kind = "stays") -> tuple[Fleet, Fleet]:
    """Return two adjacent fleets: with the canary, and without it. Nobody else jumps by more than a level."""
    n = settings.states
    step = 0.15 * (np.eye(n, k=1) + np.eye(n, k=-1))
    behaviour = step + np.diag(1.0 - step.sum(axis=1))
    without = Fleet.simulate(behaviour, settings.participants, settings.seed, steps=settings.steps)
    return audit.with_canary(without, kind), without


def utility_of(n: int) -> FloatArray:
    """Return public rewards that favour other levels at every time, so that a plan tells much about each row."""
    times, levels = np.arange(HORIZON + 1), np.arange(n)
    return np.asarray(STEEP * np.sin(np.outer(times + 1.0, levels + 1.0)))


def model_of(fleet: Fleet) -> EnsembleModel:
    """Return the true model: everybody's transitions, pooled without any protection."""
    pooled = fleet.chain(int(fleet.counts.sum(axis=2).max()), np.ones(fleet.shape, dtype=bool)).default
    return EnsembleModel(pooled, np.arange(1.0, fleet.n_states + 1.0), utility_of(fleet.n_states), 1.0)


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

    features = {}
    if isinstance(attacked, OneQuery):
        # No cell is dropped from the sums.
        drawer, pair = [attacked], (audit.with_canary(fleets[1], "jumps"), fleets[1])
        features["noisy sums"] = both("drawing sums", settings.draws, lambda s, _: draw_sums(drawer, pair[s], seed()))
    features["release"] = both("drawing releases", settings.releases, release)
    features["plan on the release"] = both(
        "solving plans", settings.releases, lambda s, i: plan_features(releases[s][i].matrix)
    )
    features["agent on the release"] = both(
        "training agents", settings.agents, lambda s, i: agent_features(models[s], releases[s][i])
    )
    return features


def _private(name: str, claim: Claim, first: FloatArray, second: FloatArray) -> Finding:
    shown = audit.guess_canary(first, second, claim, confidence=CONFIDENCE).epsilon
    held = shown <= claim.epsilon
    return Finding(name, len(first), claim.delta, claim.epsilon, shown, "held" if held else "BROKEN", held)


def _controls(fleets: tuple[Fleet, Fleet], claim: Claim) -> list[Finding]:
    """Attack the same without privacy: deterministic functions of the data, for which no ε holds (E8)."""
    pipelines: dict[str, Callable[[Fleet], FloatArray]] = {
        "estimate, no privacy": lambda fleet: model_of(fleet).default,
        "plan, no privacy": lambda fleet: plan_features(model_of(fleet).default),
        "agent, no privacy": lambda fleet: agent_features(model_of(fleet), None),
    }
    findings = []
    for name, pipeline in pipelines.items():
        shown = audit.audit_pair(pipeline, *fleets)
        caught = shown > claim.epsilon
        verdict = "caught" if caught else "NOT caught"
        findings.append(Finding(name, 3, claim.delta, claim.epsilon, shown, verdict, caught))
    return findings
