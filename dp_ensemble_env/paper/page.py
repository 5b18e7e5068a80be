"""The reproduction from its data sets to its folder, and its page, which can be followed without the paper."""

from __future__ import annotations

import time
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from dp_ensemble_env.paper import verdicts as v
from dp_ensemble_env.paper.claims import judge_claims
from dp_ensemble_env.paper.data import BUILDINGS, METER, THEORY, DataSet
from dp_ensemble_env.paper.figures import draw_all, event_chart
from dp_ensemble_env.paper.measures import FULL, NAMES, QUICK, RatioSearch, search_ratio
from dp_ensemble_env.paper.study import STAGES, Study, Table, run_study, study_tables
from dp_ensemble_env.reporting.page import OWNER_ONLY, OWNER_WORDS, Cell, Page, versions
from dp_ensemble_env.reporting.tables import write_csv
from dp_ensemble_env.tools.console import Monitor
from dp_ensemble_env.tools.files import write_json
from dp_ensemble_env.tools.validation import check_count

#: The prose of the page.
PROSE = tomllib.loads(files(__package__).joinpath("page.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Reproduction:
    """What was computed and judged, and how."""

    studies: list[Study]
    findings: dict[str, list[v.Finding]]
    search: RatioSearch
    command: str
    seed: int
    quick: bool
    seconds: float

    def how(self) -> list[str]:
        """Say how the page was made."""
        return [
            f"Command: `{self.command}`",
            f"Seed {self.seed} for every draw and every learner; the {BUILDINGS} buildings of any data set are always "
            "made with seed 0.",
            "Versions: " + ", ".join(f"{name} {value}" for name, value in versions().items()) + ".",
            f"Computed in {self.seconds:.0f} seconds, figures not counted.",
            *(f"{study.data.title}: {study.data.provenance}" for study in self.studies),
            "Beside this page: the claims as CSV, all tables as JSON, and for each data set a folder with "
            "the figures as PNG and SVG and the tables as CSV.",
        ]


def reproduce(
    folder: Path,
    sets: list[DataSet],
    *,
    quick: bool = False,
    seed: int = 0,
    command: str = "dp_ensemble_env.paper",
    monitor: Monitor | None = None,
) -> tuple[Path, dict[str, list[v.Finding]]]:
    """Compute, judge and write; return the page and the findings of each data set."""
    check_count(seed, "seed", 0)
    monitor, started, done = monitor or Monitor(), time.perf_counter(), count()
    monitor.stage("computing", len(sets) * STAGES + 2)
    monitor.advance(next(done), "Theorem 2 searched for the published ε")
    search = search_ratio()
    studies, findings = [], {THEORY: judge_claims(None, search)}
    for data in sets:

        def say(words: str, title: str = data.title) -> None:
            monitor.advance(next(done), f"{title}: {words}")

        studies.append(run_study(data, QUICK if quick else FULL, seed, say))
        findings[data.title] = judge_claims(studies[-1], search)
    monitor.advance(next(done), "figures and page")
    made = Reproduction(studies, findings, search, command, seed, quick, time.perf_counter() - started)
    tables = {study.data.title: study_tables(study) for study in studies}
    for study in studies:
        for table in tables[study.data.title]:
            table.write(folder / study.data.slug)
    suffix = OWNER_ONLY if any(data.slug == METER for data in sets) else ""
    write_csv(folder / f"claims{suffix}.csv", v.CLAIM_HEADINGS, v.claim_rows(findings))
    write_json(folder / f"reproduction{suffix}.json", record(made, tables))
    return write_page(made, tables, folder, suffix), findings


def record(made: Reproduction, tables: dict[str, list[Table]]) -> dict[str, Any]:
    """Return everything for machines."""
    return {
        "command": made.command,
        "seed": made.seed,
        "quick": made.quick,
        "versions": versions(),
        "theorem2_search": made.search._asdict(),
        "tally": v.counts(made.findings),
        "claims": [dict(zip(v.CLAIM_HEADINGS, row, strict=True)) for row in v.claim_rows(made.findings)],
        "data": {
            study.data.title: {
                "provenance": study.data.provenance,
                "row": None if study.row is None else study.row.state + 1,
                "note": "no row qualifies" if study.row is None else study.row.note,
                "tables": {table.name: table.records() for table in tables[study.data.title]},
            }
            for study in made.studies
        },
    }


def write_page(made: Reproduction, tables: dict[str, list[Table]], folder: Path, suffix: str) -> Path:
    """Draw the figures and write everything into one HTML file, whose name gets the suffix."""
    studies, findings = made.studies, made.findings
    page = Page("Privacy-aware load ensemble control: the case study, computed again")
    if suffix:
        page.warning(OWNER_WORDS)
    figures = [draw_all(study, folder / study.data.slug) for study in studies]
    page.takeaways(takeaways(studies, findings), event_chart(studies[0]), figures[0]["Figure 7"][0])
    page.heading("About this page", short="About")
    page.text(PROSE["introduction"])
    if made.quick:
        page.text("This is a quick run, with fewer samples and grid points, and short training.")
    _failures(page, findings)
    page.heading("Symbols and words", short="Symbols")
    page.definitions(PROSE["symbols"].items())
    page.heading("Where the paper is misprinted", short="Misprints")
    page.text("The verdicts cite these numbers.")
    page.definitions(PROSE["misprints"].items())
    for study in studies:
        if study.disclosed is not None and study.disclosed.counts is not None:
            right = bool(np.all(study.disclosed.counts == np.asarray(study.data.model.counts)))
            page.text(
                f"E8 on the {study.data.title}: we add one to all counts, make a matrix, tilt it by the z of Figures 5 "
                f"and 6, and publish it. The published matrix alone, without z, shows this: {study.disclosed}, "
                f"{'all' if right else 'not all'} of them right."
            )
    page.heading("Claims")
    page.items(_rules())
    page.text(
        f"'{THEORY.capitalize()}': claims that need no meter. These are the six published L1 distances, for a row of "
        f"three successors, and Theorem 2, in a search over {made.search.settings} settings. The row was fitted to the "
        "six distances, so it only shows that they are consistent with the formulas. Click a heading to sort."
    )
    claims = v.gather(findings).items()
    _claims_table(page, {words: one for words, one in claims if not v.set_up(one)}, list(findings))
    page.heading("Set-up", 3)
    page.text("Facts of the paper's data and event, and their counterparts here.")
    facts = {words: one for words, one in claims if v.set_up(one)}
    _claims_table(page, facts, [data for data in findings if data != THEORY])
    for study, drawn in zip(studies, figures, strict=True):
        _section(page, study, {table.name: table for table in tables[study.data.title]}, drawn)
    page.heading("How this was made")
    page.items(made.how())
    return page.write(folder / f"reproduction{suffix}.html")


def takeaways(studies: list[Study], findings: dict[str, list[v.Finding]]) -> list[str]:
    """Say what holds and what does not, computed from the verdicts."""
    sentences = [f"Of {v.tally(findings)}."]
    if failures := v.failing(findings):
        sentences.append(f"{len(failures)} claims fail on every data set that can test them; they are listed below.")
    for study in studies:
        best, event = study.events["standard", 0.0].curtailed_kwh, study.events
        shares = [event[name, 50.0].curtailed_kwh / best for name in NAMES]
        sentences.append(
            f"On the {study.data.title}, policies that expect noise of k = 50 shed {100 * min(shares):.0f} to "
            f"{100 * max(shares):.0f} % of the energy that the optimum sheds; the ad-hoc practice sheds "
            f"{100 * event['ad-hoc', 0.0].curtailed_kwh / best:.0f} %."
        )
    return sentences


def _rules() -> list[str]:
    names = ("SLIGHTLY", "SLIGHTLY_DEARER", "INDISTINCT", "DISTINCT")
    shares = {name: v.percent(getattr(v, name), 0) for name in names}
    low, high = (v.percent(share, 0) for share in v.ABOUT_15)
    return [rule.format(v=v, low=low, high=high, **shares) for rule in PROSE["rules"]]


def _failures(page: Page, findings: dict[str, list[v.Finding]]) -> None:
    """List the claims that fail on every data set that can test them."""
    lines = []
    for words, by_data in v.failing(findings).items():
        readings = by_data[next(name for name in by_data if name != THEORY or len(by_data) == 1)]
        ours = "; ".join(f"{claim.reading}: {ours}" if claim.reading else ours for claim, ours, _ in readings)
        lines.append(f"{words}: {v.combine(readings).word}. Paper: {readings[0].claim.paper}; here: {ours}.")
    if lines:
        page.heading("What fails on every data set", short="What fails")
        page.items(lines)


def _claims_table(page: Page, claims: dict[str, dict[str, list[v.Finding]]], columns: list[str]) -> None:
    rows = []
    for words, by_data in claims.items():
        claim = next(iter(by_data.values()))[0].claim
        cells = [_verdict_cell(by_data[data]) if data in by_data else Cell("", "–") for data in columns]
        rows.append([Cell("", f"{words} ({claim.section})"), *cells, Cell("", claim.paper)])
    page.table(("claim (section of the paper)", *columns, "paper"), rows, stack=True)


def _verdict_cell(readings: list[v.Finding]) -> Cell:
    word, reason = v.combine(readings)
    head = f"{v.MARKS[word]} {word}"
    if len(readings) == 1:
        return Cell(head, f"{readings[0].ours}; {reason}.")
    items = (f"{v.MARKS[one.word]} {claim.reading}: {ours}; {one.reason}." for claim, ours, one in readings)
    return Cell(head, f"{reason}.", tuple(items))


def _section(page: Page, study: Study, tables: dict[str, Table], figures: dict[str, tuple[Path, str]]) -> None:
    page.heading(f"Figures and numbers: {study.data.title}", short=f"Figures: {study.data.title}")
    page.text(study.data.provenance)
    if study.row is None:
        page.text(
            "No row of this matrix has three successors that can each give up h/2, so Figures 4 to 6 are left out."
        )
    else:
        page.text(f"{PROSE['row']} Here: row {study.row.state + 1}. {study.row.note}")
    after = {
        "Figure 3": ("row",),
        "Figure 6": ("l1_distances",),
        "Figure 7": ("event",),
        "Figure 8": ("cost", "epsilon"),
    }
    for name, (path, caption) in figures.items():
        page.heading(f"{name} of the paper", 3)
        page.picture(path, caption, column=name != "Figure 7")
        for table in (tables[key] for key in after.get(name, ()) if key in tables):
            _table(page, study, table)
    page.heading("Misprints", 3)
    for key in ("misprint_e2", "misprint_e3"):
        _table(page, study, tables[key])


def _table(page: Page, study: Study, table: Table) -> None:
    page.text(f"{table.title}. {table.text} (`{study.data.slug}/{table.name}.csv`)")
    page.table(table.headings, table.shown())
