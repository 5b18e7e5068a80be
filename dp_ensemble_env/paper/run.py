"""The reproduction from its data sets to its folder: compute, judge and write."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dp_ensemble_env.paper.claims import Finding, RatioSearch, search_ratio, theory_findings
from dp_ensemble_env.paper.data import BUILDINGS, METER, THEORY, DataSet
from dp_ensemble_env.paper.findings import study_findings
from dp_ensemble_env.paper.study import FULL, QUICK, STAGES, Study, run_study
from dp_ensemble_env.paper.tables import study_tables
from dp_ensemble_env.paper.verdicts import CLAIM_HEADINGS, claim_rows, counts
from dp_ensemble_env.reporting.page import OWNER_ONLY
from dp_ensemble_env.reporting.provenance import versions
from dp_ensemble_env.reporting.tables import write_csv
from dp_ensemble_env.tools.console import Monitor, Silent
from dp_ensemble_env.tools.files import atomic_write
from dp_ensemble_env.tools.validation import check_count

FOLDERS = ("campus", "meter", METER, "simbench")


@dataclass(frozen=True)
class ReproductionSettings:
    """Where the reproduction goes, how thorough it is, and the seed of everything random but the buildings."""

    output: Path
    quick: bool = False
    seed: int = 0
    command: str = "dp_ensemble_env.paper"

    def __post_init__(self) -> None:
        check_count(self.seed, "seed", 0)


def reproduce(
    settings: ReproductionSettings, sets: list[DataSet], monitor: Monitor | None = None
) -> tuple[Path, dict[str, list[Finding]]]:
    """Compute, judge and write; return the page and the findings of each data set."""
    from dp_ensemble_env.paper.page import write_page

    monitor, started = monitor or Silent(), time.perf_counter()
    former = former_files(settings.output)
    monitor.stage("computing", len(sets) * STAGES + 2)
    say = _counter(monitor)
    say("Theorem 2 searched for the published ε")
    search = search_ratio()
    studies, findings = [], {THEORY: theory_findings(search)}
    for data in sets:
        effort = QUICK if settings.quick else FULL
        studies.append(run_study(data, effort, settings.seed, _titled(say, data.title)))
        findings[data.title] = study_findings(studies[-1], search)
    say("figures and page")
    tables = {study.data.title: study_tables(study) for study in studies}
    for study in studies:
        for table in tables[study.data.title]:
            table.write(settings.output / study.data.slug)
    suffix = OWNER_ONLY if any(data.slug == METER for data in sets) else ""
    write_csv(settings.output / f"claims{suffix}.csv", CLAIM_HEADINGS, claim_rows(findings))
    made = _how(settings, sets, time.perf_counter() - started)
    page = write_page(settings.output, studies, tables, findings, search, made, settings.quick, suffix)
    files = _record(settings, studies, tables, findings, search, suffix)
    remove(settings.output, [name for name in former if name not in files])
    return page, findings


def _counter(monitor: Monitor) -> Callable[[str], None]:
    done = [-1]

    def say(words: str) -> None:
        done[0] += 1
        monitor.advance(done[0], words)

    return say


def _titled(say: Callable[[str], None], title: str) -> Callable[[str], None]:
    return lambda words: say(f"{title}: {words}")


def _how(settings: ReproductionSettings, sets: list[DataSet], seconds: float) -> list[str]:
    """Say how the page was made."""
    return [
        f"Command: `{settings.command}`",
        f"Seed {settings.seed} for every draw and every learner; the {BUILDINGS} buildings of any data set are always "
        "made with seed 0.",
        "Versions: " + ", ".join(f"{name} {value}" for name, value in versions().items()) + ".",
        f"Computed in {seconds:.0f} seconds, figures not counted.",
        *(f"{data.title}: {data.provenance}" for data in sets),
        "Beside this page: the claims as CSV, all tables as JSON, and for each data set a folder with "
        "the figures as PNG and SVG and the tables as CSV.",
    ]


def _record(
    settings: ReproductionSettings,
    studies: list[Study],
    tables: dict[str, list[Any]],
    findings: dict[str, list[Finding]],
    search: RatioSearch,
    suffix: str,
) -> list[str]:
    """Write everything for machines; return the files that belong to this run."""
    from dp_ensemble_env.paper.figures import figure_files

    files = [
        f"{study.data.slug}/{name}"
        for study in studies
        for name in (*figure_files(study), *(f"{table.name}.csv" for table in tables[study.data.title]))
    ]
    record = {
        "command": settings.command,
        "seed": settings.seed,
        "quick": settings.quick,
        "versions": versions(),
        "theorem2_search": search._asdict(),
        "files": files,
        "tally": {data: counts(found) for data, found in findings.items()},
        "claims": [dict(zip(CLAIM_HEADINGS, row, strict=True)) for row in claim_rows(findings)],
        "data": {
            study.data.title: {
                "provenance": study.data.provenance,
                "row": None if study.row is None else study.row.state + 1,
                "note": "no row qualifies" if study.row is None else study.row.note,
                "tables": {table.name: table.records() for table in tables[study.data.title]},
            }
            for study in studies
        },
    }
    with atomic_write(settings.output / f"reproduction{suffix}.json") as stream:
        json.dump(record, stream, indent=1, ensure_ascii=False)
    return files


def former_files(folder: Path) -> list[str]:
    """Return the files of data sets that an earlier run wrote into the folder, by its own record."""
    found = []
    for suffix in ("", OWNER_ONLY):
        try:
            names = json.loads((folder / f"reproduction{suffix}.json").read_text(encoding="utf-8"))["files"]
            found += [name for name in names if name.count("/") == 1 and name.split("/")[0] in FOLDERS]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
    return found


def remove(folder: Path, names: list[str]) -> None:
    """Remove files of an earlier run that do not belong to this one, and folders that are empty then."""
    for name in names:
        (folder / name).unlink(missing_ok=True)
    for name in {name.split("/")[0] for name in names}:
        if (folder / name).is_dir() and not any((folder / name).iterdir()):
            (folder / name).rmdir()
