"""Adjacency that is kept with its origin, and the direction that decides for a posterior draw."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from dp_ensemble_env.privacy import calibration
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
