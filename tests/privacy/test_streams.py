"""No two draws share a stream of random numbers, whatever seed they are given."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import least_squares

from dp_ensemble_env.envs import EnsembleEnv
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy import DirichletMechanism, Fleet, PrivacyLedger, Release
from dp_ensemble_env.privacy.mechanisms.base import make_permit

#: A sweep such as anyone would run, on one seed.
KS = np.array([20.0, 30.0, 50.0, 80.0, 120.0, 200.0, 300.0])
TRUTH = 0.3123
MATRIX = np.array([[TRUTH, 1 - TRUTH], [0.5, 0.5]])


def log_odds(unknown: np.ndarray, ks: np.ndarray) -> np.ndarray:
    """Return what a row of two entries is released as, given the random numbers behind it.

    NumPy draws a Gamma variate from one normal number (Marsaglia and Tsang), and the mechanism adds one exponential.
    """
    p, *numbers = unknown

    def log_gamma(shape: np.ndarray, normal: float, exponential: float) -> np.ndarray:
        b = shape + 1.0 - 1.0 / 3.0
        return np.log(b) + 3.0 * np.log(np.maximum(1.0 + normal / np.sqrt(9.0 * b), 1e-9)) - exponential / shape

    return log_gamma(ks * p, *numbers[0::2]) - log_gamma(ks * (1.0 - p), *numbers[1::2])


def solve_for_the_truth(releases: list[Release]) -> tuple[float, float]:
    """Guess the true entry, and how well the guess explains the releases; the seed is not known."""
    seen = np.array([one.log_matrix[0, 0] - one.log_matrix[0, 1] for one in releases])
    rng, best = np.random.default_rng(0), (0.0, np.inf)
    box = [[0.01, -6, -6, 0, 0], [0.99, 6, 6, 20, 20]]
    for _ in range(30):
        start = [rng.uniform(0.1, 0.9), *rng.normal(size=2), *rng.exponential(size=2)]
        tolerances = {"xtol": 1e-15, "ftol": 1e-15, "gtol": 1e-15}
        found = least_squares(lambda unknown: log_odds(unknown, KS) - seen, start, bounds=box, **tolerances)
        best = min(best, (float(found.x[0]), float(found.cost)), key=lambda pair: pair[1])
        if best[1] < 1e-24:
            break
    return best


def model() -> EnsembleModel:
    return EnsembleModel(MATRIX, [1.0, 2.0], [[0.0, 0.0], [0.0, -1.0]], 5.0)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_releases_at_several_k_do_not_give_the_true_row_away(seed):
    aligned = [DirichletMechanism(k).release(MATRIX, np.random.default_rng(seed)) for k in KS]
    guess, misfit = solve_for_the_truth(aligned)
    assert guess == pytest.approx(TRUTH, abs=1e-10) and misfit < 1e-20  # the attack works where streams align
    ledger = PrivacyLedger()
    for releases in (
        [DirichletMechanism(k).release(MATRIX, seed) for k in KS],
        [ledger.release(DirichletMechanism(k), MATRIX, seed) for k in KS],
        [EnsembleEnv(model(), privacy=DirichletMechanism(k), release_seed=seed).release for k in KS],
    ):
        guess, misfit = solve_for_the_truth(releases)
        assert misfit > 1e-4 and abs(guess - TRUTH) > 1e-3


def noise(matrix: np.ndarray, *args, **settings) -> np.ndarray:
    return (DirichletMechanism(*args).release(matrix, **settings).matrix - matrix).ravel()


def test_every_parameter_of_a_draw_moves_its_stream():
    """Noise of draws that differ in one thing alone, the data among them, is uncorrelated."""
    rng = np.random.default_rng(3)
    matrix = rng.dirichlet(np.full(30, 5.0), size=30)
    other = matrix.copy()
    other[0, :2] += [1e-9, -1e-9]  # a single reading of a single participant
    shared = [noise(x, k, rng=np.random.default_rng(7)) for x, k in ((matrix, 2e4), (other, 2e4), (matrix, 2.2e4))]
    assert all(np.corrcoef(a, b)[0, 1] > 0.9 for a, b in combinations(shared, 2))  # what equal streams would do
    draws = {
        "plain": noise(matrix, 2e4, rng=7),
        "data": noise(other, 2e4, rng=7),
        "k": noise(matrix, 2.2e4, rng=7),
        "floor": noise(matrix, 2e4, 1e-6, rng=7),
        "seed": noise(matrix, 2e4, rng=8),
    }
    for (a, one), (b, two) in combinations(draws.items(), 2):
        assert abs(np.corrcoef(one, two)[0, 1]) < 0.15, (a, b)
    np.testing.assert_array_equal(draws["plain"], noise(matrix, 2e4, rng=7))  # and the same draw is the same


def test_terms_of_a_draw_move_its_stream():
    """The event knows the sizes of a support's rows alone, and nothing of a clip."""
    matrix = np.eye(40)
    supports = [np.eye(40, dtype=bool) | np.eye(40, k=shift, dtype=bool) for shift in (1, 1, 2)]
    for one in supports:
        one[-2:] = supports[0][-2:] | np.eye(40, k=-1, dtype=bool)[-2:]  # rows of equal sizes
    mechanism, ledger = DirichletMechanism(50, 0.1), PrivacyLedger()
    assert mechanism.event(matrix, support=supports[1]) == mechanism.event(matrix, support=supports[2])
    for release in (mechanism.release, lambda *a, **t: ledger.release(mechanism, *a, **t)):
        stay = [np.diag(release(matrix, 3, support=one).matrix)[:-2] for one in supports]
        np.testing.assert_array_equal(stay[0], stay[1])
        assert np.abs(stay[0] - stay[2]).max() > 1e-3 and abs(np.corrcoef(stay[0], stay[2])[0, 1]) < 0.6
    fleet = Fleet.simulate(MATRIX, 200, seed=1, steps=500)
    dense = np.ones((2, 2), bool)
    streams = [make_permit(mechanism.event(MATRIX), 3, fleet, {"support": dense, "clip": clip}).rng for clip in (5, 6)]
    assert streams[0].random() != streams[1].random()


def test_the_adjacency_is_a_claim_about_a_draw_and_no_part_of_it():
    ledger = PrivacyLedger()
    one, two = (ledger.release(DirichletMechanism(50, 0.1), MATRIX, 4, h=h) for h in (0.01, 0.1))
    np.testing.assert_array_equal(one.log_matrix, two.log_matrix)
    assert one.event != two.event and len(ledger.entries) == 2  # but another claim is another entry


def test_redraws_of_one_seed_are_draws_of_their_own():
    env = EnsembleEnv(model(), privacy=DirichletMechanism(2e4), redraw="episode", release_seed=5)
    seen = []
    for _ in range(4):
        env.reset()
        seen.append(env.release.log_matrix[0, 0])
    later = [
        EnsembleEnv(model(), privacy=DirichletMechanism(2e4), release_seed=seed).release.log_matrix[0, 0]
        for seed in (6, 7, 8)
    ]
    assert len({*seen, *later}) == 7


def test_a_seed_alone_charges_nothing():
    mechanism = DirichletMechanism(50, 0.1)
    ledger = PrivacyLedger()
    event = mechanism.event(MATRIX, seeding="seed")
    with pytest.raises(ValueError, match=r"pass charge\(event, rng=seed, data=data\)"):
        ledger.charge(event, rng=3)
    with pytest.raises(ValueError, match="give it a `fingerprint`"):
        ledger.charge(event, rng=3, data=object())
    assert ledger.releases == 0
    release = mechanism.draw(MATRIX, ledger.charge(event, rng=3, data=MATRIX))
    np.testing.assert_array_equal(release.matrix, mechanism.release(MATRIX, 3).matrix)
