"""Compute Section VI of the paper again: every figure and number, and which of its claims hold.

    dp-ensemble reproduce                     the built-in campus, about a minute on two cores
    dp-ensemble reproduce --quick             fewer samples, short training
    dp-ensemble reproduce --meter meter.csv --unit kWh --stamp start --column HALL
    dp-ensemble reproduce --simbench G1-A     needs pip install simbench

Writes one folder: reproduction.html (self-contained), reproduction.json, claims.csv, and for each data set its figures
(PNG and SVG) and tables (CSV). The campus is synthetic and always included.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dp_ensemble_env._files import atomic_write
from dp_ensemble_env._validation import check_count
from dp_ensemble_env.cli.options import add_data_arguments
from dp_ensemble_env.experiments.reproduction.claims import Finding, search_ratio, theory_findings
from dp_ensemble_env.experiments.reproduction.data import BUILDINGS, THEORY, DataSet, load_data
from dp_ensemble_env.experiments.reproduction.findings import study_findings
from dp_ensemble_env.experiments.reproduction.study import FULL, QUICK, STAGES, run_study
from dp_ensemble_env.experiments.reproduction.tables import study_tables
from dp_ensemble_env.experiments.reproduction.verdicts import CLAIM_HEADINGS, claim_rows, counts, show_findings
from dp_ensemble_env.reporting.provenance import versions
from dp_ensemble_env.reporting.tables import write_csv

FOLDERS = ("campus", "meter", "simbench")


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", default="runs/reproduction", help="folder (runs/reproduction)")
    parser.add_argument("--quick", action="store_true", help="a smaller run")
    parser.add_argument("--seed", type=int, default=0, help="seed of everything random but the buildings (default 0)")
    parser.add_argument("--simbench", metavar="NAME", help="also a SimBench load profile, such as G1-A")
    add_data_arguments(parser, "your own data besides the synthetic campus", date=None, step_minutes=None)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Run the reproduction."""
    args = parse(argv)
    command = shlex.join(["python", "dp-ensemble reproduce", *(sys.argv[1:] if argv is None else argv)])
    try:
        check_count(args.seed, "--seed", 0)
        if not args.output.strip():
            raise ValueError("--output is empty; give it the name of a folder.")
        args.output = Path(args.output)
        with atomic_write(args.output / ".writable"):  # learn of a folder that cannot be written before the work
            pass
        (args.output / ".writable").unlink()
        sets = load_data(args)
        page, findings = run(args, sets, command)
    except (ValueError, ImportError, OSError) as error:
        print(f"reproduce_paper: {error}", file=sys.stderr)
        return 2
    except ArithmeticError as error:
        print(
            f"reproduce_paper: these data are beyond what can be computed ({error}); check their unit.", file=sys.stderr
        )
        return 2
    except KeyboardInterrupt:
        print("reproduce_paper: stopped before it was done; run it again.", file=sys.stderr)
        return 130
    show_findings(findings)
    print(f"Page:    {page}\nClaims:  {page.parent}/claims.csv, reproduction.json")
    print("Figures: " + ", ".join(f"{page.parent / data.slug}/*.png, *.svg" for data in sets))
    return 0


def run(args: argparse.Namespace, sets: list[DataSet], command: str) -> tuple[Path, dict[str, list[Finding]]]:
    """Compute, judge and write."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from dp_ensemble_env.experiments.reproduction.figures import figure_files
    from dp_ensemble_env.experiments.reproduction.page import write_page

    started = time.perf_counter()
    former = former_files(args.output)
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
            f"Seed {args.seed} for every draw and every learner; the {BUILDINGS} buildings of any data set are always "
            "made with seed 0.",
            "Versions: " + ", ".join(f"{name} {value}" for name, value in versions().items()) + ".",
            f"Computed in {seconds:.0f} seconds, figures not counted.",
            *(f"{data.title}: {data.provenance}" for data in sets),
            "Beside this page: `claims.csv`, `reproduction.json` with all tables, and for each data set a folder with "
            "the figures as PNG and SVG and the tables as CSV.",
        ]
        page = write_page(args.output, studies, tables, findings, search, made, args.quick)
        files = [
            f"{study.data.slug}/{name}"
            for study in studies
            for name in (*figure_files(study), *(f"{table.name}.csv" for table in tables[study.data.title]))
        ]
        record = {
            "command": command,
            "seed": args.seed,
            "quick": args.quick,
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
        with atomic_write(args.output / "reproduction.json") as stream:
            json.dump(record, stream, indent=1, ensure_ascii=False)
        remove(args.output, [name for name in former if name not in files])
    return page, findings


def _sayer(bar: Any, task: Any, title: str) -> Callable[[str], None]:
    return lambda words: bar.update(task, advance=1, description=f"{title}: {words}")


def former_files(folder: Path) -> list[str]:
    """Return the files of data sets that an earlier run wrote into the folder, by its own record."""
    try:
        names = json.loads((folder / "reproduction.json").read_text(encoding="utf-8"))["files"]
        return [name for name in names if name.count("/") == 1 and name.split("/")[0] in FOLDERS]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def remove(folder: Path, names: list[str]) -> None:
    """Remove files of an earlier run that do not belong to this one, and folders that are empty then."""
    for name in names:
        (folder / name).unlink(missing_ok=True)
    for name in {name.split("/")[0] for name in names}:
        if (folder / name).is_dir() and not any((folder / name).iterdir()):
            (folder / name).rmdir()


if __name__ == "__main__":
    raise SystemExit(main())
