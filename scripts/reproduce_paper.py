"""Compute Section VI of the paper again: every figure and number, and which of its claims hold.

    python scripts/reproduce_paper.py                     the built-in campus, about a minute on two cores
    python scripts/reproduce_paper.py --quick             fewer samples, short training
    python scripts/reproduce_paper.py --meter meter.csv --unit kWh --stamp start --column HALL
    python scripts/reproduce_paper.py --simbench G1-A     needs pip install "dp-ensemble-env[simbench]"

Writes one folder: reproduction.html (self-contained), reproduction.json, claims.csv, and for each data set its figures
(PNG and SVG) and tables (CSV). The campus is synthetic and always included.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from meter_options import add_data_arguments
from reproduction.claims import Finding, search_ratio, theory_findings
from reproduction.data import DataSet, load_data
from reproduction.findings import study_findings
from reproduction.study import FULL, QUICK, STAGES, run_study
from reproduction.tables import CLAIM_HEADINGS, claim_rows, claims_by_id, study_tables, tally, write_csv

from dp_ensemble_env import __version__
from dp_ensemble_env._files import atomic_write
from dp_ensemble_env._validation import check_count

PACKAGES = ("numpy", "scipy", "numba", "gymnasium", "matplotlib", "dp-accounting", "stable-baselines3", "torch")


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("runs/reproduction"), help="folder (runs/reproduction)")
    parser.add_argument("--quick", action="store_true", help="a smaller run")
    parser.add_argument("--seed", type=int, default=0, help="seed of everything random but the campus (default 0)")
    parser.add_argument("--simbench", metavar="NAME", help="also a SimBench load profile, such as G1-A")
    add_data_arguments(parser, "your own data besides the synthetic campus", date=None, step_minutes=None)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Run the reproduction."""
    args = parse(argv)
    command = " ".join(["python scripts/reproduce_paper.py", *(sys.argv[1:] if argv is None else argv)])
    try:
        check_count(args.seed, "--seed", 0)
        with atomic_write(args.output / ".writable"):  # learn of a folder that cannot be written before the work
            pass
        (args.output / ".writable").unlink()
        sets = load_data(args)
        page, findings = run(args, sets, command)
    except (ValueError, ImportError, OSError) as error:
        print(f"reproduce_paper: {error}", file=sys.stderr)
        return 2
    show(findings)
    print(f"\nPage:    {page}\nClaims:  {page.parent}/claims.csv, reproduction.json")
    print("Figures: " + ", ".join(f"{page.parent / data.slug}/*.png, *.svg" for data in sets))
    return 0


def run(args: argparse.Namespace, sets: list[DataSet], command: str) -> tuple[Path, dict[str, list[Finding]]]:
    """Compute, judge and write."""
    from reproduction.page import THEORY, write_page
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    started = time.perf_counter()
    effort = QUICK if args.quick else FULL
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    studies, findings = [], {}
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("Theorem 2 searched for the published ε", total=len(sets) * STAGES + 2)
        search = search_ratio()
        findings[THEORY] = theory_findings(search)
        for data in sets:
            studies.append(run_study(data, effort, args.seed, _sayer(bar, task, data.title)))
            findings[data.title] = study_findings(studies[-1], search)
        bar.update(task, advance=1, description="figures and page")
        tables = {study.data.title: study_tables(study) for study in studies}
        for study in studies:
            for table in tables[study.data.title]:
                table.write(args.output / study.data.slug)
        write_csv(args.output / "claims.csv", CLAIM_HEADINGS, claim_rows(findings))
        seconds = time.perf_counter() - started
        made = [
            f"Command: `{command}`",
            f"Seed {args.seed} for every draw and every learner; the campus has its own, seed 0.",
            "Versions: " + ", ".join(f"{name} {value}" for name, value in versions().items()) + ".",
            f"Computed in {seconds:.0f} seconds, figures not counted.",
            *(f"{data.title}: {data.provenance}" for data in sets),
            "Beside this page: `claims.csv`, `reproduction.json` with all tables, and for each data set a folder with "
            "the figures as PNG and SVG and the tables as CSV.",
        ]
        page = write_page(args.output, studies, tables, findings, search, made, args.quick)
        record = {
            "command": command,
            "seed": args.seed,
            "quick": args.quick,
            "versions": versions(),
            "theorem2_search": search._asdict(),
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
        with atomic_write(args.output / "reproduction.json") as stream:
            json.dump(record, stream, indent=1, ensure_ascii=False)
    return page, findings


def _sayer(bar: Any, task: Any, title: str) -> Callable[[str], None]:
    return lambda words: bar.update(task, advance=1, description=f"{title}: {words}")


def versions() -> dict[str, str]:
    """Return the versions that the numbers depend on."""
    found = {"python": platform.python_version(), "dp_ensemble_env": __version__}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def show(findings: dict[str, list[Finding]]) -> None:
    """Print the claims and their verdicts to the terminal, a narrow column for each data set."""
    from reproduction.page import MARKS
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    letters = dict(zip(findings, "ABCD", strict=False))
    table = Table(title="Claims of Section VI", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("claim")
    table.add_column("paper", max_width=16)
    for letter in letters.values():
        table.add_column(letter, justify="center")
    colours = {"✓": "green", "≈": "cyan", "∅": "yellow", "✗": "red"}
    for first, by_data in claims_by_id(findings):
        marks = [MARKS[by_data[data].verdict.word] if data in by_data else "" for data in findings]
        cells = [f"[bold {colours[mark]}]{mark}[/]" if mark else "" for mark in marks]
        table.add_row(escape(first.claim), escape(first.paper), *cells)
    console = Console(width=None if sys.stdout.isatty() else 100)
    console.print(table)
    console.print("   ".join(f"{mark} {word}" for word, mark in MARKS.items()), highlight=False)
    for data, found in findings.items():
        console.print(f"{letters[data]}  {escape(data)}: {tally(found)}", highlight=False)


if __name__ == "__main__":
    raise SystemExit(main())
