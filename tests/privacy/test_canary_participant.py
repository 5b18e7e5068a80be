"""The canary, the statistic that finds it, and the bound for Gaussian noise.

Bounds that a correct mechanism must not exceed are asked for with confidence 1 - 1e-6 or better.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from dp_ensemble_env.privacy import Fleet, PrivacyLedger, gaussian_epsilon, mechanism
from dp_ensemble_env.privacy.audit import (
    Claim,
    audit_pair,
    audit_samples,
    canary_counts,
    discriminant,
    gaussian_lower_bound,
    guess_canary,
    with_canary,
)
from dp_ensemble_env.privacy.mechanisms.fleet_sums import Layout

SURE = 1 - 1e-7
FLEET = Fleet.simulate(0.8 * np.eye(5) + 0.04, participants=30, seed=0, steps=50)


# ------------------------------------------------------------------ the canary
@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("n", [3, 6, 7])
@pytest.mark.parametrize("kind", ["stays", "jumps"])
def test_the_canary_contributes_all_that_the_clip_allows(norm, n, kind):
    fleet = Fleet(canary_counts(n, kind)[None])
    contribution = Layout.of(fleet, norm).contributions(fleet.counts)[0]
    assert np.linalg.norm(contribution, norm) == pytest.approx(1.0, abs=1e-9)


def test_the_canary_is_one_participant_more_and_jumps_from_every_level():
    joined = with_canary(FLEET)
    assert joined.participants == 31
    np.testing.assert_array_equal(joined.counts[:-1], FLEET.counts)
    jumps = np.zeros((5, 5), dtype=int)
    for level, target in enumerate((4, 4, 4, 0, 0)):
        jumps[level, target] = 1
    np.testing.assert_array_equal(canary_counts(5, "stays"), 1000 * np.eye(5) + jumps)
    np.testing.assert_array_equal(canary_counts(5, "jumps"), 1001 * jumps)
    with pytest.raises(ValueError, match="kind"):
        canary_counts(5, "sleeps")


# ------------------------------------------------------------------ claims
def test_claims_are_those_of_a_ledger():
    drawn = [mechanism("gaussian:epsilon=1"), mechanism("gaussian:epsilon=2"), mechanism("laplace:epsilon=1")]
    for some in (drawn[:1], drawn[:2], drawn[2:], drawn):
        ledger = PrivacyLedger()
        for one in some:
            ledger.release(one, FLEET, rng=0)
        claim = Claim.of(*(one.event(FLEET, seeding="seed") for one in some), delta=1e-6)
        assert claim.epsilon == pytest.approx(ledger.spent(1e-6), rel=1e-9)
        assert (claim.bound is gaussian_lower_bound) == (drawn[2] not in some)


# ------------------------------------------------------------------ the bound for Gaussian noise
def test_the_gaussian_bound_approaches_the_exact_epsilon():
    """With the exact rates at one threshold and many trials, μ comes back, and with it ε at any δ."""
    trials, shift = 10**9, 0.7
    for threshold in (-0.5, 0.3, 1.2):
        hits, alarms = (round(trials * stats.norm.sf(threshold - mean)) for mean in (shift, 0.0))
        for delta in (1e-6, 1e-2):
            bound = gaussian_lower_bound(hits, alarms, trials, delta, SURE)
            assert bound < gaussian_epsilon(delta, 1 / shift) == pytest.approx(bound, rel=0.01)


def test_the_gaussian_bound_is_wrong_no_more_often_than_it_says():
    rng, confidence, trials = np.random.default_rng(1), 0.8, 400
    wrong = 0
    for _ in range(trials):
        first, second = rng.normal(1.0, 1.0, 300), rng.normal(0.0, 1.0, 300)
        shown = audit_samples(first, second, 1e-6, confidence=confidence, candidates=7, bound=gaussian_lower_bound)
        wrong += shown.epsilon > gaussian_epsilon(1e-6, 1.0)
    assert wrong <= trials * (1 - confidence) + 6 * math.sqrt(trials * 0.2 * 0.8)


@pytest.mark.parametrize(("hits", "alarms"), [(0, 0), (0, 100), (100, 100), (40, 40)])
def test_rates_that_show_nothing_give_zero(hits, alarms):
    assert gaussian_lower_bound(hits, alarms, 100, 1e-6, 0.99) == 0.0


# ------------------------------------------------------------------ the statistic
def test_the_discriminant_is_fishers():
    rng = np.random.default_rng(2)
    root = np.array([[1.0, 0.0, 0.0], [0.8, 0.5, 0.0], [0.0, 0.3, 2.0]])
    apart = np.array([0.3, -0.1, 0.5])
    first, second = (rng.normal(size=(200_000, 3)) @ root.T + mean for mean in (apart, np.zeros(3)))
    found, best = discriminant(first, second), np.linalg.solve(root @ root.T, apart)
    np.testing.assert_allclose(found / found[2], best / best[2], atol=0.05)


def test_a_difference_without_noise_is_found_among_noise():
    """Two features with the same noise: their difference tells the inputs apart with certainty."""
    rng = np.random.default_rng(3)
    noise = rng.normal(size=(2, 2000, 1))
    first = np.hstack([noise[0], 3.0 * noise[0] + 1e-3])
    second = np.hstack([noise[1], 3.0 * noise[1]])
    shown = guess_canary(first, second, Claim(1.0, 0.0), confidence=SURE).epsilon
    assert shown > math.log(1000 / 20)


def test_a_direction_that_only_fits_the_noise_shows_nothing():
    """Many features and few draws: the first half looks separated, the second half is what counts."""
    rng = np.random.default_rng(4)
    claim = Claim(0.0, 0.0)
    for _ in range(20):
        first, second = rng.normal(size=(2, 120, 50))
        assert guess_canary(first, second, claim, confidence=SURE).epsilon == 0.0


def test_a_deterministic_function_of_two_inputs_is_unbounded_or_shows_nothing():
    fleets = with_canary(FLEET), FLEET
    assert audit_pair(lambda fleet: fleet.counts.sum(axis=0), *fleets) == math.inf
    assert audit_pair(lambda fleet: fleet.n_states, *fleets) == 0.0
    rng = np.random.default_rng(5)
    with pytest.raises(ValueError, match="the function is random"):
        audit_pair(lambda fleet: rng.normal(), *fleets)
