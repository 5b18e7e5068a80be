"""The series itself: gaps, checks, parts."""

from __future__ import annotations

import numpy as np
from helpers import refuses
from meter_files import NAN, at

from dp_ensemble_env.meter import Gap, PowerSeries


def make(values, **kwargs):
    times = at("2024-07-01T00:00") + np.timedelta64(21600, "s") * np.arange(len(values))
    return PowerSeries(times, np.array(values, dtype=float), np.timedelta64(6, "h"), **kwargs)


def test_series_finds_its_gaps_and_checks_itself():
    series = make([1, NAN, NAN, 4])
    assert series.gaps == (Gap(at("2024-07-01T06:00"), at("2024-07-01T18:00"), 2, "missing"),)
    assert series.step == np.timedelta64(21600, "s")
    good = make([1, 2, 3])
    shifted = good.times + np.array([0, 0, 60]).astype("timedelta64[s]")
    for words, times, kw, step in (
        (r"times\[2\] .* does not follow times\[1\] by 21600 s", shifted, good.kw, good.step),
        ("times has 3 entries and kw 2", good.times, good.kw[:2], good.step),
        ("step must be a positive time span", good.times, good.kw, np.timedelta64(0, "s")),
        ("times must be a list of stamps", np.arange(3), good.kw, good.step),
    ):
        refuses(words, PowerSeries, times, kw, step)
    refuses(r"kw\[1\] is infinite", make, [1, np.inf])
    refuses("gaps must cover exactly", make, [1, NAN], gaps=())


def test_between_is_half_open_and_clips_gaps():
    series = make([1, NAN, NAN, 4, 5])
    part = series.between("2024-07-01T12:00", "2024-07-02")
    np.testing.assert_array_equal(part.kw, [NAN, 4])
    assert part.gaps == (Gap(at("2024-07-01T12:00"), at("2024-07-01T18:00"), 1, "missing"),)
    refuses("choose times from 2024-07-01 00:00 to 2024-07-02 00:00", series.between, "2025-01-01", "2025-01-02")
    refuses("start must be a time", series.between, "noon", "2025-01-02")
