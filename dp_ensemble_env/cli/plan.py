"""`dp-ensemble plan`: from meters to a dispatch."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Any

from dp_ensemble_env.cli import old_options as options
from dp_ensemble_env.cli.shell import Parser, execute
from dp_ensemble_env.dispatch.openadr import DEFAULT_ZONE
from dp_ensemble_env.dispatch.participants import Participants, participants
from dp_ensemble_env.dispatch.plan import make_plan
from dp_ensemble_env.dispatch.private import PrivateSettings, private_plan
from dp_ensemble_env.dispatch.report import show_plan, write_plan
from dp_ensemble_env.scenarios.metered import MeteredDay, metered_day
from dp_ensemble_env.tools.console import Progress
from dp_ensemble_env.tools.files import check_writable

DESCRIPTION = """Make a dispatch for one event: a shed in kW for every participant, held from start to end.

Meters are one file, a file with several meters, or a folder. Each participant's load is forecast from its own readings
until the notice; give --date of a day in the data, or a later one. The price of the event is --incentive, or the one at
which all together shed the kW of --shed. How much a price sheds is your assumption: --response.

Written: dispatch.csv, dispatch.json, openadr.json (OpenADR 3.1) and dispatch.html, a page for the control room."""
EXAMPLES = (
    "dp-ensemble plan --output runs/plan",
    "dp-ensemble plan --meter meters.csv --date 2024-07-09 --shed 150",
    "dp-ensemble plan --meter folder --privacy gaussian:epsilon=4 --size 500",
)
DAY = ("temperature", "shed-floor", "response")


def build_parser() -> Parser:
    """Declare the options."""
    parser = Parser(prog="dp-ensemble plan", description=DESCRIPTION, examples=EXAMPLES)
    group = parser.add_argument_group("dispatch")
    add_only(group)
    words = "mean power to shed over the event, all together, in kW (default: what --incentive brings)"
    group.add_argument("--shed", dest="target", type=options.positive, metavar="KW", help=words)
    words = "what openadr.json sends: set-points in kW for each, or one price for all"
    group.add_argument("--signal", choices=("setpoint", "price"), default="setpoint", help=words)
    words = "plan as on the day before, without the day's own readings"
    group.add_argument("--day-ahead", action="store_true", help=words)
    group.add_argument("--dollars", action="store_true", help="add energy times price")
    words = "with --privacy: public connection size of a participant in kW"
    group.add_argument("--size", type=options.positive, metavar="KW", help=words)
    words = "with --privacy: add the score on the true meters, which ε does not cover"
    group.add_argument("--show-true", action="store_true", help=words)
    helps = {
        "meter": "meter file, or folder of files; several columns are several participants (default: the campus)",
        "privacy": "compute everything from a release of this mechanism, such as gaussian:epsilon=4",
        "release-seed": "seed of the release; who knows it can remove the noise (default: none)",
    }
    names = (*options.METER, *DAY, *options.EVENT, "levels", "loads", "privacy", "release-seed")
    options.add(parser, *names, "output", helps=helps, output=Path("runs/plan"), release_seed=None)
    return parser


def add_only(group: Any) -> None:
    """Add the choice of participants."""
    words = "participants by name (default: every load of the file or folder)"
    group.add_argument("--only", nargs="+", default=[], metavar="NAME", help=words)


def read_days(known: Participants, monitor: Any, measured: bool) -> dict[str, MeteredDay]:
    """Build the day of every participant; one that cannot be used joins those that were refused."""
    days: dict[str, MeteredDay] = {}
    monitor.stage("forecasting", len(known.used))
    for number, (name, series, event, settings) in enumerate(known.used):
        try:
            day = metered_day(
                series, event, settings.day_settings(measured=measured), temperature=settings.temperatures()
            )
            if day.model.event is None or day.model.event.baseline_kw is None:
                raise ValueError(next(note for note in day.notes if "no customer baseline" in note))
            days[name] = day
        except ValueError as error:
            if len(known.used) == 1 and not known.refused:
                raise
            known.refused[name] = str(error)
        monitor.advance(number + 1)
    return days


def run(args: argparse.Namespace) -> int:
    """Plan, write and print."""
    importlib.import_module("matplotlib")  # learn of a missing extra before the work
    settings = options.problem_settings(args)
    signal = "price" if args.privacy else args.signal
    if args.privacy and args.size is None:
        raise ValueError("--privacy needs the public size of a participant's connection; give --size KW.")
    with Progress("reading") as monitor:
        known = participants(settings, args.only, monitor)
        check_writable(args.output, folder=True)
        days: dict[str, MeteredDay] = {}
        if args.privacy:
            levels = {} if args.levels is None else {"levels": args.levels}
            private = PrivateSettings(
                args.privacy, args.size, seed=args.release_seed, show_true=args.show_true, **levels
            )
            plan = private_plan(known.used, settings.response, private)
        else:
            days = read_days(known, monitor, measured=not args.day_ahead)
            options.say_left_out(
                known.refused, len(known.used) + len(set(known.refused) - {p.name for p in known.used})
            )
            plan = make_plan(days, args.target, settings.response, monitor)
        monitor.stage("drawing")
        zones = {one.name: one.settings.timezone for one in known.used}
        page = write_plan(
            args.output, plan, signal=signal, zones=zones, command=args.command_line, dollars=args.dollars
        )
    options.say(f"The event is on {known.used[0].event.date}" + ("." if args.date else "; pass date=... to choose."))
    options.say_once(
        [*(one.series.notes for one in known.used), *(days[name].notes for name in days if len(days) == 1)]
    )
    if not any(zones.values()):
        options.say(f"Stamps in openadr.json are those of {DEFAULT_ZONE}; pass timezone=... for another zone.")
    show_plan(plan, args.dollars)
    print(f"Page:  {page}\nFiles: {page.parent}/dispatch.csv, dispatch.json, openadr.json")
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run the command."""
    return execute(build_parser, run, argv)
