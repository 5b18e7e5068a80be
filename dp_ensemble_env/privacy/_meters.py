"""Levels of participants from their meters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_ensemble_env.chain.calendar import select_days
from dp_ensemble_env.tools.validation import as_numeric_array, check_count

FloatArray = NDArray[np.float64]
#: Endings of the files that are read from a folder.
METER_FILES = (".csv", ".parquet", ".tsv", ".txt", ".xlsx", ".xml")


def read_states(
    path: Path,
    reader: dict[str, Any],
    edges: ArrayLike | None,
    public_levels: int | None,
    season: tuple[str, str] | None,
    exclude: Any,
) -> tuple[list[NDArray[np.int64]], int]:
    """Return the levels of every meter, -1 in gaps, and their number; see `Fleet.read`."""
    series = _series(path, reader)
    steps = {one.step for one in series}
    if len(steps) > 1:
        raise ValueError(
            f"the meters in {path} have readings every {' and '.join(map(str, sorted(steps)))}; a fleet needs one "
            "step for all, so read them apart."
        )
    power = [np.where(select_days(one.times, None, None, season, exclude), one.kw, np.nan) for one in series]
    bounds = _bounds(edges, public_levels, power)
    levels = [np.searchsorted(bounds, one, side="right") - 1 for one in power]
    last = len(bounds) - 2
    states = [np.where(np.isnan(kw), -1, np.clip(b, 0, last)) for kw, b in zip(power, levels, strict=True)]
    return states, last + 1


def _series(path: Path, reader: dict[str, Any]) -> list[Any]:
    """Read every meter of a file, or of every meter file of a folder."""
    from dp_ensemble_env.meter import read_meters

    if not path.is_dir():
        return list(read_meters(path, **reader).values())
    files = sorted(file for file in path.iterdir() if file.suffix.lower() in METER_FILES)
    if not files:
        raise ValueError(f"the folder {path} holds no meter files ({', '.join(METER_FILES)}); give another folder.")
    return [one for file in files for one in _series(file, reader)]


def _bounds(edges: ArrayLike | None, public_levels: int | None, power: list[FloatArray]) -> FloatArray:
    if edges is None:
        assert public_levels is not None
        n = check_count(public_levels, "public_levels", 2)
        every = np.concatenate(power)
        if np.isnan(every).all() or np.nanmin(every) == np.nanmax(every):
            raise ValueError("the readings do not differ, so they have one level and nothing to release.")
        return np.linspace(np.nanmin(every), np.nanmax(every), n + 1)
    bounds = as_numeric_array(edges, "edges", 1)
    if len(bounds) < 3 or not (np.diff(bounds) > 0).all():
        raise ValueError("edges must increase, and bound at least two levels: give three numbers in kW or more.")
    return bounds
