"""The split of a loss adds up, and each part is the one its name says."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import random_chain

from dp_ensemble_env.agents import make_agent
from dp_ensemble_env.control.lsmdp import evaluate_policy
from dp_ensemble_env.control.policies import solve_standard, tilted_policy
from dp_ensemble_env.envs import EnsembleEnv
from dp_ensemble_env.experiments.studies.regret import HEADINGS, PARTS, Regret, mean_regret, split_regret
from dp_ensemble_env.privacy import PrivacyLedger, mechanism
from dp_ensemble_env.reporting.plots import plot_regrets


def value(model, matrix):
    """Return of the plan on `matrix`, deployed as a tilt: by hand."""
    log_z = solve_standard(model.with_default(matrix)).log_desirability[1:]
    cost = evaluate_policy(tilted_policy(model, log_z), model.default, model.utility, model.discomfort_penalty)[0]
    return -float(model.initial @ (cost + model.utility[0]))


def test_parts_are_differences_of_returns_and_add_up(campus):
    rng = np.random.default_rng(0)
    sample = 0.8 * campus.default + 0.2 * random_chain(rng, campus.n_states, 1.0)
    release = mechanism("dirichlet:k=20").release(sample, 1)
    env = EnsembleEnv(campus, privacy=release)
    agent = make_agent("best-price", env)
    found = split_regret(campus, release, sample=sample, agent=agent)
    best = float(campus.initial @ (-solve_standard(campus).cost_to_go[0] - campus.utility[0]))
    assert found.sampling == pytest.approx(best - value(campus, sample), rel=1e-9)
    assert found.privacy == pytest.approx(value(campus, sample) - value(campus, release.matrix), rel=1e-9)
    assert sum(getattr(found, part) for part in PARTS) == pytest.approx(found.total, rel=1e-12)
    assert found.sampling > 0 and found.total > 0 and 0 < found.score < 100
    assert 96 < found.without_data < 98  # the public guess on the campus


def test_nothing_is_lost_where_there_is_nothing_to_lose(campus):
    exact = split_regret(campus, mechanism("dirichlet:k=1e12").release(campus.default, 0))
    assert exact.sampling == pytest.approx(0.0, abs=1e-9) and exact.learning == 0.0
    assert exact.privacy == pytest.approx(0.0, abs=1e-4) and exact.score == pytest.approx(100.0, abs=1e-4)


def test_mean_and_picture(campus, tmp_path):
    rows = [split_regret(campus, mechanism("dirichlet:k=20").release(campus.default, seed)) for seed in range(2)]
    mean = mean_regret("k = 20", rows)
    assert mean.privacy == pytest.approx((rows[0].privacy + rows[1].privacy) / 2)
    assert mean.cells()[0] == "k = 20" and len(mean.cells()) == len(HEADINGS) and mean.cells()[-1] == "none"
    assert mean.to_dict()["epsilon"] is None
    assert plot_regrets([mean, *rows], tmp_path / "regret.png").stat().st_size > 5000


def test_the_cents_of_the_table_add_up():
    rng = np.random.default_rng(1)
    for parts in (rng.normal(size=(500, 3)) * 10.0 ** rng.integers(-3, 4, size=(500, 1))).tolist():
        row = Regret("x", *parts, sum(parts), 50.0, 60.0, 1.0)
        shown = [float(cell) for cell in row.cells()[1:5]]
        assert round(sum(shown[:3]) - shown[3], 6) == 0
        assert np.abs(np.array(shown) - [*parts, sum(parts)]).max() < 0.0151
        assert "-0.00" not in row.cells()


def test_every_split_says_what_its_release_spent(campus):
    release = PrivacyLedger().release(mechanism("dirichlet:k=50,floor=0.05"), campus.default, 0)
    found = split_regret(campus, release)
    assert found.epsilon == pytest.approx(PrivacyLedger().record(release).spent(1e-6)) and 12 < found.epsilon < 13
    assert split_regret(campus, mechanism("public").release(campus.default)).epsilon == 0.0
