"""`ReadSettings`: every option of reading a meter file, passed whole from the caller to the format."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import tzinfo
from typing import Literal, get_args

from dp_ensemble_env.meter.clocks import get_zone
from dp_ensemble_env.meter.origin import UNITS, Origin, as_unit
from dp_ensemble_env.tools.validation import check_choice, check_positive

Doubtful = Literal["error", "missing", "keep"]
CHOICES: dict[str, tuple[str, ...]] = {
    "stamp": ("start", "end"),
    "negatives": get_args(Doubtful),
    "zeros": get_args(Doubtful),
    "spikes": get_args(Doubtful),
    "date_order": ("auto", "mdy", "dmy"),
    "decimal": ("auto", ".", ","),
    "cumulative": ("auto", "yes", "no"),
    "catch_up": ("missing", "spread", "keep"),
}
#: What is counted, and how much of it a file may have before it is taken for a mistake or an attack.
MOST = {
    "bytes": 2_000_000_000,
    "readings": 20_000_000,
    "characters in a line": 1_000_000,
    "bytes in one XML token": 1_000_000,
    "meters": 10_000,
    "bytes once unpacked": 4_000_000_000,
}


@dataclass(frozen=True, kw_only=True)
class ReadSettings:
    """How a meter file is read."""

    column: str | tuple[str, ...] | None = None
    """Column or channel to read, several names to add up, or 'sum' for all of them."""
    meter_id: str | None = None
    """Meter to read from a file that lists several one below the other, or 'sum' for all of them."""
    unit: str | None = None
    """Unit, if the file does not state it: kW, kWh, W, Wh, MW or MWh."""
    stamp: Literal["start", "end"] | None = None
    """Which end of its interval a timestamp marks, if the file does not state it."""
    timezone: str | None = None
    """Time zone such as America/New_York: converts UTC stamps, and makes clock changes exact."""
    spikes: Doubtful = "error"
    """What to do with implausibly high readings."""
    negatives: Doubtful = "error"
    """What to do with negative readings."""
    zeros: Doubtful = "keep"
    """What to do with readings of exactly zero."""
    cumulative: Literal["auto", "yes", "no"] = "auto"
    """Whether the values are the states of a register, to be differenced."""
    catch_up: Literal["missing", "spread", "keep"] = "missing"
    """What to do with a reading that carries the energy of a whole gap."""
    date_order: Literal["auto", "mdy", "dmy"] = "auto"
    """Order of dates such as 7/1/2024."""
    decimal: Literal["auto", ".", ","] = "auto"
    """Decimal sign of a text file."""
    format: str = "auto"
    """Format of the file by its registered name, found from its first bytes by default."""
    limits: float = 1.0
    """Multiplies every limit on the size of a file."""

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            if name != "stamp" or self.stamp is not None:
                check_choice(getattr(self, name), name, choices)
        if self.unit is not None:
            object.__setattr__(self, "unit", check_choice(as_unit(self.unit), "unit", UNITS))
        if isinstance(self.column, list):
            object.__setattr__(self, "column", tuple(self.column))
        check_positive(self.limits, "limits")
        get_zone(self.timezone)

    @property
    def zone(self) -> tzinfo | None:
        """The time zone, if one is named."""
        return get_zone(self.timezone)

    def most(self, what: str) -> int:
        """Return how many of something a file may have."""
        return int(MOST[what] * self.limits)

    def limit(self, what: str, count: int, origin: Origin) -> None:
        """Refuse a file that has more of something than it may; say how to raise the limit."""
        if count > self.most(what):
            raise origin.error(
                f"the file has more than {self.most(what):,} {what}; if that is right, raise all limits with "
                f"limits={max(-(-count // MOST[what]), 2)}."
            )
