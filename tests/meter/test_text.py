"""Delimiters, encodings, numbers."""

from __future__ import annotations

import numpy as np
import pytest
from meter_files import stamps, table

from dp_ensemble_env.meter import meter_columns, read_meter
from dp_ensemble_env.meter.origin import MOST


def test_plain_text_gives_values_times_and_step(file, reads):
    series = reads([100, 110.5], "start,power_kw\n2024-07-01 00:00,100\n2024-07-01 00:15,110.5\n")
    assert stamps(series) == ["2024-07-01 00:00", "2024-07-01 00:15"]
    assert series.times.dtype == np.dtype("datetime64[s]") and series.step == np.timedelta64(900, "s")
    assert (len(series), series.missing, series.gaps, series.notes, series.source) == (2, 0, (), (), "meter.csv")
    assert not series.kw.flags.writeable and not series.times.flags.writeable
    path = file("2024-07-01 00:00,1\n2024-07-01 01:00,3\n")
    assert meter_columns(path) == ["column 2"]
    reads([1, 3], path, unit="kW", stamp="start")


@pytest.mark.parametrize("end, encoding", [("\n", "utf-8"), ("\r\n", "utf-8-sig"), ("\r", "utf-16"), ("\n", "latin-1")])
def test_line_ends_and_encodings(reads, end, encoding):
    rows = ["start,Gebäude (kW)", "2024-07-01 00:00,1.5", "2024-07-01 01:00,2.5"]
    reads([1.5, 2.5], end.join(rows).encode(encoding))


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
def test_decimal_commas_and_thousands(reads, delimiter, cells, kw):
    text = f"start{delimiter}kW\n" + "".join(f"2024-07-01 0{i}:00{delimiter}{c}\n" for i, c in enumerate(cells))
    reads(kw, text, spikes="keep")


def test_decimal_argument_settles_an_ambiguous_comma(file, reads):
    path = file("start;kW\n2024-07-01 00:00;1,234\n2024-07-01 01:00;2,345\n")
    reads([1.234, 2.345], path)
    reads([1234, 2345], path, decimal=".")


def test_lines_are_counted_in_files_longer_than_one_chunk(reads, refused, monkeypatch):
    monkeypatch.setattr("dp_ensemble_env.meter.formats.text._CHUNK", 3)
    rows = [f'2024-07-01 {h:02}:00,{h + 1},"a\nb"' for h in range(10)]
    reads(np.arange(1, 11), ["start,kW,note", *rows])
    rows[8] = rows[8].replace(",9,", ",x,")
    refused("meter.csv, line 18: cannot read 'x' in column 'kW'", ["start,kW,note", *rows])
    refused("line 7: cannot read 'x'", "start,kW\n\n2024-07-01 00:00,1\n2024-07-01 01:00,2\n,\n\n2024-07-01 02:00,x\n")


GOOD = table("start,kW", *range(1, 25))


@pytest.mark.parametrize("what, most", [("bytes", 100), ("readings", 10), ("characters in a line", 10)])
def test_text_has_limits_that_can_be_raised_by_the_factor_that_is_named(file, monkeypatch, what, most, reads, refused):
    words = f"more than {most} {what}"
    monkeypatch.setitem(MOST, what, most)
    path = file(GOOD)
    with pytest.raises(ValueError, match=rf"meter.csv: the file has {words}; if that is right, raise") as caught:
        read_meter(path)
    reads(np.arange(1, 25), path, limits=float(str(caught.value).rpartition("limits=")[2].rstrip(".")))
    refused("limits must be a positive", path, limits=0)


def test_an_endless_line_is_not_held(reads, refused, monkeypatch):
    monkeypatch.setattr("dp_ensemble_env.meter.formats.text._BLOCK", 1000)
    monkeypatch.setitem(MOST, "characters in a line", 5000)
    refused("more than 5,000 characters in a line", "start,kW\n" + "1" * 6000)
    long = "x" * 4500
    reads([1, 2], f"start,kW,note\n2024-07-01 00:00,1,{long}\n2024-07-01 01:00,2,{long}\n")
