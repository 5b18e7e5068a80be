"""The control problem of one metered load on one day: its size, its day, and what it can spare.

`metered_day` is the one place where readings become a problem, so that all commands tell one set of numbers. Behaviour
follows the day (`dp_ensemble_env.chain.day`) and is learnt from similar days before it. Event days, holidays and days
on which the meter failed are left out, here and in the customer baseline.

**The floor.** No event may push a load below a percentile of its occupied hours: energy saved below it is worth
nothing in the problem, so outages and nights are no targets. Occupied are the times of day at which the load usually
is in the upper half of its daily range.

**The penalty**, in dollars per nat, is stated, stated per kW of usual load, or calibrated so that an event of $1 per
kWh sheds a given share of the energy.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.chain import select_days, similar_days
from dp_ensemble_env.chain.baseline import TooFewDays, customer_baseline
from dp_ensemble_env.chain.calendar import named_holidays, stale_days
from dp_ensemble_env.chain.day import DayPath, day_path
from dp_ensemble_env.chain.event import DemandResponseEvent, check_event_day, in_order, read_pairs
from dp_ensemble_env.control.policies import standard_policy
from dp_ensemble_env.control.returns import mean_power, shares
from dp_ensemble_env.model import EnsembleModel, FloatArray
from dp_ensemble_env.tools.validation import as_days, option

TimeArray = NDArray[np.datetime64]

LEVELS = 40
#: Percentile of the occupied hours below which no event may push.
SHED_FLOOR = 5.0
#: Share of the energy that an event of `REFERENCE_INCENTIVE` sheds, where nothing else is stated.
RESPONSE, REFERENCE_INCENTIVE = 0.15, 1.0
#: No more than this share of what lies above the floor is asked for.
REACHABLE = 0.8
#: Standard deviations of the uncontrolled load that the levels reach beyond its path.
REACH = 3.0
#: How long after the last reading an event may be planned.
AHEAD = np.timedelta64(7, "D")
#: Steps after the event for which the load is forecast, as a time.
AFTERWARDS = np.timedelta64(2 * 3600, "s")


@dataclass(frozen=True)
class DaySettings:
    """How readings become a problem; `ProblemSettings` has most of the fields, and says what they mean."""

    levels: int = LEVELS
    loads: int = 1
    """Copies of the metered building (`profile` "building"), or loads that the file adds up ("aggregate")."""
    profile: str = "building"
    penalty: float | None = None
    penalty_per_kw: float | None = None
    response: float = RESPONSE
    shed_floor: float = SHED_FLOOR
    season: tuple[str, str] | None = None
    exclude: tuple[str, ...] = ()
    holidays: tuple[str, ...] = ()
    adjustment: str = "none"
    """Of the customer baseline, "none" or "weather"."""
    measured: bool = True
    """Whether the day's own readings until control begins are used."""

    def __post_init__(self) -> None:
        if self.penalty is not None and self.penalty_per_kw is not None:
            both = f"{option('penalty')} and {option('penalty_per_kw')}"
            raise ValueError(f"{both} state the same thing; give one of them.")
        if not 0.0 < self.response < 1.0:
            raise ValueError(f"response must lie between 0 and 1, got {self.response:g}; 0.15 is fifteen per cent.")
        if not 0.0 <= self.shed_floor < 50.0:
            raise ValueError(f"shed_floor must be a percentile from 0 up to 50, got {self.shed_floor:g}.")


@dataclass(frozen=True, eq=False)
class MeteredDay:
    """One load, one event, and everything that was learnt for it; power per load."""

    model: EnsembleModel
    """From the notice to the end of the event."""
    path: DayPath
    """The forecast, two hours beyond the event."""
    floor_kw: float
    event: DemandResponseEvent
    skipped: tuple[str, ...]
    """Days that were left out of training and baseline."""
    notes: tuple[str, ...]

    @property
    def in_event(self) -> NDArray[np.bool_]:
        """Which of the model's times end an interval of the event."""
        assert self.model.event is not None
        return self.model.event.in_event

    @property
    def forecast_kw(self) -> FloatArray:
        """Power of one uncontrolled load at the model's times, (T + 1,)."""
        return self.path.kw[: self.model.horizon + 1]

    @property
    def forecast_kwh(self) -> float:
        """Energy of one uncontrolled load in the event."""
        return float(self.forecast_kw[self.in_event].sum() * self.model.step_hours)

    @property
    def worth_kw(self) -> FloatArray:
        """Power that each level counts as, (T + 1, n): below the floor there is nothing to gain."""
        return np.maximum(self.model.power_kw, np.minimum(self.floor_kw, self.forecast_kw)[:, None])

    def priced(self, incentive: float) -> EnsembleModel:
        """Return the problem with another event price, $/kWh."""
        assert self.model.event is not None
        line = replace(self.model.event, incentive=np.where(self.in_event, incentive, 0.0))
        return self.model.override(utility=-line.price[:, None] * self.worth_kw * self.model.step_hours, event=line)


def metered_day(
    series: Any,
    event: DemandResponseEvent,
    settings: DaySettings | None = None,
    *,
    temperature: tuple[TimeArray, FloatArray] | None = None,
) -> MeteredDay:
    """Build the control problem of one metered load, a `PowerSeries` or anything else with `times`, `kw` and `step`.

    The event is on a day of the series, or soon after. `temperature` is stamps and degrees; see `chain.day.day_path`.
    """
    settings = settings or DaySettings()
    reach = np.append(np.asarray(series.times, dtype="datetime64[s]"), series.times[-1] + AHEAD)
    check_event_day(event, reach, getattr(series, "source", ""))
    step, (stamps, kw) = event.step, event.readings(series)
    kw = kw / (settings.loads if settings.profile == "aggregate" else 1)
    reasons, notes = left_out(stamps, kw, step, event.date, settings)
    skipped = tuple(reasons)
    line = event.timeline()
    horizon = len(line.times) - 1
    times = np.append(line.times, line.times[-1] + step * np.arange(1, int(AFTERWARDS // step) + 1))
    season, measured = settings.season, settings.measured
    path = day_path(stamps, kw, step, times, exclude=skipped, season=season, temperature=temperature, measured=measured)
    if measured and not path.measured:
        notes += (
            f"The load just before {line.times[0].item():%H:%M} on {event.date} was not measured, so the forecast "
            "starts from the usual load.",
        )
    floor = sheddable_floor(stamps, kw, event.date, settings, skipped)
    levels = level_grid(path, floor, settings.levels, horizon)
    try:
        baseline = customer_baseline(stamps, kw, event, exclude=skipped, adjustment=settings.adjustment)
        line = event.timeline(baseline * settings.loads)
    except TooFewDays as error:
        notes += (f"There is no customer baseline: {error}",)
    model = EnsembleModel(
        default=path.behaviour(levels)[:horizon],
        power_kw=levels,
        utility=np.zeros((horizon + 1, len(levels))),
        discomfort_penalty=1.0,
        loads=settings.loads,
        initial=path.start(levels),
        event=line,
        # The utility holds the forecast, and a penalty that is not stated is calibrated on the readings.
        public_fields=("levels",) if settings.penalty is None else ("levels", "penalty"),
    )
    day = MeteredDay(model, path, floor, event, skipped, ())
    day = replace(day, model=day.priced(float(event.incentive)))
    penalty, how = choose_penalty(day, settings)
    copied = settings.profile == "building" and settings.loads > 1
    whose = f"{settings.loads} copies of the metered building" if copied else "the metered load itself"
    learnt = f"The forecast learns from {path.days} similar days before {event.date}."
    notes = (f"Results are for {whose}.", learnt, *notes, how, f"No event pushes a load below {floor:.4g} kW.")
    return replace(day, model=day.model.override(discomfort_penalty=penalty, notes=notes), notes=notes)


def left_out(
    stamps: TimeArray, kw: FloatArray, step: np.timedelta64, date: str, settings: DaySettings
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the days not to learn from, each with the reason, and what to note about them."""
    exclude = as_days(settings.exclude, "exclude")
    holidays = as_days(named_holidays(settings.holidays, stamps), "holidays")
    before = stamps < np.datetime64(date, "D")
    stale = stale_days(stamps[before], kw[before], step) if before.any() else {}
    stale = {day: why for day, why in stale.items() if day not in (*exclude, *holidays)}
    listed = ", ".join(f"{day} ({why})" for day, why in list(stale.items())[:3])
    more = f" and {len(stale) - 3} more" if len(stale) > 3 else ""
    notes = (f"Left out of forecast and baseline: {listed}{more}.",) if stale else ()
    return dict.fromkeys(holidays, "holiday") | dict.fromkeys(exclude, "excluded") | stale, notes


def sheddable_floor(
    stamps: TimeArray, kw: FloatArray, date: str, settings: DaySettings, skipped: tuple[str, ...]
) -> float:
    """Return the percentile of the occupied hours of similar days before `date`, in kW."""
    before = (stamps < np.datetime64(date, "D")) & ~np.isnan(kw)
    usual = before & similar_days(stamps, np.datetime64(date, "D"), settings.season, skipped)
    chosen = usual if usual.any() else before & select_days(stamps, exclude=skipped)
    clock, index = np.unique((stamps - stamps.astype("datetime64[D]"))[chosen], return_inverse=True)
    profile = np.bincount(index, kw[chosen], minlength=len(clock)) / np.bincount(index, minlength=len(clock))
    occupied = profile >= 0.5 * (profile.min() + profile.max())
    return float(np.percentile(kw[chosen][occupied[index]], settings.shed_floor))


def level_grid(path: DayPath, floor: float, n: int, horizon: int) -> FloatArray:
    """Return equally spaced levels that hold the path with its spread, and the floor."""
    kw, spread = path.kw[: horizon + 1], path.total_spread[: horizon + 1]
    low = max(min(floor, float((kw - REACH * spread).min())), 0.0)
    high = float((kw + REACH * spread).max())
    if not high > low:
        raise ValueError(
            "the power hardly changes, so it has one level and nothing to control; choose another meter or period."
        )
    return np.linspace(low, high, n)


# ------------------------------------------------------------------ the penalty
def choose_penalty(day: MeteredDay, settings: DaySettings) -> tuple[float, str]:
    """Return dollars per nat, and the sentence that tells where they come from."""
    usual = float(day.forecast_kw[day.in_event].mean())
    if settings.penalty is not None:
        penalty, source = float(settings.penalty), "as stated"
    elif settings.penalty_per_kw is not None:
        penalty, source = float(settings.penalty_per_kw) * usual, "as stated"
    else:
        share = min(settings.response, REACHABLE * max(1.0 - day.floor_kw / usual, 0.0))
        if share < 0.005:  # the day begins at the floor: hardly anything may be moved, whatever the penalty
            penalty, source = usual, "set to $1 per kW, because the load is at its floor all day"
        else:
            penalty, share = calibrate(day.priced(REFERENCE_INCENTIVE), day.in_event, share)
            source = f"calibrated: an event of ${REFERENCE_INCENTIVE:g}/kWh sheds {100 * share:.3g} % of the energy"
            if share < 0.999 * settings.response:
                source += f"; {100 * settings.response:.3g} % was asked for, the day has less to spare"
    size = f"${penalty:.4g} per nat and load, ${penalty / usual:.3g} per kW ({source})"
    return penalty, f"The penalty is {size}: a design weight, not a measured cost."


def calibrate(model: EnsembleModel, in_event: NDArray[np.bool_], share: float) -> tuple[float, float]:
    """Return the penalty under which the optimum of a model at the reference incentive sheds `share` of the energy.

    Where that is out of reach, so much less is aimed for, and returned as well.
    """
    idle = load_power(model, model.default_policy)[in_event].sum()

    def shed(penalty: float) -> float:
        tried = model.override(discomfort_penalty=penalty)
        return float(1.0 - load_power(tried, standard_policy(tried))[in_event].sum() / idle)

    # More penalty, less response: bisection on the logarithm, up to one that moves nothing.
    scale = float(-model.utility.min())
    low, high = np.log(1e-4 * scale), np.log(1e5 * scale)
    share = min(share, REACHABLE * shed(float(np.exp(low))))  # moves are limited, too
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if shed(float(np.exp(middle))) > share else (low, middle)
    return float(np.exp(0.5 * (low + high))), share


def load_power(model: EnsembleModel, policy: FloatArray) -> FloatArray:
    """Return the expected power of one load at each time, kW."""
    return mean_power(model, shares(model, policy))


def read_temperature(path: str | os.PathLike[str]) -> tuple[TimeArray, FloatArray]:
    """Read a CSV file of ``stamp,degrees`` rows; a header line is allowed."""
    rows = read_pairs(Path(path), "temperature in degrees")
    if len(rows) < 2:
        raise ValueError(f"{path} holds one temperature; write lines like '2018-07-02 11:00,27.5'.")
    return in_order(rows, path)
