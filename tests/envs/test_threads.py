"""Large batches on several threads: the same numbers, the same refusals."""

from __future__ import annotations

import os
import pickle
import time
from concurrent.futures import ThreadPoolExecutor

import gymnasium
import numpy as np
import pytest
from numba import njit

from dp_ensemble_env.envs import EnsembleVectorEnv, _crew, threads
from dp_ensemble_env.envs import _parts as dyn
from dp_ensemble_env.envs._numeric import uniform, unread


@pytest.fixture(autouse=True)
def _as_before():
    yield
    threads.set_threads(None)


def run(count, size, steps=20, **settings):
    """All that a batch returns over an episode and the start of the next."""
    threads.set_threads(count)
    envs = EnsembleVectorEnv(size, **settings)
    envs.action_space.seed(1)
    first, second = envs.action_space.sample(), envs.action_space.sample()
    seen = [envs.reset(seed=3)[0]]
    for i in range(steps):
        observations, rewards, terminated, _, infos = envs.step((first, second)[i % 2])
        seen += [observations, rewards, terminated, infos["power_kw"], infos["curtailment_kw"]]
    return seen


@pytest.mark.parametrize(
    ("size", "settings"),
    [
        (9000, {"population": "single"}),
        (1700, {"population": "mean-field"}),
        (450, {"population": "buildings", "action": "price"}),
        (450, {"model": "spot", "population": "buildings", "action": "price"}),
    ],
)
def test_the_numbers_do_not_depend_on_the_threads(size, settings):
    alone = run(1, size, **settings)
    for count in (2, 3):
        for one, other in zip(alone, run(count, size, **settings), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("wrong", [[(2000, 3, 1.5)], [(2000, 3, np.nan), (70, 1, -2.5), (71, 0, 7.0)]])
@pytest.mark.parametrize("number", [np.float32, np.float64])
def test_a_bad_action_of_any_piece_is_refused_and_changes_nothing(wrong, number):
    threads.set_threads(2)
    envs = EnsembleVectorEnv(2048)
    envs.reset(seed=0)
    before = envs.occupancy.copy()
    actions = np.zeros(envs.action_space.shape, number)
    for row, column, value in wrong:
        actions[row, column] = value
    first = min(wrong)[2]  # the first one is named, whichever thread sees one first
    with pytest.raises(ValueError, match=str(first).replace(".", r"\.")):
        envs.step(actions)
    np.testing.assert_array_equal(envs.occupancy, before)
    for row, column, _ in wrong:
        actions[row, column] = 1.0
    assert envs.step(actions)[4]["time"].tolist() == [1] * 2048


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("action", ["tilt", "price", "policy"])
@pytest.mark.parametrize("began", ["together", "apart", "in a distribution"])
def test_what_one_load_did_before_a_refusal_is_taken_back(count, action, began):
    """Single loads are looked at block by block; all that a later step depends on must be as it was."""
    threads.set_threads(count)
    size = 1100
    envs, twin = (EnsembleVectorEnv(size, population="single", action=action) for _ in range(2))
    for one in (envs, twin):
        one.reset(seed=0, options={"occupancy": one.model.initial} if began == "in a distribution" else None)
        one.action_space.seed(0)
    for i in range(40):  # two episodes, with the steps in which new ones begin
        actions = envs.action_space.sample()
        if began == "apart" and i == 5:
            some = np.arange(size) % 3 == 0
            for one in (envs, twin):
                one.reset(seed=7, options={"reset_mask": some})
        for row in (size - 1, 300, 0):
            over = np.flatnonzero(envs.time < envs.model.horizon)
            if not over.size:
                continue  # nobody's action is looked at
            wrong = actions.copy()
            wrong[over[min(row, over.size - 1)]] = np.nan
            arrays = envs._counters[: dyn.PAST].copy(), envs._traces.copy()
            with pytest.raises(ValueError, match="nan"):
                envs.step(wrong)
            np.testing.assert_array_equal(envs._counters[: dyn.PAST], arrays[0])
            np.testing.assert_array_equal(envs._traces, arrays[1])
        for mine, other in zip(envs.step(actions)[:3], twin.step(actions)[:3], strict=True):
            np.testing.assert_array_equal(mine, other)


def test_a_batch_that_must_be_reset_is_not_stepped_in_part():
    threads.set_threads(2)
    envs = EnsembleVectorEnv(1024, population="single", autoreset_mode="DISABLED")
    envs.reset(seed=0)
    actions = np.zeros(envs.action_space.shape, np.float32)
    for _ in range(3):
        envs.step(actions)
    envs._counters[dyn.TIME, 1000] = envs.model.horizon
    before = envs._counters[: dyn.PAST].copy()
    with pytest.raises(gymnasium.error.ResetNeeded):
        envs.step(actions)
    np.testing.assert_array_equal(envs._counters[: dyn.PAST], before)


def test_a_stream_is_set_back_by_the_number_that_was_drawn():
    draw, back = njit(lambda c: uniform(c, 0)), njit(lambda c: unread(c, 0))
    counters = np.zeros((dyn.COUNTERS, 1), np.int64)
    counters[dyn.STREAMS, 0] = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 2)
    for _ in range(50):
        before = counters.copy()
        first = draw(counters)
        assert not np.array_equal(counters, before)
        back(counters)
        np.testing.assert_array_equal(counters, before)
        assert draw(counters) == first


def test_helpers_are_more_patient_after_a_large_batch():
    threads.set_threads(2)
    looks = []
    for size in (1024, 16_384, 65_536):
        envs = EnsembleVectorEnv(size, population="single")
        envs.reset(seed=0)
        envs.step(np.zeros(envs.action_space.shape, np.float32))
        looks.append(int(threads._crew_of_process.post[_crew.PATIENCE]) / threads.PATIENCE)
    assert looks == [1, 8, threads.LONGER]


def test_the_caller_takes_pieces_from_the_beginning_and_others_from_the_end():
    post = threads.Crew().post
    post[_crew.LEFT] = 5
    taken = [_crew._take(post, False) for _ in range(6)]
    post[_crew.LEFT] = 5
    order = [_crew._take(post, leads) for leads in (True, False, True, True, False, True)]
    assert taken == [4, 3, 2, 1, 0, -1] and order == [0, 4, 1, 2, 3, -1]


def test_a_helper_does_what_is_posted_and_falls_asleep():
    threads.set_threads(2)
    envs = EnsembleVectorEnv(4096, population="single")
    envs.reset(seed=0)
    actions, post = np.zeros(envs.action_space.shape, np.float32), threads._crew_of_process.post
    shares, deadline = [0], time.monotonic() + 120
    while shares[-1] == 0 and time.monotonic() < deadline:  # a busy machine may take its time
        envs.step(actions)
        shares.append(int(post[_crew.DONE]))
    assert 0 < shares[-1] <= 32
    while (post[_crew.AWAKE] or threads._crew_of_process.bell.qsize()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert post[_crew.AWAKE] == 0  # nobody looks for work that does not come


def test_batches_stepped_at_once_from_several_threads_do_not_mix():
    """Only one batch is posted at a time; who finds the post taken steps alone."""
    threads.set_threads(2)
    expected = run(2, 1700, steps=40)
    with ThreadPoolExecutor(3) as pool:
        for seen in pool.map(lambda _: run(2, 1700, steps=40), range(3)):
            for one, other in zip(expected, seen, strict=True):
                np.testing.assert_array_equal(one, other)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_has_its_own_crew():
    expected = run(2, 1700)
    child = os.fork()
    if child == 0:
        same = all(np.array_equal(a, b) for a, b in zip(expected, run(2, 1700), strict=True))
        os._exit(0 if same and threads._crew_of_process.helpers else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_step_that_fails_for_want_of_memory_is_raised(monkeypatch):
    threads.set_threads(2)
    monkeypatch.setattr(_crew, "lead", lambda *arguments: _crew.FAILURE)
    envs = EnsembleVectorEnv(2048)
    envs.reset(seed=0)
    with pytest.raises(MemoryError, match="fewer environments"):
        envs.step(np.zeros(envs.action_space.shape, np.float32))


# ------------------------------------------------------------------ what a step returns
def test_what_is_kept_is_never_written_to_again():
    envs = EnsembleVectorEnv(256)
    envs.action_space.seed(0)
    observations, infos = envs.reset(seed=0)
    kept, copies = [observations, infos["power_kw"]], [observations.copy(), infos["power_kw"].copy()]
    for i in range(30):
        observations, rewards, _, _, infos = envs.step(envs.action_space.sample())
        one = [observations[:, 3], rewards, infos["utility"], memoryview(observations), observations][i % 5]
        kept.append(one)
        copies.append(np.array(one))
        del observations, rewards, infos, one
    for one, copy in zip(kept, copies, strict=True):
        np.testing.assert_array_equal(np.asarray(one), copy)


def test_what_is_let_go_is_used_again_whatever_was_done_to_it():
    envs = EnsembleVectorEnv(256)
    envs.reset(seed=0)
    action = np.zeros(envs.action_space.shape, np.float32)
    places = set()
    for _ in range(12):
        observations = envs.step(action)[0]
        places.add(observations.ctypes.data)
        observations.setflags(write=False)
    assert len(places) <= 3
    twin = pickle.loads(pickle.dumps(envs))
    np.testing.assert_array_equal(twin.step(action)[0], envs.step(action)[0])


def test_how_many_threads(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    assert threads.get_threads() == 3
    monkeypatch.setenv("NUMBA_NUM_THREADS", "2")
    assert threads.get_threads() == 2
    threads.set_threads(5)
    assert threads.get_threads() == 5
    with pytest.raises(ValueError, match="count must be at least 1"):
        threads.set_threads(0)
    threads.set_threads(None)
    monkeypatch.setenv("NUMBA_NUM_THREADS", "many")
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert threads.get_threads() >= 1
