"""Delimiters, encodings, numbers."""

from __future__ import annotations

import numpy as np
import pytest
from meter_files import stamps

from dp_ensemble_env.meter import meter_columns, read_meter
from dp_ensemble_env.meter.origin import MOST


def test_columns_without_names_and_dates_beside_times(file):
    path = file("2024-07-01 00:00,1\n2024-07-01 01:00,3\n")
    assert meter_columns(path) == ["column 2"]
    np.testing.assert_array_equal(read_meter(path, unit="kW", stamp="start").kw, [1, 3])
    series = read_meter(file("date,time,kWh\n7/1/2024,0:00,1\n7/1/2024,0:30,3\n"), stamp="start")
    np.testing.assert_array_equal(series.kw, [2, 6])


def test_plain_csv_gives_values_times_and_step(file):
    series = read_meter(file("start,power_kw\n2024-07-01 00:00,100\n2024-07-01 00:15,110.5\n2024-07-01 00:30,90\n"))
    np.testing.assert_array_equal(series.kw, [100, 110.5, 90])
    assert stamps(series) == ["2024-07-01 00:00", "2024-07-01 00:15", "2024-07-01 00:30"]
    assert series.times.dtype == np.dtype("datetime64[s]") and series.step == np.timedelta64(900, "s")
    assert (len(series), series.missing, series.gaps, series.notes) == (3, 0, (), ())
    assert series.source == "meter.csv"
    assert not series.kw.flags.writeable and not series.times.flags.writeable


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


GOOD = "start,kW\n" + "".join(f"2024-07-01 {h:02}:00,{h + 1}\n" for h in range(24))


@pytest.mark.parametrize(
    "what, most, words",
    [
        ("bytes", 100, "more than 100 bytes"),
        ("readings", 10, "more than 10 readings"),
        ("characters in a line", 10, "more than 10 characters in a line"),
    ],
)
def test_text_has_limits_that_can_be_raised(file, monkeypatch, what, most, words):
    monkeypatch.setitem(MOST, what, most)
    path = file(GOOD)
    with pytest.raises(
        ValueError, match=rf"meter.csv: the file has {words}; if that is right, raise all limits with limits=\d"
    ):
        read_meter(path)
    np.testing.assert_array_equal(read_meter(path, limits=100).kw, np.arange(1, 25))
    with pytest.raises(ValueError, match="limits must be a positive"):
        read_meter(path, limits=0)


def test_an_endless_line_is_not_held(file, monkeypatch):
    monkeypatch.setattr("dp_ensemble_env.meter.formats.text._BLOCK", 1000)
    monkeypatch.setitem(MOST, "characters in a line", 5000)
    with pytest.raises(ValueError, match="more than 5,000 characters in a line"):
        read_meter(file("start,kW\n" + "1" * 6000))
    long = "x" * 4500
    text = f"start,kW,note\n2024-07-01 00:00,1,{long}\n2024-07-01 01:00,2,{long}\n"
    np.testing.assert_array_equal(read_meter(file(text)).kw, [1, 2])
