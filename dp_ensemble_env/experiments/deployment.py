r"""The score of a controller from a release on the true behaviour, and the causes of its loss.

Each deployed score comes with the score of a plan without data and the ε spent. The optimum is known exactly, so the
loss of a controller computed from private data splits exactly. With :math:`J` the
expected return on the true behaviour,

.. math::

    J^* - J(\text{agent}) = \underbrace{J^* - J(\text{plan on the sample})}_{\text{sampling}}
        + \underbrace{J(\text{plan on the sample}) - J(\text{plan on the release})}_{\text{privacy}}
        + \underbrace{J(\text{plan on the release}) - J(\text{agent})}_{\text{learning}} .

Plans and agents are deployed as tilts of the loads' own behaviour. A part can be negative: the release is lucky, or the
agent does better than the exact plan for a noisy release. If the release was drawn from the true matrix, there is no
loss from sampling; without an agent, there is none from learning. All parts are computed from the true behaviour, so do
not publish them beside a private release.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_ensemble_env.agents import Agent, evaluate, make_agent
from dp_ensemble_env.control.policies import as_tilt
from dp_ensemble_env.envs import actions
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.fleet import Fleet
from dp_ensemble_env.privacy.ledger import PrivacyLedger
from dp_ensemble_env.privacy.mechanisms import as_privacy
from dp_ensemble_env.privacy.mechanisms.base import Event
from dp_ensemble_env.privacy.mechanisms.dirichlet import DirichletEvent
from dp_ensemble_env.privacy.mechanisms.fleet_sums import FleetEvent, FleetMechanism
from dp_ensemble_env.privacy.mechanisms.public import PublicMechanism
from dp_ensemble_env.privacy.release import Release
from dp_ensemble_env.privacy.statement import DEFAULT_DELTA
from dp_ensemble_env.reporting.score import Outcome, event_outcome, start_values
from dp_ensemble_env.reporting.tables import plain

PARTS = ("sampling", "privacy", "learning")
REGRET_HEADINGS = ("controller", *PARTS, "total", "score", "without data", "ε")
#: Participants that are simulated where nobody says how many.
PARTICIPANTS = 4000


@dataclass(frozen=True)
class Deployed:
    """Three scores and their privacy cost, which belong together."""

    deployed: float  #: score on the true behaviour; not private
    without_data: float  #: score there of a plan on a public guess, ε = 0; not private either
    on_release: float  #: score on the release itself, which says little: the exact plan has 100 there
    epsilon: float  #: what the releases spent
    delta: float = DEFAULT_DELTA
    protects: str = ""  #: whom or what that protects, in words

    def __str__(self) -> str:
        return (
            f"Score on the release {self.on_release:.1f}, deployed {self.deployed:.1f}, without data "
            f"{self.without_data:.1f} (the last two on the truth: not private).\n{self.privacy}"
        )

    @property
    def privacy(self) -> str:
        """One short line: what the releases spent, and whom that protects."""
        if not np.isfinite(self.epsilon):
            return "Privacy: no guarantee."
        return f"Privacy: ε = {self.epsilon:.3g} at δ = {self.delta:g}{self.protects and ' for '}{self.protects}."

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, and which of them are not private; None for an infinite ε."""
        numbers = {name: plain(value) for name, value in asdict(self).items()}
        return numbers | {"not_private": ["deployed", "without_data"]}


def score_without_data(truth: EnsembleModel) -> float:
    """Return the score of the plan without data on the true behaviour; it costs ε = 0."""
    env = EnsembleEnv(truth, action="tilt")
    return evaluate(make_agent("without-data", env), env).score


@lru_cache(maxsize=256)
def price_of(event: Event) -> float:
    """Return the ε of one such draw at δ = 1e-6, infinity without a guarantee."""
    return PrivacyLedger().record(event).spent(DEFAULT_DELTA)


def deploy(agent: Agent, env: EnsembleEnv, truth: EnsembleModel) -> Deployed | None:
    """Score an agent of a private environment on the true behaviour too; None if the environment is not private.

    Prices and tilts have the same meaning for every matrix and are deployed unchanged. A policy is deployed without
    moves that the loads never make. All are scored exactly, in the mean field.
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


# ------------------------------------------------------------------ where a lost dollar went
@dataclass(frozen=True)
class Regret:
    """Dollars per load that a controller loses against the optimum, by cause."""

    name: str
    sampling: float
    privacy: float
    learning: float
    total: float  #: computed on its own; the three parts add up to it
    score: float  #: of the controller deployed on the true behaviour
    without_data: float  #: score there of a plan on the public guess, which costs ε = 0
    epsilon: float  #: of one release at δ = 1e-6, infinity without a guarantee
    error: float = 0.0  #: standard error of the total over several releases

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers; None for an infinite ε."""
        return {name: plain(value) for name, value in self.__dict__.items()}

    def cells(self) -> tuple[str, ...]:
        """Format a row for people; the cents add up, too."""
        dollars = [getattr(self, part) for part in PARTS]
        cents, together = [round(100 * x) for x in dollars], round(100 * self.total)
        while rest := together - sum(cents):  # a cent goes to the part that rounding has changed the most
            step = 1 if rest > 0 else -1
            most = max(range(len(cents)), key=lambda i: step * (100 * dollars[i] - cents[i]))
            cents[most] += step
        shown = (f"{cent / 100:.2f}" for cent in (*cents, together))
        name = self.name.replace(",", ", ")  # so that it can be wrapped
        return (name, *shown, f"{self.score:.1f}", f"{self.without_data:.1f}", self.price)

    @property
    def price(self) -> str:
        """ε in a few digits; infinite without a guarantee."""
        return f"{self.epsilon:.3g}" if np.isfinite(self.epsilon) else "∞"


def split_regret(
    model: EnsembleModel,
    release: Release,
    *,
    sample: ArrayLike | None = None,
    agent: Agent | None = None,
    action: str = "tilt",
) -> Regret:
    """Split the loss of a controller from `release` on the true behaviour of `model`.

    The release was drawn from a `sample`, of the default's shape, or from the true behaviour. The controller is an
    `agent` trained on the release in an action mode, evaluated in the mean field, or without one the exact plan.

    Examples
    --------
    >>> from dp_ensemble_env import DirichletMechanism, campus_event
    >>> model = campus_event()
    >>> regret = split_regret(model, DirichletMechanism(50).release(model.default, 0))
    >>> bool(abs(regret.sampling + regret.privacy + regret.learning - regret.total) < 1e-9)
    True
    """
    best = start_values(model)[1]
    sampled = event_outcome(model, as_tilt(model.default if sample is None else np.asarray(sample), model))
    planned = event_outcome(model, as_tilt(release, model))
    final: Outcome = planned if agent is None else evaluate(agent, EnsembleEnv(model, action=action))
    return Regret(
        name=release.event.type,
        sampling=best - sampled.mean_return,
        privacy=sampled.mean_return - planned.mean_return,
        learning=planned.mean_return - final.mean_return,
        total=best - final.mean_return,
        score=final.score,
        without_data=score_without_data(model),
        epsilon=price_of(release.event),
    )


def default_specs(model: EnsembleModel) -> list[str]:
    """Return mechanisms that suit a model: the paper's where behaviour is one matrix of moves, else participants'."""
    if model.is_plain and model.default.ndim == 2:
        return ["public", "dirichlet:k=50", "dirichlet:k=50,floor=0.05"]
    return ["public", "dirichlet:k=50", "gaussian:epsilon=1", "adaptive:epsilon=1"]


def default_participants(specs: Iterable[str]) -> int:
    """Return how many participants to simulate: none if no mechanism protects them."""
    return PARTICIPANTS if any(isinstance(as_privacy(spec), FleetMechanism) for spec in specs) else 0


def sample_matrix(fleet: Fleet, guess: ArrayLike | None = None) -> NDArray[np.float64]:
    """Return the sample's own estimate: all participants' decisions pooled.

    Where nobody was it is the public guess, of the shape of the fleet, or the lazy walk.
    """
    counts = np.zeros(int(np.prod(fleet.drawn_shape)))
    for some in fleet.chunks():
        counts += some.sum(axis=0)
    rows = fleet.spread(counts)
    total = rows.sum(axis=-1, keepdims=True)
    public = PublicMechanism().release(fleet, guess=guess).matrix
    shares: NDArray[np.float64] = np.divide(rows, total, out=np.array(public, float), where=total > 0)
    return shares


def mean_regret(name: str, parts: Iterable[Regret]) -> Regret:
    """Average over releases."""
    rows = list(parts)
    fields = (*PARTS, "total", "score", "without_data", "epsilon")
    error = float(np.std([row.total for row in rows]) / max(len(rows) - 1, 1) ** 0.5)
    means = {field: float(np.mean([getattr(row, field) for row in rows])) for field in fields}
    return Regret(name, **means, error=error)
