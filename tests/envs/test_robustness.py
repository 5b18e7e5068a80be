"""Bad input is refused and harmless; odd models work; random ones keep the invariants."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from helpers import random_chain, random_model
from hypothesis import given
from hypothesis import strategies as st

from dp_ensemble_env.envs import ENVIRONMENTS, EnsembleEnv, EnsembleVectorEnv
from dp_ensemble_env.model import EnsembleModel

IDS = tuple(ENVIRONMENTS)
POPULATIONS = ("mean-field", "buildings", "single")
MODES = ("price", "tilt", "policy")


def spoiled(shape: tuple[int, ...], value: float, dtype: type = np.float32) -> np.ndarray:
    action = np.zeros(shape, dtype)
    action.flat[-1] = value
    return action


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("population", POPULATIONS)
def test_bad_actions_are_refused_and_change_nothing(population: str, mode: str, dtype: type) -> None:
    env, twin = EnsembleEnv(None, population, mode), EnsembleEnv(None, population, mode)
    env.reset(seed=1)
    twin.reset(seed=1)
    shape = env.action_space.shape
    index = ", ".join(str(size - 1) for size in shape)
    low = -0.01 if mode == "policy" else -1.01
    for value in (np.nan, np.inf, -np.inf, 1.01, low):
        with pytest.raises(ValueError, match=rf"action\[{index}\] is .*clip"):
            env.step(spoiled(shape, value, dtype))
    for wrong in (np.zeros(3), np.zeros((*shape, 1)), 0.5, "up", None, [["a"]], np.zeros(shape, complex)):
        with pytest.raises(ValueError, match="action"):
            env.step(wrong)
    good = np.full(shape, 0.2, dtype)
    ours, theirs = env.step(good), twin.step(good)
    np.testing.assert_array_equal(ours[0], theirs[0])
    assert ours[1:] == theirs[1:]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("population", POPULATIONS)
def test_bad_actions_in_a_batch_change_nothing(population: str, mode: str) -> None:
    envs, twins = (EnsembleVectorEnv(5, None, population, mode) for _ in range(2))
    envs.reset(seed=1)
    twins.reset(seed=1)
    shape = envs.action_space.shape
    bad = np.zeros(shape, np.float32)
    bad[3].flat[0] = np.nan
    with pytest.raises(ValueError, match=r"action\[3, 0"):
        envs.step(bad)
    with pytest.raises(ValueError, match="shape"):
        envs.step(np.zeros(shape[1:]))
    good = np.full(shape, 0.2, np.float32)
    np.testing.assert_array_equal(envs.step(good)[0], twins.step(good)[0])


def test_actions_in_any_layout_mean_the_same() -> None:
    expected = None
    base = np.random.default_rng(0).uniform(-1, 1, 20).astype(np.float32)
    frozen = base.copy()
    frozen.setflags(write=False)
    strided = np.zeros(40, np.float32)
    strided[::2] = base
    for action in (base, frozen, strided[::2], base.tolist(), base.astype(np.float64), base.astype(">f4")):
        env = EnsembleEnv()
        env.reset(seed=0)
        observation, reward, *_ = env.step(action)
        expected = expected or reward
        assert reward == expected
    env = EnsembleEnv()
    env.reset(seed=0)
    assert env.step([0] * 20)[4]["discomfort"] == 0.0


@pytest.mark.parametrize("name", IDS)
def test_stepping_past_the_end_or_before_the_start_is_refused(name: str) -> None:
    env = gymnasium.make(name).unwrapped
    zero = np.zeros(20, np.float32)
    with pytest.raises(gymnasium.error.ResetNeeded, match="reset"):
        env.step(zero)
    env.reset(seed=0)
    for _ in range(18):
        _, _, terminated, _, _ = env.step(zero)
    assert terminated
    for _ in range(2):
        with pytest.raises(gymnasium.error.ResetNeeded, match="over"):
            env.step(zero)
    env.reset()
    env.step(zero)
    envs = EnsembleVectorEnv(2, autoreset_mode="DISABLED")
    with pytest.raises(gymnasium.error.ResetNeeded, match="environment 0"):
        envs.step(np.zeros((2, 20)))
    envs.reset(seed=0)
    for _ in range(18):
        envs.step(np.zeros((2, 20)))
    with pytest.raises(gymnasium.error.ResetNeeded, match="environment 0"):
        envs.step(np.zeros((2, 20)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"state": 20}, "0 … 19"),
        ({"state": -1}, "0 … 19"),
        ({"state": 1.5}, "integer"),
        ({"state": True}, "integer"),
        ({"state": "low"}, "integer"),
        ({"occupancy": np.ones(20)}, "sum to one"),
        ({"occupancy": np.ones(3) / 3}, "20 shares"),
        ({"occupancy": np.r_[2.0, -1.0, np.zeros(18)]}, "not negative"),
        ({"occupancy": np.full(20, np.nan)}, "occupancy"),
        ({"state": 1, "occupancy": np.ones(20) / 20}, "both"),
        ([("state", 1)], "dict"),
    ],
)
def test_bad_options_are_refused_and_change_nothing(options: object, message: str) -> None:
    env, twin = EnsembleEnv(population="single"), EnsembleEnv(population="single")
    env.reset(seed=3)
    twin.reset(seed=3)
    with pytest.raises(ValueError, match=message):
        env.reset(seed=8, options=options)
    zero = np.zeros(20, np.float32)
    np.testing.assert_array_equal(env.step(zero)[0], twin.step(zero)[0])
    np.testing.assert_array_equal(env.reset()[0], twin.reset()[0])
    envs = EnsembleVectorEnv(2)
    with pytest.raises(ValueError, match="occupancy|state|dict|option"):
        envs.reset(options=options)


@pytest.mark.parametrize(
    ("options", "seed", "message"),
    [
        ({"reset_mask": np.zeros(3, bool)}, None, "reset_mask"),
        ({"reset_mask": np.ones(2, bool)}, None, "reset_mask"),
        ({"reset_mask": np.array([True, False, False])}, None, "never reset"),
        ({"state": [1, 2]}, None, "3 of them"),
        ({"occupancy": np.full((2, 20), 0.05)}, None, "one row or 3"),
        (None, [1, 2], "3 of them"),
        (None, -1, "negative"),
    ],
)
def test_bad_vector_resets_are_refused(options: dict | None, seed: object, message: str) -> None:
    envs = EnsembleVectorEnv(3)
    with pytest.raises(ValueError, match=message):
        envs.reset(seed=seed, options=options)
    envs.reset(seed=0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "campus-evnt"}, "did you mean 'campus-event'"),
        ({"model": 3}, "EnsembleModel"),
        ({"instance": -1}, "instance"),
        ({"split": "exam"}, "split"),
        ({"privacy": "dirichlet"}, "lacks k"),
        ({"privacy": "dirichlet:k=50,flor=0.1"}, "did you mean 'floor'"),
        ({"privacy": "dirichlet:k=fifty"}, "k must be"),
        ({"privacy": "diriclet:k=50"}, "did you mean 'dirichlet'"),
        ({"privacy": "public", "k": 5}, "shorthands"),
        ({"privacy": "public", "floor": 0.1}, "floor= goes with k="),
        ({"privacy": 7}, "a mechanism is written like"),
        ({"population": "meanfield"}, "did you mean 'mean-field'"),
        ({"population": 0}, "at least 1"),
        ({"population": True}, "population"),
        ({"action": "tilts"}, "did you mean 'tilt'"),
        ({"infos": "some"}, "unknown infos"),
    ],
)
def test_bad_arguments_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EnsembleEnv(**settings)
    with pytest.raises(ValueError, match=message):
        EnsembleVectorEnv(2, **settings)


def test_misspelt_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match="discomfort"):
        gymnasium.make(IDS[0], discomfort=3)
    with pytest.raises(ValueError, match="num_envs"):
        EnsembleVectorEnv(0)
    with pytest.raises(ValueError, match="autoreset_mode"):
        EnsembleVectorEnv(2, autoreset_mode="never")


# ------------------------------------------------------------------ odd models
def odd_models() -> dict[str, EnsembleModel]:
    rng = np.random.default_rng(0)
    deterministic = random_chain(rng, 5)
    deterministic[2] = np.eye(5)[4]
    unreachable = random_chain(rng, 5, density=1.0)
    unreachable[:, 0] = 0.0
    unreachable /= unreachable.sum(axis=1, keepdims=True)
    utility = -rng.uniform(0, 30, (5, 5))
    return {
        "deterministic row": EnsembleModel(deterministic, np.arange(5.0), utility, 4.0),
        "unreachable state": EnsembleModel(unreachable, np.arange(5.0), utility, 4.0),
        "identity": EnsembleModel(np.eye(5), np.arange(5.0), utility, 4.0),
        "n = 1": EnsembleModel(np.ones((1, 1)), [3.0], -np.ones((4, 1)), 4.0),
        "n = 2": random_model(0, n=2),
        "n = 500": random_model(1, n=500, horizon=3, density=0.02),
        "one wide row": EnsembleModel(
            np.vstack([np.full(40, 1 / 40), np.eye(40)[1:]]), np.arange(40.0), -rng.uniform(0, 9, (4, 40)), 4.0
        ),
        "T = 1": random_model(2, horizon=1),
        "equal utilities": EnsembleModel(random_chain(rng, 4), np.arange(4.0), np.zeros((4, 4)), 1.0),
        "tiny entries": EnsembleModel(
            np.array([[1 - 1e-300, 1e-300], [1e-12, 1 - 1e-12]]), [1.0, 2.0], -rng.uniform(0, 9, (4, 2)), 1.0
        ),
        "rows off by 1e-9": EnsembleModel(random_chain(rng, 4) * (1 + 5e-9), np.arange(4.0), -np.ones((4, 4)), 1.0),
    }


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", list(odd_models()))
def test_odd_models_keep_the_invariants(name: str, mode: str) -> None:
    model = odd_models()[name]
    if mode == "policy" and model.n_states == 500:
        model = random_model(1, n=60, horizon=3, density=0.1)
    for population in ("mean-field", 30, 1):
        drive(EnsembleEnv(model, population, mode), seed=0, episodes=2)


def test_optimum_of_odd_models() -> None:
    for name, model in odd_models().items():
        env = EnsembleEnv(model, action="policy")
        state = model.n_states // 2
        env.reset(options={"state": state})
        total = sum(
            env.step(env.encode_policy(env.optimal_policy[t], dtype=np.float64))[1] for t in range(model.horizon)
        )
        assert total == pytest.approx(env.optimal_return(state), rel=1e-9, abs=1e-9), name


def drive(env: EnsembleEnv, seed: int, episodes: int = 1) -> None:
    """Random episodes; the mean-field return can never exceed the optimum."""
    rng = np.random.default_rng(seed)
    for _ in range(episodes):
        observation, info = env.reset(seed=int(rng.integers(2**31)))
        total = 0.0
        for t in range(env.model.horizon):
            corner = rng.random() < 0.3  # extreme actions too
            action = rng.uniform(env.action_space.low, 1.0)
            action = np.where(rng.random(action.shape) < 0.5, env.action_space.low, 1.0) if corner else action
            before = env.occupancy
            observation, reward, terminated, truncated, info = env.step(action.astype(np.float32))
            total += reward
            assert observation in env.observation_space
            assert np.isfinite(reward) and info["discomfort"] >= 0.0
            assert (env.occupancy >= 0).all() and env.occupancy.sum() == pytest.approx(1.0, abs=1e-12)
            matrix = env.model.default if env.model.default.ndim == 2 else env.model.default[t]
            assert env.occupancy[(before @ matrix) == 0].sum() == 0.0  # no move the default does not know
            assert terminated == (t == env.model.horizon - 1) and truncated is False
        if env.population is None:
            slack = 1e-9 * (1 + abs(info["optimal_return"]))
            assert total <= info["optimal_return"] + slack


@given(
    seed=st.integers(0, 2**31),
    n=st.integers(2, 12),
    horizon=st.integers(1, 8),
    density=st.floats(0.05, 1.0),
    varying=st.booleans(),
    mode=st.sampled_from(MODES),
    population=st.sampled_from(("mean-field", 17, "single")),
    penalty=st.sampled_from((0.05, 1.0, 15.0, 1e4)),
)
def test_random_models_through_random_actions(
    seed: int, n: int, horizon: int, density: float, varying: bool, mode: str, population: str | int, penalty: float
) -> None:
    model = random_model(seed, n, horizon, density, varying).override(discomfort_penalty=penalty)
    drive(EnsembleEnv(model, population, mode), seed)


@given(seed=st.integers(0, 2**31), k=st.floats(0.5, 500.0), mode=st.sampled_from(MODES))
def test_random_releases_through_random_actions(seed: int, k: float, mode: str) -> None:
    drive(EnsembleEnv(random_model(seed), "mean-field", mode, k=k, release_seed=seed % 1000), seed)


@pytest.mark.parametrize("population", [2, 100, 3000])
def test_average_return_of_finite_populations_never_beats_the_optimum(population: int) -> None:
    for seed in range(5):
        model = random_model(seed)
        envs = EnsembleVectorEnv(2000, model, population)
        envs.reset(seed=seed, options={"state": 0})
        rng = np.random.default_rng(seed)
        total = np.zeros(2000)
        for _ in range(model.horizon):
            action = np.broadcast_to(rng.uniform(-1, 1, 6), (2000, 6)).copy()
            total += envs.step(action)[1]
        assert total.mean() <= envs.optimal_return(0) + 6 * total.std() / np.sqrt(2000)


@pytest.mark.parametrize("population", ["single", "buildings", "mean-field"])
def test_entries_of_a_policy_below_the_range_of_exponentials(population):
    """A probability of 1e-320 is as good as zero in every population, and the discomfort is that of the rest."""
    model = EnsembleModel(np.tile([0.5, 0.3, 0.2], (3, 1)), [1.0, 2.0, 3.0], np.zeros((2, 3)), 1.0)
    env = EnsembleEnv(model, population, "policy")
    seen = np.zeros(3)
    for seed in range(50):
        env.reset(seed=seed)
        _, _, _, _, info = env.step(np.tile([0.5, 0.5, 1e-320], (3, 1)))
        seen += env.occupancy
        assert info["discomfort"] == pytest.approx(0.5 * np.log(0.5 / 0.3), rel=1e-9)
    assert seen[2] < 1e-300 and (seen[:2] > 10).all()
