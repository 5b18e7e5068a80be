"""The single environment: observations, infos, seeds, refusals, copies; and its manual, the class docstring."""

from __future__ import annotations

import dataclasses
import inspect
import re

import numpy as np
import pytest
from helpers import TiltEnv, TiltVectorEnv, random_model
from oracles import KINDS, M, N, T, general_model, policy_of

from dp_ensemble_env.context import Context
from dp_ensemble_env.envs import EnsembleEnv, EnsembleVectorEnv, view
from dp_ensemble_env.envs.settings import EnvSettings, Options
from dp_ensemble_env.envs.tables import AHEAD, layout_of, observed_price
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.scenarios.depot import depot
from dp_ensemble_env.scenarios.front import front

#: How far outside the box float32 rounding goes.
EDGE = np.nextafter(np.float32(1), np.float32(2))


def same(left: tuple, right: tuple) -> None:
    np.testing.assert_array_equal(left[0], right[0])
    assert left[1:] == right[1:]


def twins(model: EnsembleModel | str, *args: object, **settings: object) -> tuple[TiltEnv, TiltEnv]:
    pair = TiltEnv(model, *args, **settings), TiltEnv(model, *args, **settings)
    for env in pair:
        env.reset(seed=1)
    return pair


# ------------------------------------------------------------------ observations and infos
@pytest.mark.parametrize("ahead", [AHEAD, 2, 0])
def test_observations_hold_time_and_prices(campus: EnsembleModel, ahead: int) -> None:
    env = TiltEnv(campus, ahead=ahead)
    observation, _ = env.reset(seed=0)
    price = campus.event.price / campus.event.price.max()
    for t in range(campus.horizon + 1):
        assert observation[20] == np.float32((18 - t) / 18)
        shown = [price[min(t + j, 18)] for j in range(1, ahead + 1)]
        np.testing.assert_array_equal(observation[21:], np.array(shown, np.float32))
        assert env.layout.time(observation) == min(t, 17) and env.layout.states(len(observation)) == 20
        if t < campus.horizon:
            observation, _, terminated, truncated, info = env.step(np.zeros(20, np.float32))
            assert terminated == (t == 17) and truncated is False and info["time"] == t + 1
    np.testing.assert_allclose(observed_price(campus.override(event=None)), campus.event.price, rtol=1e-9)


def test_observations_show_expected_prices_and_features() -> None:
    model = general_model("everything", 3)
    features = np.array([[0.0, 0.5], [0.25, 0.5], [0.25, 1.0]])
    model = model.override(context=Context(model.context.transition, features=features))
    env = TiltEnv(model, action="price")
    assert env.observation_space.shape == (N + 7,)
    centred = model.power_kw - model.power_kw.mean()
    price = -(model.utility @ centred) / (centred @ centred) / model.step_hours
    price = (price - min(price.min(), 0)) / (max(price.max(), 0) - min(price.min(), 0))
    moves, path = model.context.transition, []
    observation, info = env.reset(seed=8)
    for t in range(T + 1):
        w = info["context"]
        path.append(w)
        shown, chance = [], np.eye(3)[w]
        for u in range(t, t + 4):  # the last price is repeated
            chance = chance @ moves[u] if u < T else chance
            shown.append(chance @ price[min(u + 1, T)])
        np.testing.assert_allclose(observation[N:], [(T - t) / T, *shown, *features[w]], atol=1e-6)
        assert layout_of(model).context(observation) == w and layout_of(model).time(observation) == min(t, T - 1)
        if t < T:
            observation, _, _, _, info = env.step(env.action_space.sample())
    assert len(set(path)) > 1
    coupled = general_model("limit")  # shows the level in the place of the price
    level = np.clip(coupled.coupling.level / coupled.power_kw.max(), 0, 1)
    np.testing.assert_allclose(TiltEnv(coupled).reset()[0][N:], [1.0, *level[1:5]], atol=1e-7)


@pytest.mark.parametrize("infos", ["basic", "all"])
@pytest.mark.parametrize("kind", KINDS)
def test_info_keys_are_the_same_at_reset_and_step(kind: str, infos: str) -> None:
    model = general_model(kind)
    env = TiltEnv(model, infos=infos)
    basic = ["time", "utility", "discomfort", "power_kw", "optimal_return", "optimal_points"]
    more = ["context"] * (model.context is not None) + ["cost", "coupling_cost"] * (model.coupling is not None)
    every = ["occupancy", "default_occupancy", "curtailment_kw"] * (infos == "all")
    found = [env.reset(seed=0)[1], *(env.step(env.action_space.sample())[4] for _ in range(T))]
    for info in found:
        assert list(info) == basic + more + every
        assert all(type(value) in (int, float, np.ndarray) for value in info.values())
    assert found[0]["utility"] == found[0]["discomfort"] == 0.0


def test_the_parts_in_info_are_the_reward_in_dollars_under_either_reward(campus: EnsembleModel) -> None:
    for model in (campus, general_model("everything"), general_model("target"), general_model("limit")):
        dollars, points = TiltEnv(model), TiltEnv(model, reward="points")
        dollars.reset(seed=0), points.reset(seed=0)
        for _ in range(T):
            action = dollars.action_space.sample()
            one, two = dollars.step(action), points.step(action)
            parts = one[4]
            assert one[1] == parts["utility"] - parts.get("coupling_cost", 0.0) - parts["discomfort"]
            assert one[4] == two[4] and one[1] != two[1]


# ------------------------------------------------------------------ seeds
def test_seeds_fix_the_episode(campus: EnsembleModel) -> None:
    env = TiltEnv(campus, "single")

    def episode(seed: int | None) -> list[float]:
        env.reset(seed=seed)
        return [env.step(np.zeros(20, np.float32))[1] for _ in range(18)]

    first, later = episode(7), episode(None)
    assert episode(7) == first and episode(None) == later
    assert episode(8) != first
    env.np_random = np.random.default_rng(5)  # a replaced generator reseeds the stream
    replaced = episode(None)
    env.np_random = np.random.default_rng(5)
    assert episode(None) == replaced


# ------------------------------------------------------------------ actions
@pytest.mark.parametrize("mode", ["price", "tilt", "policy"])
@pytest.mark.parametrize("population", ["mean-field", 100])
def test_actions_outside_the_box_are_clipped_with_one_warning(population: str | int, mode: str) -> None:
    env, twin = twins(general_model("everything"), population, mode)
    shape, low = env.action_space.shape, float(env.action_space.low.flat[0])
    edge = np.where(np.random.default_rng(0).random(shape) < 0.5, low, 1.0)
    rounding = edge + np.where(edge == 1.0, EDGE - 1, 1 - EDGE)
    same(env.step(rounding), twin.step(edge))  # rounding is put on the edge, silently
    with pytest.warns(UserWarning, match=rf"actions lie in \[{low:g}, 1\]; those outside are clipped") as caught:
        for outside in (1e-5, 0.5, np.inf):
            far = edge + np.where(edge == 1.0, outside, -outside)
            before = far.copy()
            same(env.step(far), twin.step(edge))
            np.testing.assert_array_equal(far, before)  # the caller's array is left alone
    assert len(caught) == 1


def test_actions_of_any_layout_mean_the_same_and_keep_their_digits() -> None:
    base = np.random.default_rng(0).uniform(-1, 1, M).astype(np.float32)
    frozen, strided = base.copy(), np.zeros(2 * M, np.float32)
    frozen.setflags(write=False)
    strided[::2] = base
    rewards = []
    for action in (base, frozen, strided[::2], base.tolist(), base.astype(np.float64), base.astype(">f4")):
        env = TiltEnv(general_model("everything"))
        env.reset(seed=0)
        rewards.append(env.step(action)[1])
    assert len(set(rewards)) == 1
    env.reset(seed=0)
    model, action = env.model, base + 1e-12  # float64 is taken as it is, not rounded to float32
    before, w = env.occupancy, env.context
    env.step(action)
    moved = before @ policy_of(model, "tilt", action, 0, w) @ model.tables().nature[0, w]
    np.testing.assert_allclose(env.occupancy, moved, rtol=0, atol=1e-15)


def test_what_is_no_number_of_a_choice_is_refused() -> None:
    env = TiltEnv(general_model("everything"), action="discrete")
    env.reset(seed=1)
    for wrong in (11, -1, 0.5, np.array([3]), np.array([0.3], np.float32), None, "5"):
        with pytest.raises(ValueError, match="discrete action"):
            env.step(wrong)


# ------------------------------------------------------------------ encoding
def test_encode_policy_of_a_price_and_refusals(campus: EnsembleModel) -> None:
    rng = np.random.default_rng(1)
    tilts, prices = TiltEnv(campus), TiltEnv(campus, action="price")
    assert prices.encode_policy(policy_of(campus, "price", [0.37], 2), 2, np.float64) == pytest.approx([0.37], rel=1e-9)
    other = campus.default * rng.gamma(1.0, size=(20, 20))
    other /= other.sum(axis=1, keepdims=True)
    for env in (tilts, prices):
        with pytest.raises(ValueError, match="action='policy'"):
            env.encode_policy(other, 0)
    np.testing.assert_array_equal(TiltEnv(campus, action="policy").encode_policy(other, 0, np.float64), other)
    with pytest.raises(ValueError, match="past the last decision"):
        tilts.encode_policy(campus.default, 18)
    with pytest.raises(ValueError, match="never do"):
        tilts.encode_policy(np.eye(20)[::-1], 0)
    with pytest.raises(ValueError, match="name one"):
        TiltVectorEnv(2, general_model("everything")).encode_policy(np.full((N, M), 1 / M), 0)


# ------------------------------------------------------------------ arguments and options
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"state": 5}, "0 … 4"),
        ({"state": True}, "integer"),
        ({"context": 3}, r"context must be an integer in 0 … 2 \(context 0, context 1, context 2\)"),
        ({"occupancy": np.ones(5)}, "sum to one"),
        ({"occupancy": np.ones(3) / 3}, "5 shares"),
        ({"occupancy": np.r_[2.0, -1.0, np.zeros(3)]}, "not negative"),
        ({"occupancy": np.full(5, np.nan)}, "occupancy"),
        ({"state": 1, "occupancy": np.ones(5) / 5}, "both"),
        ([("state", 1)], "dict"),
    ],
)
def test_bad_options_are_refused_and_change_nothing(options: object, message: str) -> None:
    env, twin = twins(general_model("everything"), "single")
    with pytest.raises(ValueError, match=message):
        env.reset(seed=8, options=options)
    same(env.step(np.zeros(M)), twin.step(np.zeros(M)))
    same(env.reset(), twin.reset())
    with pytest.raises(ValueError, match=message):
        TiltVectorEnv(2, general_model("everything")).reset(options=options)


def test_unknown_options_are_ignored_and_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "_IGNORED", set())
    model = random_model(0)
    envs = [TiltEnv(model), TiltVectorEnv(2, model)]
    expected = [env.reset(seed=3, options={"state": 4})[0] for env in envs]
    with pytest.warns(UserWarning, match="ignores the option 'difficulty'; it knows state, occupancy, context") as seen:
        for env, observation in zip(envs, expected, strict=True):
            np.testing.assert_array_equal(env.reset(options={"difficulty": 2, "state": 4})[0], observation)
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "campus-evnt"}, "did you mean 'campus-event'"),
        ({"scenario": "spot"}, "use another id, or EnsembleEnv"),
        ({"privacy": "diriclet:k=50"}, "did you mean 'dirichlet'"),
        ({"population": "meanfield"}, "did you mean 'mean-field'"),
        ({"population": 0}, "at least 1"),
        ({"reward": "nats"}, "unknown reward 'nats'"),
        ({"render_mode": "rgb_arrray"}, "did you mean 'rgb_array'"),
    ],
)
def test_bad_arguments_are_refused(settings: dict, message: str) -> None:
    for make in (TiltEnv, lambda **more: TiltVectorEnv(2, **more)):
        with pytest.raises(ValueError, match=message):
            make(**{"model": "campus-event", **settings})


# ------------------------------------------------------------------ contexts that are shown in part
def _hidden_pair(name):
    """A model, and two paths of contexts that look the same throughout: they differ in what is hidden."""
    if name == "front":  # the second has heard one bulletin more that said that the storm comes
        path = np.array([3 * j + y for j, y in ((0, 0), (1, 1), (1, 0), (2, 1), (2, 0), (2, 0))])
        return front(0), path, path + np.where(np.arange(6) > 0, 3, 0)
    path = np.array([0, 30, 30, 30])  # the first wave was small, or (once it has arrived) large
    return depot(0), path, path + np.array([0, 0, 1, 1])


@pytest.mark.parametrize("population", ["mean-field", 30])
@pytest.mark.parametrize("name", ["front", "depot"])
def test_what_is_hidden_of_the_context_is_hidden_everywhere(name, population):
    model, *paths = _hidden_pair(name)
    for mode in ("signals", "policy"):
        seen = []
        for path in paths:
            env = EnsembleEnv(model, population, mode, reward="dollars", infos="all", render_mode="ansi")
            env.action_space.seed(1)
            shown = [env.reset(seed=3, options={"context": int(path[0])})]
            env._batch.state.path[0, : len(path)] = path
            pictures = [env.render()]
            for _ in path[1:]:
                shown.append(env.step(env.action_space.sample()))
                pictures.append(env.render())
            assert env.context == path[-1]  # the simulator knows
            assert not any(word in pictures[-1] for word in model.context.names if word not in model.context.signs)
            frame = env.scene()
            seen.append((shown, pictures, frame.price, frame.default_power_kw, frame.runs(), str(env.spec)))
        assert paths[0][-1] != paths[1][-1]
        np.testing.assert_equal(seen[0], seen[1])


def test_a_model_that_hides_its_shares_hides_them_in_infos_too():
    observation, info = EnsembleEnv(front(0), infos="all").reset(seed=0)
    assert not any(shares.any() for shares in (info["occupancy"], info["default_occupancy"], observation[:13]))
    vector = EnsembleVectorEnv(2, front(0), autoreset_mode="Disabled")
    for options in (None, {"reset_mask": np.array([True, False])}):
        assert not vector.reset(seed=0, options=options)[0][:, :13].any()


# ------------------------------------------------------------------ the manual
MANUAL = inspect.getdoc(EnsembleEnv)


def section(title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", MANUAL, re.M | re.S)
    assert found, f"the manual has no section {title}"
    return found.group(1)


def table(title: str, header: str) -> list[list[str]]:
    """Rows of the table of a section whose first column is headed `header`."""
    rows, inside = [], False
    for line in section(title).splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        if cells and cells[0] == header:
            inside = True
        elif not cells:
            inside = False
        elif inside and not set(cells[0]) <= set("-"):
            rows.append(cells)
    assert rows
    return rows


def test_documented_info_keys_and_types_are_the_real_ones() -> None:
    documented = {row[0].strip("`"): row[1] for row in table("Rewards", "key")}
    env = EnsembleEnv("campus-event")
    for info in (env.reset()[1], env.step(np.zeros(20))[4]):
        assert {key: type(value).__name__ for key, value in info.items()} == documented
    more = {"occupancy", "default_occupancy", "curtailment_kw"}
    assert all(f"`{name}`" in section("Rewards") for name in (*more, "context", "cost", "coupling_cost", "instance"))
    assert set(EnsembleEnv("campus-event", infos="all").reset()[1]) == {*documented, *more}


@pytest.mark.parametrize("cls", [EnsembleEnv, EnsembleVectorEnv])
def test_documented_arguments_and_defaults_are_the_real_ones(cls: type) -> None:
    documented = {row[0].strip("`"): row[1].strip("`") for row in table("Arguments", "argument")}
    actual = {
        name: repr(parameter.default).replace("'", '"')
        for name, parameter in inspect.signature(cls.__init__).parameters.items()
        if name not in ("self", "num_envs", "autoreset_mode", "max_episode_steps", "options")
    }
    assert {name: default for name, default in documented.items() if name in actual} == actual
    assert set(documented) - set(actual) == set(Options.__annotations__)
    others = {name: eval(documented[name]) for name in Options.__annotations__}  # noqa: S307 - our own docstring
    given, left_out = EnvSettings.of("spot", **others), EnvSettings.of("spot")
    assert given.models[0].fingerprint == left_out.models[0].fingerprint
    assert dataclasses.replace(given, models=left_out.models).__dict__ == left_out.__dict__
    for name in ("num_envs", "autoreset_mode"):
        assert name in inspect.getdoc(EnsembleVectorEnv)


def test_example_of_the_manual_runs(capsys: pytest.CaptureFixture[str]) -> None:
    code = re.search(r"```python\n(.*?)```", section("Arguments"), re.S).group(1)
    exec(code, {})  # noqa: S102 - our own docstring
    total, optimal = map(float, capsys.readouterr().out.split())
    assert total == pytest.approx(optimal, rel=1e-4)
