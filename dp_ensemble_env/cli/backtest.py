"""`dp-ensemble backtest`: how well the uncontrolled load is forecast."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from dp_ensemble_env.cli import old_options as options
from dp_ensemble_env.cli.plan import add_only
from dp_ensemble_env.cli.shell import Parser, execute
from dp_ensemble_env.dispatch.backtest import METHODS, TEST_DAYS, Backtest, backtest, coverage, total_coverage
from dp_ensemble_env.dispatch.participants import Participant, participants
from dp_ensemble_env.reporting.tables import show_table, show_text
from dp_ensemble_env.tools.console import Progress
from dp_ensemble_env.tools.files import atomic_write

DESCRIPTION = """Forecast days without an event as if one had been called, and compare with what was metered.

The chain that follows the day stands beside the customer baseline (best 5 of 10, unadjusted and adjusted to the
morning), persistence (the last reading), and the chains that do not know today's course. No forecast sees its test
day beyond the notice. A file with several meters, or a folder, is tested meter by meter."""
EXAMPLES = (
    "dp-ensemble backtest",
    "dp-ensemble backtest --meter meter.csv --unit kWh --stamp start",
    "dp-ensemble backtest --meter meters.csv --window 14:00-18:00 --json x.json",
)


def build_parser() -> Parser:
    """Declare the options."""
    parser = Parser(prog="dp-ensemble backtest", description=DESCRIPTION, examples=EXAMPLES)
    add_only(parser)
    words = "number of most recent test days"
    parser.add_argument("--days", type=options.whole(1, 10_000), default=TEST_DAYS, metavar="N", help=words)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the errors there as well")
    helps = {
        "meter": "meter file, or folder of files; several columns are several meters (default: the campus)",
        "date": "test on days like this one and before it (default: weekdays, to the end of the data)",
    }
    data = tuple(name for name in options.METER if name != "profile")
    options.add(parser, *data, "temperature", "date", "window", helps=helps)
    return parser


def run(args: argparse.Namespace) -> int:
    """Test, print and write."""
    results: dict[str, Backtest] = {}
    with Progress("reading") as monitor:
        known = participants(options.problem_settings(args), args.only, monitor)
        for one in known.used:
            monitor.stage(one.name)
            try:
                results[one.name] = _one(one, args, monitor)
            except ValueError as error:
                if len(known.used) == 1:
                    raise
                known.refused[one.name] = str(error)
    options.say_left_out(known.refused, len(results) + len(known.refused))
    options.say_once(
        [*(one.series.notes for one in known.used), *(r.notes for r in results.values() if len(results) == 1)]
    )
    found = results
    show(found)
    if args.json is not None:
        with atomic_write(args.json) as stream:
            json.dump({name: result.to_dict() for name, result in found.items()}, stream, indent=1)
            stream.write("\n")
    return 0


def _one(one: Participant, args: argparse.Namespace, monitor: Any) -> Backtest:
    return backtest(
        one.series,
        one.event,
        one.settings.day_settings(),
        days=args.days,
        temperature=one.settings.temperatures(),
        all_days=args.date is None,
        monitor=monitor,
    )


def show(found: dict[str, Backtest]) -> None:
    """Print one table for one meter, or a line for each of several."""
    if len(found) == 1:
        ((name, result),) = found.items()
        rows = [
            [method, f"{result.error(method):.1f}", f"{result.bias(method):+.1f}", f"{result.bias_kwh(method):+,.0f}"]
            for method in METHODS
        ]
        title = f"{name}: {len(result.days)} days without an event, {result.days[0]} to {result.days[-1]}"
        show_table(title, ("forecast", "error, %", "bias, %", "bias, kWh an event"), rows)
    else:
        rows = [
            [name, f"{len(r.days)}", *(f"{r.error(m):.1f}" for m in METHODS), f"{r.gain:.0f}"]
            for name, r in found.items()
        ]
        headings = ("meter", "days", *METHODS, "less than pooled, %")
        show_table("Error in % of the mean load", headings, rows)
    show_text(
        "Error: mean absolute difference from the metered power in the event's hours, in per cent of the mean load. "
        "Bias: mean of forecast less metered; a positive bias is energy credited for doing nothing."
    )
    results = list(found.values())
    below = sum(r.error(METHODS[0]) <= r.error("baseline, adjusted") for r in results)
    if len(results) > 1:
        gain = np.median([r.gain for r in results])
        show_text(
            f"The chain that follows the day errs {gain:.0f} % less than the pooled chain in the median meter, and no "
            f"more than the adjusted baseline in {below} of {len(results)}."
        )
    tested = [("each meter" if len(results) > 1 else "the meter", coverage(results))]
    if len(results) > 1 and (total := total_coverage(results)):
        tested.append(("the sum of all", total))
    rows = [[name, *(f"{share:.0f}" for share in shares.values())] for name, shares in tested]
    show_table("Days in the range, %", ["90 % range of", *tested[0][1]], rows)


def main(argv: list[str] | None = None) -> int:
    """Run the command."""
    return execute(build_parser, run, argv)
