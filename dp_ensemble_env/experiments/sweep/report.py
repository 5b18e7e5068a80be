"""What a sweep says: the state of its cells before, and tables of the results after."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from dp_ensemble_env.experiments.sweep.cells import Cell, show_privacy
from dp_ensemble_env.reporting.tables import spreadsheet_safe
from dp_ensemble_env.tools.files import atomic_write

Records = dict[str, dict[str, Any]]
#: What the tables give of an evaluation.
SHOWN = ("score", "score_error", "mean_return", "gap", "discomfort", "energy_cost", "curtailed_kwh", "delivered_kwh")
SUMMARY = (
    "data",
    "method",
    "action",
    "privacy",
    "steps",
    "seeds",
    "made",
    "made_error",
    "deployed",
    "deployed_error",
    "without_data",
    "epsilon",
    "gap",
)


def group_of(cell: Cell) -> tuple[Any, ...]:
    """Return what cells of one line in a table have in common: all but the seed."""
    config = cell.config
    return cell.data, config["method"], config["action"], show_privacy(config["privacy"]), config["steps"]


def grouped(cells: Iterable[Cell]) -> dict[tuple[Any, ...], list[Cell]]:
    """Gather the cells by line."""
    groups: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in cells:
        groups.setdefault(group_of(cell), []).append(cell)
    return groups


# ------------------------------------------------------------------ before
def state_rows(cells: list[Cell], records: Records) -> list[list[str]]:
    """Count done, failed and missing cells of every line, and estimate the work that is left.

    The estimate is the median processor time of the finished cells of the same
    method, action mode and budget, whatever their k, seed and data.
    """
    seconds = typical_seconds(cells, records)
    rows = []
    for group, members in grouped(cells).items():
        found = [records.get(cell.key) for cell in members]
        done = sum(record is not None and record["error"] is None for record in found)
        failed = sum(record is not None and record["error"] is not None for record in found)
        each = seconds.get(cost_group(members[0]))
        left = "?" if each is None else show_time(each * (len(members) - done))
        counts = [str(len(members)), str(done), str(failed), str(len(members) - done - failed)]
        texts = ["" if part is None else str(part) for part in group]
        rows.append([*texts, *counts, "?" if each is None else f"{each:.2f}", left])
    return rows


def cost_group(cell: Cell) -> tuple[Any, ...]:
    """Return what decides how long a cell takes."""
    return tuple(cell.config[name] for name in ("method", "action", "population", "steps"))


def typical_seconds(cells: list[Cell], records: Records) -> dict[tuple[Any, ...], float]:
    """Return the median processor time of the finished cells of each kind."""
    times: dict[tuple[Any, ...], list[float]] = {}
    for cell in cells:
        record = records.get(cell.key)
        if record is not None and record["error"] is None:
            times.setdefault(cost_group(cell), []).append(record["run"]["cpu_seconds"])
    return {group: median(values) for group, values in times.items()}


def work_left(cells: list[Cell], records: Records) -> tuple[float, int]:
    """Return the estimated seconds of one core for what is left, and the number of cells that have no estimate."""
    seconds = typical_seconds(cells, records)
    left = [cell for cell in cells if (r := records.get(cell.key)) is None or r["error"] is not None]
    known = [seconds[cost_group(cell)] for cell in left if cost_group(cell) in seconds]
    return sum(known), len(left) - len(known)


def show_time(seconds: float) -> str:
    """Write a duration in the unit that suits it."""
    for unit, length in (("d", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"


# ------------------------------------------------------------------ after
def summary_rows(cells: list[Cell], records: Records) -> list[dict[str, Any]]:
    """Return mean and standard error over the seeds of every line."""
    rows = []
    for group, members in grouped(cells).items():
        results = [records[c.key]["result"] for c in members if c.key in records and records[c.key]["result"]]
        row = dict(zip(SUMMARY, group, strict=False), seeds=len(results))
        for side in ("made", "deployed"):
            scores = [result[side]["score"] for result in results]
            row[side] = fmean(scores) if scores else None
            row[f"{side}_error"] = stdev(scores) / math.sqrt(len(scores)) if len(scores) > 1 else None
        for name in ("without_data", "epsilon"):  # the same for all seeds; None on the true matrix, or without an ε
            row[name] = results[0].get(name) if results else None
        row["gap"] = fmean(result["deployed"]["gap"] for result in results) if results else None
        rows.append(row)
    return rows


def result_rows(cells: list[Cell], records: Records) -> list[dict[str, Any]]:
    """Return one flat row for each finished cell, the same wherever it was run."""
    rows = []
    for cell in cells:
        record = records.get(cell.key)
        if record is None or record["error"] is not None:
            continue
        config, result = cell.config, record["result"]
        row = {"data": cell.data, **{name: config[name] for name in ("method", "action", "population")}}
        row.update(privacy=show_privacy(config["privacy"]), seed=config["seed"], steps=result["steps"])
        row.update({f"{side}_{name}": result[side][name] for side in ("made", "deployed") for name in SHOWN})
        row.update({name: result.get(name) for name in ("without_data", "epsilon")})
        rows.append({**row, "key": cell.key})
    return rows


def write_tables(folder: Path, cells: list[Cell], records: Records, suffix: str = "") -> list[dict[str, Any]]:
    """Write all tables, and return the summary; their names get the suffix, which says so if a meter is private.

    The seconds stand in a table of their own, so what the others say of
    finished cells is equal byte by byte wherever and however often they were run.
    """
    results, summary = result_rows(cells, records), summary_rows(cells, records)
    failed, times = [], []
    for cell in cells:
        record = records.get(cell.key)
        if record is None:
            continue
        if record["error"] is not None:
            reason = {name: record["error"][name] for name in ("type", "message")}  # the cell's file has the traceback
            failed.append({"cell": cell.title, "key": cell.key, **reason})
        run = dict(record["run"])
        libraries = " ".join(f"{name}={version}" for name, version in run.pop("software").items())
        times.append({"key": cell.key, "cell": cell.title, **run, "software": libraries})
    write_csv(folder / f"results{suffix}.csv", results)
    write_csv(folder / f"summary{suffix}.csv", summary)
    write_csv(folder / f"times{suffix}.csv", times)
    content = {"cells": len(cells), "summary": summary, "results": results, "failed": failed}
    with atomic_write(folder / f"results{suffix}.json") as stream:
        json.dump(content, stream, indent=1, allow_nan=False)
        stream.write("\n")
    return summary


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows that share their columns; without rows the file is empty."""
    buffer = io.StringIO()
    if rows:
        writer = csv.DictWriter(buffer, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: spreadsheet_safe(cell) for name, cell in row.items()} for row in rows)
    with atomic_write(path) as stream:
        stream.write(buffer.getvalue())


def mixed_software(records: Records) -> list[str]:
    """Say which libraries have several versions among the finished cells."""
    found: dict[str, set[str]] = {}
    for record in records.values():
        if record["error"] is None:
            for name, version in record["run"]["software"].items():
                found.setdefault(name, set()).add(version)
    return [f"{name} {' and '.join(sorted(versions))}" for name, versions in found.items() if len(versions) > 1]


def summary_cells(row: dict[str, Any]) -> list[str]:
    """Write a line of the summary."""

    def score(side: str) -> str:
        if row[side] is None:
            return "–"
        error = "" if row[f"{side}_error"] is None else f" ± {row[f'{side}_error']:.2f}"
        return f"{row[side]:.2f}{error}"

    texts = ["" if row[name] is None else str(row[name]) for name in SUMMARY[:6]]
    gap = "–" if row["gap"] is None else f"{row['gap']:.2f}"
    private = row["without_data"] is not None
    without = f"{row['without_data']:.2f}" if private else "–"
    epsilon = "–" if not private else "none" if row["epsilon"] is None else f"{row['epsilon']:.3g}"
    made = score("made") if private else "–"
    return [*texts[:4], score("deployed"), without, epsilon, made, gap, *texts[4:]]
