"""Parquet files, when pyarrow is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.meter.clocks import get_zone, utc_to_wall
from dp_ensemble_env.meter.energy import names_register
from dp_ensemble_env.meter.formats import Format
from dp_ensemble_env.meter.formats.tables import loads, pick, stamp_of, stated_units, to_wall, unit_of
from dp_ensemble_env.meter.identities import refuse_net
from dp_ensemble_env.meter.origin import Origin, Readings, ReadSettings, broken, name_list
from dp_ensemble_env.meter.stamps import StampColumn, Stamps, check_years
from dp_ensemble_env.tools.validation import option


def read_parquet(path: Path, settings: ReadSettings, every: bool) -> list[Readings]:
    """Read one timestamp column and the chosen numeric columns, or every load by itself."""
    origin = Origin(path.name, "row")
    if settings.meter_id is not None:
        remedy = f"store one column a meter, and pass {option('column')}"
        raise origin.error(f"{option('meter_id')} is for text and Excel tables; {remedy}.")
    file, names, time = _open(path, origin, settings)
    places, notes = (loads(names), []) if every and len(names) > 1 else pick(names, settings.column, origin)
    if not places:
        raise origin.error(f"no column is a load by its name; pass {option('column')} with one of {name_list(names)}.")
    chosen = [names[i] for i in places]
    table, values = _decode(file, time, chosen, origin, settings)
    lines = np.arange(1, len(values) + 1, dtype=np.int64)
    infinite = np.argwhere(np.isinf(values))
    if len(infinite):
        row, column = infinite[0]
        raise origin.error(
            f"cannot read {str(values[row, column])!r} in column {chosen[column]!r} as a number; correct it, "
            "or empty the cell to make it a gap.",
            lines[row],
        )
    column = table[time]
    if column.null_count:
        empty = column.is_null().to_numpy()
        if (lost := empty & ~np.isnan(values).all(axis=1)).any():
            raise origin.error("the timestamp is empty; drop such rows.", 1 + int(np.argmax(lost)))
        column, values, lines = column.drop_null(), values[~empty], lines[~empty]
    seconds, zone, told = _times(column, lines, origin, settings)
    units = {unit_of(name) for name in chosen}
    unit = units.pop() if len(units) == 1 else None
    readings = Readings(
        origin, seconds, values, chosen, lines, unit, stamp_of(time), zone, None, notes + told, stated_units(chosen)
    )
    readings.register = names_register(chosen)
    parts = [readings.part(slice(None), [i]) for i in range(len(chosen))] if every else [readings]
    return [refuse_net(part, settings) for part in parts]


def _open(path: Path, origin: Origin, settings: ReadSettings) -> tuple[Any, list[str], str]:
    """Open the file; return it with its numeric columns and its time column."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError("reading parquet needs pyarrow; pip install pyarrow, or save the readings as CSV.") from error
    try:
        file = pyarrow.parquet.ParquetFile(path)
        schema = file.schema_arrow
    except (pyarrow.ArrowException, OSError, ValueError, MemoryError) as error:
        raise broken(error, "parquet file", "write it again", origin) from None
    settings.limit("readings", file.metadata.num_rows, origin)
    doubled = sorted({name for name in schema.names if schema.names.count(name) > 1})[:3]
    if doubled:
        raise origin.error(f"several columns are called {doubled[0]!r}; give them different names.")
    kinds = pyarrow.types
    times = [f.name for f in schema if kinds.is_timestamp(f.type)]
    times = times or [f.name for f in schema if kinds.is_string(f.type) or kinds.is_large_string(f.type)]
    if not times:
        raise origin.error("no column of timestamps was found; store one as timestamp or as text.")
    names = [
        f.name for f in schema if kinds.is_floating(f.type) or kinds.is_integer(f.type) or kinds.is_decimal(f.type)
    ]
    settings.limit("meters", len(names), origin)
    return file, names, times[0]


def _decode(
    file: Any, time: str, chosen: list[str], origin: Origin, settings: ReadSettings
) -> tuple[Any, NDArray[np.float64]]:
    """Read some columns, once what they declare is known to fit into memory."""
    import pyarrow

    wanted = {time, *chosen}
    groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
    columns = [group.column(j) for group in groups for j in range(group.num_columns)]
    size = sum(c.total_uncompressed_size for c in columns if c.path_in_schema in wanted)
    settings.limit("bytes once unpacked", max(size, 8 * file.metadata.num_rows * len(wanted)), origin)
    try:
        table = file.read(columns=[time, *chosen])
        table.validate(full=True)
        values = np.column_stack([table[name].cast("float64").to_numpy().astype(float) for name in chosen])
    except (pyarrow.ArrowException, OSError, ValueError, MemoryError) as error:
        raise broken(error, "parquet file", "write it again", origin) from None
    return table, values


def _times(
    column: Any, lines: NDArray[np.int64], origin: Origin, settings: ReadSettings
) -> tuple[NDArray[np.int64], Any, list[str]]:
    """Return the stamps on the wall clock, its zone where it is known, and notes."""
    import pyarrow

    zone = settings.zone
    if not pyarrow.types.is_timestamp(column.type):
        stamps = StampColumn(origin, settings.date_order)
        stamps.add(column.to_pylist(), lines)
        parsed = stamps.finish()
        seconds, more = to_wall(parsed, zone, origin)
        return seconds, zone, [*parsed.notes, *more]
    seconds = column.to_numpy().astype("datetime64[s]").astype(np.int64)
    check_years(seconds, lines, origin)
    if column.type.tz is None:
        return seconds, zone, []
    if zone is None and column.type.tz not in ("UTC", "+00:00"):
        try:
            zone = get_zone(column.type.tz)
        except ValueError:
            raise origin.error(f"the time zone {column.type.tz!r} is not known; pass {option('timezone')}.") from None
    if zone is None:
        to_wall(Stamps(seconds, np.zeros_like(seconds)), None, origin)  # refuses with the remedy
    assert zone is not None
    return utc_to_wall(seconds, zone), zone, [f"Timestamps were converted from UTC to {zone}."]


FORMAT = Format(lambda head: head.startswith(b"PAR1"), read_parquet)
