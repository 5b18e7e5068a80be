"""Days that say nothing about a building: its meter stood still, or the building was without power."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.chain.calendar import day_type

#: A meter that shows one value so long stands still.
FROZEN = np.timedelta64(6 * 3600, "s")
#: A day with less than this share of the median day's energy is an outage.
OUTAGE = 0.25
#: Where more days than this share show a long run of equal readings, the meter is coarse, not stuck.
COARSE = 0.2


def stale_days(stamps: NDArray[np.datetime64], kw: NDArray[Any], step: np.timedelta64) -> dict[str, str]:
    """Return the days not to learn from, and why: ``"frozen"`` or ``"outage"``.

    Frozen: one value for six hours or longer, unless every fifth day has such a run. Outage: less than a quarter
    of the energy of the median day of its type (weekday or weekend).

    Examples
    --------
    >>> hours = np.datetime64("2024-06-03T00:00:00") + np.arange(240) * np.timedelta64(3600, "s")
    >>> kw = 100 + 10 * np.sin(np.arange(240) / 3)
    >>> kw[50:56] = 104.2
    >>> stale_days(hours, kw, np.timedelta64(3600, "s"))
    {'2024-06-05': 'frozen'}
    """
    order = np.argsort(stamps)
    stamps, kw = stamps[order], np.asarray(kw, dtype=float)[order]
    days, index = np.unique(stamps.astype("datetime64[D]"), return_inverse=True)
    present = ~np.isnan(kw)
    longest = np.zeros(len(days), dtype=int)
    same = np.append(False, (np.diff(kw) == 0) & (np.diff(stamps) == step))
    run = 0
    for i, equal in enumerate(same):  # readings of the run that ends here
        run = run + 1 if equal else 1
        longest[index[i]] = max(longest[index[i]], run if present[i] else 0)
    frozen = longest >= max(int(FROZEN // step), 3)
    found = {} if frozen.mean() > COARSE else {str(day): "frozen" for day in days[frozen]}
    number = np.bincount(index[present], minlength=len(days))
    mean = np.bincount(index[present], kw[present], minlength=len(days)) / np.maximum(number, 1)
    kind = day_type(days)
    for which in (0, 1):
        alike = (kind == which) & (number > 0)
        if alike.any():
            low = alike & (mean < OUTAGE * np.median(mean[alike]))
            found |= {str(day): "outage" for day in days[low]}
    return dict(sorted(found.items()))
