"""`read_meter` and `meter_columns`: from a path to the reader of its format."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import tzinfo
from pathlib import Path

from .._validation import check_choice
from ._clean import Rules, make_series
from ._greenbutton import greenbutton_columns, read_greenbutton
from ._origin import UNITS, Origin, Readings
from ._parquet import parquet_columns, read_parquet
from ._tables import TextOptions, as_unit, candidates, read_text
from ._text import decode, find_table
from ._zones import get_zone
from .series import PowerSeries

FORMATS = ("auto", "csv", "opower", "conedison", "scada", "greenbutton", "parquet")
_DOUBTFUL = ("error", "missing", "keep")


def read_meter(
    path: str | os.PathLike[str],
    *,
    format: str = "auto",
    unit: str | None = None,
    stamp: str | None = None,
    timezone: str | tzinfo | None = None,
    column: str | Sequence[str] | None = None,
    negatives: str = "error",
    zeros: str = "keep",
    spikes: str = "error",
    date_order: str = "auto",
    decimal: str = "auto",
) -> PowerSeries:
    """Read a meter file into one evenly spaced series of average power.

    Parameters
    ----------
    path : str or path
        The file.
    format : {"auto", "csv", "opower", "conedison", "scada", "greenbutton", "parquet"}
        Layout of the file, found from its content by default. ``"csv"`` is any
        delimited text, with one column of readings or one per building.
    unit : {"kW", "kWh", "W", "Wh", "MW", "MWh"}, optional
        Needed when neither the header nor the format states it. One that
        contradicts the header is refused; capitals do not matter.
    stamp : {"start", "end"}, optional
        Which end of its interval a timestamp marks. Needed when neither the
        header nor the format says so.
    timezone : str or tzinfo, optional
        Such as ``"America/New_York"``. Timestamps in UTC are converted to it;
        for local timestamps it makes the clock changes exact.
    column : str or sequence of str, optional
        For files with several columns: one name, several names to add up, or
        ``"sum"`` for all of them. See `meter_columns`.
    negatives, spikes : {"error", "missing", "keep"}
        What to do with negative readings and with implausibly high ones.
    zeros : {"keep", "missing", "error"}
        What to do with readings of exactly zero.
    date_order : {"auto", "mdy", "dmy"}
        Order of dates such as 7/1/2024.
    decimal : {"auto", ".", ","}
        Decimal sign of a text file.

    Returns
    -------
    PowerSeries
        Power in kW at interval starts of the local wall clock, NaN in gaps.

    Raises
    ------
    ValueError
        When something in the file is unclear or wrong: one sentence with the
        file, the line and the remedy.
    FileNotFoundError
        When there is no such file.
    ImportError
        For parquet, when pyarrow is not installed.
    """
    check_choice(format, "format", FORMATS)
    if unit is not None:
        unit = check_choice(as_unit(unit), "unit", UNITS)
    if stamp is not None:
        check_choice(stamp, "stamp", ("start", "end"))
    for name, value in (("negatives", negatives), ("zeros", zeros), ("spikes", spikes)):
        check_choice(value, name, _DOUBTFUL)
    check_choice(date_order, "date_order", ("auto", "mdy", "dmy"))
    check_choice(decimal, "decimal", ("auto", ".", ","))
    options = TextOptions(column, date_order, decimal, get_zone(timezone))
    readings = _read(path, format, unit, options)
    for name, stated in readings.stated.items():
        if unit not in (None, stated):
            raise readings.origin.error(
                f"the file states that {name!r} is in {stated}, which unit={unit!r} contradicts; leave unit out, or "
                "correct the file if it is wrong."
            )
    for argument, said, given in (("unit", readings.unit, unit), ("stamp", readings.stamp, stamp)):
        if given is not None and said is not None and given != said:
            readings.notes.append(
                f"By its format or header the file has {argument} {said!r}; {given!r} was used, as asked."
            )
    readings.unit, readings.stamp = unit or readings.unit, stamp or readings.stamp
    return make_series(readings, Rules(negatives, zeros, spikes))


def meter_columns(path: str | os.PathLike[str]) -> list[str]:
    """List the columns of a file that `read_meter` could read.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    list of str
        Names to pass as ``column``.
    """
    origin, kind, file = _open(path)
    if kind == "parquet":
        return parquet_columns(file, origin)
    if kind == "greenbutton":
        with file.open("rb") as stream:
            return greenbutton_columns(stream, origin)
    table = find_table(decode(file.read_bytes(), origin), origin)
    return [table.header[i] for i in candidates(table)]


def _read(path: str | os.PathLike[str], format: str, unit: str | None, options: TextOptions) -> Readings:
    """Hand the file to the reader of its format."""
    origin, kind, file = _open(path)
    if format == "auto":
        format = kind
    if format == "parquet":
        return read_parquet(file, origin, options)
    if format == "greenbutton":
        with file.open("rb") as stream:
            return read_greenbutton(stream, origin, unit=unit, zone=options.zone, column=options.column)
    return read_text(decode(file.read_bytes(), origin), origin, format, options)


def _open(path: str | os.PathLike[str]) -> tuple[Origin, str, Path]:
    """Return the file with its kind, told by its first bytes."""
    try:
        file = Path(path)
    except TypeError as error:
        raise ValueError(f"path must be the name of a file, got {path!r}; pass a str or a Path.") from error
    if file.is_dir():
        raise ValueError(f"{file} is a folder; give the name of a file in it.")
    if not file.exists():
        raise FileNotFoundError(f"there is no file {str(file)!r}; check the name (current folder: {Path.cwd()}).")
    with file.open("rb") as stream:
        head = stream.read(256)
    if head.startswith(b"PAR1"):
        return Origin(file.name, "row"), "parquet", file
    # In UTF-16 every other byte of plain text is zero.
    start = head.lstrip(b"\xef\xbb\xbf\xff\xfe\x00 \t\r\n").replace(b"\x00", b"")
    return Origin(file.name), "greenbutton" if start.startswith(b"<") else "auto", file
