"""Tests of `posterior`."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import gammaln, polygamma

from dp_ensemble_env.privacy import Fleet, mechanism
from dp_ensemble_env.privacy.accounting.calibrate import posterior_renyi
from dp_ensemble_env.privacy.audit import with_canary
from dp_ensemble_env.privacy.mechanisms import fleet_sums as shared
from dp_ensemble_env.privacy.mechanisms import posterior
from dp_ensemble_env.privacy.mechanisms.fleet_sums import Layout
from dp_ensemble_env.privacy.mechanisms.posterior import PosteriorMechanism


def extremes(n: int) -> np.ndarray:
    """Participants who do all that the guess excludes, each in a single way."""
    counts = np.zeros((n + 2, n, n), dtype=int)
    counts[0, np.arange(n), n - 1 - np.arange(n)] = 10**6
    counts[1, 0, n - 1] = 1
    for shift in range(n):
        counts[shift + 2, np.arange(n), (np.arange(n) + shift) % n] = 5000
    return counts


#: Two times, two contexts, three states, two or four decisions.
WIDE, TALL = (2, 2, 3, 4), (2, 2, 3, 2)

RNG = np.random.default_rng(0)

GUESS = RNG.dirichlet(np.ones(4), WIDE[:-1])

SUPPORT = np.ones(WIDE, dtype=bool)
SUPPORT[0, :, 0, 1:] = False  # two rows with one possible decision
SUPPORT[1, 1, 2, 2:] = False

INSIDE = np.where(SUPPORT, GUESS, 0.0) / np.where(SUPPORT, GUESS, 0.0).sum(axis=-1, keepdims=True)

#: Both times are alike in context 0.
CLASSES = np.array([[0, 1], [0, 2]])

CASES = {
    "every cell": (WIDE, {}, None),
    "a guess": (WIDE, {"guess": GUESS}, None),
    "a support": (WIDE, {"guess": INSIDE, "support": SUPPORT}, None),
    "classes": (TALL, {}, CLASSES),
    "one matrix": ((3, 2), {}, None),
}


def drawn_shape(shape, classes):
    return shape if classes is None else (int(classes.max()) + 1, *shape[-2:])


def test_the_smallest_prior_is_claimed():
    fleet = Fleet.simulate(np.full((3, 3), 1 / 3), 5, seed=2, steps=50)
    events = [mechanism(f"posterior:epsilon={epsilon}").event(fleet) for epsilon in (1, 3)]
    assert events[0].prior > events[1].prior
    assert type(events[0]).claims(events, 1)[0] == f" by posterior sampling with prior counts of {events[1].prior:.4g}"


@pytest.mark.parametrize("several", [False, True])
def test_posterior_rows_by_hand(several, monkeypatch):
    """Sums less the prior, divided by the weights of rows; the noise of a row in units of its cells."""
    rng = np.random.default_rng(1)
    layout = Layout(rng.dirichlet(np.ones(3), 3), 2, several=several)
    heard = []
    monkeypatch.setattr(posterior, "shrink_rows", lambda _, rows, noise, seen, tail: heard.append((rows, noise, seen)))
    monkeypatch.setattr(posterior, "shrink", lambda _, rows, error, tail: heard.append((rows, error)))
    sums, deviation = rng.normal(3.0, 1.0, 9), rng.uniform(0.2, 2.0, 9)
    weight, least = np.array([10.0, 4.0, 5.0]), np.array([5.0, 9.0, 5.0])
    PosteriorMechanism._estimate(layout, sums, deviation, weight, least)
    over = np.repeat([10.0, 9.0, 5.0], 3)
    assert_allclose(heard[0][0].ravel(), sums / over)
    if several:
        each = (deviation / over / layout.units.ravel()).reshape(3, 3)
        assert_allclose(heard[0][1], [math.sqrt((row**2).mean()) for row in each])
        assert heard[0][2].tolist() == [True, False, False]
    else:
        assert_allclose(heard[0][1].ravel(), deviation / over)


def test_posterior_parameters_move_by_at_most_one_a_row():
    for one in extremes(5):
        assert (shared.trusted_rows(Fleet(one[None])).sum(axis=1) <= 1.0).all()


def test_a_posterior_draw_is_charged_for_every_row_that_a_participant_may_touch():
    made = mechanism("posterior:epsilon=1")
    for case, rows in (("every cell", 12), ("a support", 10), ("classes", 9), ("one matrix", 3)):
        shape, terms, classes = CASES[case]
        canary = with_canary(Fleet(np.zeros((0, *drawn_shape(shape, classes)), dtype=int), classes=classes))
        added = shared.trusted_rows(canary, shared.Layout.of(canary, 2, **terms))
        assert (added.sum(axis=1) <= 1.0).all() and (added.sum(axis=1) > 0.99).sum() == rows
        event = made.event(canary, seeding="seed", **terms)
        ((loss, number),) = event.losses().counted("sequential")
        # The exact divergence of a participant who is as certain as can be, cell by cell.
        order, a, x = 8.0, event.prior, added[added > 0]
        exact = (gammaln(a - 7.0 * x) + 7.0 * gammaln(a + x) - 8.0 * gammaln(a)).sum() / 7.0
        claimed = number * float(loss.renyi(np.array([order]))[0])
        assert exact <= claimed <= 1.05 * exact


@pytest.mark.parametrize(("order", "exact", "bound"), [(2.0, 0.3032, 0.5676), (20.0, 0.2533, 0.3478)])
def test_the_renyi_example_of_ponnoprat(order, exact, bound):
    """One count moved; the priors 5 and 77 give all four figures: exact, and bounded by order times trigamma."""
    prior = 4.0 * (order - 1.0) + 1.0
    p, q = (np.array(counts) + prior for counts in ([11, 8, 65, 25, 38, 0], [11, 7, 65, 25, 38, 1]))

    def beta(a):
        return gammaln(a).sum() - gammaln(a.sum())

    def divergence(a, b):
        return (beta(order * a + (1.0 - order) * b) - order * beta(a) + (order - 1.0) * beta(b)) / (order - 1.0)

    assert divergence(p, q) == pytest.approx(exact, abs=1e-4)
    assert order * polygamma(1, prior - order + 1.0) == pytest.approx(bound, abs=5e-5)
    # One participant more in a cell and one fewer in another: each costs at most what the ledger charges.
    assert max(divergence(p, q), divergence(q, p)) <= 2.0 * posterior_renyi(np.array([order]), prior, 1)[0]
