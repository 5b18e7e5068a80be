"""`read_meter` and `meter_columns`: from a path to the reader of its format."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import tzinfo
from pathlib import Path
from typing import Any

from dp_ensemble_env.meter._channels import Channel, channel_names, choose_channels, usable
from dp_ensemble_env.meter._clean import Rules, make_series
from dp_ensemble_env.meter._excel import read_workbook
from dp_ensemble_env.meter._greenbutton import read_greenbutton
from dp_ensemble_env.meter._limits import Limits
from dp_ensemble_env.meter._nem12 import is_nem12, read_nem12
from dp_ensemble_env.meter._origin import UNITS, Origin, Readings
from dp_ensemble_env.meter._parquet import parquet_columns, read_parquet
from dp_ensemble_env.meter._source import Source, TextFile
from dp_ensemble_env.meter._tables import TextOptions, as_unit, candidates, read_text
from dp_ensemble_env.meter._text import find_table
from dp_ensemble_env.meter._zones import get_zone
from dp_ensemble_env.meter.series import PowerSeries
from dp_ensemble_env.tools.files import readable_file
from dp_ensemble_env.tools.validation import check_choice

FORMATS = ("auto", "csv", "opower", "conedison", "scada", "nem12", "greenbutton", "parquet", "excel")
_DOUBTFUL = ("error", "missing", "keep")
#: Formats with channels of their own, each with a direction and a unit.
_CHANNELED = ("greenbutton", "nem12")
#: Formats that a file has or has not, told by its first bytes.
_OWN = (*_CHANNELED, "parquet", "excel")


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
    meter_id: str | None = None,
    cumulative: str = "auto",
    catch_up: str = "missing",
    limits: float = 1.0,
) -> PowerSeries:
    """Read a meter file into one evenly spaced series of average power.

    Parameters
    ----------
    path : str or path
        The file.
    format : {"auto", "csv", "opower", "conedison", "scada", "nem12", "greenbutton", "parquet", "excel"}
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
        For files with several columns or channels: one name, several names to
        add up, or ``"sum"`` for all of them. See `meter_columns`.
    negatives, spikes : {"error", "missing", "keep"}
        What to do with negative readings and with implausibly high ones.
    zeros : {"keep", "missing", "error"}
        What to do with readings of exactly zero.
    date_order : {"auto", "mdy", "dmy"}
        Order of dates such as 7/1/2024.
    decimal : {"auto", ".", ","}
        Decimal sign of a text file.
    meter_id : str, optional
        For tables with the readings of several meters below each other: the
        meter, as its column calls it, or ``"sum"`` for all of them.
    cumulative : {"auto", "yes", "no"}
        Whether the values are the states of a register, to be differenced.
    catch_up : {"missing", "spread", "keep"}
        What to do with a reading that carries the energy of a whole gap.
    limits : float
        Raises every limit on the size of a file so many times.

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
        For parquet and Excel, when pyarrow or openpyxl is not installed.
    """
    settings: dict[str, Any] = dict(
        format=format, unit=unit, stamp=stamp, timezone=timezone, column=column, negatives=negatives, zeros=zeros,
        spikes=spikes, date_order=date_order, decimal=decimal, meter_id=meter_id, cumulative=cumulative,
        catch_up=catch_up, limits=limits,
    )  # fmt: skip
    return _read(path, settings, every=False)[0][1]


def read_meters(path: str | os.PathLike[str], **settings: Any) -> dict[str, PowerSeries]:
    """Read every meter of a file by itself, in one pass.

    Parameters
    ----------
    path : str or path
        The file: a column, a channel or a block of rows for each meter.
    **settings
        Those of `read_meter`. With `column` or `meter_id`, only what they name.

    Returns
    -------
    dict of PowerSeries
        By the names that `read_meter` takes. What is produced, and columns
        named like costs, temperatures or nameplates, are left out.
    """
    return dict(_read(path, settings, every=True))


def _read(path: str | os.PathLike[str], settings: dict[str, Any], every: bool) -> list[tuple[str, PowerSeries]]:
    """Check the settings, read the file and apply the rules; `every` reads all meters by themselves."""
    unknown = sorted(set(settings) - set(_DEFAULTS))
    if unknown:
        check_choice(unknown[0], "setting", tuple(_DEFAULTS))
    given = {**_DEFAULTS, **settings}
    every = every and given["column"] is None and given["meter_id"] is None
    unit, stamp = given["unit"], given["stamp"]
    check_choice(given["format"], "format", FORMATS)
    if unit is not None:
        unit = check_choice(as_unit(unit), "unit", UNITS)
    if stamp is not None:
        check_choice(stamp, "stamp", ("start", "end"))
    for name in ("negatives", "zeros", "spikes"):
        check_choice(given[name], name, _DOUBTFUL)
    check_choice(given["date_order"], "date_order", ("auto", "mdy", "dmy"))
    check_choice(given["decimal"], "decimal", ("auto", ".", ","))
    check_choice(given["cumulative"], "cumulative", ("auto", "yes", "no"))
    check_choice(given["catch_up"], "catch_up", ("missing", "spread", "keep"))
    options = TextOptions(
        given["column"], given["date_order"], given["decimal"], get_zone(given["timezone"]), stamp, given["meter_id"],
        Limits(given["limits"]),
    )  # fmt: skip
    rules = Rules(given["negatives"], given["zeros"], given["spikes"], given["cumulative"], given["catch_up"])
    found = []
    for readings in _readings(path, given["format"], unit, options, every):
        _settle(readings, unit, stamp)
        found.append((readings.names[0], make_series(readings, rules)))
    return found


_DEFAULTS: dict[str, Any] = dict(read_meter.__kwdefaults__ or {})


def _settle(readings: Readings, unit: str | None, stamp: str | None) -> None:
    """Compare what the file says with what the caller says."""
    stamp = None if readings.placed else stamp
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


def meter_columns(path: str | os.PathLike[str], *, limits: float = 1.0) -> list[str]:
    """List the columns or channels of a file that `read_meter` could read.

    Parameters
    ----------
    path : str or path
        The file.
    limits : float
        Raises every limit on the size of a file so many times.

    Returns
    -------
    list of str
        Names to pass as ``column``.
    """
    options = TextOptions(limits=Limits(limits))
    origin, kind, file = _open(path, options.limits)
    if kind == "parquet":
        return parquet_columns(file, origin, options.limits)
    if kind in _CHANNELED:
        return channel_names(_channels(file, origin, kind, None, replace(options, zone=get_zone("UTC"))))
    table = find_table(_source(file, origin, kind, options)[0])
    return [table.header[i] for i in candidates(table)]


def _readings(
    path: str | os.PathLike[str], format: str, unit: str | None, options: TextOptions, every: bool
) -> list[Readings]:
    """Hand the file to the reader of its format."""
    origin, kind, file = _open(path, options.limits)
    if format not in ("auto", kind) and (format in _OWN or kind == "parquet"):
        raise origin.error(f"the file is not of format {format!r}; pass format='auto'.")
    if kind == "parquet":
        return read_parquet(file, origin, options, every)
    if kind in _CHANNELED and format in ("auto", kind):
        channels = _channels(file, origin, kind, unit, options)
        if every and (loads := usable(channels)):
            return [channel.readings for channel in loads]
        return [choose_channels(channels, options.column, origin)]
    source, notes = _source(file, origin, kind, options)
    found = read_text(source, "auto" if format == "excel" else format, options, every)
    for readings in found:
        readings.notes[:0] = notes
    return found


def _channels(file: Path, origin: Origin, kind: str, unit: str | None, options: TextOptions) -> list[Channel]:
    if options.meter_id is not None:
        raise origin.error("meter_id is for tables; pass column= with the name of a channel.")
    if kind == "nem12":
        return read_nem12(TextFile(file, origin, options.limits), options.limits, options.zone)
    with file.open("rb") as stream:
        return read_greenbutton(stream, origin, unit, options.zone, options.limits)


def _source(file: Path, origin: Origin, kind: str, options: TextOptions) -> tuple[Source, list[str]]:
    """Return the rows of a table, and notes on where they come from."""
    if kind == "excel":
        return read_workbook(file, origin, options.limits)
    return TextFile(file, origin, options.limits), []


def _open(path: str | os.PathLike[str], limits: Limits) -> tuple[Origin, str, Path]:
    """Return the file with its kind, told by its first bytes."""
    file = readable_file(path)
    limits.check("bytes", file.stat().st_size, Origin(file.name))
    with file.open("rb") as stream:
        head = stream.read(256)
    if head.startswith(b"PAR1"):
        return Origin(file.name, "row"), "parquet", file
    if head.startswith(b"PK\x03\x04"):
        return Origin(file.name, "row"), "excel", file
    if is_nem12(head):
        return Origin(file.name), "nem12", file
    # In UTF-16 every other byte of plain text is zero.
    start = head.lstrip(b"\xef\xbb\xbf\xff\xfe\x00 \t\r\n").replace(b"\x00", b"")
    return Origin(file.name), "greenbutton" if start.startswith(b"<") else "auto", file
