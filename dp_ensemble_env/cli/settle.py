"""`dp-ensemble settle`: what an event delivered, and what it pays."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dp_ensemble_env.cli.options import OnMetersBriefly, say, say_left_out
from dp_ensemble_env.dispatch.participants import participants
from dp_ensemble_env.dispatch.settle import (
    EarlierPlan,
    Programme,
    Settlement,
    add_up,
    payment,
    programme,
    read_plan,
    settle,
)
from dp_ensemble_env.reporting.tables import plain
from dp_ensemble_env.tools.console import Monitor, Progress, paragraph, table
from dp_ensemble_env.tools.files import atomic_write
from dp_ensemble_env.tools.validation import check_positive


@dataclass(frozen=True, kw_only=True)
class Settle(OnMetersBriefly):
    """Settle an event from the metered day: energy delivered against the customer baseline, and payment.

    The baseline follows the rules of the programme; it is shown unadjusted and adjusted to the morning of the day. With
    --plan, date, hours and set-points come from the plan. The JSON file holds what an audit needs: every interval,
    the days behind the baseline and the reasons of the others, the adjustment, and flags on the data.

    dp-ensemble backtest --help lists --meter and the options that say how files are read.

    Examples
    --------
      dp-ensemble settle --contracted-kw 2000
      dp-ensemble settle --meter meters.csv --plan runs/plan
      dp-ensemble settle --meter meter.csv --date 2024-07-09 --json settled.json
    """

    plan: Path | None = None
    """Folder or dispatch.json of dp-ensemble plan."""
    programme: str = "csrp"
    """Programme whose rules settle: csrp, dlrp, ten-of-ten, or a TOML file of your own."""
    contracted_kw: float | None = None
    """Power contracted with the programme, in kW; without a contract there is no performance factor."""
    adjustment: Literal["none", "weather"] | None = None
    """Baseline that settles, none for unadjusted; as the programme says unless given."""
    profile: Literal["building", "aggregate"] = "building"
    """Whether a meter is one building, or already the sum of all loads."""
    loads: int | None = None
    """Copies of each metered load."""
    json: Path | None = None
    """Write the settlement to this file as well."""

    def run(self) -> int:
        """Settle, print and write."""
        if self.plan is None:
            return self.settle(None)
        earlier = read_plan(self.plan)
        for name, value in (("date", earlier.date), ("window", earlier.window)):
            if getattr(self, name) not in (None, value):
                raise ValueError(f"--{name} {getattr(self, name)} differs from the plan ({value}); leave it out.")
        return replace(self, date=earlier.date, window=earlier.window).settle(earlier)

    def settle(self, earlier: EarlierPlan | None) -> int:
        """Settle the day, which a plan may have fixed."""
        terms = programme(self.programme)
        if self.contracted_kw is not None:
            check_positive(self.contracted_kw, "--contracted-kw")
        with Progress("reading") as monitor:
            settled = self.settle_all(terms, earlier, monitor)
        total = add_up(settled) if len(settled) > 1 else settled[0]
        adjusted = terms.adjusted if self.adjustment is None else self.adjustment == "weather"
        against = "adjusted" if adjusted else "baseline"
        if np.isnan(total.energy(against)):
            raise ValueError("there is no adjusted baseline, as the morning was not metered; pass adjustment='none'.")
        mean = total.delivered(against) / total.hours
        money = {"against": against, **payment(mean, total.hours, terms, self.contracted_kw)}
        show(settled, total, terms, money)
        if self.json is not None:
            content = {
                "participants": [one.to_dict() for one in settled],
                "total": total.to_dict(),
                "programme": vars(terms),
                "money": {name: plain(value) for name, value in money.items()},
            }
            with atomic_write(self.json) as stream:
                json.dump(content, stream, indent=1)
                stream.write("\n")
        return 0

    def settle_all(self, terms: Programme, earlier: EarlierPlan | None, monitor: Monitor) -> list[Settlement]:
        """Settle every participant that can be settled, and say who is left out."""
        known = participants(self.settings(profile=self.profile, loads=self.loads), self.only, monitor)
        settled: list[Settlement] = []
        monitor.stage("settling", len(known.used))
        for number, (name, series, event, settings) in enumerate(known.used):
            try:
                if earlier is not None and name not in earlier.setpoints:
                    raise ValueError("it has no part in the plan.")
                planned = None if earlier is None else np.array(earlier.setpoints[name])
                if planned is not None and len(planned) != int(event.timeline().in_event.sum()):
                    raise ValueError("the plan has intervals of another length; settle with the meters of the plan.")
                day, warm = settings.day_settings(), settings.temperatures()
                settled.append(settle(name, series, event, day, terms, planned=planned, temperature=warm))
            except ValueError as error:
                if len(known.used) == 1:
                    raise
                known.refused[name] = str(error)
            monitor.advance(number + 1)
        say_left_out(known.refused, len(settled))
        say(f"The event is on {known.used[0].event.date}" + ("." if self.date else "; pass date=... to choose."))
        say(*(note for one in known.used for note in one.series.notes),
            *(note for one in settled for note in one.notes if len(settled) == 1), most=12)  # fmt: skip
        return settled


def show(settled: list[Settlement], total: Settlement, terms: Programme, money: dict[str, Any]) -> None:
    """Print energies and money."""
    headings = ["participant", "baseline, kWh", "metered, kWh", "delivered, kWh", "adjusted, kWh", "by forecast, kWh"]
    rows = []
    for one in settled:
        energies = [one.energy("baseline"), one.energy("metered"), one.delivered("baseline"), one.delivered("adjusted")]
        rows.append([one.name, *(_number(x, 0) for x in (*energies, one.delivered("forecast")))])
    told = (
        "Delivered: baseline less metered. Adjusted: the same for the baseline scaled to the morning of the day. By "
        "forecast: the same for the forecast of the load without an event, made at the notice."
    )
    if not np.isnan(total.planned).any():
        headings.append("plan off, %")
        rows = [[*row, _number(one.off("planned"), 1)] for row, one in zip(rows, settled, strict=True)]
        told += " Plan off: mean absolute difference of set-points and meter."
    table("Energy in the event", headings, rows)
    paragraph(told)
    if len(settled) > 1:
        paragraph(
            f"All {len(settled)} together: {total.energy('baseline'):,.0f} kWh baseline, "
            f"{total.energy('metered'):,.0f} kWh metered, {total.delivered():,.0f} kWh delivered, "
            f"{total.delivered('adjusted'):,.0f} kWh adjusted."
        )
    which = "adjusted" if money["against"] == "adjusted" else "unadjusted"
    contract = (
        f"of {money['contracted_kw']:,.0f} kW contracted, performance factor {money['performance_factor']:.2f}"
        if money["contracted_kw"] is not None
        else "without a contract, so for energy alone"
    )
    paragraph(
        f"{terms.name}, {which} baseline: {money['delivered_kw']:,.0f} kW delivered on average {contract}. A month "
        f"with this event pays ${money['payment']:,.2f}: ${money['reservation_payment']:,.2f} for the reservation and "
        f"${money['energy_payment']:,.2f} for energy."
    )


def _number(value: float, digits: int) -> str:
    return "-" if np.isnan(value) else f"{value:,.{digits}f}"
