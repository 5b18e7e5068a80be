r"""The day after: what was delivered against the baseline of a programme, what it pays, and how far the plan was off.

Every number can be audited: a settlement holds the interval rows of baseline and meter, the days behind the baseline
with the reasons of the others, the adjustment, and flags on the data.

A relief programme is data: how a baseline is computed, and what a delivered kilowatt pays. A participant has contracted
:math:`c` kW. In an event of :math:`h` hours it delivers :math:`D` kW on average, measured from the customer baseline.
Its *performance factor* is :math:`f = \min(\max(D / c, 0), 1)`, and a month with one event pays, by the rules of
Consolidated Edison's commercial programmes,

.. math:: \text{reservation} \cdot c \cdot f + \text{energy} \cdot \max(D, 0)\,h

``programmes.toml`` holds the programmes that are known by name; one of your own is a file with such a table.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.chain.baseline import Baseline, BaselineRule, find_baseline
from dp_ensemble_env.chain.calendar import Lookup, stale_days
from dp_ensemble_env.chain.day import TooFewSimilarDays
from dp_ensemble_env.chain.event import DemandResponseEvent, check_event_day
from dp_ensemble_env.reporting.tables import plain
from dp_ensemble_env.scenarios.metered import DaySettings, left_out, metered_day
from dp_ensemble_env.tools.validation import check_choice, check_in_range, option

FloatArray = NDArray[np.float64]
COURSES = ("metered", "baseline", "adjusted", "forecast", "planned")


@dataclass(frozen=True, kw_only=True)
class Programme(BaselineRule):
    """The terms of a programme."""

    name: str
    """Name in reports."""
    reservation: float = 0.0
    """Dollars per kW-month contracted, times the performance factor."""
    energy: float = 0.0
    """Dollars per kWh delivered."""
    adjusted: bool = False
    """Whether the adjusted baseline settles."""
    missing: Literal["refuse", "nothing"] = "refuse"
    """What an interval of the event without a reading does: the event is not settled, or it delivers nothing there."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("reservation", "energy"):
            check_in_range(getattr(self, field), field, 0, np.inf)
        check_choice(self.missing, "missing", ("refuse", "nothing"))


def programme(name: str) -> Programme:
    """Return a programme by its name in ``programmes.toml``, or the one of a TOML file of one's own."""
    known = tomllib.loads(files(__package__).joinpath("programmes.toml").read_text(encoding="utf-8"))
    if name.endswith(".toml"):
        try:
            tables = tomllib.loads(Path(name).read_text(encoding="utf-8"))
        except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"cannot read the programme {name}: {error}; correct the file.") from error
        if len(tables) != 1 or not isinstance(terms := next(iter(tables.values())), dict):
            raise ValueError(f"{name} must hold the table of one programme, such as [mine], got {len(tables)} entries.")
        terms = {"name": next(iter(tables)), **terms}
    else:
        terms = known[check_choice(name, "programme", known)]
    for key in terms:
        check_choice(key, f"term of the programme {name}", [field.name for field in fields(Programme)])
    return Programme(**terms)


# ------------------------------------------------------------------ one event
@dataclass(frozen=True, eq=False)
class Settlement:
    """One participant's event; energies in kWh of the event's hours.

    Arrays hold the kW of the event's intervals, NaN where there is no such course.
    """

    name: str
    starts: NDArray[np.datetime64]
    step_hours: float
    metered: FloatArray
    baseline: FloatArray
    adjusted: FloatArray
    """The baseline, adjusted to the morning."""
    forecast: FloatArray
    """Made at the notice, of the load without the event."""
    planned: FloatArray
    """Set-points of the plan."""
    source: Baseline | None = None
    """The days behind the baseline; None for a total."""
    flags: tuple[str, ...] = ()
    """What is wrong with the data of an interval; empty where nothing is."""
    notes: tuple[str, ...] = ()

    @property
    def hours(self) -> float:
        """Length of the event."""
        return len(self.metered) * self.step_hours

    def energy(self, which: str) -> float:
        """Return the energy of a course, by its attribute's name."""
        return float(getattr(self, which).sum() * self.step_hours)

    def delivered(self, against: str = "baseline") -> float:
        """Return the energy below ``"baseline"``, ``"adjusted"`` or ``"forecast"``."""
        return self.energy(against) - self.energy("metered")

    def off(self, which: str) -> float:
        """Return how far ``"planned"`` or ``"forecast"`` was off: mean absolute difference from the meter, per cent."""
        return float(100.0 * np.abs(getattr(self, which) - self.metered).mean() / self.metered.mean())

    def intervals(self) -> list[dict[str, Any]]:
        """Return a row for every interval: its start, the courses in kW, and the flag."""
        return [
            {
                "start": str(start).replace("T", " "),
                **{f"{which}_kw": plain(round(float(getattr(self, which)[t]), 3)) for which in COURSES},
                "flag": self.flags[t] if self.flags else "",
            }
            for t, start in enumerate(self.starts)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers for JSON."""
        content: dict[str, Any] = {"name": self.name, "hours": self.hours}
        content |= {f"{which}_kwh": plain(self.energy(which)) for which in COURSES}
        for which in ("baseline", "adjusted", "forecast"):
            content[f"delivered_against_{which}_kwh"] = plain(self.delivered(which))
        content |= {f"{which}_off_percent": plain(self.off(which)) for which in ("planned", "forecast")}
        if self.source is not None:
            content["baseline_days"] = list(self.source.chosen)
            content["rejected_days"] = self.source.rejected
            content["adjustment_factor"] = plain(self.source.factor)
        return content | {"intervals": self.intervals(), "notes": list(self.notes)}


def settle(
    name: str,
    series: Any,
    event: DemandResponseEvent,
    settings: DaySettings,
    programme: Programme,
    *,
    planned: FloatArray | None = None,
    temperature: Any = None,
) -> Settlement:
    """Settle one participant's event from its metered day and the days before.

    `settings` name days to leave out, and copies of the load; `planned` are set-points of the event's intervals, and
    `temperature` is for the forecast.
    """
    check_event_day(event, series.times, getattr(series, "source", ""))
    step, (stamps, kw) = event.step, event.readings(series)
    copies = settings.loads if settings.profile == "building" else 1
    kw = kw * copies
    line = event.timeline()
    starts = line.times[line.in_event] - step
    metered = Lookup(stamps, kw)(starts, step)
    gaps = np.isnan(metered)
    if gaps.any() and (programme.missing == "refuse" or gaps.all()):
        raise ValueError(
            f"{name} has {int(gaps.sum())} of {len(metered)} readings missing in the event of {event.date}, so it "
            f"cannot be settled by the rules of {programme.name}; give a day that was metered, with {option('date')}."
        )
    reasons, notes = left_out(stamps, kw, step, event.date, settings)
    source = find_baseline(stamps, kw, event, programme, reasons)
    baseline = source.kw[line.in_event]
    adjusted = baseline * source.factor
    if np.isnan(source.factor):
        notes += ("There is no adjusted baseline: readings are missing in the hours before the event.",)
    if gaps.any():  # such an interval delivers nothing
        metered = np.where(gaps, adjusted if programme.adjusted else baseline, metered)
        notes += (f"{int(gaps.sum())} of {len(metered)} intervals have no reading; they deliver nothing.",)
    missing = np.full(len(metered), np.nan)
    try:
        # The penalty is of no matter to the forecast; stating one spares its calibration.
        quick = replace(settings, penalty=1.0, penalty_per_kw=None, loads=1, profile="building")
        day = metered_day(series, event, quick, temperature=temperature)
        forecast = copies * day.path.kw[: len(line.times)][line.in_event]
    except TooFewSimilarDays as error:
        forecast, notes = missing, (*notes, f"There is no forecast: {error}")
    hours = float(step / np.timedelta64(3600, "s"))
    plan = missing if planned is None else np.asarray(planned, dtype=float)
    doubt = stale_days(stamps, kw, step).get(event.date, "")  # a frozen meter, or an outage
    flags = tuple(
        "reading missing" if gap else "zero" if value == 0 else doubt for gap, value in zip(gaps, metered, strict=True)
    )
    return Settlement(name, starts, hours, metered, baseline, adjusted, forecast, plan, source, flags, notes)


def add_up(settlements: list[Settlement]) -> Settlement:
    """Return the total of several participants."""
    first = settlements[0]
    summed = {which: np.sum([getattr(one, which) for one in settlements], axis=0) for which in COURSES}
    return Settlement("total", first.starts, first.step_hours, **summed)


def payment(delivered_kw: float, hours: float, programme: Programme, contracted_kw: float | None) -> dict[str, Any]:
    """Return performance factor and dollars of a month with one event; without a contract, those of the energy.

    Examples
    --------
    >>> payment(80.0, 4.0, programme("csrp"), 100.0)["payment"]  # 18 * 80 + 1 * 80 * 4
    1760.0
    """
    factor = float(np.clip(delivered_kw / contracted_kw, 0.0, 1.0)) if contracted_kw else None
    reserved = programme.reservation * contracted_kw * factor if contracted_kw and factor else 0.0
    energy = programme.energy * max(delivered_kw, 0.0) * hours
    return {
        "contracted_kw": contracted_kw,
        "delivered_kw": delivered_kw,
        "performance_factor": factor,
        "reservation_payment": reserved,
        "energy_payment": energy,
        "payment": reserved + energy,
    }


# ------------------------------------------------------------------ plans of before
@dataclass(frozen=True)
class EarlierPlan:
    """What `dp-ensemble plan` wrote: its day and hours, and the set-points by participant."""

    date: str
    window: str
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
        begin, end = courses[0]["start"][inside[0]], courses[0]["end"][inside[-1]]
        setpoints = {course["name"]: tuple(course["setpoint_kw"][t] for t in inside) for course in courses}
        return EarlierPlan(content["date"], f"{begin[11:16]}-{end[11:16]}", setpoints)
    except (KeyError, IndexError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{file} is not a dispatch that dp-ensemble plan wrote; give its folder.") from error
