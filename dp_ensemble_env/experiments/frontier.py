"""What participants' protection costs: score against ε, for numbers of participants and mechanisms.

Participants are simulated: each has rows drawn from Dir(κ · P), where P is the scenario's default behaviour. Where
that is one matrix of moves between levels and nothing else, they walk for a summer of quarter hours; otherwise they
live a number of days of the scenario, with its nature and its contexts (`scenarios.participants`), and differ as the
scenario says. P, what they do on average, is the truth: a plan is solved on the release, deployed on P as a tilt, and
scored there (0 = uncontrolled, 100 = the optimum for P). Beside every score stands that of the plan made on the public
guess, which costs ε = 0.

The settings of the mechanisms are fixed. Those of `adaptive` were chosen on training instances, the others on campus
instances 3 to 6; instances 20 to 22 were not looked at before anything was fixed.

Mean and worst are over the noise of the draws. All draws at a point share one simulated fleet, and a smaller fleet
is the beginning of the larger one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dp_ensemble_env import scenarios
from dp_ensemble_env.control.policies import as_tilt
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.accounting.compose import RowGroup, largest_k
from dp_ensemble_env.privacy.accounting.divergence import check_delta
from dp_ensemble_env.privacy.fleet import SUMMER_STEPS, Fleet
from dp_ensemble_env.privacy.mechanisms import Mechanism, mechanism
from dp_ensemble_env.privacy.mechanisms.dirichlet import DirichletMechanism
from dp_ensemble_env.privacy.mechanisms.public import public_guess
from dp_ensemble_env.privacy.participants import simulated
from dp_ensemble_env.reporting.score import event_outcome
from dp_ensemble_env.reporting.tables import plain
from dp_ensemble_env.tools.console import Monitor
from dp_ensemble_env.tools.validation import check_choice, check_count

#: Floor and clip of the Dirichlet mechanism; k follows from the target.
DIRICHLET_FLOOR, DIRICHLET_CLIP = 0.02, 100


@dataclass(frozen=True)
class FrontierSettings:
    """What to measure."""

    scenario: str = "campus-event"
    instances: tuple[int, ...] = (0, 1, 2)
    heterogeneity: tuple[float, ...] = (30.0, 8.0)
    """κ: a smaller value makes participants differ more."""
    participants: tuple[int, ...] = (100, 300, 1000, 4000, 10_000)
    epsilons: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0)
    delta: float = 1e-6
    mechanisms: tuple[str, ...] = ("gaussian", "laplace", "posterior", "dirichlet")
    """The delta of laplace is 0; dirichlet takes the support of the public guess as declared public."""
    draws: int = 20
    """Releases at each point."""
    steps: int = SUMMER_STEPS
    """Transitions of each participant, where behaviour is one matrix of moves."""
    days: int = 30
    """Days that each participant lives otherwise."""
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice(self.scenario, "scenario", scenarios.names())
        check_delta(self.delta)
        check_count(self.draws, "draws")
        for name in self.mechanisms:
            if name != "dirichlet":
                self.mechanism(name, self.epsilons[0])

    def mechanism(self, name: str, epsilon: float) -> Mechanism:
        """Make a mechanism that protects participants for a target."""
        return mechanism(f"{name}:epsilon={epsilon!r}" + ("" if name == "laplace" else f",delta={self.delta!r}"))

    @property
    def spreads(self) -> tuple[float, ...]:
        """The κ that are measured: a NaN where participants differ as the scenario says."""
        return (math.nan,) if scenarios.has_participants(self.scenario) else self.heterogeneity

    def __len__(self) -> int:
        """How many points there are."""
        axes = (self.instances, self.spreads, self.participants, self.mechanisms, self.epsilons)
        return math.prod(map(len, axes))


@dataclass(frozen=True)
class Point:
    """Scores on the truth of the plans made on `draws` releases; NaN where no setting reaches the target.

    A NaN for κ: participants differ as the scenario says.
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

    @property
    def reached(self) -> bool:
        """Whether the mechanism can give this guarantee at all."""
        return not math.isnan(self.mean)


def deployed_score(model: EnsembleModel, release: Any) -> float:
    """Score of the plan made on a release, or on a matrix, and deployed on the model as a tilt."""
    return float(event_outcome(model, as_tilt(release, model)).score)


def measure(settings: FrontierSettings | None = None, monitor: Monitor | None = None) -> list[Point]:
    """Measure every point of the frontier, exactly but for the draws."""
    settings = FrontierSettings() if settings is None else settings
    monitor, found = Monitor() if monitor is None else monitor, []
    monitor.stage("measuring", len(settings))
    for point in points(settings):
        found.append(point)
        words = f"instance {point.instance}, kappa {_kappa(point.heterogeneity)}, {point.participants:,} participants"
        monitor.advance(len(found), words)
    return found


def points(settings: FrontierSettings) -> Iterator[Point]:
    """Yield the points one by one, fleets from small to large."""
    for instance, kappa in itertools.product(settings.instances, settings.spreads):
        model = scenarios.make(settings.scenario, instance=instance)
        public = deployed_score(model, public_guess(model))
        seed = [settings.seed, instance, 0 if math.isnan(kappa) else round(1000 * kappa)]
        everyone = _everyone(model, instance, kappa, settings, seed)
        for number in sorted(settings.participants):
            fleet = everyone.first(number)
            for name, epsilon in itertools.product(settings.mechanisms, settings.epsilons):
                rng = np.random.default_rng([*seed, number, *name.encode(), round(1000 * epsilon)])
                scores = _scores(model, fleet, name, epsilon, settings, rng)
                mean, worst = float(np.mean(scores)), float(np.min(scores))
                error = float(np.std(scores) / math.sqrt(max(len(scores) - 1, 1)))
                yield Point(instance, kappa, number, name, epsilon, mean, worst, error, public)


def _everyone(
    model: EnsembleModel, instance: int, kappa: float, settings: FrontierSettings, seed: Sequence[int]
) -> Fleet:
    """Simulate the largest fleet."""
    number = max(settings.participants)
    if math.isnan(kappa):
        return scenarios.participants(settings.scenario, number, seed, days=settings.days, instance=instance)
    return simulated(model, number, seed, heterogeneity=kappa, days=settings.days, steps=settings.steps)


def _scores(
    model: EnsembleModel, fleet: Fleet, name: str, epsilon: float, settings: FrontierSettings, rng: np.random.Generator
) -> list[float]:
    if name != "dirichlet":
        drawn: Any = settings.mechanism(name, epsilon)
        terms = drawn.terms_of(model)
    else:
        support = public_guess(model).support
        k = _dirichlet_k(fleet, support, epsilon, settings.delta)
        if k is None:
            return [math.nan]
        drawn, terms = DirichletMechanism(k, DIRICHLET_FLOOR), {"support": support, "clip": DIRICHLET_CLIP}
    return [deployed_score(model, drawn.release(fleet, rng, **terms)) for _ in range(settings.draws)]


def _dirichlet_k(fleet: Fleet, support: Any, epsilon: float, delta: float) -> float | None:
    """Return the largest k that meets the target for these counts, if any does. The counts count as public here."""
    if DIRICHLET_FLOOR * support.sum(axis=-1).max() > 1.0:
        return None
    chain = fleet.remembered("dirichlet chain", lambda: fleet.chain(DIRICHLET_CLIP, support))
    size = chain.support.sum(axis=-1).ravel()  # decisions that are possible in each drawn row
    left = ((1.0 - DIRICHLET_FLOOR * size) * chain.adjacency.h)[size > 1]
    groups = [RowGroup(1.0, DIRICHLET_FLOOR, float(h)) for h in left]
    return largest_k(epsilon, delta, groups, "any")


# ------------------------------------------------------------------ as a table, as plain values
def table(found: Sequence[Point]) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows: one row for each instance, κ, mechanism and ε, "mean / worst" for each number."""
    numbers = sorted({point.participants for point in found})
    headings = ["instance", "κ", "mechanism", "ε", "ε = 0", *(f"N = {number:,}" for number in numbers)]
    groups: dict[tuple[str, ...], dict[int, Point]] = {}
    for point in found:
        row = str(point.instance), _kappa(point.heterogeneity), point.mechanism, f"{point.epsilon:g}"
        groups.setdefault((*row, f"{point.public:.1f}"), {})[point.participants] = point
    return headings, [[*row, *(_cell(cells.get(number)) for number in numbers)] for row, cells in groups.items()]


def _kappa(kappa: float) -> str:
    return "own" if math.isnan(kappa) else f"{kappa:g}"


def _cell(point: Point | None) -> str:
    if point is None:
        return ""
    return f"{point.mean:.1f} / {point.worst:.1f}" if point.reached else "unreachable"


def to_json(settings: FrontierSettings, found: Sequence[Point]) -> dict[str, Any]:
    """Return settings and points as plain values; a score that does not exist is None."""
    points = [{name: plain(value) for name, value in asdict(point).items()} for point in found]
    return {"settings": asdict(settings), "points": points}
