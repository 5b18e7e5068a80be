"""Meter files: the text formats, their conventions and what is refused at the door."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dp_ensemble_env.meter import Gap, meter_columns, read_meter

NAN = float("nan")


@pytest.fixture
def file(tmp_path):
    """Write a small file and return its path."""

    def write(content, name="meter.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def stamps(series):
    return [str(t).replace("T", " ")[:16] for t in series.times]


def test_plain_csv_gives_values_times_and_step(file):
    series = read_meter(file("start,power_kw\n2024-07-01 00:00,100\n2024-07-01 00:15,110.5\n2024-07-01 00:30,90\n"))
    np.testing.assert_array_equal(series.kw, [100, 110.5, 90])
    assert stamps(series) == ["2024-07-01 00:00", "2024-07-01 00:15", "2024-07-01 00:30"]
    assert series.times.dtype == np.dtype("datetime64[s]") and series.step == np.timedelta64(900, "s")
    assert (len(series), series.missing, series.gaps, series.notes) == (3, 0, (), ())
    assert series.source == "meter.csv"
    assert not series.kw.flags.writeable and not series.times.flags.writeable


@pytest.mark.parametrize("unit, factor", [("kW", 1), ("W", 1e-3), ("MW", 1e3), ("kWh", 4), ("Wh", 4e-3), ("MWh", 4e3)])
def test_units_become_kw_with_the_step(file, unit, factor):
    series = read_meter(file("start,x\n2024-07-01 00:00,2\n2024-07-01 00:15,3\n"), unit=unit)
    np.testing.assert_allclose(series.kw, [2 * factor, 3 * factor], rtol=1e-15)


@pytest.mark.parametrize(
    "header, value",
    [
        ("kWh", 4.0),
        ("usage (kWh)", 4.0),
        ("power_kw", 1.0),
        ("EnergyKWh", 4.0),
        ("Energy [Wh]", 4e-3),
        ("P (W)", 1e-3),
        ("demand MW", 1e3),
        ("power_w", 1e-3),
    ],
)
def test_header_states_the_unit(file, header, value):
    series = read_meter(file(f"start,{header}\n2024-07-01 00:00,1\n2024-07-01 00:15,1\n"))
    np.testing.assert_allclose(series.kw, [value, value], rtol=1e-15)


@pytest.mark.parametrize(
    "header, first",
    [
        ("interval start", "01:00"),
        ("start_time", "01:00"),
        ("Hour Ending", "00:00"),
        ("period_end", "00:00"),
        ("interval end", "00:00"),
    ],
)
def test_header_states_the_stamp(file, header, first):
    series = read_meter(file(f"{header},kW\n2024-07-01 01:00,1\n2024-07-01 02:00,2\n"))
    assert stamps(series)[0] == f"2024-07-01 {first}"
    np.testing.assert_array_equal(series.kw, [1, 2])


def test_unknown_unit_and_stamp_are_refused_with_the_arguments_to_pass(file):
    path = file("timestamp,reading\n2024-07-01 00:00,1\n2024-07-01 01:00,2\n")
    with pytest.raises(ValueError, match=r"unit of 'reading' nor .*start or the end.*pass unit=.*and stamp="):
        read_meter(path)
    with pytest.raises(ValueError, match="start or the end of its interval; pass stamp="):
        read_meter(path, unit="kWh")
    with pytest.raises(ValueError, match="unit of 'reading'; pass unit="):
        read_meter(path, stamp="start")
    np.testing.assert_array_equal(read_meter(path, unit="kWh", stamp="start").kw, [1, 2])


def test_a_unit_that_contradicts_the_header_is_refused(file):
    path = file("start,use_kWh\n2024-07-01 00:00,1\n2024-07-01 00:30,2\n")
    sentence = (
        "meter.csv: the file states that 'use_kWh' is in kWh, which unit='kW' contradicts; leave unit out, or correct "
        "the file if it is wrong."
    )
    with pytest.raises(ValueError) as refusal:
        read_meter(path, unit="kW")
    assert str(refusal.value) == sentence
    for unit in ("kWh", "kwh", "KWH"):
        np.testing.assert_array_equal(read_meter(path, unit=unit).kw, [2, 4])
    with pytest.raises(ValueError, match="'b_kWh' is in kWh, which unit='kW'"):
        read_meter(file("start,a,b_kWh\n2024-07-01 00:00,1,1\n2024-07-01 00:30,2,2\n"), column="sum", unit="kW")
    with pytest.raises(ValueError, match="unknown unit 'hp'"):
        read_meter(path, unit="hp")


def test_what_a_format_takes_for_granted_may_be_changed_and_is_noted(file):
    series = read_meter(file("DateTime,RealPower\n7/1/2024 0:00,1\n7/1/2024 0:30,2\n"), unit="MW", stamp="end")
    np.testing.assert_array_equal(series.kw, [1000, 2000])
    assert stamps(series)[0] == "2024-06-30 23:30"
    assert "By its format or header the file has unit 'kW'; 'MW' was used, as asked." in series.notes
    assert "By its format or header the file has stamp 'start'; 'end' was used, as asked." in series.notes


def test_gaps_are_noted(file):
    rows = "2024-07-01 00:00,1\n2024-07-01 01:00,\n2024-07-01 02:00,3\n2024-07-01 05:00,4\n2024-07-01 06:00,5\n"
    assert read_meter(file(f"start,kW\n{rows}")).notes == (
        "3 intervals without a reading, in 2 gaps; nothing was filled in. The longest gap, 2 intervals, starts at "
        "2024-07-01 03:00:00.",
    )


WIDE = "timestamp,a,b,c,temperature\n2024-07-01 00:00,1,10,100,20\n2024-07-01 01:00,2,,200,21\n"


def test_wide_file_needs_a_column_and_lists_them(file):
    path = file(WIDE)
    assert meter_columns(path) == ["a", "b", "c"]
    with pytest.raises(ValueError, match="pass column=.*'a', 'b', 'c', 'temperature'"):
        read_meter(path, unit="kW", stamp="start")
    with pytest.raises(ValueError, match="unknown column of meter.csv 'd'.*choose one of 'a', 'b', 'c'"):
        read_meter(path, column="d", unit="kW", stamp="start")
    with pytest.raises(ValueError, match="each once"):
        read_meter(path, column=["a", "a"], unit="kW", stamp="start")


@pytest.mark.parametrize("column, kw", [("b", [10, NAN]), (["a", "c"], [101, 202]), ("sum", [111, NAN])])
def test_wide_file_columns_are_chosen_and_added(file, column, kw):
    series = read_meter(file(WIDE), column=column, unit="kW", stamp="start")
    np.testing.assert_array_equal(series.kw, kw)
    if column == "sum":
        assert "Left out of the sum, by their names: 'temperature'." in series.notes
        assert "Added up 3 columns; the sum is missing where one of them is." in series.notes


def test_the_only_column_with_a_unit_is_taken(file):
    series = read_meter(file("start,kwh,temp\n2024-07-01 00:00,1,20\n2024-07-01 01:00,2,21\n"))
    np.testing.assert_array_equal(series.kw, [1, 2])
    assert "the only load whose name states a unit" in series.notes[0]


def test_columns_of_different_units_are_not_added(file):
    path = file("start,a_kw,b_kwh\n2024-07-01 00:00,1,20\n2024-07-01 01:00,2,21\n")
    with pytest.raises(ValueError, match=r"different units \(kW, kWh\)"):
        read_meter(path, column="sum")


def test_buildings_may_have_numbers_for_names(file):
    path = file("timestamp,101,102\n2024-07-01 00:00,1,2\n2024-07-01 01:00,3,4\n")
    np.testing.assert_array_equal(read_meter(path, column="102", unit="kW", stamp="start").kw, [2, 4])


def test_file_without_header(file):
    path = file("2024-07-01 00:00,1\n2024-07-01 01:00,3\n")
    assert meter_columns(path) == ["column 2"]
    np.testing.assert_array_equal(read_meter(path, unit="kW", stamp="start").kw, [1, 3])


def test_date_and_time_in_two_columns(file):
    series = read_meter(file("date,time,kWh\n7/1/2024,0:00,1\n7/1/2024,0:30,3\n"), stamp="start")
    np.testing.assert_array_equal(series.kw, [2, 6])


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_delimiters_and_line_ends(file, delimiter, end):
    rows = [["start", "kW"], ["2024-07-01 00:00", "1.5"], ["2024-07-01 01:00", "2.5"]]
    series = read_meter(file(end.join(delimiter.join(row) for row in rows)))
    np.testing.assert_array_equal(series.kw, [1.5, 2.5])


@pytest.mark.parametrize(
    "delimiter, cells, kw",
    [
        (";", ("1.234,5", "7,25"), [1234.5, 7.25]),
        (";", ("1,234.5", "7.25"), [1234.5, 7.25]),
        (";", ("1234,5", "7"), [1234.5, 7]),
        (",", ('"1,234.50"', "7.25"), [1234.5, 7.25]),
        (",", ('"1,5"', '"7,25"'), [1.5, 7.25]),
        ("\t", ("1 234.5", "7.25"), [1234.5, 7.25]),
        ("|", ("1\u202f234,5", "7,25"), [1234.5, 7.25]),
        (",", ("1e2", " +7.25 "), [100, 7.25]),
    ],
)
def test_decimal_commas_and_thousands(file, delimiter, cells, kw):
    text = f"start{delimiter}kW\n" + "".join(f"2024-07-01 0{i}:00{delimiter}{c}\n" for i, c in enumerate(cells))
    np.testing.assert_array_equal(read_meter(file(text), spikes="keep").kw, kw)


def test_decimal_argument_settles_an_ambiguous_comma(file):
    path = file("start;kW\n2024-07-01 00:00;1,234\n2024-07-01 01:00;2,345\n")
    np.testing.assert_array_equal(read_meter(path).kw, [1.234, 2.345])
    np.testing.assert_array_equal(read_meter(path, decimal=".").kw, [1234, 2345])


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_encodings(file, encoding):
    series = read_meter(file("start,Gebäude (kW)\n2024-07-01 00:00,1\n2024-07-01 01:00,2\n".encode(encoding)))
    np.testing.assert_array_equal(series.kw, [1, 2])


def test_quoted_cells_that_run_over_lines_keep_line_numbers_right(file):
    text = 'start,kW,note\n"2024-07-01 00:00","1","two\nlines"\n2024-07-01 01:00,oops,\n'
    with pytest.raises(ValueError, match=r"meter.csv, line 4: cannot read 'oops' in column 'kW'"):
        read_meter(file(text))


def test_files_longer_than_one_chunk(file, monkeypatch):
    monkeypatch.setattr("dp_ensemble_env.meter.formats.text._CHUNK", 3)
    rows = [f'2024-07-01 {h:02}:00,{h + 1},"a\nb"' for h in range(10)]
    np.testing.assert_array_equal(read_meter(file("\n".join(["start,kW,note", *rows]))).kw, np.arange(1, 11))
    rows[8] = rows[8].replace(",9,", ",x,")
    with pytest.raises(ValueError, match="line 18: cannot read 'x'"):
        read_meter(file("\n".join(["start,kW,note", *rows])))
    with pytest.raises(ValueError, match="line 7: cannot read 'x'"):
        read_meter(file("start,kW\n\n2024-07-01 00:00,1\n2024-07-01 01:00,2\n,\n\n2024-07-01 02:00,x\n"))


@pytest.mark.parametrize(
    "first, second",
    [
        ("2024-07-13T00:45:00", "2024-07-13T01:00:00.000"),
        ("2024/07/13 00:45", "2024/07/13 01:00"),
        ("7/13/2024 0:45", "7/13/2024 1:00"),
        ("07/13/24 12:45 AM", "07/13/24 1:00 AM"),
        ("13.07.2024 00:45", "13.07.2024 01:00"),
        ("13/7/2024 0:45:00", "13/7/2024 1:00:00"),
        ("2024-07-13T00:45:00-04:00", "2024-07-13T01:00:00-0400"),
    ],
)
def test_timestamp_layouts(file, first, second):
    series = read_meter(file(f"start;kW\n{first};1\n{second};2\n"))
    assert stamps(series) == ["2024-07-13 00:45", "2024-07-13 01:00"]


def test_noon_midnight_and_hour_24(file):
    series = read_meter(file("end,kW\n1/31/2024 12:00 PM,1\n2/1/2024 12:00 AM,2\n"))
    assert stamps(series) == ["2024-01-31 00:00", "2024-01-31 12:00"]
    series = read_meter(file("end;kW\n31.12.2024 23:45;1\n31.12.2024 24:00;2\n"))
    assert stamps(series) == ["2024-12-31 23:30", "2024-12-31 23:45"]


def test_day_and_month_order(file):
    text = "start,kW\n1/2/2024 0:00,1\n1/2/2024 1:00,2\n"
    series = read_meter(file(text))
    assert stamps(series)[0] == "2024-01-02 00:00"
    assert any("month/day/year" in note for note in series.notes)
    assert stamps(read_meter(file(text), date_order="dmy"))[0] == "2024-02-01 00:00"
    decided = read_meter(file("start,kW\n12/1/2024 23:00,1\n13/1/2024 0:00,2\n"))
    assert stamps(decided) == ["2024-01-12 23:00", "2024-01-13 00:00"] and decided.notes == ()
    dotted = read_meter(file("start;kW\n01.02.2024 00:00;1\n01.02.2024 01:00;2\n"))
    assert stamps(dotted)[0] == "2024-02-01 00:00" and "day.month.year" in dotted.notes[0]
    with pytest.raises(ValueError, match=r"lines 2 and 3"):
        read_meter(file("start,kW\n13/1/2024 0:00,1\n1/13/2024 1:00,2\n"))


def test_utc_stamps_need_a_time_zone(file):
    path = file("start,kW\n2024-07-01T04:00:00Z,1\n2024-07-01T05:00:00Z,2\n")
    with pytest.raises(ValueError, match="in UTC; pass timezone="):
        read_meter(path)
    assert stamps(read_meter(path, timezone="UTC"))[0] == "2024-07-01 04:00"
    assert stamps(read_meter(path, timezone="America/New_York"))[0] == "2024-07-01 00:00"
    with pytest.raises(ValueError, match="unknown timezone 'Mars'"):
        read_meter(path, timezone="Mars")
    with pytest.raises(ValueError, match="line 3: some timestamps state an offset"):
        read_meter(file("start,kW\n2024-07-01T04:00:00Z,1\n2024-07-01T05:00:00,2\n"))


OPOWER = """Name,A PERSON
Address,"1 MAIN ST, NEW YORK NY"
Account Number,123456789
Service,Service 1

TYPE,DATE,START TIME,END TIME,USAGE,UNITS,COST,NOTES
Electric usage,2018-01-01,00:00,00:14,1.5,kWh,$0.30,
Electric usage,2018-01-01,00:15,00:29,2.5,kWh,$0.50,
Electric usage,2018-01-01,00:45,00:59,0.5,kWh,$0.10,
"""


def test_opower(file):
    series = read_meter(file(OPOWER))
    np.testing.assert_array_equal(series.kw, [6, 10, NAN, 2])
    assert stamps(series)[0] == "2018-01-01 00:00"
    gap = Gap(np.datetime64("2018-01-01T00:30:00"), np.datetime64("2018-01-01T00:45:00"), 1, "missing")
    assert series.gaps == (gap,)


def test_opower_with_the_unit_in_the_header(file):
    text = "TYPE,DATE,START TIME,END TIME,USAGE (kWh),COST,NOTES\n"
    text += "".join(f"Electric usage,2018-01-01,{h:02}:00,{h:02}:59,{h + 1},$1\n" for h in range(3))
    np.testing.assert_array_equal(read_meter(file(text)).kw, [1, 2, 3])


def test_opower_column_may_be_chosen(file):
    text = "TYPE,DATE,START TIME,END TIME,IMPORT (kWh),EXPORT (kWh),NOTES\n"
    text += "".join(f"Electric usage,2018-01-01,{h:02}:00,{h:02}:59,{h + 1},{h + 5},\n" for h in range(3))
    np.testing.assert_array_equal(read_meter(file(text)).kw, [1, 2, 3])
    np.testing.assert_array_equal(read_meter(file(text), column="EXPORT (kWh)").kw, [5, 6, 7])


def test_opower_refuses_gas_and_odd_intervals(file):
    with pytest.raises(ValueError, match=r"line 8: the unit is 'therms'"):
        read_meter(file(OPOWER.replace("2.5,kWh", "2.5,therms")))
    with pytest.raises(ValueError, match=r"line 8: the interval lasts 30 minutes where most last 15"):
        read_meter(file(OPOWER.replace("00:15,00:29", "00:15,00:44")))


CONEDISON = """account,date_time,consumption,avg_demand
7,01/01/2018 12:15:00 AM,1.5,6.01
7,01/01/2018 12:30:00 AM,2.5,10.02
7,01/01/2018 12:45:00 AM,2.0,8.00
"""


def test_con_edison_interval_export(file):
    series = read_meter(file(CONEDISON))
    np.testing.assert_array_equal(series.kw, [6, 10, 8])
    assert stamps(series) == ["2018-01-01 00:00", "2018-01-01 00:15", "2018-01-01 00:30"]
    assert "Timestamps mark the end of the interval; they were moved back by 15 minutes." in series.notes
    np.testing.assert_array_equal(read_meter(file(CONEDISON), column="avg_demand").kw, [6.01, 10.02, 8])


def test_campus_scada_newest_first_with_a_repeated_hour(file):
    text = "DateTime,RealPower,ReactivePower\n"
    text += "11/5/2017 2:00,5,1\n11/5/2017 1:30,4,1\n11/5/2017 1:00,6,1\n"
    text += "11/5/2017 1:30,8,1\n11/5/2017 1:00,2,1\n11/5/2017 0:30,3,1\n"
    series = read_meter(file(text))
    np.testing.assert_array_equal(series.kw, [3, 4, 6, 5])
    assert stamps(series)[0] == "2017-11-05 00:30"
    assert "The file is newest first; it was turned round." in series.notes
    assert not any("not in order" in note for note in series.notes)


BAD = {
    "empty": ("", "the file is empty"),
    "blank": ("\n \n", "the file is empty"),
    "header only": ("start,kW\n", "one line and no readings"),
    "one row": ("start,kW\n2024-07-01 00:00,1\n", "holds 1 reading, and a series needs two"),
    "one stamp": ("start,kW\n2024-07-01 00:00,1\n2024-07-01 00:00,1\n", "all readings carry one timestamp"),
    "binary": (bytes(range(256)), "this is a binary file"),
    "workbook": (b"PK\x03\x04rest", "Excel workbook"),
    "false utf-16": (b"\xff\xfea", "UTF-16"),
    "prose": ("Dear reader,\nthere are no readings here,\n", "no column of timestamps"),
    "bad stamp": ("start,kW\n2024-07-01 00:00,1\n2024-07-01 0x:00,1\n", r"line 3: cannot read '2024-07-01 0x:00'"),
    "bad first stamp": ("start,kW\nsoon,1\n2024-07-01 00:00,1\n", r"line 2: cannot read 'soon' as a timestamp"),
    "no stamp": ("start,kW\n2024-07-01 00:00,1\n,1\n", r"line 3: the timestamp is empty"),
    "foreign stamp": ("start,kW\n2024-07-01 00:00,1\n2024-07-01 ٠0:00,1\n", r"line 3: cannot read"),
    "no such day": ("start,kW\n2024-02-28 00:00,1\n2024-02-30 00:00,1\n", r"line 3: '2024-02-30 00:00' is not a time"),
    "no such hour": ("start,kW\n2024-02-28 00:00,1\n2024-02-28 25:00,1\n", r"line 3: .* is not a time"),
    "bad number": ("start,kW\n2024-07-01 00:00,1\n2024-07-01 01:00,1.2.3\n", r"line 3: cannot read '1.2.3' in column"),
    "infinite": ("start,kW\n2024-07-01 00:00,1\n2024-07-01 01:00,inf\n", r"line 3: cannot read 'inf'"),
    "underscore": ("start,kW\n2024-07-01 00:00,1\n2024-07-01 01:00,1_0\n", r"line 3: cannot read '1_0'"),
    "too many cells": ("start,kW\n2024-07-01 00:00,1\n2024-07-01 01:00,1,5\n", r"line 3: the row has 3 cells"),
    "too few cells": ("start,kW\n2024-07-01 00:00,1\n2024-07-01 01:00\n", r"line 3: the row has 1 cells"),
    "footer": ("start,kW\n2024-07-01 00:00,1\n2024-07-01 01:00,2\nTotal,3\n", r"line 4: cannot read 'Total'"),
    "open quote": ('start,kW\n2024-07-01 00:00,1\n2024-07-01 01:00,"' + "1\n" * 80, r"line 3: the cell .* is 160 char"),
    "far apart": (
        "start,kW\n1950-01-01 00:00:00,1\n1950-01-01 00:00:01,1\n2024-01-01 00:00:00,1\n",
        r"line 4: 3 readings are spread over",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused_in_one_sentence(file, name):
    content, message = BAD[name]
    with pytest.raises(ValueError, match=message) as caught:
        read_meter(file(content), unit="kW", stamp="start")
    assert str(caught.value).startswith("meter.csv") and "\n" not in str(caught.value)


def test_paths_that_are_no_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_meter(tmp_path / "absent.csv")
    with pytest.raises(ValueError, match="is a folder"):
        read_meter(tmp_path)
    with pytest.raises(ValueError, match="path must be the name of a file"):
        read_meter(7)


@pytest.mark.parametrize(
    "argument, value",
    [("format", "xls"), ("unit", "kVA"), ("stamp", "middle"), ("spikes", "drop"), ("date_order", "ymd"), ("zeros", 0)],
)
def test_unknown_options_are_refused(file, argument, value):
    with pytest.raises(ValueError, match=f"unknown {argument}"):
        read_meter(file(WIDE), **{argument: value})


def test_format_that_the_file_does_not_have(file):
    with pytest.raises(ValueError, match="not of format 'nem12'; pass format='auto'"):
        read_meter(file(WIDE), format="nem12")


def test_importing_the_module_needs_no_optional_package():
    code = (
        "import sys, dp_ensemble_env.meter; print(*[m for m in ('pandas', 'pyarrow', 'simbench') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


SAMPLES = {
    0: ({}, [3702, 4104]),
    1: ({"column": "library", "unit": "kWh", "stamp": "start"}, [103.2, 108.9]),
    2: ({}, [6, 10]),
    3: ({}, [6, 10]),
    4: ({}, [5098.7, 5120.4]),
    5: ({}, [925.5, 1026.0]),
    6: ({"meter_id": "sum", "stamp": "start"}, [30, 32]),
}


@pytest.mark.parametrize("number", SAMPLES)
def test_the_samples_of_the_manual_can_be_read(file, number):
    page = Path(__file__).parents[2] / "docs" / "meter_data.md"
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    samples = [text for language, text in blocks if not language]
    assert len(samples) == len(SAMPLES)
    arguments, kw = SAMPLES[number]
    np.testing.assert_allclose(read_meter(file(samples[number]), **arguments).kw, kw, rtol=1e-12)


LAYOUTS = {
    "iso": ("%Y-%m-%d %H:%M:%S", ",", "."),
    "german": ("%d.%m.%Y %H:%M", ";", ","),
    "american": ("%m/%d/%Y %I:%M:%S %p", "\t", "."),
    "pipes": ("%Y/%m/%dT%H:%M", "|", "."),
}
READING = st.one_of(st.none(), st.floats(0.01, 1e4).map(lambda x: float(f"{x:.6g}")))
ANY_FILE = [HealthCheck.function_scoped_fixture]


@settings(max_examples=80, deadline=None, suppress_health_check=ANY_FILE)
@given(
    kw=st.lists(READING, min_size=2, max_size=60),
    layout=st.sampled_from(sorted(LAYOUTS)),
    step=st.sampled_from([5, 15, 30, 60]),
    day=st.integers(0, 9000),
    end=st.booleans(),
    reverse=st.booleans(),
)
def test_a_series_written_in_any_layout_is_read_back(tmp_path, kw, layout, step, day, end, reverse):
    pattern, delimiter, decimal = LAYOUTS[layout]
    first = datetime(2001, 1, 1) + timedelta(days=day)
    times = [first + timedelta(minutes=step * i) for i in range(len(kw))]
    rows = []
    for time, value in zip(times, kw, strict=True):
        written = (time + timedelta(minutes=step * end)).strftime(pattern)
        rows.append(written + delimiter + ("" if value is None else repr(value).replace(".", decimal)))
    path = tmp_path / "round.csv"
    path.write_text("\n".join([f"{'end' if end else 'start'}{delimiter}kW", *(rows[::-1] if reverse else rows)]))
    series = read_meter(path, spikes="keep")
    np.testing.assert_array_equal(series.times, np.array(times, dtype="datetime64[s]"))
    np.testing.assert_array_equal(series.kw, [NAN if value is None else value for value in kw])
    assert series.missing == kw.count(None)


@settings(max_examples=200, deadline=None, suppress_health_check=ANY_FILE)
@given(st.binary(max_size=300))
def test_random_bytes_are_refused_with_a_value_error(tmp_path, content):
    path = tmp_path / "random.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="random.csv"):
        read_meter(path, unit="kW", stamp="start")


CELL = st.sampled_from(
    ["2024-07-01 00:00", "7/1/2024", "24:00", "1", "-1", "1,5", '"', "", "NA", "1e9", "kW", "é", "\x1a"]
)


@settings(max_examples=300, deadline=None, suppress_health_check=ANY_FILE)
@given(st.lists(st.lists(CELL, max_size=4), max_size=8), st.sampled_from(",;\t|"))
def test_odd_tables_are_read_or_refused_with_a_value_error(tmp_path, rows, delimiter):
    path = tmp_path / "odd.csv"
    path.write_text("start,kW\n" + "\n".join(delimiter.join(row) for row in rows), encoding="utf-8")
    try:
        series = read_meter(path, unit="kW")
    except ValueError as error:
        assert "\n" not in str(error)
    else:
        assert len(series) >= 1
