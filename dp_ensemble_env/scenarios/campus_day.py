r"""A whole day on the synthetic campus, hour by hour, with a rebound after the event.

**Behaviour.** The meters of 50 buildings are simulated (`campus_meters`), averaged to hours, and the dynamics of a
building's power are estimated by hour and day type from the days whose weather is most like that of the day in question
(`dp_ensemble_env.chain.estimate_chain`). What a building runs is settled when it opens and kept until it closes, and
comes and goes by the hour at night: the same tilt lasts ten hours at 8:00 and one hour at 3:00.

**Rebound.** A building that draws much less than usual owes part of the difference, as rooms that were not cooled have
to be cooled later. With the level :math:`k` of its activity and its debt :math:`b` (kWh), in every hour

.. math:: b' = (1 - \rho)\,b + \varphi \max(0, (1 - \mu)\,\text{usual}_t - p_k), \qquad
          \text{power} = p_k + \rho\,b'

so that :math:`\varphi` of the energy shed beyond the margin :math:`\mu` comes back, a share :math:`\rho` of what is
owed every hour. The debt is kept on a grid; nature rounds it up or down at random such that its mean is exact. What is
still owed at midnight is bought at the price of the night.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.chain import TimedChain, day_type, estimate_chain, hour_of_day, resample, select_days
from dp_ensemble_env.chain.event import EventTimeline, Tariff
from dp_ensemble_env.chain.markov import lazy_walk
from dp_ensemble_env.model import DECLARABLE, EnsembleModel, FloatArray
from dp_ensemble_env.scenarios import Card, Scenario
from dp_ensemble_env.scenarios.build import assemble, between
from dp_ensemble_env.scenarios.campus import HOLIDAYS, SUMMER, campus_building
from dp_ensemble_env.shapes import Axis
from dp_ensemble_env.tools.validation import check_choice, check_count, check_in_range, check_positive

TimeArray = NDArray[np.datetime64]

HOUR = np.timedelta64(3600, "s")
#: Levels of a building's activity, and debts that are told apart.
LEVELS, DEBTS = 10, 5
#: kWh from one debt to the next.
DEBT_KWH = 40.0
#: Share of the debt that comes back every hour, share of the shed energy that is owed, and margin that is free.
RECOVERY, PAYBACK, MARGIN = 0.25, 0.9, 0.10
#: A building's activity: its spread, and what is kept of it from one hour to the next while open and while closed.
ACTIVITY, KEPT_OPEN, KEPT_CLOSED = 0.15, 0.99, 0.2
#: The hours at which activity is settled anew, and those to which it is kept from them.
OPENING, OPEN = (7, 8), range(9, 19)
#: So many days of the most similar weather are estimated from.
SIMILAR_DAYS = 40
EVENT_HOURS = 4
#: Nats of an action of one; no optimum of the instances needs more.
TILT_NATS = 6.0


@dataclass(frozen=True)
class DaySettings:
    """What tells one instance from another; prices in dollars per kWh."""

    campus: int = 0
    """Seed of the campus: its weather, machines and people."""
    warmth: float = 0.5
    """Place of the day among the warmer half of the summer's days, from 0 (the mildest of them) to 1 (the hottest)."""
    event_hour: int = 14
    """When the event of four hours begins."""
    incentive: float = 1.0
    """Paid in the event."""
    night_price: float = 0.08
    """From 22 to 8 o'clock."""
    day_price: float = 0.15
    """From 8 to 17 and from 21 to 22 o'clock."""
    evening_price: float = 0.30
    """From 17 to 21 o'clock."""

    def __post_init__(self) -> None:
        check_count(self.campus, "campus", 0)
        check_count(self.event_hour, "event_hour", 0, 24 - EVENT_HOURS)
        check_in_range(self.warmth, "warmth", 0, 1, remedy="1 is the hottest day of the summer")
        for name in ("incentive", "night_price", "day_price", "evening_price"):
            check_positive(getattr(self, name), name)

    @classmethod
    def draw(cls, seed: int) -> DaySettings:
        """Draw an instance: ranges as the card states them."""
        rng = np.random.default_rng([seed, 20180702])
        return cls(
            campus=int(rng.integers(10**9)),
            warmth=float(rng.random()),
            event_hour=int(rng.integers(11, 15)),
            incentive=float(rng.uniform(0.7, 1.5)),
            night_price=float(rng.uniform(0.06, 0.10)),
            day_price=float(rng.uniform(0.12, 0.18)),
            evening_price=float(rng.uniform(0.22, 0.40)),
        )

    def timeline(self, day: np.datetime64, usual_kw: FloatArray) -> EventTimeline:
        """Lay prices and event on the hours of `day`; the first entry is the hour before it."""
        times = day.astype("datetime64[s]") + np.arange(25) * HOUR
        hour = hour_of_day(times - HOUR)
        prices = np.full(24, self.day_price)
        prices[[*range(8), 22, 23]] = self.night_price
        prices[17:21] = self.evening_price
        in_event = (hour >= self.event_hour) & (hour < self.event_hour + EVENT_HOURS)
        in_event[0] = False
        return EventTimeline(
            times=times,
            energy_price=Tariff(prices).at(times - HOUR),
            incentive=np.where(in_event, self.incentive, 0.0),
            in_event=in_event,
            baseline_kw=usual_kw[hour],
        )


def campus_day(
    seed: int = 0, *, buildings: int = 100, discomfort_penalty: float = 150.0, **overrides: Any
) -> EnsembleModel:
    """Build a day on the synthetic campus: 24 hourly decisions, an event in the afternoon and its rebound.

    The seed draws the instance: campus, day, hour of the event and prices. `overrides` are fields of `DaySettings`
    (``event_hour=13``, ``incentive=0.5``, …) or of `EnsembleModel`; a misspelt name is refused.
    """
    fields = DaySettings.__dataclass_fields__
    for name in overrides:
        check_choice(name, "setting of campus_day", (*fields, *EnsembleModel.__dataclass_fields__, "seed"))
    changes = {name: overrides.pop(name) for name in list(overrides) if name in fields}
    settings = replace(DaySettings.draw(check_count(seed, "seed", 0)), **changes)
    data = _data(settings.campus, settings.warmth)
    line = settings.timeline(data.day, buildings * data.usual_kw)
    power = (data.chain.power[:, None] + RECOVERY * DEBT_KWH * np.arange(DEBTS)).ravel()
    utility = line.utility(power)
    utility[-1] -= settings.night_price * np.tile((1.0 - RECOVERY) * DEBT_KWH * np.arange(DEBTS), LEVELS)
    # No move is ruled out: buildings open within an hour. Rounded as by a release, so that seeded releases stay.
    walk = np.exp(np.log(lazy_walk(LEVELS)))
    return assemble(
        overrides,
        default=_with_debt(data.chain.at(line.times[:-1])),
        power_kw=power,
        utility=utility,
        discomfort_penalty=discomfort_penalty,
        buildings=buildings,
        initial=np.kron(data.start, np.eye(DEBTS)[0]),
        event=line,
        notes=(
            f"The dynamics were estimated by hour and day type from {SIMILAR_DAYS} summer days of similar weather, "
            f"{data.meters} simulated meters.",
        ),
        public_fields=DECLARABLE,  # a synthetic campus: its levels, its usual day and its eve are no one's secret
        nature=rebound(data.usual_kw, data.chain.power),
        tilt_scale=np.full(24, TILT_NATS),
        guess=_with_debt(np.broadcast_to(walk, (24, LEVELS, LEVELS))),
        # Whatever is owed, behaviour is that of the level: the debt is carried along.
        ties=np.kron(np.arange(LEVELS**2).reshape(LEVELS, LEVELS), np.ones((DEBTS, DEBTS), dtype=np.int64)),
        axes=(
            Axis("power before rebound, kW", tuple(round(float(kw)) for kw in data.chain.power)),
            Axis("debt, kWh", tuple(round(DEBT_KWH * debt) for debt in range(DEBTS))),
        ),
    )


def rebound(usual_kw: FloatArray, power_kw: FloatArray) -> FloatArray:
    """Return nature (T, m, m): how debts change in an hour at each level.

    A building usually draws `usual_kw` (T,); `power_kw` (levels,) is without the energy recovered.
    """
    hours, levels = len(usual_kw), len(power_kw)
    shed = np.maximum((1.0 - MARGIN) * usual_kw[:, None] - power_kw, 0.0)
    owed = (1.0 - RECOVERY) * np.arange(DEBTS) + (PAYBACK / DEBT_KWH * shed)[:, :, None]
    move = between(owed, DEBTS)  # a debt beyond the largest one is forgone for good
    nature = np.zeros((hours, levels, DEBTS, levels, DEBTS))
    for level in range(levels):
        nature[:, level, :, level, :] = move[:, level]
    return nature.reshape(hours, levels * DEBTS, levels * DEBTS)


def campus_meters(campus: int = 0, meters: int = 50) -> tuple[TimeArray, FloatArray]:
    """Simulate hourly meters of campus buildings over a summer: stamps (m,) and mean power (m, meters) in kW.

    Each follows the synthetic building with an activity of its own, spread by 15 %. Activity is settled anew when the
    building opens, kept until it closes but for small changes, and hardly lasts from hour to hour while it is closed.
    """
    year = campus_building(campus)
    times, profile, _ = resample(year.times, year.kw, year.step, HOUR)
    summer = select_days(times, season=SUMMER)
    times, profile = times[summer], profile[summer]
    rng = np.random.default_rng([campus, meters, 24])
    by_hour = np.full(24, KEPT_CLOSED)
    by_hour[list(OPEN)] = KEPT_OPEN
    by_hour[list(OPENING)] = 0.0
    kept = by_hour[hour_of_day(times)]
    activity = rng.standard_normal((len(times), meters))
    for i in range(1, len(times)):
        activity[i] = kept[i] * activity[i - 1] + np.sqrt(1.0 - kept[i] ** 2) * activity[i]
    return times, profile[:, None] * np.maximum(1.0 + ACTIVITY * activity, 0.1)


@dataclass(frozen=True, eq=False)
class _DayData:
    """What the meters say about one day: private, but for what the scenario declares."""

    day: np.datetime64
    chain: TimedChain
    usual_kw: FloatArray  # (24,) mean over similar days of its type
    start: FloatArray  # levels in the hour before it
    meters: int


@lru_cache(maxsize=16)
def _data(campus: int, warmth: float) -> _DayData:
    times, kw = campus_meters(campus)
    year = campus_building(campus)
    days = np.unique(times.astype("datetime64[D]"))
    heat = np.array([year.temperature[year.times.astype("datetime64[D]") == day].mean() for day in days])
    # The first day is passed over: the hour before it was not metered.
    warm = 1 + np.argsort(heat[1:], kind="stable")[len(days) // 2 :]
    chosen = int(warm[min(int(warmth * len(warm)), len(warm) - 1)])
    unlike = days[np.argsort(np.abs(heat - heat[chosen]), kind="stable")[SIMILAR_DAYS:]]
    similar = ~np.isin(times.astype("datetime64[D]"), unlike)
    # Between quantiles, to whole kW: some readings lie beyond both ends, so that no level is empty.
    low, high = np.round(np.quantile(kw[similar], (0.005, 0.995)))
    chain = estimate_chain(
        kw,
        times=times,
        edges=np.linspace(low, high, LEVELS + 1),
        exclude=unlike.astype(str),
        by_time=True,
        holidays=HOLIDAYS,
    )
    assert isinstance(chain, TimedChain)
    day = days[chosen]
    alike = similar & (day_type(times, HOLIDAYS) == day_type(day, HOLIDAYS))
    usual = np.array([kw[alike & (hour_of_day(times) == hour)].mean() for hour in range(24)])
    eve = chain.states(kw[times == day.astype("datetime64[s]") - HOUR][0])
    return _DayData(day, chain, usual, np.bincount(eve, minlength=LEVELS) / len(eve), kw.shape[1])


def _with_debt(behaviour: FloatArray) -> FloatArray:
    """Let decisions on levels (T, L, L) carry the debt along: nature changes it."""
    return np.kron(behaviour, np.eye(DEBTS)).astype(float)


SCENARIO = Scenario(
    campus_day,
    Card(
        title="Campus day",
        load="buildings",
        story=(
            "A summer day on a university campus, hour by hour, with time-of-use prices and a four-hour event in the "
            "afternoon. A building's operation is settled when it opens, at about 8:00, so an aggregator must prepare "
            "for the event in the morning. Energy that is shed comes back: a building that draws more than 10 % below "
            "its usual power owes 90 % of the energy beyond that, and makes up a quarter of its debt every hour."
        ),
        states=(
            "10 levels of a building's power before rebound, times 5 debts from 0 to 160 kWh. A decision is the next "
            "level, with the debt unchanged; nature then changes the debt"
        ),
        sources=(
            "synthetic: 50 simulated meters, dynamics by hour and day type from 40 days of similar weather. The length "
            "of the event and the incentive follow Con Edison's public rules; rebound, prices and penalty are "
            "assumptions"
        ),
        private=(
            "the behaviour by hour, as if estimated from meter data. Declared public: levels, usual power by hour, "
            "start, prices, and the fact that behaviour does not depend on the debt"
        ),
        version=1,
    ),
)
