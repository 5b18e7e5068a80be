"""Meter files: the rules on time and on values, and the series itself."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from dp_ensemble_env.meter import Gap, PowerSeries, read_meter

NAN = float("nan")


@pytest.fixture
def file(tmp_path):
    """Write rows of (stamp, value) under the header start,kW and return the path."""

    def write(rows, header="start,kW"):
        path = tmp_path / "meter.csv"
        path.write_text("\n".join([header, *(f"{stamp},{value}" for stamp, value in rows)]))
        return path

    return write


def hours(day, values, first=0):
    return [(f"{day} {first + i:02}:00", value) for i, value in enumerate(values)]


def at(text):
    return np.datetime64(text, "s")


def test_mixed_order_is_sorted_and_noted(file):
    rows = hours("2024-07-01", [1, 2, 3, 4])
    series = read_meter(file([rows[0], rows[2], rows[1], rows[3]]))
    np.testing.assert_array_equal(series.kw, [1, 2, 3, 4])
    assert series.notes == ("The rows were not in order of time (1 step back); they were sorted.",)


def test_descending_is_turned_round_and_noted(file):
    series = read_meter(file(hours("2024-07-01", [1, 2, 3, 4])[::-1]))
    np.testing.assert_array_equal(series.kw, [1, 2, 3, 4])
    assert series.notes == ("The file is newest first; it was turned round.",)


def test_missing_rows_and_empty_cells_are_gaps_never_filled(file):
    rows = hours("2024-07-01", [1, "", "NA", 4, 5, 6, 7])
    del rows[4:6]
    series = read_meter(file(rows))
    np.testing.assert_array_equal(series.kw, [1, NAN, NAN, 4, NAN, NAN, 7])
    assert series.gaps == (
        Gap(at("2024-07-01T01:00"), at("2024-07-01T03:00"), 2, "empty"),
        Gap(at("2024-07-01T04:00"), at("2024-07-01T06:00"), 2, "missing"),
    )
    assert series.missing == 4


@pytest.mark.parametrize("word", ["", "NA", "n/a", "NaN", "null", "-", "#N/A", "None"])
def test_words_for_a_missing_reading(file, word):
    np.testing.assert_array_equal(read_meter(file(hours("2024-07-01", [1, word, 3]))).kw, [1, NAN, 3])


def test_step_is_the_most_common_difference_and_strays_are_refused(file):
    rows = hours("2024-07-01", [1, 2, 3, 4])
    with pytest.raises(ValueError, match=r"line 6: 2024-07-01 03:07:00 does not lie on the 60-minute grid"):
        read_meter(file([*rows, ("2024-07-01 03:07", 5)]))
    with pytest.raises(ValueError, match=r"line 2: 2024-06-30 23:59:00 does not lie on the 60-minute grid"):
        read_meter(file([("2024-06-30 23:59", 5), *rows]))


# Clock changes -------------------------------------------------------------


SPRING = [*hours("2024-03-10", [1, 2]), *hours("2024-03-10", [4, 5], first=3)]


@pytest.mark.parametrize("timezone", [None, "America/New_York"])
def test_spring_hour_is_a_gap_of_daylight_saving(file, timezone):
    series = read_meter(file(SPRING), timezone=timezone)
    np.testing.assert_array_equal(series.kw, [1, 2, NAN, 4, 5])
    assert series.gaps == (Gap(at("2024-03-10T02:00"), at("2024-03-10T03:00"), 1, "daylight saving"),)
    assert series.notes == ("The hour skipped in spring is a gap (1 night).",)


def test_the_time_zone_decides_whether_the_hour_was_skipped(file):
    # Europe changed three weeks later, and Phoenix never does.
    for timezone in ("Europe/Berlin", "America/Phoenix", "UTC"):
        assert read_meter(file(SPRING), timezone=timezone).gaps[0].reason == "missing"
    autumn = [*hours("2024-10-06", [1, 2]), *hours("2024-10-06", [4, 5], first=3)]
    assert read_meter(file(autumn)).gaps[0].reason == "missing"
    assert read_meter(file(autumn), timezone="Australia/Sydney").gaps[0].reason == "daylight saving"


def test_a_gap_around_the_skipped_hour(file):
    rows = [*hours("2024-03-10", [1]), *hours("2024-03-10", [5, 6], first=4)]
    assert [gap.reason for gap in read_meter(file(rows)).gaps] == ["missing"]
    reasons = [(gap.reason, gap.intervals) for gap in read_meter(file(rows), timezone="America/New_York").gaps]
    assert reasons == [("missing", 1), ("daylight saving", 1), ("missing", 1)]
    # On other days the same hole is only a hole.
    monday = [*hours("2024-03-11", [1, 2]), *hours("2024-03-11", [4], first=3)]
    assert read_meter(file(monday)).gaps[0].reason == "missing"


@pytest.mark.parametrize("timezone", [None, "America/New_York"])
def test_spring_with_end_stamps(file, timezone):
    # The interval from 01:30 to the change is stamped 03:00.
    rows = [("2024-03-10 01:00", 1), ("2024-03-10 01:30", 2), ("2024-03-10 03:00", 3), ("2024-03-10 03:30", 4)]
    series = read_meter(file(rows, header="end,kW"), timezone=timezone)
    assert [gap.reason for gap in series.gaps] == ["daylight saving"] and series.missing == 2


def autumn(day, second=(20, 40)):
    rows = [(f"{day} {clock}", v) for clock, v in zip(("00:30", "01:00", "01:30"), (1, 10, 20), strict=True)]
    return [*rows, (f"{day} 01:00", second[0]), (f"{day} 01:30", second[1]), (f"{day} 02:00", 5)]


@pytest.mark.parametrize("timezone", [None, "America/New_York"])
def test_autumn_hour_is_averaged(file, timezone):
    series = read_meter(file(autumn("2024-11-03")), timezone=timezone)
    np.testing.assert_array_equal(series.kw, [1, 15, 30, 5])
    assert series.notes == (
        "2 timestamps of the hour that autumn repeats had two readings (1 night); the two were averaged.",
    )


def test_autumn_hour_keeps_the_reading_that_is_there(file):
    series = read_meter(file(autumn("2024-11-03", second=("", 40))))
    np.testing.assert_array_equal(series.kw, [1, 10, 30, 5])
    assert series.gaps == ()


@pytest.mark.parametrize("timezone", [None, "America/New_York"])
@pytest.mark.parametrize("last", ["01:00", "02:00"])
def test_autumn_with_end_stamps(file, timezone, last):
    # The clock shows 02:00 daylight time as 01:00; some loggers write 02:00 and then go back.
    clocks = ["00:30", "01:00", "01:30", last, *(["01:30"] if last == "01:00" else ["01:30", "02:00"]), "02:30"]
    rows = [(f"2024-11-03 {clock}", i + 1) for i, clock in enumerate(clocks)]
    if last == "01:00":
        rows.insert(-1, ("2024-11-03 02:00", 9))
    series = read_meter(file(rows, header="end,kW"), timezone=timezone)
    expected = [1, 3, 4, 9, 6] if last == "01:00" else [1, 2, 4, 5, 7]
    np.testing.assert_array_equal(series.kw, expected)
    assert series.times[0] == at("2024-11-03T00:00")


def test_repeats_outside_autumn_are_conflicts(file):
    with pytest.raises(ValueError, match=r"lines 3 and 5 both give 2024-07-07T01:00:00 but differ \(10 and 20\)"):
        read_meter(file(autumn("2024-07-07")))
    with pytest.raises(ValueError, match="lines 3 and 5"):  # a Saturday
        read_meter(file(autumn("2024-11-02")))
    with pytest.raises(ValueError, match="lines 3 and 5"):  # Berlin changed the week before
        read_meter(file(autumn("2024-11-03")), timezone="Europe/Berlin")


def test_three_readings_of_an_autumn_hour_are_a_conflict(file):
    with pytest.raises(ValueError, match="lines 3 and 5"):
        read_meter(file([*autumn("2024-11-03"), ("2024-11-03 01:00", 7)]))


def test_identical_repeats_are_kept_once(file):
    rows = hours("2024-07-01", [1, 2, 3])
    series = read_meter(file([rows[0], *rows, rows[1]]))
    np.testing.assert_array_equal(series.kw, [1, 2, 3])
    assert "Dropped 2 repeated readings that said the same." in series.notes
    filled = read_meter(file([rows[0], (rows[1][0], ""), rows[1], rows[2]]))
    np.testing.assert_array_equal(filled.kw, [1, 2, 3])
    assert filled.gaps == ()


def test_utc_stamps_through_a_year_of_clock_changes(file):
    utc = np.arange(at("2024-01-01T05:00"), at("2025-01-01T05:00"), np.timedelta64(3600, "s"))
    rows = [(f"{time}Z", i % 7 + 1) for i, time in enumerate(utc)]
    series = read_meter(file(rows), timezone="America/New_York")
    assert len(series) == 366 * 24 and series.times[0] == at("2024-01-01T00:00")
    assert [(str(g.start), g.reason) for g in series.gaps] == [("2024-03-10T02:00:00", "daylight saving")]
    fold = int(np.flatnonzero(series.times == at("2024-11-03T01:00"))[0])
    at_utc = int(np.flatnonzero(utc == at("2024-11-03T05:00"))[0])
    assert series.kw[fold] == ((at_utc % 7 + 1) + ((at_utc + 1) % 7 + 1)) / 2
    assert series.kw[-1] == (len(utc) - 1) % 7 + 1


# Values --------------------------------------------------------------------


def test_negative_readings(file):
    path = file(hours("2024-07-01", [1, 2, -3, 4]))
    with pytest.raises(ValueError, match=r"line 4: the reading -3 of 'kW' is negative .*negatives='missing'"):
        read_meter(path)
    missing = read_meter(path, negatives="missing")
    np.testing.assert_array_equal(missing.kw, [1, 2, NAN, 4])
    assert missing.gaps[0].reason == "negative" and missing.notes == ("Made missing: 1 negative reading.",)
    kept = read_meter(path, negatives="keep")
    np.testing.assert_array_equal(kept.kw, [1, 2, -3, 4])
    assert kept.notes == ("Kept: 1 negative reading.",)


def test_zero_readings(file):
    path = file(hours("2024-07-01", [1, 0, *[0] * 6, 4, 0, 5]))
    kept = read_meter(path)
    assert kept.missing == 0 and kept.notes[0] == "Kept: 8 zero readings."
    assert kept.notes[1].startswith("1 run of zeros longer than 6 hours, possibly outages; the longest, 7 intervals")
    missing = read_meter(path, zeros="missing")
    assert [(gap.intervals, gap.reason) for gap in missing.gaps] == [(7, "zero"), (1, "zero")]
    short = read_meter(file(hours("2024-07-01", [1, *[0] * 6, 4])))
    assert short.notes == ("Kept: 6 zero readings.",)
    with pytest.raises(ValueError, match="line 3: the reading 0 of 'kW' is zero"):
        read_meter(path, zeros="error")


def test_a_thousandfold_spike(file):
    values = [100 + 10 * (i % 5) for i in range(24)]
    values[7] *= 1000
    path = file(hours("2024-07-01", values))
    with pytest.raises(ValueError, match=r"line 9: the reading 120000 of 'kW' is more than 20 times .* 140 .*spikes="):
        read_meter(path)
    missing = read_meter(path, spikes="missing")
    assert missing.gaps == (Gap(at("2024-07-01T07:00"), at("2024-07-01T08:00"), 1, "spike"),)
    assert np.nanmax(missing.kw) == 140
    assert read_meter(path, spikes="keep").kw[7] == 120000


def test_three_spikes_in_a_short_file_do_not_hide_each_other(file):
    values = [5.0] * 24
    for i in (3, 9, 15):
        values[i] = 5000.0
    series = read_meter(file(hours("2024-07-01", values)), spikes="missing")
    assert [gap.start.item().hour for gap in series.gaps] == [3, 9, 15]


def test_a_house_with_rare_big_loads_has_no_spikes(file):
    rng = np.random.default_rng(3)
    values = rng.gamma(2.0, 0.15, 24 * 60)
    values[rng.random(len(values)) < 0.03] += 11.0  # charging a car
    start = at("2024-05-01T00:00")
    rows = [(start + np.timedelta64(3600 * i, "s"), f"{v:.4f}") for i, v in enumerate(values)]
    np.testing.assert_allclose(read_meter(file(rows)).kw, values, atol=5e-5)


def test_values_are_judged_column_by_column(tmp_path):
    path = tmp_path / "wide.csv"
    rows = [f"2024-07-01 {h:02}:00,{1000 + h},{200 if h == 5 else 1}" for h in range(24)]
    path.write_text("\n".join(["start,big,small", *rows]))
    with pytest.raises(ValueError, match=r"line 7: the reading 200 of 'small'"):
        read_meter(path, column="sum", unit="kW")
    series = read_meter(path, column="sum", unit="kW", spikes="missing")
    assert series.missing == 1 and series.gaps[0].reason == "spike" and series.kw[0] == 1001


# The series ----------------------------------------------------------------


def make(values, **kwargs):
    times = at("2024-07-01T00:00") + np.timedelta64(21600, "s") * np.arange(len(values))
    return PowerSeries(times, np.array(values, dtype=float), np.timedelta64(6, "h"), **kwargs)


def test_series_finds_its_gaps():
    series = make([1, NAN, NAN, 4])
    assert series.gaps == (Gap(at("2024-07-01T06:00"), at("2024-07-01T18:00"), 2, "missing"),)
    assert series.step == np.timedelta64(21600, "s")


def test_series_checks_itself():
    good = make([1, 2, 3])
    with pytest.raises(ValueError, match=r"times\[2\] .* does not follow times\[1\] by 21600 s"):
        PowerSeries(good.times + np.array([0, 0, 60]).astype("timedelta64[s]"), good.kw, good.step)
    with pytest.raises(ValueError, match="times has 3 entries and kw 2"):
        PowerSeries(good.times, good.kw[:2], good.step)
    with pytest.raises(ValueError, match=r"kw\[1\] is infinite"):
        make([1, np.inf])
    with pytest.raises(ValueError, match="step must be positive"):
        PowerSeries(good.times, good.kw, np.timedelta64(0, "s"))
    with pytest.raises(ValueError, match="gaps must cover exactly"):
        make([1, NAN], gaps=())
    with pytest.raises(ValueError, match="1-D array of datetime64"):
        PowerSeries(np.arange(3), good.kw, good.step)


def test_between_is_half_open_and_clips_gaps():
    series = make([1, NAN, NAN, 4, 5])
    part = series.between("2024-07-01T12:00", "2024-07-02")
    np.testing.assert_array_equal(part.kw, [NAN, 4])
    assert part.gaps == (Gap(at("2024-07-01T12:00"), at("2024-07-01T18:00"), 1, "missing"),)
    with pytest.raises(ValueError, match="choose times from 2024-07-01 00:00 to 2024-07-02 00:00"):
        series.between("2025-01-01", "2025-01-02")
    with pytest.raises(ValueError, match="start must be a time"):
        series.between("noon", "2025-01-02")


def test_summary_and_pickle():
    series = make([1, NAN, 3], source="x.csv", notes=("A note.",))
    lines = str(series).splitlines()
    assert lines[0] == "x.csv: 3 intervals of 360 minutes, 2024-07-01 00:00 to 2024-07-01 18:00"
    assert lines[1] == "  power: lowest 1, mean 2, highest 3 kW"
    assert lines[2] == "  missing: 1 interval in 1 gap"
    assert lines[-1] == "  note: A note."
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(series)).kw, series.kw)
