"""The animation shows both episodes, side by side, and is refused where it cannot be made."""

from __future__ import annotations

import numpy as np
import pytest

from dp_ensemble_env.agents import make_agent
from dp_ensemble_env.cli.main import main
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.envs.rendering import BLUE, ORANGE, PURPLE
from dp_ensemble_env.reporting.animation import HEIGHT, WIDTH, animate

image = pytest.importorskip("PIL.Image")


def frames(path):
    with image.open(path) as picture:
        for i in range(picture.n_frames):
            picture.seek(i)
            yield np.asarray(picture.convert("RGB")).astype(int)


def of_colour(pixels, color):
    return (np.abs(pixels - np.array(color)) < 12).all(axis=2)


def test_the_optimum_lies_below_the_uncontrolled_power(tmp_path):
    env = EnsembleEnv("campus-event")
    shown = list(frames(animate(make_agent("standard", env), env, tmp_path / "event.gif", name="optimal")))
    assert len(shown) == 1 + env.model.horizon and shown[0].shape == (HEIGHT, WIDTH, 3)
    assert (shown[0][:4] == 255).all()  # white is white
    power = shown[-1][388:510]  # the lower panel, whose rows count from above
    optimal, idle = (np.nonzero(of_colour(power, color))[0].mean() for color in (BLUE, ORANGE))
    assert optimal > idle + 20


def test_nobody_interferes_on_both_sides(tmp_path):
    env = EnsembleEnv("spot", population=50)
    last = list(frames(animate(make_agent("uncontrolled", env), env, tmp_path / "idle.gif", seed=3)))[-1]
    left, right = (of_colour(last[102:282, x : x + 262], colour) for x, colour in ((52, ORANGE), (362, BLUE)))
    assert left.sum() > 500 and (left == right).mean() > 0.999


def test_a_target_is_drawn(tmp_path):
    env = EnsembleEnv("tracking")
    path = animate(make_agent("uncontrolled", env), env, tmp_path / "target.gif")
    assert of_colour(next(frames(path)), PURPLE).sum() > 100


def test_another_kind_of_file_is_refused_before_the_work(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["evaluate", "uncontrolled", "--animate", "event.mp4"]) == 2
    assert "must end in .gif" in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.iterdir())
