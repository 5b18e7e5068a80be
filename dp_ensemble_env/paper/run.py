"""The reproduction from its data sets to its folder: compute, judge and write."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from dp_ensemble_env.paper.claims import (
    CLAIM_HEADINGS,
    Finding,
    RatioSearch,
    claim_rows,
    counts,
    judge_claims,
    search_ratio,
)
from dp_ensemble_env.paper.data import BUILDINGS, METER, THEORY, DataSet
from dp_ensemble_env.paper.measures import FULL, QUICK
from dp_ensemble_env.paper.study import STAGES, Study, run_study
from dp_ensemble_env.paper.tables import study_tables
from dp_ensemble_env.reporting.page import OWNER_ONLY
from dp_ensemble_env.reporting.provenance import versions
from dp_ensemble_env.reporting.tables import write_csv
from dp_ensemble_env.tools.console import Monitor, Silent
from dp_ensemble_env.tools.files import atomic_write
from dp_ensemble_env.tools.validation import check_count


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
    monitor.stage("computing", len(sets) * STAGES + 2)
    done = count()

    def say(words: str) -> None:
        monitor.advance(next(done), words)

    say("Theorem 2 searched for the published ε")
    search = search_ratio()
    studies, findings = [], {THEORY: judge_claims(None, search)}
    for data in sets:
        effort = QUICK if settings.quick else FULL
        studies.append(run_study(data, effort, settings.seed, partial(_say_of, say, data.title)))
        findings[data.title] = judge_claims(studies[-1], search)
    say("figures and page")
    tables = {study.data.title: study_tables(study) for study in studies}
    for study in studies:
        for table in tables[study.data.title]:
            table.write(settings.output / study.data.slug)
    suffix = OWNER_ONLY if any(data.slug == METER for data in sets) else ""
    write_csv(settings.output / f"claims{suffix}.csv", CLAIM_HEADINGS, claim_rows(findings))
    made = _how(settings, sets, time.perf_counter() - started)
    page = write_page(settings.output, studies, tables, findings, search, made, settings.quick, suffix)
    _record(settings, studies, tables, findings, search, suffix)
    return page, findings


def _say_of(say: Callable[[str], None], title: str, words: str) -> None:
    say(f"{title}: {words}")


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
) -> None:
    """Write everything for machines."""
    record = {
        "command": settings.command,
        "seed": settings.seed,
        "quick": settings.quick,
        "versions": versions(),
        "theorem2_search": search._asdict(),
        "tally": counts(findings),
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
