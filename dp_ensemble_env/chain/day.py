r"""Dynamics that follow one day: where the load is heading, and how it strays from there.

A chain that knows neither the time of day nor how today began cannot say what a load would have drawn in the
afternoon. This one can. It is built in three steps, from similar days *before* the day in question alone.

**The path** :math:`m_t`. Every day is compared with a profile, the mean of the similar days before it, recent ones
weighing more. How far the load lies off its profile when control begins (in the last reading, over one hour and over
three), and, where temperatures are given, how much warmer than usual the day is, predicts how far off it will be later:
one ridge regression for each step. How fast old days are forgotten and how much the regression is drawn towards the
profile are those with the least mean absolute error on days left out.

**Straying.** The errors :math:`r_t` of that forecast on left-out days follow
:math:`r_{t+1} = \varphi_t r_t + e_t`. So from power :math:`x` at time `t` the load moves to

.. math:: m_{t+1} + \varphi_t (x - m_t) + e_t, \qquad e_t \sim N(0, \sigma_t^2)

A load that was pushed off its path returns to it as it does by itself.

**Levels.** On a grid of power levels the law of the next level is the normal one, tilted so that its mean is exact
(wherever the grid reaches): the mean of the chain is the path itself. The load measured at the start lies between two
levels and starts in both, in the proportion that keeps its mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from dp_ensemble_env.chain.calendar import Lookup, similar_days

FloatArray = NDArray[np.float64]
TimeArray = NDArray[np.datetime64]

#: Days after which a day weighs half in the profile, and strengths of the ridge: what is tried.
HALF_LIVES = (1.0, 2.0, 4.0, 8.0, 16.0, 50.0)
RIDGES = (0.3, 3.0, 30.0, np.inf)
#: A profile needs so many days before it, and a path so many days with a profile.
PROFILE_DAYS, LEAST_DAYS = 3, 5
#: Smaller probabilities of a move are left out: moves of ten standard deviations. What a load never does by itself it
#: may still do when it is asked to, at its price in nats.
LEAST_PROBABILITY = 1e-24
#: The range of a forecast: days after which an error weighs half, and how fast it widens with the heat of the day.
ERROR_HALF_LIFE, HEAT = 15.0, 0.3
DAY = np.timedelta64(1, "D")
HISTORY = np.timedelta64(3 * 3600, "s")


class TooFewSimilarDays(ValueError):  # noqa: N818 - named after what is wrong
    """There are too few similar days before the day to learn from."""


@dataclass(frozen=True, eq=False)
class DayPath:
    r"""The forecast of one day from the instant at which control begins, and how days stray from it."""

    times: TimeArray
    """Ends of the intervals, (T + 1,); entry 0 is the first decision."""
    kw: FloatArray
    """Expected mean power of the intervals, (T + 1,); entry 0 was measured, if `measured`."""
    carry: FloatArray
    r""":math:`\varphi_t`, (T,)."""
    spread: FloatArray
    r""":math:`\sigma_t` in kW, (T,)."""
    start_spread: float
    """Standard deviation of entry 0 in kW; zero if it was measured."""
    measured: bool
    """Whether the day's own load was known when control begins; if not, the path is the profile."""
    days: int
    """Similar days behind the estimate."""
    dates: TimeArray
    """Days that were left out in turn, (D,)."""
    loads: FloatArray
    """Load of each of them in kW, (D, T + 1)."""
    errors: FloatArray
    """That less its forecast."""

    @property
    def total_spread(self) -> FloatArray:
        """Standard deviation of the uncontrolled load at each time, in kW."""
        variance = [self.start_spread**2]
        for carry, spread in zip(self.carry, self.spread, strict=True):
            variance.append(carry**2 * variance[-1] + spread**2)
        return np.asarray(np.sqrt(np.array(variance)))

    def behaviour(self, levels: FloatArray) -> FloatArray:
        """Return the transition matrices (T, n, n) between power `levels` (n,), equally far apart, in kW."""
        mean = self.kw[1:, None] + self.carry[:, None] * (levels - self.kw[:-1, None])
        # Below half the distance of the levels a normal law would fall between them.
        wide = np.maximum(self.spread, 0.5 * (levels[1] - levels[0]))
        return np.stack([_normal_rows(mu, sd, levels) for mu, sd in zip(mean, wide, strict=True)])

    def start(self, levels: FloatArray) -> FloatArray:
        """Return the distribution over `levels` at the start; its mean is the measured load."""
        if not self.measured and self.start_spread > 0:
            wide = max(self.start_spread, 0.5 * (levels[1] - levels[0]))
            return np.asarray(_normal_rows(self.kw[:1], wide, levels)[0])
        place = np.interp(self.kw[0], levels, np.arange(len(levels)))
        below = min(int(place), len(levels) - 2)
        start = np.zeros(len(levels))
        start[below : below + 2] = 1.0 - (place - below), place - below
        return start


def half_width(errors: FloatArray, loads: FloatArray, forecast: float, share: float = 0.9) -> float:
    r"""Return half the width of the range around a forecast that should hold `share` of the days.

    The errors :math:`e_i` are those of days left out, the latest last, so the range follows the season, the notice, and
    whatever errors of successive steps have in common. Their spread is the larger of the root mean square and of the
    one in which recent days weigh more. Days hotter than usual are forecast worse: :math:`z` standard deviations above
    the mean `loads`, the range is :math:`\sqrt{1 + 0.3 z^2}` times as wide.
    """
    days = len(errors)
    weight = 0.5 ** (np.arange(days)[::-1] / ERROR_HALF_LIFE)
    even, recent = (errors**2).sum() / max(days - 1, 1), (weight * errors**2).sum() / weight.sum()
    heat = max((forecast - loads.mean()) / max(float(loads.std()), 1e-12 * abs(forecast), 1e-12), 0.0)
    quantile = float(stdtrit(max(days - 1, 1), 0.5 * (1.0 + share)))
    return float(quantile * np.sqrt(max(even * (days + 1) / days, recent) * (1.0 + HEAT * heat**2)))


def day_path(
    stamps: TimeArray,
    kw: FloatArray,
    step: np.timedelta64,
    times: TimeArray,
    *,
    exclude: tuple[str, ...] = (),
    season: tuple[str, str] | None = None,
    temperature: tuple[TimeArray, FloatArray] | None = None,
    measured: bool = True,
) -> DayPath:
    """Forecast the power at `times` from similar days before and the load just before ``times[0]``.

    The meter's intervals have the starts `stamps`, the mean power `kw` (NaN where missing) and the length `step`.
    Readings from ``times[0]`` on are not looked at, nor the day's own readings unless `measured`. Decisions are `step`
    apart; ``times[t]`` ends interval `t`. Days to learn from lie in a `season` and are not in `exclude`. `temperature`
    is stamps and degrees; those of the day itself are a forecast that you supply.
    """
    series, history = Lookup(stamps, kw), max(1, int(HISTORY // step))
    starts = times[0] - step * np.arange(history, 0, -1)
    starts = np.concatenate([starts, times[1:] - step])  # (history + T): the last of the first `history` is entry 0
    day = times[0].astype("datetime64[D]")
    earlier = np.arange(day - DAY, stamps.min().astype("datetime64[D]") - DAY, -DAY)[::-1]
    earlier = earlier[similar_days(earlier, day, season, exclude)] if len(earlier) else earlier
    known = np.array([series(starts + (other - day), step) for other in earlier]).reshape(len(earlier), len(starts))
    whole = ~np.isnan(known).any(axis=1)
    earlier, known = earlier[whole], known[whole]
    if len(known) < PROFILE_DAYS + LEAST_DAYS:
        raise TooFewSimilarDays(
            f"only {len(known)} complete similar days lie before {day}, and a forecast of the day learns from "
            f"{PROFILE_DAYS + LEAST_DAYS} or more; give a longer series or a later date."
        )
    today = series(starts[:history], step) if measured else np.full(history, np.nan)
    warmth = None if temperature is None else _warmth(temperature, [*earlier, day], starts - day)
    return _fit(times, earlier, known, today, warmth, history, int(np.timedelta64(3600, "s") // step) or 1)


def _fit(
    times: TimeArray,
    dates: TimeArray,
    known: FloatArray,
    today: FloatArray,
    warmth: FloatArray | None,
    history: int,
    hour: int,
) -> DayPath:
    """Choose profile and ridge on days left out, and describe their errors."""
    measured = not np.isnan(today).any()
    best: tuple[float, FloatArray, FloatArray] | None = None
    for half_life in HALF_LIVES:
        profile = _profiles(known, half_life)  # (days + 1, ...): the last is that of the day itself
        offset = (known - profile[:-1])[PROFILE_DAYS:]
        features, own = np.zeros((len(offset), 0)), np.zeros(0)
        if measured:
            features = _features(offset[:, :history], hour)
            own = _features((today - profile[-1, :history])[None], hour)[0]
        if warmth is not None:
            extra = warmth - _profiles(warmth[:, None], half_life)[: len(warmth), 0]
            features = np.column_stack([features, extra[PROFILE_DAYS:-1]])
            own = np.append(own, extra[-1])
        for ridge in RIDGES:
            fitted, forecast = _ridge(features, offset[:, history - 1 :], own, ridge)
            error = float(np.abs(fitted[:, 1:]).mean())
            if best is None or error < best[0]:
                best = error, profile[-1, history - 1 :] + forecast, fitted
    assert best is not None
    _, path, errors = best
    if measured:
        path[0], errors[:, 0] = today[-1], 0.0
    carry, spread = _straying(errors)
    start_spread = 0.0 if measured else float(np.sqrt(np.mean(errors[:, 0] ** 2)))
    path, dates, loads = np.maximum(path, 0.0), dates[PROFILE_DAYS:], known[PROFILE_DAYS:, history - 1 :]
    return DayPath(times, path, carry, spread, start_spread, measured, len(known), dates, loads, errors)


def _features(offset: FloatArray, hour: int) -> FloatArray:
    """How far off the profile: in the last reading, over an hour, over the whole history."""
    return np.column_stack([offset[:, -1], offset[:, -hour:].mean(axis=1), offset.mean(axis=1)])


def _profiles(known: FloatArray, half_life: float) -> FloatArray:
    """Return the mean of the days before each day (and before the day after the last), recent ones weighing more."""
    keep = 0.5 ** (1.0 / half_life)
    out = np.zeros((len(known) + 1, known.shape[1]))
    total, weight = np.zeros(known.shape[1]), 0.0
    for i, row in enumerate(known):
        total, weight = keep * total + row, keep * weight + 1.0
        out[i + 1] = total / weight
    return out


def _ridge(x: FloatArray, y: FloatArray, own: FloatArray, ridge: float) -> tuple[FloatArray, FloatArray]:
    """Return the errors (days, T + 1) on days left out, one at a time, and the forecast (T + 1,) for `own`."""
    scale = np.sqrt(np.mean(x**2, axis=0))
    x, own = x[:, scale > 0] / scale[scale > 0], own[scale > 0] / scale[scale > 0]
    if np.isinf(ridge) or not x.shape[1]:
        return y.copy(), np.zeros(y.shape[1])
    gain = np.linalg.solve(x.T @ x + ridge * np.eye(x.shape[1]), x.T)
    hat = x @ gain
    # Leaving day i out changes its residual by the factor 1 / (1 - hat[i, i]).
    return (y - hat @ y) / (1.0 - np.diag(hat))[:, None], own @ gain @ y


def _straying(errors: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return what is carried from step to step (T,), and the standard deviation of what is new (T,)."""
    before, after = errors[:, :-1], errors[:, 1:]
    both, square = (before * after).sum(axis=0), (before**2).sum(axis=0)
    pooled = both.sum() / square.sum() if square.sum() > 0 else 1.0
    # Thin: days are few, so each step is drawn towards all steps with the weight of five days.
    weight = 5.0 * square.mean() / len(errors)
    carry = np.clip((both + weight * pooled) / np.maximum(square + weight, 1e-300), 0.0, 1.0)
    new = ((after - carry * before) ** 2).sum(axis=0)
    return carry, np.sqrt((new + 5.0 * new.mean() / len(errors)) / (len(errors) + 5.0))


def _warmth(
    temperature: tuple[TimeArray, FloatArray], days: list[np.datetime64], clock: NDArray[np.timedelta64]
) -> FloatArray:
    """Return the mean temperature of each day over the hours of the forecast."""
    stamps, degrees = temperature
    order = np.argsort(stamps)
    stamps, degrees = stamps[order].astype("datetime64[s]"), degrees[order]
    seconds = stamps.astype("int64").astype(float)
    out = []
    for day in days:
        wanted = (day + clock).astype("datetime64[s]")
        if wanted[0] < stamps[0] or wanted[-1] > stamps[-1] + DAY // 24:
            raise ValueError(
                f"the temperatures run from {stamps[0]} to {stamps[-1]} and miss {day}; give temperatures of every day "
                "that is learnt from, and a forecast for the day itself."
            )
        out.append(float(np.interp(wanted.astype("int64").astype(float), seconds, degrees).mean()))
    return np.array(out)


def _normal_rows(mean: FloatArray, sd: float, levels: FloatArray) -> FloatArray:
    """Return laws (k, n) on the levels, normal but for an exponential tilt that makes their means (k,) exact."""
    low, high = levels[0], levels[-1]
    margin = 0.05 * (levels[1] - levels[0])  # a mean on the outermost level would need an infinite tilt
    aim = np.clip(mean, low + margin, high - margin)[:, None]
    plain = -0.5 * ((levels - aim) / sd) ** 2
    tilt = np.zeros((len(mean), 1))
    for _ in range(60):  # Newton's steps on a convex function; two are enough far from the ends
        law = np.exp(plain + tilt * (levels - aim) - (plain + tilt * (levels - aim)).max(axis=1, keepdims=True))
        law /= law.sum(axis=1, keepdims=True)
        off = law @ levels[:, None] - aim
        if np.abs(off).max() <= 1e-9 * (high - low):
            break
        variance = (law * (levels - aim) ** 2).sum(axis=1, keepdims=True) - off**2
        tilt -= np.clip(off / np.maximum(variance, 1e-12), -4.0 / sd, 4.0 / sd)
    law[law < LEAST_PROBABILITY] = 0.0
    return np.asarray(law / law.sum(axis=1, keepdims=True))
