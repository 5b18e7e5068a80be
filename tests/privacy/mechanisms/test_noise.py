"""Tests of `noise`: exact, discrete sources for publication."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special, stats

from dp_ensemble_env.privacy import Fleet, PrivacyLedger, mechanism
from dp_ensemble_env.privacy.mechanisms.noise import MOST_TICKETS, add_noise, check_proven, polya_urn


def dirichlet_multinomial(count: np.ndarray, alpha: np.ndarray) -> float:
    """Return the probability of these numbers of balls."""
    balls, total = count.sum(), alpha.sum()
    log = special.gammaln(total) + special.gammaln(balls + 1) - special.gammaln(balls + total)
    log += (special.gammaln(count + alpha) - special.gammaln(alpha) - special.gammaln(count + 1)).sum()
    return math.exp(log)


@pytest.mark.parametrize(("tickets", "added"), [((3, 1, 2), 1), ((3, 1, 2), 4), ((1 << 44, 1 << 45, 1 << 44), 1 << 44)])
def test_the_urn_is_dirichlet_multinomial(tickets, added):
    balls, draws, rng = 4, 20_000, np.random.default_rng(1)
    counts = np.array([polya_urn(tickets, added, balls, rng.bytes) for _ in range(draws)])
    assert (counts.sum(axis=1) == balls).all()
    cells = [np.array((a, b, balls - a - b)) for a in range(balls + 1) for b in range(balls + 1 - a)]
    expected = np.array([draws * dirichlet_multinomial(cell, np.array(tickets) / added) for cell in cells])
    seen = np.array([(counts == cell).all(axis=1).sum() for cell in cells])
    assert expected.sum() == pytest.approx(draws) and stats.chisquare(seen, expected).pvalue > 1e-6
    wrong = np.array([draws * dirichlet_multinomial(cell, np.array(tickets) / added * 1.2) for cell in cells])
    assert stats.chisquare(seen, wrong).pvalue < 1e-6  # another k would be noticed


def test_an_urn_that_words_cannot_index_is_refused():
    with pytest.raises(ValueError, match="cannot hold"):
        polya_urn([MOST_TICKETS], 1, 1)
    assert polya_urn([5, 0], 1, 100).tolist() == [100, 0]  # no ticket, no ball


@pytest.mark.parametrize(("spec", "most"), [("gaussian:epsilon=1", 1.0), ("laplace:epsilon=0.7", 0.7)])
def test_opendp_proves_what_a_published_draw_is_charged_for(spec, most):
    dp = pytest.importorskip("opendp.prelude")
    made, fleet = mechanism(spec), Fleet.simulate(np.full((3, 3), 1 / 3), 20, seed=1, steps=50)
    event = made.event(fleet)
    check_proven(made.noise, made.scale(event), made.sensitivity, event.cost)
    for less in (0.9, 0.999):
        with pytest.raises(ValueError, match="more than the .* that was charged"):
            check_proven(made.noise, less * made.scale(event), made.sensitivity, event.cost)
    shown = event.cost
    if made.name == "gaussian":  # its own conversion, from zCDP to (epsilon, delta)
        space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
        noise = dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*space, scale=float(event.sigma)))
        shown = noise.map(1.0).epsilon(1e-6)
    assert most * 0.999 < shown <= most + 1e-6
    assert PrivacyLedger().record(event).get_epsilon(1e-6) == pytest.approx(most, abs=1e-5)
    assert made.event(fleet, seeding="seed").losses() != event.losses()


@pytest.mark.parametrize("name", ["gaussian", "laplace", "posterior"])
def test_an_epsilon_that_protects_nobody_is_refused_in_one_sentence(name):
    with pytest.raises(ValueError, match=r"protects nobody: .* choose at most 1e\+06"):
        mechanism(f"{name}:epsilon=1e12")


@pytest.mark.parametrize("seeding", ["seed", "os-entropy"])
def test_a_kind_of_noise_that_is_none_draws_nothing(seeding):
    with pytest.raises(ValueError, match="gausian"):
        add_noise(np.zeros(2, dtype=np.int64), "gausian", 1.0, np.random.default_rng(0), seeding)
