"""The rules that make an even series."""

from __future__ import annotations

import numpy as np
import pytest
from meter_files import NAN, at, autumn, hours, ticks

from dp_ensemble_env.meter import Gap, read_meter


def test_any_order_is_turned_round_or_sorted_and_noted(reads):
    rows = hours("2024-07-01", [1, 2, 3, 4])
    series = reads([1, 2, 3, 4], [rows[0], rows[2], rows[1], rows[3]])
    assert series.notes == ("The rows were not in order of time (1 step back); they were sorted.",)
    series = reads([1, 2, 3, 4], hours("2024-07-01", [1, 2, 3, 4])[::-1])
    assert series.notes == ("The file is newest first; it was turned round.",)


def test_missing_rows_and_empty_cells_are_gaps_never_filled(reads):
    rows = hours("2024-07-01", [1, "", "NA", 4, 5, 6, 7])
    del rows[4:6]
    series = reads([1, NAN, NAN, 4, NAN, NAN, 7], rows)
    assert series.gaps == (
        Gap(at("2024-07-01T01:00"), at("2024-07-01T03:00"), 2, "empty"),
        Gap(at("2024-07-01T04:00"), at("2024-07-01T06:00"), 2, "missing"),
    )
    assert series.missing == 4
    assert series.notes == (
        "4 intervals without a reading, in 2 gaps; nothing was filled in. The longest gap, 2 intervals, starts at "
        "2024-07-01 01:00.",
    )
    for word in ("n/a", "NaN", "null", "-", "#N/A", "None"):
        reads([1, NAN, 3], hours("2024-07-01", [1, word, 3]))


def test_step_is_the_most_common_difference_and_strays_are_refused(refused):
    rows = hours("2024-07-01", [1, 2, 3, 4])
    refused(r"line 6: 2024-07-01 03:07 does not lie on the 60-minute grid", [*rows, ("2024-07-01 03:07", 5)])
    refused(r"line 2: 2024-06-30 23:59 does not lie on the 60-minute grid", [("2024-06-30 23:59", 5), *rows])


def test_repeats_outside_autumn_are_conflicts(refused):
    refused(r"lines 3 and 5 both give 2024-07-07 01:00 but differ \(10 and 20\)", autumn("2024-07-07"))
    refused("lines 3 and 5", autumn("2024-11-02"))  # a Saturday
    refused("lines 3 and 5", autumn("2024-11-03"), timezone="Europe/Berlin")  # Berlin changed the week before
    refused("lines 3 and 5", [*autumn("2024-11-03"), ("2024-11-03 01:00", 7)])  # a third reading


def test_identical_repeats_are_kept_once(reads):
    rows = hours("2024-07-01", [1, 2, 3])
    series = reads([1, 2, 3], [rows[0], *rows, rows[1]])
    assert "Dropped 2 repeated readings that said the same." in series.notes
    filled = reads([1, 2, 3], [rows[0], (rows[1][0], ""), rows[1], rows[2]])
    assert filled.gaps == ()


def test_negative_readings(file, reads, refused):
    path = file(hours("2024-07-01", [1, 2, -3, 4]))
    refused(r"line 4: the reading -3 of 'kW' is negative .*negatives='missing'", path)
    missing = reads([1, 2, NAN, 4], path, negatives="missing")
    assert missing.gaps[0].reason == "negative" and missing.notes == ("Made missing: 1 negative reading.",)
    kept = reads([1, 2, -3, 4], path, negatives="keep")
    assert kept.notes == ("Kept: 1 negative reading.",)


def test_zero_readings(file, refused):
    path = file(hours("2024-07-01", [1, 0, *[0] * 6, 4, 0, 5]))
    kept = read_meter(path)
    assert kept.missing == 0 and kept.notes[0] == "Kept: 8 zero readings."
    assert kept.notes[1].startswith("1 run of zeros longer than 6 hours, possibly outages; the longest, 7 intervals")
    missing = read_meter(path, zeros="missing")
    assert [(gap.intervals, gap.reason) for gap in missing.gaps] == [(7, "zero"), (1, "zero")]
    short = read_meter(file(hours("2024-07-01", [1, *[0] * 6, 4])))
    assert short.notes == ("Kept: 6 zero readings.",)
    refused("line 3: the reading 0 of 'kW' is zero", path, zeros="error")


def test_a_thousandfold_spike(file, refused):
    values = [100 + 10 * (i % 5) for i in range(24)]
    values[7] *= 1000
    path = file(hours("2024-07-01", values))
    refused(r"line 9: the reading 120000 of 'kW' is more than 20 times .* 140 .*spikes=", path)
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


def test_values_are_judged_column_by_column(refused, tmp_path):
    path = tmp_path / "wide.csv"
    rows = [f"2024-07-01 {h:02}:00,{1000 + h},{200 if h == 5 else 1}" for h in range(24)]
    path.write_text("\n".join(["start,big,small", *rows]))
    refused(r"line 7: the reading 200 of 'small'", path, column="sum", unit="kW")
    series = read_meter(path, column="sum", unit="kW", spikes="missing")
    assert series.missing == 1 and series.gaps[0].reason == "spike" and series.kw[0] == 1001


def test_midnight_with_the_date_of_the_day_that_ends(file, refused):
    rows = []
    for day in (1, 2, 3):
        rows += [f"2024-07-0{day} {h:02}:00,{day * 100 + h}" for h in range(1, 24)] + [
            f"2024-07-0{day} 00:00,{day * 100 + 24}"
        ]
    for order in (rows, rows[::-1]):
        series = read_meter(file(["interval end,kW", *order]))
        assert series.times[0] == at("2024-07-01T00:00") and series.missing == 0
        np.testing.assert_array_equal(series.kw, [100 * d + h for d in (1, 2, 3) for h in range(1, 25)])
        assert any("3 midnights at the end of a day had the date of that day" in note for note in series.notes)
    refused(r"line 25: 00:00 stands after the last interval of its date.*stamp='end'", ["interval start,kW", *rows])


@pytest.mark.parametrize("days, name", [(1, "daily"), (7, "weekly"), (30, "monthly")])
def test_days_and_months_are_refused_by_name(refused, days, name):
    rows = [f"{t:%Y-%m-%d},{i + 1}" for i, t in enumerate(ticks("2024-01-01", 12, 1440 * days))]
    refused(f"the readings are {name} .*export readings of an hour or less", ["start,kWh", *rows])
