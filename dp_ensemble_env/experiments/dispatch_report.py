"""A plan in files: CSV and JSON, OpenADR, and one page with pictures for a control room."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from dp_ensemble_env.experiments.dispatch import Course, Plan
from dp_ensemble_env.experiments.openadr import openadr
from dp_ensemble_env.reporting.page import Page
from dp_ensemble_env.reporting.tables import plain, show_table, show_text, write_csv
from dp_ensemble_env.tools.files import atomic_write

COLUMNS: tuple[str, ...] = (
    *("participant", "start", "end", "in_event", "setpoint_kw", "low_kw", "high_kw", "uncontrolled_kw"),
    *("baseline_kw", "price_per_kwh"),
)


def rows(plan: Plan) -> list[tuple[Any, ...]]:
    """Return the dispatch interval by interval: every participant, then the total."""
    found = []
    for course in (*plan.participants, plan.total):
        step = course.times[1] - course.times[0]
        prices = plan.energy_price + np.where(course.in_event, plan.price, 0.0)
        for t in range(1, len(course.times)):
            baseline = None if course.baseline is None else _number(course.baseline[t])
            powers = (course.setpoint[t], course.low[t], course.high[t], course.uncontrolled[t])
            stamps = str(course.times[t] - step).replace("T", " "), str(course.times[t]).replace("T", " ")
            found.append(
                (course.name, *stamps, int(course.in_event[t]), *map(_number, powers), baseline, float(prices[t]))
            )
    return found


def _number(value: Any) -> Any:
    return plain(round(float(value), 3))


def as_dict(plan: Plan, command: str = "") -> dict[str, Any]:
    """Return everything for JSON; `settle` reads it again."""
    return {
        "kind": "dispatch",
        "command": command,
        "date": str(plan.total.times[plan.total.in_event][0])[:10],
        "price_per_kwh": plan.price,
        "pledge_kw": plan.pledge_kw,
        "programme": vars(plan.programme),
        "money": plan.money,
        "revealed": list(plan.revealed),
        "participants": [_course_dict(course) for course in plan.participants],
        "total": _course_dict(plan.total),
        "notes": {name: list(notes) for name, notes in plan.notes.items()},
    }


def _course_dict(course: Course) -> dict[str, Any]:
    low, high = course_range(course)
    return {
        "name": course.name,
        "end": [str(stamp) for stamp in course.times],
        "in_event": course.in_event.tolist(),
        "setpoint_kw": course.setpoint.round(3).tolist(),
        "low_kw": course.low.round(3).tolist(),
        "high_kw": course.high.round(3).tolist(),
        "uncontrolled_kw": course.uncontrolled.round(3).tolist(),
        "baseline_kw": None if course.baseline is None else [_number(kw) for kw in course.baseline],
        "uncontrolled_kwh": course.energy(course.uncontrolled),
        "planned_kwh": course.energy(course.setpoint),
        "shed_kwh": course.shed_kwh,
        "shed_kwh_low": low,
        "shed_kwh_high": high,
        "rebound_kwh": course.rebound_kwh,
        "discomfort_dollars": course.discomfort,
    }


def course_range(course: Course) -> tuple[float, float]:
    """Return the range of the energy shed."""
    shed = course.energy(course.uncontrolled) - course.drawn_kwh
    low, high = np.quantile(shed, [0.05, 0.95])
    return float(low), float(high)


#: A dispatch names every participant's set-points, which come from its readings.
WARNING = (
    "For the control room: forecasts and set-points are computed from the participants' readings. Show this page to "
    "nobody who may not see their meters."
)


def write_plan(folder: Path, plan: Plan, *, signal: str, timezone: str | None, command: str) -> Path:
    """Write all files; return the page's path."""
    write_csv(folder / "dispatch.csv", COLUMNS, rows(plan))
    for name, content in (("dispatch.json", as_dict(plan, command)), ("openadr.json", openadr(plan, signal, timezone))):
        with atomic_write(folder / name) as stream:
            json.dump(content, stream, indent=1)
            stream.write("\n")
    return _page(folder, plan, command)


# ------------------------------------------------------------------ on paper
def table(plan: Plan) -> tuple[tuple[str, ...], list[list[str]]]:
    """Return headings and rows: participants and total, energy in the event."""
    headings = (
        *("participant", "usual, kWh", "planned, kWh", "shed, kWh", "range, kWh", "mean, kW", "share, %"),
        *("rebound, kWh", "discomfort, $"),
    )
    lines = []
    for course in (*plan.participants, plan.total):
        low, high = course_range(course)
        usual = course.energy(course.uncontrolled)
        lines.append(
            [
                course.name,
                f"{usual:,.0f}",
                f"{course.energy(course.setpoint):,.0f}",
                f"{course.shed_kwh:,.0f}",
                f"{low:,.0f} to {high:,.0f}",
                f"{course.shed_kwh / course.hours:,.0f}",
                f"{100 * course.shed_kwh / usual:.1f}",
                f"{course.rebound_kwh:+,.0f}",
                f"{course.discomfort:,.2f}",
            ]
        )
    return headings, lines if len(plan.participants) > 1 else lines[:-1]


def sentences(plan: Plan) -> list[str]:
    """Return what the numbers mean, in words."""
    total, money, terms = plan.total, plan.money, plan.programme
    found = [
        f"The event price is ${plan.price:.3f} per kWh on top of the tariff. Together the participants shed "
        f"{total.shed_kwh:,.0f} kWh, {total.shed_kwh / total.hours:,.0f} kW on average.",
        f"In the two hours after the event they draw {abs(total.rebound_kwh):,.0f} kWh "
        f"{'more' if total.rebound_kwh >= 0 else 'less'} than usual, if {100 * total.payback:.0f} % of what was shed "
        "comes back; that share is an assumption.",
    ]
    if total.baseline is None:
        return [*found, "There is no customer baseline, so nothing is said about payments."]
    idle = total.energy(total.baseline) - total.energy(total.uncontrolled)
    found += [
        f"Settled against the customer baseline ({total.energy(total.baseline):,.0f} kWh) the plan delivers "
        f"{total.energy(total.baseline) - total.energy(total.setpoint):,.0f} kWh; doing nothing would settle as "
        f"{idle:,.0f} kWh.",
        f"{terms.name}: pledge {plan.pledge_kw:,.0f} kW, expected performance factor "
        f"{money['performance_factor']:.2f}. A month with this event pays ${money['payment']:,.0f} "
        f"(${money['payment_low']:,.0f} to ${money['payment_high']:,.0f}): "
        f"${money['reservation_payment']:,.0f} for the reservation at "
        f"${terms.reservation:g}/kW-month and ${money['energy_payment']:,.0f} for energy at ${terms.energy:g}/kWh.",
    ]
    found.append(
        f"At the tariff the bill falls by ${money['energy_bill_saved'] - money['rebound_cost']:,.0f}, the two hours "
        f"after the event included. The participants bear discomfort worth ${money['discomfort']:,.0f}."
    )
    return found


def show_plan(plan: Plan) -> None:
    """Print the plan."""
    total = plan.total
    begin = total.times[total.in_event][0] - (total.times[1] - total.times[0])
    end = total.times[total.in_event][-1]
    headings, lines = table(plan)
    title = f"Dispatch of {str(begin)[:10]}, {str(begin)[11:16]} to {str(end)[11:16]}"
    show_table(title, headings, lines, left=("participant",))
    for text in (*sentences(plan), *plan.revealed):
        show_text(text)


def _page(folder: Path, plan: Plan, command: str) -> Path:
    from dp_ensemble_env.experiments.dispatch_figures import draw_participants, price_explorer, total_chart
    from dp_ensemble_env.reporting.plots import draw_chart

    total, chart = plan.total, total_chart(plan)
    page = Page(f"Dispatch of {str(total.times[total.in_event][0])[:10]}")
    page.warning(WARNING)
    page.takeaways(sentences(plan), chart, draw_chart(chart, folder / "total.png"))
    page.text("Shaded: the event. Band: 90 % of simulated days.")
    if plan.levels:
        page.heading("Another price")
        explorer = price_explorer(plan)
        pictures = [draw_chart(explorer.frontier, folder / "prices.png"), folder / "total.png"]
        captions = ["Power shed at other event prices.", "Expected load of all participants at the chosen price."]
        page.explorer(explorer, pictures, captions)
    page.heading("Participants")
    page.table(*table(plan))
    if len(plan.participants) > 1:
        page.picture(draw_participants(folder / "participants.png", plan), "Usual load and set-points of each, in kW.")
    page.heading("Set-points, kW")
    inside = np.flatnonzero(~total.after)[1:]
    step = total.times[1] - total.times[0]
    clock = [str(total.times[t] - step)[11:16] for t in inside]
    courses = (*plan.participants, *((total,) if len(plan.participants) > 1 else ()))
    page.table(("from", *clock), [[course.name, *(f"{course.setpoint[t]:,.0f}" for t in inside)] for course in courses])
    page.heading("What was revealed")
    page.items(plan.revealed)
    page.heading("How this was made")
    page.items([f"{name}: {' '.join(notes)}" for name, notes in plan.notes.items()])
    if command:
        page.text(f"Made by `{command}`. Files: `dispatch.csv`, `dispatch.json`, `openadr.json`.")
    return page.write(folder / "dispatch.html")
