"""The scripts as a user runs them."""

from __future__ import annotations

import json
import tempfile

import numpy as np
from helpers import ROOT, load

from dp_ensemble_env.cli import benchmark as benchmark_command
from dp_ensemble_env.envs import threads
from dp_ensemble_env.experiments import benchmark_env, benchmark_floor, benchmark_growth


def test_benchmark_measures_the_claims(tmp_path, capsys):
    benchmark = load("benchmark")
    status = benchmark.main(["solver", "--seconds", "0.01", "--json", str(tmp_path / "speed.json")])
    claims = json.loads((tmp_path / "speed.json").read_text())
    assert len(claims) == 7 and all(c["ours_ms"] > 0 and c["ratio"] > 0 for c in claims)
    assert status == (0 if all(c["holds"] for c in claims) else 1)  # no claim about this machine's speed
    assert "Ratios measured in this run" in capsys.readouterr().out


def test_environments_are_measured_on_one_thread_and_on_all(monkeypatch):
    monkeypatch.setattr(benchmark_env, "available", lambda: 2)
    settings = benchmark_env.SpeedSettings(rounds=1, seconds=0.001)
    row = benchmark_env.measure(("MeanField", 1024, 1.0), settings)
    assert row.steps_per_second > 0 and row.one_thread_steps_per_second > 0
    assert row.speedup == row.steps_per_second / row.one_thread_steps_per_second != 1
    small = benchmark_env.measure(("MeanField", 16, None), settings)
    assert small.speedup == 1 and small.met and small.ratio > 0
    threads.set_threads(None)


def test_growth_is_measured_and_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(benchmark_growth, "available", lambda: 2)
    cases = benchmark_growth.cases()
    assert {case[0] for case in cases} == set(benchmark_growth.AXES) and len(set(cases)) == len(cases)
    chosen = [("batch", 16, "MeanField", 1), ("batch", 16, "CartPole", 1), ("states", 5, "SingleLoad", 2)]
    assert set(chosen) <= set(cases)
    points = [benchmark_growth.measure(case, 0.001) for case in chosen]
    assert all(point.steps_per_second > 0 for point in points)
    picture = benchmark_growth.draw(points, tmp_path / "growth.png")
    assert picture.read_bytes().startswith(b"\x89PNG")
    threads.set_threads(None)


def test_the_model_of_any_size_is_a_band():
    model = benchmark_growth.band(9, 4)
    distance = abs(np.subtract.outer(np.arange(9), np.arange(9)))
    assert model.horizon == 4 and ((model.default > 0) == (distance <= 2)).all()


def test_peers_that_are_not_installed_are_named(monkeypatch, capsys):
    monkeypatch.setattr(benchmark_growth, "PEERS", {"no_such_peer": None})
    assert benchmark_command._peers([64], 0.01) == []
    assert "not compared: no_such_peer (No module named 'no_such_peer'; pip install" in capsys.readouterr().out


def test_the_share_of_the_environment_in_a_run(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("SB3_LOGDIR")
    found = benchmark_growth.ppo_share("dp_ensemble/CampusEvent-v1", 2048)
    assert not list(tmp_path.iterdir())  # no folder of logs is left
    assert found.steps == 2048 and 0 < found.in_environment < found.seconds and 0 < found.share < 1


def test_the_floor_of_a_step_and_the_step():
    row = benchmark_floor.measure(("SingleLoad", 64), 0.001)
    assert row.floor == row.writing + row.arithmetic > 0 and row.compiled > 0 and row.step > 0
    assert ("MeanField", 1024) in benchmark_floor.cases() and ("SingleLoad", None) not in benchmark_floor.cases()


def test_the_page_shows_what_was_recorded():
    """Every row of the tables of docs/performance.md is in the records beside it, rounded as it is shown."""
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    recorded = json.loads((ROOT / "docs" / "performance" / "env.json").read_text())
    for row in recorded["rows"]:
        batch = "single" if row["sub_environments"] is None else f"{row['sub_environments']:,}"
        gain = f"{row['speedup']:.2f}" if row["steps_per_second"] != row["one_thread_steps_per_second"] else "–"
        aim = "–" if row["target"] is None else f"{row['target']:g}"
        one = row["one_thread_steps_per_second"] / row["cartpole_steps_per_second"]
        assert f"| {row['environment']} | {batch} | {one:.2f} | {gain} | {row['ratio']:.2f} | {aim} |" in page
    for row in json.loads((ROOT / "docs" / "performance" / "floor.json").read_text()):
        parts = " | ".join(f"{row[key]:.0f}" for key in ("writing", "arithmetic", "floor", "compiled", "step"))
        assert f"| {row['environment']} | {row['sub_environments']:,} | {parts} |" in page
    ours = [row | {"peer": "dp_ensemble_env"} for row in recorded["rows"] if row["environment"] == "SingleLoad"]
    for row in [*recorded["peers"], *ours[1:]]:
        assert f"| {row['peer']} | {row['sub_environments']:,} | {row['steps_per_second'] / 1e6:.1f} |" in page
    share = json.loads((ROOT / "docs" / "performance" / "ppo.json").read_text())
    assert f"the environment took {share['share']:.1%}" in page
