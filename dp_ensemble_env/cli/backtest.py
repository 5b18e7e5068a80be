"""`dp-ensemble backtest`: how well the uncontrolled load is forecast."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from dp_ensemble_env.cli.options import OnMeters, say, say_left_out
from dp_ensemble_env.dispatch import backtest as tested
from dp_ensemble_env.dispatch.backtest import METHODS, TEST_DAYS, common_days, coverage
from dp_ensemble_env.dispatch.participants import participants
from dp_ensemble_env.tools.console import Progress, paragraph, table
from dp_ensemble_env.tools.files import atomic_write
from dp_ensemble_env.tools.validation import check_count


@dataclass(frozen=True, kw_only=True)
class Backtest(OnMeters):
    """Forecast days without an event as if one had been called, and compare with what was metered.

    The forecast that follows the day stands beside the customer baseline (best 5 of 10, unadjusted and adjusted to the
    morning) and persistence (the last reading). No forecast sees its test day beyond the notice. A file with several
    meters, or a folder, is tested meter by meter.

    Examples
    --------
      dp-ensemble backtest
      dp-ensemble backtest --meter meter.csv --unit kWh --stamp start
      dp-ensemble backtest --meter meters.csv --window 14:00-18:00 --json x.json
    """

    days: int = TEST_DAYS
    """Number of most recent test days."""
    date: str | None = None
    """Test on days like this one and before it; weekdays to the end of the data unless given."""
    json: Path | None = None
    """Write the errors to this file as well."""

    def run(self) -> int:
        """Test, print and write."""
        check_count(self.days, "--days", 1, 10_000)
        results: dict[str, tested.Backtest] = {}
        with Progress("reading") as monitor:
            known = participants(self.settings(), self.only, monitor)
            for name, series, event, settings in known.used:
                monitor.stage(name)
                try:
                    results[name] = tested.backtest(
                        series,
                        event,
                        settings.day_settings(),
                        days=self.days,
                        temperature=settings.temperatures(),
                        all_days=self.date is None,
                        monitor=monitor,
                    )
                except ValueError as error:
                    if len(known.used) == 1:
                        raise
                    known.refused[name] = str(error)
        say_left_out(known.refused, len(results))
        say(*(note for one in known.used for note in one.series.notes),
            *(note for result in results.values() for note in result.notes if len(results) == 1), most=12)  # fmt: skip
        show(results)
        if self.json is not None:
            with atomic_write(self.json) as stream:
                json.dump({name: result.to_dict() for name, result in results.items()}, stream, indent=1)
                stream.write("\n")
        return 0


def show(results: dict[str, tested.Backtest]) -> None:
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
    told = "Error: mean absolute difference from the metered power in the event's hours, in per cent of the mean load."
    if len(several) == 1:
        told += " Bias: mean of forecast less metered; a positive bias is energy credited for doing nothing."
    paragraph(told)
    shares = [("each meter" if len(several) > 1 else "the meter", coverage(several))]
    if len(several) > 1:
        below = sum(r.error(METHODS[0]) <= r.error("baseline, adjusted") for r in several)
        paragraph(
            f"The forecast that follows the day errs no more than the adjusted baseline for {below} of {len(several)} "
            "meters."
        )
        if total := coverage(several, together=True):
            shares.append((f"sum, {len(common_days(several))} days", total))
    inside = [[name, *(f"{share:.0f}" for share in by.values())] for name, by in shares]
    table("Days in the range, %", ("90 % range of", *shares[0][1]), inside)
