"""Files with several channels, each with its point, direction and unit: which of them is the load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dp_ensemble_env.meter._origin import Origin, Readings, join
from dp_ensemble_env.tools.validation import check_choice

LOAD, NET, PRODUCED, OTHER = "delivered", "net", "produced", "not electricity"


@dataclass(eq=False)
class Channel:
    """The readings of one channel.

    `point` is where it is measured, `direction` one of `LOAD`, `NET`, `PRODUCED` and `OTHER`, `unit` as the file says.
    """

    name: str
    point: str
    direction: str
    unit: str
    readings: Readings

    def __str__(self) -> str:
        """Describe the channel in a list."""
        return f"{self.name!r} ({', '.join(filter(None, (self.point, self.direction, self.unit)))})"


def usable(channels: list[Channel]) -> list[Channel]:
    """Return the channels that are load: delivered where there are such, else net."""
    for direction in (LOAD, NET):
        if found := [channel for channel in channels if channel.direction == direction]:
            return found
    return []


def choose_channels(channels: list[Channel], column: str | Sequence[str] | None, origin: Origin) -> Readings:
    """Return the readings of the wanted channel, or several side by side to be added up."""
    loads = usable(channels)
    if column is None or (column == "sum" and "sum" not in [channel.name for channel in channels]):
        if not loads:
            raise origin.error(
                f"no readings in Wh or W of electricity that was used were found, only {_listed(channels)}; "
                "export those."
            )
        chosen = loads
        if column is None and len(loads) > 1:
            raise origin.error(
                f"several meters or channels are in the file; pass column= with one name, a list of names to add up, "
                f"or 'sum' for all that is delivered: {_listed(channels)}."
            )
        if column is not None:
            _refuse_twice(loads, origin)
    else:
        wanted = [column] if isinstance(column, str) else list(column)
        if not wanted or len(set(wanted)) != len(wanted):
            raise ValueError(f"column must name at least one channel, each once, got {column!r}; correct the list.")
        names = [channel.name for channel in channels]
        for name in wanted:
            check_choice(name, f"column of {origin.name}", names)
        chosen = [channels[names.index(name)] for name in wanted]
    return _combine(chosen, channels, column is not None)


def _combine(chosen: list[Channel], channels: list[Channel], asked: bool) -> Readings:
    odd = [channel for channel in chosen if channel.direction in (PRODUCED, OTHER)]
    if odd and len(chosen) > 1:
        raise chosen[0].readings.origin.error(f"{odd[0]} is no load and cannot be added to one; leave it out.")
    readings = chosen[0].readings if len(chosen) == 1 else join([channel.readings for channel in chosen])
    readings.chosen = asked
    for channel in chosen:
        if channel.direction != LOAD:
            readings.notes.append(f"{channel} is {channel.direction}, not what is used; it was read as asked.")
    taken = {id(channel) for channel in chosen}
    left = [channel for channel in channels if id(channel) not in taken]
    if left and not asked:
        readings.notes.append(f"Left out, since they are not load: {_listed(left)}.")
    return readings


def _refuse_twice(loads: list[Channel], origin: Origin) -> None:
    """Refuse to add up two channels that measure the same point in the same unit: one may contain the other."""
    seen: dict[str, Channel] = {}
    for channel in loads:
        other = seen.setdefault(channel.point, channel)
        if channel.point and other is not channel:
            raise origin.error(
                f"{other} and {channel} measure the same point, so their sum may count energy twice; pass column= "
                "with the names to add up."
            )


def _listed(channels: list[Channel], most: int = 20) -> str:
    shown = ", ".join(map(str, channels[:most]))
    return shown if len(channels) <= most else f"{shown}, … ({len(channels)} in all)"


def channel_names(channels: list[Channel]) -> list[str]:
    """Name the channels that may be read as load."""
    return [channel.name for channel in usable(channels)]
