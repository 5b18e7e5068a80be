"""Tests of `losses`."""

from __future__ import annotations

import json
import math

import mpmath
import numpy as np
import pytest
from scipy import integrate, stats

from dp_ensemble_env.privacy import (
    Losses,
    NoBound,
    PureLoss,
    RenyiLoss,
    RowLoss,
    total_epsilon,
)
from dp_ensemble_env.privacy.accounting.calibrate import ORDERS
from dp_ensemble_env.privacy.accounting.losses import GaussianLoss, LaplaceLoss, PosteriorLoss

FAMILY = (
    NoBound(),
    PureLoss(0.5),
    GaussianLoss(2.5),
    LaplaceLoss(0.75),
    RowLoss(50.0, 0.05, 0.03, "any"),
    PosteriorLoss(300.0, 4),
    RenyiLoss((1.5, 2.0, 16.0), (0.1, 0.2, 2.0)),
)


def test_renyi_divergence_of_randomised_response():
    p = 1.0 / (1.0 + math.exp(-0.7))
    for order in (1.5, 2.0, 8.0):
        value = math.log(p**order * (1 - p) ** (1 - order) + (1 - p) ** order * p ** (1 - order)) / (order - 1)
        assert PureLoss(0.7).renyi(np.array([order]))[0] == pytest.approx(value, rel=1e-12)
    assert PureLoss(0.7).renyi(np.array([1e6]))[0] <= 0.7


def test_a_unit_that_touches_few_rows_pays_for_the_worst_in_whatever_order_they_are_stated():
    mild, bad = PureLoss(0.01), PureLoss(5.0)
    for one in (Losses.of({mild: 3, bad: 1}), Losses.of({bad: 1, mild: 3})):
        assert one.counted("parallel") == [(bad, 1)]
        assert sorted(one.counted(2), key=str) == sorted([(bad, 1), (mild, 1)], key=str)


@pytest.mark.parametrize("loss", [LaplaceLoss(0.7), PureLoss(0.7)])
def test_renyi_of_pure_losses_by_their_definition(loss):
    orders = np.array([1.05, 1.5, 2.0, 7.0])
    if isinstance(loss, PureLoss):
        p = np.array([1.0, math.exp(-0.7)]) / (1 + math.exp(-0.7))
        expected = [math.log((p**x * p[::-1] ** (1 - x)).sum()) / (x - 1) for x in orders]
    else:
        density = [stats.laplace(shift, 1 / 0.7) for shift in (0.0, 1.0)]
        expected = [
            math.log(integrate.quad(lambda y, x=x: density[0].pdf(y) ** x * density[1].pdf(y) ** (1 - x),
                                    -60, 60, points=[0.0, 1.0], limit=200)[0]) / (x - 1)
            for x in orders
        ]  # fmt: skip
    np.testing.assert_allclose(loss.renyi(orders), expected, rtol=1e-7)
    assert (loss.renyi(np.array([1.0, 1e9])) <= 0.7).all()


@pytest.mark.parametrize("order", [1.5, 2.0, 8.0, 40.0])
def test_renyi_divergence_of_laplace(order):
    shift = 0.8
    with mpmath.workdps(30):
        moment = mpmath.quad(
            lambda x: mpmath.exp(-order * abs(x) - (1 - order) * abs(x - shift)) / 2,
            [-mpmath.inf, 0, shift, mpmath.inf],
        )
        exact = float(mpmath.log(moment) / (order - 1))
    assert LaplaceLoss(shift).renyi(np.array([order]))[0] == pytest.approx(exact, rel=1e-10)


def test_a_shift_spread_over_coordinates_is_harder_to_see_than_one():
    def loss(shift: float, grid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.abs(grid) - np.abs(grid - shift), stats.laplace.pdf(grid, loc=shift)

    grid = np.linspace(-14.0, 16.0, 3001)
    width = grid[1] - grid[0]
    for first, second in ((0.5, 0.5), (0.2, 0.8), (1.0, 1.5)):
        one, law = loss(first + second, grid)
        (a, p), (b, q) = loss(first, grid), loss(second, grid)
        both, joint = a[:, None] + b[None], p[:, None] * q[None] * width**2
        for epsilon in (0.0, 0.3, 0.6, 0.9):
            single = float((np.maximum(0.0, 1.0 - np.exp(epsilon - one)) * law * width).sum())
            spread = float((np.maximum(0.0, 1.0 - np.exp(epsilon - both)) * joint).sum())
            assert spread <= single + 1e-5


def test_every_loss_survives_json():
    for loss in FAMILY:
        made = Losses.of({loss: 3}, {PureLoss(0.25): 1, loss: 2}, {loss: 3})
        assert Losses.from_json(json.loads(json.dumps(made.to_json()))) == made
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
