"""Tests of `audit`."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

from dp_ensemble_env.control.lsmdp import solve
from dp_ensemble_env.privacy import (
    DirichletMechanism,
    Fleet,
    GaussianMechanism,
    PrivacyLedger,
    RowGroup,
    audit_epsilon,
    audit_pair,
    audit_samples,
    composed_epsilon,
    epsilon_lower_bound,
    gaussian_epsilon,
    mechanism,
    worst_case_epsilon,
)
from dp_ensemble_env.privacy.accounting.divergence import adjacent_row
from dp_ensemble_env.privacy.audit import Claim, canary_counts, gaussian_lower_bound, guess_canary, with_canary
from dp_ensemble_env.privacy.mechanisms.base import make_permit
from dp_ensemble_env.privacy.mechanisms.fleet_sums import Layout
from dp_ensemble_env.privacy.mechanisms.noise import GRID

H, DELTA, OMEGA, K = 0.03, 0.05, 0.1, 50.0
ROW = np.array([OMEGA + H / 2, OMEGA, 1 - 2 * OMEGA - H / 2])  # its pair dominates all others
SURE = 1 - 1e-7
CLAIM = worst_case_epsilon(DELTA, K, H, OMEGA)
FLEET = Fleet.simulate(0.8 * np.eye(5) + 0.04, participants=30, seed=0, steps=50)


def test_the_mechanism_stays_below_its_claim():
    bound = audit_epsilon(DirichletMechanism(K), ROW, 0, 1, H, DELTA, 200_000, 0, confidence=SURE)
    assert 0.6 * CLAIM < bound <= CLAIM  # and the attack is nearly as good as theory allows
    mutant = DirichletMechanism(2 * K)  # draws with too large a k
    bound = audit_epsilon(mutant, ROW, 0, 1, H, DELTA, 200_000, 0, confidence=SURE)
    assert CLAIM < bound <= worst_case_epsilon(DELTA, 2 * K, H, OMEGA)


def test_a_policy_on_the_true_matrix_is_unbounded():
    """E8: noise-aware is not private."""

    def policy(row):
        log_row = np.log(row) - (1 - row) / (2 * row * (K + 1))  # Taylor
        return solve(np.tile(log_row, (3, 1)), np.array([[0.0] * 3, [0.0, 3.0, -2.0]]), 15.0).policy

    rows = ROW, adjacent_row(ROW, 0, 1, H)
    assert audit_pair(policy, *rows) == math.inf and audit_pair(lambda row: np.ones(3), *rows) == 0.0
    fleets, rng = (with_canary(FLEET), FLEET), np.random.default_rng(0)
    assert audit_pair(lambda fleet: fleet.counts.sum(axis=0), *fleets) == math.inf
    assert audit_pair(lambda fleet: fleet.n_states, *fleets) == 0.0
    with pytest.raises(ValueError, match="the function is random"):
        audit_pair(lambda row: rng.dirichlet(K * row), *rows)


def test_an_average_tracks_the_composed_epsilon():
    """E9: the average of N draws is as private as N releases, not as one."""
    composed = composed_epsilon(DELTA, [RowGroup(K, OMEGA, H, 4)])
    bound = audit_epsilon(DirichletMechanism(K), ROW, 0, 1, H, DELTA, 60_000, 4, samples=4, confidence=SURE)
    assert CLAIM < 0.6 * composed < bound <= composed


def test_clopper_pearson_against_scipy():
    for hits, alarms, trials, delta in ((90, 10, 100, 0.05), (100, 0, 100, 0.01), (700, 300, 1000, 0.05)):
        low = stats.binomtest(hits, trials).proportion_ci(0.98, method="exact").low
        high = stats.binomtest(alarms, trials).proportion_ci(0.98, method="exact").high
        expected = max(0.0, math.log((low - delta) / high))
        assert epsilon_lower_bound(hits, alarms, trials, delta, 0.98) == pytest.approx(expected)
    assert epsilon_lower_bound(5, 5, 100, 0.5, 0.98) == 0.0
    for hits, alarms in ((0, 0), (0, 100), (100, 100), (40, 40)):  # rates that show nothing
        assert gaussian_lower_bound(hits, alarms, 100, 1e-6, 0.99) == 0.0


@pytest.mark.parametrize("kind", ["randomised response", "gaussian"])
def test_bounds_are_wrong_no_more_often_than_they_say(kind):
    """Coverage: with a known ε the bound exceeds it in at most a share 1 - confidence of trials."""
    rng, confidence, trials, wrong = np.random.default_rng(5), 0.8, 500, 0
    honest = math.e / (1 + math.e)
    for _ in range(trials):
        if kind == "gaussian":
            pair, bound, delta = (rng.normal(1.0, 1.0, 300), rng.normal(0.0, 1.0, 300)), gaussian_lower_bound, 1e-6
            true = gaussian_epsilon(delta, 1.0)
        else:
            pair, bound, delta = (rng.random((2, 400)) < [[honest], [1 - honest]]).astype(float), epsilon_lower_bound, 0
            true = 1.0
        wrong += audit_samples(*pair, delta, confidence=confidence, candidates=6, bound=bound).epsilon > true
    assert wrong <= trials * (1 - confidence) + 6 * math.sqrt(trials * 0.2 * 0.8)


def test_audit_refuses_bad_input():
    with pytest.raises(ValueError, match="below h/2"):
        audit_epsilon(DirichletMechanism(50), [0.01, 0.99], 0, 1, 0.03, 0.05, 100, 0)
    with pytest.raises(ValueError, match="same number of draws"):
        audit_samples(np.zeros(10), np.zeros(9), 0.05)
    assert "with confidence" in str(audit_samples(np.arange(10.0), np.arange(10.0), 0.05))


@pytest.mark.parametrize(("norm", "n", "kind"), [(1, 3, "stays"), (2, 6, "jumps"), (2, 7, "stays")])
def test_the_canary_contributes_all_that_the_clip_allows(norm, n, kind):
    fleet = Fleet(canary_counts(n, kind)[None])
    assert np.linalg.norm(Layout.of(fleet, norm).contributions(fleet.counts)[0], norm) == pytest.approx(1.0, abs=1e-9)


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


def test_claims_are_those_of_a_ledger():
    drawn = [mechanism("gaussian:epsilon=1"), mechanism("gaussian:epsilon=2"), mechanism("laplace:epsilon=1")]
    for some in (drawn[:1], drawn[:2], drawn[2:], drawn):
        ledger = PrivacyLedger()
        for one in some:
            ledger.release(one, FLEET, rng=0)
        claim = Claim.of(*(one.event(FLEET, seeding="seed") for one in some), delta=1e-6)
        assert claim.epsilon == pytest.approx(ledger.spent(1e-6), rel=1e-9)
        assert (claim.bound is gaussian_lower_bound) == (drawn[2] not in some)


def test_the_gaussian_bound_approaches_the_exact_epsilon():
    """With the exact rates at one threshold and many trials, μ comes back, and with it ε at any δ."""
    trials, shift = 10**9, 0.7
    for threshold in (-0.5, 0.3, 1.2):
        hits, alarms = (round(trials * stats.norm.sf(threshold - mean)) for mean in (shift, 0.0))
        for delta in (1e-6, 1e-2):
            bound = gaussian_lower_bound(hits, alarms, trials, delta, SURE)
            assert bound < gaussian_epsilon(delta, 1 / shift) == pytest.approx(bound, rel=0.01)


def test_a_direction_that_only_fits_the_noise_shows_nothing():
    """Many features and few draws: the first half looks separated, the second half is what counts."""
    rng = np.random.default_rng(4)
    claim = Claim(0.0, 0.0)
    for _ in range(20):
        first, second = rng.normal(size=(2, 120, 50))
        assert guess_canary(first, second, claim, confidence=SURE).epsilon == 0.0


# ------------------------------------------------------------------ from the file on
DECLARED = {"edges": [0, 2, 4, 6], "step_minutes": 60, "stamp": "start", "delimiter": ";"}


@dataclass(frozen=True)
class TooSensitive(GaussianMechanism):
    """Everybody contributes a fifth more than is charged."""

    def numbers(self, fleet, layout, event, rng):
        return super().numbers(fleet, layout, event, rng) + 0.2 * layout.sums(fleet) / GRID


def test_a_planted_sensitivity_is_caught_from_the_file_on(tmp_path):
    """Two files, with and without a participant who jumps from end to end, and attacks on what is drawn from them."""
    rng, fleets = np.random.default_rng(3), []
    stamps = np.datetime64("2024-07-01T00:00") + np.arange(24 * 20) * np.timedelta64(1, "h")
    others = np.clip(2.0 + np.cumsum(rng.choice([-0.5, 0.0, 0.5], (len(stamps), 12)), axis=0), 0.1, 5.9)
    columns = [[f"{kw:.2f}" for kw in column] for column in others.T]
    for planted in ([[f"{1e9 * (i % 2)}" for i in range(len(stamps))]], []):
        head = ["time", *(f"m{i} (kW)" for i in range(12)), *["planted (kW)"] * len(planted)]
        rows = zip([str(stamp).replace("T", " ") for stamp in stamps], *columns, *planted, strict=True)
        (tmp_path / "fleet.csv").write_text("\n".join(";".join(row) for row in [head, *rows]) + "\n")
        fleets.append(Fleet.read(tmp_path / "fleet.csv", **DECLARED))

    def attacked(made):
        seeds, sides = np.random.default_rng(0), []
        for fleet in fleets:
            event = made.event(fleet, seeding="seed")
            permits = (make_permit(event, int(seeds.integers(2**62)), fleet) for _ in range(6000))
            sides.append(np.stack([made.noisy(fleet, permit).ravel() for permit in permits]))
        return guess_canary(*sides, Claim.of(event, delta=1e-6), confidence=0.999).epsilon

    assert 0.7 * 4.0 < attacked(GaussianMechanism(4.0, 1e-6)) <= 4.0  # nearly as strong as the claim allows
    assert attacked(TooSensitive(4.0, 1e-6)) > 4.0
