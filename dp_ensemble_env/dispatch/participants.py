"""Whose meters a dispatch is about: one file, every meter of a wide or long file, a folder of files, or the campus.

A file is read once, whatever the number of its meters. Columns that are no load (temperatures, prices, exports, the
demand statistics of another column) are no participants. One that cannot be used is left out with the reason, and the
others go on.

Sites in other time zones are listed in a file ``sites.csv`` of the folder, in lines such as ``depot,America/Chicago``:
the name of a file without its ending, and its zone.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dp_ensemble_env.chain.event import DemandResponseEvent
from dp_ensemble_env.meter.clocks import get_zone
from dp_ensemble_env.meter.read import each_meter
from dp_ensemble_env.meter.series import PowerSeries
from dp_ensemble_env.scenarios.campus import HOLIDAYS, SUMMER, campus_aggregate, campus_building
from dp_ensemble_env.scenarios.problem import ProblemSettings
from dp_ensemble_env.tools.console import Monitor

#: Endings of the files that are read from a folder.
SITES = "sites.csv"
METER_FILES = (".csv", ".parquet", ".tsv", ".txt", ".xml", ".xlsx")
#: A meter that shows nothing or zero for half of so many days before the event is dead.
DEAD_DAYS, DEAD_SHARE = 14, 0.5


class Participant(NamedTuple):
    """One meter: its name, its readings, its event, and how they become a problem."""

    name: str
    series: Any
    event: DemandResponseEvent
    settings: ProblemSettings


class Participants(NamedTuple):
    """Those that can be used, and the reasons of the others; all have the event's day and step in common."""

    used: list[Participant]
    refused: dict[str, str]


def campus_series() -> PowerSeries:
    """Return the synthetic campus, 100 buildings together, as a meter would show it."""
    year = campus_building()
    notes = ("The campus is synthetic: no meter was read.",)
    return PowerSeries(year.times, campus_aggregate(), year.step, notes=notes, source="synthetic campus")


def participants(
    settings: ProblemSettings, only: Sequence[str] = (), monitor: Monitor | None = None, *, dead: bool = False
) -> Participants:
    """Read the meters that the settings name, or those of them in `only`; without a meter, the synthetic campus.

    `dead` keeps dead meters: who takes part in a private plan must not depend on the readings. A `ValueError` says why
    none can be used.
    """
    monitor = monitor or Monitor()
    monitor.stage("reading")
    read: dict[str, Any] = {}
    refused: dict[str, str] = {}
    zones: dict[str, str | None] = {}
    last: ValueError | None = None
    if settings.meter is None:
        settings, read["campus"] = _campus(settings), campus_series()
    else:
        for name, make, zone in _meters(Path(settings.meter), settings):
            zones[name] = zone
            if only and name not in only:
                continue
            try:
                read[name] = make()
            except ValueError as error:
                refused[name], last = str(error), error
            monitor.advance(len(read) + len(refused))
    if missing := [name for name in only if name not in read and name not in refused]:
        raise ValueError(
            f"there is no participant {missing[0]!r}; choose among {', '.join(list({**zones, **read})[:20])}."
        )
    used: list[Participant] = []
    for name, series, event in _events(read, settings):
        if not dead and (reason := _dead(series, event.date)):
            refused[name] = reason
        else:
            used.append(Participant(name, series, event, replace(settings, timezone=zones.get(name))))
    if not used:
        if len(refused) == 1 and last is not None:
            raise last
        raise ValueError(f"none of the {len(refused)} meters can be used. For one: {next(iter(refused.values()))}")
    return Participants(used, refused)


def _campus(settings: ProblemSettings) -> ProblemSettings:
    if settings.scenario != ProblemSettings.scenario or settings.instance:
        raise ValueError(
            "a dispatch is made for meters, or for the synthetic campus of the scenario 'campus-event'; give "
            "meter=..., or leave the scenario out."
        )
    season, loads = settings.season or SUMMER, settings.loads or 100
    return replace(settings, season=season, holidays=HOLIDAYS, profile="aggregate", loads=loads)


def _meters(path: Path, settings: ProblemSettings) -> Iterator[tuple[str, Callable[[], Any], str | None]]:
    """Yield the names of meters, functions that read them, and the time zones of their sites."""
    if not path.is_dir():
        meters = each_meter(path, settings)
        for name, make in meters:
            yield (path.stem if len(meters) == 1 and settings.column is None else name), make, settings.timezone
        return
    zones = site_zones(path)
    files = sorted(file for file in path.iterdir() if file.suffix.lower() in METER_FILES and file.name != SITES)
    if not files:
        raise ValueError(f"the folder {path} holds no meter files ({', '.join(METER_FILES)}); give another folder.")
    for file in files:
        zone = zones.get(file.stem, settings.timezone)
        try:
            meters = each_meter(file, replace(settings, timezone=zone))
        except ValueError as error:
            yield file.stem, partial(_fail, error), None
            continue
        for name, make in meters:
            yield (file.stem if len(meters) == 1 else f"{file.stem} {name}"), make, zone


def site_zones(path: Path) -> dict[str, str]:
    """Return the time zones that ``sites.csv`` gives to the files of a folder; none without that file."""
    if not (path / SITES).is_file():
        return {}
    with (path / SITES).open(newline="", encoding="utf-8-sig") as stream:
        rows = [[cell.strip() for cell in row] for row in csv.reader(stream) if any(cell.strip() for cell in row)]
    for row in rows:
        if len(row) != 2:
            raise ValueError(f"{path / SITES} holds {','.join(row)!r}; write lines such as 'depot,America/Chicago'.")
        get_zone(row[1])
    return {name: zone for name, zone in rows}


def _fail(error: ValueError) -> Any:
    raise error


def _events(read: dict[str, Any], settings: ProblemSettings) -> Iterator[tuple[str, Any, DemandResponseEvent]]:
    """Give all of them one day and one step: the day that most would have, and the longest step among them."""
    own = {name: settings.event(series) for name, series in read.items()}
    if not own:
        return
    date = settings.date or Counter(event.date for event in own.values()).most_common(1)[0][0]
    step = max(event.step_minutes for event in own.values())
    notice = max(event.notice_minutes for event in own.values())
    notice = step * -(-notice // step)
    for name, series in read.items():
        yield name, series, replace(own[name], date=date, step_minutes=step, notice_minutes=notice)


def _dead(series: Any, date: str) -> str:
    """Say why a meter is dead before a day, if it is."""
    day = np.datetime64(date, "D")
    stamps = np.asarray(series.times)
    recent = np.asarray(series.kw)[(stamps < day) & (stamps >= day - np.timedelta64(DEAD_DAYS, "D"))]
    silent = int((np.isnan(recent) | (recent == 0)).sum())
    if len(recent) and silent > DEAD_SHARE * len(recent):
        return f"it shows zero or nothing in {100 * silent / len(recent):.0f} % of the {DEAD_DAYS} days before {date}."
    return ""
