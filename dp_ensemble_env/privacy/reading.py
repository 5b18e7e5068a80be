"""From meter files to participants, one participant at a time.

The stability of this step is part of the proof: **dropping one participant leaves every other count as it was.** So
whatever is not a participant's own is declared (bounds of the levels, step, layout, columns, settings of the reader),
and whatever is inferred (order of day and month, decimal sign, channel, unit) is inferred from the participant's own
lines alone. A file with many participants is split once, without looking at a reading, and each part is read alone:

``"files"``
    A folder; one participant a file, of any format that `dp_ensemble_env.meter` reads. Several meters of a file are
    one participant's.
``"wide"``
    Text or parquet; the first column holds the time, every other one a participant. Empty cells are not there.
``"long"``
    Text or parquet; the column `id_column` names the participant of each line. Several meters of a participant have
    lines of their own, told apart as the reader does.

A participant whose own lines cannot be read, or have another step than the declared one, is left out. A file is refused
for its declarations, for duplicate names and for lines that cannot be split, never for somebody's readings.
"""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.chain.calendar import select_days
from dp_ensemble_env.meter.origin import Origin
from dp_ensemble_env.tools.files import readable_file
from dp_ensemble_env.tools.validation import check_choice, check_positive

LAYOUTS = ("files", "wide", "long")
#: Endings of the files that are read from a folder.
METER_FILES = (".csv", ".parquet", ".tsv", ".txt", ".xlsx", ".xml")
_TEXT: dict[str, Any] = {"encoding": "utf-8-sig", "errors": "surrogateescape", "newline": ""}


def read_participants(
    path: Path,
    reader: Mapping[str, Any],
    step_minutes: float,
    layout: str | None = None,
    id_column: str | None = None,
    delimiter: str = ",",
    season: tuple[str, str] | None = None,
    exclude: Any = (),
) -> tuple[dict[str, list[NDArray[np.float64]]], dict[str, str]]:
    """Return the power of each participant's meters at the declared step, and why others were left out."""
    from dp_ensemble_env.meter import ReadSettings, read_meters

    seconds = round(60.0 * check_positive(step_minutes, "step_minutes"))
    settings = ReadSettings(**reader)  # refuses a setting that there is not
    kept: dict[str, list[NDArray[np.float64]]] = {}
    left_out: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, file in _split(path, layout, id_column, delimiter, Path(folder), settings):
            if name in kept or name in left_out:
                raise ValueError(
                    f"the participant {name!r} is in {path} twice; rename one, or join them by an id column."
                )
            try:
                meters = [_at_step(one, seconds) for one in read_meters(file, settings).values()]
                kept[name] = [np.where(select_days(t, None, None, season, exclude), kw, np.nan) for t, kw in meters]
            except ValueError as error:
                left_out[name] = str(error)
    return kept, left_out


def _at_step(series: Any, seconds: int) -> tuple[NDArray[np.datetime64], NDArray[np.float64]]:
    """Return times and power at the declared step; finer readings are averaged, and a mean of a gap is a gap."""
    own = int(series.step / np.timedelta64(1, "s"))
    if seconds % own:
        raise ValueError(f"it has a reading every {own / 60:g} minutes, and {seconds / 60:g} were declared.")
    many = seconds // own
    late = int(series.times[0].astype("datetime64[s]").astype(np.int64) % seconds) // own
    kw = np.concatenate([np.full(late, np.nan), series.kw, np.full(-(late + len(series.kw)) % many, np.nan)])
    start = series.times[0] - np.timedelta64(late * own, "s")
    times = start + np.arange(len(kw) // many) * np.timedelta64(seconds, "s")
    return times, kw.reshape(-1, many).mean(axis=1)


# ------------------------------------------------------------------ splitting
def _split(
    path: Path, layout: str | None, id_column: str | None, delimiter: str, folder: Path, settings: Any
) -> Iterator[tuple[str, Path]]:
    """Yield the name of each participant, and a file with its lines alone."""
    chosen = layout or ("long" if id_column is not None else "files" if path.is_dir() else "wide")
    check_choice(chosen, "layout", LAYOUTS)
    if (chosen == "long") != (id_column is not None):
        raise ValueError(
            f"layout={chosen!r} and id_column={id_column!r} contradict each other; name the column of a long file."
        )
    files = _meter_files(path) if path.is_dir() else [readable_file(path)]
    if chosen == "files":
        yield from ((file.name, file) for file in files)
        return
    for number, file in enumerate(files):
        settings.limit("bytes", readable_file(file).stat().st_size, Origin(file.name))
        header, rows = _parquet(file) if file.suffix == ".parquet" else _text(file, delimiter)
        parts = _by_column(header, rows) if chosen == "wide" else _by_id(header, rows, str(id_column), file)
        for index, (name, names, lines) in enumerate(parts):
            part = folder / f"{number}-{index}.csv"
            with part.open("w", encoding="utf-8", errors="surrogateescape", newline="") as stream:
                csv.writer(stream, delimiter=delimiter).writerows([names, *lines])
            yield name, part


def _meter_files(path: Path) -> list[Path]:
    files = sorted(file for file in path.iterdir() if file.suffix.lower() in METER_FILES)
    if not files:
        raise ValueError(f"the folder {path} holds no meter files ({', '.join(METER_FILES)}); give another folder.")
    return files


def _text(file: Path, delimiter: str) -> tuple[list[str], list[list[str]]]:
    with file.open(**_TEXT) as stream:
        header, *rows = csv.reader(stream, delimiter=delimiter) if file.stat().st_size else [[]]
    for number, row in enumerate(rows, 2):
        if row and len(row) != len(header):
            raise ValueError(
                f"line {number} of {file} has {len(row)} cells, its header {len(header)}; correct the file."
            )
    return _checked(header, file), [row for row in rows if row]


def _parquet(file: Path) -> tuple[list[str], list[list[str]]]:
    from pyarrow import parquet

    table = parquet.read_table(file)
    columns = [["" if one is None else str(one) for one in column.to_pylist()] for column in table.columns]
    return _checked(table.column_names, file), [list(row) for row in zip(*columns, strict=True)]


def _checked(header: list[str], file: Path) -> list[str]:
    names = [name.strip() for name in header]
    if len(names) < 2:
        raise ValueError(f"the first line of {file} names no columns; pass the delimiter that it has, delimiter=';'.")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"the column {twice[0]!r} is in {file} twice; give every participant a name of its own.")
    return names


def _by_column(header: list[str], rows: list[list[str]]) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    for index, name in enumerate(header[1:], 1):
        yield name, [header[0], name], [[row[0], row[index]] for row in rows if row[index].strip()]


def _by_id(
    header: list[str], rows: list[list[str]], id_column: str, file: Path
) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    if id_column not in header:
        raise ValueError(f"{file} has no column {id_column!r}; its columns are {', '.join(header)}.")
    at = header.index(id_column)
    groups: dict[str, list[list[str]]] = {}
    for row in rows:
        groups.setdefault(row[at], []).append(row[:at] + row[at + 1 :])
    for name, lines in groups.items():
        yield name, header[:at] + header[at + 1 :], lines
