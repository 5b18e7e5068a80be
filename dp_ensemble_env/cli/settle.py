"""`dp-ensemble settle`: what an event delivered, and what it pays."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from dp_ensemble_env.cli import old_options as options
from dp_ensemble_env.cli.plan import add_programme, programme_of
from dp_ensemble_env.cli.shell import Parser, execute
from dp_ensemble_env.experiments.participants import participants
from dp_ensemble_env.experiments.settlement import EarlierPlan, Settlement, add_up, payment, read_plan, settle
from dp_ensemble_env.programme import ReliefProgramme
from dp_ensemble_env.reporting.tables import plain, show_table, show_text
from dp_ensemble_env.tools.console import Progress
from dp_ensemble_env.tools.files import atomic_write

DESCRIPTION = """Settle an event from the metered day: energy delivered against the customer baseline, performance
factor, payment, and how far plan and forecast were off.

The baseline is the mean of the best 5 of the 10 similar days before; it is shown unadjusted and adjusted to the morning
of the day. With --plan, date and hours, pledge and set-points are those of the plan."""
EXAMPLES = (
    "dp-ensemble settle --pledge 2000",
    "dp-ensemble settle --meter meters.csv --plan runs/plan",
    "dp-ensemble settle --meter meter.csv --date 2024-07-09 --json settled.json",
)


def build_parser() -> Parser:
    """Declare the options."""
    parser = Parser(prog="dp-ensemble settle", description=DESCRIPTION, examples=EXAMPLES)
    words = "folder or dispatch.json of dp-ensemble plan (default: none)"
    parser.add_argument("--plan", type=Path, metavar="FOLDER", help=words)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the settlement there as well")
    add_programme(parser)
    helps = {
        "meter": "meter file, or folder of files; several columns are several participants (default: the campus)",
    }
    options.add(parser, *options.METER, "temperature", "date", "window", "loads", helps=helps)
    return parser


def run(args: argparse.Namespace) -> int:
    """Settle, print and write."""
    earlier = None if args.plan is None else read_plan(args.plan)
    if earlier is not None:
        for name, value in (("date", earlier.date), ("window", earlier.window)):
            if getattr(args, name) not in (None, value):
                raise ValueError(f"--{name} {getattr(args, name)} is not that of the plan ({value}); leave it out.")
            setattr(args, name, value)
    with Progress("reading") as monitor:
        found = _settle_all(args, earlier, monitor)
    programme = programme_of(args)
    pledge = args.pledge if args.pledge is not None else (earlier.pledge_kw if earlier else None)
    total = add_up(found) if len(found) > 1 else found[0]
    against = "adjusted" if args.adjustment == "weather" else "baseline"
    if np.isnan(total.energy(against)):
        raise ValueError("there is no adjusted baseline, as the morning was not metered; pass adjustment='none'.")
    if pledge is None:
        pledge = max(total.delivered(against) / total.hours, 0.0)
        options.say("Without a pledge, what was delivered counts as pledged; pass pledge=... for yours.")
    money = payment(total, programme, pledge, against)
    show(found, total, programme, money, against)
    if args.json is not None:
        content = {
            "participants": [one.to_dict() for one in found],
            "total": total.to_dict(),
            "programme": vars(programme),
            "against": against,
            "money": {name: plain(value) for name, value in money.items()},
        }
        with atomic_write(args.json) as stream:
            json.dump(content, stream, indent=1)
            stream.write("\n")
    return 0


def _settle_all(args: argparse.Namespace, earlier: EarlierPlan | None, monitor: Any) -> list[Settlement]:
    readings = participants(options.problem_settings(args))
    found: list[Settlement] = []
    refused: dict[str, str] = {}
    date = None
    monitor.stage("settling", len(readings))
    for number, reading in enumerate(readings):
        if earlier is not None and reading.name not in earlier.setpoints:
            refused[reading.name] = "it has no part in the plan."
            continue
        try:
            name, series, settings = reading.read()
            event = settings.event(series)
            date = date or event.date
            if event.date != date:
                raise ValueError(f"its event would be on {event.date}, that of the others is on {date}; give date=...")
            planned = None if earlier is None else np.array(earlier.setpoints[name])
            if planned is not None and len(planned) != int(event.timeline().in_event.sum()):
                raise ValueError("the plan has intervals of another length; settle with the meters it was made on.")
            found.append(
                settle(
                    name, series, event, settings.day_settings(), planned=planned, temperature=settings.temperatures()
                )
            )
        except ValueError as error:
            if len(readings) == 1:
                raise
            refused[reading.name] = str(error)
        monitor.advance(number + 1)
    options.say_left_out(refused, len(readings))
    options.say(f"The event is on {date}" + ("." if args.date else "; pass date=... to choose."))
    for one in found if len(found) == 1 else ():
        for note in one.notes:
            options.say(note)
    return found


def show(
    found: list[Settlement], total: Settlement, programme: ReliefProgramme, money: dict[str, float], against: str
) -> None:
    """Print energies and money."""
    rows = []
    for one in (*found, *((total,) if len(found) > 1 else ())):
        numbers = [one.energy("baseline"), one.energy("metered"), one.delivered("baseline"), one.delivered("adjusted")]
        numbers.append(one.delivered("forecast"))
        rows.append([one.name, *("-" if np.isnan(n) else f"{n:,.0f}" for n in numbers), *map(_share(one), OFF)])
    headings = ("participant", "baseline, kWh", "metered, kWh", "delivered, kWh", "adjusted, kWh", "by forecast, kWh")
    show_table("Energy in the event", (*headings, "plan off, %", "forecast off, %"), rows, left=("participant",))
    show_text(
        "Delivered: baseline less metered; adjusted: the baseline scaled to the morning of the day; by forecast: what "
        "the load would have drawn by the forecast made at the notice, less metered. Off: mean absolute difference "
        "from the meter. The forecast is of the load without an event."
    )
    which = "adjusted" if against == "adjusted" else "unadjusted"
    show_text(
        f"{programme.name}, {which} baseline: {money['delivered_kw']:,.0f} kW delivered on average of "
        f"{money['pledge_kw']:,.0f} kW pledged, performance factor {money['performance_factor']:.2f}. A month with "
        f"this event pays ${money['payment']:,.2f}: ${money['reservation_payment']:,.2f} for the reservation and "
        f"${money['energy_payment']:,.2f} for energy."
    )


OFF = ("planned", "forecast")


def _share(one: Settlement) -> Any:
    return lambda which: "-" if np.isnan(one.off(which)) else f"{one.off(which):.1f}"


def main(argv: list[str] | None = None) -> int:
    """Run the command."""
    return execute(build_parser, run, argv)
