"""An animated episode: uncontrolled loads beside the loads of an agent.

Both environments start in the same state and meet the same contexts. The upper half shows the loads, the lower half the
power so far. The text is large enough for a phone.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.envs import rendering as r
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.envs.scene import Scene, clock_text, value_text
from dp_ensemble_env.tools.files import atomic_write

#: Pixels; letters; milliseconds that a frame and the last one are shown; colours.
WIDTH, HEIGHT = 640, 584
LARGE, MIDDLE, SMALL = 30, 25, 21
PACE, PAUSE = 350, 2500
COLOURS = 48


def check_suffix(path: Path) -> None:
    """Refuse a file that is not a GIF."""
    if path.suffix.lower() != ".gif":
        raise ValueError(f"{path} must end in .gif.")


def animate(
    agent: Any, env: EnsembleEnv, path: Path, *, name: str = "agent", score: float | None = None, seed: int = 0
) -> Path:
    """Play one episode of an agent with `predict`, and write a GIF that shows it beside the uncontrolled loads.

    It shows the agent's name, and its score if given.
    """
    check_suffix(path)
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    ours, idle = _twin(env, env.action_mode), _twin(env, "tilt")
    observation, _ = ours.reset(seed=seed)
    idle.reset(seed=seed)
    nothing = np.zeros(idle.action_space.shape or (), dtype=np.float32)
    scenes, memory = [(idle.scene(), ours.scene())], None
    for t in range(ours.model.horizon):
        action, memory = agent.predict(observation, memory, np.array([t == 0]), deterministic=True)
        observation = ours.step(action)[0]
        idle.step(nothing)
        scenes.append((idle.scene(), ours.scene()))
    painter = _Painter(name, score, scenes[-1])
    _write([painter.paint(*pair) for pair in scenes], path)
    return path


def _twin(env: EnsembleEnv, action: str) -> EnsembleEnv:
    """Return an environment of the same model (a private one has that of its release) that keeps what is drawn."""
    population = "mean-field" if env.population is None else env.population
    return EnsembleEnv(env.model, population, action, render_mode="rgb_array")


def _write(frames: list[NDArray[np.uint8]], path: Path) -> None:
    from PIL import Image

    # One palette for all frames, that of the last, which has every colour: nothing flickers.
    palette = Image.fromarray(frames[-1]).quantize(COLOURS, Image.Quantize.MAXCOVERAGE)
    pictures = [Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    about: dict[str, Any] = {"duration": [*[PACE] * (len(pictures) - 1), PAUSE], "loop": 0, "optimize": True}
    with atomic_write(path, "wb") as stream:
        pictures[0].save(stream, "GIF", save_all=True, append_images=pictures[1:], **about)


class _Painter(r.Renderer):
    """Draw two scenes on one canvas, with limits that hold for the whole episode."""

    def __init__(self, name: str, score: float | None, last: tuple[Scene, Scene]) -> None:
        super().__init__("rgb_array", 1)
        self._canvas = self._pygame.Surface((WIDTH, HEIGHT))
        self._name, self._score = name, score
        idle, ours = last
        traces = [idle.power_kw, ours.power_kw]
        if ours.limit is not None:
            traces.append(ours.limit[1][np.isfinite(ours.limit[1])])
        shown = np.concatenate(traces)
        self._power = r._padded(float(shown.min()), float(shown.max()))

    def paint(self, idle: Scene, ours: Scene) -> NDArray[np.uint8]:
        """Return a frame."""
        self._canvas.fill(r.WHITE)
        now = f"{ours.clock}, {ours.context_name}" if ours.context_name else ours.clock
        self._text(now, (WIDTH // 2, 8), LARGE, align="centre")
        groups = ours.groups()
        if len(groups.parts) > 1:
            self._entries(list(zip(groups.parts, r._part_colors(len(groups.parts), groups.numbers), strict=True)))
        highest = max(scene.split(scene.occupancy).sum(axis=1).max() for scene in (idle, ours))
        limits = (0.0, r._round_up(float(highest)))
        for left, scene, name, color in ((52, idle, "uncontrolled", r.ORANGE), (362, ours, self._name, r.BLUE)):
            self._text(name, (left, 42), LARGE, color)
            axes = r._Axes(left, 102, left + 262, 282, (-0.5, len(groups.values) - 0.5), limits)
            self._loads(scene, axes, color)
        self._both(idle, ours)
        array: NDArray[np.uint8] = np.transpose(self._pygame.surfarray.array3d(self._canvas), (1, 0, 2)).copy()
        return array

    def _entries(self, names: list[tuple[str, r.Color]]) -> None:
        """Say what the parts of the bars are, in one row over both panels."""
        widths = [self._font(SMALL).size(name)[0] + 40 for name, _ in names]
        x = max((WIDTH - sum(widths)) // 2, 4)
        for (name, color), width in zip(names, widths, strict=True):
            if x + width > WIDTH:  # the rest has no room; parts that are numbers follow one another
                break
            self._pygame.draw.rect(self._canvas, color, (x, 80, 16, 12))
            self._text(name, (x + 22, 76), SMALL)
            x += width

    def _loads(self, scene: Scene, axes: r._Axes, color: r.Color) -> None:
        groups, shares = scene.groups(), scene.split(scene.occupancy)
        n, parts = shares.shape
        colors = [color] if parts == 1 else r._part_colors(parts, groups.numbers)
        for tick in r._ticks(*axes.y, count=2):
            _, y = axes.at(0.0, tick)
            self._line((axes.left, y), (axes.right, y), r.PALE)
            self._text(f"{100 * tick:g}%", (axes.left - 5, y - 9), SMALL, r.GREY, align="right")
        self._bars(axes, shares, colors)
        self._line((axes.left, axes.bottom), (axes.right, axes.bottom), r.INK)
        for value in (0, n // 2, n - 1):
            x, y = axes.at(value, 0.0)
            self._text(value_text(groups.values[value]), (x, y + 6), SMALL, r.GREY, align="centre")
        self._text(groups.label, ((axes.left + axes.right) // 2, axes.bottom + 26), SMALL, align="centre")

    def _both(self, idle: Scene, ours: Scene) -> None:
        """Draw the power so far of both, the event, the contexts above it, and the target or limit."""
        model = ours.model
        axes = r._Axes(66, 388, 624, 510, (0.0, float(model.horizon)), self._power)
        begins = self._event(axes, model)
        for context, start, end in ours.runs():
            (x0, _), (x1, _) = axes.at(start, self._power[0]), axes.at(end, self._power[0])
            self._pygame.draw.rect(self._canvas, r.BANDS[context % len(r.BANDS)], (x0, axes.top - 22, x1 - x0, 20))
            name = ours.sign(context)
            if self._font(SMALL - 4).size(name)[0] + 6 <= x1 - x0:
                self._text(name, (x0 + 4, axes.top - 20), SMALL - 4)
        for tick in r._ticks(*self._power, count=3):
            _, y = axes.at(0.0, tick)
            self._line((axes.left, y), (axes.right, y), r.PALE)
            self._text(f"{tick:g}", (axes.left - 5, y - 9), SMALL, r.GREY, align="right")
        self._line((axes.left, axes.bottom), (axes.right, axes.bottom), r.INK)
        limit = ours.limit
        title = r.power_title(self._power[0], "" if limit is None else f" and its {limit[0]}")
        self._text(title, (axes.left, axes.top - (50 if ours.runs() else 28)), MIDDLE)
        if limit is not None:
            for t in range(1, model.horizon + 1):
                if np.isfinite(limit[1][t]):
                    self._path([axes.at(t - 1, limit[1][t]), axes.at(t, limit[1][t])], r.PURPLE, 3)
        for scene, color in ((idle, r.ORANGE), (ours, r.BLUE)):
            points = [axes.at(t, value) for t, value in enumerate(scene.power_kw)]
            self._path(points, color, 4)
            self._pygame.draw.circle(self._canvas, color, points[-1], 6)
        self._name_event(axes, begins)
        for t in (0, model.horizon // 2, model.horizon):
            x, _ = axes.at(t, 0.0)
            at = (min(max(x, 26), WIDTH - 34), axes.bottom + 8)
            self._text(clock_text(model.times[t]), at, SMALL, r.GREY, align="centre")
        if self._score is not None:
            for x, score, color in ((52, 0.0, r.ORANGE), (362, self._score, r.BLUE)):
                self._text(f"score {score + 0.0:.0f}".replace("-", "\N{MINUS SIGN}"), (x, HEIGHT - 30), MIDDLE, color)
