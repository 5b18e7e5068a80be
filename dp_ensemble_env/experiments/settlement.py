"""The day after: what was delivered against the baseline, what it pays, and how far plan and forecast were off.

The customer baseline is the mean of the best five of the ten similar days before the event
(`dp_ensemble_env.chain.event.customer_baseline`), unadjusted and adjusted to the morning of the day. Past event days,
holidays and days on which the meter failed are passed over.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.chain import resample
from dp_ensemble_env.chain.day import TooFewSimilarDays
from dp_ensemble_env.chain.event import DemandResponseEvent, check_event_day, customer_baseline
from dp_ensemble_env.programme import ReliefProgramme
from dp_ensemble_env.reporting.tables import plain
from dp_ensemble_env.scenarios.metered import DaySettings, left_out, metered_day

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Settlement:
    """One participant's event; energies in kWh of the event's hours.

    Attributes
    ----------
    name : str
    hours, step_hours : float
    metered : ndarray of shape (steps,)
        kW in the event.
    baseline, adjusted : ndarray
        Customer baseline, unadjusted and adjusted (NaN where the morning was not metered).
    forecast : ndarray
        What the load would have drawn without the event, by the forecast made at the notice (NaN without one).
    planned : ndarray
        Set-points of the plan (NaN without one).
    notes : tuple of str
    """

    name: str
    hours: float
    step_hours: float
    metered: FloatArray
    baseline: FloatArray
    adjusted: FloatArray
    forecast: FloatArray
    planned: FloatArray
    notes: tuple[str, ...] = ()

    def energy(self, which: str) -> float:
        """Return the energy of a course, by its attribute's name."""
        return float(getattr(self, which).sum() * self.step_hours)

    def delivered(self, against: str = "baseline") -> float:
        """Return the energy below ``"baseline"``, ``"adjusted"`` or ``"forecast"``."""
        return self.energy(against) - self.energy("metered")

    def off(self, which: str) -> float:
        """Return how far ``"planned"`` or ``"forecast"`` was off: mean absolute difference from the meter, per cent."""
        return float(100.0 * np.abs(getattr(self, which) - self.metered).mean() / self.metered.mean())

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers for JSON."""
        found: dict[str, Any] = {"name": self.name, "hours": self.hours}
        for which in ("metered", "baseline", "adjusted", "forecast", "planned"):
            found[f"{which}_kwh"] = plain(self.energy(which))
        for which in ("baseline", "adjusted", "forecast"):
            found[f"delivered_against_{which}_kwh"] = plain(self.delivered(which))
        found |= {f"{which}_off_percent": plain(self.off(which)) for which in ("planned", "forecast")}
        return found | {"notes": list(self.notes)}


def settle(
    name: str,
    series: Any,
    event: DemandResponseEvent,
    settings: DaySettings,
    *,
    planned: FloatArray | None = None,
    temperature: Any = None,
) -> Settlement:
    """Settle one participant's event from its metered day.

    Parameters
    ----------
    name : str
    series : PowerSeries
        With the event's day and what came before.
    event : DemandResponseEvent
    settings : DaySettings
        Days to leave out; `loads` multiplies a building into its copies.
    planned : ndarray, optional
        Set-points of the event's intervals, kW.
    temperature : pair of ndarray, optional
        For the forecast.
    """
    check_event_day(event, series.times, getattr(series, "source", ""))
    step = np.timedelta64(int(event.step_minutes) * 60, "s")
    stamps, kw, _ = resample(np.asarray(series.times, dtype="datetime64[s]"), np.asarray(series.kw), series.step, step)
    copies = settings.loads if settings.profile == "building" else 1
    kw = kw * copies
    line = event.timeline()
    inside = line.in_event
    starts = line.times[inside] - step
    place = np.searchsorted(stamps, starts)
    there = (place < len(stamps)) & (stamps[np.minimum(place, len(stamps) - 1)] == starts)
    metered = np.where(there, kw[np.minimum(place, len(kw) - 1)], np.nan)
    if np.isnan(metered).any():
        raise ValueError(
            f"{name} has {int(np.isnan(metered).sum())} of {len(metered)} readings missing in the event of "
            f"{event.date}, so it cannot be settled; give a day that was metered, with date=..."
        )
    skipped, notes = left_out(stamps, kw, step, event.date, settings)
    baseline = customer_baseline(stamps, kw, event, exclude=skipped)[inside]
    missing = np.full(len(metered), np.nan)
    try:
        adjusted = customer_baseline(stamps, kw, event, exclude=skipped, adjustment="weather")[inside]
    except ValueError as error:
        adjusted, notes = missing, (*notes, f"There is no adjusted baseline: {error}")
    try:
        # The penalty is of no matter to the forecast; stating one spares its calibration.
        quick = replace(settings, penalty=1.0, penalty_per_kw=None, loads=1, profile="building")
        day = metered_day(series, event, quick, temperature=temperature)
        forecast = copies * day.path.kw[: len(line.times)][inside]
    except TooFewSimilarDays as error:
        forecast, notes = missing, (*notes, f"There is no forecast: {error}")
    hours = float(step / np.timedelta64(3600, "s"))
    plan = missing if planned is None else np.asarray(planned, dtype=float)
    return Settlement(name, len(metered) * hours, hours, metered, baseline, adjusted, forecast, plan, notes)


def add_up(settlements: list[Settlement]) -> Settlement:
    """Return the total of several participants."""
    first = settlements[0]
    summed = {
        which: np.sum([getattr(one, which) for one in settlements], axis=0)
        for which in ("metered", "baseline", "adjusted", "forecast", "planned")
    }
    return Settlement("total", first.hours, first.step_hours, **summed)


def payment(one: Settlement, programme: ReliefProgramme, pledge_kw: float, against: str) -> dict[str, float]:
    """Return performance factor and dollars of a month with this event."""
    delivered = one.delivered(against) / one.hours
    factor = float(programme.performance_factor(delivered, pledge_kw))
    return {
        "pledge_kw": pledge_kw,
        "delivered_kw": delivered,
        "performance_factor": factor,
        "reservation_payment": programme.reservation * pledge_kw * factor,
        "energy_payment": programme.energy * max(delivered, 0.0) * one.hours,
        "payment": float(programme.payment(delivered, pledge_kw, one.hours)),
    }


# ------------------------------------------------------------------ plans of before
@dataclass(frozen=True)
class EarlierPlan:
    """What `dp-ensemble plan` wrote: its day and hours, its pledge, and the set-points by participant."""

    date: str
    window: str
    pledge_kw: float
    setpoints: dict[str, tuple[float, ...]]


def read_plan(path: Path) -> EarlierPlan:
    """Read ``dispatch.json``, or the folder that holds it."""
    file = path / "dispatch.json" if path.is_dir() else path
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if content["kind"] != "dispatch":
            raise KeyError("kind")
        courses = content["participants"]
        inside = [t for t, flag in enumerate(courses[0]["in_event"]) if flag]
        begin, end = (np.datetime64(courses[0]["end"][t]) for t in (inside[0] - 1, inside[-1]))
        return EarlierPlan(
            content["date"],
            f"{str(begin)[11:16]}-{str(end)[11:16]}",
            float(content["pledge_kw"]),
            {course["name"]: tuple(course["setpoint_kw"][t] for t in inside) for course in courses},
        )
    except (KeyError, IndexError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{file} is not a dispatch that dp-ensemble plan wrote; give its folder.") from error
