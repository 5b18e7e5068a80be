"""What a kilowatt-hour costs, at any time of the day or year and at the decision times of an event."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_ensemble_env.chain.calendar import hour_of_day
from dp_ensemble_env.tools.validation import as_float_array, as_times, check_shape, clock, minutes

FloatArray = NDArray[np.float64]
TimeArray = NDArray[np.datetime64]

#: New York commercial retail price in 2018, $/kWh.
RETAIL_PRICE = 0.137


@dataclass(frozen=True, eq=False)
class Tariff:
    """Energy price in $/kWh at any time of the day or year."""

    price: float | Sequence[float] | FloatArray = RETAIL_PRICE
    """One price, one for each of the 24 hours, or one for each of `stamps`."""
    stamps: TimeArray | None = field(default=None, repr=False)
    """Times from which each of `price` holds; see `from_csv`."""

    def __post_init__(self) -> None:
        prices = as_float_array(self.price, "price", (0, 1))
        if self.stamps is None and prices.shape not in ((), (24,)):
            raise ValueError(
                f"price must be one number or a list of 24 hourly prices, got {prices.size} values; use "
                "Tariff.from_csv for prices that change with the date."
            )
        if self.stamps is not None:
            object.__setattr__(self, "stamps", as_times(self.stamps, "stamps"))
            check_shape(np.asarray(self.stamps), prices.shape, "stamps", "one stamp per price")

    @classmethod
    def from_csv(cls, path: str | os.PathLike[str]) -> Tariff:
        """Read a CSV of ``hour,price`` (24 rows, 0–23) or ``timestamp,price`` rows, prices in $/kWh.

        A stamp's price holds until the next one. A header line is allowed.
        """
        rows = read_pairs(Path(path), "price in $/kWh")
        keys, prices = [key for _, key, _ in rows], [price for _, _, price in rows]
        if all(key.isdigit() for key in keys):
            hours = [int(key) for key in keys]
            if sorted(hours) != list(range(24)):
                raise ValueError(f"{path} must give each hour 0 … 23 once, got the hours {sorted(hours)}.")
            return cls([price for _, price in sorted(zip(hours, prices, strict=True))])
        stamps, values = in_order(rows, path, "neither an hour 0–23 nor")
        return cls(values, stamps)

    def __repr__(self) -> str:
        prices = np.asarray(self.price, dtype=float)
        if prices.ndim == 0:
            return f"Tariff({float(prices):g} $/kWh)"
        kind = "hourly prices" if self.stamps is None else f"prices from {clock(self.stamps[0])} on"
        return f"Tariff({prices.size} {kind}, {prices.min():g} to {prices.max():g} $/kWh)"

    def at(self, times: ArrayLike) -> FloatArray:
        """Price in force at each of `times`."""
        stamps = np.asarray(times, dtype="datetime64[s]")
        prices = np.asarray(self.price, dtype=float)
        if self.stamps is not None:
            index = np.searchsorted(self.stamps, stamps, side="right") - 1
            if index.min() < 0:
                raise ValueError(
                    f"the tariff starts at {self.stamps[0]}, after {stamps.min()}; give it prices from that time on."
                )
            return prices[index]
        if prices.ndim == 0:
            return np.full(stamps.shape, float(prices))
        return np.asarray(prices[hour_of_day(stamps)])


@dataclass(frozen=True, eq=False)
class EventTimeline:
    """One event laid on the decision times; arrays of length T + 1, entry `t` for the interval ending at ``times[t]``.

    Prices are in dollars per kWh.
    """

    times: TimeArray
    energy_price: FloatArray
    incentive: FloatArray
    in_event: NDArray[np.bool_]
    baseline_kw: FloatArray | None = None
    """Customer baseline of the whole ensemble, if meter data were given."""

    def __post_init__(self) -> None:
        for name in ("times", "energy_price", "incentive", "in_event", "baseline_kw"):
            value = getattr(self, name)
            if value is not None:
                array = np.array(value)
                check_shape(array, (len(self.times),), name, "one entry per time")
                array.setflags(write=False)
                object.__setattr__(self, name, array)

    def __repr__(self) -> str:
        steps = f"{len(self.times) - 1} steps"
        if len(self.times) > 1:
            steps += f" of {minutes(self.times[1] - self.times[0])}"
        return (
            f"EventTimeline({clock(self.times[0])} to {clock(self.times[-1])}, {steps}, "
            f"{int(self.in_event.sum())} of them in the event, "
            f"{'no' if self.baseline_kw is None else 'with a'} baseline)"
        )

    @property
    def price(self) -> FloatArray:
        """What one kWh costs the aggregator: energy price and forgone incentive."""
        return self.energy_price + self.incentive

    def utility(self, power_kw: ArrayLike) -> FloatArray:
        """Return the utility in dollars, shape (T + 1, n), of running at `power_kw` (n,) for one interval."""
        power = as_float_array(power_kw, "power_kw", 1)
        hours = float((self.times[1] - self.times[0]) / np.timedelta64(3600, "s"))
        return -self.price[:, None] * power * hours


def in_order(
    rows: list[tuple[int, str, float]], path: Any, no: str = "not"
) -> tuple[NDArray[np.datetime64], FloatArray]:
    """Return stamps and values of the rows of `read_pairs` in the order of time."""
    stamps = []
    for line, key, _ in rows:
        try:
            stamps.append(np.datetime64(key.replace(" ", "T"), "s"))
        except ValueError as error:
            raise ValueError(
                f"line {line} of {path} starts with {key!r}, {no} a stamp like 2018-07-02 11:00; correct it."
            ) from error
    order = np.argsort(stamps)
    return np.array(stamps)[order], np.array([value for *_, value in rows])[order]


def read_pairs(path: Path, what: str) -> list[tuple[int, str, float]]:
    """Read (line number, first cell, value) of each row of a CSV file; one header line is allowed."""
    rows: list[tuple[int, str, float]] = []
    with path.open(newline="", encoding="utf-8-sig") as stream:
        for number, cells in enumerate(csv.reader(stream), start=1):
            if not any(cell.strip() for cell in cells):
                continue
            try:
                value = float(cells[1])
                if not np.isfinite(value):
                    raise ValueError
                rows.append((number, cells[0].strip(), value))
            except (IndexError, ValueError) as error:
                if rows or number > 1:
                    raise ValueError(
                        f"line {number} of {path} is {','.join(cells)!r}, not a time and a {what}; correct it."
                    ) from error
    if not rows:
        raise ValueError(f"{path} holds no {what}; write lines like '2018-07-02 11:00,0.137'.")
    return rows
