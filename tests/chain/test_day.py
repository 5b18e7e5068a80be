"""A chain that follows one day: its mean is the forecast, and it never looks ahead."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import refuses

from dp_ensemble_env.chain.day import TooFewSimilarDays, _normal_rows, day_path

HOUR = np.timedelta64(3600, "s")
DATE = np.datetime64("2024-08-14")  # a Wednesday
TIMES = DATE.astype("datetime64[s]") + np.arange(10, 16) * HOUR  # decisions from 10:00 to 15:00


def office(days=60, seed=0, level=8.0, noise=2.0, last=DATE):
    """Hours of an office whose whole day is shifted by a level of its own; returns stamps, kW and the shifts."""
    rng = np.random.default_rng(seed)
    stamps = (last - np.timedelta64(days - 1, "D")).astype("datetime64[s]") + np.arange(24 * days) * HOUR
    hour = np.arange(24 * days) % 24
    shift = rng.normal(0.0, level, days)
    shape = 100.0 + 60.0 * np.exp(-0.5 * ((hour - 13) / 3.5) ** 2)
    return stamps, shape + np.repeat(shift, 24) + rng.normal(0.0, noise, 24 * days), shift


def test_the_mean_of_the_chain_is_the_path_for_any_number_of_levels():
    stamps, kw, _ = office()
    path = day_path(stamps, kw, HOUR, TIMES)
    low, high = path.kw.min() - 40, path.kw.max() + 40
    for n in (15, 40, 111):
        levels = np.linspace(low, high, n)
        law = path.start(levels)
        assert law @ levels == pytest.approx(path.kw[0], abs=1e-9)
        for t, matrix in enumerate(path.behaviour(levels)):
            law = law @ matrix
            assert law @ levels == pytest.approx(path.kw[t + 1], abs=0.02)


def test_the_path_begins_at_the_measured_load_and_follows_a_shifted_day():
    errors, usual = [], []
    for seed in range(8):
        stamps, kw, _ = office(seed=seed)
        path = day_path(stamps, kw, HOUR, TIMES)
        today = kw[np.isin(stamps, TIMES - HOUR)]
        assert path.measured and path.kw[0] == today[0] and path.start_spread == 0
        errors.append(np.abs(path.kw - today)[1:].mean())
        ignorant = day_path(stamps, kw, HOUR, TIMES, measured=False)
        assert not ignorant.measured and ignorant.start_spread > 0
        usual.append(np.abs(ignorant.kw - today)[1:].mean())
    # The shift (8 kW) is known from the morning, the noise (2 kW, mean absolute 1.6) is not.
    assert np.mean(errors) < 2.6 < 0.6 * np.mean(usual)


def test_nothing_from_the_notice_on_is_looked_at():
    stamps, kw, _ = office(last=DATE + np.timedelta64(9, "D"))
    path = day_path(stamps, kw, HOUR, TIMES)
    other = day_path(stamps, np.where(stamps >= TIMES[0], 1e4, kw), HOUR, TIMES)
    for name in ("kw", "carry", "spread"):
        np.testing.assert_array_equal(getattr(path, name), getattr(other, name))
    earlier = np.where(stamps == TIMES[0] - HOUR, kw + 5.0, kw)
    assert day_path(stamps, earlier, HOUR, TIMES).kw[0] == pytest.approx(path.kw[0] + 5.0)


def test_excluded_days_do_not_count_and_too_few_are_refused():
    stamps, kw, _ = office()
    spoiled = np.where(stamps.astype("datetime64[D]") == np.datetime64("2024-08-08"), 1e4, kw)
    path = day_path(stamps, spoiled, HOUR, TIMES, exclude=("2024-08-08",))
    assert path.kw.max() < 250 and path.days == day_path(stamps, kw, HOUR, TIMES).days - 1
    with pytest.raises(TooFewSimilarDays, match="only 4 complete similar days lie before 2024-08-14"):
        day_path(*office(days=7)[:2], HOUR, TIMES)


def test_temperature_tells_a_hot_day_from_a_mild_one():
    gains = []
    for seed in range(5):
        stamps, kw, shift = office(seed=seed, level=0.0)
        warmth = np.random.default_rng(100 + seed).normal(25.0, 4.0, len(shift))
        afternoon = (stamps - stamps.astype("datetime64[D]")) // HOUR >= 10  # the morning does not tell
        kw = kw + 3.0 * np.where(afternoon, np.repeat(warmth - 25.0, 24), 0.0)
        today = kw[np.isin(stamps, TIMES - HOUR)]
        with_it = day_path(stamps, kw, HOUR, TIMES, temperature=(stamps, np.repeat(warmth, 24)))
        without = day_path(stamps, kw, HOUR, TIMES)
        gains.append([np.abs(path.kw - today)[1:].mean() for path in (with_it, without)])
    known, unknown = np.mean(gains, axis=0)
    assert known < 0.5 * unknown
    refuses("the temperatures run from", day_path, stamps, kw, HOUR, TIMES, temperature=(stamps[:200], np.zeros(200)))


def test_rows_are_normal_laws_with_exact_means_even_at_the_ends():
    levels = np.linspace(0.0, 100.0, 81)
    mean = np.array([0.5, 20.0, 50.3, 99.0])
    rows = _normal_rows(mean, 6.0, levels)
    np.testing.assert_allclose(rows.sum(axis=1), 1.0)
    np.testing.assert_allclose(rows @ levels, mean, atol=2e-3)
    inner = rows[1:3]
    np.testing.assert_allclose(inner @ levels**2 - (inner @ levels) ** 2, 36.0, rtol=1e-2)
    wanted = np.exp(-0.5 * ((levels - 50.3) / 6.0) ** 2)
    np.testing.assert_allclose(rows[2], wanted / wanted.sum(), atol=1e-5)
