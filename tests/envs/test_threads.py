"""Large batches on several threads: the same numbers, the same refusals."""

from __future__ import annotations

import numpy as np
import pytest

from dp_ensemble_env.envs import EnsembleVectorEnv, threads


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
def test_the_numbers_do_not_depend_on_the_threads(size, settings, monkeypatch):
    monkeypatch.setattr(threads, "LARGE", 1000)  # the two larger ones have their actions checked in pieces, too
    alone = run(1, size, **settings)
    for count in (2, 3):
        for one, other in zip(alone, run(count, size, **settings), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("large", [1000, 10_000])
def test_a_bad_action_of_any_piece_is_refused_and_changes_nothing(monkeypatch, large):
    monkeypatch.setattr(threads, "LARGE", large)
    threads.set_threads(2)
    envs = EnsembleVectorEnv(2048)
    envs.reset(seed=0)
    before = envs.occupancy.copy()
    actions = np.zeros(envs.action_space.shape, np.float32)
    actions[2000, 3] = 1.5
    with pytest.raises(ValueError, match=r"1\.5"):
        envs.step(actions)
    np.testing.assert_array_equal(envs.occupancy, before)
    actions[2000, 3] = 1.0
    assert envs.step(actions)[4]["time"].tolist() == [1] * 2048


def test_pieces_cover_the_batch_and_are_large_enough():
    for count in (1, 2, 3, 7):
        threads.set_threads(count)
        for size in (1, 511, 1023, 1024, 5000, 65_536):
            cuts = threads.pieces(size, 512)
            assert [i for a, b in cuts for i in range(a, b)] == list(range(size))
            assert len(cuts) == max(1, min(count, size // 512))
            assert all(a % threads.GRAIN == 0 for a, _ in cuts)


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


def test_what_goes_wrong_on_another_thread_is_raised_on_the_callers():
    def fail(start, stop):
        if start:
            raise RuntimeError(f"piece from {start} to {stop}")

    with pytest.raises(RuntimeError, match="piece from 5 to 9"):
        threads._together(fail, (), [(0, 5), (5, 9)])
    assert threads._together(lambda start, stop: stop - start, (), [(0, 5), (5, 9)]) == [5, 4]
