"""The formats of meter files, one module each, and their registry."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from dp_ensemble_env.meter.origin import Readings, ReadSettings
from dp_ensemble_env.tools.registry import Registry

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
    name: str, recognise: Callable[[bytes], bool], read: Callable[[Path, ReadSettings, bool], list[Readings]]
) -> None:
    """Register your own format; see `Format`."""
    FORMATS.register(name, Format(recognise, read))
