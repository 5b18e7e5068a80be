"""Four numbers at once: what is compiled against what it means in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from dp_ensemble_env.envs import _four as four
from dp_ensemble_env.envs._numeric import fast_exp
from dp_ensemble_env.envs.tables import in_fours

RNG = np.random.default_rng(5)
ROWS = [RNG.normal(size=4), np.array([0.0, -0.0, 1e150, -1e-150]), np.array([3.0, 3.0, 3.0, 3.0])]


@njit
def _use(a, b, number, out):
    """Every operation once, into rows of `out`."""
    x, y = four.load(a, np.uint64(0)), four.load(b, np.uint64(0))
    four.store(out[0], np.uint64(0), x + y)
    four.store(out[1], np.uint64(0), x - y)
    four.store(out[2], np.uint64(0), x * y)
    four.store(out[3], np.uint64(0), x + number)
    four.store(out[4], np.uint64(0), number - x)
    four.store(out[5], np.uint64(0), number * x)
    four.store(out[6], np.uint64(0), four.ahead(x))
    return four.last(x), four.reached(x, number), four.reached(x, four.last(x))


@pytest.mark.parametrize("a", ROWS)
@pytest.mark.parametrize("b", ROWS)
def test_arithmetic_and_comparisons(a, b):
    out, number = np.empty((7, 4)), 0.25
    last, below, equal = _use(a, b, number, out)
    wanted = [a + b, a - b, a * b, a + number, number - a, number * a, four.ahead(a)]
    np.testing.assert_array_equal(out, wanted)
    assert last == four.last(a) == a[3]
    assert below == four.reached(a, number) == sum(a <= number) and equal == four.reached(a, a[3])
    np.testing.assert_array_equal(four.ahead(a), [0.0, a[0], a[0] + a[1], (a[0] + a[1]) + a[2]])


@pytest.mark.parametrize("source", [np.float32, np.float64])
@pytest.mark.parametrize("target", [np.float32, np.float64])
def test_reading_and_writing_in_either_precision(source, target):
    @njit
    def copy(array, places, out):
        four.store(out, np.uint64(1), four.load(array, np.uint64(3)))
        four.store(out, np.uint64(6), four.gather(array, np.uint64(2), places, np.uint64(1)))

    array, places = RNG.normal(size=12).astype(source), np.array([9, 7, 0, 5, 5, 1])
    out = np.full(12, 7.0, target)
    copy(array, places, out)
    wanted = np.full(12, 7.0, target)
    wanted[1:5], wanted[6:10] = array[3:7], array[[9, 2, 7, 7]]
    np.testing.assert_array_equal(out, wanted)
    plain = np.full(12, 7.0, target)
    copy.py_func(array, places, plain)
    np.testing.assert_array_equal(plain, wanted)


def test_an_exponential_of_four_is_that_of_each():
    @njit(fastmath={"contract"})
    def all_four(x, out):
        four.store(out, np.uint64(0), fast_exp(four.load(x, np.uint64(0))))

    @njit(fastmath={"contract"})
    def one(x):
        return fast_exp(x)

    out = np.empty(4)
    for x in np.linspace(-700, 700, 4000).reshape(-1, 4):
        all_four(x, out)
        assert out.tolist() == [one(v) for v in x]
        np.testing.assert_allclose(out, np.exp(x), rtol=1e-15)
    assert four.power_of_two(1.5, 6755399441055744.0 + 3) == 12.0


@pytest.mark.parametrize("width", range(1, 14))
def test_lane_by_lane_the_entries_come_in_their_order(width):
    order = in_fours(width)
    assert len(order) % 4 == 0 and len(order) - width < 4
    assert order.reshape(-1, 4).T.ravel().tolist() == list(range(len(order)))
