"""Pictures of an episode: with pygame-ce as an array or in a window, or as text.

The left panel shows where the loads are (bars) and where they would be expected
had nobody interfered (outline). The right panels show the power so far, the
uncontrolled power, the customer baseline and the event window, and below them
the price. Colours are those of Okabe and Ito, which colour-blind readers can
tell apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.error import DependencyNotInstalled
from numpy.typing import NDArray

from dp_ensemble_env.envs.tables import observed_price
from dp_ensemble_env.model import EnsembleModel

FloatArray = NDArray[np.float64]
Color = tuple[int, int, int]
WIDTH, HEIGHT = 800, 450
BLUE, ORANGE, GREEN = (0, 114, 178), (213, 94, 0), (0, 158, 115)
INK, GREY, PALE, WINDOW, WHITE = (30, 30, 30), (110, 110, 110), (222, 222, 222), (250, 240, 205), (255, 255, 255)


@dataclass(frozen=True, eq=False)
class Scene:
    """What there is to see at one moment of an episode; powers per building, rewards so far."""

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

    @property
    def clock(self) -> str:
        """Wall-clock time of the moment."""
        return _clock_text(self.model.times[self.time])

    @property
    def headline(self) -> str:
        """Population, time and step."""
        return f"{self.title}, {self.clock}, step {self.time} of {self.model.horizon}"

    @property
    def money(self) -> str:
        """Reward so far and the optimum of the whole episode."""
        return f"reward so far {self.rewards.sum():,.2f}, optimal total {self.optimal_return:,.2f} $/building"

    @property
    def price(self) -> FloatArray:
        """Price of the interval that ends at each time, $/kWh."""
        return observed_price(self.model)


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
    """Draw scenes in one render mode.

    Parameters
    ----------
    mode : {"rgb_array", "human", "ansi"}
    fps : int
        Pace of the window.
    """

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
        n = scene.occupancy.size
        order = np.argsort(scene.model.power_kw, kind="stable")
        shares, default = scene.occupancy[order], scene.default_occupancy[order]
        top = _round_up(max(shares.max(), default.max()))
        axes = _Axes(56, 74, 372, 372, (-0.5, n - 0.5), (0.0, top))
        form = "{:.0%}" if top >= 0.05 else "{:.2%}"
        self._frame(axes, "share of the loads at each power level", _ticks(0.0, top), form)
        # The outline would hide one-pixel bars, so it stands on the bars' edges.
        for level in range(n):
            x0, y0 = axes.at(level - 0.42, shares[level])
            x1, y1 = axes.at(level + 0.42, 0.0)
            self._pygame.draw.rect(self._canvas, BLUE, (x0, y0, max(1, x1 - x0), y1 - y0))
        outline = [axes.at(edge, default[level]) for level in range(n) for edge in (level - 0.5, level + 0.5)]
        self._path(outline, ORANGE, 2)
        for level in np.unique(np.linspace(0, n - 1, min(n, 5)).round().astype(int)):
            x, y = axes.at(level, 0.0)
            self._text(f"{scene.model.power_kw[order[level]]:.0f}", (x, y + 6), 15, align="centre")
        self._text("power of a building (kW)", ((axes.left + axes.right) // 2, axes.bottom + 24), 15, align="centre")
        self._key(axes.right, axes.top - 16, [("now", BLUE), ("if uncontrolled", ORANGE)])

    def _trace(self, scene: Scene) -> None:
        model = scene.model
        baseline = None
        if model.event is not None and model.event.baseline_kw is not None:
            baseline = model.event.baseline_kw / model.buildings
        shown = np.concatenate([scene.power_kw, scene.default_power_kw, [] if baseline is None else baseline])
        low, high = _padded(float(shown.min()), float(shown.max()))
        axes = _Axes(444, 74, 784, 262, (0.0, float(model.horizon)), (low, high))
        self._event(axes, model)
        self._frame(axes, "mean power of a building (kW)", _ticks(low, high), "{:g}")
        if baseline is not None:
            self._dashes([axes.at(t, value) for t, value in enumerate(baseline)], GREY)
        self._path([axes.at(t, value) for t, value in enumerate(scene.default_power_kw)], ORANGE, 2)
        points = [axes.at(t, value) for t, value in enumerate(scene.power_kw)]
        self._path(points, BLUE, 3)
        self._pygame.draw.circle(self._canvas, BLUE, points[-1], 4)
        names = [("controlled", BLUE), ("uncontrolled", ORANGE)] + (
            [("baseline", GREY)] if baseline is not None else []
        )
        self._key(axes.right, axes.top - 16, names)
        self._name_event(axes, model)

    def _prices(self, scene: Scene) -> None:
        model, price = scene.model, scene.price
        low, high = min(0.0, float(price.min())), _round_up(max(float(price.max()), 1e-9))
        axes = _Axes(444, 300, 784, 372, (0.0, float(model.horizon)), (low, high))
        self._event(axes, model)
        self._frame(axes, "price ($/kWh)", _ticks(low, high, 2), "{:g}")
        steps = [axes.at(x, price[t]) for t in range(1, model.horizon + 1) for x in (t - 1, t)]
        self._path(steps, GREEN, 2)
        x, _ = axes.at(scene.time, low)
        self._line((x, axes.top), (x, axes.bottom), BLUE)
        for t in _hour_ticks(model):
            x, y = axes.at(t, low)
            self._text(_clock_text(model.times[t]), (min(x, WIDTH - 18), y + 6), 15, align="centre")
        self._text("time of day", ((axes.left + axes.right) // 2, axes.bottom + 24), 15, align="centre")

    def _event(self, axes: _Axes, model: EnsembleModel) -> None:
        """Shade the intervals of the event."""
        if model.event is None or not model.event.in_event.any():
            return
        inside = np.flatnonzero(model.event.in_event)
        x0, _ = axes.at(max(inside[0] - 1, 0), axes.y[0])
        x1, _ = axes.at(inside[-1], axes.y[0])
        self._pygame.draw.rect(self._canvas, WINDOW, (x0, axes.top, x1 - x0, axes.bottom - axes.top))

    def _name_event(self, axes: _Axes, model: EnsembleModel) -> None:
        """Write "event" into the shade, above everything else."""
        if model.event is not None and model.event.in_event.any():
            x, _ = axes.at(max(np.flatnonzero(model.event.in_event)[0] - 1, 0), axes.y[0])
            self._pygame.draw.rect(self._canvas, WINDOW, (x + 3, axes.bottom - 20, 46, 16))
            self._text("event", (x + 7, axes.bottom - 18), 15, GREY)

    # ------------------------------------------------------------ strokes
    def _frame(self, axes: _Axes, title: str, ticks: list[float], form: str) -> None:
        self._text(title, (axes.left, axes.top - (34 if axes.top < 100 else 16)), 16)
        for tick in ticks:
            _, y = axes.at(axes.x[0], tick)
            self._line((axes.left, y), (axes.right, y), PALE)
            self._text(form.format(tick), (axes.left - 5, y - 5), 15, align="right")
        self._line((axes.left, axes.bottom), (axes.right, axes.bottom), INK)
        self._line((axes.left, axes.top), (axes.left, axes.bottom), INK)

    def _key(self, right: int, y: int, names: list[tuple[str, Color]]) -> None:
        widths = [self._font(15).size(name)[0] + 30 for name, _ in names]
        x = right - sum(widths) + 11
        for (name, color), width in zip(names, widths, strict=True):
            self._pygame.draw.rect(self._canvas, color, (x, y + 3, 14, 4))
            self._text(name, (x + 19, y), 15)
            x += width

    def _line(self, start: tuple[int, int], end: tuple[int, int], color: Color) -> None:
        self._pygame.draw.line(self._canvas, color, start, end)

    def _path(self, points: list[tuple[int, int]], color: Color, width: int) -> None:
        if len(points) > 1:
            self._pygame.draw.lines(self._canvas, color, False, points, width)

    def _dashes(self, points: list[tuple[int, int]], color: Color) -> None:
        dense = np.array(points, dtype=float)
        at = np.linspace(0.0, len(points) - 1.0, 61)
        across, down = (np.interp(at, np.arange(len(points)), dense[:, axis]).round().astype(int) for axis in (0, 1))
        for j in range(0, 60, 2):
            start, end = (int(across[j]), int(down[j])), (int(across[j + 1]), int(down[j + 1]))
            self._pygame.draw.line(self._canvas, color, start, end, 2)

    def _font(self, size: int) -> Any:
        if size not in self._fonts:
            self._fonts[size] = self._pygame.font.Font(None, size + 3)
        return self._fonts[size]

    def _text(self, text: str, at: tuple[int, int], size: int, color: Color = INK, align: str = "left") -> None:
        image = self._font(size).render(text, True, color)
        shift = {"left": 0, "right": image.get_width(), "centre": image.get_width() // 2}[align]
        self._canvas.blit(image, (at[0] - shift, at[1]))


def as_text(scene: Scene, width: int = 40) -> str:
    """Write a scene for a terminal: bars are the shares, a bar's ``|`` the uncontrolled share."""
    shares, default = scene.occupancy, scene.default_occupancy
    top = max(shares.max(), default.max())
    lines = [scene.headline, scene.money, ""]
    levels = np.arange(shares.size)
    if shares.size > 40:  # only levels where something is
        levels = np.flatnonzero((shares > 0.005) | (default > 0.005))
    for level in levels:
        cells = list(("#" * round(shares[level] / top * width)).ljust(width + 1))
        cells[round(default[level] / top * width)] = "|"
        lines.append(f"{scene.model.power_kw[level]:9.1f} kW {''.join(cells)} {shares[level]:6.1%}")
    power, default_power = scene.power_kw[-1], scene.default_power_kw[scene.time]
    now = scene.price[min(scene.time + 1, scene.model.horizon)]
    event = scene.model.event
    inside = event is not None and bool(event.in_event[min(scene.time + 1, scene.model.horizon)])
    lines += [
        "",
        f"power {power:.1f} kW a building, uncontrolled {default_power:.1f} kW (|)",
        f"price {now:.3f} $/kWh{', event on' if inside else ''}",
        scene.privacy,
    ]
    return "\n".join(lines) + "\n"


# ------------------------------------------------------------------ numbers
def _clock_text(time: np.datetime64) -> str:
    return str(time.astype("datetime64[m]"))[11:16]


def _round_up(value: float) -> float:
    """Round up to 1, 1.5, 2, 2.5, 4, 5, 7.5 or 10 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** np.floor(np.log10(value))
    return float(next(step * power for step in (1, 1.5, 2, 2.5, 4, 5, 7.5, 10) if value <= step * power * (1 + 1e-9)))


def _padded(low: float, high: float) -> tuple[float, float]:
    margin = 0.08 * (high - low) or 0.05 * abs(high) or 1.0
    return low - margin, high + margin


def _ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Round numbers between two limits."""
    step = _round_up((high - low) / (count + 1))
    first = np.ceil(low / step - 1e-9)
    return [float(round(k * step, 12)) + 0.0 for k in np.arange(first, np.floor(high / step + 1e-9) + 1)]  # no -0


def _hour_ticks(model: EnsembleModel, most: int = 6) -> NDArray[np.int64]:
    """Choose the times to label: full hours if there are two to six of them, else some evenly spaced ones."""
    times = model.times.astype("datetime64[s]").astype(np.int64)
    hours = np.flatnonzero(times % 3600 == 0)
    if 2 <= len(hours) <= most:
        return hours
    return np.unique(np.linspace(0, model.horizon, min(model.horizon + 1, most - 1)).round().astype(np.int64))
