"""The demonstration: its sentences and its page are made of the rows."""

from typing import Any

import numpy as np
import pytest

from dp_ensemble_env.experiments import demo
from dp_ensemble_env.experiments.runner import Row, Store, read_outcome


def row(cell: Any, score: float, epsilon: float, steps: int | None = None) -> Row:
    outcome = {"score": score, "exact": True, "power_kw": []}
    return Row(cell=cell, deployed=(read_outcome(outcome),), without_data=(6.0,), epsilon=epsilon,
               compute={"steps": steps, "cpu_seconds": 1.0})  # fmt: skip


@pytest.fixture
def rows() -> dict[str, Row]:
    numbers = {"without data": (6.0, 0.0), "private plan": (90.04, 1.0), "private PPO": (91.0, 1.0, 30720),
               "all data": (100.0, np.inf)}  # fmt: skip
    return {name: row(cell, *numbers[name]) for name, cell in demo.cells().items()}


def test_sentences_are_made_of_the_rows(rows):
    first, second, third = demo.sentences(rows, 7.61)
    assert "ε = 1" in first and "scores 90.0" in first and "10.0 points below the plan with all data" in first
    assert "scores 6.0, 84.0 points below" in second and second.endswith("7.6.")
    assert "30,720 steps" in third and "91.0, 1.0 points above the exact plan" in third
    cells = demo.cells()
    assert {name for name, cell in cells.items() if cell.knows == "a release"} == {"private plan", "private PPO"}
    assert cells["private PPO"].settings["hyperparams"]["n_envs"] == 8 and cells["private PPO"].steps == 30_720


def test_page_is_small_and_has_its_files_beside_it(rows, tmp_path, monkeypatch, capsys):
    store = Store(tmp_path)
    for one in rows.values():
        store.save(one)
    monkeypatch.setattr(demo.Prober, "open_loop", lambda self: 7.61)
    monkeypatch.setattr(demo, "PRIVACY", "dirichlet:k=50,floor=0.05")  # drawn in no time
    monkeypatch.setattr(demo, "run", lambda *settings: iter(rows.values()))
    monkeypatch.setattr("sys.argv", ["demo", str(tmp_path)])
    assert demo.main() == 0
    printed = " ".join(capsys.readouterr().out.split())
    page = tmp_path / "demo.html"
    assert page.stat().st_size < 300_000 and page.read_text(encoding="utf-8").count("<figure") == 2
    assert printed.endswith(" ".join(demo.sentences(rows, 7.61)))
    assert (tmp_path / "release.card.md").exists() and (tmp_path / "results.json").exists()
