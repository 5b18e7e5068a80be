"""`dp-ensemble settle`: what an event delivered, and what it pays."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from dp_ensemble_env.cli import old_options as options
from dp_ensemble_env.cli.plan import add_only
from dp_ensemble_env.cli.shell import Parser, execute
from dp_ensemble_env.dispatch.participants import participants
from dp_ensemble_env.dispatch.programmes import Programme, programme
from dp_ensemble_env.dispatch.settle import EarlierPlan, Settlement, add_up, payment, read_plan, settle
from dp_ensemble_env.reporting.tables import plain, show_table, show_text
from dp_ensemble_env.tools.console import Progress
from dp_ensemble_env.tools.files import atomic_write

DESCRIPTION = """Settle an event from the metered day: energy delivered against the customer baseline, performance
factor, payment, and how far plan and forecast were off.

The baseline follows the rules of the programme; it is shown unadjusted and adjusted to the morning of the day. With
--plan, date, hours and set-points are those of the plan. The JSON file holds what an audit needs: every interval, the
days behind the baseline and the reasons of the others, the adjustment, and flags on the data."""
EXAMPLES = (
    "dp-ensemble settle --contracted-kw 2000",
    "dp-ensemble settle --meter meters.csv --plan runs/plan",
    "dp-ensemble settle --meter meter.csv --date 2024-07-09 --json settled.json",
)


def build_parser() -> Parser:
    """Declare the options."""
    parser = Parser(prog="dp-ensemble settle", description=DESCRIPTION, examples=EXAMPLES)
    words = "folder or dispatch.json of dp-ensemble plan (default: none)"
    parser.add_argument("--plan", type=Path, metavar="FOLDER", help=words)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the settlement there as well")
    add_only(parser)
    words = "whose rules settle: csrp, dlrp, ten-of-ten, or a TOML file of your own"
    parser.add_argument("--programme", default="csrp", metavar="NAME", help=words)
    words = "kW contracted with the programme (default: no contract, so no performance factor)"
    parser.add_argument("--contracted-kw", type=options.positive, metavar="KW", help=words)
    words = "which baseline settles: none is unadjusted (default: what the programme says)"
    parser.add_argument("--adjustment", choices=("none", "weather"), help=words)
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
    terms = programme(args.programme)
    with Progress("reading") as monitor:
        found = _settle_all(args, terms, earlier, monitor)
    total = add_up(found) if len(found) > 1 else found[0]
    adjusted = terms.adjusted if args.adjustment is None else args.adjustment == "weather"
    against = "adjusted" if adjusted else "baseline"
    if np.isnan(total.energy(against)):
        raise ValueError("there is no adjusted baseline, as the morning was not metered; pass adjustment='none'.")
    money = payment(total, terms, args.contracted_kw, against)
    show(found, total, terms, money)
    if args.json is not None:
        content = {
            "participants": [one.to_dict() for one in found],
            "total": total.to_dict(),
            "programme": vars(terms),
            "money": {name: plain(value) for name, value in money.items()},
        }
        with atomic_write(args.json) as stream:
            json.dump(content, stream, indent=1)
            stream.write("\n")
    return 0


def _settle_all(
    args: argparse.Namespace, terms: Programme, earlier: EarlierPlan | None, monitor: Any
) -> list[Settlement]:
    known = participants(options.problem_settings(args), args.only, monitor)
    settled: list[Settlement] = []
    monitor.stage("settling", len(known.used))
    for number, (name, series, event, settings) in enumerate(known.used):
        try:
            if earlier is not None and name not in earlier.setpoints:
                raise ValueError("it has no part in the plan.")
            planned = None if earlier is None else np.array(earlier.setpoints[name])
            if planned is not None and len(planned) != int(event.timeline().in_event.sum()):
                raise ValueError("the plan has intervals of another length; settle with the meters it was made on.")
            warm = settings.temperatures()
            settled.append(
                settle(name, series, event, settings.day_settings(), terms, planned=planned, temperature=warm)
            )
        except ValueError as error:
            if len(known.used) == 1:
                raise
            known.refused[name] = str(error)
        monitor.advance(number + 1)
    options.say_left_out(known.refused, len(settled) + len(known.refused))
    date = known.used[0].event.date
    found = settled
    options.say(f"The event is on {date}" + ("." if args.date else "; pass date=... to choose."))
    options.say_once([*(one.series.notes for one in known.used), *(one.notes for one in found if len(found) == 1)])
    return found


def show(found: list[Settlement], total: Settlement, terms: Programme, money: dict[str, Any]) -> None:
    """Print energies and money."""
    rows = []
    for one in found:
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
    if len(found) > 1:
        show_text(
            f"All {len(found)} together: {total.energy('baseline'):,.0f} kWh baseline, {total.energy('metered'):,.0f} "
            f"kWh metered, {total.delivered():,.0f} kWh delivered, {total.delivered('adjusted'):,.0f} kWh adjusted."
        )
    which = "adjusted" if money["against"] == "adjusted" else "unadjusted"
    contract = (
        f"of {money['contracted_kw']:,.0f} kW contracted, performance factor {money['performance_factor']:.2f}"
        if money["contracted_kw"] is not None
        else "without a contract, so for energy alone"
    )
    show_text(
        f"{terms.name}, {which} baseline: {money['delivered_kw']:,.0f} kW delivered on average {contract}. A month "
        f"with this event pays ${money['payment']:,.2f}: ${money['reservation_payment']:,.2f} for the reservation and "
        f"${money['energy_payment']:,.2f} for energy."
    )


OFF = ("planned", "forecast")


def _share(one: Settlement) -> Any:
    return lambda which: "-" if np.isnan(one.off(which)) else f"{one.off(which):.1f}"


def main(argv: list[str] | None = None) -> int:
    """Run the command."""
    return execute(build_parser, run, argv)
