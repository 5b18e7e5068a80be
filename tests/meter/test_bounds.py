"""Meter files that are no files, too large, or made to do harm; and files damaged at random."""

from __future__ import annotations

import importlib
import os
import socket
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_meter_sources import LOCAL, block, entry, feed, link, reading_type, write_parquet

from dp_ensemble_env.meter import meter_columns, read_meter, read_meters
from dp_ensemble_env.meter.settings import MOST
from dp_ensemble_env.privacy import Fleet

GOOD = "start,kW\n" + "".join(f"2024-07-01 {h:02}:00,{h + 1}\n" for h in range(24))


@pytest.fixture
def file(tmp_path):
    def write(content, name="meter.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


# What is no file -------------------------------------------------------------


@pytest.mark.parametrize("read", [read_meter, read_meters, meter_columns])
def test_what_is_no_regular_file_is_refused_unopened(tmp_path, read):
    fifo = tmp_path / "pipe.csv"
    os.mkfifo(fifo)
    with pytest.raises(ValueError, match=r"pipe.csv is a fifo \(named pipe\); give the name of a regular file"):
        read(fifo)
    with pytest.raises(ValueError, match="/dev/zero is a device"):
        read("/dev/zero")
    with pytest.raises(ValueError, match="is a folder; give the name of a file in it"):
        read(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        with pytest.raises(ValueError, match="is a socket"):
            read(tmp_path / "s")


def test_links_in_a_circle(tmp_path):
    (tmp_path / "a.csv").symlink_to(tmp_path / "b.csv")
    (tmp_path / "b.csv").symlink_to(tmp_path / "a.csv")
    with pytest.raises(ValueError, match="symbolic link that leads back to itself"):
        read_meter(tmp_path / "a.csv")
    with pytest.raises(ValueError, match="symbolic link that leads back to itself"):
        Fleet.read(tmp_path / "a.csv", edges=[0, 1, 2])
    with pytest.raises(ValueError, match="symbolic link that leads back to itself"):
        Fleet.read(tmp_path, edges=[0, 1, 2])
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_meter(tmp_path / "none" / "b.csv")


# Limits ------------------------------------------------------------------------


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


def test_the_factor_that_a_refusal_names_is_enough(file, monkeypatch):
    monkeypatch.setitem(MOST, "bytes", 100)
    with pytest.raises(ValueError) as caught:
        read_meter(file(GOOD))
    factor = float(str(caught.value).rpartition("limits=")[2].rstrip("."))
    assert len(read_meter(file(GOOD), limits=factor)) == 24


def test_an_endless_line_is_not_held(file, monkeypatch):
    monkeypatch.setattr("dp_ensemble_env.meter.formats.text._BLOCK", 1000)
    monkeypatch.setitem(MOST, "characters in a line", 5000)
    with pytest.raises(ValueError, match="more than 5,000 characters in a line"):
        read_meter(file("start,kW\n" + "1" * 6000))
    long = "x" * 4500
    text = f"start,kW,note\n2024-07-01 00:00,1,{long}\n2024-07-01 01:00,2,{long}\n"
    np.testing.assert_array_equal(read_meter(file(text)).kw, [1, 2])


def test_meters_have_a_limit(file, monkeypatch):
    monkeypatch.setitem(MOST, "meters", 3)
    rows = "".join(f"2024-07-01 00:00,m{i},1\n2024-07-01 01:00,m{i},2\n" for i in range(5))
    with pytest.raises(ValueError, match="more than 3 meters"):
        read_meters(file("start,meter,kW\n" + rows))
    assert len(read_meters(file("start,meter,kW\n" + rows), limits=2)) == 5
    wide = "start," + ",".join(f"b{i}" for i in range(5)) + "\n"
    wide += "".join(f"2024-07-01 0{h}:00,{h + 1},{h + 2},{h + 3},{h + 4},{h + 5}\n" for h in range(4))
    with pytest.raises(ValueError, match="more than 3 meters"):
        read_meters(file(wide), unit="kW")
    np.testing.assert_array_equal(read_meter(file(wide), unit="kW", column="b0").kw, [1, 2, 3, 4])


def test_green_button_has_limits(file, monkeypatch):
    text = feed(LOCAL, entry(reading_type()), entry(block([1, 2])), entry(block([3, 4]), link("up", "/other")))
    monkeypatch.setitem(MOST, "meters", 1)
    with pytest.raises(ValueError, match="more than 1 meters"):
        read_meter(file(text, "u.xml"))
    monkeypatch.setitem(MOST, "meters", 10)
    monkeypatch.setitem(MOST, "readings", 3)
    with pytest.raises(ValueError, match="more than 3 readings"):
        read_meter(file(text, "u.xml"))
    monkeypatch.setitem(MOST, "readings", 1000)
    monkeypatch.setitem(MOST, "bytes in one XML token", 100_000)
    for token in ('<feed a="', "<feed><!-- ", "<" + "a" * 10):
        with pytest.raises(ValueError, match="more than 100,000 bytes in one XML token"):
            read_meter(file(token + "x" * 2_000_000, "u.xml"))


def test_green_button_time_grows_with_the_meters_and_not_with_their_square(file):
    def parse(count):
        entries = [LOCAL]
        for i in range(count):
            related = link("related", f"/RT/{i}") + link("related", f"/MR/{i}/IB")
            entries += [
                entry("<MeterReading/>", link("self", f"/MR/{i}") + related, f"m{i}"),
                entry(block([1000, 2000], step=3600), link("up", f"/MR/{i}/IB")),
                entry(reading_type(), link("self", f"/RT/{i}")),
            ]
        path = file(feed(*entries), "many.xml")
        calls = 0

        def count_calls(frame, event, argument):
            nonlocal calls
            calls += event == "call"

        sys.setprofile(count_calls)
        try:
            found = meter_columns(path)
        finally:
            sys.setprofile(None)
        assert len(found) == count
        return calls

    assert parse(400) < 5 * parse(100)


def test_parquet_limits_and_faults(tmp_path, monkeypatch):
    times = np.datetime64("2024-07-01", "ms") + np.arange(100) * np.timedelta64(900_000, "ms")
    path = write_parquet(tmp_path / "m.parquet", start=times, kw=np.ones(100))
    monkeypatch.setitem(MOST, "readings", 50)
    with pytest.raises(ValueError, match="m.parquet: the file has more than 50 readings"):
        read_meter(path)
    monkeypatch.setitem(MOST, "bytes once unpacked", 500)
    with pytest.raises(ValueError, match="more than 1,000 bytes once unpacked"):
        read_meter(path, limits=2)
    assert len(read_meter(path, limits=50)) == 100
    monkeypatch.undo()
    for value in (np.inf, -np.inf):
        path = write_parquet(tmp_path / "i.parquet", start=times[:3], kw=[1.0, value, 2.0])
        with pytest.raises(ValueError, match=rf"i.parquet, row 2: cannot read '{value}' in column 'kw' as a number"):
            read_meter(path)
    pyarrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    columns = [pyarrow.array(times[:2]), pyarrow.array([1.0, 2.0]), pyarrow.array([3.0, 4.0])]
    parquet.write_table(pyarrow.Table.from_arrays(columns, names=["start", "kw", "kw"]), tmp_path / "d.parquet")
    with pytest.raises(ValueError, match="d.parquet: several columns are called 'kw'; give them different names"):
        read_meter(tmp_path / "d.parquet")


def test_a_workbook_that_unpacks_to_too_much(tmp_path, monkeypatch):
    openpyxl = importlib.import_module("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["start", "kW"])
    path = tmp_path / "b.xlsx"
    book.save(path)
    monkeypatch.setitem(MOST, "bytes once unpacked", 100)
    with pytest.raises(ValueError, match="b.xlsx: the file has more than 100 bytes once unpacked"):
        read_meter(path)


# Damage ------------------------------------------------------------------------

ANY = dict(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def samples(folder):
    """One small good file of each kind."""
    found = folder / "good"
    if not found.exists():
        found.mkdir()
        times = np.datetime64("2024-07-01", "ms") + np.arange(30) * np.timedelta64(900_000, "ms")
        write_parquet(found / "m.parquet", start=times, a_kw=np.arange(30.0), b_kw=np.ones(30))
        (found / "m.csv").write_text(GOOD)
        days = "Date," + ",".join(f"HE{h:02}" for h in range(1, 25)) + ",kWh unit\n"
        (found / "d.csv").write_text(days + "".join(f"7/{d}/2024," + "1," * 24 + "\n" for d in (1, 2)))
        (found / "l.csv").write_text("Date,Hour,Meter,kWh\n" + "".join(f"7/1/2024,{h},A,{h}\n" for h in range(1, 25)))
        (found / "u.xml").write_text(feed(LOCAL, entry(reading_type()), entry(block(list(range(20))))))
        nem = "100,NEM12,1,A,B\n200,N1,E1,1,E1,N1,M,kWh,30,\n300,20240701," + "1," * 48 + "A,,,1,\n900\n"
        (found / "n.csv").write_text(nem)
        openpyxl = importlib.import_module("openpyxl")
        book = openpyxl.Workbook()
        book.active.append(["start", "kW"])
        for i, t in enumerate(times.tolist()):
            book.active.append([t, i])
        book.save(found / "w.xlsx")
    return sorted(found.iterdir())


@settings(**ANY)
@given(
    which=st.integers(0, 6), cuts=st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=3)), min_size=1, max_size=4)
)
def test_damaged_files_are_read_or_refused_in_one_sentence(tmp_path, which, cuts):
    original = samples(tmp_path)[which]
    content = bytearray(original.read_bytes())
    for place, junk in cuts:
        at = int(place * len(content))
        content[at : at + len(junk)] = junk
        if not junk:
            del content[at:]
    path = tmp_path / f"damaged{original.suffix}"
    path.write_bytes(bytes(content))
    for read in (read_meter, read_meters, lambda path, **_: meter_columns(path)):
        try:
            read(path, unit="kW" if which not in (3, 4) else None, stamp="start")
        except ValueError as error:
            assert "\n" not in str(error) and len(str(error)) < 2000


WORDS = st.sampled_from(
    [
        "1525132800",
        "01-May-2018",
        "2018-05-01",
        "5/1/2018 0:00 to 0:15",
        "HE01",
        "HE24",
        "1",
        "24",
        "25",
        "hour",
        "date",
    ]
    + ["meter", "A", "1.5", "", "kWh", "00:00", "24:00", "–", "Cumulative kWh", "Hour Ending", "0:00 - 0:15", "1e400"]
)


@settings(**ANY)
@given(st.lists(st.lists(WORDS, min_size=1, max_size=5), min_size=1, max_size=9))
def test_odd_shapes_are_read_or_refused_with_a_value_error(tmp_path, rows):
    path = tmp_path / "odd.csv"
    path.write_text("\n".join(",".join(row) for row in rows), encoding="utf-8")
    for more in ({}, {"timezone": "America/New_York"}, {"meter_id": "A"}, {"column": "sum"}):
        try:
            read_meter(path, unit="kWh", stamp="end", **more)
        except ValueError as error:
            assert "\n" not in str(error)
