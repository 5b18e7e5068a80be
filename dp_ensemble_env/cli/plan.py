"""`dp-ensemble plan`: from meters to a dispatch."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Any

from dp_ensemble_env.cli import old_options as options
from dp_ensemble_env.cli.shell import Parser, execute
from dp_ensemble_env.experiments.dispatch import PlanSettings, make_plan
from dp_ensemble_env.experiments.dispatch_report import show_plan, write_plan
from dp_ensemble_env.experiments.openadr import DEFAULT_ZONE
from dp_ensemble_env.experiments.participants import participants
from dp_ensemble_env.programme import PROGRAMMES, ReliefProgramme
from dp_ensemble_env.scenarios.metered import MeteredDay, metered_day
from dp_ensemble_env.tools.console import Progress
from dp_ensemble_env.tools.files import atomic_write

DESCRIPTION = """Make a dispatch for one event: set-points in kW for every participant, and what they should bring.

Meters are one file, a file with several columns, or a folder. Each participant's load is forecast from its own
readings until the notice; give --date of a day in the data, or a later one. The price of the event is --incentive, or
the one at which all together shed the kW of --shed.

Written: dispatch.csv, dispatch.json, openadr.json (OpenADR 3.1) and dispatch.html, a page for the control room."""
EXAMPLES = (
    "dp-ensemble plan --output runs/plan",
    "dp-ensemble plan --meter meters.csv --date 2024-07-09 --shed 150",
    "dp-ensemble plan --meter folder --privacy gaussian:epsilon=4",
)
DAY = ("temperature", "shed-floor", "response", "penalty-per-kw")


def build_parser() -> Parser:
    """Declare the options."""
    parser = Parser(prog="dp-ensemble plan", description=DESCRIPTION, examples=EXAMPLES)
    group = parser.add_argument_group("dispatch")
    words = "mean power to shed over the event, all together, in kW (default: what --incentive brings)"
    group.add_argument("--shed", dest="target", type=options.positive, metavar="KW", help=words)
    words = "what openadr.json sends: set-points in kW for each, or one price for all"
    group.add_argument("--signal", choices=("setpoint", "price"), default="setpoint", help=words)
    words = "assumed share of the energy shed that is drawn again within two hours after"
    group.add_argument("--payback", type=options.nonnegative, default=0.3, metavar="SHARE", help=words)
    words = "plan as on the day before, without the day's own readings"
    group.add_argument("--day-ahead", action="store_true", help=words)
    group.add_argument("--draws", type=options.whole(100, 1_000_000), default=2000, metavar="N", help="simulated days")
    add_programme(parser)
    helps = {
        "meter": "meter file, or folder of files; several columns are several participants (default: the campus)",
        "privacy": "plan on releases of this mechanism, such as gaussian:epsilon=4 (default: the true behaviour)",
    }
    names = (*options.METER, *DAY, *options.EVENT, "levels", "loads", "penalty", "privacy", "release-seed")
    options.add(parser, *names, "seed", "output", helps=helps, output=Path("runs/plan"))
    return parser


def add_programme(parser: Parser) -> None:
    """Add the programme's terms, which `settle` shares."""
    group = parser.add_argument_group("programme")
    words = "whose rules pay: Con Edison's CSRP, or DLRP"
    group.add_argument("--programme", choices=sorted(PROGRAMMES), default="csrp", help=words)
    words = "dollars per kW-month pledged (default 18, that of Manhattan)"
    group.add_argument("--reservation", type=options.nonnegative, metavar="DOLLARS", help=words)
    words = "dollars per kWh delivered (default 1)"
    group.add_argument("--energy-payment", type=options.nonnegative, metavar="DOLLARS", help=words)
    words = "dollars lost per kW-month not delivered, to choose the pledge by (default: the reservation)"
    group.add_argument("--shortfall", type=options.nonnegative, metavar="DOLLARS", help=words)
    words = "kW pledged (default: what brings the largest expected revenue)"
    group.add_argument("--pledge", type=options.nonnegative, metavar="KW", help=words)
    words = "adjustment of the customer baseline: none, or weather (by the morning of the day)"
    group.add_argument("--adjustment", choices=("none", "weather"), default="none", help=words)


def programme_of(args: argparse.Namespace) -> ReliefProgramme:
    """Return the programme with the terms that were given."""
    plain = PROGRAMMES[args.programme]
    return ReliefProgramme(
        plain.name,
        plain.reservation if args.reservation is None else args.reservation,
        plain.energy if args.energy_payment is None else args.energy_payment,
        plain.notice_hours,
        args.shortfall,
    )


def read_days(args: argparse.Namespace, monitor: Any, **changes: Any) -> dict[str, MeteredDay]:
    """Build the day of every participant; those that cannot be used are named on stderr."""
    readings = participants(options.problem_settings(args))
    found: dict[str, MeteredDay] = {}
    refused: dict[str, str] = {}
    date = None
    monitor.stage("forecasting", len(readings))
    for number, reading in enumerate(readings):
        try:
            name, series, settings = reading.read()
            event = settings.event(series)
            date = date or event.date
            if event.date != date:
                raise ValueError(f"its event would be on {event.date}, that of the others is on {date}; give date=...")
            day = settings.day_settings(adjustment=args.adjustment, **changes)
            found[name] = metered_day(series, event, day, temperature=settings.temperatures())
            if found[name].event.step_minutes != next(iter(found.values())).event.step_minutes:
                del found[name]
                raise ValueError("its readings have another step than those of the others; plan them apart.")
        except ValueError as error:
            if len(readings) == 1:
                raise
            refused[reading.name] = str(error)
        monitor.advance(number + 1)
    options.say_left_out(refused, len(readings))
    return found


def run(args: argparse.Namespace) -> int:
    """Plan, write and print."""
    importlib.import_module("matplotlib")  # learn of a missing extra before the work
    settings = PlanSettings(
        target_kw=args.target,
        privacy=args.privacy,
        payback=args.payback,
        programme=programme_of(args),
        pledge_kw=args.pledge,
        draws=args.draws,
        seed=args.seed,
        release_seed=args.release_seed,
    )
    with Progress("reading") as monitor:
        days = read_days(args, monitor, measured=not args.day_ahead)
        with atomic_write(args.output / ".writable"):  # learn of a folder that cannot be written before the work
            pass
        (args.output / ".writable").unlink()
        plan = make_plan(days, settings, monitor)
        monitor.stage("drawing")
        page = write_plan(args.output, plan, signal=args.signal, timezone=args.timezone, command=args.command_line)
    date = next(iter(days.values())).event.date
    options.say(f"The event is on {date}" + ("." if args.date else "; pass date=... to choose."))
    if len(days) == 1:
        for note in next(iter(days.values())).notes:
            options.say(note)
    if args.timezone is None:
        options.say(f"Stamps in openadr.json are those of {DEFAULT_ZONE}; pass timezone=... for another zone.")
    show_plan(plan)
    print(f"Page:  {page}\nFiles: {page.parent}/dispatch.csv, dispatch.json, openadr.json")
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run the command."""
    return execute(build_parser, run, argv)
