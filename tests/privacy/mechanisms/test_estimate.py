"""What is made of noisy answers: trust, the posterior, possible behaviour, and the choice."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import null_space

from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy import Fleet
from dp_ensemble_env.privacy.mechanisms.curvature import Problem
from dp_ensemble_env.privacy.mechanisms.estimate import Evidence, Posterior, choose, mean_trust, possible

N, T = 4, 6


@pytest.fixture
def problem() -> Problem:
    rng = np.random.default_rng(0)
    default = rng.dirichlet(np.full(N, 4.0), N)
    model = EnsembleModel(default, np.arange(N), rng.normal(size=(T + 1, N)), 0.5)
    return Problem.of(model, Fleet.from_decisions([], (N, N)))


def declared(problem: Problem) -> Problem:
    return Problem(**{**vars(problem), "declared": True})


class TestPosterior:
    def test_is_that_of_a_linear_regression_with_rows_that_sum_to_one(self, problem):
        rng, size = np.random.default_rng(1), problem.size
        truth = rng.dirichlet(np.full(N, 4.0), N).ravel()
        evidence = Evidence.none(problem)
        precision, vector = np.zeros((size, size)), np.zeros(size)
        for floor in (0.1, 0.01):
            shape = problem.shape(problem.guess, np.full(N, 0.6), floor)
            weight, variance, number = rng.uniform(50, 90, size), 40.0, 300.0
            G = shape.low * np.eye(size) + (shape.vectors * shape.gain) @ shape.vectors.T
            A = G * (weight / shape.units)
            noise = variance * np.eye(size) + number * G @ G
            answer = A @ (truth - problem.guess) + rng.multivariate_normal(np.zeros(size), noise)
            evidence.add(shape, problem.guess, weight, answer, variance, number)
            precision += A.T @ np.linalg.solve(noise, A)
            vector += A.T @ np.linalg.solve(noise, answer)
        # Directions in which rows keep their sums; the answers are about the difference from the guess.
        B = null_space(np.eye(N)[problem.row].T)
        prior = np.diag(1.0 / np.maximum(problem.guess, 0.01))
        fits = {}
        for t2 in 4.0 ** np.arange(-6.0, 3.0):
            K = B.T @ (precision + prior / t2) @ B
            moved = np.linalg.solve(K, B.T @ vector)
            likelihood = 0.5 * vector @ B @ moved - 0.5 * np.linalg.slogdet(K)[1] - 0.5 * B.shape[1] * math.log(t2)
            fits[likelihood] = problem.guess + B @ moved, B @ np.linalg.inv(K) @ B.T
        mean, covariance = fits[max(fits)]
        belief = evidence.posterior()
        assert_allclose(belief.mean, mean, atol=1e-5)
        assert_allclose(belief.root @ belief.root.T, covariance, atol=1e-5 * np.abs(covariance).max() + 1e-7)
        assert_allclose(belief.deviation**2, np.diag(covariance), rtol=1e-3, atol=1e-7)
        assert_allclose(problem.sums(belief.mean), 1.0, atol=1e-5)

    def test_without_answers_is_the_prior(self, problem):
        assert_allclose(Evidence.none(problem).posterior().mean, problem.guess, atol=1e-9)


class TestPossible:
    def test_without_noise_behaviour_stays(self, problem):
        p = np.random.default_rng(2).dirichlet(np.full(N, 4.0), N).ravel()
        for one in (problem, declared(problem)):
            assert_allclose(possible(one, p, np.full(len(p), 1e-9)), p, rtol=1e-6)

    def test_empties_what_noise_could_have_made(self, problem):
        mean, deviation = problem.guess.copy(), np.full(problem.size, 0.01)
        for value, kept in ((0.02, False), (0.03, True)):  # sqrt(2 ln 16) = 2.35 standard deviations
            mean[:2] = 1.0 - value - mean[2:N].sum(), value
            assert (possible(problem, mean, deviation)[1] > 0.0) == kept

    def test_a_declared_support_keeps_its_cells_positive(self, problem):
        mean, deviation = problem.guess.copy(), np.full(problem.size, 0.01)
        mean[1] = -0.02
        p = possible(declared(problem), mean, deviation)
        assert (p > 0).all()

    @pytest.mark.parametrize(("mean", "kept"), [(-0.02, 0.0), (0.019, 0.0), (0.021, 0.021), (0.03, 0.03003)])
    def test_noise_does_not_lift_an_unlikely_cell(self, problem, mean, kept):
        guess = np.where(np.arange(16) == 1, 0.004, problem.guess)
        unlikely = Problem(**{**vars(declared(problem)), "guess": guess})
        noisy = problem.guess.copy()
        noisy[:2] = 1.0 - kept - noisy[2:N].sum(), mean
        assert_allclose(possible(unlikely, noisy, np.full(16, 0.01))[1], kept, rtol=0.02)

    def test_rows_sum_to_one_whatever_comes(self, problem):
        for one in (problem, declared(problem)):
            for mean in (np.zeros(problem.size), np.full(problem.size, -1.0), np.random.default_rng(0).normal(size=16)):
                assert_allclose(one.sums(possible(one, mean, np.full(problem.size, 0.1))), 1.0)

    def test_the_guess_fills_what_is_missing(self, problem):
        mean = np.where(problem.row == 0, 0.0, problem.guess)
        assert_allclose(possible(problem, mean, np.full(problem.size, 0.001))[:N], problem.guess[:N])


class TestTrust:
    def test_follows_an_exact_measurement(self, problem):
        measured = np.array([0.9, 0.1, 0.4, 0.02])
        assert_allclose(mean_trust(problem, problem.guess, measured, 1e-6), measured, rtol=1e-3)

    def test_falls_back_on_the_forecast(self, problem):
        (visits, _), days = problem.visits(problem.guess), 16.0
        forecast = visits * days / (visits * days + 31.0)
        noisy = forecast + np.array([0.3, -0.3, 0.3, -0.3])
        trust = mean_trust(problem, problem.guess, noisy, 0.3)
        assert np.abs(trust - forecast).max() < 0.6 * np.abs(noisy - forecast).max()

    def test_visits_are_those_of_an_episode(self, problem):
        rho, total = problem.model.initial, np.zeros(N)
        for _ in range(T):
            total += rho
            rho = rho @ problem.matrix(problem.guess)
        episode, lasting = problem.visits(problem.guess)
        assert_allclose(episode, total)
        assert_allclose(lasting.sum(), 1.0)


class TestChoice:
    def belief(self, problem: Problem, mean: np.ndarray) -> Posterior:
        deviation = np.full(problem.size, 1e-4)
        return Posterior(mean, deviation, np.diag(deviation))

    def test_takes_the_release_where_it_is_right(self, problem):
        p = np.random.default_rng(2).dirichlet(np.full(N, 0.5), N).ravel()
        assert_array_equal(choose(problem, p, self.belief(problem, p)), p)

    def test_takes_the_guess_where_it_is_right(self, problem):
        p = np.random.default_rng(2).dirichlet(np.full(N, 0.5), N).ravel()
        assert_array_equal(choose(problem, p, self.belief(problem, problem.guess)), problem.guess)
