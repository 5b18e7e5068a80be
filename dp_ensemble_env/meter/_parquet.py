"""Parquet files, when pyarrow is installed."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from ._origin import Origin, Readings
from ._stamps import Stamps, check_years, parse_stamps
from ._tables import TextOptions, pick, stamp_of, stated_units, to_wall, unit_of
from ._zones import get_zone, utc_to_wall


def read_parquet(path: str | os.PathLike[str], origin: Origin, options: TextOptions) -> Readings:
    """Read one timestamp column and the chosen numeric columns."""
    file, names, time = _open(path, origin)
    places, notes = pick(names, options.column, origin)
    chosen = [names[i] for i in places]
    pyarrow = _pyarrow()
    try:
        table = file.read(columns=[time, *chosen])
        values = np.column_stack([table[name].cast("float64").to_numpy().astype(float) for name in chosen])
    except (pyarrow.ArrowException, OSError) as error:
        raise _broken(error, origin) from None
    values = np.where(np.isfinite(values), values, np.nan)
    lines = np.arange(1, len(values) + 1, dtype=np.int64)
    column = table[time]
    if column.null_count:
        raise origin.error("the timestamp is empty; drop such rows.", 1 + int(np.argmax(column.is_null().to_numpy())))
    zone = options.zone
    if pyarrow.types.is_timestamp(column.type):
        seconds = column.to_numpy().astype("datetime64[s]").astype(np.int64)
        check_years(seconds, lines, origin)
        if column.type.tz is not None:
            if zone is None and column.type.tz not in ("UTC", "+00:00"):
                zone = get_zone(column.type.tz)
            more: list[str] = [f"Timestamps were converted from UTC to {zone}."]
            if zone is None:
                to_wall(Stamps(seconds, np.zeros_like(seconds), []), None, origin)
            else:
                seconds = utc_to_wall(seconds, zone)
            notes += more
    else:
        parsed = parse_stamps(column.to_pylist(), lines, origin, options.date_order)
        seconds, more = to_wall(parsed, zone, origin)
        notes += parsed.notes + more
    units = {unit_of(name) for name in chosen}
    unit = units.pop() if len(units) == 1 else None
    return Readings(
        origin, seconds, values, chosen, lines, unit, stamp_of(time), zone, None, notes, stated_units(chosen)
    )


def parquet_columns(path: str | os.PathLike[str], origin: Origin) -> list[str]:
    """Name the numeric columns of a parquet file."""
    return _open(path, origin)[1]


def _open(path: str | os.PathLike[str], origin: Origin) -> tuple[Any, list[str], str]:
    """Open the file; return it with its numeric columns and its time column."""
    pyarrow = _pyarrow()
    try:
        file = pyarrow.parquet.ParquetFile(path)
        schema = file.schema_arrow
    except (pyarrow.ArrowException, OSError) as error:
        raise _broken(error, origin) from None
    kinds = pyarrow.types
    times = [f.name for f in schema if kinds.is_timestamp(f.type)]
    times = times or [f.name for f in schema if kinds.is_string(f.type) or kinds.is_large_string(f.type)]
    if not times:
        raise origin.error("no column of timestamps was found; store one as timestamp or as text.")
    names = [
        f.name for f in schema if kinds.is_floating(f.type) or kinds.is_integer(f.type) or kinds.is_decimal(f.type)
    ]
    return file, names, times[0]


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError("reading parquet needs pyarrow; pip install pyarrow, or save the readings as CSV.") from error
    return pyarrow


def _broken(error: Exception, origin: Origin) -> ValueError:
    return origin.error(f"the parquet file cannot be read ({str(error).splitlines()[0]}); write it again.")
