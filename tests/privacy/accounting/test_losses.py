"""Tests of `losses`."""

from __future__ import annotations

import json
import math

import mpmath
import numpy as np
import pytest

from dp_ensemble_env.privacy import (
    ConcentratedLoss,
    GaussianLoss,
    LaplaceLoss,
    Losses,
    NoBound,
    PosteriorLoss,
    PureLoss,
    RenyiLoss,
    RowLoss,
    total_epsilon,
)
from dp_ensemble_env.privacy.accounting.calibrate import ORDERS

FAMILY = (
    NoBound(),
    PureLoss(0.5),
    GaussianLoss(2.5),
    ConcentratedLoss(0.01),
    LaplaceLoss(0.75),
    RowLoss(50.0, 0.05, 0.03, "any"),
    PosteriorLoss(300.0, 4),
    RenyiLoss((1.5, 2.0, 16.0), (0.1, 0.2, 2.0)),
)


@pytest.mark.parametrize("order", [1.05, 1.5, 2.0, 8.0, 40.0])
def test_renyi_divergences_by_their_definition(order):
    p = np.array([1.0, math.exp(-0.7)]) / (1 + math.exp(-0.7))
    expected = math.log((p**order * p[::-1] ** (1 - order)).sum()) / (order - 1)
    assert PureLoss(0.7).renyi(np.array([order]))[0] == pytest.approx(expected, rel=1e-12)
    shift = 0.8
    with mpmath.workdps(30):
        moment = mpmath.quad(
            lambda x: mpmath.exp(-order * abs(x) - (1 - order) * abs(x - shift)) / 2,
            [-mpmath.inf, 0, shift, mpmath.inf],
        )
        expected = float(mpmath.log(moment) / (order - 1))
    assert LaplaceLoss(shift).renyi(np.array([order]))[0] == pytest.approx(expected, rel=1e-10)
    for loss in (PureLoss(0.7), LaplaceLoss(0.7)):
        assert (loss.renyi(np.array([1.0, 1e9])) <= 0.7).all()
    x = mpmath.mpf(1) / 3  # two normal laws, one standard deviation of 3 wide, whose means are 1 apart
    assert GaussianLoss(3.0).renyi(np.array([order]))[0] == pytest.approx(float(order * x**2 / 2), rel=1e-12)
    assert ConcentratedLoss(0.2).renyi(np.array([order]))[0] == pytest.approx(0.2 * order, rel=1e-12)


@pytest.mark.parametrize("loss", FAMILY)
def test_every_loss_survives_json_and_counts_the_worst_rows_first(loss):
    made = Losses.of({loss: 3}, {PureLoss(0.25): 1, loss: 2}, {loss: 3})
    read = Losses.from_json(json.loads(json.dumps(made.to_json())))
    assert read == made and read.agree(made) and not read.agree(Losses.of({loss: 3}))
    assert made.counted("sequential") == [(loss, 8), (PureLoss(0.25), 1)]
    worse = tuple(loss.renyi(ORDERS)) > tuple(PureLoss(0.25).renyi(ORDERS))  # a unit pays for the worst rows
    assert dict(made.counted("parallel")) == ({loss: 3} if worse else {loss: 2, PureLoss(0.25): 1})
    assert dict(made.counted(2)) == ({loss: 6} if worse else {loss: 5, PureLoss(0.25): 1})


def test_a_table_of_renyi_divergences_bounds_what_it_was_made_of():
    orders = np.unique(np.concatenate([np.linspace(1.05, 40.0, 400), np.geomspace(1.001, 200.0, 400)]))
    exact = GaussianLoss(3.0)
    table = RenyiLoss(tuple(orders), tuple(exact.renyi(orders)))
    asked = np.array([1.2, 7.0, 33.3])
    assert (table.renyi(asked) >= exact.renyi(asked)).all() and table.renyi(np.array([201.0]))[0] == np.inf
    tight = total_epsilon(1e-6, [(exact, 1)])
    assert tight < total_epsilon(1e-6, [(table, 1)]) < 1.2 * tight
