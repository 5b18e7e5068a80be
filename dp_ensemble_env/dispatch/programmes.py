r"""Relief programmes, which are data: how a baseline is computed, and what a delivered kilowatt pays.

A participant has contracted :math:`c` kW. In an event of :math:`h` hours it delivers :math:`D` kW on average, measured
from the customer baseline. Its *performance factor* is :math:`f = \min(\max(D / c, 0), 1)`, and a month with one event
pays, by the rules of Consolidated Edison's commercial programmes,

.. math:: \text{reservation} \cdot c \cdot f + \text{energy} \cdot \max(D, 0)\,h

``programmes.toml`` holds the programmes that are known by name; one of your own is a file with such a table.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from importlib.resources import files
from pathlib import Path
from typing import Literal

import numpy as np

from dp_ensemble_env.chain.baseline import BaselineRule
from dp_ensemble_env.tools.validation import check_choice, check_in_range


@dataclass(frozen=True, kw_only=True)
class Programme(BaselineRule):
    """The terms of a programme."""

    name: str
    """Name in reports."""
    reservation: float = 0.0
    """Dollars per kW-month contracted, times the performance factor."""
    energy: float = 0.0
    """Dollars per kWh delivered."""
    adjusted: bool = False
    """Whether the adjusted baseline settles."""
    missing: Literal["refuse", "nothing"] = "refuse"
    """What an interval of the event without a reading does: the event is not settled, or it delivers nothing there."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("reservation", "energy"):
            check_in_range(getattr(self, field), field, 0, np.inf)
        check_choice(self.missing, "missing", ("refuse", "nothing"))

    def performance_factor(self, delivered_kw: float, contracted_kw: float) -> float:
        """Return the share of the contract that was delivered, from 0 to 1; 1 without a contract.

        Examples
        --------
        >>> [programme("csrp").performance_factor(kw, 100.0) for kw in (50.0, 250.0, -10.0)]
        [0.5, 1.0, 0.0]
        """
        return float(np.clip(delivered_kw / contracted_kw, 0.0, 1.0)) if contracted_kw > 0 else 1.0

    def payment(self, delivered_kw: float, contracted_kw: float, hours: float) -> float:
        """Return the dollars of a month with one event of so many hours.

        Examples
        --------
        >>> programme("csrp").payment(80.0, 100.0, 4.0)  # 18 * 80 + 1 * 80 * 4
        1760.0
        """
        reserved = self.reservation * contracted_kw * self.performance_factor(delivered_kw, contracted_kw)
        return reserved + self.energy * max(delivered_kw, 0.0) * hours


def programme(name: str) -> Programme:
    """Return a programme by its name in ``programmes.toml``, or the one of a TOML file of one's own."""
    known = tomllib.loads(files(__package__).joinpath("programmes.toml").read_text(encoding="utf-8"))
    if name.endswith(".toml"):
        try:
            tables = tomllib.loads(Path(name).read_text(encoding="utf-8"))
        except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"cannot read the programme {name}: {error}; correct the file.") from error
        if len(tables) != 1 or not isinstance(terms := next(iter(tables.values())), dict):
            raise ValueError(f"{name} must hold the table of one programme, such as [mine], got {len(tables)} entries.")
        terms = {"name": next(iter(tables)), **terms}
    else:
        terms = known[check_choice(name, "programme", known)]
    for key in terms:
        check_choice(key, f"term of the programme {name}", [field.name for field in fields(Programme)])
    return Programme(**terms)
