"""`dp-ensemble backtest`, `plan` and `settle`: forecast, dispatch and settlement of participants' meters."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, make_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import tyro

from dp_ensemble_env.cli.options import COMMAND_LINE, say
from dp_ensemble_env.dispatch import backtest as testing
from dp_ensemble_env.dispatch import settle as settling
from dp_ensemble_env.dispatch.backtest import METHODS, TEST_DAYS, common_days, coverage
from dp_ensemble_env.dispatch.participants import Participant, Participants, participants
from dp_ensemble_env.dispatch.plan import make_plan
from dp_ensemble_env.dispatch.private import PrivateSettings, private_plan
from dp_ensemble_env.dispatch.report import DEFAULT_ZONE, show_plan, write_plan
from dp_ensemble_env.dispatch.settle import EarlierPlan, Programme, Settlement
from dp_ensemble_env.reporting.tables import number_text, plain
from dp_ensemble_env.scenarios.metered import RESPONSE, SHED_FLOOR, MeteredDay, metered_day
from dp_ensemble_env.scenarios.problem import MeterSettings, ProblemSettings
from dp_ensemble_env.tools.console import Monitor, Progress, paragraph, table
from dp_ensemble_env.tools.files import check_writable, write_json
from dp_ensemble_env.tools.validation import check_count, check_positive

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class OnMeters:
    """A command on the meters of several participants, or on the synthetic campus."""

    meter: MeterSettings = MeterSettings()
    only: tuple[str, ...] = ()
    """Participants by name (default: every load in the file or folder)."""
    date: str | None = None
    """Day of the event (default: the first working day from 2 July in the last summer)."""
    window: str | None = None
    """Its hours, such as 11:00-15:00."""
    temperature: str | None = None
    """CSV file of stamps and outdoor temperatures, with a forecast for the event's day."""

    def settings(self, **more: Any) -> ProblemSettings:
        """Return the problem as one set of settings."""
        event = {"date": self.date, "window": self.window, "temperature": self.temperature}
        return ProblemSettings.of(self.meter, **(event | more))

    def say_date(self, known: Participants) -> None:
        """Tell on which day the event is."""
        say(f"The event is on {known.used[0].event.date}" + ("." if self.date else "; choose another day with --date."))


@dataclass(frozen=True, kw_only=True)
class OnMetersBriefly(OnMeters):
    """The same; the help of `dp-ensemble backtest` shows the reading options."""

    @classmethod
    def shown(cls) -> type:
        """Return the command as its help shows it."""
        field: Any = ("meter", Annotated[MeterSettings, tyro.conf.Suppress], MeterSettings())
        return make_dataclass(cls.__name__, [field], bases=(cls,), frozen=True, kw_only=True)


def each(known: Participants, work: Callable[[Participant], T], monitor: Monitor, title: str) -> dict[str, T]:
    """Do the work for each participant; one that cannot be used is refused with the reason, unless it is alone."""
    done: dict[str, T] = {}
    monitor.stage(title, len(known.used))
    for number, one in enumerate(known.used, 1):
        try:
            done[one.name] = work(one)
        except ValueError as error:
            if len(known.used) == 1 and not known.refused:
                raise
            known.refused[one.name] = str(error)
        monitor.advance(number)
    say_left_out(known, len(done))
    return done


def say_left_out(known: Participants, used: int) -> None:
    """Name the meters that cannot be used, with the reason; refuse to go on when none is left."""
    if known.refused and not used:
        one = next(iter(known.refused.values()))
        raise ValueError(f"none of the {len(known.refused)} meters can be used. For one: {one}")
    say(*(f"{name} is left out: {why}" for name, why in known.refused.items()))


def say_notes(known: Participants, made: dict[str, Any]) -> None:
    """Tell what was noted of the meters, and of what was made of a single one."""
    notes = [note for one in known.used for note in one.series.notes]
    say(*notes, *(note for one in made.values() for note in one.notes if len(made) == 1), most=12)


# ------------------------------------------------------------------ backtest
@dataclass(frozen=True, kw_only=True)
class Backtest(OnMeters):
    """Forecast days without an event as if one had been called, and compare with the meter.

    The forecast that follows the day is compared with the customer baseline (best 5 of 10, unadjusted and adjusted to
    the morning) and with persistence (the last reading). No forecast sees its test day beyond the notice. In a file
    with several meters, or a folder, each meter is tested separately.

    Examples
    --------
      dp-ensemble backtest
      dp-ensemble backtest --meter meter.csv --unit kWh --stamp start
      dp-ensemble backtest --meter meters.csv --window 14:00-18:00 --json x.json
    """

    days: int = TEST_DAYS
    """Number of most recent test days."""
    date: str | None = None
    """Test on days like this one and before it (default: weekdays up to the end of the data)."""
    json: Path | None = None
    """Write the errors to this file as well."""

    def run(self) -> int:
        """Test, print and write."""
        check_count(self.days, "--days", 1, 10_000)
        with Progress("reading") as monitor:
            known = participants(self.settings(), self.only, monitor)

            def test(one: Participant) -> testing.Backtest:
                return testing.backtest(
                    one.series,
                    one.event,
                    one.settings.day_settings(),
                    days=self.days,
                    temperature=one.settings.temperatures(),
                    all_days=self.date is None,
                    monitor=monitor if len(known.used) == 1 else None,
                )

            results = each(known, test, monitor, "testing")
        say_notes(known, results)
        show_backtests(results)
        if self.json is not None:
            write_json(self.json, {name: result.to_dict() for name, result in results.items()})
        return 0


def show_backtests(results: dict[str, testing.Backtest]) -> None:
    """Print one table for one meter, or a line for each of several."""
    several = list(results.values())
    if len(several) == 1:
        ((name, one),) = results.items()
        rows = [[m, f"{one.error(m):.1f}", f"{one.bias(m):+.1f}", f"{one.bias_kwh(m):+,.0f}"] for m in METHODS]
        title = f"{name}: {len(one.days)} days without an event, {one.days[0]} to {one.days[-1]}"
        table(title, ("forecast", "error, %", "bias, %", "bias, kWh an event"), rows)
    else:
        rows = [[name, f"{len(r.days)}", *(f"{r.error(m):.1f}" for m in METHODS)] for name, r in results.items()]
        table("Error in % of the mean load", ("meter", "days", *METHODS), rows)
    told = "Error: mean absolute difference from the meter in the event's hours, as a percentage of the mean load."
    if len(several) == 1:
        told += " Bias: mean of forecast minus meter; a positive bias is energy credited for doing nothing."
    paragraph(told)
    shares = [("each meter" if len(several) > 1 else "the meter", coverage(several))]
    if len(several) > 1:
        below = sum(r.error(METHODS[0]) <= r.error("baseline, adjusted") for r in several)
        paragraph(
            f"For {below} of {len(several)} meters the forecast that follows the day is at least as accurate as the "
            "adjusted baseline."
        )
        if total := coverage(several, together=True):
            shares.append((f"sum, {len(common_days(several))} days", total))
    inside = [[name, *(f"{share:.0f}" for share in by.values())] for name, by in shares]
    table("\nTest days inside the 90 % range, %", ("range for", *shares[0][1]), inside)


# ------------------------------------------------------------------ plan
@dataclass(frozen=True, kw_only=True)
class Plan(OnMetersBriefly):
    """Make a dispatch for one event: a shed in kW for every participant, held from start to end.

    --meter takes a file of one or several meters, or a folder; `dp-ensemble backtest --help` lists the reading options,
    such as --unit and --stamp. Each load is forecast from its own readings until the notice, for a --date in the data
    or in the week after it. Set the price with --incentive, or the total with --shed. --response is your assumption on
    how loads respond to the price.

    Writes dispatch.csv, dispatch.json, openadr.json (OpenADR 3.1) and dispatch.html, a page for the control room.

    Examples
    --------
      dp-ensemble plan --output runs/plan
      dp-ensemble plan --meter meters.csv --date 2024-07-09 --shed 150
      dp-ensemble plan --meter folder --privacy gaussian:epsilon=4 --size 500
    """

    shed: float | None = None
    """Total mean power to shed during the event, in kW (default: the result of --incentive)."""
    incentive: float | None = None
    """Dollars per kWh during the event (default: 1)."""
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
    """Signal in openadr.json: set-points in kW for each participant, or one price for all."""
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
        self.check()
        check_writable(self.output, folder=True)
        names = ("incentive", "tariff", "response", "shed_floor", "profile", "loads", "levels")
        settings = self.settings(**{name: getattr(self, name) for name in names})
        days: dict[str, MeteredDay] = {}
        with Progress("reading") as monitor:
            known = participants(settings, self.only, monitor, dead=self.privacy is not None)
            if self.privacy is not None and self.size is not None:
                how: dict[str, Any] = {"seed": self.release_seed, "show_true": self.show_true}
                how |= {} if self.levels is None else {"levels": self.levels}
                plan = private_plan(known.used, self.response, PrivateSettings(self.privacy, self.size, **how))
                say_left_out(known, len(known.used))
            else:
                days = each(known, self.read_day, monitor, "forecasting")
                plan = make_plan(days, self.shed, self.response, monitor)
            monitor.stage("drawing")
            zones = {one.name: one.settings.timezone for one in known.used}
            signal = self.signal if self.privacy is None else "price"
            page = write_plan(
                self.output, plan, signal=signal, zones=zones, dollars=self.dollars, command=COMMAND_LINE.get()
            )
        self.say_date(known)
        if self.privacy is None:
            say_notes(known, days)
        if not any(zones.values()):
            say(f"Stamps in openadr.json are in {DEFAULT_ZONE}; pass --timezone for another one.")
        show_plan(plan, self.dollars)
        print(f"Page:  {page}\nFiles: {page.parent}/dispatch.csv, dispatch.json, openadr.json")
        return 0

    def read_day(self, one: Participant) -> MeteredDay:
        """Build the day of a participant."""
        how = one.settings.day_settings(measured=not self.day_ahead)
        day = metered_day(one.series, one.event, how, temperature=one.settings.temperatures())
        if day.model.event is None or day.model.event.baseline_kw is None:
            raise ValueError(next(note for note in day.notes if "no customer baseline" in note))
        return day

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


# ------------------------------------------------------------------ settle
@dataclass(frozen=True, kw_only=True)
class Settle(OnMetersBriefly):
    """Settle an event from the metered day: energy delivered against the customer baseline, and payment.

    The baseline follows the rules of the programme; the table shows it unadjusted and adjusted to the morning of the
    day. With --plan, date, hours and set-points come from the plan. The JSON file is for audits: every interval, the
    days of the baseline, the reason for each excluded day, the adjustment, and flags on the data.

    `dp-ensemble backtest --help` lists --meter and the other reading options.

    Examples
    --------
      dp-ensemble settle --contracted-kw 2000
      dp-ensemble settle --meter meters.csv --plan runs/plan
      dp-ensemble settle --meter meter.csv --date 2024-07-09 --json settled.json
    """

    plan: Path | None = None
    """Folder or dispatch.json of dp-ensemble plan."""
    programme: str = "csrp"
    """Programme whose rules apply: csrp, dlrp, ten-of-ten, or a TOML file of your own."""
    contracted_kw: float | None = None
    """Power contracted with the programme, in kW; without a contract there is no performance factor."""
    adjustment: Literal["none", "weather"] | None = None
    """Adjustment of the baseline, none for unadjusted (default: as in the programme)."""
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
        earlier = settling.read_plan(self.plan)
        for name, value in (("date", earlier.date), ("window", earlier.window)):
            if getattr(self, name) not in (None, value):
                raise ValueError(f"--{name} {getattr(self, name)} differs from the plan ({value}); leave it out.")
        return replace(self, date=earlier.date, window=earlier.window).settle(earlier)

    def settle(self, earlier: EarlierPlan | None) -> int:
        """Settle the day, which a plan may have fixed."""
        terms = settling.programme(self.programme)
        if self.contracted_kw is not None:
            check_positive(self.contracted_kw, "--contracted-kw")
        with Progress("reading") as monitor:
            known = participants(self.settings(profile=self.profile, loads=self.loads), self.only, monitor)
            by_name = each(known, lambda one: self.settle_one(one, terms, earlier), monitor, "settling")
        self.say_date(known)
        say_notes(known, by_name)
        settled = list(by_name.values())
        total = settling.add_up(settled) if len(settled) > 1 else settled[0]
        adjusted = terms.adjusted if self.adjustment is None else self.adjustment == "weather"
        against = "adjusted" if adjusted else "baseline"
        if np.isnan(total.energy(against)):
            raise ValueError("there is no adjusted baseline, as the morning was not metered; pass --adjustment none.")
        mean = total.delivered(against) / total.hours
        money = {"against": against, **settling.payment(mean, total.hours, terms, self.contracted_kw)}
        show_settlements(settled, total, terms, money)
        if self.json is not None:
            content = {
                "participants": [one.to_dict() for one in settled],
                "total": total.to_dict(),
                "programme": vars(terms),
                "money": {name: plain(value) for name, value in money.items()},
            }
            write_json(self.json, content)
        return 0

    def settle_one(self, one: Participant, terms: Programme, earlier: EarlierPlan | None) -> Settlement:
        """Settle a participant, against its part in a plan if there is one."""
        planned = None
        if earlier is not None:
            if one.name not in earlier.setpoints:
                raise ValueError("it has no part in the plan.")
            planned = np.array(earlier.setpoints[one.name])
            if len(planned) != int(one.event.timeline().in_event.sum()):
                raise ValueError("the plan has intervals of another length; settle with the meters of the plan.")
        day, warm = one.settings.day_settings(), one.settings.temperatures()
        return settling.settle(one.name, one.series, one.event, day, terms, planned=planned, temperature=warm)


def show_settlements(settled: list[Settlement], total: Settlement, terms: Programme, money: dict[str, Any]) -> None:
    """Print energies and money."""
    headings = ["participant", "baseline, kWh", "metered, kWh", "delivered, kWh", "adjusted, kWh", "by forecast, kWh"]
    rows = []
    for one in settled:
        energies = [one.energy("baseline"), one.energy("metered"), one.delivered("baseline"), one.delivered("adjusted")]
        rows.append([one.name, *(number_text(x, 0) for x in (*energies, one.delivered("forecast")))])
    told = (
        "Delivered: baseline minus metered. Adjusted: the same with the baseline scaled to the morning of the day. By "
        "forecast: the same with the forecast made at the notice."
    )
    if not np.isnan(total.planned).any():
        headings.append("plan error, %")
        rows = [[*row, number_text(one.off("planned"), 1)] for row, one in zip(rows, settled, strict=True)]
        told += " Plan error: mean absolute difference between set-points and meter."
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
