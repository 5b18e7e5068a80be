"""`dp-ensemble leaderboard`: the whole protocol, one results file, and the page made from it."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path
from typing import Any

from dp_ensemble_env import scenarios
from dp_ensemble_env.cli import old_options as options
from dp_ensemble_env.cli.shell import Parser, execute, keeping
from dp_ensemble_env.experiments.leaderboard import (
    Protocol,
    Submission,
    is_sound,
    read_results,
    results,
    write_results,
)
from dp_ensemble_env.experiments.leaderboard_report import Standing, show, write_page
from dp_ensemble_env.experiments.suite import PLANNERS
from dp_ensemble_env.experiments.suite_learners import Budget
from dp_ensemble_env.experiments.sweep.backends import ClusterLostError, Place
from dp_ensemble_env.experiments.sweep.cells import Store
from dp_ensemble_env.tools.console import Progress
from dp_ensemble_env.tools.files import check_writable

DESCRIPTION = """Score agents by one protocol: scenarios x agents x seeds x splits.

Every row is kept as soon as it is done, so the same command goes on where it was stopped. At the end there is one
results file with versions, seeds, compute and digests, from which the tables and the page are made."""
EXAMPLES = (
    "dp-ensemble leaderboard --scenarios campus-event --instances 3",
    "dp-ensemble leaderboard --train ppo:price:50000 --jobs 2",
    "dp-ensemble leaderboard --submit my_agent.py --allow-code --action price",
    "dp-ensemble leaderboard --from docs/leaderboard.json",
)
RESULTS = "leaderboard.json"


def build_parser() -> Parser:
    """Declare the options."""
    parser = Parser(prog="dp-ensemble leaderboard", description=DESCRIPTION, examples=EXAMPLES)
    parser.add_argument("--scenarios", nargs="+", default=[], metavar="NAME", help="only these (default: all)")
    words = f"planners to score: {', '.join(PLANNERS)} (default: all)"
    parser.add_argument("--planners", nargs="*", default=list(PLANNERS), metavar="NAME", help=words)
    words = "train this learner on the training instances, e.g. ppo:price:50000; may be repeated"
    parser.add_argument("--train", action="append", type=Budget.parse, default=[], metavar="A:MODE:N", help=words)
    words = "mechanisms; planners that use data are made on releases, too (default: dirichlet:k=50,floor=0.05)"
    parser.add_argument("--privacy", nargs="*", default=["dirichlet:k=50,floor=0.05"], metavar="SPEC", help=words)
    words = "training runs of a learner and releases of an instance"
    parser.add_argument("--repeats", type=options.whole(1), default=3, metavar="N", help=words)
    words = "sets of instances to score (default: train test)"
    parser.add_argument("--splits", nargs="+", default=["train", "test"], metavar="NAME", help=words)
    words = "only the first N instances of each split (default: all)"
    parser.add_argument("--instances", type=options.whole(1), metavar="N", help=words)
    words = "a Python file with predict; it alone is scored, beside --planners if those are given"
    parser.add_argument("--submit", type=Path, metavar="FILE", help=words)
    parser.add_argument("--allow-code", action="store_true", help="run the code of the submitted file")
    options.add(parser, "action", "output", "jobs", action="price", output=Path("runs/leaderboard"), jobs=None,
                helps={"action": "action mode of the submitted file: price, tilt, policy, discrete"})  # fmt: skip
    parser.set_defaults(jobs=None)
    where = parser.add_argument_group("where and how")
    options.add_place(where)
    where.add_argument("--list", action="store_true", help="say what is done and missing, and run nothing")
    words = "write and show the rows that are done, and run nothing"
    where.add_argument("--summary-only", action="store_true", help=words)
    where.add_argument("--from", dest="source", type=Path, metavar="FILE", help="show a results file, and run nothing")
    words = "write a page there, too: a report (.html), or tables for the site (.md); the results file goes beside it"
    where.add_argument("--page", type=Path, metavar="FILE", help=words)
    return parser


def protocol_of(args: argparse.Namespace) -> Protocol:
    """Read the protocol that the options describe."""
    submission = None
    planners = tuple(args.planners)
    if args.submit is not None:
        submission = Submission.read(args.submit, args.action, args.allow_code)
        if planners == tuple(PLANNERS):  # nobody asked for them
            planners = ()
    found = Protocol(
        tuple(args.scenarios),
        planners,
        tuple(args.train),
        tuple(args.privacy),
        args.repeats,
        tuple(dict.fromkeys(args.splits)),
        args.instances,
        submission,
    )
    if not found.rows():
        raise ValueError("there is no agent to score; give --planners, --train or --submit.")
    return found


def run_rows(args: argparse.Namespace, protocol: Protocol, place: Place) -> tuple[dict[str, Any], int]:
    """Run the rows that are missing; return the results and the number of rows that failed."""
    rows, store = protocol.rows(), Store(args.output, is_sound)
    records = {row.key: record for row in rows if (record := store.load(row)) is not None and not record["error"]}
    todo = [row for row in rows if row.key not in records]
    if args.list:
        print(f"{len(rows):,} rows: {len(records):,} done, {len(todo):,} missing; they are kept in {args.output}.")
        return {}, 0
    if args.summary_only:
        if not records:
            raise ValueError(f"no row of this protocol is in {args.output}; leave --summary-only out to run it.")
        return results(rows, records, args.command_line), 0
    check_writable(args.output, folder=True)
    failed = 0
    with (
        keeping(lambda: f"{len(records):,} finished rows are kept, the same command does the rest"),
        Progress("rows", len(rows)) as bar,
    ):
        bar.begin_at(len(records))
        with contextlib.closing(place.run(list(todo), protocol.study, args.output / "ray.log", bar.say)) as found:
            for row, record in found:
                store.save(row, record)
                if record["error"] is not None:
                    failed += 1
                    bar.say(f"failed: {row.title}: {record['error']['message']}")
                else:
                    records[row.key] = record
                bar.advance(len(records) + failed, row.title)
    return results(rows, records, args.command_line), failed


def run(args: argparse.Namespace) -> int:
    """Run what is missing, write the results file, and show it."""
    failed = 0
    if args.source is not None:
        content = read_results(args.source)
    else:
        place = options.place_of(args)
        protocol = protocol_of(args)
        try:
            content, failed = run_rows(args, protocol, place)
        except ClusterLostError as error:
            print(f"dp-ensemble leaderboard: {error}; finished rows are kept.", file=sys.stderr)
            return 3
        if args.list:
            return 0
        write_results(args.output / RESULTS, content)
    splits = {name for row in content["rows"] for name in row["config"]["splits"]}
    split = next((name for name in reversed(scenarios.SPLITS) if name in splits), "test")
    show(Standing(content, split))
    if args.page is not None:
        check_writable(args.page)
        if args.page.suffix == ".html":
            from dp_ensemble_env.experiments.leaderboard_page import write_html

            write_html(args.page, content, split)
        else:
            write_page(args.page, content, split)
        write_results(args.page.with_name(RESULTS), content)
        print(f"Page:    {args.page}")
    if args.source is None:
        print(f"Results: {args.output / RESULTS}")
    return 1 if failed else 0


def main(argv: list[str] | None = None) -> int:
    """Run the command."""
    return execute(build_parser, run, argv)
