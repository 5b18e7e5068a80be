"""Frames and text: what they show, and that all models can be drawn."""

from __future__ import annotations

import importlib
import os
import re

import gymnasium
import numpy as np
import pytest
from helpers import TiltEnv, random_model

from dp_ensemble_env.context import Context
from dp_ensemble_env.coupling import Coupling
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.shapes import Axis

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
pygame = importlib.import_module("pygame")
from dp_ensemble_env.envs import rendering  # noqa: E402
from dp_ensemble_env.envs.rendering import BLUE, GREEN, HEIGHT, ORANGE, WIDTH, WINDOW  # noqa: E402

CAMPUS = "dp_ensemble/CampusEvent-tilt-v1"


def pixels(frame: np.ndarray, color: tuple[int, int, int]) -> np.ndarray:
    """Return (row, column) of the pixels of one colour."""
    return np.argwhere((frame == color).all(axis=2))


def test_frames_have_the_promised_form(campus: EnsembleModel) -> None:
    env = TiltEnv(campus, render_mode="rgb_array")
    env.reset(seed=0)
    frame = env.render()
    assert frame.shape == (HEIGHT, WIDTH, 3) == (450, 800, 3) and frame.dtype == np.uint8
    assert all(len(pixels(frame, color)) > 50 for color in (BLUE, ORANGE, GREEN, WINDOW))


def test_text_shows_numbers(campus: EnsembleModel) -> None:
    env = TiltEnv(campus, 100, render_mode="ansi", privacy="dirichlet:k=50,floor=0.01")
    env.reset(seed=0, options={"state": 12})
    total = 0.0
    for _ in range(4):
        _, reward, _, _, info = env.step(np.full(20, 0.1))
        total += reward
    text = env.render()
    assert "step 4 of 18" in text and "Dirichlet release" in text
    assert f"reward so far {total:,.2f}" in text and f"power {info['power_kw']:.1f} kW" in text
    np.testing.assert_allclose([float(x) / 100 for x in re.findall(r"([\d.]+)%", text)], env.occupancy, atol=6e-4)


def test_human_mode_shows_a_window() -> None:
    env = gymnasium.make(CAMPUS, render_mode="human", disable_env_checker=True)
    env.unwrapped._renderer = rendering.Renderer("human", 1000)
    env.reset(seed=0)
    env.step(np.zeros(20, np.float32))
    assert env.render() is None
    window = pygame.display.get_surface()
    assert window.get_size() == (WIDTH, HEIGHT)
    assert len(pixels(np.transpose(pygame.surfarray.array3d(window), (1, 0, 2)), BLUE)) > 50
    env.close()
    env.close()
    assert pygame.display.get_surface() is None


@pytest.mark.parametrize("mode", ["rgb_array", "ansi"])
def test_odd_models_can_be_drawn(mode: str) -> None:
    flat = random_model(0, n=2, horizon=1)
    models = [
        flat.override(power_kw=np.zeros(2), utility=np.zeros((2, 2))),
        random_model(2, n=500, horizon=2, density=0.02),
        random_model(3, n=3, horizon=200),
    ]
    for model in models:
        env = TiltEnv(model, render_mode=mode)
        for value in (1.0, -1.0):  # everything to one end: the longest bars and the longest outline
            env.reset(seed=0)
            env.step(np.linspace(-value, value, model.n_states))
            assert len(env.render()) > 100


def test_render_without_mode_or_reset_says_so() -> None:
    env = TiltEnv("spot")
    with pytest.warns(UserWarning, match="render_mode"):
        assert env.render() is None
    with pytest.raises(gymnasium.error.ResetNeeded):
        TiltEnv("spot", render_mode="ansi").render()


def test_missing_pygame_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pygame", None)
    env = TiltEnv("spot", render_mode="rgb_array")
    env.reset()
    with pytest.raises(gymnasium.error.DependencyNotInstalled, match="pip install pygame-ce"):
        env.render()


def general_model(**changes) -> EnsembleModel:
    """Rooms that are off or on at three temperatures, in calm or windy weather."""
    fields = {
        "default": np.full((6, 6), 1 / 6),
        "power_kw": [0.0, 0.0, 0.0, 2.0, 2.0, 2.0],
        "utility": np.stack([np.tile([0.0] * 3 + [w] * 3, (5, 1)) for w in (-2.0, 1.0)], axis=1),
        "discomfort_penalty": 1.0,
        "context": Context([[0.0, 1.0], [0.0, 1.0]], names=["calm", "windy"], start=[0]),
        "spread_start": True,
        "initial": [0.3, 0.2, 0.1, 0.0, 0.1, 0.3],
        "axes": (Axis("unit", ("off", "on")), Axis("temperature (°C)", (20.0, 21.5, 23.0))),
    }
    return EnsembleModel(**{**fields, **changes})


def test_states_are_shown_along_their_axes_and_split() -> None:
    env = TiltEnv(general_model(), render_mode="rgb_array")
    env.reset(seed=0)
    frame = env.render()
    off, on = (pixels(frame[:, :372], color) for color in rendering.WORDS[:2])
    # Three bars, 30, 20 and 10 % off, with 0, 10 and 30 % on them.
    for level, (below, above) in enumerate([(0.3, 0.0), (0.2, 0.1), (0.1, 0.3)]):
        centre = round(56 + (level + 0.5) / 3 * (372 - 56))
        heights = [np.sum((part[:, 1] == centre) & (part[:, 0] > 80)) for part in (off, on)]
        assert heights[0] / (heights[0] + heights[1]) == pytest.approx(below / (below + above), abs=0.03)
    text = TiltEnv(general_model(), render_mode="ansi")
    text.reset(seed=0)
    shown = text.render()
    assert "temperature (°C)" in shown and "off 60%, on 40%" in shown and ", calm\n" in shown
    assert re.search(r"21\.5 #+\|? +30\.0%", shown)


def test_contexts_so_far_and_the_expected_price_are_shown() -> None:
    env = TiltEnv(general_model(), render_mode="rgb_array")
    env.reset(seed=0)
    for _ in range(3):
        env.step(np.zeros(6, np.float32))
    frame = env.render()
    calm, windy = (pixels(frame[290:315, 444:], color) for color in rendering.BANDS[:2])
    assert len(calm) > 50 and len(windy) > 2 * len(calm) and calm[:, 1].max() < windy[:, 1].min()
    scene = env.scene()
    assert scene.runs() == [(0, 0, 1), (1, 1, 3)] and scene.context_name == "windy"
    prices = scene.price
    assert prices[0] > 0 and (prices[1:] < 0).all()  # consumption is worth a dollar when it is windy


@pytest.mark.parametrize("kind", ["tracking", "limit"])
def test_limits_and_targets_are_drawn(kind: str) -> None:
    coupling = getattr(Coupling, kind)(np.array([1.0, 1.2, 0.8, 0.8, 1.0]), 3.0)
    model = general_model(context=None, utility=np.zeros((5, 6)), coupling=coupling)
    env = TiltEnv(model, render_mode="rgb_array")
    env.reset(seed=0)
    line = pixels(env.render()[74:262, 444:784], rendering.PURPLE)
    rows = {int(t): np.median(line[np.abs(line[:, 1] - (t - 0.5) * 85) < 20][:, 0]) for t in (1, 2, 4)}
    assert rows[1] < rows[4] < rows[2]  # higher on the screen is more power
    text = TiltEnv(model, render_mode="ansi")
    text.reset(seed=0)
    text.step(np.zeros(6, np.float32))
    assert f"{'target' if kind == 'tracking' else 'limit'} 1.200 kW" in text.render()


def test_pictures_survive_that_others_quit_pygame() -> None:
    env, window = TiltEnv("spot", render_mode="rgb_array"), TiltEnv("spot", render_mode="human")
    env.reset(seed=0), window.reset(seed=0)
    frame = env.render()
    pygame.quit()
    np.testing.assert_array_equal(env.render(), frame)
    window.step(np.zeros(13, np.float32))
    assert pygame.surfarray.array3d(pygame.display.get_surface()).std() > 10
    window.close(), env.close()
