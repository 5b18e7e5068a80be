"""`dp-ensemble backtest`: how well the uncontrolled load is forecast."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from dp_ensemble_env.cli import old_options as options
from dp_ensemble_env.cli.shell import Parser, execute
from dp_ensemble_env.experiments.backtest import METHODS, TEST_DAYS, Backtest, backtest
from dp_ensemble_env.experiments.participants import Reading, participants
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
    words = "test days, the latest there are"
    parser.add_argument("--days", type=options.whole(1, 10_000), default=TEST_DAYS, metavar="N", help=words)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the errors there as well")
    helps = {
        "meter": "meter file, or folder of files; several columns are several meters (default: the campus)",
        "date": "test on days like this one and before it (default: weekdays, to the end of the data)",
    }
    data = tuple(name for name in options.METER if name != "profile")
    options.add(parser, *data, "temperature", "date", "window", "levels", "seed", helps=helps)
    return parser


def run(args: argparse.Namespace) -> int:
    """Test, print and write."""
    readings = participants(options.problem_settings(args))
    found: dict[str, Backtest] = {}
    refused: dict[str, str] = {}
    with Progress("reading") as monitor:
        for reading in readings:
            monitor.stage(reading.name)
            try:
                found[reading.name] = _one(reading, args, monitor)
            except ValueError as error:
                if len(readings) == 1:
                    raise
                refused[reading.name] = str(error)
    options.say_left_out(refused, len(readings))
    for result in found.values() if len(found) == 1 else ():
        for note in result.notes:
            options.say(note)
    show(found)
    if args.json is not None:
        with atomic_write(args.json) as stream:
            json.dump({name: result.to_dict() for name, result in found.items()}, stream, indent=1)
            stream.write("\n")
    return 0


def _one(reading: Reading, args: argparse.Namespace, monitor: Any) -> Backtest:
    _, series, settings = reading.read()
    event = settings.event(series)
    return backtest(
        series,
        event,
        settings.day_settings(),
        days=args.days,
        temperature=settings.temperatures(),
        all_days=args.date is None,
        seed=args.seed,
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
        "Bias: mean of forecast less metered; against this forecast, doing nothing seems to deliver so much."
    )
    results = list(found.values())
    below = sum(r.error(METHODS[0]) <= r.error("baseline, adjusted") for r in results)
    if len(results) > 1:
        gain = np.median([r.gain for r in results])
        show_text(
            f"The chain that follows the day errs {gain:.0f} % less than the pooled chain in the median meter, and no "
            f"more than the adjusted baseline in {below} of {len(results)}."
        )
    inside = np.mean([r.inside for r in results])
    show_text(f"{100 * inside:.0f} % of the days lay in the range that was to hold 90 % of them.")


def main(argv: list[str] | None = None) -> int:
    """Run the command."""
    return execute(build_parser, run, argv)
