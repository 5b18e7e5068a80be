"""The native vector environment against single environments and Gymnasium's vectorisers."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from helpers import TiltEnv, TiltVectorEnv, random_model
from oracles import MODES, M, T, general_model

from dp_ensemble_env.model import EnsembleModel

POPULATIONS = ("mean-field", 40)
PRIVATE = {"privacy": "dirichlet:k=30", "redraw": "episode"}


def side_by_side(
    model: EnsembleModel | list[EnsembleModel], *args: object, autoreset: AutoresetMode, **settings: object
) -> None:
    """Compare the batch, bit for bit, with single environments that Gymnasium vectorises."""
    ours = TiltVectorEnv(3, model, *args, autoreset_mode=autoreset, **settings)
    theirs = SyncVectorEnv([lambda: TiltEnv(model, *args, **settings)] * 3, autoreset_mode=autoreset)
    assert ours.metadata["autoreset_mode"] is autoreset and ours.autoreset_mode is autoreset
    compare(ours.reset(seed=2), theirs.reset(seed=2))
    ours.action_space.seed(0)
    for _ in range(2 * T + 3):
        action = ours.action_space.sample()
        left, right = ours.step(action), theirs.step(action)
        compare(left, right)
        if autoreset is AutoresetMode.DISABLED and left[2].all():
            compare(ours.reset(), theirs.reset())


@pytest.mark.parametrize("settings", [{"infos": "all", "reward": "points"}, PRIVATE], ids=["true", "redrawn"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize("kind", ["plain", "everything", "target"])
def test_rows_equal_single_environments(kind: str, population: str | int, mode: str, settings: dict) -> None:
    if kind == "target" and settings is PRIVATE:
        settings = {"privacy": "dirichlet:k=30"}  # solving a coupled model for each release takes long
    side_by_side(general_model(kind), population, mode, autoreset=AutoresetMode.NEXT_STEP, **settings)


@pytest.mark.parametrize("settings", [PRIVATE, {"infos": "all"}], ids=["redrawn", "true"])
@pytest.mark.parametrize("autoreset", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_autoreset_modes_equal_the_synchronous_vectoriser(autoreset: AutoresetMode, settings: dict) -> None:
    """Observations, rewards, ends, infos with their masks, final_obs and final_info, as Gymnasium has them."""
    model = general_model("everything")
    side_by_side(
        model if "privacy" in settings else [model, general_model("everything", 1)], 40, autoreset=autoreset, **settings
    )


def compare(left: tuple, right: tuple) -> None:
    for ours, theirs in zip(left[:-1], right[:-1], strict=True):
        np.testing.assert_array_equal(ours, theirs)
    compare_infos(left[-1], right[-1])


def compare_infos(ours: dict, theirs: dict) -> None:
    assert set(ours) == set(theirs)
    for key, value in theirs.items():
        if isinstance(value, dict):
            compare_infos(ours[key], value)
        elif key == "final_obs":
            for i in np.flatnonzero(theirs["_final_obs"]):
                np.testing.assert_array_equal(ours[key][i], value[i])
        else:
            np.testing.assert_array_equal(ours[key], value, err_msg=key)


@pytest.mark.parametrize("population", POPULATIONS)
def test_some_are_reset_and_others_go_on(population: str | int) -> None:
    """Out of step with each other, the sub-environments still equal single ones."""
    model = general_model("everything")
    envs = TiltVectorEnv(3, model, population, autoreset_mode="DISABLED", render_mode="ansi")
    singles = [TiltEnv(model, population, render_mode="ansi") for _ in range(3)]
    envs.reset(seed=0)
    for i, single in enumerate(singles):
        single.reset(seed=i)
    rng = np.random.default_rng(1)
    for t in range(6):
        action = rng.uniform(-1, 1, (3, M)).astype(np.float32)
        observations, rewards, _, _, _ = envs.step(action)
        for i, single in enumerate(singles):
            observation, reward, _, _, _ = single.step(action[i])
            np.testing.assert_array_equal(observations[i], observation)
            assert rewards[i] == reward
        if t in (1, 3):
            mask = np.array([t == 3, True, False])
            before, given = observations.copy(), mask.copy()
            observations, infos = envs.reset(options={"reset_mask": given})
            given[:] = False  # infos have a mask of their own
            assert all((infos[key] == mask).all() for key in infos if key.startswith("_"))
            np.testing.assert_array_equal(observations[2], before[2])
            for i in np.flatnonzero(mask):
                np.testing.assert_array_equal(observations[i], singles[i].reset()[0])
        assert envs.render() == tuple(single.render() for single in singles)  # those that go on keep their past


def test_options_and_seeds_of_each_sub_environment() -> None:
    model = general_model("everything")
    envs = TiltVectorEnv(3, model)
    envs.reset(options={"state": [4, 0, 2]})
    np.testing.assert_array_equal(envs.occupancy.argmax(axis=1), [4, 0, 2])
    shares = np.random.default_rng(0).dirichlet(np.ones(5), 3)
    _, infos = envs.reset(options={"occupancy": shares, "context": [2, 0, 1]})
    np.testing.assert_allclose(envs.occupancy, shares, atol=1e-15)
    assert infos["context"].tolist() == envs.context.tolist() == [2, 0, 1]
    expected = [envs.optimal_return(row, w) for row, w in zip(shares, (2, 0, 1), strict=True)]
    np.testing.assert_allclose(infos["optimal_return"], expected, rtol=1e-12)
    one = envs.reset(seed=[7, None, 3])[0]
    np.testing.assert_array_equal(one[0], TiltEnv(model).reset(seed=7)[0])
    np.testing.assert_array_equal(one[2], TiltEnv(model).reset(seed=3)[0])


@pytest.mark.parametrize(
    ("options", "seed", "message"),
    [
        ({"reset_mask": np.zeros(3, bool)}, None, "reset_mask"),
        ({"reset_mask": np.array([True, False, False])}, None, "never reset"),
        ({"state": [1, 2]}, None, "once or 3 times"),
        ({"occupancy": np.full((2, 6), 1 / 6)}, None, "once or 3 times"),
        (None, [1, 2], "3 of them"),
        *((None, seed, "seed must be an integer") for seed in (-1, "ab", [1.7, 2, 3])),
    ],
)
def test_bad_resets_are_refused(options: dict | None, seed: object, message: str) -> None:
    envs = TiltVectorEnv(3, random_model(0))
    with pytest.raises(ValueError, match=message):
        envs.reset(seed=seed, options=options)
    envs.reset(seed=0)


@pytest.mark.parametrize("redraw", ["never", "episode"])
@pytest.mark.parametrize("autoreset", list(AutoresetMode))
@pytest.mark.parametrize("population", POPULATIONS)
def test_bad_actions_are_refused_and_change_nothing(
    population: str | int, autoreset: AutoresetMode, redraw: str
) -> None:
    settings = {} if redraw == "never" else PRIVATE
    envs, twin = (TiltVectorEnv(3, random_model(0), population, autoreset_mode=autoreset, **settings) for _ in range(2))
    single = TiltEnv(random_model(0), population, **settings)
    with pytest.raises(gymnasium.error.ResetNeeded, match="reset"):
        single.step(np.zeros(6))
    with pytest.raises(gymnasium.error.ResetNeeded, match="environment 0"):
        envs.step(np.zeros((3, 6)))
    envs.reset(seed=0), twin.reset(seed=0)
    for _ in range(4):  # the next step is the last of the episode
        envs.step(np.zeros((3, 6))), twin.step(np.zeros((3, 6)))
    charged, bad = envs.ledger.releases, np.zeros((3, 6), np.float32)
    bad[2, 4] = np.nan
    with pytest.raises(ValueError, match=r"action\[2, 4\] is NaN"):
        envs.step(bad)
    for wrong in (np.zeros(6), np.zeros((3, 6, 1)), 0.5, "up", None, [["a"]], np.zeros((3, 6), complex)):
        with pytest.raises(ValueError, match="action"):
            envs.step(wrong)
    assert envs.ledger.releases == charged
    good = np.full((3, 6), 0.2)
    compare(envs.step(good), twin.step(good))
    if autoreset is AutoresetMode.DISABLED:
        with pytest.raises(gymnasium.error.ResetNeeded, match="environment 0"):
            envs.step(good)


def test_a_restarting_environment_ignores_its_action() -> None:
    envs, twin = (TiltVectorEnv(2, random_model(0), autoreset_mode="NEXT_STEP") for _ in range(2))
    for one in (envs, twin):
        one.reset(seed=0)
        one.step(np.zeros((2, 6)))
        one.reset(options={"reset_mask": np.array([False, True])})
        for _ in range(4):
            _, _, terminated, _, _ = one.step(np.zeros((2, 6)))
    assert terminated.tolist() == [True, False]
    actions = np.full((2, 6), 0.1)
    spoiled = actions.copy()
    spoiled[0] = np.nan
    compare(envs.step(spoiled), twin.step(actions))
    with pytest.raises(ValueError, match=r"action\[0, 0\] is NaN"):
        envs.step(spoiled)


def test_returned_arrays_are_not_reused() -> None:
    for mode in AutoresetMode:
        envs = TiltVectorEnv(4, random_model(0), autoreset_mode=mode, infos="all")
        found = [envs.reset(seed=0), *(envs.step(np.zeros((4, 6), np.float32)) for _ in range(5))]
        for a, b in zip(found, found[1:], strict=False):
            assert not np.shares_memory(a[0], b[0])
            assert not any(np.shares_memory(a[-1][key], b[-1][key]) for key in a[-1] if not key.startswith("_"))
        for a, b in zip(found[1:], found[2:], strict=False):
            assert not any(np.shares_memory(a[k], b[k]) for k in (1, 2, 3))


def test_uncontrolled_power_is_expected_in_the_contexts_that_came_up() -> None:
    model = general_model("everything")
    envs = TiltVectorEnv(2, model, "single", infos="all")
    envs.reset(seed=0)
    _, _, _, _, infos = envs.step(np.full((2, M), 0.5))
    tables, moves = model.tables(), model.context.transition
    for i in range(2):
        path = envs._batch.state.path[i]
        shares = envs._batch.state.start[i] @ tables.behaviour[0, path[0]] @ tables.nature[0, path[0]]
        np.testing.assert_allclose(envs.default_occupancy[i], shares, atol=1e-14)
        saved = (shares - envs.occupancy[i]) @ model.power_kw
        assert infos["curtailment_kw"][i] == pytest.approx(saved, rel=1e-9) and saved != 0.0
        ahead = sum(
            moves[1][path[1], w] * shares @ tables.behaviour[1, path[1]] @ tables.nature[1, path[1]] for w in range(3)
        )
        found = envs.default_power_kw[i]
        assert found.shape == (T + 1,)
        np.testing.assert_allclose(found[1:3], [shares @ model.power_kw, ahead @ model.power_kw], rtol=1e-12)
