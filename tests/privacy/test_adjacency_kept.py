"""Adjacency that is kept with its origin, and the direction that decides for a posterior draw."""

from __future__ import annotations

import math
import re

import mpmath
import numpy as np
import pytest

from dp_ensemble_env.privacy import calibration
from dp_ensemble_env.privacy.accounting.composition import RowGroup, UnreachableTarget, calibrate_groups, largest_k
from dp_ensemble_env.privacy.accounting.divergence import (
    LARGEST_K,
    pair_delta,
    pair_epsilon,
    renyi_divergence,
    worst_case_delta,
    worst_case_epsilon,
)
from dp_ensemble_env.privacy.accounting.theorem2 import theorem2_epsilon
from dp_ensemble_env.privacy.mechanisms.dirichlet import PAPER_H, DirichletEvent


def test_other_entries_keep_the_distance_and_where_it_comes_from():
    """A distance that was computed from private counts does not become a stated one, which may be published."""
    for source in ("stated", "counts", "devices"):
        event = DirichletEvent(50.0, 0.1, (3, 2), seeding="seed", h=(0.1, 0.2), h_source=source)
        wider = event.under(entries="any")
        assert wider.h == (0.1, 0.2) and wider.entries == "any" and wider.h_source == source
        assert (wider.public.h == ()) == (source != "stated")
        assert event.under(0.3).h == (0.3,) and event.under(0.3).h_source == "stated"
    plain = DirichletEvent(50.0, 0.1, (3, 2), seeding="seed").under(entries="any")
    assert plain.h == (PAPER_H,) and plain.h_source == "stated"
    with pytest.raises(ValueError, match="3 values for 2 rows"):
        plain.under([0.1, 0.2, 0.3])


@pytest.mark.parametrize("prior", [1.7, 3.0, 40.0, 900.0])
def test_the_bound_of_a_posterior_draw_is_the_larger_of_the_two_directions(prior):
    """Both Rényi divergences of Gamma draws whose shapes differ by one, with thirty digits."""
    orders = np.array([1.05, 1.5, 2.0, 2.5, 6.0, 30.0])
    found = calibration.posterior_renyi(orders, prior, 3)
    with mpmath.workdps(30):
        a, gamma = mpmath.mpf(prior), mpmath.loggamma
        for x, bound in zip(orders, found, strict=True):
            if np.isinf(bound):
                assert prior * (x - 1) < x or prior <= x - 1
                continue
            there = gamma(a + x) + (x - 1) * gamma(a) - x * gamma(a + 1)
            back = gamma(a + 1 - x) + (x - 1) * gamma(a + 1) - x * gamma(a)
            assert bound == pytest.approx(float(3 * max(there, back) / (x - 1)), rel=1e-9, abs=1e-9)
    assert np.isfinite(found).any()


def test_from_the_largest_k_on_nothing_is_private():
    for k in (LARGEST_K, 2 * LARGEST_K):
        assert worst_case_epsilon(0.01, k, 0.03, 0.1) == pair_epsilon(0.01, [0.2, 0.6, 0.2], 0, 1, k, 0.03) == math.inf
        assert renyi_divergence(1.5, k, 0.03, 0.1) == theorem2_epsilon(k, 0.03, 0.1, 0.1, 2, 0.05) == math.inf
        assert worst_case_delta(3.0, k, 0.03, 0.1) == pair_delta(3.0, [0.2, 0.6, 0.2], 0, 1, k, 0.03) == 1.0
        assert worst_case_epsilon(0.01, k, 0.0, 0.1) == renyi_divergence(1.5, k, 0.0, 0.1) == 0.0


def test_a_refusal_says_which_rows_and_how_far_they_have_to_change():
    """The floor and the adjacency that it names are just enough, for equal rows and for different ones."""
    one = [RowGroup(1.0, 0.1, 0.03)]
    two = [RowGroup(1.0, 0.1, 0.03, 2), RowGroup(1.0, 0.2, 0.02)]
    for groups, entries, words in (
        (one, "two", "1 row with omega=0.1 and h=0.03: as"),
        (one, "any", "1 row with omega=0.1 and h=0.03 for moves of any entries: as"),
        (two, "any", "3 rows with omega=at least 0.1 and h=up to 0.03 for moves"),
    ):
        with pytest.raises(UnreachableTarget, match=words) as refused:
            calibrate_groups(0.1, 1e-4, groups, entries)
        text = str(refused.value)
        shrink = float(re.search(r"shrink h below (\S+)", text)[1]) / 0.03
        least = float(re.search(r"does not fall below (\S+);", text)[1])
        for factor, enough in ((0.98, True), (1.05, False)):
            changed = [group._replace(h=factor * shrink * group.h) for group in groups]
            assert (largest_k(0.1, 1e-4, changed, entries) is not None) == enough
        assert largest_k(1.01 * least, 1e-4, groups, entries) is not None
        assert least > 0.1 and largest_k(0.99 * least, 1e-4, groups, entries) is None
        assert float(re.search(r"above omega=(\S+)", text)[1]) == pytest.approx(0.1 / shrink, rel=1e-3)
