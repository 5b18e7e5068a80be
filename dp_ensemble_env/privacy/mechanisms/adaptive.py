r"""Ten adaptive Gaussian queries along the curvature of the plan, for the price of one draw.

Near the truth the loss of a plan is :math:`\tfrac12 e^\top H e` in the error `e` of the release, and `H` has an
effective rank of 2 to 25 among hundreds of cells: equal noise in every cell wastes nearly all of a contribution. `H`
needs utility, nature and contexts, which are public, and an estimate of the behaviour from earlier noisy answers.

**Contributions.** Participant `i` with decisions :math:`C_i` in rows that it visited :math:`R_{ib}` times has rows
:math:`p_{ib} = C_{ib}/R_{ib}`, each trusted as far as it was seen, :math:`\omega_{ib} = R_{ib}/(R_{ib} + 30)`. Two
kinds of query ask for vectors :math:`v_i`, the trusts at first and :math:`G\,\omega_i(p_i - p)/u` in four steps, where
centre `p`, units `u` and shape `G` are functions of earlier answers (`curvature`):

* *size*: a histogram of :math:`\|v_i\|`, from which follow the bound `B`, the median, and how many participants there
  are, weighted by the clip;
* *sum*: :math:`\sum_i v_i \min(1/B, 1/\|v_i\|)`.

**Privacy** (proved in ``docs/proofs.md``). Each query has an L2 sensitivity of one, checked in whole numbers, and with
a share `s` of the budget it gets Gaussian noise of variance :math:`\sigma^2/s`. Shares are fixed beforehand and add up
to one, hence the transcript is dominated by one Gaussian draw with multiplier :math:`\sigma`. There is one charge,
before the first query; numerical trouble afterwards makes the release the public guess, never an error.

**Estimates** (post-processing, free). *Trust*: the mean trust of each row is the noisy one, fused with a forecast: how
often the behaviour at hand visits the row, times a number of days that is fitted. *Behaviour*: every answer is a linear
measurement with known noise, so all answers add up to an information matrix and a vector. The prior is normal around
the guess, its size is chosen by marginal likelihood, and rows sum to one. Cells are then made `possible`. *Choice*: the
release, the guess or a mean of them, by the plan's return on behaviours drawn from the posterior.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from dp_ensemble_env.control.lsmdp import log_probabilities
from dp_ensemble_env.control.policies import as_tilt, solve_standard
from dp_ensemble_env.control.returns import policy_return
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.accounting.divergence import FloatArray
from dp_ensemble_env.privacy.fleet import Fleet
from dp_ensemble_env.privacy.mechanisms.base import Permit, Seeding
from dp_ensemble_env.privacy.mechanisms.curvature import LARGE, SPREAD, Problem, Shape
from dp_ensemble_env.privacy.mechanisms.fleet_sums import (
    FALSE_JUMPS,
    LEAST_GUESS,
    EpsilonDelta,
    require_fleet,
    support_name,
)
from dp_ensemble_env.privacy.mechanisms.gaussian import GaussianEvent, multiplier
from dp_ensemble_env.privacy.mechanisms.noise import GRID, add_noise, normal_tail, positive_mean, require_source
from dp_ensemble_env.privacy.mechanisms.public import name_of, public_guess
from dp_ensemble_env.privacy.release import Release
from dp_ensemble_env.tools.compile import njit
from dp_ensemble_env.tools.validation import check_instance

VISITS = (0.02, 0.08)  #: Shares of the budget, (size, sum), of the trusts.
STEPS = ((0.02, 0.10), (0.02, 0.13), (0.02, 0.20), (0.02, 0.39))  #: The same of the four steps.
FLOORS = (None, 0.1, 0.03, 0.01)  #: Isotropic part of the steps along the curvature; the first step has no curvature.
EDGES = 2.0 ** (np.arange(-12, 17) / 2.0)  #: Upper edges of the bins of a size query; there is one more, open, bin.
SEEN = 2.5  #: Bins count whose number exceeds so many standard deviations of the noise.
MARGIN = 1.0 - 1e-12  #: Absorbs the rounding of a clip.
TRUST_ERROR, LEAST_ERROR = 0.5, 0.002  #: Relative error of the forecast of a row's trust, and the least error.
PRIOR_LEAST = 0.01  #: Least guess that the prior's variance is made of.
#: On a declared support a cell with a guess below this is empty, unless it is so many standard deviations above zero.
UNLIKELY, STANDS_OUT = 0.005, 2.0
STIFF = 1e7  #: Precision with which rows sum to one.
WORLDS, WORST_SCORE = 32, -200.0  #: Behaviours that the choice is made on, and the range of scores that counts.


@dataclass(frozen=True, kw_only=True)
class AdaptiveEvent(GaussianEvent, type="adaptive"):
    """All queries of a release together, which cost one Gaussian draw; `problem` is a hash of what is public."""

    problem: str

    def stream_key(self) -> dict[str, Any]:
        """Return the fields hashed into the stream of a seeded draw; frozen, see `Event.stream_key`."""
        return {**super().stream_key(), "problem": self.problem}

    @classmethod
    def claims(cls, events: Sequence[GaussianEvent], rows: str | int) -> tuple[str, list[str]]:
        """Name the noise and the unit of protection."""
        words, terms = super().claims(events, rows)
        queries = 2 * (1 + len(STEPS))
        return words, [*terms, f"{queries} adaptive queries whose shares of one Gaussian draw were fixed beforehand"]


@dataclass(frozen=True)
class AdaptiveMechanism(EpsilonDelta):
    """Release the mean behaviour of participants by queries along the curvature of the plan that it is for.

    A draw takes ``model=``, of which it sees declared-public fields alone: utility, nature, contexts, start, guess,
    support and ties. Without a model use `gaussian`. Each draw is (epsilon, delta)-private.
    """

    name: ClassVar[str] = "adaptive"

    def terms_of(self, model: Any) -> dict[str, Any]:
        """Return the model, made of its declared-public fields alone."""
        return {"model": model.public(public_guess(model)).override(public_fields=model.public_fields)}

    def event(self, data: Any, *, seeding: Seeding = "os-entropy", model: EnsembleModel | None = None) -> AdaptiveEvent:
        """Describe a draw from a fleet, of which only shape and classes are looked at."""
        problem = self._problem(data, model)
        require_source(seeding)
        return AdaptiveEvent(
            states=problem.model.n_states,
            guess=name_of(problem.model.guess),
            shape=problem.model.default.shape,
            rows=problem.rows,
            support=support_name(problem.model.declared_support),
            sigma=multiplier(self.epsilon, self.delta, seeding),
            problem=problem.digest,
            seeding=seeding,
        )

    def _problem(self, data: Any, model: EnsembleModel | None) -> Problem:
        require_fleet(data, self.name)
        if model is None:
            remedy = f"draw with 'gaussian:epsilon={self.epsilon:g}', which needs none, or in Python pass model="
            raise ValueError(f"the adaptive mechanism shapes its queries by the plan that they are for; {remedy}.")
        check_instance(model, EnsembleModel, "model")
        return Problem.of(model, data)

    def draw(self, data: Any, permit: Permit, *, model: EnsembleModel | None = None) -> Release:
        """Draw one release of a fleet, for the problem of a model."""
        problem, event = self._problem(data, model), self.event(data, seeding=permit.event.seeding, model=model)
        permit.covers(event)
        queries = Queries(data, problem, event.sigma, permit.rng, event.seeding)
        try:
            with np.errstate(all="ignore"):  # what is not finite is dealt with where it matters
                p = _estimate(problem, queries) if problem.size else problem.guess
            if not np.isfinite(p).all():
                raise ArithmeticError("it is not finite")
        except (ArithmeticError, ValueError, RuntimeError, MemoryError) as error:  # all was charged: nothing may fail
            warnings.warn(f"the release is the public guess, since its estimate failed: {error}", stacklevel=2)
            p = problem.guess
        return Release(np.minimum(log_probabilities(problem.matrix(p)), 0.0), permit.event)


def _estimate(problem: Problem, queries: Queries) -> FloatArray:
    """Ask all queries, and return the behaviour, (cells,), that follows from the answers."""
    p, evidence = problem.guess, Evidence(problem)
    trusts = Shape(np.ones(problem.rows), 1.0, np.zeros(0), np.zeros((problem.rows, 0)))
    bound, weight, _ = queries.size(trusts, None, VISITS[0])
    total, deviation = queries.sum(trusts, None, bound, VISITS[1])
    measured, error = total / weight, deviation / weight
    for (share, main), floor in zip(STEPS, FLOORS, strict=True):
        trust = mean_trust(problem, p, measured, error)
        shape = problem.shape(p, trust, floor)
        bound, weight, number = queries.size(shape, p, share)
        answer, deviation = queries.sum(shape, p, bound, main)
        evidence.add(shape, p, weight * trust[problem.row_of], answer, deviation**2, number)
        belief = evidence.posterior()
        p = possible(problem, belief.mean, belief.deviation)
    return choose(problem, p, belief)


# ------------------------------------------------------------------ queries
@dataclass(frozen=True, eq=False)
class Queries:
    """The only access to the participants: sizes and sums of bounded contributions, with noise."""

    fleet: Fleet
    problem: Problem
    sigma: float
    rng: np.random.Generator
    seeding: Seeding

    def size(self, shape: Shape, centre: FloatArray | None, share: float) -> tuple[float, float, float]:
        """Return the median norm of the contributions, and the number of participants with and without the clip."""
        whole = np.zeros(len(EDGES) + 1, dtype=np.int64)
        for vectors in self._contributions(shape, centre):
            whole += np.bincount(np.searchsorted(EDGES, norms(vectors)), minlength=len(whole))
        noisy, deviation = self._noisy(whole * GRID, share)
        bound = float(EDGES[min(int(np.argmax(np.cumsum(noisy) >= 0.5 * noisy.sum())), len(EDGES) - 1)])
        clear = noisy > SEEN * deviation
        kept = np.where(clear, noisy, 0.0) if clear.any() else np.maximum(noisy, 0.0)
        middle = np.append(EDGES, EDGES[-1] * math.sqrt(2.0)) / 2.0**0.25
        return bound, max(float((kept * np.minimum(1.0, bound / middle)).sum()), 1.0), max(float(kept.sum()), 1.0)

    def sum(self, shape: Shape, centre: FloatArray | None, bound: float, share: float) -> tuple[FloatArray, float]:
        """Return the sum of the contributions, each clipped to `bound`, and the standard deviation of its noise."""
        whole = np.zeros(len(shape.units), dtype=np.int64)
        for vectors in self._contributions(shape, centre):
            add_clipped(vectors, bound, whole)
        noisy, deviation = self._noisy(whole, share)
        return bound * noisy, bound * deviation

    def _noisy(self, whole: NDArray[np.int64], share: float) -> tuple[FloatArray, float]:
        """Add noise to sums of sensitivity one in multiples of 1 / GRID; also return its standard deviation."""
        deviation = self.sigma / math.sqrt(share)
        return add_noise(whole, "gaussian", deviation, self.rng, self.seeding), deviation

    def _contributions(self, shape: Shape, centre: FloatArray | None) -> Iterator[FloatArray]:
        """Yield the contributions of some participants after the other before the clip; the trusts without a centre."""
        row = self.problem.row_of
        for counts in self.problem.counts(self.fleet):
            counts = counts[counts.any(axis=1)]  # whoever saw nothing is left out of all queries
            seen = self.problem.row_sums(counts)
            trust = seen / (seen + SPREAD)
            if centre is None:
                yield trust
                continue
            apart = (counts / np.maximum(seen, 1.0)[:, row] - centre) * trust[:, row] / shape.units
            yield shaped(apart, shape.low, shape.gain, shape.vectors, np.ascontiguousarray(shape.vectors.T))


# One participant after the other, in loops without reductions across participants: what one contributes must not depend
# on who else is there, not even in the last bit, as it would in a product of matrices.
@njit(cache=True)
def shaped(x: FloatArray, low: float, gain: FloatArray, vectors: FloatArray, across: FloatArray) -> FloatArray:
    """Return low · x + V (gain · Vᵀx) of each participant, (participants, cells); `across` is Vᵀ."""
    out = low * x
    along = np.empty(len(gain))
    for i in range(len(x)):
        along[:] = 0.0
        for c in range(x.shape[1]):
            if x[i, c] != 0.0:
                for j in range(len(gain)):
                    along[j] += x[i, c] * vectors[c, j]
        for j in range(len(gain)):
            part = gain[j] * along[j]
            for c in range(x.shape[1]):
                out[i, c] += part * across[j, c]
    return out


@njit(cache=True)
def norms(vectors: FloatArray) -> FloatArray:
    """Return the norm of each participant's vector, zero if it is not finite."""
    out = np.empty(len(vectors))
    for i in range(len(vectors)):
        square = 0.0
        for c in range(vectors.shape[1]):
            square += vectors[i, c] * vectors[i, c]
        out[i] = math.sqrt(square) if math.isfinite(square) else 0.0
    return out


@njit(cache=True)
def add_clipped(vectors: FloatArray, bound: float, total: NDArray[np.int64]) -> None:
    """Add vectors over `bound`, clipped to a norm of one and cut to the grid towards zero, in multiples of 1 / GRID.

    That the norm is at most one is checked in whole numbers, so it holds to the last bit.
    """
    size = norms(vectors)
    cut = np.empty(vectors.shape[1], dtype=np.int64)
    for i in range(len(vectors)):
        if size[i] == 0.0:
            continue
        scale = min(1.0 / bound, 1.0 / size[i]) * MARGIN * GRID
        square = GRID * GRID + 1
        while square > GRID * GRID:
            square = 0
            for c in range(len(cut)):
                cut[c] = int(vectors[i, c] * scale)
                square += cut[c] * cut[c]
            scale *= MARGIN
        for c in range(len(cut)):
            total[c] += cut[c]


# ------------------------------------------------------------------ estimates
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


class Posterior(NamedTuple):
    """What is believed of the behaviour: mean, standard deviation and a root of the covariance."""

    mean: FloatArray
    deviation: FloatArray
    root: FloatArray


class Evidence:
    """What the answers so far say of the behaviour: information matrix and vector."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.matrix = problem, np.zeros((problem.size, problem.size))
        self.vector = np.zeros(problem.size)

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
        K = self.matrix + STIFF * (problem.row_of[:, None] == problem.row_of[None, :])  # rows sum to one
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
    """Make behaviour of noisy probabilities: positive where it is possible, with rows that sum to one.

    With a declared support, by the mean of a normal variate that is known to be positive; but a cell that the guess all
    but excludes keeps its posterior mean, and nothing below two standard deviations. Where every cell is drawn, cells
    that noise could have made are emptied, and the guess fills what is missing.
    """
    guess, size = problem.guess, problem.size
    high = normal_tail(1.0 / size)
    if problem.declared:
        p, made_up = positive_mean(mean, deviation), (guess < UNLIKELY) & (mean <= high * deviation)
        p = np.where(made_up, np.where(mean > STANDS_OUT * deviation, mean, 0.0), p)
    else:
        limit = np.where(guess < LEAST_GUESS, normal_tail(FALSE_JUMPS / size), high)
        p = np.where(mean > limit * deviation, mean, 0.0)
        error = np.sqrt(problem.row_sums((p > 0) * deviation**2))
        missing, empty = np.maximum(0.0, 1.0 - problem.row_sums(p) - 3.0 * error), np.where(p > 0, 0.0, guess)
        p += (missing / np.maximum(problem.row_sums(empty), 1e-300))[problem.row_of] * empty
    p = np.where((problem.row_sums(p) > 0)[problem.row_of], p, guess)
    return np.asarray(p / problem.row_sums(p)[problem.row_of])


def choose(problem: Problem, p: FloatArray, belief: Posterior) -> FloatArray:
    """Return the release, the guess or a mean: the one whose plan scores best on behaviours that are likely.

    Where a support is declared, the release in which no cell is empty is an option, too: a guess may be wrong about
    many cells together, though no single answer stands out. Not so in large problems, where small chances add up.
    """
    rng = np.random.default_rng(0)  # nothing is hidden by it: it is a function of the answers alone
    options = [p, 0.5 * p + 0.5 * problem.guess, problem.guess]
    if problem.declared and problem.size <= LARGE and (problem.guess < UNLIKELY).any():
        full = positive_mean(belief.mean, belief.deviation)
        full /= problem.row_sums(full)[problem.row_of]
        options += [full, 0.5 * p + 0.5 * full]
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
