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
from dp_ensemble_env.privacy.audit import (
    Claim,
    canary_counts,
    discriminant,
    gaussian_lower_bound,
    guess_canary,
    with_canary,
)
from dp_ensemble_env.privacy.mechanisms.base import make_permit
from dp_ensemble_env.privacy.mechanisms.fleet_sums import Layout
from dp_ensemble_env.privacy.mechanisms.noise import GRID

H, DELTA, OMEGA, K = 0.03, 0.05, 0.1, 50.0
ROW = np.array([OMEGA + H / 2, OMEGA, 1 - 2 * OMEGA - H / 2])  # its pair dominates all others
SURE = 1 - 1e-7
CLAIM = worst_case_epsilon(DELTA, K, H, OMEGA)
FLEET = Fleet.simulate(0.8 * np.eye(5) + 0.04, participants=30, seed=0, steps=50)


@pytest.mark.parametrize("seed", range(2))
def test_the_mechanism_stays_below_its_claim(seed):
    bound = audit_epsilon(DirichletMechanism(K), ROW, 0, 1, H, DELTA, 200_000, seed, confidence=SURE)
    assert 0.6 * CLAIM < bound <= CLAIM  # and the attack is nearly as good as theory allows
    mutant = DirichletMechanism(2 * K)  # draws with too large a k
    bound = audit_epsilon(mutant, ROW, 0, 1, H, DELTA, 200_000, seed, confidence=SURE)
    assert CLAIM < bound <= worst_case_epsilon(DELTA, 2 * K, H, OMEGA)


def test_a_floored_mechanism_stays_below_the_claim_of_its_floor_and_a_mutant_without_it_does_not():
    for row, kept in (([0.02, 0.01, 0.97], True), ([0.016, 0.05, 0.934], False)):
        claim = worst_case_epsilon(DELTA, K, (1 - 3 * OMEGA) * H, OMEGA)
        drawn = DirichletMechanism(K, OMEGA if kept else 0.0)
        bound = audit_epsilon(drawn, row, 0, 1, H, DELTA, 200_000, 2, confidence=SURE)
        assert (0.2 * claim < bound <= claim) == kept and (bound > claim) != kept


@pytest.mark.parametrize("kind", ["taylor", "digamma"])
def test_a_policy_on_the_true_matrix_is_unbounded(kind):
    """E8: noise-aware is not private."""
    from scipy.special import digamma

    def policy(row):
        if kind == "taylor":
            log_row = np.log(row) - (1 - row) / (2 * row * (K + 1))
        else:
            log_row = digamma(K * row) - digamma(K)
        return solve(np.tile(log_row, (3, 1)), np.array([[0.0] * 3, [0.0, 3.0, -2.0]]), 15.0).policy

    rows = ROW, adjacent_row(ROW, 0, 1, H)
    assert audit_pair(policy, *rows) == math.inf and audit_pair(lambda row: np.ones(3), *rows) == 0.0
    fleets, rng = (with_canary(FLEET), FLEET), np.random.default_rng(0)
    assert audit_pair(lambda fleet: fleet.counts.sum(axis=0), *fleets) == math.inf
    assert audit_pair(lambda fleet: fleet.n_states, *fleets) == 0.0
    with pytest.raises(ValueError, match="the function is random"):
        audit_pair(lambda row: rng.dirichlet(K * row), *rows)


@pytest.mark.parametrize("samples", [4, 16])
def test_an_average_tracks_the_composed_epsilon(samples):
    """E9: the average of N draws is as private as N releases, not as one."""
    composed = composed_epsilon(DELTA, [RowGroup(K, OMEGA, H, samples)])
    drawn = DirichletMechanism(K)
    bound = audit_epsilon(drawn, ROW, 0, 1, H, DELTA, 60_000, 4, samples=samples, confidence=SURE)
    assert CLAIM < bound <= composed
    assert bound > 0.6 * composed


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


# ------------------------------------------------------------------ from the file on
STAMPS = np.datetime64("2024-07-01T00:00") + np.arange(24 * 20) * np.timedelta64(1, "h")
#: Planted participants: readings by stamp. Each would change what others contribute if anything were inferred from all.
OUTLIERS = {
    "jumps from end to end": lambda t: [f"{1e9 * (i % 2)}" for i in range(len(t))],
    "never leaves its level": lambda t: ["1.5"] * len(t),
    "another decimal sign": lambda t: [f"{i % 6},5" for i in range(len(t))],
    "no number at all": lambda t: ["off"] * len(t),
    "one reading": lambda t: ["3.0", *[""] * (len(t) - 1)],
    "negative": lambda t: [f"-{i % 5}" for i in range(len(t))],
    "every other hour": lambda t: ["2.0" if i % 2 else "" for i in range(len(t))],
}


def planted_files(folder, outlier, participants=12):
    rng = np.random.default_rng(3)
    others = np.clip(2.0 + np.cumsum(rng.choice([-0.5, 0.0, 0.5], (len(STAMPS), participants)), axis=0), 0.1, 5.9)
    columns = [[f"{kw:.2f}" for kw in column] for column in others.T]
    for name, extra in (("present", [OUTLIERS[outlier](STAMPS)]), ("absent", [])):
        head = ["time", *(f"m{i} (kW)" for i in range(participants)), *["planted (kW)"] * len(extra)]
        rows = zip([str(stamp).replace("T", " ") for stamp in STAMPS], *columns, *extra, strict=True)
        (folder / f"{name}.csv").write_text("\n".join(";".join(row) for row in [head, *rows]) + "\n")
    return folder / "present.csv", folder / "absent.csv"


def audit_files(attacked, present, absent, draws, confidence=0.99):
    """Attack the noisy numbers that are drawn from two files which differ by one participant."""
    seeds, sides = np.random.default_rng(0), []
    for path in (present, absent):
        fleet = Fleet.read(path, **DECLARED)
        event = attacked.event(fleet, seeding="seed")
        permits = (make_permit(event, int(seeds.integers(2**62)), fleet) for _ in range(draws))
        sides.append(np.stack([attacked.noisy(fleet, permit).ravel() for permit in permits]))
    claim = Claim.of(event, delta=1e-6)
    return guess_canary(*sides, claim, confidence=confidence), claim


DECLARED = {"edges": [0, 2, 4, 6], "step_minutes": 60, "stamp": "start", "delimiter": ";"}


@pytest.mark.parametrize("outlier", OUTLIERS)
def test_a_claim_holds_from_the_file_on(outlier, tmp_path):
    shown, claim = audit_files(GaussianMechanism(4.0, 1e-6), *planted_files(tmp_path, outlier), draws=1000)
    assert shown.epsilon <= claim.epsilon == pytest.approx(4.0, rel=1e-6)


@dataclass(frozen=True)
class TooSensitive(GaussianMechanism):
    """Everybody contributes a fifth more than is charged."""

    def numbers(self, fleet, layout, event, rng):
        return super().numbers(fleet, layout, event, rng) + 0.2 * layout.sums(fleet) / GRID


def test_a_planted_sensitivity_is_caught_from_the_file_on(tmp_path):
    files = planted_files(tmp_path, "jumps from end to end")
    settings = {"draws": 6000, "confidence": 0.999}
    honest, claim = audit_files(GaussianMechanism(4.0, 1e-6), *files, **settings)
    caught, same = audit_files(TooSensitive(4.0, 1e-6), *files, **settings)
    assert same == claim and honest.epsilon <= claim.epsilon < caught.epsilon
    assert honest.epsilon > 0.7 * claim.epsilon  # the attack is nearly as strong as the claim allows
