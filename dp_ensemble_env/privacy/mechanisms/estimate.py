r"""What is made of the noisy answers of an adaptive release: post-processing, which is free.

*Trust.* The mean trust of each row is the noisy one, fused with a forecast: how often the behaviour at hand visits the
row, times a number of days that is fitted.

*Behaviour.* Every answer is a linear measurement of the behaviour with known noise, so all that was asked so far adds
up to an information matrix and a vector. The prior is normal around the guess, its size is chosen by marginal
likelihood, and rows sum to one. Cells are then made possible: with a declared support by the mean of a normal variate
that is known to be positive, but a cell that the guess all but excludes keeps its posterior mean, and nothing below two
standard deviations; where every cell is drawn by emptying cells that noise could have made, and filling what is missing
from the guess.

*Choice.* Of the release, the guess and their mean the one is taken whose plan earns most on behaviours that are drawn
from the posterior. So a fleet that is too small does no harm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from dp_ensemble_env.control.policies import as_tilt, solve_standard
from dp_ensemble_env.control.returns import policy_return
from dp_ensemble_env.privacy.mechanisms.curvature import LARGE, SPREAD, Problem, Shape
from dp_ensemble_env.privacy.mechanisms.fleet_sums import FALSE_JUMPS, LEAST_GUESS, normal_tail, positive_mean

FloatArray = NDArray[np.float64]
#: Relative error of the forecast of a row's trust, and the least error.
TRUST_ERROR, LEAST_ERROR = 0.5, 0.002
#: Least guess that the prior's variance is made of.
PRIOR_LEAST = 0.01
#: On a declared support a cell with a guess below this is empty, unless it is so many standard deviations above zero.
UNLIKELY, STANDS_OUT = 0.005, 2.0
#: Precision with which rows sum to one.
STIFF = 1e7
#: Behaviours that the choice is made on, and the range of scores that counts.
WORLDS, WORST_SCORE = 8, -200.0


def mean_trust(problem: Problem, p: FloatArray, measured: FloatArray, error: float) -> FloatArray:
    """Return the mean trust of each row, given a noisy measurement with this standard deviation."""
    best, forecast, variance = math.inf, measured, np.ones_like(measured)
    for visits in problem.visits(p):
        for days in 2.0 ** np.arange(-3.0, 15.0, 0.5):
            seen = visits * days
            trust = seen / (seen + SPREAD + 1.0)
            prior = (TRUST_ERROR * trust) ** 2 + LEAST_ERROR**2
            misfit = float(((measured - trust) ** 2 / (prior + error**2) + np.log(prior + error**2)).sum())
            if misfit < best:
                best, forecast, variance = misfit, trust, prior
    precision = 1.0 / variance + 1.0 / error**2
    mean = (forecast / variance + measured / error**2) / precision
    return np.clip(positive_mean(mean, 1.0 / np.sqrt(precision)), 1e-6, 1.0)


@dataclass(frozen=True, eq=False)
class Posterior:
    """What is believed of the behaviour: mean, standard deviation and a root of the covariance."""

    mean: FloatArray
    deviation: FloatArray
    root: FloatArray


@dataclass
class Evidence:
    """What the answers so far say of the behaviour: information matrix and vector."""

    problem: Problem
    matrix: FloatArray
    vector: FloatArray

    @classmethod
    def none(cls, problem: Problem) -> Evidence:
        """Begin without any."""
        return cls(problem, np.zeros((problem.size, problem.size)), np.zeros(problem.size))

    def add(
        self, shape: Shape, centre: FloatArray, weight: FloatArray, answer: FloatArray, variance: float, number: float
    ) -> None:
        """Add an answer: G diag(weight / units)(P - centre), noise of this variance, sampling of variance `number` G².

        `weight` says how many participants, by trust and clip, stand behind each cell; `number` how many there are.
        """
        low, high, V = shape.low, shape.low + shape.gain, shape.vectors
        rest, main = low / (variance + number * low**2), high / (variance + number * high**2)
        scale, along = weight / shape.units, V.T @ answer
        information = (V * (high * main - low * rest)) @ V.T
        information[np.diag_indices_from(information)] += low * rest
        information *= scale[:, None] * scale[None, :]
        self.matrix += information
        self.vector += scale * (rest * (answer - V @ along) + V @ (main * along)) + information @ centre

    def posterior(self) -> Posterior:
        """Return the normal posterior around the guess, the size of the prior by marginal likelihood."""
        problem, guess, size = self.problem, self.problem.guess, self.problem.size
        unit = np.sqrt(np.maximum(guess, PRIOR_LEAST))
        K = self.matrix + STIFF * (problem.row[:, None] == problem.row[None, :])  # rows sum to one
        K *= unit[:, None] * unit[None, :]
        z, alike = unit * (self.vector - self.matrix @ guess), problem.alike
        if alike is not None:
            K, z = alike.T @ (K @ alike), alike.T @ z
        best, x, factor = -math.inf, np.zeros(size), np.eye(size)
        for variance in 4.0 ** (np.arange(-6.0, 3.0) if size <= LARGE else np.arange(-4.0, 1.0)):
            A = K.copy()
            A[np.diag_indices_from(A)] += 1.0 / variance
            lower = cho_factor(A, lower=True, overwrite_a=True, check_finite=False)
            moved = cho_solve(lower, z, check_finite=False)
            fit = 0.5 * float(z @ moved) - float(np.log(np.diag(lower[0])).sum())
            fit -= 0.5 * (size - problem.rows) * math.log(variance)
            if fit > best:
                best, x, factor = fit, moved, lower[0]
        right = np.eye(size) if alike is None else alike.T
        inverse = solve_triangular(factor, right, lower=True, check_finite=False)
        mean = guess + unit * (x if alike is None else alike @ x)
        return Posterior(mean, unit * np.sqrt((inverse**2).sum(axis=0)), unit[:, None] * inverse.T)


def possible(problem: Problem, mean: FloatArray, deviation: FloatArray) -> FloatArray:
    """Make behaviour of noisy probabilities: positive where it is possible, with rows that sum to one."""
    guess, size = problem.guess, problem.size
    high = normal_tail(1.0 / size)
    if problem.declared:
        p, made_up = positive_mean(mean, deviation), (guess < UNLIKELY) & (mean <= high * deviation)
        p = np.where(made_up, np.where(mean > STANDS_OUT * deviation, mean, 0.0), p)
    else:
        limit = np.where(guess < LEAST_GUESS, normal_tail(FALSE_JUMPS / size), high)
        p = np.where(mean > limit * deviation, mean, 0.0)
        error = np.sqrt(problem.sums((p > 0) * deviation**2))
        missing, empty = np.maximum(0.0, 1.0 - problem.sums(p) - 3.0 * error), np.where(p > 0, 0.0, guess)
        p += (missing / np.maximum(problem.sums(empty), 1e-300))[problem.row] * empty
    p = np.where((problem.sums(p) > 0)[problem.row], p, guess)
    return np.asarray(p / problem.sums(p)[problem.row])


def choose(problem: Problem, p: FloatArray, belief: Posterior) -> FloatArray:
    """Return the release, the guess or their mean: the one whose plan scores best on behaviours that are likely."""
    rng = np.random.default_rng(0)  # nothing is hidden by it: it is a function of the answers alone
    options = (p, 0.5 * p + 0.5 * problem.guess, problem.guess)
    plans = [solve_standard(problem.model.with_default(problem.matrix(option))) for option in options]
    worth = np.zeros(len(options))
    for _ in range(WORLDS):
        drawn = belief.mean + belief.root @ rng.standard_normal(problem.size)
        world = problem.model.with_default(problem.matrix(possible(problem, drawn, 0.02 * belief.deviation)))
        optimum = solve_standard(world)
        idle, best = policy_return(world, world.default_policy), policy_return(world, optimum.policy)
        if best - idle > 1e-12 * max(1.0, abs(best)):
            earned = np.array([policy_return(world, as_tilt(plan, world)) for plan in plans])
            worth += np.clip(100.0 * (earned - idle) / (best - idle), WORST_SCORE, 100.0)
    return options[int(np.argmax(worth))]
