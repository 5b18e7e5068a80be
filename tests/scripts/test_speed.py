"""The ratios of `scripts/speed.py`, from fake timers, and the page that is written from what it recorded."""

from __future__ import annotations

import pytest
import speed


def fake(*seconds):
    """A timer whose calls take the given seconds each, one after the other and the last one for ever."""
    left = list(seconds)
    return lambda calls: calls * (left.pop(0) if len(left) > 1 else left[0])


def test_ratios_are_of_the_best_turns():
    # The first two calls compile and count; of the turns the best one counts, here the third and the second.
    row = speed.compare("load", fake(9, 1, 5, 4, 2), fake(9, 1, 8, 6, 7), 4, seconds=0)
    assert row == pytest.approx({"load, µs": 2e6 / 4, "load / CartPole": 3})


def test_the_page_shows_what_was_recorded():
    page = speed.PAGE.read_text(encoding="utf-8")
    assert speed.filled(page) == page
    assert all(f"| {name} |" in page for name in speed.scenarios.BUILT_IN)
