"""Action modes of one's own: a basis of tilts that may depend on time and context."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from helpers import TiltEnv, TiltVectorEnv
from oracles import C, M, T, divergences, general_model, tilted

from dp_ensemble_env.envs import actions
from dp_ensemble_env.model import EnsembleModel

#: Two directions for each decision, at each time, in each context.
BASES = np.random.default_rng(6).uniform(-2, 2, (T, C, 2, M))
SHAPES = {"(d, m)": BASES[0, 0], "(T, d, m)": BASES[:, 0], "(T, c, d, m)": BASES, "(1, c, d, m)": BASES[:1]}


@pytest.fixture
def register() -> Iterator[Callable[[str, actions.Basis], None]]:
    """Register modes for one test."""
    made: list[str] = []

    def add(name: str, basis: actions.Basis) -> None:
        actions.register(name, basis)
        made.append(name)

    yield add
    for name in made:
        actions.remove(name)


def at(basis: np.ndarray, t: int, w: int) -> np.ndarray:
    """The basis (d, m) in force, by hand."""
    if basis.ndim == 2:
        return basis
    return basis[t] if basis.ndim == 3 else basis[t if len(basis) > 1 else 0, w]


@pytest.mark.parametrize("population", ["mean-field", "single", 9])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_basis_moves_the_ensemble_as_tilts_computed_by_hand_do(shape, population, register) -> None:
    basis, model = SHAPES[shape], general_model("everything", 2)
    register("mine", lambda model: basis)
    env = TiltEnv(model, population, "mine")
    assert env.action_space.shape == (2,)
    tables, by_hand = model.tables(), TiltEnv(model, population, "policy")
    env.reset(seed=5), by_hand.reset(seed=5)
    for t, action in enumerate(np.random.default_rng(1).uniform(-1, 1, (T, 2))):
        before, w = env.occupancy, env.context
        policy = tilted(tables.behaviour[t, w], action @ at(basis, t, w))
        _, reward, _, _, info = env.step(action)
        _, expected, _, _, _ = by_hand.step(policy)
        np.testing.assert_allclose(env.occupancy, by_hand.occupancy, atol=1e-12)
        assert reward == pytest.approx(expected, rel=1e-11, abs=1e-11)
        nats = before @ divergences(policy, tables.behaviour[t, w])
        assert info["discomfort"] == pytest.approx(model.discomfort_penalty * nats, abs=1e-11)
        again = env.encode_policy(policy, t, np.float64, w)
        np.testing.assert_allclose(tilted(tables.behaviour[t, w], again @ at(basis, t, w)), policy, atol=1e-7)
    env.reset(seed=5)
    assert env.step(np.zeros(2))[4]["discomfort"] == 0.0


def test_tilts_and_actions_are_inverse(register) -> None:
    model = general_model("everything")
    register("mine", lambda model: BASES)
    for name in ("price", "tilt", "mine"):
        mode = actions.mode(name)
        (size,) = mode.shape(model)
        numbers = np.random.default_rng(0).uniform(-1, 1, (T, C, size))
        found = actions.tilts_of(mode, model, numbers)
        assert found.shape == (T, C, M)
        np.testing.assert_allclose(actions.actions_of(mode, model, found), numbers, atol=1e-10)
    prices = np.random.default_rng(1).uniform(-1, 1, (T, C))
    by_hand = -prices[..., None] * actions.action_scale(model)[:, None, None] * actions.power_direction(model)
    np.testing.assert_allclose(actions.price_tilts(model, prices), by_hand, rtol=1e-12)
    np.testing.assert_array_equal(actions.DISCRETE.choices, np.linspace(-1, 1, 11))
    assert actions.DISCRETE.choices[5] == 0.0 and actions.nearest_choice(actions.DISCRETE, [0.31]).tolist() == [7]


def test_what_is_no_basis_is_refused(register) -> None:
    model = general_model("everything")
    with pytest.raises(ValueError, match="basis must be a function of the model"):
        actions.register("wrong", BASES)
    for shape in ((M,), (2, M + 1), (T + 1, 2, M), (T, C + 1, 2, M), (0, M)):
        name = "wrong-" + "x".join(map(str, shape))
        register(name, lambda model, shape=shape: np.ones(shape))
        with pytest.raises(ValueError, match="basis"):
            TiltEnv(model, action=name)
    register("wrong", lambda model: np.full((2, M), np.nan))
    with pytest.raises(ValueError, match="basis"):
        TiltVectorEnv(2, model, action="wrong")


def test_the_scale_covers_what_is_at_stake(campus: EnsembleModel) -> None:
    stake = np.ptp(campus.utility, axis=1)[1:]
    expected = [stake[t:].sum() / (2 * campus.discomfort_penalty) for t in range(18)]
    np.testing.assert_allclose(actions.action_scale(campus), expected, rtol=1e-12)
    narrow = campus.override(tilt_scale=np.full(18, 0.01))
    assert (actions.action_scale(narrow) == 0.01).all()
    env = TiltEnv(narrow)
    with pytest.raises(ValueError, match="times wider than the action box"):
        env.encode_policy(env.optimal_policy[0], 0)
