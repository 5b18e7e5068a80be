"""Pictures of an episode, drawn with pygame-ce as an array or in a window.

The left panel shows where the loads are (bars) and where they would be expected had nobody interfered (outline): along
the power levels, or along temperature, charge or whatever the model's states are made of, split by the rest (on and
off, say). The right panels show the power so far, the uncontrolled power, the customer baseline, a limit or target and
the event window, and below them the contexts so far and the price (dashed: the price expected from here on). Colours
are those of Okabe and Ito, which colour-blind readers can tell apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.error import DependencyNotInstalled
from numpy.typing import NDArray

from dp_ensemble_env.envs.scene import Scene, as_text, clock_text, value_text
from dp_ensemble_env.model import EnsembleModel

FloatArray = NDArray[np.float64]
Color = tuple[int, int, int]
WIDTH, HEIGHT = 800, 450
BLUE, ORANGE, GREEN = (0, 114, 178), (213, 94, 0), (0, 158, 115)
INK, GREY, PALE, WINDOW, WHITE = (30, 30, 30), (110, 110, 110), (222, 222, 222), (250, 240, 205), (255, 255, 255)
PURPLE = (204, 121, 167)
#: Parts of a bar that have names: light, sky, blue, green, yellow, purple, brown.
WORDS: list[Color] = [
    (196, 203, 210), (86, 180, 233), BLUE, GREEN, (240, 228, 66), PURPLE, (122, 82, 48), (60, 60, 60),
]  # fmt: skip
#: Contexts in the band above the prices.
BANDS: list[Color] = [
    (208, 226, 240), (250, 240, 205), (246, 207, 180), (214, 236, 222), (234, 214, 228), (225, 225, 225),
    (240, 236, 180), (200, 215, 215),
]  # fmt: skip


@dataclass(frozen=True)
class _Axes:
    """A plotting area in pixels with its data limits."""

    left: int
    top: int
    right: int
    bottom: int
    x: tuple[float, float]
    y: tuple[float, float]

    def at(self, x: float, y: float) -> tuple[int, int]:
        across = (x - self.x[0]) / (self.x[1] - self.x[0])
        up = (y - self.y[0]) / (self.y[1] - self.y[0])
        return round(self.left + across * (self.right - self.left)), round(self.bottom - up * (self.bottom - self.top))


class Renderer:
    """Draw scenes in one render mode: ``"rgb_array"``, ``"human"`` (a window, at `fps`) or ``"ansi"``."""

    def __init__(self, mode: str, fps: int) -> None:
        self.mode, self.fps = mode, fps
        self._pygame: Any = None
        self._window: Any = None
        self._clock: Any = None
        self._fonts: dict[int, Any] = {}
        if mode != "ansi":
            try:
                import pygame
            except ImportError as error:
                raise DependencyNotInstalled(
                    "render_mode='rgb_array' and 'human' need pygame-ce; install it with "
                    "pip install pygame-ce, or use render_mode='ansi'."
                ) from error
            self._pygame = pygame
            pygame.font.init()
            self._canvas = pygame.Surface((WIDTH, HEIGHT))

    def draw(self, scene: Scene) -> Any:
        """Return the frame (an array or text); in human mode show it and return None."""
        if self.mode == "ansi":
            return as_text(scene)
        try:
            return self._picture(scene)
        except self._pygame.error:  # someone has called pygame.quit(): fonts and window are gone
            self._fonts.clear()
            self._window = None
            self._pygame.font.init()
            return self._picture(scene)

    def _picture(self, scene: Scene) -> Any:
        self._canvas.fill(WHITE)
        self._text(scene.headline, (16, 12), 22)
        self._text(scene.money, (WIDTH - 16, 15), 17, align="right")
        self._levels(scene)
        self._trace(scene)
        self._prices(scene)
        self._line((0, HEIGHT - 30), (WIDTH, HEIGHT - 30), PALE)
        self._text(scene.privacy, (16, HEIGHT - 21), 16, GREY)
        if self.mode == "human":
            self._show()
            return None
        return np.transpose(self._pygame.surfarray.array3d(self._canvas), (1, 0, 2))

    def close(self) -> None:
        """Close the window."""
        if self._window is not None:
            self._pygame.display.quit()
            self._window = None

    def _show(self) -> None:
        pygame = self._pygame
        if self._window is None:
            pygame.display.init()
            self._window = pygame.display.set_mode((WIDTH, HEIGHT))
            pygame.display.set_caption("dp_ensemble")
            self._clock = pygame.time.Clock()
        self._window.blit(self._canvas, (0, 0))
        pygame.event.pump()
        pygame.display.flip()
        self._clock.tick(self.fps)

    # ------------------------------------------------------------ panels
    def _levels(self, scene: Scene) -> None:
        groups = scene.groups()
        shares, default = scene.split(scene.occupancy), scene.split(scene.default_occupancy).sum(axis=1)
        n, parts = shares.shape
        colors = _part_colors(parts, groups.numbers)
        outline = ORANGE if parts == 1 else INK
        names = [("now", BLUE)] if parts == 1 else list(zip(groups.parts, colors, strict=True))
        rows = self._key_rows([*names, ("if uncontrolled", outline)], 316)
        top = _round_up(max(shares.sum(axis=1).max(), default.max()))
        axes = _Axes(56, 60 + 14 * len(rows), 372, 372, (-0.5, n - 0.5), (0.0, top))
        form = "{:.0%}" if top >= 0.05 else "{:.2%}"
        what = "share of the loads at each power level" if not scene.model.axes else "share of the loads"
        self._text(what, (axes.left, 40), 16)
        self._frame(axes, "", _ticks(0.0, top), form)
        # The outline would hide one-pixel bars, so it stands on the bars' edges.
        self._bars(axes, shares, colors)
        edges = [axes.at(edge, default[level]) for level in range(n) for edge in (level - 0.5, level + 0.5)]
        self._path(edges, outline, 2)
        for level in np.unique(np.linspace(0, n - 1, min(n, 5)).round().astype(int)):
            x, y = axes.at(level, 0.0)
            self._text(value_text(groups.values[level]), (x, y + 6), 15, align="centre")
        self._text(groups.label, ((axes.left + axes.right) // 2, axes.bottom + 24), 15, align="centre")
        for row, line in enumerate(rows):
            self._key(axes.right, 58 + 14 * row, line)

    def _bars(self, axes: _Axes, shares: FloatArray, colors: list[Color]) -> None:
        """Draw the shares (n, parts) of the loads, the parts of a value on top of each other."""
        for value, row in enumerate(shares):
            base = 0.0
            for share, color in zip(row, colors, strict=True):
                x0, y0 = axes.at(value - 0.42, base + share)
                x1, y1 = axes.at(value + 0.42, base)
                self._pygame.draw.rect(self._canvas, color, (x0, y0, max(1, x1 - x0), y1 - y0))
                base += share

    def _trace(self, scene: Scene) -> None:
        model, event, limit = scene.model, scene.model.event, scene.limit
        baseline = None if event is None or event.baseline_kw is None else event.baseline_kw / model.loads
        others = [] if baseline is None else [baseline]
        others += [] if limit is None else [limit[1]]
        shown = np.concatenate([scene.power_kw, scene.default_power_kw, *others])
        low, high = _padded(float(np.nanmin(shown)), float(np.nanmax(shown)))
        axes = _Axes(444, 74, 784, 262, (0.0, float(model.horizon)), (low, high))
        begins = self._event(axes, model)
        self._frame(axes, power_title(low), _ticks(low, high), "{:g}")
        names = [("controlled", BLUE), ("uncontrolled", ORANGE)]
        if baseline is not None:
            self._dashes([axes.at(t, value) for t, value in enumerate(baseline)], GREY)
            names.append(("baseline", GREY))
        if limit is not None:
            for t in (np.flatnonzero(np.isfinite(limit[1][1:])) + 1).tolist():
                self._path([axes.at(t - 1, limit[1][t]), axes.at(t, limit[1][t])], PURPLE, 3)
            names.append((limit[0], PURPLE))
        self._path([axes.at(t, value) for t, value in enumerate(scene.default_power_kw)], ORANGE, 2)
        points = [axes.at(t, value) for t, value in enumerate(scene.power_kw)]
        self._path(points, BLUE, 3)
        self._pygame.draw.circle(self._canvas, BLUE, points[-1], 4)
        self._key(axes.right, axes.top - 16, names)
        self._name_event(axes, begins)

    def _prices(self, scene: Scene) -> None:
        model, price = scene.model, scene.price
        contextual = model.context is not None
        low, high = min(0.0, float(price.min())), max(0.0, float(price.max()))
        low, high = (low, _round_up(high)) if low == 0.0 else _padded(low, high)
        axes = _Axes(444, 316 if contextual else 300, 784, 372, (0.0, float(model.horizon)), (low, high))
        self._event(axes, model)
        self._band(scene, axes)
        self._text("price ($/kWh)", (axes.left, 278 if contextual else 284), 16)
        self._frame(axes, "", _ticks(low, high, 2), "{:g}")
        known = scene.time if contextual else model.horizon
        self._path([axes.at(x, price[t]) for t in range(1, known + 1) for x in (t - 1, t)], GREEN, 2)
        ahead = [axes.at(x, price[t]) for t in range(known + 1, model.horizon + 1) for x in (t - 1, t)]
        if ahead:
            self._dashes(ahead, GREEN)
        x, _ = axes.at(scene.time, low)
        self._line((x, axes.top), (x, axes.bottom), BLUE)
        for t in _hour_ticks(model):
            x, y = axes.at(t, low)
            self._text(clock_text(model.times[t]), (min(x, WIDTH - 22), y + 6), 15, align="centre")
        self._text("time of day", ((axes.left + axes.right) // 2, axes.bottom + 24), 15, align="centre")

    def _band(self, scene: Scene, axes: _Axes) -> None:
        """Show the contexts so far above the prices, each with its name where there is room."""
        for context, start, end in scene.runs():
            x0, _ = axes.at(start, axes.y[0])
            x1, _ = axes.at(max(end, start + 0.5), axes.y[0])
            self._pygame.draw.rect(self._canvas, BANDS[context % len(BANDS)], (x0, axes.top - 20, max(2, x1 - x0), 15))
            name = scene.sign(context)
            if self._font(14).size(name)[0] + 4 <= x1 - x0:
                self._text(name, (x0 + 3, axes.top - 18), 14)

    def _event(self, axes: _Axes, model: EnsembleModel) -> int | None:
        """Shade the intervals of the event; return where it begins."""
        if model.event is None or not model.event.in_event.any():
            return None
        inside = np.flatnonzero(model.event.in_event)
        x0, _ = axes.at(max(inside[0] - 1, 0), axes.y[0])
        x1, _ = axes.at(inside[-1], axes.y[0])
        self._pygame.draw.rect(self._canvas, WINDOW, (x0, axes.top, x1 - x0, axes.bottom - axes.top))
        return x0

    def _name_event(self, axes: _Axes, begins: int | None) -> None:
        """Write "event" into the shade, above everything else."""
        if begins is not None:
            self._text("event", (begins + 7, axes.bottom - 18), 15, GREY)

    # ------------------------------------------------------------ strokes
    def _frame(self, axes: _Axes, title: str, ticks: list[float], form: str) -> None:
        if title:
            self._text(title, (axes.left, axes.top - (34 if axes.top < 100 else 16)), 16)
        for tick in ticks:
            _, y = axes.at(axes.x[0], tick)
            self._line((axes.left, y), (axes.right, y), PALE)
            self._text(form.format(tick), (axes.left - 5, y - 5), 15, align="right")
        self._line((axes.left, axes.bottom), (axes.right, axes.bottom), INK)
        self._line((axes.left, axes.top), (axes.left, axes.bottom), INK)

    def _key_rows(self, names: list[tuple[str, Color]], width: int) -> list[list[tuple[str, Color]]]:
        rows: list[list[tuple[str, Color]]] = [[]]
        for entry in names:
            if rows[-1] and sum(self._width(name) for name, _ in (*rows[-1], entry)) > width + 11:
                rows.append([])
            rows[-1].append(entry)
        return rows

    def _key(self, right: int, y: int, names: list[tuple[str, Color]]) -> None:
        x = right - sum(self._width(name) for name, _ in names) + 11
        for name, color in names:
            self._pygame.draw.rect(self._canvas, color, (x, y + 3, 14, 4))
            self._text(name, (x + 19, y), 15)
            x += self._width(name)

    def _width(self, name: str) -> int:
        return int(self._font(15).size(name)[0]) + 30

    def _line(self, start: tuple[int, int], end: tuple[int, int], color: Color, width: int = 1) -> None:
        self._pygame.draw.line(self._canvas, color, start, end, width)

    def _path(self, points: list[tuple[int, int]], color: Color, width: int) -> None:
        if len(points) > 1:
            self._pygame.draw.lines(self._canvas, color, False, points, width)

    def _dashes(self, points: list[tuple[int, int]], color: Color) -> None:
        dense = np.array(points, dtype=float)
        at = np.linspace(0.0, len(points) - 1.0, 61)
        across, down = (np.interp(at, np.arange(len(points)), dense[:, axis]).round().astype(int) for axis in (0, 1))
        for j in range(0, 60, 2):
            self._line((int(across[j]), int(down[j])), (int(across[j + 1]), int(down[j + 1])), color, 2)

    def _font(self, size: int) -> Any:
        if size not in self._fonts:
            self._fonts[size] = self._pygame.font.Font(None, size + 3)
        return self._fonts[size]

    def _text(self, text: str, at: tuple[int, int], size: int, color: Color = INK, align: str = "left") -> None:
        image = self._font(size).render(text, True, color)
        shift = {"left": 0, "right": image.get_width(), "centre": image.get_width() // 2}[align]
        self._canvas.blit(image, (at[0] - shift, at[1]))


# ------------------------------------------------------------------ numbers
def _part_colors(parts: int, numbers: bool) -> list[Color]:
    """Return one colour for each part of a bar: shades of blue for numbers, colours of their own for words."""
    if parts == 1:
        return [BLUE]
    if not numbers:
        return [WORDS[i % len(WORDS)] for i in range(parts)]
    mix = np.linspace(0.0, 1.0, parts)
    pale, deep = np.array([190, 215, 233]), np.array([0, 58, 96])
    return [(int(c[0]), int(c[1]), int(c[2])) for c in (pale + (deep - pale) * x for x in mix)]


def _round_up(value: float) -> float:
    """Round up to 1, 1.5, 2, 2.5, 4, 5, 7.5 or 10 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** np.floor(np.log10(value))
    return float(next(step * power for step in (1, 1.5, 2, 2.5, 4, 5, 7.5, 10) if value <= step * power * (1 + 1e-9)))


def _padded(low: float, high: float) -> tuple[float, float]:
    margin = 0.08 * (high - low) or 0.05 * abs(high) or 1.0
    return low - margin, high + margin


def power_title(low: float, more: str = "") -> str:
    """Name an axis of power, and say so where it is cut."""
    return f"mean power of a load{more}, kW" + (" (axis starts above 0)" if low > 0 else "")


def _ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Round numbers between two limits, three or more."""
    step = _round_up((high - low) / (count + 1))
    while np.floor(high / step + 1e-9) - np.ceil(low / step - 1e-9) < 2:
        step = _round_up(step / 2.1)
    first = np.ceil(low / step - 1e-9)
    return [float(round(k * step, 12)) + 0.0 for k in np.arange(first, np.floor(high / step + 1e-9) + 1)]  # no -0


def _hour_ticks(model: EnsembleModel, most: int = 6) -> NDArray[np.int64]:
    """Choose the times to label: full hours if there are two to six of them, else some evenly spaced ones."""
    hours = np.flatnonzero(model.times.astype("datetime64[s]").astype(np.int64) % 3600 == 0)
    if 2 <= len(hours) <= most:
        return hours
    return np.unique(np.linspace(0, model.horizon, min(model.horizon + 1, most - 1)).round().astype(np.int64))
