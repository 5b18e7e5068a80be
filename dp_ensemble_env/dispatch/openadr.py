"""A plan as OpenADR 3.1 objects: one program, and events with prices or set-points.

`program` is what a virtual top node takes at ``POST /programs``, each of `events` what it takes at ``POST /events``.
The node assigns the program's identifier; put it in place of ``programID``.
"""

from __future__ import annotations

import re
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from dp_ensemble_env.dispatch.plan import Plan

#: Time zone of the stamps where the meters do not say theirs: that of Con Edison.
DEFAULT_ZONE = "America/New_York"
KINDS = {
    "setpoint": {"payloadType": "DISPATCH_SETPOINT", "units": "KW"},
    "price": {"payloadType": "PRICE", "units": "KWH", "currency": "USD"},
}
#: Longest name and target.
LONGEST = 128


def openadr(
    plan: Plan, signal: str = "setpoint", timezone: str | None = None, zones: dict[str, str] | None = None
) -> dict[str, Any]:
    """Return ``{"program": ..., "events": [...]}``, ready for JSON.

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
