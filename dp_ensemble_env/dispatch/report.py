"""A plan and a settlement on paper and in files: tables, CSV and JSON, OpenADR, and one page for a control room."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from dp_ensemble_env.dispatch.plan import LEAST_RESPONSE, MOST_RESPONSE, RANGE, Course, Plan
from dp_ensemble_env.reporting.charts import Chart, Series
from dp_ensemble_env.reporting.page import Page
from dp_ensemble_env.reporting.tables import plain, write_csv
from dp_ensemble_env.tools import console
from dp_ensemble_env.tools.files import write_json

COLUMNS: tuple[str, ...] = (
    *("participant", "start", "end", "in_event", "setpoint_kw", "low_kw", "high_kw", "forecast_kw", "baseline_kw"),
    "price_per_kwh",
)
#: A page shows so many participants; the files hold all of them.
MOST_SHOWN = 50
WARNING = (
    "For the control room: forecasts and set-points are computed from the participants' readings. Share this page "
    "only with people who are allowed to see those meters."
)
#: Time zone of OpenADR's stamps where the meters do not say theirs: that of Con Edison.
DEFAULT_ZONE = "America/New_York"
KINDS = {
    "setpoint": {"payloadType": "DISPATCH_SETPOINT", "units": "KW"},
    "price": {"payloadType": "PRICE", "units": "KWH", "currency": "USD"},
}
#: Longest name and target of OpenADR.
LONGEST = 128


def write_plan(
    folder: Path, plan: Plan, *, signal: str, zones: dict[str, str | None], command: str, dollars: bool = False
) -> Path:
    """Write all files; return the page's path."""
    write_csv(folder / "dispatch.csv", COLUMNS, rows(plan))
    known = {name: zone for name, zone in zones.items() if zone}
    sent = openadr(plan, signal, next(iter(known.values()), None), known)
    write_json(folder / "dispatch.json", as_dict(plan, command))
    write_json(folder / "openadr.json", sent)
    return _page(folder, plan, command, dollars)


def rows(plan: Plan) -> list[tuple[Any, ...]]:
    """Return the dispatch interval by interval, participant by participant."""
    lines: list[tuple[Any, ...]] = []
    for course in plan.participants:
        one = _course_dict(course)
        stamps = ([stamp.replace("T", " ") for stamp in one[name]] for name in ("start", "end"))
        powers = (one[name] or [None] * len(course.times) for name in COLUMNS[4:-1])
        prices = plan.energy_price + np.where(course.in_event, plan.price, 0.0)
        columns = (*stamps, course.in_event.astype(int).tolist(), *powers, prices.tolist())
        lines += [(course.name, *cells) for cells in zip(*columns, strict=True)][1:]
    return lines


def as_dict(plan: Plan, command: str = "") -> dict[str, Any]:
    """Return everything for JSON; `settle` reads it again."""
    return {
        "kind": "dispatch",
        "command": command,
        "date": _begin(plan.total)[:10],
        "price_per_kwh": plan.price,
        "response": plan.response,
        "revealed": list(plan.revealed),
        "participants": [_course_dict(course) for course in plan.participants],
        "total": _course_dict(plan.total),
        "notes": {name: list(notes) for name, notes in plan.notes.items()},
    }


def _course_dict(course: Course) -> dict[str, Any]:
    low, high = course.shed_range
    below, above = course.load_range
    return {
        "name": course.name,
        "start": [str(stamp - course.step) for stamp in course.times],
        "end": [str(stamp) for stamp in course.times],
        "in_event": course.in_event.tolist(),
        "setpoint_kw": course.setpoint.round(3).tolist(),
        "low_kw": below.round(3).tolist(),
        "high_kw": above.round(3).tolist(),
        "forecast_kw": course.forecast.round(3).tolist(),
        "baseline_kw": None if course.baseline is None else [plain(round(float(kw), 3)) for kw in course.baseline],
        "forecast_kwh": course.energy(course.forecast),
        "forecast_error_kwh": course.error_kwh,
        "shed_kwh": course.shed_kwh,
        "shed_kwh_low": low,
        "shed_kwh_high": high,
    }


def _begin(course: Course) -> str:
    return str(course.times[course.in_event][0] - course.step)


# ------------------------------------------------------------------ OpenADR
def openadr(
    plan: Plan, signal: str = "setpoint", timezone: str | None = None, zones: dict[str, str] | None = None
) -> dict[str, Any]:
    """Return a plan as OpenADR 3.1 objects, ``{"program": ..., "events": [...]}``, ready for JSON.

    `program` is what a virtual top node takes at ``POST /programs``, each of `events` what it takes at
    ``POST /events``. The node assigns the program's identifier; put it in place of ``programID``.

    Signal "setpoint" makes one event for each participant, with its set-points in kW; "price" one for all participants
    of a time zone, with the price of a kWh, tariff included. `zones` are those of participants with another `timezone`.
    """
    total, names = plan.total, [course.name for course in plan.participants]
    first = timezone or DEFAULT_ZONE
    places = {name: (zones or {}).get(name, first) for name in names}
    controlled, step = np.flatnonzero(total.in_event), total.step
    begin = total.times[controlled[0]] - step
    name = f"dispatch {str(begin)[:10]}"
    descriptor = {"objectType": "EVENT_PAYLOAD_DESCRIPTOR", **KINDS[signal]}
    program = {
        "programName": name[:LONGEST],
        "intervalPeriod": {"start": _local(begin, first), "duration": duration(step * len(controlled))},
        "payloadDescriptors": [descriptor],
        "targets": targets(names),
    }

    def event(title: str, whose: list[str], values: Any, digits: int) -> dict[str, Any]:
        return {
            "programID": identifier(name),
            "eventName": title,
            "targets": targets(whose),
            "payloadDescriptors": [descriptor],
            "intervalPeriod": {"start": _local(begin, places[whose[0]]), "duration": duration(step)},
            "intervals": [
                {"id": k, "payloads": [{"type": descriptor["payloadType"], "values": [round(float(value), digits)]}]}
                for k, value in enumerate(values)
            ],
        }

    if signal == "price":
        prices = (plan.energy_price + plan.price)[controlled]
        groups = [[one for one in names if places[one] == zone] for zone in dict.fromkeys(places.values())]
        return {"program": program, "events": [event(name, group, prices, 5) for group in groups]}
    sent = [event(f"{name}, {one.name}", [one.name], one.setpoint[controlled], 3) for one in plan.participants]
    return {"program": program, "events": sent}


def _local(instant: np.datetime64, zone: str) -> str:
    return str(instant.astype("datetime64[s]").item().replace(tzinfo=ZoneInfo(zone)).isoformat())


def duration(length: np.timedelta64) -> str:
    """Write a time span as ISO 8601 has it.

    Examples
    --------
    >>> duration(np.timedelta64(4 * 3600 + 1800, "s"))
    'PT4H30M'
    """
    hours, rest = divmod(int(length / np.timedelta64(60, "s")), 60)
    return "PT" + (f"{hours}H" if hours else "") + (f"{rest}M" if rest or not hours else "")


def identifier(text: str) -> str:
    """Write a text in the letters of an object's identifier.

    Examples
    --------
    >>> identifier("Dispatch 2018-07-02")
    'dispatch-2018-07-02'
    """
    return re.sub(r"[^a-z0-9_-]+", "-", text.lower()).strip("-")[:LONGEST] or "program"


def targets(names: list[str]) -> list[str]:
    """Return the names of participants as targets."""
    return [name.strip()[:LONGEST] or "participant" for name in names]


# ------------------------------------------------------------------ in words
def table(plan: Plan, most: int | None = None) -> tuple[tuple[str, ...], list[list[str]]]:
    """Return headings and rows: energy in the event, participant by participant."""
    headings = ("participant", "forecast, kWh", "± kWh", "shed, kWh", "90 % range, kWh", "held, kW", "share, %")
    lines = []
    for course in plan.participants[:most]:
        (low, high), usual = course.shed_range, course.energy(course.forecast)
        held = float((course.forecast - course.setpoint)[course.in_event].max())
        numbers = [f"{usual:,.0f}", f"{course.error_kwh:,.0f}", f"{course.shed_kwh:,.0f}", f"{low:,.0f} to {high:,.0f}"]
        lines.append([course.name, *numbers, f"{held:,.1f}", f"{100 * course.shed_kwh / max(usual, 1e-300):.1f}"])
    return headings, lines


def sentences(plan: Plan, dollars: bool = False) -> list[str]:
    """Return the meaning of the numbers, in words."""
    total = plan.total
    low, high = total.shed_range
    usual = total.energy(total.forecast)
    told = [
        f"At an event price of ${plan.price:.3f} per kWh the participants together shed "
        f"{total.shed_kwh:,.0f} kWh of {usual:,.0f} kWh, {total.shed_kwh / total.hours:,.0f} kW on average. This "
        f"assumes that $1 per kWh sheds {100 * plan.response:g} % where the floor permits.",
        f"{100 * RANGE:.0f} % range: {low:,.0f} to {high:,.0f} kWh. It allows for a response from {LEAST_RESPONSE:g} "
        f"to {MOST_RESPONSE:g} times the stated one, and for a forecast error of up to {total.error_kwh:,.0f} kWh.",
    ]
    if total.baseline is not None:
        baseline = total.energy(total.baseline)
        told.append(
            f"Settled against the customer baseline ({baseline:,.0f} kWh) the plan delivers "
            f"{baseline - total.energy(total.setpoint):,.0f} kWh; doing nothing would deliver "
            f"{baseline - usual:,.0f} kWh."
        )
    if dollars:
        told.append(
            f"Energy times price: {total.shed_kwh:,.0f} kWh at ${plan.price:.3f} are "
            f"${plan.price * total.shed_kwh:,.0f} (${plan.price * low:,.0f} to ${plan.price * high:,.0f}). This is no "
            "forecast of a payment."
        )
    return [*told, *plan.notes.get("", ())]


def show_plan(plan: Plan, dollars: bool = False) -> None:
    """Print the plan."""
    begin, end = _begin(plan.total), str(plan.total.times[plan.total.in_event][-1])
    headings, lines = table(plan)
    console.table(f"Dispatch of {begin[:10]}, {begin[11:16]} to {end[11:16]}", headings, lines)
    for text in (*sentences(plan, dollars), *plan.revealed):
        console.paragraph(text)


# ------------------------------------------------------------------ the page
def total_chart(plan: Plan) -> Chart:
    """Power of all participants: forecast, set-point with its range, baseline; every interval is a step."""
    total = plan.total
    low, high = total.load_range
    clock = (total.times - total.times[0].astype("datetime64[D]")) / np.timedelta64(3600, "s")
    hours = float(total.step / np.timedelta64(3600, "s"))
    edges = np.stack([clock - hours, clock], axis=1).ravel()  # both ends of every interval
    lines = [("forecast", total.forecast, "red", ""), ("customer baseline", total.baseline, "grey", "2 3")]
    series = [
        Series(name, edges.tolist(), np.repeat(kw, 2).tolist(), color=color, dash=dash)
        for name, kw, color, dash in lines
        if kw is not None
    ]
    held, below, above = (np.repeat(kw, 2).tolist() for kw in (total.setpoint, low, high))
    series.append(Series("set-point, with range", edges.tolist(), held, low=below, high=above))
    ticks = [(float(h), f"{h % 24:g}") for h in range(math.ceil(edges[0]), math.floor(edges[-1]) + 1)]
    window = clock[total.in_event]
    about: dict[str, Any] = {"clock": True, "unit": " kW", "x_ticks": ticks}
    about["windows"] = [(float(window[0] - hours), float(window[-1]))]
    return Chart("The event, all participants", "hour of the day", "power, kW", series, **about)


def _page(folder: Path, plan: Plan, command: str, dollars: bool) -> Path:
    from dp_ensemble_env.reporting.plots import draw_chart

    total, chart = plan.total, total_chart(plan)
    page = Page(f"Dispatch of {_begin(total)[:10]}")
    page.warning(WARNING)
    page.takeaways(sentences(plan, dollars), chart, draw_chart(chart, folder / "total.png"))
    page.text(f"Shaded: the event. Band: {100 * RANGE:.0f} % range of forecast and response.")
    page.heading("Participants")
    page.table(*table(plan, MOST_SHOWN))
    shown = plan.participants[:MOST_SHOWN]
    if len(shown) < len(plan.participants):
        page.text(f"The first {len(shown)} of {len(plan.participants)} participants; `dispatch.csv` holds all of them.")
    page.heading("Set-points, kW")
    inside = np.flatnonzero(total.in_event)
    clock = [str(total.times[t] - total.step)[11:16] for t in inside]
    page.table(("from", *clock), [[one.name, *(f"{one.setpoint[t]:,.1f}" for t in inside)] for one in shown])
    page.heading("What was revealed")
    page.items(plan.revealed)
    page.heading("How this was made")
    page.items([f"{one.name}: {' '.join(plan.notes.get(one.name, ()))}" for one in shown])
    if command:
        page.text(f"Made by `{command}`. Files: `dispatch.csv`, `dispatch.json`, `openadr.json`.")
    return page.write(folder / "dispatch.html")
