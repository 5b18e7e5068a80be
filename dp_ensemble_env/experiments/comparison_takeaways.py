"""What a comparison found, in sentences computed from its results."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dp_ensemble_env.experiments.comparison_report import PrivateRow, Row
from dp_ensemble_env.model import EnsembleModel

#: The default deployment: a plan made on a release reaches the loads as a tilt of their own behaviour.
AS_TILT = "standard, as a tilt"


def takeaways(model: EnsembleModel, rows: Sequence[Row], private: Sequence[PrivateRow] = ()) -> list[str]:
    """Say what matters, most important first: what privacy costs, what a learner reaches, what practice leaves."""
    found = [*_privacy(private), *_learned(rows), *_practice(rows), *_optimum(model, rows)]
    return found or ["Nothing was compared."]


def _privacy(private: Sequence[PrivateRow]) -> list[str]:
    """Deployed scores always stand beside the score without data."""
    noisy = [row for row in private if row.name == AS_TILT and not math.isinf(row.k)]
    noisy = [row for row in noisy if math.isfinite(row.without_data)]
    if not noisy:
        return []
    guess = noisy[0].without_data
    scores = {row.source: float(np.mean(row.scores)) for row in noisy}
    best = max(noisy, key=lambda row: scores[row.source])
    guaranteed = "no guarantee: ε is infinite" if math.isinf(best.epsilon) else f"ε = {best.epsilon:.3g}"
    source = best.spec or f"k = {best.k:g}"
    found = [
        f"Made on a release ({source}, {guaranteed}) and deployed on the true behaviour, the plan scores "
        f"{scores[best.source]:.1f} on average; without any data it would score {guess:.1f}."
    ]
    worse = [row.spec or f"k = {row.k:g}" for row in noisy if scores[row.source] <= guess]
    if len(worse) == len(noisy):
        found.append("No release that was tried is worth its privacy: all of them score below the plan without data.")
    elif worse:
        found.append(f"A release with {' or '.join(worse)} is worth less than no data at all.")
    else:
        found.append("Every release that was tried scores higher than the plan without data.")
    return found


def _learned(rows: Sequence[Row]) -> list[str]:
    learners = [row for row in rows if row.summary is not None]
    if not learners:
        return []
    best = max(learners, key=lambda row: row.summary.iqm if row.summary is not None else -math.inf)
    assert best.summary is not None
    seeds = "one seed" if best.summary.seeds == 1 else f"{best.summary.seeds} seeds"
    what = f"The best learner ({best.name})" if len(learners) > 1 else f"The learner ({best.name})"
    return [f"{what} scores {best.summary.iqm:.1f} after {best.steps or 0:,} steps ({seeds}); the optimum is 100."]


def _practice(rows: Sequence[Row]) -> list[str]:
    scores = {row.name: row.evaluation.score for row in reversed(rows)}
    if not {"ad-hoc", "best-price"} <= set(scores):
        return []
    return [
        f"Today's practice, a fixed shed while the event lasts (ad-hoc), scores {scores['ad-hoc']:.1f}; "
        f"the best constant price scores {scores['best-price']:.1f}."
    ]


def _optimum(model: EnsembleModel, rows: Sequence[Row]) -> list[str]:
    of = {row.name: row.evaluation for row in reversed(rows)}
    if "standard" not in of or "uncontrolled" not in of:
        return []
    best, idle = of["standard"], of["uncontrolled"]
    event = model.event
    window = np.arange(model.horizon + 1) > 0 if event is None else event.in_event
    usual = float(idle.power_kw[window].sum()) * model.step_hours
    return [
        f"The optimum sheds {best.curtailed_kwh:,.0f} kWh, {100 * best.curtailed_kwh / usual:.0f} % of the "
        f"energy of the event, at a discomfort of ${best.discomfort:,.2f} per building."
    ]
