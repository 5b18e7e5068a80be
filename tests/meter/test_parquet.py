"""Parquet files."""

from __future__ import annotations

import importlib
import sys

import numpy as np
import pytest
from meter_files import NAN, write_parquet

from dp_ensemble_env.meter import meter_columns, read_meter
from dp_ensemble_env.meter.origin import MOST

TIMES = np.array(["2024-07-01T00:00", "2024-07-01T00:30", "2024-07-01T01:30"], dtype="datetime64[ms]")


def test_parquet(reads, refused, tmp_path):
    path = write_parquet(tmp_path / "m.parquet", start=TIMES, a_kwh=[1.0, None, 3.0], b_kwh=[10, 20, 30])
    assert meter_columns(path) == ["a_kwh", "b_kwh"]
    reads([2, NAN, NAN, 6], path, column="a_kwh")
    reads([22, NAN, NAN, 66], path, column="sum")
    path = write_parquet(tmp_path / "n.parquet", end=[str(t) for t in TIMES], kw=[1.0, -2.0, 3.0])
    refused(r"n.parquet, row 2: the reading -2", path)


def test_parquet_time_zones(refused, tmp_path):
    pyarrow = importlib.import_module("pyarrow")
    for zone, argument, first in [
        ("America/New_York", None, "2024-06-30T20:00:00"),
        ("UTC", "America/New_York", "2024-06-30T20:00:00"),
        ("UTC", "UTC", "2024-07-01T00:00:00"),
    ]:
        stamps = pyarrow.array(TIMES, type=pyarrow.timestamp("ms", zone))
        path = write_parquet(tmp_path / "z.parquet", start=stamps, kw=[1.0, 2.0, 3.0])
        assert read_meter(path, timezone=argument).times[0] == np.datetime64(first)
    refused("in UTC; pass timezone=", path)


def test_parquet_refusals(reads, refused, tmp_path, monkeypatch):
    path = write_parquet(tmp_path / "m.parquet", start=[TIMES[0], None, TIMES[2]], kw=[1.0, 2.0, 3.0])
    refused("row 2: the timestamp is empty", path)
    path = write_parquet(tmp_path / "m.parquet", start=[*TIMES[:2], None], kw=[1.0, 2.0, None])
    reads([1.0, 2.0], path)
    refused("no column of timestamps", write_parquet(tmp_path / "m.parquet", kw=[1.0, 2.0]))
    path.write_bytes(b"PAR1 and nothing else")
    refused("m.parquet: the parquet file cannot be read", path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install pyarrow"):
        read_meter(path)


def test_parquet_limits_and_faults(refused, tmp_path, monkeypatch):
    times = np.datetime64("2024-07-01", "ms") + np.arange(100) * np.timedelta64(900_000, "ms")
    path = write_parquet(tmp_path / "m.parquet", start=times, kw=np.ones(100))
    monkeypatch.setitem(MOST, "readings", 50)
    refused("m.parquet: the file has more than 50 readings", path)
    monkeypatch.setitem(MOST, "bytes once unpacked", 500)
    refused("more than 1,000 bytes once unpacked", path, limits=2)
    assert len(read_meter(path, limits=50)) == 100
    monkeypatch.undo()
    path = write_parquet(tmp_path / "i.parquet", start=times[:3], kw=[1.0, np.inf, 2.0])
    refused("i.parquet, row 2: cannot read 'inf' in column 'kw' as a number", path)
    pyarrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    columns = [pyarrow.array(times[:2]), pyarrow.array([1.0, 2.0]), pyarrow.array([3.0, 4.0])]
    parquet.write_table(pyarrow.Table.from_arrays(columns, names=["start", "kw", "kw"]), tmp_path / "d.parquet")
    refused("d.parquet: several columns are called 'kw'; give them different names", tmp_path / "d.parquet")
