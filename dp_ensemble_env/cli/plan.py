"""`dp-ensemble plan`: from meters to a dispatch."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dp_ensemble_env.cli.options import COMMAND_LINE, OnMetersBriefly, say, say_left_out
from dp_ensemble_env.dispatch.openadr import DEFAULT_ZONE
from dp_ensemble_env.dispatch.participants import Participants, participants
from dp_ensemble_env.dispatch.plan import make_plan
from dp_ensemble_env.dispatch.private import PrivateSettings, private_plan
from dp_ensemble_env.dispatch.report import show_plan, write_plan
from dp_ensemble_env.scenarios.metered import RESPONSE, SHED_FLOOR, MeteredDay, metered_day
from dp_ensemble_env.tools.console import Monitor, Progress
from dp_ensemble_env.tools.files import check_writable


@dataclass(frozen=True, kw_only=True)
class Plan(OnMetersBriefly):
    """Make a dispatch for one event: a shed in kW for every participant, held from start to end.

    Meters are one file, a file with several meters, or a folder: --meter. `dp-ensemble backtest --help` lists the
    options that say how files are read, such as --unit and --stamp. Each participant's load is forecast from its own
    readings until the notice; give --date of a day in the data, or of the week after it. The price of the event is
    --incentive, or the one at which all together shed the kW of --shed. How much a price sheds is your assumption:
    --response.

    Written: dispatch.csv, dispatch.json, openadr.json (OpenADR 3.1) and dispatch.html, a page for the control room.

    Examples
    --------
      dp-ensemble plan --output runs/plan
      dp-ensemble plan --meter meters.csv --date 2024-07-09 --shed 150
      dp-ensemble plan --meter folder --privacy gaussian:epsilon=4 --size 500
    """

    shed: float | None = None
    """Mean power to shed over the event, all together, in kW; what --incentive brings unless given."""
    incentive: float | None = None
    """Dollars per kWh during the event; 1 unless given."""
    tariff: float | str | None = None
    """Energy price in dollars per kWh, or a CSV file of prices."""
    response: float = RESPONSE
    """Share of the energy that an event of $1 per kWh sheds."""
    shed_floor: float = SHED_FLOOR
    """Never push a load below this percentile of its occupied hours."""
    profile: Literal["building", "aggregate"] = "building"
    """Whether a meter is one building, or already the sum of all loads."""
    loads: int | None = None
    """Copies of each metered load."""
    levels: int | None = None
    """Number of power levels."""
    day_ahead: bool = False
    """Plan as on the day before, without the day's own readings."""
    signal: Literal["setpoint", "price"] = "setpoint"
    """What openadr.json sends: set-points in kW for each, or one price for all."""
    dollars: bool = False
    """Add energy times price."""
    privacy: str | None = None
    """Compute everything from a release of this mechanism, such as gaussian:epsilon=4."""
    size: float | None = None
    """With --privacy, public connection size of a participant in kW."""
    release_seed: int | None = None
    """Seed of the release; anyone who knows it can remove the noise."""
    show_true: bool = False
    """With --privacy, add the score on the true meters, which ε does not cover."""
    output: Path = Path("runs/plan")
    """Folder to write to."""

    def run(self) -> int:
        """Plan, write and print."""
        importlib.import_module("matplotlib")  # learn of a missing extra before the work
        names = ("incentive", "tariff", "response", "shed_floor", "profile", "loads", "levels")
        settings = self.settings(**{name: getattr(self, name) for name in names})
        days: dict[str, MeteredDay] = {}
        with Progress("reading") as monitor:
            self.check()
            check_writable(self.output, folder=True)
            known = participants(settings, self.only, monitor, dead=self.privacy is not None)
            if self.privacy is not None and self.size is not None:
                levels = {} if self.levels is None else {"levels": self.levels}
                how = PrivateSettings(
                    self.privacy, self.size, seed=self.release_seed, show_true=self.show_true, **levels
                )
                plan = private_plan(known.used, self.response, how)
            else:
                days = read_days(known, monitor, measured=not self.day_ahead)
                say_left_out(known.refused, len(days))
                plan = make_plan(days, self.shed, self.response, monitor)
            monitor.stage("drawing")
            zones = {one.name: one.settings.timezone for one in known.used}
            signal = self.signal if self.privacy is None else "price"
            page = write_plan(
                self.output, plan, signal=signal, zones=zones, dollars=self.dollars, command=COMMAND_LINE.get()
            )
        if self.privacy is not None:
            say_left_out(known.refused, len(known.used))
        say(f"The event is on {known.used[0].event.date}" + ("." if self.date else "; pass date=... to choose."))
        say(*(note for one in known.used for note in one.series.notes if self.privacy is None),
            *(note for day in days.values() for note in day.notes if len(days) == 1), most=12)  # fmt: skip
        if not any(zones.values()):
            say(f"Stamps in openadr.json are in {DEFAULT_ZONE}; pass timezone=... for another zone.")
        show_plan(plan, self.dollars)
        print(f"Page:  {page}\nFiles: {page.parent}/dispatch.csv, dispatch.json, openadr.json")
        return 0

    def check(self) -> None:
        """Refuse options that a private plan cannot follow."""
        if self.privacy is None:
            return
        if self.size is None:
            raise ValueError("--privacy needs the public size of a participant's connection; give --size KW.")
        for name in ("shed", "temperature", "shed_floor", "profile", "loads", "day_ahead"):
            if getattr(self, name) != getattr(type(self), name):
                raise ValueError(
                    f"--{name.replace('_', '-')} would need the readings, and a private plan is computed from the "
                    "release alone; leave it out, or leave --privacy out."
                )


def read_days(known: Participants, monitor: Monitor, measured: bool) -> dict[str, MeteredDay]:
    """Build the day of every participant; one that cannot be used joins those that were refused."""
    days: dict[str, MeteredDay] = {}
    monitor.stage("forecasting", len(known.used))
    for number, (name, series, event, settings) in enumerate(known.used):
        try:
            how = settings.day_settings(measured=measured)
            day = metered_day(series, event, how, temperature=settings.temperatures())
            if day.model.event is None or day.model.event.baseline_kw is None:
                raise ValueError(next(note for note in day.notes if "no customer baseline" in note))
            days[name] = day
        except ValueError as error:
            if len(known.used) == 1 and not known.refused:
                raise
            known.refused[name] = str(error)
        monitor.advance(number + 1)
    return days
