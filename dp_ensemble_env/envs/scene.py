"""The data of a picture of one moment in an episode, and the same as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.envs.tables import observed_price
from dp_ensemble_env.model import EnsembleModel

FloatArray = NDArray[np.float64]


class Groups(NamedTuple):
    """The loads along one quantity, split by another."""

    label: str  #: name of the quantity along the axis
    values: tuple[Any, ...]  #: from left to right
    parts: tuple[str, ...]  #: names of what bars are split into, from the bottom; one nameless part if they are not
    numbers: bool  #: whether the parts are numbers, which follow one another, rather than words


@dataclass(frozen=True, eq=False)
class Scene:
    """What there is to see at one moment; powers per load, rewards and contexts so far."""

    model: EnsembleModel
    title: str
    time: int
    occupancy: FloatArray
    default_occupancy: FloatArray
    power_kw: FloatArray
    default_power_kw: FloatArray
    rewards: FloatArray
    optimal_return: float
    privacy: str
    contexts: NDArray[np.int64] | None = None

    @property
    def clock(self) -> str:
        """Wall-clock time of the moment."""
        return clock_text(self.model.times[self.time])

    @property
    def headline(self) -> str:
        """Population, time, step and context."""
        now = f", {self.context_name}" if self.context_name else ""
        return f"{self.title}, {self.clock}, step {self.time} of {self.model.horizon}{now}"

    @property
    def money(self) -> str:
        """Reward so far and the optimum of the whole episode."""
        expected = "expected optimum" if self.model.context is not None else "optimal total"
        return f"reward so far {self.rewards.sum():,.2f}, {expected} {self.optimal_return:,.2f} $/load"

    @property
    def context_name(self) -> str:
        """Name of the present context, empty where there is none."""
        return self.sign(self.runs()[-1][0]) if self.runs() else ""

    def sign(self, group: int) -> str:
        """Return the name of contexts that look the same, by the number of their group."""
        return "" if self.model.context is None else self.model.context.signs[group]

    def runs(self) -> list[tuple[int, int, int]]:
        """Return the contexts so far as runs: the group that is shown, the time it came and the time it went."""
        if self.model.context is None or self.contexts is None:
            return []
        path = self.model.context.shown[self.contexts]
        starts = np.flatnonzero(np.concatenate([[True], path[1:] != path[:-1]]))
        ends = [*starts[1:], len(path) - 1]
        return [(int(path[a]), int(a), int(b)) for a, b in zip(starts, ends, strict=True)]

    @property
    def price(self) -> FloatArray:
        """Price of the interval that ends at each time, $/kWh: that of the contexts so far, then the expected one."""
        price = observed_price(self.model)
        if price.ndim == 1 or self.model.context is None or self.contexts is None:
            return price
        shown = np.empty(len(price))
        shown[: self.time + 1] = price[np.arange(self.time + 1), self.contexts]
        chance = self.model.context.chances(self.time, int(self.contexts[-1]))
        for t in range(self.time, self.model.horizon):
            moves = self.model.context.transition
            chance = chance @ (moves if moves.ndim == 2 else moves[t])
            shown[t + 1] = chance @ price[t + 1]
        return shown

    @property
    def limit(self) -> tuple[str, FloatArray] | None:
        """What the mean power is held against, and its name; NaN where nothing is asked."""
        coupling = self.model.coupling
        if coupling is None:
            return None
        asked = np.where(coupling.weight > 0, coupling.level, np.nan)
        return ("target" if coupling.kind == "tracking" else "limit"), asked

    # ------------------------------------------------------------ loads
    def groups(self) -> Groups:
        """Say what the loads are shown along: power levels, or the axes of the model."""
        axes = self.model.axes
        if not axes:
            levels = tuple(round(float(x), 3) for x in np.sort(self.model.power_kw, kind="stable"))
            return Groups("power of a load (kW)", levels, ("",), True)
        across, split = self._axes()
        along = axes[across]
        if split is None:
            return Groups(along.name, along.values, ("",), True)
        parts = tuple(value if isinstance(value, str) else f"{value:g}" for value in axes[split].values)
        numbers = not isinstance(axes[split].values[0], str)
        if numbers:  # words name themselves, numbers need to be told what they are
            parts = (f"{axes[split].name}: {parts[0]}", *parts[1:])
        return Groups(along.name, along.values, parts, numbers)

    def split(self, shares: FloatArray) -> FloatArray:
        """Arrange shares (n,) as `groups` says: one row per value, one column per part."""
        axes = self.model.axes
        if not axes:
            return shares[np.argsort(self.model.power_kw, kind="stable")][:, None]
        across, split = self._axes()
        kept = (across,) if split is None else (across, split)
        cube = shares.reshape([len(axis) for axis in axes])
        table: FloatArray = cube.sum(axis=tuple(i for i in range(len(axes)) if i not in kept))
        if split is None:
            return table[:, None]
        return table if across < split else table.T

    def _axes(self) -> tuple[int, int | None]:
        """Choose the axis that bars stand along, the longest one of numbers, and the one that splits them."""
        axes = self.model.axes
        words = [i for i, axis in enumerate(axes) if isinstance(axis.values[0], str)]
        numeric = [i for i in range(len(axes)) if i not in words] or words
        across = max(numeric, key=lambda i: len(axes[i]))
        others = [i for i in (*words, *numeric) if i != across]
        return across, next(iter(others), None)


def clock_text(time: np.datetime64) -> str:
    """Write the time of day."""
    return str(time.astype("datetime64[m]"))[11:16]


def as_text(scene: Scene, width: int = 40) -> str:
    """Write a scene for a terminal: bars are the shares, a bar's ``|`` the uncontrolled share."""
    groups, table, model = scene.groups(), scene.split(scene.occupancy), scene.model
    shares, default = table.sum(axis=1), scene.split(scene.default_occupancy).sum(axis=1)
    top = max(shares.max(), default.max()) or 1.0
    lines = [scene.headline, scene.money, "", *([groups.label] if model.axes else [])]
    few = shares.size <= 40  # of many levels only those where something is
    for level in np.flatnonzero(few | (shares > 0.005) | (default > 0.005)):
        cells = list(("#" * round(shares[level] / top * width)).ljust(width + 1))
        cells[round(default[level] / top * width)] = "|"
        value = groups.values[level]
        label = f"{value_text(value):>12}" if model.axes else f"{value:9.1f} kW"
        lines.append(f"{label} {''.join(cells)} {shares[level]:6.1%}")
    if table.shape[1] > 1:
        totals = zip(groups.parts, table.sum(axis=0), strict=True)
        lines += ["", ", ".join(f"{name} {share:.0%}" for name, share in totals)]
    now, digits, held = min(scene.time + 1, model.horizon), 1 if model.power_kw.max() >= 20 else 3, ""
    if scene.limit is not None and np.isfinite(scene.limit[1][scene.time]):
        held = f", {scene.limit[0]} {scene.limit[1][scene.time]:.{digits}f} kW"
    power, uncontrolled = scene.power_kw[-1], scene.default_power_kw[scene.time]
    expected = "expected price" if model.context is not None else "price"
    event = ", event on" if model.event is not None and model.event.in_event[now] else ""
    lines += [
        "",
        f"power {power:.{digits}f} kW a load, uncontrolled {uncontrolled:.{digits}f} kW (|){held}",
        f"{expected} {scene.price[now]:.3f} $/kWh{event}",
        scene.privacy,
    ]
    return "\n".join(lines) + "\n"


def value_text(value: Any) -> str:
    """Write a value of an axis: a word as it is, a number with three digits."""
    return value if isinstance(value, str) else f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
