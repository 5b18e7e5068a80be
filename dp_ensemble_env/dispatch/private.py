"""A plan of which every number comes from a private release.

The participants' moves between power levels are released by a mechanism that protects everything one participant ever
did (`privacy.mechanisms`), drawn without a seed unless one is asked for. The levels divide a stated connection size,
which is public, and so is the number of participants. Forecast, energy and price are those of a load that behaves as
the release says. Set-points of one's own would be computed from its readings, so a private plan sends the price alone.

The worth of the plan is estimated on participants that are simulated from the release, beside the plan without data.
Its score on the true meters is not covered by ε, and shown only when asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from dp_ensemble_env.chain.event import DemandResponseEvent
from dp_ensemble_env.chain.markov import lazy_walk, stationary
from dp_ensemble_env.control.lsmdp import Solution
from dp_ensemble_env.control.policies import as_tilt, solve_standard
from dp_ensemble_env.dispatch.participants import Participant
from dp_ensemble_env.dispatch.plan import RANGE, Course, Plan
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.fleet import Fleet
from dp_ensemble_env.privacy.ledger import PrivacyLedger
from dp_ensemble_env.privacy.mechanisms import as_privacy
from dp_ensemble_env.privacy.mechanisms.fleet_sums import FleetMechanism
from dp_ensemble_env.privacy.mechanisms.public import PublicMechanism
from dp_ensemble_env.reporting.score import event_outcome
from dp_ensemble_env.scenarios.metered import REFERENCE_INCENTIVE, calibrate, load_power
from dp_ensemble_env.tools.validation import option

FloatArray = NDArray[np.float64]
LEVELS = 20
#: Simulated participants that a plan is tried on, and how much they differ (rows are Dirichlet around the release).
SIMULATED, HETEROGENEITY = 40, 30.0


@dataclass(frozen=True)
class PrivateSettings:
    """What a private plan is made with."""

    privacy: str
    """Mechanism whose release is planned on, such as gaussian:epsilon=4."""
    size_kw: float
    """Public connection size of a participant in kW; readings above it count as that much."""
    levels: int = LEVELS
    """Power levels from zero to the size."""
    seed: int | None = None
    """Seed of the release; anyone who knows it can remove the noise."""
    show_true: bool = False
    """Add the score on the true meters, which ε does not cover."""


def private_plan(participants: list[Participant], response: float, settings: PrivateSettings) -> Plan:
    """Plan one event for all participants on one release of their behaviour."""
    event = participants[0].event
    power = np.linspace(0.0, settings.size_kw, settings.levels)
    mechanism = as_privacy(settings.privacy)
    if not isinstance(mechanism, (FleetMechanism, PublicMechanism)):
        raise ValueError(
            f"{option('privacy', settings.privacy)} does not protect participants, and a plan draws its own release; "
            "give a mechanism such as gaussian:epsilon=4."
        )
    fleet = Fleet.from_states([_states(one, power) for one in participants], n_states=len(power))
    ledger = PrivacyLedger()
    protects = isinstance(mechanism, FleetMechanism)
    release = ledger.release(mechanism, fleet if protects else lazy_walk(len(power)), settings.seed)
    ledger.declare("connection size", "number of participants")
    model = _model(np.asarray(release.matrix), power, event, response)
    solution = solve_standard(model)
    rng = np.random.default_rng(0)  # of the simulated participants, which know nothing but the release
    rows = [rng.standard_gamma(HETEROGENEITY * model.default) + 1e-12 * model.default for _ in range(SIMULATED)]
    simulated = [row / row.sum(axis=1, keepdims=True) for row in rows]
    course, total = _courses(model, solution, simulated, len(participants))
    guess = solve_standard(model.with_default(lazy_walk(len(power))))
    told = _worth(model, solution, guess, simulated, "participants simulated from the release")
    if np.allclose(release.matrix, lazy_walk(len(power)), rtol=0.0, atol=1e-3):  # unlikely jumps are emptied
        told = ("The release says no more than the public guess, so this is the plan without data; more participants "
                "or a larger epsilon would tell more.", *told)  # fmt: skip
    if settings.show_true:
        true = [_own(fleet.counts[i], model.default) for i in range(len(participants))]
        told += _worth(model, solution, guess, true, "the true meters, which is not covered by ε")
    revealed = (
        f"Every number above is computed from one release, the stated size of {settings.size_kw:g} kW and the number "
        f"of participants{', except the score on the true meters' if settings.show_true else ''}. {ledger.statement()}",
    )
    assert model.event is not None
    return Plan((course,), total, float(event.incentive), model.event.energy_price, response, revealed, {"": told})


def _states(one: Participant, power: FloatArray) -> NDArray[np.int64]:
    """Return the levels of the readings before the notice; -1 where one is missing."""
    stamps, kw = one.event.readings(one.series)
    kw = kw[stamps < one.event.timeline().times[0]]
    place = np.rint(np.clip(np.nan_to_num(kw), 0.0, power[-1]) / power[1])
    return np.where(np.isnan(kw), -1, place).astype(int)


def _model(matrix: FloatArray, power: FloatArray, event: DemandResponseEvent, response: float) -> EnsembleModel:
    """Return the problem of a load that behaves as released; its penalty makes $1 per kWh shed the response."""
    line = event.timeline()
    reference = replace(line, incentive=np.where(line.in_event, REFERENCE_INCENTIVE, 0.0))
    model = EnsembleModel(
        default=matrix,
        power_kw=power,
        utility=reference.utility(power),
        discomfort_penalty=1.0,
        buildings=1,
        initial=stationary(matrix),
        event=reference,
    )
    penalty, _ = calibrate(model, line.in_event, response)
    return model.override(discomfort_penalty=penalty, utility=line.utility(power), event=line)


def _courses(
    model: EnsembleModel, solution: Solution, simulated: list[FloatArray], number: int
) -> tuple[Course, Course]:
    """Return the course of one participant and of all; the range is that of the simulated ones."""
    assert model.event is not None
    inside, idle = model.event.in_event, load_power(model, model.default_policy)
    held = load_power(model, solution.policy) if model.event.incentive.any() else idle
    others = [model.override(default=matrix) for matrix in simulated]
    loads = np.array([load_power(other, other.default_policy) for other in others])
    wide = float(ndtri(0.5 * (1.0 + RANGE)))
    error, energy = wide * loads.std(axis=0), wide * float(loads[:, inside].sum(axis=1).std()) * model.step_hours
    parts = []
    for name, n in ((f"each of {number}", 1), ("total", number)):
        kw = (n * idle, n * np.where(inside, held, idle), np.sqrt(n) * error)
        parts.append(Course(name, model.event.times, inside, *kw, float(np.sqrt(n) * energy)))
    return parts[0], parts[1]


def _own(counts: FloatArray, fallback: FloatArray) -> FloatArray:
    """Return one participant's behaviour; a level that it never left behaves as released."""
    seen = counts.sum(axis=1, keepdims=True)
    return np.where(seen > 0, counts / np.maximum(seen, 1), fallback)


def _worth(
    model: EnsembleModel, solution: Solution, guess: Solution, matrices: list[FloatArray], whose: str
) -> tuple[str, ...]:
    """Score the plan and the plan without data where loads behave as the matrices say."""
    scores = np.array(
        [
            [event_outcome(other, as_tilt(plan, other)).score for plan in (solution, guess)]
            for other in (model.override(default=matrix) for matrix in matrices)
        ]
    )
    mean = scores.mean(axis=0)
    return (f"On {whose} the plan scores {mean[0]:.1f} of 100, and the plan without data {mean[1]:.1f}.",)
