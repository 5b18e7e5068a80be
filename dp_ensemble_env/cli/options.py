"""The options by which scripts take a meter file instead of the synthetic campus."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dp_ensemble_env.event import DemandResponseEvent
from dp_ensemble_env.meter import read_meter
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.scenarios.campus import campus_event

#: The paper's event, which scripts assume unless told otherwise.
EVENT_DATE, EVENT_STEP = "2018-07-02", 15


def add_data_arguments(
    parser: argparse.ArgumentParser,
    title: str = "your own data instead of the synthetic campus",
    date: str | None = EVENT_DATE,
    step_minutes: int | None = EVENT_STEP,
) -> None:
    """Add the arguments that say which meter to read and how; a default of None follows the series."""
    data = parser.add_argument_group(title)
    data.add_argument("--meter", type=Path, help="meter file of one building")
    data.add_argument("--unit", help="its unit, if it does not say (kW, kWh, ...)")
    data.add_argument("--stamp", choices=["start", "end"], help="which end of an interval its stamps mark")
    data.add_argument("--column", help="its column, or 'sum'")
    words = date or "the first working day from 2 July on in its last summer"
    data.add_argument("--date", default=date, help=f"day of the event (default {words})")
    steps = step_minutes or "15, or the series' own step where that is longer or odd"
    data.add_argument("--step-minutes", type=int, default=step_minutes, help=f"length of a step (default {steps})")


def load_model(args: Any) -> EnsembleModel:
    """Build the campus event, or an event on the given meter. The campus does not depend on the script's seed."""
    notice = max(30, args.step_minutes)
    event = DemandResponseEvent(date=args.date, step_minutes=args.step_minutes, notice_minutes=notice)
    if args.meter is None:
        return campus_event(getattr(args, "campus_seed", 0), event=event)
    series = read_meter(args.meter, unit=args.unit, stamp=args.stamp, column=args.column)
    return EnsembleModel.from_series(series, event)
