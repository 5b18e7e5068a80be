"""The public side of an adaptive release: cells, ties, the curvature of a plan, and the shape of a query."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import fractional_matrix_power, null_space

from dp_ensemble_env import scenarios
from dp_ensemble_env.context import Context
from dp_ensemble_env.control.policies import as_tilt, solve_standard
from dp_ensemble_env.control.returns import policy_return
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy import Fleet
from dp_ensemble_env.privacy.mechanisms import curvature
from dp_ensemble_env.privacy.mechanisms.curvature import Problem

N, M, T, C = 4, 3, 5, 2


def behaviour(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.dirichlet(np.full(shape[-1], 3.0), shape[:-1])


def small(seed: int = 0, lead: tuple[int, ...] = (), **changes) -> EnsembleModel:
    """A model with nature and contexts, everything random and public."""
    rng = np.random.default_rng(seed)
    fields = {
        "default": behaviour(rng, *lead, N, M),
        "power_kw": np.arange(N) + 1.0,
        "utility": rng.normal(size=(T + 1, C, N)),
        "discomfort_penalty": 0.7,
        "initial": behaviour(rng, N),
        "nature": behaviour(rng, T, C, M, N),
        "context": Context(behaviour(rng, C, C), ("a", "b")),
        "spread_start": True,
        "public_fields": ("levels", "utility", "penalty", "initial"),
    }
    return EnsembleModel(**{**fields, **changes})


def empty_fleet(model: EnsembleModel, classes=None) -> Fleet:
    return Fleet.from_decisions([], model.default.shape, classes=classes)


def loss(model: EnsembleModel, matrix: np.ndarray) -> float:
    """What a plan loses that is made on a matrix and deployed on the model as a tilt, exactly."""
    plan = solve_standard(model.with_default(matrix))
    return policy_return(model, solve_standard(model).policy) - policy_return(model, as_tilt(plan, model))


def zero_rows(problem: Problem, rng: np.random.Generator) -> np.ndarray:
    """A change of the cells that leaves row sums alone."""
    e = rng.normal(size=problem.size)
    return e - (problem.row_sums(e) / problem.row_sums(np.ones(problem.size)))[problem.row_of]


class TestCurvature:
    @pytest.mark.parametrize("lead", [(), (T, C), "levels"])
    def test_is_that_of_the_exact_loss(self, lead):
        rng = np.random.default_rng(1)
        if lead == "levels":
            model = EnsembleModel(behaviour(rng, N, N), np.arange(N), rng.normal(size=(T + 1, N)), 0.5)
        else:
            model = small(lead=lead)
        problem = Problem.of(model, empty_fleet(model))
        p = model.default.ravel()
        H = problem.curvature(p, damping=np.inf)
        for _ in range(3):
            e = zero_rows(problem, rng)
            step = 1e-3 / np.abs(e).max()
            both = sum(loss(model, problem.matrix(p + sign * step * e)) for sign in (1, -1)) / 2
            assert_allclose(both / step**2, 0.5 * e @ H @ e, rtol=2e-3)
        assert np.trace(problem.curvature(p, damping=1.0)) < np.trace(H)  # large ratios are damped

    def test_of_a_coupled_model_is_that_at_its_shadow_prices(self):
        model = scenarios.make("tracking")
        problem = Problem.of(model, empty_fleet(model))
        p = problem.guess
        price = solve_standard(model.with_default(problem.matrix(p))).shadow_price
        utility = model.utility.copy()
        utility[1:] -= price[:, None] * model.power_kw
        plain = Problem.of(model.override(coupling=None, utility=utility), empty_fleet(model))
        assert_allclose(problem.curvature(p), plain.curvature(p), rtol=1e-9, atol=1e-12)

    def test_of_tied_cells_adds_up_that_of_their_parts(self):
        row = np.array([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3]])
        free = small(default=row[[0, 0, 1, 1]])
        ties = np.arange(6).reshape(2, 3)[[0, 0, 1, 1]]
        tied = free.override(ties=ties)
        whole = Problem.of(free, empty_fleet(free)).curvature(free.default.ravel())
        joined = Problem.of(tied, empty_fleet(free))
        assert (joined.size, joined.rows) == (6, 2)
        J = np.eye(6)[ties.ravel()]
        assert_allclose(joined.curvature(row.ravel()), J.T @ whole @ J, rtol=1e-9, atol=1e-12)
        assert_allclose(joined.matrix(row.ravel()), free.default, rtol=1e-14)


class TestShape:
    def test_is_the_fourth_root_of_the_curvature_where_rows_sum_to_zero(self):
        model, floor = small(), 0.03
        problem = Problem.of(model, empty_fleet(model))
        p, trust = model.default.ravel(), np.array([0.9, 0.5, 0.1, 0.001])
        shape = problem.shape(p, trust, floor)
        # The same by dense linear algebra, on a basis of what rows that sum to zero can do.
        tau = np.maximum(trust, 0.002)[problem.row_of]
        root = np.sqrt(np.maximum(0.9 * p + 0.1 * problem.guess, 1e-3))
        units, scale = root * np.sqrt(tau / 30), root / np.sqrt(30 * tau)
        assert_allclose(shape.units, units)
        B = null_space(np.eye(problem.rows)[problem.row_of].T * root)
        H = B @ B.T @ (problem.curvature(p) * np.outer(scale, scale)) @ B @ B.T
        inside = B.T @ H @ B + (floor * np.trace(H) / problem.size) * np.eye(B.shape[1])
        G = fractional_matrix_power(inside, 0.25) / np.sqrt(np.trace(fractional_matrix_power(inside, 0.5)))
        ours = B.T @ (shape.low * np.eye(problem.size) + (shape.vectors * shape.gain) @ shape.vectors.T) @ B
        assert_allclose(ours, G, rtol=1e-5, atol=1e-7)

    @pytest.mark.parametrize("value", [0.0, 3.0])
    def test_flat_utilities_give_equal_weights(self, value):
        model = small(utility=np.full((T + 1, C, N), value))
        problem = Problem.of(model, empty_fleet(model))
        shape = problem.shape(model.default.ravel(), np.full(N, 0.5), 0.1)
        assert_allclose(shape.low, (problem.size - problem.rows) ** -0.5)
        assert shape.vectors.shape == (problem.size, 0)

    def test_many_cells_agree_with_few(self, monkeypatch):
        model = scenarios.make("pool-pumps")
        problem = Problem.of(model, empty_fleet(model, None))
        trust = np.full(problem.rows, 0.5)
        full = problem.shape(problem.guess, trust, 0.1)
        monkeypatch.setattr(curvature, "LARGE", 10)
        monkeypatch.setattr(curvature, "TOP", 60)
        first, again = (problem.shape(problem.guess, trust, 0.1) for _ in range(2))
        assert_array_equal(first.vectors, again.vectors)  # a fixed start vector
        dense = [s.low * np.eye(problem.size) + (s.vectors * s.gain) @ s.vectors.T for s in (full, first)]
        assert_allclose(dense[1], dense[0], atol=2e-3 * np.abs(dense[0]).max())


class TestCells:
    def test_are_those_of_the_support_and_the_ties(self):
        model = scenarios.make("tracking")
        for changes, sizes in (({"support": None}, (56 * 56, 56, False)), ({}, (112, 56, True))):
            problem = Problem.of(model.override(**changes), empty_fleet(model))
            assert (problem.size, problem.rows, problem.declared) == sizes
            assert_allclose(problem.matrix(problem.guess), model.guess)

    def test_what_cannot_be_laid_out_is_refused(self):
        ties = np.arange(12).reshape(4, 3)
        ties[1, 0] = ties[0, 0]
        for model, words in (
            (scenarios.make("campus-day").override(ties=None), "12,000 cells.*6,000 at most"),
            (small(ties=ties), "ties must join whole rows"),
            (small(public_fields=()), "levels"),
        ):
            with pytest.raises(ValueError, match=words):
                Problem.of(model, empty_fleet(model))

    def test_what_is_private_does_not_matter(self):
        model = small(public_fields=("levels", "utility", "penalty"))
        other = model.override(default=small(5).default, notes=("private",), initial=[0])
        assert Problem.of(model, empty_fleet(model)).digest == Problem.of(other, empty_fleet(other)).digest

    def test_what_is_public_does(self):
        model = small(guess=behaviour(np.random.default_rng(9), N, M))
        changes = {"utility": np.zeros((T + 1, C, N)), "discomfort_penalty": 0.8, "power_kw": np.ones(N)}
        changes |= {"initial": [0], "guess": np.full((N, M), 1 / M), "support": np.tri(N, M, dtype=bool)}
        changes |= {"nature": np.full((M, N), 1 / N), "context": Context(np.full((C, C), 0.5), ("a", "b"))}
        models = (model, *(model.override(**{name: value}) for name, value in changes.items()))
        assert len({Problem.of(one, empty_fleet(one)).digest for one in models}) == 1 + len(changes)
