"""Results of a step belong to the caller, although large arrays are used again."""

from __future__ import annotations

import numpy as np
import pytest

from dp_ensemble_env.envs import EnsembleVectorEnv
from dp_ensemble_env.envs.results import KEPT, Results


@pytest.mark.parametrize("population", ["single", "mean-field"])
def test_what_was_returned_never_changes(population):
    envs = EnsembleVectorEnv(6000, population=population)
    assert envs._results._large
    envs.action_space.seed(0)
    actions = envs.action_space.sample()
    envs.reset(seed=0)
    kept, copies = [], []
    for i in range(9):
        observations, rewards, _, _, infos = envs.step(actions)
        held = [
            observations[5:7],
            rewards,
            infos["power_kw"][::2],
            infos["time"],
            infos["optimal_return"].reshape(2, -1),
        ]
        if i % 2:  # the others may be used again
            kept.append(held)
            copies.append([array.copy() for array in held])
    for held, copy in zip(kept, copies, strict=True):
        for one, other in zip(held, copy, strict=True):
            np.testing.assert_array_equal(one, other)


def test_arrays_that_nobody_holds_are_used_again():
    results = Results((6000, 23), 5)
    first = results.fresh()
    address, view = first[0].ctypes.data, first[0][3:]
    del first
    assert results.fresh()[0].ctypes.data != address  # the view refers to it
    del view
    assert address in {results.fresh()[0].ctypes.data for _ in range(KEPT)}
    many = [results.fresh() for _ in range(6)]
    assert len({arrays[0].ctypes.data for arrays in many}) == 6
    assert len(results._sets) == KEPT
