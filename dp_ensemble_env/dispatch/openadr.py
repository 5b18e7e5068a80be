"""A plan as OpenADR 3.1 objects: one program, and events with prices or set-points.

`program` is what a virtual top node takes at ``POST /programs``, each of `events` what it takes at ``POST /events``.
The node assigns the program's identifier; put it in place of ``programID``.
"""

from __future__ import annotations

import re
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from dp_ensemble_env.dispatch.plan import Course, Plan

#: Time zone of the stamps where the meters do not say theirs: that of Con Edison.
DEFAULT_ZONE = "America/New_York"
#: Longest name and target.
LONGEST = 128


def openadr(plan: Plan, signal: str = "setpoint", timezone: str | None = None) -> dict[str, Any]:
    """Return ``{"program": ..., "events": [...]}``, ready for JSON.

    Parameters
    ----------
    plan : Plan
    signal : {"setpoint", "price"}
        One event for each participant with its set-points in kW, or one event for all with the price of a kWh, tariff
        included.
    timezone : str, optional
        By default that of New York.
    """
    zone = ZoneInfo(timezone or DEFAULT_ZONE)
    total = plan.total
    controlled, step = np.flatnonzero(total.in_event), total.step
    name = f"dispatch {str(total.times[controlled[0]] - step)[:10]}"
    kinds = {
        "setpoint": {"payloadType": "DISPATCH_SETPOINT", "units": "KW"},
        "price": {"payloadType": "PRICE", "units": "KWH", "currency": "USD"},
    }
    descriptor = {"objectType": "EVENT_PAYLOAD_DESCRIPTOR", **kinds[signal]}
    period = _period(total.times[controlled[0]] - step, step, len(controlled), zone)
    program = {
        "programName": name[:LONGEST],
        "intervalPeriod": period,
        "payloadDescriptors": [descriptor],
        "targets": [target(course.name) for course in plan.participants],
    }
    common = {
        "programID": identifier(name),
        "payloadDescriptors": [descriptor],
        "intervalPeriod": {"start": period["start"], "duration": duration(step)},
    }
    if signal == "price":
        prices = plan.energy_price + plan.price
        targets = [target(course.name) for course in plan.participants]
        event = {"eventName": name, "targets": targets, "intervals": _intervals("PRICE", prices[controlled], 5)}
        return {"program": program, "events": [{**common, **event}]}
    events = [_setpoints(course, name, controlled) for course in plan.participants]
    return {"program": program, "events": [{**common, **event} for event in events]}


def _setpoints(course: Course, name: str, controlled: Any) -> dict[str, Any]:
    return {
        "eventName": f"{name}, {course.name}",
        "targets": [target(course.name)],
        "intervals": _intervals("DISPATCH_SETPOINT", course.setpoint[controlled], 3),
    }


def _intervals(kind: str, values: Any, digits: int) -> list[dict[str, Any]]:
    return [
        {"id": number, "payloads": [{"type": kind, "values": [round(float(value), digits)]}]}
        for number, value in enumerate(values)
    ]


def _period(start: np.datetime64, step: np.timedelta64, number: int, zone: ZoneInfo) -> dict[str, str]:
    local = start.astype("datetime64[s]").item().replace(tzinfo=zone)
    return {"start": local.isoformat(), "duration": duration(step * number)}


def duration(length: np.timedelta64) -> str:
    """Write a time span as ISO 8601 has it.

    Examples
    --------
    >>> duration(np.timedelta64(4 * 3600 + 1800, "s"))
    'PT4H30M'
    """
    minutes = int(length / np.timedelta64(60, "s"))
    hours, rest = divmod(minutes, 60)
    return "PT" + (f"{hours}H" if hours else "") + (f"{rest}M" if rest or not hours else "")


def identifier(text: str) -> str:
    """Write a text in the letters of an object's identifier.

    Examples
    --------
    >>> identifier("Dispatch 2018-07-02")
    'dispatch-2018-07-02'
    """
    return re.sub(r"[^a-z0-9_-]+", "-", text.lower()).strip("-")[:LONGEST] or "program"


def target(name: str) -> str:
    """Return a participant's name as a target."""
    return name.strip()[:LONGEST] or "participant"
