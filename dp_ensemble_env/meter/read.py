"""`read_meter`, `read_meters` and `meter_columns`: from a path to the reader of its format, by their registry."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from dp_ensemble_env.meter.clean import make_series
from dp_ensemble_env.meter.origin import Origin, Readings, ReadSettings
from dp_ensemble_env.meter.series import PowerSeries
from dp_ensemble_env.tools.files import readable_file
from dp_ensemble_env.tools.registry import Registry
from dp_ensemble_env.tools.validation import check_choice

#: Bytes from the beginning of a file by which a format is recognised.
HEAD = 4096


class Format(NamedTuple):
    """A format: how its files are recognised by their first bytes, and how one is read.

    ``read(path, settings, every)`` returns the readings that `settings` ask for, added up later if there are several
    columns; if `every` is true, those of each meter by itself. `identities.choose_channels` makes that choice for a
    list of channels.
    """

    recognise: Callable[[bytes], bool]
    read: Callable[[Path, ReadSettings, bool], list[Readings]]


#: By name. The last to be registered is asked first; text, which takes every file, is asked last.
FORMATS: Registry[Format] = Registry(
    "format",
    {
        "text": "dp_ensemble_env.meter.formats.tables:FORMAT",
        "greenbutton": "dp_ensemble_env.meter.formats.greenbutton:FORMAT",
        "nem12": "dp_ensemble_env.meter.formats.nem12:FORMAT",
        "excel": "dp_ensemble_env.meter.formats.excel:FORMAT",
        "parquet": "dp_ensemble_env.meter.formats.parquet:FORMAT",
    },
)


def register_format(
    name: str,
    recognise: Callable[[bytes], bool],
    read: Callable[[Path, ReadSettings, bool], list[Readings]],
) -> None:
    """Register a format of your own; see `Format`."""
    FORMATS.register(name, Format(recognise, read))


def read_meter(path: str | os.PathLike[str], settings: ReadSettings | None = None, **changes: Any) -> PowerSeries:
    """Read a meter file into one evenly spaced series of average power.

    `changes` are fields of `ReadSettings` by name, such as ``unit="kWh"``. What is unclear or wrong in the file raises
    a `ValueError`: one sentence with the file, the line and the remedy.
    """
    chosen = _changed(settings, changes)
    return _series(_readings(path, chosen, every=False)[0], chosen)


def read_meters(
    path: str | os.PathLike[str], settings: ReadSettings | None = None, **changes: Any
) -> dict[str, PowerSeries]:
    """Read every meter of a file by itself, in one pass; return them by the names that `read_meter` takes.

    With `column` or `meter_id`, only what they name is read. What is no load by its name is left out.
    """
    return {name: make() for name, make in each_meter(path, _changed(settings, changes))}


def each_meter(path: str | os.PathLike[str], settings: ReadSettings) -> list[tuple[str, Callable[[], PowerSeries]]]:
    """Read every meter of a file in one pass; return names, and functions that apply the rules to one of them."""
    every = settings.column is None and settings.meter_id is None
    return [(one.names[0], partial(_series, one, settings)) for one in _readings(path, settings, every)]


def meter_columns(path: str | os.PathLike[str], settings: ReadSettings | None = None, **changes: Any) -> list[str]:
    """List the columns or channels of a file that hold a load: names to pass as ``column``."""
    chosen = _changed(settings, changes)
    chosen = replace(chosen, timezone=chosen.timezone or "UTC", column=None, meter_id=None)
    return [one.names[0] for one in _readings(path, chosen, every=True) if not one.refusal]


def _changed(settings: ReadSettings | None, changes: dict[str, Any]) -> ReadSettings:
    for name in changes:
        check_choice(name, "setting", [field.name for field in fields(ReadSettings)])
    return replace(settings or ReadSettings(), **changes)


def _readings(path: str | os.PathLike[str], settings: ReadSettings, every: bool) -> list[Readings]:
    """Hand the file to the reader of its format."""
    file = readable_file(path)
    settings.limit("bytes", file.stat().st_size, Origin(file.name))
    with file.open("rb") as stream:
        head = stream.read(HEAD)
    if settings.format != "auto":
        kind = FORMATS[settings.format]
        if not kind.recognise(head):
            raise Origin(file.name).error(f"the file is not of format {settings.format!r}; pass format='auto'.")
        return kind.read(file, settings, every)
    kind = next(kind for name in reversed(FORMATS.names()) if (kind := FORMATS[name]).recognise(head))
    return kind.read(file, settings, every)


def _series(readings: Readings, settings: ReadSettings) -> PowerSeries:
    """Compare what the file says with what the caller says, and apply the rules."""
    unit, stamp = settings.unit, None if readings.placed else settings.stamp
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
    return make_series(readings, settings)
