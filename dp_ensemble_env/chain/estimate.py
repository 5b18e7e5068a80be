"""From a meter series and an event to the fields of an `EnsembleModel`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_ensemble_env.chain import MarkovChain, as_step, ensemble, estimate_chain, resample, similar_days
from dp_ensemble_env.chain.baseline import TooFewDays, customer_baseline
from dp_ensemble_env.chain.event import DemandResponseEvent, check_event_day
from dp_ensemble_env.tools.validation import (
    as_days,
    as_numeric_array,
    as_times,
    check_choice,
    check_count,
    check_instance,
    check_shape,
)

FloatArray = NDArray[np.float64]

#: Below this many transitions a level the estimate is noted as thin.
TRANSITIONS_PER_LEVEL = 10


def series_fields(
    power: Any,
    event: DemandResponseEvent | None,
    *,
    buildings: int,
    times: ArrayLike | None = None,
    step: Any = None,
    profile: str = "building",
    n_states: int = 20,
    on_unvisited: str = "merge",
    season: tuple[str, str] | None = None,
    exclude: Iterable[str] = (),
    holidays: Iterable[str] = (),
    rng: np.random.Generator | int = 0,
) -> dict[str, Any]:
    """Estimate every field that `EnsembleModel.from_series` takes from the series; see there.

    `n_states`, `on_unvisited`, `season` and `exclude` are those of `estimate_chain`; the customer baseline
    passes over `holidays`, too.
    """
    event = DemandResponseEvent() if event is None else event
    check_instance(event, DemandResponseEvent, "event")
    check_choice(profile, "profile", ("building", "aggregate"))
    buildings = check_count(buildings, "buildings")
    stamps, values, step = _series(power, times, step)
    check_event_day(event, stamps, getattr(power, "source", ""))
    stamps, values, step = resample(stamps, values, step, event.step)
    notes = [_what_results_are_for(profile, buildings, metered=hasattr(power, "kw"))]
    if profile == "building":
        values = ensemble(values, buildings, rng=rng)
    exclude, holidays = as_days(exclude, "exclude"), as_days(holidays, "holidays")
    chain = estimate_chain(
        values, n_states, times=stamps, step=step, on_unvisited=on_unvisited, season=season, exclude=exclude
    )
    notes += _how_thin(chain, n_states)
    baseline = None
    try:
        baseline = customer_baseline(stamps, values, event, exclude=(*exclude, *holidays))
    except TooFewDays as error:
        notes.append(f"There is no customer baseline: {error}")
    timeline = event.timeline(baseline)
    power_kw = chain.power / buildings
    return dict(
        default=chain.default,
        power_kw=power_kw,
        utility=timeline.utility(power_kw),
        initial=_start_distribution(chain, stamps, values, step, timeline.times[0], season, (*exclude, *holidays)),
        times=timeline.times,
        event=timeline,
        counts=chain.counts,
        notes=tuple(filter(None, notes)),
    )


def _what_results_are_for(profile: str, buildings: int, metered: bool) -> str:
    if profile == "building":
        copies = "one noisy copy" if buildings == 1 else f"{buildings} noisy copies"
        added = "" if buildings == 1 else " added up"
        return f"Results are for {copies} of the metered building{added}, not for the building itself."
    if metered:  # an array may be anything, the synthetic campus for instance
        return f"Results are for the metered load itself; figures per building divide it by {buildings}."
    return ""


def _how_thin(chain: MarkovChain, n_states: int) -> list[str]:
    """Refuse fewer transitions than levels; return what to note about few of them."""
    moves = int(chain.counts.sum())
    if moves < n_states:
        raise ValueError(
            f"the series holds {moves} transitions between adjacent readings, too few for {n_states} levels; give a "
            "longer series or ask for fewer levels."
        )
    notes = []
    if moves < TRANSITIONS_PER_LEVEL * n_states:
        notes.append(
            f"The readings are thin for {n_states} levels: {moves:,} transitions, fewer than {TRANSITIONS_PER_LEVEL} a "
            "level. Ask for fewer levels or give a longer series."
        )
    if chain.n_states < n_states:
        notes.append(
            f"{n_states} levels were asked for and {chain.n_states} remain: levels that no transition leaves were "
            "joined to a neighbour."
        )
    return notes


def _series(
    power: Any, times: ArrayLike | None, step: Any
) -> tuple[NDArray[np.datetime64], FloatArray, np.timedelta64]:
    if hasattr(power, "kw") and hasattr(power, "times"):
        return np.asarray(power.times, dtype="datetime64[s]"), np.asarray(power.kw, dtype=float), power.step
    if times is None:
        raise ValueError("times is missing; pass a PowerSeries, or one stamp per reading.")
    values = as_numeric_array(power, "power", 1)
    stamps = as_times(times, "times")
    check_shape(stamps, values.shape, "times", "one stamp per reading")
    if len(stamps) < 2:
        raise ValueError(f"a series of {len(stamps)} readings has no transitions; give at least two.")
    return stamps, values, as_step(step, np.diff(np.sort(stamps)))


def _start_distribution(
    chain: MarkovChain,
    stamps: NDArray[np.datetime64],
    values: FloatArray,
    step: np.timedelta64,
    first: np.datetime64,
    season: tuple[str, str] | None,
    excluded: tuple[str, ...],
) -> FloatArray | None:
    """Distribution of the state, over similar days, in the interval that ends when control begins."""
    start = first - step
    clock = stamps - stamps.astype("datetime64[D]") == start - start.astype("datetime64[D]")
    chosen = clock & similar_days(stamps, start, season, excluded) & ~np.isnan(values)
    if not chosen.any():
        return None
    visits: FloatArray = np.bincount(chain.states(values[chosen]), minlength=chain.n_states) / chosen.sum()
    return visits
