"""The compiled step against the pure functions, enumerated paths, the solver and theory."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import TiltEnv, TiltVectorEnv, random_chain, random_model
from oracles import KINDS, MODES, C, EpisodeKey, N, Stream, T, general_model, policy_of
from scipy import stats

from dp_ensemble_env import scenarios
from dp_ensemble_env.context import Context
from dp_ensemble_env.control.policies import solve_standard
from dp_ensemble_env.envs import functional, step
from dp_ensemble_env.envs.actions import action_scale
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.reporting.score import start_values

POPULATIONS = ("mean-field", "single", 9)


def play(env: TiltEnv, policy: np.ndarray, dtype: type = np.float64, **options: object) -> float:
    """Play a policy (T, n, m) or (T, c, n, m) for an episode and return what it earns."""
    env.reset(seed=0, options=options)
    total = 0.0
    for rows in policy:
        total += env.step(env.encode_policy(rows if rows.ndim == 2 else rows[env.context], dtype=dtype))[1]
    return total


# ------------------------------------------------------------------ the exact oracle
def test_the_random_numbers_are_xoroshiro128() -> None:
    words, plain = np.array([[0, 0], [123456789, 987654321]], np.uint64), Stream(123456789, 987654321)
    for _ in range(100):
        assert step.uniform(words, 1) == plain.uniform()
    assert words[1].tolist() == [plain.a, plain.b] and (words[0] == 0).all()


def compare(
    model: EnsembleModel,
    population: str | int,
    mode: str,
    seed: int = 0,
    steps: int | None = None,
    reward: str = "points",
) -> None:
    """Follow two sub-environments through two episodes by the pure functions, fed with the same random numbers.

    Those of contexts and starts come from the seed alone: neither population nor mode nor actions change them.
    """
    envs = TiltVectorEnv(2, model, population, mode, reward=reward, infos="all")
    params, keys = functional.make(envs), [EpisodeKey(model, seed + i) for i in range(2)]
    observations, infos = envs.reset(seed=seed)
    envs.action_space.seed(seed)
    for _ in range(2):
        states = []
        for i, key in enumerate(keys):
            state, seen = functional.reset(params, key.begin())
            np.testing.assert_allclose(observations[i], seen, atol=1e-7)
            assert infos["power_kw"][i] == pytest.approx(state.shares @ model.power_kw, rel=1e-12, abs=1e-12)
            states.append(state)
        for _ in range(steps or model.horizon):
            actions = envs.action_space.sample()
            observations, rewards, terminated, _, infos = envs.step(actions)
            for i, key in enumerate(keys):
                states[i], seen, reward, done, parts = functional.step(params, states[i], np.asarray(actions[i]), key)
                assert rewards[i] == pytest.approx(float(reward), rel=1e-12, abs=1e-12)
                for name, value in parts.items():
                    assert name not in infos or infos[name][i] == pytest.approx(float(value), rel=1e-12, abs=1e-11)
                np.testing.assert_allclose(observations[i], seen, atol=1e-7)
                assert terminated[i] == done and envs.context[i] == states[i].context
                if params.loads:
                    counts = np.bincount(states[i].states, minlength=model.n_states)
                    np.testing.assert_array_equal(envs._batch.state.counts[i], counts)
                np.testing.assert_allclose(envs.occupancy[i], states[i].shares, atol=1e-12)
                np.testing.assert_array_equal(infos["occupancy"][i], model.shares_shown * envs.occupancy[i])
        if steps is not None:
            return
        observations, _, _, _, infos = envs.step(actions)  # the next episode begins


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_number_is_that_of_the_pure_functions(kind: str, population: str | int, mode: str) -> None:
    compare(general_model(kind, 1), population, mode, seed=len(kind))


@pytest.mark.parametrize("name", scenarios.BUILT_IN)
def test_some_steps_of_every_scenario(name: str) -> None:
    compare(scenarios.make(name, instance=1, split="test"), "mean-field", "tilt", steps=3)


# ------------------------------------------------------------------ not to interfere
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("population", ["mean-field", "single", 100])
def test_the_zero_action_costs_exactly_nothing(campus: EnsembleModel, population: str | int, mode: str) -> None:
    for model in (campus, general_model("everything"), general_model("target")):
        env, points = (TiltEnv(model, population, mode, infos="all", reward=one) for one in ("dollars", "points"))
        env.reset(seed=5), points.reset(seed=5)
        zero = 5 if mode == "discrete" else np.zeros(env.action_space.shape, np.float32)
        for t in range(model.horizon):
            before, w, tables = env.occupancy, env.context, model.tables()
            _, reward, _, _, info = env.step(zero)
            assert info["discomfort"] == 0.0 and reward == info["utility"] - info.get("coupling_cost", 0.0)
            assert abs(points.step(zero)[1]) < 1e-10
            if population == "mean-field":
                moved = before @ tables.behaviour[t, w] @ tables.nature[t, w]
                np.testing.assert_allclose(env.occupancy, moved, atol=1e-14)
                np.testing.assert_allclose(env.occupancy, info["default_occupancy"], atol=1e-13)
                assert info["curtailment_kw"] == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("mode", ["tilt", "policy"])
@pytest.mark.parametrize("population", POPULATIONS)
def test_what_is_forbidden_now_is_not_done_however_attractive(population: str | int, mode: str) -> None:
    """A move that the default knows at other times or in other contexts only."""
    model = general_model("everything", 2).override(nature=None, default=general_model("context", 2).default)
    for scale in (2.0, 2000.0):
        env = TiltEnv(model.override(tilt_scale=np.full(T, scale)), population, mode)
        for seed in range(20):
            env.reset(seed=seed)
            for t in range(T):
                before, default = env.occupancy, model.tables().behaviour[t, env.context]
                forbidden = (default == 0).all(axis=0)
                wish = np.where(forbidden, 1.0, -1.0) if mode == "tilt" else np.where(default == 0, 1.0, 0.1)
                _, reward, _, _, info = env.step(wish)
                assert env.occupancy[(before @ default) == 0].sum() == 0.0
                assert np.isfinite(reward) and 0 <= info["discomfort"] < 1e3


@pytest.mark.parametrize("population", POPULATIONS)
def test_tilts_of_thousands_of_nats(population: str | int) -> None:
    """Beyond 300 nats exponentials are taken row by row."""
    model = random_model(3, n=8, horizon=6).override(discomfort_penalty=0.02)
    assert action_scale(model)[0] > 2_000
    compare(model, population, "tilt", seed=1)
    compare(general_model("everything").override(tilt_scale=np.full(T, 2000.0)), population, "tilt")


# ------------------------------------------------------------------ the optimum
@pytest.mark.parametrize("kind", KINDS)
def test_the_optimal_return_is_that_of_the_solver(kind: str) -> None:
    model = general_model(kind)
    env = TiltEnv(model)
    _, info = env.reset(seed=2)
    if model.coupling is None:
        value = model.discomfort_penalty * solve_standard(model).log_desirability[0] - model.utility[0]
        at = value if model.context is None else value[info["context"]]
        assert info["optimal_return"] == pytest.approx(env.occupancy @ at, rel=1e-12)
        mean = value if model.context is None else model.context.start @ value
        assert env.optimal_return(1) == pytest.approx(mean[1])
    if model.coupling is None and model.context is None:
        for state in range(N):
            exact = env.optimal_return(state)
            assert play(env, env.optimal_policy, state=state) == pytest.approx(exact, abs=1e-9)
            assert play(env, env.optimal_policy, np.float32, state=state) == pytest.approx(exact, rel=1e-4, abs=1e-3)
    assert env.optimal_return(model.initial) == pytest.approx(start_values(model)[1], rel=1e-12)
    if model.coupling is not None:  # from another start the optimum is another
        best = start_values(model.override(initial=[4]))[1]
        assert env.reset(options={"state": 4})[1]["optimal_return"] == pytest.approx(best, rel=1e-12)


def test_the_optimum_lies_inside_the_box(campus: EnsembleModel) -> None:
    models = [random_model(seed, n=2 + seed % 9, horizon=1 + seed % 7, varying=seed % 2 == 1) for seed in range(20)]
    for model in (*models, *map(general_model, KINDS), campus.override(discomfort_penalty=0.5)):
        env = TiltEnv(model)
        policy = env.optimal_policy.reshape(model.horizon, -1, *env.optimal_policy.shape[-2:])
        for t, w in np.ndindex(policy.shape[:2]):
            action = env.encode_policy(policy[t, w], t, np.float64, w)
            assert np.abs(action).max() <= 1.0
            np.testing.assert_allclose(policy_of(model, "tilt", action, t, w), policy[t, w], atol=1e-9)


# ------------------------------------------------------------------ starts and contexts
def test_a_start_from_a_distribution(campus: EnsembleModel) -> None:
    shares = np.zeros(20)
    shares[[3, 9]] = 0.25, 0.75
    env, envs = TiltEnv(campus), TiltVectorEnv(2_000, campus, 100)
    _, info = env.reset(options={"occupancy": shares})
    np.testing.assert_array_equal(env.occupancy, shares)
    assert info["optimal_return"] == pytest.approx(env.optimal_return(shares), rel=1e-12)
    envs.reset(seed=0, options={"occupancy": shares})
    assert set(np.flatnonzero(envs.occupancy.sum(axis=0))) == {3, 9}
    assert envs.occupancy[:, 9].mean() == pytest.approx(0.75, abs=6 * np.sqrt(0.1875 / 200_000))
    np.testing.assert_allclose(envs.occupancy[:, 9].var(), 0.1875 / 100, rtol=0.2)  # each load on its own


@pytest.mark.parametrize("population", ["mean-field", 9])
def test_a_chosen_context_does_not_change_the_numbers_that_are_drawn(population: str | int) -> None:
    model = general_model("everything").override(context=Context(np.full((C, C), 1 / C)))  # each follows each
    env, paths = TiltEnv(model, population), []
    for first in (None, *range(C)):
        _, info = env.reset(seed=4, options={} if first is None else {"context": first})
        assert first is None or info["context"] == env.context == first
        assert info["optimal_return"] == pytest.approx(env.optimal_return(env.occupancy, info["context"]), rel=1e-12)
        episodes = [env._batch.state.path[0, 1:].tolist(), env._batch.state.start[0].tolist()]
        env.reset()
        paths.append([*episodes, env._batch.state.path[0].tolist(), env._batch.state.moves[0].tolist()])
    assert all(path == paths[0] for path in paths)


# ------------------------------------------------------------------ several instances
@pytest.mark.parametrize(("population", "mode"), [("mean-field", "signals"), ("single", "policy"), (9, "discrete")])
def test_each_episode_plays_the_tables_of_its_own_instance(population: str | int, mode: str) -> None:
    models = [general_model("everything", seed, power_kw=np.arange(5.0) + seed) for seed in range(3)]
    settings, names = {"reward": "points", "infos": "all"}, set()
    env = TiltEnv(models, population, mode, **settings)
    alike = [TiltEnv([model] * 3, population, mode, **settings) for model in models]  # draw rows as well

    def episode(env: TiltEnv, seed: int) -> tuple[int, list]:
        env.action_space.seed(seed)
        first = env.reset(seed=seed)
        return first[1]["instance"], [first, *(env.step(env.action_space.sample()) for _ in range(T))]

    for seed in range(12):
        name, found = episode(env, seed)
        names.add(name)
        np.testing.assert_equal(episode(alike[name], seed), (name, found))
    assert names == {0, 1, 2}


def test_instances_are_drawn_by_the_seed_and_equally_often() -> None:
    envs = TiltVectorEnv(3000, "spot", action="price", instance=None, autoreset_mode="SAME_STEP")
    drawn = envs.reset(seed=0)[1]["instance"]
    assert len(envs.models) == 20 == len(scenarios.instances("train"))
    assert stats.chisquare(np.bincount(drawn, minlength=20)).pvalue > 1e-6
    np.testing.assert_array_equal(envs.reset(seed=0)[1]["instance"], drawn)
    assert (envs.reset()[1]["instance"] != drawn).mean() > 0.9
    keys = [EpisodeKey(envs.model, seed, rows=20).begin() for seed in range(50)]
    assert [key.row for key in keys] == drawn[:50].tolist()  # the first number of the stream
    assert envs.models[drawn[7]].fingerprint == scenarios.make("spot", instance=int(drawn[7])).fingerprint
    env = TiltEnv("spot", instance=None)
    assert env.models[7] is envs.models[7]  # kept, with what was solved
    _, info = env.reset(seed=0)
    assert env.model is env.models[info["instance"]]
    assert env.optimal_return(env.occupancy, env.context) == pytest.approx(info["optimal_return"], rel=1e-12)
    with pytest.raises(ValueError, match="one instance"):
        functional.make(env)


def test_what_cannot_be_played_side_by_side_is_refused() -> None:
    with pytest.raises(ValueError, match="choose it: instance=0"):
        TiltEnv("spot", instance=None, privacy="dirichlet:k=50,floor=0.01")
    with pytest.raises(ValueError, match="equal numbers of states"):
        TiltEnv([random_model(0, n=4), random_model(1, n=5)])
    with pytest.raises(ValueError, match="leave them out"):
        TiltEnv([random_model(0)], instance=None)


# ------------------------------------------------------------------ odd models
def odd_models() -> dict[str, EnsembleModel]:
    rng = np.random.default_rng(0)
    unreachable = random_chain(rng, 5, density=1.0)
    unreachable[:, 0] = 0.0
    unreachable /= unreachable.sum(axis=1, keepdims=True)
    utility = -rng.uniform(0, 30, (5, 5))
    tiny = np.array([[1 - 1e-300, 1e-300], [1e-12, 1 - 1e-12]])
    return {
        "unreachable state": EnsembleModel(unreachable, np.arange(5.0), utility, 4.0),
        "identity": EnsembleModel(np.eye(5), np.arange(5.0), utility, 4.0),
        "n = 1": EnsembleModel(np.ones((1, 1)), [3.0], -np.ones((4, 1)), 4.0),
        "n = 200": random_model(1, n=200, horizon=3, density=0.02),
        "tiny entries": EnsembleModel(tiny, [1.0, 2.0], -rng.uniform(0, 9, (4, 2)), 1.0),
        "low penalty": random_model(4, n=9, horizon=8, density=0.1, varying=True).override(discomfort_penalty=0.05),
        "rows off by 1e-9": EnsembleModel(random_chain(rng, 4) * (1 + 5e-9), np.arange(4.0), -np.ones((4, 4)), 1.0),
    }


@pytest.mark.parametrize("mode", ["price", "tilt", "policy"])
@pytest.mark.parametrize("name", list(odd_models()))
def test_odd_models(name: str, mode: str) -> None:
    model = odd_models()[name]
    for population in ("mean-field", 30):
        compare(model, population, mode, reward="dollars")
    env, state = TiltEnv(model, action="policy"), model.n_states // 2
    within = 1e-8 if name == "rows off by 1e-9" else 1e-9  # the environment divides rows by their sums
    assert play(env, env.optimal_policy, state=state) == pytest.approx(env.optimal_return(state), rel=within, abs=1e-9)
