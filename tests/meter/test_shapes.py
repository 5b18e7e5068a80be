"""Meter files: the shapes met in practice, each right or refused with a sentence."""

from __future__ import annotations

import importlib
from datetime import datetime, timedelta

import numpy as np
import pytest

from dp_ensemble_env.meter import Gap, meter_columns, read_meter, read_meters

NAN = float("nan")


@pytest.fixture
def file(tmp_path):
    """Write lines and return the path."""

    def write(lines, name="meter.csv"):
        path = tmp_path / name
        path.write_text(lines if isinstance(lines, str) else "\n".join(lines), encoding="utf-8")
        return path

    return write


def at(text):
    return np.datetime64(text, "s")


def stamps(first, count, minutes):
    return [datetime.fromisoformat(first) + timedelta(minutes=minutes * i) for i in range(count)]


def daily_shape(times):
    """A load with a daily cycle, in kWh per hour of the clock."""
    hours = np.array([t.hour + t.minute / 60 for t in times])
    return np.round(10 + 5 * np.sin((hours - 8) / 24 * 2 * np.pi), 3)


# Readings that carry more than their interval --------------------------------


def with_catch_up(first="2024-07-01", gap=24):
    """Quarter hours with six hours lost, whose energy comes with the next reading."""
    times = stamps(first, 96 * 3, 15)
    values = daily_shape(times) / 4
    lost = slice(120, 120 + gap)
    total = values[120 : 121 + gap].sum()
    values[120 + gap] = total
    rows = [
        f"{t:%Y-%m-%d %H:%M},{v:.6f}"
        for i, (t, v) in enumerate(zip(times, values, strict=True))
        if not 120 <= i < lost.stop
    ]
    return rows, values, total


def test_a_reading_that_carries_a_whole_gap_is_made_missing(file):
    rows, values, _ = with_catch_up()
    series = read_meter(file(["interval start,kWh", *rows]))
    assert np.isnan(series.kw[120:145]).all() and series.missing == 25
    np.testing.assert_allclose(series.kw[:120], values[:120] * 4, atol=1e-5)
    np.testing.assert_allclose(series.kw[145:], values[145:] * 4, atol=1e-5)
    assert [gap.reason for gap in series.gaps] == ["missing", "catch-up"]
    assert any("1 reading beside a gap of 'kWh' carried the energy of the whole gap" in note for note in series.notes)


def test_it_may_be_spread_evenly_or_kept(file):
    rows, values, total = with_catch_up()
    path = file(["interval start,kWh", *rows])
    spread = read_meter(path, catch_up="spread")
    assert spread.missing == 0
    np.testing.assert_allclose(spread.kw[120:145], total / 25 * 4, atol=1e-4)
    np.testing.assert_allclose(spread.kw.sum() / 4, values.sum() - 0 * total, rtol=0.5)
    kept = read_meter(path, catch_up="keep", spikes="keep")
    assert kept.kw[144] == pytest.approx(total * 4, abs=1e-4)


def test_a_gap_without_catch_up_is_left_alone(file):
    times = stamps("2024-07-01", 96 * 3, 15)
    values = daily_shape(times) / 4
    rows = [f"{t:%Y-%m-%d %H:%M},{v}" for i, (t, v) in enumerate(zip(times, values, strict=True)) if not 120 <= i < 144]
    series = read_meter(file(["interval start,kWh", *rows]))
    assert series.missing == 24 and [gap.reason for gap in series.gaps] == ["missing"]
    # Power is not energy: a high kW after a gap is what it says.
    rows, values, _ = with_catch_up()
    assert read_meter(file(["interval start,kW", *rows]), spikes="keep").missing == 24


@pytest.mark.parametrize("timezone", [None, "America/New_York"])
def test_the_repeated_hour_added_up_in_one_interval_is_averaged(file, timezone):
    times = stamps("2023-11-01", 24 * 8, 60)
    values = daily_shape(times)
    night = times.index(datetime(2023, 11, 5, 1))
    true = values[night]
    values[night] *= 2
    series = read_meter(
        file(["interval start,kWh", *(f"{t},{v}" for t, v in zip(times, values, strict=True))]), timezone=timezone
    )
    assert series.kw[night] == pytest.approx(true) and series.missing == 0
    assert any("autumn repeats (2023-11-05 01:00) carried the energy of both passes" in note for note in series.notes)


def test_the_repeated_hour_in_one_quarter_hour(file):
    times = stamps("2023-11-03", 96 * 4, 15)
    values = daily_shape(times) / 4
    night = times.index(datetime(2023, 11, 5, 1, 45))
    values[night] += values[night - 3 : night + 1].sum()
    path = file(["interval start,kWh", *(f"{t},{v}" for t, v in zip(times, values, strict=True))])
    series = read_meter(path, timezone="America/New_York")
    assert series.gaps == (Gap(at("2023-11-05T01:45"), at("2023-11-05T02:00"), 1, "catch-up"),)
    spread = read_meter(path, timezone="America/New_York", catch_up="spread")
    assert spread.kw[night] == pytest.approx(daily_shape(times)[night], rel=0.05)


def test_an_ordinary_autumn_night_is_left_alone(file):
    times = stamps("2023-11-01", 24 * 8, 60)
    path = file(["interval start,kWh", *(f"{t},{v}" for t, v in zip(times, daily_shape(times), strict=True))])
    for timezone in (None, "America/New_York", "Europe/Berlin"):
        series = read_meter(path, timezone=timezone)
        np.testing.assert_array_equal(series.kw, daily_shape(times))
        assert series.notes == ("kWh per interval of 60 minutes were converted to kW.",)


# Registers -------------------------------------------------------------------


def register_rows(first="2024-03-01", count=24 * 15, minutes=60, start=5000.0):
    times = stamps(first, count, minutes)
    energy = daily_shape(times) * minutes / 60
    return times, energy, start + np.concatenate(([0.0], np.cumsum(energy)))[:-1]


@pytest.mark.parametrize("header", ["time,Cumulative kWh", "time,kWh"])
def test_a_register_is_differenced(file, header):
    times, energy, register = register_rows("2024-07-01")
    series = read_meter(file([header, *(f"{t},{v:.3f}" for t, v in zip(times, register, strict=True))]))
    np.testing.assert_allclose(series.kw, energy[:-1], atol=2e-3)
    assert series.times[0] == at("2024-07-01T00:00")
    assert "The values are states of a register; the energy is their differences." in series.notes


def test_a_register_that_ends_is_set_back_or_loses_rows(file):
    times, energy, register = register_rows("2024-07-01", 60, start=99_800.0)
    rolled = register % 100_000
    rows = [f"{t},{v:.3f}" for t, v in zip(times, rolled, strict=True)]
    np.testing.assert_allclose(read_meter(file(["time,register kWh", *rows])).kw, energy[:-1], atol=2e-3)
    fresh = np.where(np.arange(60) < 30, register, register - register[30])
    series = read_meter(file(["time,register kWh", *(f"{t},{v:.3f}" for t, v in zip(times, fresh, strict=True))]))
    assert np.flatnonzero(np.isnan(series.kw)).tolist() == [29]
    assert any("set back 1 time" in note for note in series.notes)
    del rows[10:13]
    lost = file(["time,register kWh", *rows])
    assert np.flatnonzero(np.isnan(read_meter(lost).kw)).tolist() == [9, 10, 11, 12]
    spread = read_meter(lost, catch_up="spread")
    np.testing.assert_allclose(spread.kw[9:13], energy[9:13].mean(), atol=2e-3)


def test_a_register_across_clock_changes(file):
    for first, night, kind in (
        ("2024-03-08", datetime(2024, 3, 10, 2), "skip"),
        ("2024-11-01", datetime(2024, 11, 3, 1), "again"),
    ):
        times, energy, _ = register_rows(first, 24 * 4)
        wall = list(times)
        if kind == "skip":
            wall = [t if t < night else t + timedelta(hours=1) for t in times]
        else:
            wall = [t if t <= night else t - timedelta(hours=1) for t in times]
        register = 100 + np.concatenate(([0.0], np.cumsum(energy)))[:-1]
        path = file(["time,register kWh", *(f"{t},{v:.3f}" for t, v in zip(wall, register, strict=True))])
        for timezone in (None, "America/New_York"):
            series = read_meter(path, timezone=timezone)
            place = {w: i for i, w in enumerate(wall[:-1])}
            at_noon = datetime(night.year, night.month, night.day, 12)
            when = int((at(at_noon.isoformat()) - series.times[0]) / series.step)
            assert series.kw[when] == pytest.approx(energy[place[at_noon]], abs=2e-3)
            assert series.missing == (1 if kind == "skip" else 0)


def test_what_is_no_register_is_not_differenced(file):
    times, energy, register = register_rows("2024-07-01")
    rows = [f"{t},{v:.3f}" for t, v in zip(times, register, strict=True)]
    kept = read_meter(file(["interval start,kWh", *rows]), cumulative="no")
    np.testing.assert_allclose(kept.kw, register, atol=1e-3)
    with pytest.raises(ValueError, match="should be a register, but it falls .* pass cumulative='no'"):
        read_meter(file(["time,Cumulative kWh", *(f"{t},{v}" for t, v in zip(times, energy, strict=True))]))
    with pytest.raises(ValueError, match="a register counts energy, but 'kW' is in kW"):
        read_meter(file(["start,kW", *rows]), cumulative="yes")


# Stamps ------------------------------------------------------------------------


def test_midnight_with_the_date_of_the_day_that_ends(file):
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
    with pytest.raises(ValueError, match=r"line 25: 00:00 stands after the last interval of its date.*stamp='end'"):
        read_meter(file(["interval start,kW", *rows]))


@pytest.mark.parametrize(
    "written",
    [
        "2024-07-13 {a} to 2024-07-13 {b}",
        "7/13/2024 {a} - 7/13/2024 {b}",
        "2024-07-13 {a} to {b}",
        "13-Jul-2024 {a} – {b}",
    ],
)
def test_stamps_with_both_ends(file, written):
    ends = [("00:00", "00:30"), ("00:30", "01:00"), ("02:00", "02:30")]
    series = read_meter(
        file(["interval,kWh", *(f"{written.format(a=a, b=b)},{i + 1}" for i, (a, b) in enumerate(ends))])
    )
    assert series.times[0] == at("2024-07-13T00:00") and series.step == np.timedelta64(1800, "s")
    np.testing.assert_array_equal(series.kw, [2, 4, NAN, NAN, 6])


def test_a_clock_column_with_both_ends(file):
    series = read_meter(file(["Date,Time,kWh", "7/13/2024,0:00 - 0:15,1", "7/13/2024,0:15 - 0:30,2"]))
    np.testing.assert_array_equal(series.kw, [4, 8])


@pytest.mark.parametrize("scale", [1, 1000])
def test_seconds_and_milliseconds_since_1970(file, scale):
    first = 1720000800  # 2024-07-03 10:00 UTC
    path = file(["time,kW", *(f"{(first + 900 * i) * scale},{i + 1}" for i in range(4))])
    with pytest.raises(ValueError, match="in UTC; pass timezone="):
        read_meter(path, stamp="start")
    series = read_meter(path, stamp="start", timezone="America/New_York")
    assert series.times[0] == at("2024-07-03T06:00")
    np.testing.assert_array_equal(series.kw, [1, 2, 3, 4])
    assert meter_columns(path) == ["kW"]


def test_a_number_that_never_changes_is_no_time(file):
    with pytest.raises(ValueError, match="no column of timestamps"):
        read_meter(file(["account,kW", *(f"1234567890,{i}" for i in range(5))]), stamp="start")


@pytest.mark.parametrize("day", ["01-May-2018", "1 May 2018", "May 1, 2018", "01-MAY-18", "01May2018"])
def test_months_by_name(file, day):
    series = read_meter(file(["start;kW", *(f"{day} {h:02}:00;{h + 1}" for h in range(3))]))
    assert series.times[0] == at("2018-05-01T00:00")
    np.testing.assert_array_equal(series.kw, [1, 2, 3])


# Numbered hours ------------------------------------------------------------------


def hour_rows(days, hours, write="{h}"):
    return [f"{day},{write.format(h=h)},{i * 100 + h}" for i, day in enumerate(days) for h in hours]


@pytest.mark.parametrize(
    "header, hours, write",
    [
        ("Date,Hour,kWh", range(1, 25), "{h}"),
        ("Date,Hour Ending,kWh", range(1, 25), "{h:02}"),
        ("Date,HE,kWh", range(1, 25), "HE{h:02}"),
        ("Date,Hour,kWh", range(24), "{h}"),
    ],
)
def test_a_column_of_hours(file, header, hours, write):
    series = read_meter(file([header, *hour_rows(["7/1/2024", "7/2/2024"], hours, write)]), date_order="mdy")
    assert series.times[0] == at("2024-07-01T00:00") and len(series) == 48 and series.missing == 0
    np.testing.assert_array_equal(series.kw, [i * 100 + h for i in range(2) for h in hours])


def test_hours_that_may_begin_or_end_are_refused(file):
    rows = hour_rows(["2024-07-01"], range(8, 18))
    with pytest.raises(ValueError, match="'Hour' has hours from 8 to 17, which may begin or end there; call it"):
        read_meter(file(["Date,Hour,kWh", *rows]))
    assert read_meter(file(["Date,Hour,kWh", *rows]), stamp="end").times[0] == at("2024-07-01T07:00")
    with pytest.raises(ValueError, match=r"line 27: '26' is no number of an interval from 1 to 24"):
        read_meter(file(["Date,Hour,kWh", *hour_rows(["2024-07-01"], [*range(1, 25), 24, 26])]))


DAY_HEADERS = {
    "HE": ",".join(f"HE{h:02}" for h in range(1, 25)),
    "numbers": ",".join(map(str, range(1, 25))),
    "hours": ",".join(f"Hour {h}" for h in range(1, 25)),
    "starts": ",".join(f"{h:02}:00" for h in range(24)),
    "ends": ",".join(f"{h:02}:00" for h in range(1, 25)),
}


@pytest.mark.parametrize("kind", DAY_HEADERS)
def test_a_row_a_day(file, kind):
    rows = [f"2024-07-0{d}," + ",".join(str(100 * d + h) for h in range(24)) for d in (1, 2)]
    series = read_meter(file([f"Date,{DAY_HEADERS[kind]}", *rows]), unit="kWh")
    assert series.times[0] == at("2024-07-01T00:00") and len(series) == 48
    np.testing.assert_array_equal(series.kw, [100 * d + h for d in (1, 2) for h in range(24)])


def test_rows_of_several_meters_and_their_unit(file):
    header = f"Meter,Date,Unit,{DAY_HEADERS['HE']}"
    rows = [f"{m},2024-07-01,kWh," + ",".join(str(k + h) for h in range(24)) for m, k in (("A", 1), ("B", 101))]
    path = file([header, *rows])
    with pytest.raises(ValueError, match=r"column 'Meter' names 2 meters .* pass meter_id= with one name.*'A', 'B'"):
        read_meter(path)
    np.testing.assert_array_equal(read_meter(path, meter_id="B").kw, 101 + np.arange(24))
    np.testing.assert_array_equal(read_meter(path, meter_id="sum").kw, 102 + 2 * np.arange(24))
    assert {name: one.kw[0] for name, one in read_meters(path).items()} == {"A": 1, "B": 101}


def test_days_of_23_and_25_hours_need_the_time_zone(file):
    header = "Date," + ",".join(f"HE{h:02}" for h in range(1, 26))

    def rows(day, hours):
        return f"{day}," + ",".join([*(str(h) for h in range(1, hours + 1)), *[""] * (25 - hours)])

    path = file([header, rows("2024-11-02", 24), rows("2024-11-03", 25), rows("2024-11-04", 24)])
    with pytest.raises(ValueError, match=r"line 3: 2024-11-03 has 25 hours, so clocks changed; pass timezone="):
        read_meter(path, unit="kWh")
    series = read_meter(path, unit="kWh", timezone="America/New_York")
    np.testing.assert_array_equal(series.kw[24:48], [1, 2.5, *range(4, 26)])
    path = file([header, rows("2024-03-09", 24), rows("2024-03-10", 23), rows("2024-03-11", 24)])
    with pytest.raises(ValueError, match=r"2024-03-10 has 23 hours"):
        read_meter(path, unit="kWh")
    series = read_meter(path, unit="kWh", timezone="America/New_York")
    np.testing.assert_array_equal(series.kw[24:48], [1, 2, NAN, *range(3, 24)])


# Several meters, and columns that are none -----------------------------------------


LONG = [
    "timestamp,meter_id,kWh",
    *(f"2024-07-01 {h:02}:00,{m},{k * (h + 1)}" for h in range(6) for m, k in (("101", 1), ("102", 10))),
]


def test_meters_below_each_other_are_told_from_conflicting_repeats(file):
    path = file(LONG)
    with pytest.raises(
        ValueError,
        match=r"'meter_id' names 2 meters with readings at the same times, first on lines 2 and 3; pass meter_id=",
    ):
        read_meter(path, stamp="start")
    np.testing.assert_array_equal(read_meter(path, stamp="start", meter_id="102").kw, 10.0 * np.arange(1, 7))
    np.testing.assert_array_equal(read_meter(path, stamp="start", meter_id="sum").kw, 11.0 * np.arange(1, 7))
    with pytest.raises(ValueError, match="unknown meter_id of meter.csv '103'.*'101', '102'"):
        read_meter(path, stamp="start", meter_id="103")
    with pytest.raises(ValueError, match="no column tells meters apart; leave meter_id out"):
        read_meter(file(["start,kW", "2024-07-01 00:00,1", "2024-07-01 01:00,2"]), meter_id="A")
    # The same stamp twice in one meter is still a conflict.
    with pytest.raises(ValueError, match="lines 2 and 14 both give .* but differ"):
        read_meter(file([*LONG, "2024-07-01 00:00,101,7"]), stamp="start", meter_id="101")


def test_channels_of_one_meter(file):
    rows = [f"2024-07-01 {h:02}:00,{c},{v}" for h in range(4) for c, v in (("import", h + 1), ("export", 9))]
    path = file(["start,channel,kWh", *rows])
    np.testing.assert_array_equal(read_meter(path, meter_id="import").kw, [1, 2, 3, 4])
    with pytest.raises(ValueError, match="'channel' names 2 meters"):
        read_meter(path)


def test_a_meter_that_was_exchanged_is_one_series(file):
    rows = [f"2024-07-01 {h:02}:00,{'old' if h < 3 else 'new'},{h + 1}" for h in range(6)]
    series = read_meter(file(["start,meter,kWh", *rows]))
    np.testing.assert_array_equal(series.kw, range(1, 7))
    assert any("names 2 meters, one after the other" in note for note in series.notes)


def test_a_nameplate_is_not_the_load(file):
    rows = [f"2024-07-01 {h:02}:00,500,{h + 1}" for h in range(5)]
    series = read_meter(file(["start,transformer_kw,reading", *rows]), unit="kWh")
    np.testing.assert_array_equal(series.kw, range(1, 6))
    assert "Not taken for a load, since it holds one value: 'transformer_kw'." in series.notes
    named = read_meter(file(["start,nameplate_kw,load_kw", *rows]))
    np.testing.assert_array_equal(named.kw, range(1, 6))
    asked = read_meter(file(["start,nameplate_kw,load_kw", *rows]), column="nameplate_kw")
    np.testing.assert_array_equal(asked.kw, [500] * 5)
    assert list(read_meters(file(["start,nameplate_kw,a_kw,b_kw", *(f"{r},{i}" for i, r in enumerate(rows))]))) == [
        "a_kw",
        "b_kw",
    ]


@pytest.mark.parametrize("days, name", [(1, "daily"), (7, "weekly"), (30, "monthly")])
def test_days_and_months_are_refused_by_name(file, days, name):
    rows = [f"{t:%Y-%m-%d},{i + 1}" for i, t in enumerate(stamps("2024-01-01", 12, 1440 * days))]
    with pytest.raises(ValueError, match=f"the readings are {name} .*export readings of an hour or less"):
        read_meter(file(["start,kWh", *rows]))


# NEM12 -------------------------------------------------------------------------------


def nem12(*channels):
    lines = ["100,NEM12,202407020800,MDP1,RETAILER"]
    for suffix, unit, values, quality in channels:
        lines.append(f"200,NEM1200001,E1B1,1,{suffix},N1,METER1,{unit},30,20240801")
        for day, scale in (("20240701", 1), ("20240702", 2)):
            lines.append(f"300,{day}," + ",".join(str(v * scale) for v in values) + f",{quality},,,20240702120000,")
    return [*lines, "900"]


def test_nem12(file):
    values = [round(0.5 + 0.01 * i, 2) for i in range(48)]
    path = file(nem12(("E1", "kWh", values, "A"), ("B1", "kWh", [9] * 48, "A")))
    series = read_meter(path)
    np.testing.assert_allclose(series.kw, [2 * v * s for s in (1, 2) for v in values], rtol=1e-12)
    assert series.times[0] == at("2024-07-01T00:00") and series.step == np.timedelta64(1800, "s")
    assert any("'NEM1200001 B1' (meter point NEM1200001, produced, kWh)" in note for note in series.notes)
    assert meter_columns(path) == ["NEM1200001 E1"]
    # Adelaide is half an hour behind market time.
    assert read_meter(path, timezone="Australia/Adelaide").times[0] == at("2024-06-30T23:30")


def test_nem12_channels_and_nulls(file):
    values = list(range(1, 49))
    lines = nem12(("E1", "kWh", values, "V"), ("E2", "kWh", values, "A"), ("Q1", "kvarh", values, "A"))
    lines.insert(3, "400,1,2,N")
    lines.insert(4, "400,3,48,A")
    path = file(lines)
    with pytest.raises(ValueError, match="several meters or channels .*'NEM1200001 E1' .*'NEM1200001 E2'"):
        read_meter(path)
    series = read_meter(path, column="NEM1200001 E1")
    assert np.flatnonzero(np.isnan(series.kw)).tolist() == [0, 1]
    both = read_meter(path, column=["NEM1200001 E1", "NEM1200001 E2"])
    np.testing.assert_array_equal(both.kw[2:4], [12, 16])


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda t: t.replace(",30,2024", ",7,2024"), "line 2: the record 200 does not state its interval"),
        (lambda t: t.replace("300,20240701,1,", "300,20240701,"), "line 3: .* is infinite|no number|readings where 48"),
        (lambda t: t.replace("20240702,2", "20241332,2"), "line 4: '20241332' is not a day"),
        (lambda t: t.replace("300,20240701,1", "300,20240701,x"), "line 3: a reading is no number"),
        (lambda t: t.replace("\n900", "\n999,1"), "'999' is no record of NEM12"),
        (lambda t: "100,NEM12,1,A,B\n300,20240701,1\n", "before any record 200"),
        (lambda t: "100,NEM12,1,A,B\n900\n", "no record 300"),
    ],
)
def test_nem12_refusals(file, change, message):
    text = change("\n".join(nem12(("E1", "kWh", list(range(1, 49)), "A"))))
    with pytest.raises(ValueError, match=message) as caught:
        read_meter(file(text))
    assert "\n" not in str(caught.value)


# Excel -------------------------------------------------------------------------------


def workbook(path, *sheets):
    openpyxl = importlib.import_module("openpyxl")
    book = openpyxl.Workbook()
    book.remove(book.active)
    for title, rows in sheets:
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


def test_excel(tmp_path):
    times = stamps("2024-07-01", 4, 15)
    rows = [["Account", 7], [], ["Interval start", "kWh"], *([t, 1.5 * i] for i, t in enumerate(times))]
    path = workbook(tmp_path / "m.xlsx", ("About", [["a text"]]), ("Data", rows))
    series = read_meter(path)
    np.testing.assert_array_equal(series.kw, [0, 6, 12, 18])
    assert series.times[0] == at("2024-07-01T00:00") and "Sheet 'Data' was read." in series.notes
    assert meter_columns(path) == ["kWh"]
    split = [["Date", "Time", "kW"], *([t.replace(hour=0, minute=0), t.time(), i] for i, t in enumerate(times))]
    np.testing.assert_array_equal(
        read_meter(workbook(tmp_path / "s.xlsx", ("A", split)), stamp="start").kw, [0, 1, 2, 3]
    )


def test_excel_refusals(tmp_path, monkeypatch):
    rows = [["start", "kW"], *([t, i] for i, t in enumerate(stamps("2024-07-01", 3, 15)))]
    with pytest.raises(ValueError, match="several sheets hold readings \\('A', 'B'\\)"):
        read_meter(workbook(tmp_path / "two.xlsx", ("A", rows), ("B", rows)))
    with pytest.raises(ValueError, match=r"bad.xlsx, row 3: cannot read 'x' in column 'kW'"):
        read_meter(workbook(tmp_path / "bad.xlsx", ("A", [*rows[:2], [rows[2][0], "x"], rows[3]])))
    with pytest.raises(ValueError, match="the file holds one line and no readings|no column of timestamps"):
        read_meter(workbook(tmp_path / "none.xlsx", ("A", [["a"], ["b"]])))
    good = workbook(tmp_path / "good.xlsx", ("A", rows))
    (tmp_path / "cut.xlsx").write_bytes(good.read_bytes()[:-200])
    with pytest.raises(ValueError, match="damaged zip archive or Excel workbook"):
        read_meter(tmp_path / "cut.xlsx")
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    with pytest.raises(ImportError, match="needs openpyxl; pip install openpyxl"):
        read_meter(good)
