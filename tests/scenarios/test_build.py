"""The pieces that scenarios share."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from dp_ensemble_env.scenarios.build import programme


def test_a_programme_runs_through_its_phases_and_waits():
    matrix, power = programme([50.0, 20.0, 90.0], 5.0, 0.1, np.array([0.2, 0.3, 0.4]))
    assert_array_equal(power, [5, 20, 50, 90])  # in the order of their power
    waiting, second, first, third = range(4)
    expected = np.zeros((4, 4))
    expected[waiting, [waiting, first]] = 0.9, 0.1
    expected[first, [first, second]] = 0.2, 0.8
    expected[second, [second, third]] = 0.3, 0.7
    expected[third, [third, waiting]] = 0.4, 0.6
    assert_allclose(matrix, expected)
