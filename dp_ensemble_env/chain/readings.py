"""The readings that a chain is estimated from, and which of them follow one another."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_ensemble_env.chain.calendar import as_step, select_days
from dp_ensemble_env.tools.validation import as_numeric_array, as_times, check_shape

FloatArray = NDArray[np.float64]


class Readings(NamedTuple):
    """Readings in time order, one meter after the other.

    NaN where they are missing or not selected; `adjacent` tells of each successive pair
    whether it is one step apart.
    """

    values: FloatArray
    adjacent: NDArray[np.bool_]
    stamps: NDArray[np.datetime64] | None
    step: np.timedelta64


def adjacent_readings(
    power: Any,
    times: ArrayLike | None,
    step: Any,
    start: str | None,
    end: str | None,
    season: tuple[str, str] | None,
    exclude: tuple[str, ...],
) -> Readings:
    """Lay out the readings that the filters select."""
    if hasattr(power, "kw") and hasattr(power, "times"):
        power, times, step = power.kw, power.times if times is None else times, power.step if step is None else step
    values = as_numeric_array(power, "power", (1, 2))
    if np.isinf(values).any():
        raise ValueError(f"power[{int(np.argmax(np.isinf(values)))}] is infinite; mark missing readings as NaN.")
    values = values[:, None] if values.ndim == 1 else values
    length, meters = values.shape
    one: np.timedelta64 = np.timedelta64(0, "s")
    if times is None:
        if start or end or season or exclude:
            raise ValueError("filters by date need times; pass times=, one stamp per reading.")
        follows, stamps = np.ones(max(length - 1, 0), dtype=bool), None
    else:
        stamps = as_times(times, "times")
        check_shape(stamps, (length,), "times", "one stamp per reading")
        order = np.argsort(stamps, kind="stable")
        stamps, values = stamps[order], values[order]
        differences = np.diff(stamps)
        if (differences == np.timedelta64(0, "s")).any():
            repeated = stamps[1:][differences == np.timedelta64(0, "s")][0]
            raise ValueError(f"times holds {repeated} twice; read the file with read_meter, which settles repeats.")
        one = as_step(step, differences)
        follows = differences == one
        values = np.where(select_days(stamps, start, end, season, exclude)[:, None], values, np.nan)
        stamps = np.tile(stamps, meters)
    # One meter's last reading and the next one's first are not adjacent.
    adjacent = np.tile(np.append(follows, False)[:length], meters)[:-1]
    return Readings(values.T.ravel(), adjacent, stamps, one)
