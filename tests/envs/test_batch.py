"""The state of many environments: releases by episode number, what is compiled, copies that cannot be written."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from helpers import TiltEnv, TiltVectorEnv, random_model
from oracles import M, T, general_model

from dp_ensemble_env.envs import step
from dp_ensemble_env.privacy.ledger import PrivacyLedger

SPEC = "dirichlet:k=20,floor=0.1"


def test_one_compiled_form_serves_every_model_mode_population_and_layout() -> None:
    """A second one would take seconds of compilation in the middle of somebody's episode."""
    model = general_model("everything")
    env, envs = TiltEnv(model), TiltVectorEnv(3, model)
    env.reset(), envs.reset()
    env.step(np.broadcast_to(0.1, (M,)))
    envs.step(np.broadcast_to(np.zeros(M), (3, M)))
    envs.step(np.zeros((3, 2 * M))[:, ::2])
    envs.step(np.asfortranarray(np.zeros((3, M))))
    mask = np.array([True, False, True])
    mask.setflags(write=False)
    envs.reset(options={"reset_mask": mask, "occupancy": np.full(5, 0.2), "context": 1})
    away = through_a_store(envs)
    away.step(np.zeros((3, M)))
    away.reset(seed=0)
    assert len(step.step.signatures) == len(step.reset.signatures) == 1


# ------------------------------------------------------------------ releases
def played(envs: TiltVectorEnv) -> list[np.ndarray]:
    """The matrix that each sub-environment plays."""
    return [envs._batch.rows[row].model.default for row in envs._batch.state.row]


def test_staggered_episodes_play_the_releases_of_their_numbers() -> None:
    model = random_model(0)
    settings = {"privacy": SPEC, "redraw": "episode"}
    releases = [one.default for one in TiltEnv(model, **settings).released_models(12)]
    for mode in ("DISABLED", "NEXT_STEP", "SAME_STEP"):
        envs, rng = TiltVectorEnv(4, model, autoreset_mode=mode, **settings), np.random.default_rng(1)
        envs.reset(seed=0)
        episode = np.zeros(4, int)
        for _ in range(9):
            mask = rng.random(4) < 0.6
            mask[rng.integers(4)] = True
            envs.reset(options={"reset_mask": mask})
            episode += mask
            for matrix, number in zip(played(envs), episode, strict=True):
                np.testing.assert_array_equal(matrix, releases[number])
            assert any(envs.model.default is matrix for matrix in played(envs))
            assert envs.optimal_return(2) == pytest.approx(envs._batch.row.optimum[0] @ np.eye(6)[2], rel=1e-12)
            np.testing.assert_array_equal(envs._batch.row.model.default, envs.release.matrix)
        assert len(envs._batch.rows) <= 5


def test_a_bad_seed_is_refused_before_a_release_is_drawn() -> None:
    env = TiltEnv(random_model(0), privacy=SPEC, redraw="episode", ledger=PrivacyLedger())
    env.reset(seed=0)
    matrix, charged = env.release.matrix, env.ledger.releases
    for seed in (-1, 1.5):
        with pytest.raises(Exception, match="[Ss]eed"):
            env.reset(seed=seed)
    assert env.ledger.releases == charged and env.release.matrix is matrix
    assert env._batch.rows[0].model.default is env.model.default


# ------------------------------------------------------------------ Ray
def through_a_store(thing: Any) -> Any:
    """Pickle as Ray's object store does: arrays lie in a memory that nobody may write to."""
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(thing, protocol=5, buffer_callback=buffers.append)
    return pickle.loads(data, buffers=[memoryview(bytes(buffer.raw())) for buffer in buffers])


@pytest.mark.parametrize("settings", [{"privacy": "dirichlet:k=50"}, {"infos": "all", "render_mode": "ansi"}])
@pytest.mark.parametrize("population", ["mean-field", 9])
def test_environments_that_come_out_of_a_store_go_on(population: str | int, settings: dict) -> None:
    model = general_model("everything")
    env = TiltEnv(model, population, **settings)
    envs = TiltVectorEnv(3, model, population, autoreset_mode="SAME_STEP", **settings)
    env.reset(seed=0), envs.reset(seed=0)
    env.step(np.full(M, 0.1))
    away, batch = through_a_store(env), through_a_store(envs)
    for t, actions in enumerate(np.random.default_rng(0).uniform(-1, 1, (2 * T, 3, M))):
        one, other = envs.step(actions), batch.step(actions)
        np.testing.assert_array_equal(one[0], other[0])
        np.testing.assert_array_equal(one[1], other[1])
        if t < T - 1:
            one, other = env.step(actions[0]), away.step(actions[0])
            np.testing.assert_array_equal(one[0], other[0])
            assert one[1:3] == other[1:3]
    np.testing.assert_array_equal(away.reset(seed=1)[0], env.reset(seed=1)[0])
    np.testing.assert_array_equal(batch.reset(seed=1)[0], envs.reset(seed=1)[0])
