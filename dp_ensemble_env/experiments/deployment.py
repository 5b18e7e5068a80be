"""What a controller made on a release is worth: on the true behaviour, beside a plan made without data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from dp_ensemble_env.agents import Agent, evaluate, make_agent
from dp_ensemble_env.envs import actions
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.ledger import PrivacyLedger
from dp_ensemble_env.privacy.mechanisms.base import Event
from dp_ensemble_env.privacy.mechanisms.dirichlet import DirichletEvent
from dp_ensemble_env.privacy.mechanisms.fleet_sums import FleetEvent
from dp_ensemble_env.privacy.statement import DEFAULT_DELTA
from dp_ensemble_env.reporting.tables import plain

#: What a score on the true behaviour is marked with; such a score is no part of what leaves.
ON_TRUTH = "on the truth: not private"


@dataclass(frozen=True)
class Deployed:
    """Three scores and a price, which belong side by side."""

    deployed: float  #: score on the true behaviour; not private
    without_data: float  #: score there of a plan on a public guess, ε = 0; not private either
    on_release: float  #: score on the release itself, which says little: the exact plan has 100 there
    epsilon: float  #: what the releases spent
    delta: float = DEFAULT_DELTA
    protects: str = ""  #: whom or what that protects, in words

    def __str__(self) -> str:
        return (
            f"Score on the release {self.on_release:.1f}, deployed {self.deployed:.1f}, without data "
            f"{self.without_data:.1f} (the last two {ON_TRUTH}).\n{self.privacy}"
        )

    @property
    def privacy(self) -> str:
        """One short line: what the releases spent, and whom that protects."""
        if not np.isfinite(self.epsilon):
            return "Privacy: no guarantee."
        return f"Privacy: ε = {self.epsilon:.3g} at δ = {self.delta:g}{self.protects and ' for '}{self.protects}."

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, and which of them are not private; None for an infinite ε."""
        return {name: plain(value) for name, value in asdict(self).items()} | {
            "not_private": ["deployed", "without_data"]
        }


def score_without_data(truth: EnsembleModel) -> float:
    """Score on the true behaviour of the plan made without data, which costs ε = 0."""
    env = EnsembleEnv(truth, action="tilt")
    return evaluate(make_agent("without-data", env), env).score


@lru_cache(maxsize=256)
def price_of(event: Event) -> float:
    """Return the ε of one such draw at δ = 1e-6, infinity without a guarantee."""
    return PrivacyLedger().record(event).spent(DEFAULT_DELTA)


def deploy(agent: Agent, env: EnsembleEnv, truth: EnsembleModel) -> Deployed | None:
    """Score an agent of a private environment on the true behaviour too; None if the environment is not private.

    Prices and tilts mean the same on every matrix and are deployed as they are. A policy is deployed without the moves
    that the loads never make. Both are scored in the mean field, exactly.
    """
    if env.release is None:
        return None
    home = EnsembleEnv(truth, action=env.action_mode)
    if actions.mode(env.action_mode).shape(truth) != env.action_space.shape:
        return None  # a release for another number of levels
    inside = EnsembleEnv(env.model, action=env.action_mode)
    spent = env.ledger.spent(DEFAULT_DELTA)
    scores = evaluate(agent, home).score, score_without_data(truth), evaluate(agent, inside).score
    return Deployed(*scores, spent, protects=_protects(env.release.event))


def _protects(event: Event) -> str:
    if isinstance(event, FleetEvent):
        return "everything that one participant contributed"
    return "a small change of the matrix, not a participant" if isinstance(event, DirichletEvent) else ""
