"""The built-in data set: one synthetic campus building, and a hundred like it.

**These data are synthetic.** No meter was read. The load is a sum of parts that a university building in Manhattan has
(see `campus_building`), driven by a made-up temperature series for 2018 with a heat wave in the first days of July.
Two of its traits follow measured campus buildings (the education buildings of the Building Data Genome Project 2): the
least load is about half of the peak, and the load changes by some 3 % from one hour to the next beyond its daily
course. The year is scaled once so that the aggregate of 100 buildings, cut into 20 levels of equal width over the
summer, has level 18 (counted from one) at 32.1 MW, the published figure for the real campus.

What the estimate of its dynamics shares with real meters: it is not tridiagonal (chillers switch in stages), has
entries near one in a thousand, and edges that are travelled one way only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.chain.calendar import day_type, select_days
from dp_ensemble_env.chain.event import DemandResponseEvent
from dp_ensemble_env.chain.markov import MarkovChain, ensemble, estimate_chain
from dp_ensemble_env.model import DECLARABLE, EnsembleModel, FloatArray
from dp_ensemble_env.scenarios import Card, Scenario
from dp_ensemble_env.tools.validation import check_choice, check_count, minutes

YEAR = 2018
STEPS_PER_DAY = 96
#: Mid-June to late September, the months with demand-response events.
SUMMER = ("06-15", "09-25")
#: Level 18 of 20 of the 100-building aggregate, in kW.
ANCHOR_KW = 32_100.0
#: Days on which the campus keeps weekend hours.
HOLIDAYS = (
    *("2018-01-01", "2018-01-15", "2018-02-19", "2018-05-28", "2018-07-04", "2018-09-03"),
    *("2018-10-08", "2018-11-22", "2018-11-23", "2018-12-24", "2018-12-25", "2018-12-31"),
)


@dataclass(frozen=True, eq=False)
class CampusYear:
    """One synthetic building over a year of quarter hours, stamped at their starts."""

    times: NDArray[np.datetime64]
    kw: FloatArray
    temperature: FloatArray
    """Outdoors, in degrees Celsius."""
    step: np.timedelta64 = np.timedelta64(900, "s")

    def __repr__(self) -> str:
        return f"CampusYear({YEAR}, synthetic, {len(self.kw):,} intervals of {minutes(self.step)})"


@lru_cache(maxsize=8)
def campus_building(seed: int = 0) -> CampusYear:
    """Return the synthetic building's year of quarter-hourly power; the seed draws the weather and all that varies.

    Parts: a constant base; lights and plugs that follow the occupancy (weekdays from about 7 to 20 h with a lunch dip
    and daily variation, weekends a third of it); fans that start before the building opens; five chiller stages that
    switch with the cooling demand (outdoor temperature, occupancy), each with a dead band; a slowly wandering residual,
    and now and then an hour of extra equipment.
    """
    seed = check_count(seed, "seed", 0)
    streams = np.random.SeedSequence([seed, YEAR]).spawn(5)
    weather, people, machines, residual, extra = (np.random.default_rng(stream) for stream in streams)
    days = 365
    times = np.datetime64(f"{YEAR}-01-01T00:00", "s") + np.arange(days * STEPS_PER_DAY) * np.timedelta64(900, "s")
    hour = (np.arange(times.size) % STEPS_PER_DAY) / 4.0
    working = day_type(times[::STEPS_PER_DAY].astype("datetime64[D]"), HOLIDAYS) == 0
    temperature = _temperature(weather, days)
    occupancy = _occupancy(people, working, hour)
    fans = np.where(_fans_running(machines, working, hour), 1.0, 0.25)
    cooling_demand = np.maximum(temperature - 14.0, 0.0) / 16.0 * (0.35 + 0.65 * occupancy) * fans
    kw = (
        300.0
        + 95.0 * occupancy
        + 22.0 * fans
        + 26.0 * _chiller_stages(cooling_demand, machines)
        + 40.0 * cooling_demand
        + _recursion(residual.standard_normal(times.size), 8.0, 0.9)  # wanders slowly
        + _extra_equipment(extra, working, times.size)
    )
    one = np.maximum(kw, 20.0)
    aggregate = ensemble(one, 100, rng=np.random.default_rng([seed, 100]))[select_days(times, season=SUMMER)]
    low, high = aggregate.min(), aggregate.max()
    one = one * (ANCHOR_KW / (low + 17.5 / 20.0 * (high - low)))
    for array in (times, one, temperature):
        array.setflags(write=False)
    return CampusYear(times, one, temperature)


@lru_cache(maxsize=8)
def campus_aggregate(seed: int = 0, buildings: int = 100) -> FloatArray:
    """Return the power of `buildings` noisy copies of the synthetic building together, in kW."""
    aggregate = ensemble(campus_building(seed).kw, buildings, rng=np.random.default_rng([int(seed), buildings]))
    aggregate.setflags(write=False)
    return aggregate


def campus_chain(seed: int = 0, n_states: int = 20, buildings: int = 100) -> MarkovChain:
    """Estimate the summer dynamics of the synthetic campus's aggregate power."""
    return estimate_chain(campus_aggregate(seed, check_count(buildings, "buildings")), **_reading(seed, n_states))


def _reading(seed: int, n_states: int) -> dict[str, Any]:
    """Return how a chain is estimated from the synthetic building's year."""
    year, n = campus_building(check_count(seed, "seed", 0)), check_count(n_states, "n_states", 2, 100_000)
    unvisited = "merge" if n > 20 else "error"
    return {"n_states": n, "times": year.times, "step": year.step, "season": SUMMER, "on_unvisited": unvisited}


def campus_event(
    seed: int = 0,
    *,
    n_states: int = 20,
    loads: int = 100,
    discomfort_penalty: float = 15.0,
    event: DemandResponseEvent | None = None,
    **overrides: Any,
) -> EnsembleModel:
    """Build the default case study: a four-hour event on the synthetic campus.

    18 quarter-hour decisions: 30 minutes of notice, and an event from 11:00 to 15:00 on 2 July 2018. The seed fixes
    the synthetic building and the ensemble's noise. `overrides` are fields of `DemandResponseEvent`
    (``start="14:00"``, ``incentive=0.5``, …) or of `EnsembleModel` (``initial=[17]``); a misspelt name is refused.

    Examples
    --------
    >>> model = campus_event()
    >>> model.n_states, model.horizon, round(model.power_kw[17] * model.loads)
    (20, 18, 32100)
    """
    event_fields = {name: overrides.pop(name) for name in list(overrides) if name in _EVENT_FIELDS}
    if event is not None and event_fields:
        raise ValueError(f"give either event= or its fields ({', '.join(event_fields)}), not both.")
    known = (*_EVENT_FIELDS, "default", "power_kw", "utility", "initial", "times", "n_states", "loads")
    for name in overrides:
        check_choice(name, "setting of campus_event", (*known, "discomfort_penalty", "seed"))
    reading = _reading(seed, n_states)
    model = EnsembleModel.from_series(
        campus_aggregate(seed, check_count(loads, "loads")),
        DemandResponseEvent(**event_fields) if event is None else event,
        **reading,
        profile="aggregate",
        loads=loads,
        discomfort_penalty=discomfort_penalty,
        holidays=HOLIDAYS,
        public=DECLARABLE,  # a synthetic campus, and the paper published its levels
    )
    return model.override(**overrides) if overrides else model


_EVENT_FIELDS = tuple(DemandResponseEvent.__dataclass_fields__)


SCENARIO = Scenario(
    campus_event,
    Card(
        title="Campus event",
        load="buildings",
        story=(
            "A four-hour demand-response event on the hottest working day at a university campus. With half an hour's "
            "warning, 100 buildings have to draw less power from 11:00 to 15:00. This is the paper's case study."
        ),
        states="20 levels of the aggregate power of the campus, equally wide",
        sources=(
            "synthetic; the event, the incentive and the tariff follow Con Edison's public rules, and level 18 lies at "
            "32.1 MW as published"
        ),
        private=(
            "the transition matrix and the counts behind it, as if estimated from meter data; levels, start states, "
            "baseline and prices are declared public"
        ),
        version=1,
    ),
)


# ------------------------------------------------------------------ parts of the load
def _temperature(rng: np.random.Generator, days: int) -> FloatArray:
    day = np.arange(days)
    shocks = rng.standard_normal(days)
    shocks[0] = 0.0
    spell = _recursion(shocks, 2.4, 0.7)  # warm and cold spells of a few days
    heat_wave = 4.0 * np.exp(-0.5 * ((day - 182.0) / 3.0) ** 2)  # 2 July is day 182
    mean = 12.5 - 12.5 * np.cos(2 * np.pi * (day - 21) / days) + spell + heat_wave
    steps = np.arange(days * STEPS_PER_DAY)
    hour = (steps % STEPS_PER_DAY) / 4.0
    daily: FloatArray = np.interp(steps / STEPS_PER_DAY, day + 0.5, mean)
    return daily - 4.5 * np.cos(2 * np.pi * (hour - 4.0) / 24.0)


def _occupancy(rng: np.random.Generator, working: NDArray[np.bool_], hour: FloatArray) -> FloatArray:
    days = len(working)
    opens = 7.9 + 0.25 * rng.standard_normal(days)
    closes = 19.5 + 0.5 * rng.standard_normal(days)
    level = np.where(working, 1.0, 0.35) * (1.0 + 0.06 * rng.standard_normal(days))
    opens, closes, level = np.repeat((opens, closes, level), STEPS_PER_DAY, axis=1)
    shape = 1.0 / (1.0 + np.exp(-(hour - opens) / 0.6)) / (1.0 + np.exp((hour - closes) / 1.2))
    return np.asarray(level * shape * (1.0 - 0.08 * np.exp(-0.5 * ((hour - 12.6) / 0.6) ** 2)))


def _fans_running(rng: np.random.Generator, working: NDArray[np.bool_], hour: FloatArray) -> NDArray[np.bool_]:
    start = np.repeat(5.5 + rng.choice([0.0, 0.25, 0.5, 1.0], len(working)), STEPS_PER_DAY)
    stop = np.repeat(21.0 + rng.choice([-0.5, 0.0, 0.5], len(working)), STEPS_PER_DAY)
    return (hour >= start) & (hour < stop) & np.repeat(working, STEPS_PER_DAY)


def _chiller_stages(demand: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Count the chiller stages running: one switches on above its mark, off below it less a dead band."""
    marks = np.array([0.12, 0.32, 0.52, 0.72, 0.92])
    jitter = np.where(demand > 0.05, 0.05 * rng.standard_normal(demand.size), 0.0)  # none runs in the cold
    stages = np.empty(demand.size)
    running = 0
    for i, need in enumerate(demand + jitter):
        while running < marks.size and need > marks[running]:
            running += 1
        while running > 0 and need < marks[running - 1] - 0.14:
            running -= 1
        stages[i] = running
    return stages


def _recursion(shocks: FloatArray, gain: float, keep: float) -> FloatArray:
    """Return x with x[i] = keep x[i - 1] + gain shocks[i]."""
    from scipy.signal import lfilter  # takes a while to import

    return np.asarray(lfilter([gain], [1.0, -keep], shocks))


def _extra_equipment(rng: np.random.Generator, working: NDArray[np.bool_], size: int) -> FloatArray:
    """Laboratory and event equipment, an hour or so at a time, about every third working day."""
    out = np.zeros(size)
    for day in np.flatnonzero(working & (rng.random(len(working)) < 0.35)):
        first = day * STEPS_PER_DAY + int(rng.integers(32, 72))
        out[first : first + int(rng.integers(2, 8))] += rng.uniform(8.0, 30.0)
    return out
