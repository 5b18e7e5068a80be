"""Whose meters a dispatch is about: one file, every column of a wide file, a folder of files, or the campus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from dp_ensemble_env.meter import meter_columns
from dp_ensemble_env.scenarios.campus import HOLIDAYS, SUMMER, campus_aggregate, campus_building
from dp_ensemble_env.scenarios.problem import ProblemSettings

#: Endings of the files that are read from a folder.
METER_FILES = (".csv", ".parquet", ".tsv", ".txt", ".xml", ".xlsx")


class Participant(NamedTuple):
    """One meter: its name, its readings, and how they become a problem."""

    name: str
    series: Any
    settings: ProblemSettings


class Reading(NamedTuple):
    """One meter that is yet to be read."""

    name: str
    settings: ProblemSettings

    def read(self) -> Participant:
        """Read it."""
        if self.settings.meter is None:
            return Participant(self.name, campus_series(), self.settings)
        return Participant(self.name, self.settings.read(), self.settings)


class CampusSeries(NamedTuple):
    """The synthetic campus of 100 buildings as a meter would show it."""

    times: Any
    kw: Any
    step: Any
    notes: tuple[str, ...] = ("The campus is synthetic: no meter was read.",)
    source: str = "synthetic campus"


def campus_series() -> CampusSeries:
    """Return the readings of the synthetic campus, 100 buildings together."""
    year = campus_building()
    return CampusSeries(year.times, campus_aggregate(), year.step)


def participants(settings: ProblemSettings) -> list[Reading]:
    """List the meters that the settings name; without a meter, the synthetic campus.

    A file with several columns stands for as many participants, unless one is chosen. So does a folder for its
    files.
    """
    if settings.meter is None:
        if settings.scenario != ProblemSettings.scenario or settings.instance:
            raise ValueError(
                "a dispatch is made for meters, or for the synthetic campus of the scenario 'campus-event'; give "
                "meter=..., or leave the scenario out."
            )
        campus = replace(
            settings,
            season=settings.season or SUMMER,
            holidays=HOLIDAYS,
            profile="aggregate",
            loads=settings.loads or 100,
        )
        return [Reading("campus", campus)]
    return list(_of_path(Path(settings.meter), settings))


def _of_path(path: Path, settings: ProblemSettings) -> Iterator[Reading]:
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix.lower() in METER_FILES)
        if not files:
            raise ValueError(f"the folder {path} holds no meter files ({', '.join(METER_FILES)}); give another folder.")
        for file in files:
            yield from _of_path(file, replace(settings, meter=str(file)))
        return
    columns = meter_columns(path) if settings.column is None else []
    if len(columns) < 2 or _reads_as_one(settings):
        yield Reading(str(settings.column or path.stem), settings)
        return
    for column in columns:
        yield Reading(column, replace(settings, column=column))


def _reads_as_one(settings: ProblemSettings) -> bool:
    """Tell whether a file of several columns shows one meter, such as its energy and its demand."""
    try:
        settings.read()
    except ValueError:
        return False
    return True
