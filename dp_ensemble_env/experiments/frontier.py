"""The cost of protecting participants: score against ε, for numbers of participants and mechanisms.

Participants are simulated: each has rows drawn from Dir(κ · P), where P is the scenario's default behaviour. If P is
one matrix of moves between levels, they move for a summer of quarter hours; otherwise they live through some days of
the scenario and differ as it says (`scenarios.participants`). P, their mean behaviour, is the truth. A plan computed
from the release is deployed on P as a tilt and scored there (0 = uncontrolled, 100 = the optimum for P). The plan from
the public guess, which costs ε = 0, is scored too.

The settings of the mechanisms are fixed and were not chosen on the test instances.

Mean and worst are over the noise of the draws. All draws at a point share one simulated fleet; a smaller fleet is a
part of the larger one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dp_ensemble_env import scenarios
from dp_ensemble_env.control.policies import as_tilt
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.accounting.divergence import check_delta
from dp_ensemble_env.privacy.fleet import SUMMER_STEPS
from dp_ensemble_env.privacy.mechanisms import Mechanism, mechanism
from dp_ensemble_env.privacy.mechanisms.public import public_guess
from dp_ensemble_env.privacy.participants import simulated
from dp_ensemble_env.reporting.score import event_outcome
from dp_ensemble_env.reporting.tables import plain
from dp_ensemble_env.tools.console import Monitor
from dp_ensemble_env.tools.validation import check_choice, check_count


@dataclass(frozen=True)
class FrontierSettings:
    """The settings of a frontier."""

    scenario: str = "campus-event"
    instances: tuple[int, ...] = (0, 1, 2)
    heterogeneity: tuple[float, ...] = (30.0, 8.0)
    """κ: a smaller value makes participants differ more."""
    participants: tuple[int, ...] = (100, 300, 1000, 4000, 10_000)
    epsilons: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0)
    delta: float = 1e-6
    mechanisms: tuple[str, ...] = ("gaussian", "laplace", "posterior")
    """Mechanisms that protect participants; the delta of laplace is 0."""
    draws: int = 20
    """Releases at each point."""
    steps: int = SUMMER_STEPS
    """Transitions of each participant, where behaviour is one matrix of moves."""
    days: int = 30
    """Otherwise, days simulated for each participant."""
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice(self.scenario, "scenario", scenarios.names())
        check_delta(self.delta)
        check_count(self.draws, "draws")
        for name in self.mechanisms:
            self.mechanism(name, self.epsilons[0])

    def mechanism(self, name: str, epsilon: float) -> Mechanism:
        """Make a mechanism that protects participants for a target."""
        return mechanism(f"{name}:epsilon={epsilon!r}" + ("" if name == "laplace" else f",delta={self.delta!r}"))

    @property
    def spreads(self) -> tuple[float, ...]:
        """The measured values of κ; NaN if participants differ as the scenario says."""
        return (math.nan,) if scenarios.has_participants(self.scenario) else self.heterogeneity

    def __len__(self) -> int:
        """How many points there are."""
        axes = (self.instances, self.spreads, self.participants, self.mechanisms, self.epsilons)
        return math.prod(map(len, axes))


@dataclass(frozen=True)
class Point:
    """Deployed scores of plans from `draws` releases.

    κ is NaN if participants differ as the scenario says.
    """

    instance: int
    heterogeneity: float
    participants: int
    mechanism: str
    epsilon: float
    mean: float
    worst: float
    standard_error: float
    public: float


def deployed_score(model: EnsembleModel, release: Any) -> float:
    """Return the score of the plan from a release or a matrix, deployed on the model as a tilt."""
    return float(event_outcome(model, as_tilt(release, model)).score)


def measure(settings: FrontierSettings | None = None, monitor: Monitor | None = None) -> list[Point]:
    """Measure every point of the frontier, exactly but for the draws; fleets from small to large."""
    settings = FrontierSettings() if settings is None else settings
    monitor, points = Monitor() if monitor is None else monitor, []
    most, days = max(settings.participants), settings.days
    monitor.stage("measuring", len(settings))
    for instance, kappa in itertools.product(settings.instances, settings.spreads):
        model = scenarios.make(settings.scenario, instance=instance)
        public = deployed_score(model, public_guess(model))
        seed = [settings.seed, instance, 0 if math.isnan(kappa) else round(1000 * kappa)]
        if math.isnan(kappa):
            everyone = scenarios.participants(settings.scenario, most, seed, days=days, instance=instance)
        else:
            everyone = simulated(model, most, seed, heterogeneity=kappa, days=days, steps=settings.steps)
        for number in sorted(settings.participants):
            fleet = everyone.first(number)
            for name, epsilon in itertools.product(settings.mechanisms, settings.epsilons):
                rng = np.random.default_rng([*seed, number, *name.encode(), round(1000 * epsilon)])
                drawn: Any = settings.mechanism(name, epsilon)
                terms = drawn.terms_of(model)
                releases = (drawn.release(fleet, rng, **terms) for _ in range(settings.draws))
                scores = [deployed_score(model, release) for release in releases]
                mean, worst = float(np.mean(scores)), float(np.min(scores))
                error = float(np.std(scores) / math.sqrt(max(len(scores) - 1, 1)))
                points.append(Point(instance, kappa, number, name, epsilon, mean, worst, error, public))
                monitor.advance(len(points), f"instance {instance}, kappa {_kappa(kappa)}, {number:,} participants")
    return points


# ------------------------------------------------------------------ as a table, as plain values
def table(points: Sequence[Point]) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows: one row for each instance, κ, mechanism and ε, "mean / worst" for each number."""
    numbers = sorted({point.participants for point in points})
    headings = ["instance", "κ", "mechanism", "ε", "without data", *(f"N = {number:,}" for number in numbers)]
    groups: dict[tuple[str, ...], dict[int, Point]] = {}
    for point in points:
        row = str(point.instance), _kappa(point.heterogeneity), point.mechanism, f"{point.epsilon:g}"
        groups.setdefault((*row, f"{point.public:.1f}"), {})[point.participants] = point
    rows = []
    for case, measured in groups.items():
        scores = (measured.get(number) for number in numbers)
        rows.append([*case, *("" if one is None else f"{one.mean:.1f} / {one.worst:.1f}" for one in scores)])
    return headings, rows


def _kappa(kappa: float) -> str:
    return "own" if math.isnan(kappa) else f"{kappa:g}"


def to_json(settings: FrontierSettings, measured: Sequence[Point]) -> dict[str, Any]:
    """Return settings and points as plain values; a κ that does not exist is None."""
    points = [{name: plain(value) for name, value in asdict(point).items()} for point in measured]
    return {"settings": asdict(settings), "points": points}
