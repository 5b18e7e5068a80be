"""Sample meter files: synthetic, small, and installed with the package.

=================  ==================================================================================================
``fleet.csv``      a wide file: twelve synthetic participants, hourly mean power in kW, summer 2018
``building.xml``   a Green Button file: one synthetic building, hourly Wh, June to July 2018, New York
=================  ==================================================================================================

`scripts/data.py` wrote them, and writes them again bit for bit.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["names", "path"]


def names() -> tuple[str, ...]:
    """Return the names of the samples.

    Examples
    --------
    >>> names()
    ('building.xml', 'fleet.csv')
    """
    folder = Path(__file__).parent
    return tuple(sorted(file.name for file in folder.iterdir() if file.suffix in (".csv", ".xml")))


def path(name: str) -> Path:
    """Return the path of a sample.

    Examples
    --------
    >>> path("fleet.csv").name
    'fleet.csv'
    """
    if name not in names():
        raise ValueError(f"there is no sample {name!r}; the samples are {', '.join(names())}.")
    return Path(__file__).parent / name
