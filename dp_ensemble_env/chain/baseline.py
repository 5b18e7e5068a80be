"""The customer baseline: the load expected without an event, by the rule of a relief programme.

Similar days are earlier weekdays for an event on a weekday, and the same day of the week on a weekend. Among the last
`days` of them, the `best` with the highest energy in the event's hours are averaged, step by step. Past events,
holidays, days on which the meter failed and days with a missing reading are skipped. No day lies further back than
`look_back` similar days: a meter that failed in spring has no baseline in summer. The *adjusted* baseline is scaled by
the ratio of metered to baseline energy some hours before the event, within a cap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_ensemble_env.chain.calendar import Lookup, similar_days
from dp_ensemble_env.chain.event import DemandResponseEvent
from dp_ensemble_env.tools.validation import (
    as_days,
    as_numeric_array,
    as_times,
    check_choice,
    check_count,
    check_in_range,
    check_instance,
    check_shape,
)

FloatArray = NDArray[np.float64]
TimeArray = NDArray[np.datetime64]
DAY = np.timedelta64(1, "D")


class TooFewDays(ValueError):  # noqa: N818 - named after what is wrong
    """There are fewer complete similar days before the event than a baseline needs."""


@dataclass(frozen=True, kw_only=True)
class BaselineRule:
    """A programme's rule for the customer baseline."""

    days: int = 10
    """Number of similar days considered."""
    best: int = 5
    """Number of them, with the highest energy, that are averaged."""
    look_back: int = 30
    """Oldest day considered, in similar days before the event."""
    adjust_from: float = 4.0
    """Hours before the event at which the adjustment's hours begin."""
    adjust_until: float = 2.0
    """Hours before the event at which they end."""
    cap: float = 0.2
    """Largest adjustment, as a share."""

    def __post_init__(self) -> None:
        for name in ("days", "best", "look_back"):
            check_count(getattr(self, name), name)
        if self.best > self.days:
            raise ValueError(f"best={self.best} exceeds days={self.days}; the best are among the days looked at.")
        check_in_range(self.cap, "cap", 0, 1)
        if not self.adjust_from > self.adjust_until >= 0:
            raise ValueError(
                f"the adjustment's hours must end after they begin and before the event, got {self.adjust_from:g} to "
                f"{self.adjust_until:g} hours before it; correct adjust_from and adjust_until."
            )


@dataclass(frozen=True, eq=False)
class Baseline:
    """A customer baseline and how it came about."""

    kw: FloatArray
    """Unadjusted, on the decision times of ``event.timeline()``, (T + 1,)."""
    factor: float
    """Adjustment; NaN where the hours before the event were not metered."""
    chosen: tuple[str, ...]
    """Days that are averaged, the latest first."""
    rejected: dict[str, str]
    """Days that were passed over, and why."""


def find_baseline(
    times: ArrayLike,
    kw: ArrayLike,
    event: DemandResponseEvent,
    rule: BaselineRule | None = None,
    exclude: Mapping[str, str] | Iterable[str] = (),
) -> Baseline:
    """Compute the customer baseline of an event, with the days behind it, from stamps at interval starts and kW.

    `exclude` names holidays, other events and days on which the meter failed, with their reasons if it is a mapping.
    The default `rule` is Con Edison's. Raises `TooFewDays` without enough complete similar days before the event.
    """
    check_instance(event, DemandResponseEvent, "event")
    rule = rule or BaselineRule()
    reasons = dict(exclude) if isinstance(exclude, Mapping) else dict.fromkeys(as_days(exclude, "exclude"), "excluded")
    stamps = as_times(times, "times")
    values = as_numeric_array(kw, "kw", 1)
    check_shape(values, stamps.shape, "kw", "one reading per time")
    order = np.argsort(stamps)
    lookup = Lookup(stamps[order], values[order])
    line = event.timeline()
    step = line.times[1] - line.times[0]
    starts = line.times - step
    day = np.datetime64(event.date, "D")
    earlier = np.arange(day - DAY, stamps.min().astype("datetime64[D]") - DAY, -DAY)
    windows: dict[str, FloatArray] = {}
    rejected: dict[str, str] = {}
    for other in earlier[similar_days(earlier, day)][: rule.look_back]:
        window = lookup(starts + (other - day), step)
        if str(other) in reasons:
            rejected[str(other)] = reasons[str(other)]
        elif np.isnan(window).any():
            rejected[str(other)] = "readings missing"
        else:
            windows[str(other)] = window
        if len(windows) == rule.days:
            break
    if len(windows) < rule.days:
        raise TooFewDays(
            f"only {len(windows)} complete similar days lie before {event.date} (of the last {rule.look_back} such "
            f"days), the baseline needs {rule.days}; give a longer series or ask for fewer days."
        )
    ranked = sorted(windows, key=lambda other: -float(windows[other][line.in_event].sum()))
    rejected |= dict.fromkeys(ranked[rule.best :], f"not among the best {rule.best}")
    chosen = tuple(other for other in windows if other in ranked[: rule.best])
    baseline: FloatArray = np.mean([windows[other] for other in ranked[: rule.best]], axis=0)
    return Baseline(baseline, _factor(lookup, event, chosen, step, rule), chosen, dict(sorted(rejected.items())))


def customer_baseline(
    times: ArrayLike,
    kw: ArrayLike,
    event: DemandResponseEvent,
    *,
    exclude: Iterable[str] = (),
    adjustment: str = "none",
) -> FloatArray:
    """Return the customer baseline (T + 1,) in kW; ``adjustment="weather"`` scales it by the morning of the day.

    See `find_baseline` for the parameters, and for the days behind it.
    """
    check_choice(adjustment, "adjustment", ("none", "weather"))
    baseline = find_baseline(times, kw, event, exclude=exclude)
    if adjustment == "none":
        return baseline.kw
    if np.isnan(baseline.factor):
        raise ValueError("readings are missing two to four hours before the event; use adjustment='none'.")
    return baseline.kw * baseline.factor


def _factor(
    lookup: Lookup, event: DemandResponseEvent, chosen: tuple[str, ...], step: np.timedelta64, rule: BaselineRule
) -> float:
    """Return actual over baseline energy before the event, within the cap; NaN where readings are missing."""
    begin, _ = event.window
    early, late = (np.timedelta64(round(hours * 3600), "s") for hours in (rule.adjust_from, rule.adjust_until))
    stamps = np.arange(begin - early, begin - late, step)
    day = np.datetime64(event.date, "D")
    actual = lookup(stamps, step).sum()
    usual = np.mean([lookup(stamps + (np.datetime64(other, "D") - day), step).sum() for other in chosen])
    if not (np.isfinite(actual) and np.isfinite(usual) and usual > 0):
        return float("nan")
    return float(np.clip(actual / usual, 1.0 - rule.cap, 1.0 + rule.cap))
