"""A dispatch that loads can follow: one shed per participant, held from start to end, and its savings.

Each participant has its metered day as a problem (`scenarios.metered`). All see one event price, which is given or
chosen so that together they shed a target. The energy that a participant sheds at that price is a stated assumption,
its *response*; the optimal policy reduces it near the floor.

**Set-points.** A load cannot follow the shape of a policy, but it can hold a shed: in interval `t` of the event it
sheds min(S, forecast_t - floor) kW, with S chosen to give the energy of the plan.

**The range** of the energy shed should cover 90 % of the days. The response lies between 0.5 and 1.5 times the stated
one, the same for all participants, and forecast errors are as large as on held-out days (`chain.day.half_width`).
Weather affects all participants together, so the error of the total comes from the summed forecasts on common days.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from dp_ensemble_env.chain.day import DayPath, half_width
from dp_ensemble_env.control.policies import solve_standard
from dp_ensemble_env.scenarios.metered import RESPONSE, MeteredDay, load_power
from dp_ensemble_env.tools.console import Monitor

FloatArray = NDArray[np.float64]

#: Share of the days that a range should hold.
RANGE = 0.9
#: The response lies between these multiples of the stated one.
LEAST_RESPONSE, MOST_RESPONSE = 0.5, 1.5
#: Highest event price that is tried to reach a target, $/kWh.
HIGHEST_PRICE = 50.0
#: So many shared days tell how participants stray together.
LEAST_SHARED = 5
EXACT = (
    "Forecasts and set-points are computed from the readings without noise. Share them only with people who are "
    "allowed to see those meters."
)


@dataclass(frozen=True, eq=False)
class Course:
    """Power of a participant, or of all together, over the event and the two hours after it; kW.

    All arrays have the shape (K,). `times` are ends of intervals, `forecast` is the expected power without the event
    and `setpoint` the power to hold. `error` and `error_kwh` are half the ranges of the forecast: of each interval,
    and of the energy in the event. The customer baseline is NaN after the event.
    """

    name: str
    times: NDArray[np.datetime64]
    in_event: NDArray[np.bool_]
    forecast: FloatArray
    setpoint: FloatArray
    error: FloatArray
    error_kwh: float
    baseline: FloatArray | None = None

    @property
    def step(self) -> np.timedelta64:
        """Length of an interval."""
        length: np.timedelta64 = self.times[1] - self.times[0]
        return length

    @property
    def hours(self) -> float:
        """Length of the event."""
        return float(self.in_event.sum() * (self.step / np.timedelta64(3600, "s")))

    def energy(self, kw: FloatArray) -> float:
        """Return the energy of a course of power in the event, kWh."""
        return float(kw[self.in_event].mean() * self.hours)

    @property
    def shed_kwh(self) -> float:
        """Energy below the forecast in the event."""
        return self.energy(self.forecast - self.setpoint)

    @property
    def shed_range(self) -> tuple[float, float]:
        """Range of the energy shed: response and forecast vary independently; zero if nothing is shed."""
        middle = (np.arange(400) + 0.5) / 400
        response = LEAST_RESPONSE + (MOST_RESPONSE - LEAST_RESPONSE) * middle
        spread = self.error_kwh / ndtri(0.5 * (1.0 + RANGE)) / max(self.energy(self.forecast), 1e-300)
        shed = np.outer(response, np.maximum(1.0 + spread * ndtri(middle), 0.0)) * self.shed_kwh
        low, high = np.quantile(shed, [0.5 * (1.0 - RANGE), 0.5 * (1.0 + RANGE)])
        return float(low), float(high)

    @property
    def load_range(self) -> tuple[FloatArray, FloatArray]:
        """Range of the power in each interval, by forecast and response."""
        reach = RANGE * 0.5 * (MOST_RESPONSE - LEAST_RESPONSE)
        wide = np.hypot(self.error, reach * (self.forecast - self.setpoint))
        return np.maximum(self.setpoint - wide, 0.0), self.setpoint + wide


@dataclass(frozen=True, eq=False)
class Plan:
    """A dispatch."""

    participants: tuple[Course, ...]
    total: Course
    price: float
    """Event price that every participant sees, $/kWh on top of the tariff."""
    energy_price: FloatArray
    """The tariff, (K,)."""
    response: float = RESPONSE
    """Share of the energy that $1 per kWh sheds, as stated."""
    revealed: tuple[str, ...] = (EXACT, "The plan uses the true behaviour of every participant: nothing is private.")
    """The private information in the plan."""
    notes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By participant; those under "" concern all."""


def make_plan(
    days: dict[str, MeteredDay],
    target_kw: float | None = None,
    response: float = RESPONSE,
    monitor: Monitor | None = None,
) -> Plan:
    """Plan one event for all participants, whose `days` have it in common.

    With `target_kw`, the price is chosen so that together they shed this power on average; otherwise it is the event's
    incentive. `response` is the stated response, for the report.
    """
    monitor = monitor or Monitor()
    first = next(iter(days.values()))
    price = float(first.event.incentive)
    if target_kw is not None:
        monitor.stage("finding the price")
        price = _price_for(days, target_kw)
    monitor.stage("planning", len(days))
    courses = []
    for name, day in days.items():
        courses.append(_course(name, day, price))
        monitor.advance(len(courses))
    total, notes = _total(courses, days)
    tariff = first.event.tariff.at(total.times - total.step)
    told = {"": notes, **{name: day.notes for name, day in days.items()}}
    return Plan(tuple(courses), total, price, tariff, response, notes=told)


def shed_energy(day: MeteredDay, price: float) -> float:
    """Return the energy that the optimal policy of one load sheds in the event, in kW times intervals."""
    if price == 0.0:
        return 0.0
    model = day.priced(price)
    idle, held = (load_power(model, policy) for policy in (model.default_policy, solve_standard(model).policy))
    return max(float((idle - held)[day.in_event].sum()), 0.0)


def hold(room: FloatArray, energy: float) -> FloatArray:
    """Return min(S, room) with the S at which these add up to `energy`, or all of the room if it is less.

    Examples
    --------
    >>> hold(np.array([10.0, 2.0, 10.0]), 12.0).tolist()
    [5.0, 2.0, 5.0]
    """
    room = np.maximum(room, 0.0)
    ranked = np.sort(room)
    # With the k smallest intervals at their floor the others share what is left.
    shares = (energy - np.append(0.0, np.cumsum(ranked)[:-1])) / np.arange(len(room), 0, -1)
    fits = shares <= ranked
    return np.minimum(room, shares[int(np.argmax(fits))] if fits.any() else np.inf)


def _course(name: str, day: MeteredDay, price: float) -> Course:
    path, loads, steps = day.path, day.model.loads, len(day.in_event)
    in_event = np.append(day.in_event, np.zeros(len(path.kw) - steps, dtype=bool))
    shed = np.zeros(len(path.kw))
    shed[in_event] = hold((path.kw - day.floor_kw)[in_event], shed_energy(day, price))
    error, energy = _ranges(path.errors, path.loads, path.kw, in_event)
    assert day.model.event is not None
    baseline = day.model.event.baseline_kw
    if baseline is not None:
        baseline = np.append(baseline, np.full(len(path.kw) - steps, np.nan))
    powers = loads * path.kw, loads * (path.kw - shed), loads * error
    return Course(name, path.times, in_event, *powers, loads * energy * day.model.step_hours, baseline)


def _total(courses: list[Course], days: dict[str, MeteredDay]) -> tuple[Course, tuple[str, ...]]:
    """Add the participants up; the range is that of the summed forecasts on the days that all of them share."""
    first = courses[0]
    notes: tuple[str, ...] = ()
    forecast, setpoint = (np.sum([getattr(one, name) for one in courses], axis=0) for name in ("forecast", "setpoint"))
    baselines = [course.baseline for course in courses if course.baseline is not None]
    baseline = np.sum(baselines, axis=0) if len(baselines) == len(courses) else None
    errors, loads = shared_days([day.path for day in days.values()], [day.model.loads for day in days.values()])
    if len(courses) == 1:
        error, energy = first.error, first.error_kwh
    elif len(errors) < LEAST_SHARED:
        error, energy = np.sum([one.error for one in courses], axis=0), sum(one.error_kwh for one in courses)
        notes = (
            f"The meters share only {len(errors)} past days, so the range of the total assumes that all forecasts err "
            "in the same direction.",
        )
    else:
        error, summed = _ranges(errors, loads, forecast, first.in_event)
        energy = summed * first.hours / first.in_event.sum()
    return Course("total", first.times, first.in_event, forecast, setpoint, error, float(energy), baseline), notes


def _ranges(errors: FloatArray, loads: FloatArray, forecast: FloatArray, inside: NDArray[np.bool_]) -> Any:
    """Return half the ranges of each interval, and of the sum over those inside, from errors (days, K)."""
    summed = errors[:, inside].sum(axis=1), loads[:, inside].sum(axis=1), float(forecast[inside].sum())
    return np.array([half_width(*one) for one in zip(errors.T, loads.T, forecast, strict=True)]), half_width(*summed)


def shared_days(paths: list[DayPath], loads: list[int]) -> tuple[FloatArray, FloatArray]:
    """Return the errors and loads of so many copies of each path, added up, on the days that all of them left out."""
    shared = np.array(sorted(set.intersection(*(set(path.dates.tolist()) for path in paths))), dtype="datetime64[D]")
    chosen = [np.isin(path.dates, shared) for path in paths]
    errors, used = (
        np.sum([n * getattr(path, name)[mask] for n, path, mask in zip(loads, paths, chosen, strict=True)], axis=0)
        for name in ("errors", "loads")
    )
    return errors, used


def _price_for(days: dict[str, MeteredDay], target_kw: float) -> float:
    """Return the least event price at which the participants shed the target together."""
    if target_kw <= 0:
        raise ValueError(f"the power to shed must be a positive number of kW, got {target_kw:g}.")

    def shed(price: float) -> float:
        return float(sum(shed_energy(d, price) / d.in_event.sum() * d.model.loads for d in days.values()))

    most = shed(HIGHEST_PRICE)
    if most < target_kw:
        raise ValueError(
            f"a shed of {target_kw:g} kW is more than the participants can spare: {most:,.0f} kW at ${HIGHEST_PRICE:g} "
            "per kWh; ask for less, or for more participants."
        )
    low, high = 0.0, 1.0
    while shed(high) < target_kw:
        low, high = high, 2.0 * high
    for _ in range(30):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if shed(middle) < target_kw else (low, middle)
    return high
