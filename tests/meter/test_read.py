"""From a path to an even series: settings, rules, limits, damaged and foreign files."""

from __future__ import annotations

import importlib
import os
import re
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from helpers import refuses
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from meter_files import NAN, at, autumn, hours, rows, stamps, table, ticks, usage, write_parquet

from dp_ensemble_env.meter import Gap, meter_columns, read_meter, read_meters
from dp_ensemble_env.meter.origin import MOST


# Settings -------------------------------------------------------------------
def test_unknown_and_contradicted_units_and_stamps_are_refused(file, reads, refused):
    path = file(table("timestamp,reading", 1, 2))
    refused(r"unit of 'reading' nor .*start or the end.*pass unit=.*and stamp=", path)
    refused("start or the end of its interval; pass stamp=", path, unit="kWh")
    refused("unit of 'reading'; pass unit=", path, stamp="start")
    reads([1, 2], path, unit="kWh", stamp="start")
    path = file(table("start,use_kWh", 1, 2, minutes=30))
    refused("^meter.csv: the file states that 'use_kWh' is in kWh, which unit='kW' contradicts; leave", path, unit="kW")
    for unit in ("kWh", "kwh", "KWH"):
        reads([2, 4], path, unit=unit)
    refused("'b_kWh' is in kWh, which unit='kW'", table("start,a,b_kWh", "1,1", "2,2"), column="sum", unit="kW")


def test_what_a_format_takes_for_granted_may_be_changed_and_is_noted(reads):
    series = reads([1000, 2000], table("DateTime,RealPower", 1, 2, minutes=30), unit="MW", stamp="end")
    assert stamps(series)[0] == "2024-06-30 23:30"
    assert "By its format or header the file has unit 'kW'; 'MW' was used, as asked." in series.notes
    assert "By its format or header the file has stamp 'start'; 'end' was used, as asked." in series.notes


@pytest.mark.parametrize("settings", [{"unit": "kVA"}, {"stamp": "middle"}, {"spikes": "drop"}, {"date_order": "ymd"},
                                      {"zeros": 0}, {"format": "xls"}])  # fmt: skip
def test_unknown_settings_are_refused(refused, settings):
    refused(f"unknown {next(iter(settings))}", table("start,kW", 1, 2), **settings)
    refused("not of format 'nem12'; pass format='auto'", table("start,kW", 1, 2), format="nem12")


# Rules ----------------------------------------------------------------------
def test_any_order_is_turned_round_or_sorted_and_noted(reads):
    rows = hours("2024-07-01", [1, 2, 3, 4])
    series = reads([1, 2, 3, 4], [rows[0], rows[2], rows[1], rows[3]])
    assert series.notes == ("The rows were not in order of time (1 step back); they were sorted.",)
    assert reads([1, 2, 3, 4], rows[::-1]).notes == ("The file is newest first; it was turned round.",)


def test_missing_rows_and_empty_cells_are_gaps_never_filled(reads):
    rows = hours("2024-07-01", [1, "", "NA", 4, 5, 6, 7])
    del rows[4:6]
    series = reads([1, NAN, NAN, 4, NAN, NAN, 7], rows)
    assert series.gaps == (
        Gap(at("2024-07-01T01:00"), at("2024-07-01T03:00"), 2, "empty"),
        Gap(at("2024-07-01T04:00"), at("2024-07-01T06:00"), 2, "missing"),
    )
    assert series.notes[0].startswith("4 intervals without a reading, in 2 gaps; nothing was filled in.")
    for word in ("n/a", "NaN", "null", "-", "#N/A", "None"):
        reads([1, NAN, 3], hours("2024-07-01", [1, word, 3]))


def test_step_is_the_most_common_difference_and_strays_are_refused(refused):
    rows = hours("2024-07-01", [1, 2, 3, 4])
    refused(r"line 6: 2024-07-01 03:07 does not lie on the 60-minute grid", [*rows, ("2024-07-01 03:07", 5)])
    refused(r"line 2: 2024-06-30 23:59 does not lie on the 60-minute grid", [("2024-06-30 23:59", 5), *rows])


def test_repeats_that_say_the_same_are_kept_once_and_others_outside_autumn_are_conflicts(reads, refused):
    refused(r"lines 3 and 5 both give 2024-07-07 01:00 but differ \(10 and 20\)", autumn("2024-07-07"))
    refused("lines 3 and 5", autumn("2024-11-02"))  # a Saturday
    refused("lines 3 and 5", autumn("2024-11-03"), timezone="Europe/Berlin")  # Berlin changed the week before
    refused("lines 3 and 5", [*autumn("2024-11-03"), ("2024-11-03 01:00", 7)])  # a third reading
    rows = hours("2024-07-01", [1, 2, 3])
    assert "Dropped 2 repeated readings that said the same." in reads([1, 2, 3], [rows[0], *rows, rows[1]]).notes
    assert reads([1, 2, 3], [rows[0], (rows[1][0], ""), rows[1], rows[2]]).gaps == ()


def test_negative_and_zero_readings(file, reads, refused):
    path = file(hours("2024-07-01", [1, 2, -3, 4]))
    refused(r"line 4: the reading -3 of 'kW' is negative .*negatives='missing'", path)
    missing = reads([1, 2, NAN, 4], path, negatives="missing")
    assert missing.gaps[0].reason == "negative" and missing.notes == ("Made missing: 1 negative reading.",)
    assert reads([1, 2, -3, 4], path, negatives="keep").notes == ("Kept: 1 negative reading.",)
    path = file(hours("2024-07-01", [1, 0, *[0] * 6, 4, 0, 5]))
    kept = read_meter(path)
    assert kept.missing == 0 and kept.notes[0] == "Kept: 8 zero readings."
    assert kept.notes[1].startswith("1 run of zeros longer than 6 hours, possibly outages; the longest, 7 intervals")
    missing = read_meter(path, zeros="missing")
    assert [(gap.intervals, gap.reason) for gap in missing.gaps] == [(7, "zero"), (1, "zero")]
    refused("line 3: the reading 0 of 'kW' is zero", path, zeros="error")
    assert read_meter(file(hours("2024-07-01", [1, *[0] * 6, 4]))).notes == ("Kept: 6 zero readings.",)


def test_spikes(file, refused):
    values = [100 + 10 * (i % 5) for i in range(24)]
    values[7] *= 1000
    path = file(hours("2024-07-01", values))
    refused(r"line 9: the reading 120000 of 'kW' is more than 20 times .* 140 .*spikes=", path)
    missing = read_meter(path, spikes="missing")
    assert missing.gaps == (Gap(at("2024-07-01T07:00"), at("2024-07-01T08:00"), 1, "spike"),)
    assert read_meter(path, spikes="keep").kw[7] == 120000
    # Three of them in a short file do not hide each other.
    path = file(hours("2024-07-01", [5000.0 if i in (3, 9, 15) else 5.0 for i in range(24)]))
    assert [gap.start.item().hour for gap in read_meter(path, spikes="missing").gaps] == [3, 9, 15]
    # Rare big loads of a house are none.
    rng = np.random.default_rng(3)
    values = rng.gamma(2.0, 0.15, 24 * 60)
    values[rng.random(len(values)) < 0.03] += 11.0  # charging a car
    times = at("2024-05-01T00:00") + np.timedelta64(3600, "s") * np.arange(len(values))
    np.testing.assert_allclose(read_meter(file(["start,kW", *rows(times, values)])).kw, values, atol=5e-4)


def test_values_are_judged_column_by_column(file, refused):
    path = file(table("start,big,small", *(f"{1000 + h},{200 if h == 5 else 1}" for h in range(24))))
    refused(r"line 7: the reading 200 of 'small'", path, column="sum", unit="kW")
    series = read_meter(path, column="sum", unit="kW", spikes="missing")
    assert series.missing == 1 and series.gaps[0].reason == "spike" and series.kw[0] == 1001


def test_midnight_with_the_date_of_the_day_that_ends(reads, refused):
    clocks = [f"2024-07-0{day} {hour % 24:02}:00,{day * 100 + hour}" for day in (1, 2, 3) for hour in range(1, 25)]
    for order in (clocks, clocks[::-1]):
        series = reads([100 * d + h for d in (1, 2, 3) for h in range(1, 25)], ["interval end,kW", *order])
        assert series.times[0] == at("2024-07-01T00:00")
        assert any("3 midnights at the end of a day had the date of that day" in note for note in series.notes)
    refused(r"line 25: 00:00 stands after the last interval of its date.*stamp='end'", ["interval start,kW", *clocks])


def test_days_and_months_are_refused_by_name(refused):
    for days, name in ((1, "daily"), (7, "weekly"), (30, "monthly")):
        text = ["start,kWh", *rows(ticks("2024-01-01", 12, 1440 * days), range(1, 13))]
        refused(f"the readings are {name} .*export readings of an hour or less", text)


# Foreign files ----------------------------------------------------------------
HEAD = "start,kW\n2024-07-01 00:00,1\n"
BAD = {
    "empty": ("", "the file is empty"),
    "one row": (HEAD + "", "holds 1 reading, and a series needs two"),
    "one stamp": (HEAD + "2024-07-01 00:00,1\n", "all readings carry one timestamp"),
    "binary": (bytes(range(256)), "this is a binary file"),
    "false utf-16": (b"\xff\xfea", "UTF-16"),
    "bad stamp": (HEAD + "2024-07-01 0x:00,1\n", r"line 3: cannot read '2024-07-01 0x:00'"),
    "no stamp": (HEAD + ",1\n", r"line 3: the timestamp is empty"),
    "foreign stamp": (HEAD + "2024-07-01 ٠0:00,1\n", r"line 3: cannot read"),
    "no such day": ("start,kW\n2024-02-28 00:00,1\n2024-02-30 00:00,1\n", r"line 3: '2024-02-30 00:00' is not a time"),
    "bad number": (HEAD + "2024-07-01 01:00,1.2.3\n", r"line 3: cannot read '1.2.3' in column"),
    "underscore": (HEAD + "2024-07-01 01:00,1_0\n", r"line 3: cannot read '1_0'"),
    "too many cells": (HEAD + "2024-07-01 01:00,1,5\n", r"line 3: the row has 3 cells"),
    "footer": (HEAD + "2024-07-01 01:00,2\nTotal,3\n", r"line 4: cannot read 'Total'"),
    "open quote": (HEAD + '2024-07-01 01:00,"' + "1\n" * 80, r"line 3: the cell .* is 160 char"),
    "far apart": (
        "start,kW\n1950-01-01 00:00:00,1\n1950-01-01 00:00:01,1\n2024-01-01 00:00:00,1\n",
        r"line 4: 3 readings are spread over",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused_in_one_sentence(refused, name):
    content, message = BAD[name]
    refused(f"^meter.csv.*{message}", content, unit="kW", stamp="start")


def test_the_sample_of_the_manual_can_be_read(file):
    page = Path(__file__).parents[2] / "docs" / "meter_guide.md"
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    (sample,) = [text for language, text in blocks if not language]
    series = read_meter(file(sample), meter_id="sum")
    np.testing.assert_allclose(series.kw, [4 * (925.5 + 12.5), 4 * (1026.0 + 14.0)], rtol=1e-12)


LAYOUTS = [
    ("%Y-%m-%d %H:%M:%S", ",", "."),
    ("%d.%m.%Y %H:%M", ";", ","),
    ("%m/%d/%Y %I:%M:%S %p", "\t", "."),
    ("%Y/%m/%dT%H:%M", "|", "."),
]
READING = st.one_of(st.none(), st.floats(0.01, 1e4).map(lambda x: float(f"{x:.6g}")))
ANY_FILE = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@ANY_FILE
@given(
    kw=st.lists(READING, min_size=2, max_size=60).filter(lambda kw: any(value is not None for value in kw)),
    layout=st.sampled_from(LAYOUTS),
    step=st.sampled_from([5, 15, 30, 60]),
    day=st.integers(0, 9000),
    end=st.booleans(),
    reverse=st.booleans(),
)
def test_a_series_written_in_any_layout_is_read_back(reads, kw, layout, step, day, end, reverse):
    pattern, delimiter, decimal = layout
    first = datetime(2001, 1, 1) + timedelta(days=day)
    times = [first + timedelta(minutes=step * i) for i in range(len(kw))]
    rows = []
    for time, value in zip(times, kw, strict=True):
        written = (time + timedelta(minutes=step * end)).strftime(pattern)
        rows.append(written + delimiter + ("" if value is None else repr(value).replace(".", decimal)))
    lines = [f"{'end' if end else 'start'}{delimiter}kW", *(rows[::-1] if reverse else rows)]
    assert reads([NAN if value is None else value for value in kw], lines, spikes="keep").times.tolist() == times


GOOD = table("start,kW", *range(1, 25))


@pytest.mark.parametrize("read", [read_meter, read_meters, meter_columns])
def test_what_is_no_regular_file_is_refused_unopened(tmp_path, read):
    fifo = tmp_path / "pipe.csv"
    os.mkfifo(fifo)
    refuses(r"pipe.csv is a fifo \(named pipe\); give the name of a regular file", read, fifo)
    refuses("/dev/zero is a device", read, "/dev/zero")
    refuses("is a folder; give the name of a file in it", read, tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read(tmp_path / "absent.csv")
    refuses("path must be the name of a file", read, 7)
    fifo.with_name("loop.csv").symlink_to(tmp_path / "loop.csv")
    refuses("symbolic link that leads back to itself", read, tmp_path / "loop.csv")


def test_meters_have_a_limit(file, monkeypatch, reads):
    monkeypatch.setitem(MOST, "meters", 3)
    rows = "".join(f"2024-07-01 00:00,m{i},1\n2024-07-01 01:00,m{i},2\n" for i in range(5))
    refuses("more than 3 meters", read_meters, file("start,meter,kW\n" + rows))
    assert len(read_meters(file("start,meter,kW\n" + rows), limits=2)) == 5
    wide = table("start,b0,b1,b2,b3,b4", *(f"{h},{h + 1},{h + 2},{h + 3},{h + 4}" for h in range(1, 5)))
    refuses("more than 3 meters", read_meters, file(wide), unit="kW")
    reads([1, 2, 3, 4], wide, unit="kW", column="b0")


def samples(folder):
    found = folder / "good"
    if not found.exists():
        found.mkdir()
        times = np.datetime64("2024-07-01", "ms") + np.arange(30) * np.timedelta64(900_000, "ms")
        write_parquet(found / "m.parquet", start=times, a_kw=np.arange(30.0), b_kw=np.ones(30))
        (found / "m.csv").write_text(GOOD)
        days = "Date," + ",".join(f"HE{h:02}" for h in range(1, 25)) + ",kWh unit\n"
        (found / "d.csv").write_text(days + "".join(f"7/{d}/2024," + "1," * 24 + "\n" for d in (1, 2)))
        (found / "l.csv").write_text("Date,Hour,Meter,kWh\n" + "".join(f"7/1/2024,{h},A,{h}\n" for h in range(1, 25)))
        (found / "u.xml").write_text(usage(range(20)))
        nem = "100,NEM12,1,A,B\n200,N1,E1,1,E1,N1,M,kWh,30,\n300,20240701," + "1," * 48 + "A,,,1,\n900\n"
        (found / "n.csv").write_text(nem)
        book = importlib.import_module("openpyxl").Workbook()
        book.active.append(["start", "kW"])
        for i, t in enumerate(times.tolist()):
            book.active.append([t, i])
        book.save(found / "w.xlsx")
    return sorted(found.iterdir())


@settings(ANY_FILE, max_examples=120)
@given(
    which=st.integers(0, 6), cuts=st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=3)), min_size=1, max_size=4)
)
def test_damaged_files_are_read_or_refused_in_one_sentence(tmp_path, file, which, cuts):
    original = samples(tmp_path)[which]
    content = bytearray(original.read_bytes())
    for place, junk in cuts:
        at = int(place * len(content))
        content[at : at + len(junk)] = junk
        if not junk:
            del content[at:]
    path = file(bytes(content), f"damaged{original.suffix}")
    for read in (read_meter, read_meters, lambda path, **_: meter_columns(path)):
        try:
            read(path, unit="kW" if which not in (3, 4) else None, stamp="start")
        except ValueError as error:
            assert "\n" not in str(error) and len(str(error)) < 2000


WORDS = st.sampled_from(
    "1525132800|01-May-2018|2018-05-01|5/1/2018 0:00 to 0:15|HE01|HE24|1|24|25|hour|date|meter|A|1.5||kWh|00:00|24:00|–"
    '|Cumulative kWh|Hour Ending|1e400|0:00 - 0:15|2024-07-01 00:00|-1|1,5|"|NA|é|\x1a'.split("|")
)


@ANY_FILE
@given(st.lists(st.lists(WORDS, min_size=1, max_size=5), min_size=1, max_size=9), st.sampled_from(",;\t|"))
def test_odd_tables_are_read_or_refused_with_a_value_error(file, rows, delimiter):
    path = file([delimiter.join(row) for row in rows])
    for more in ({}, {"timezone": "America/New_York"}, {"meter_id": "A"}, {"column": "sum"}):
        try:
            read_meter(path, unit="kWh", stamp="end", **more)
        except ValueError as error:
            assert "\n" not in str(error)
