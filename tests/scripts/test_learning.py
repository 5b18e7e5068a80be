"""What others' learners reach: the record is sound, the page shows it, and it passes the bar."""

from __future__ import annotations

import learning
import numpy as np
import pytest
from learning import trained

from dp_ensemble_env import scenarios
from dp_ensemble_env.experiments.runner import read_results

ROWS = read_results(learning.RECORD)[1]


def test_the_page_shows_what_is_recorded() -> None:
    text = learning.PAGE.read_text(encoding="utf-8")
    assert learning.table(ROWS) in text and learning.FIGURE.stat().st_size > 10_000
    assert {learning.place(row.cell) for row in ROWS} <= {learning.place(cell) for cell in learning.cells()}
    for row in ROWS:  # no setting but one environment: everything else is the library's default
        assert set(row.cell.settings["hyperparams"]) == {"n_envs", "n_timesteps"} and row.cell.action == "signals"


@pytest.mark.parametrize("name", [name for name in scenarios.BUILT_IN if name not in ("front", "depot")])
def test_ppo_at_its_defaults_learns_every_scenario(name: str) -> None:
    """Front needs a memory that PPO does not have, and depot is judged by the ceiling of the blind."""
    one = [row for row in ROWS if row.cell.data == name and row.cell.agent == "ppo" and row.cell.training == 1]
    scores = [trained(row) for row in one]
    assert np.mean(scores) >= 87 and min(scores) >= 80 and min(min(row.scores) for row in one) > 0
