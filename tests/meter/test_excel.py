"""Excel workbooks."""

from __future__ import annotations

import importlib

import pytest
from meter_files import at, ticks

from dp_ensemble_env.meter import meter_columns, read_meter
from dp_ensemble_env.meter.origin import MOST


def workbook(path, *sheets):
    book = importlib.import_module("openpyxl").Workbook()
    book.remove(book.active)
    for title, rows in sheets:
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


def test_excel(reads, tmp_path):
    times = ticks("2024-07-01", 4, 15)
    rows = [["Account", 7], [], ["Interval start", "kWh"], *([t, 1.5 * i] for i, t in enumerate(times))]
    path = workbook(tmp_path / "m.xlsx", ("About", [["a text"]]), ("Data", rows))
    series = reads([0, 6, 12, 18], path)
    assert series.times[0] == at("2024-07-01T00:00") and "Sheet 'Data' was read." in series.notes
    assert meter_columns(path) == ["kWh"]
    split = [["Date", "Time", "kW"], *([t.replace(hour=0, minute=0), t.time(), i] for i, t in enumerate(times))]
    reads([0, 1, 2, 3], workbook(tmp_path / "s.xlsx", ("A", split)), stamp="start")


def test_excel_refusals(refused, tmp_path, monkeypatch):
    rows = [["start", "kW"], *([t, i] for i, t in enumerate(ticks("2024-07-01", 3, 15)))]
    for words, sheets in (
        (r"several sheets hold readings \('A', 'B'\)", [("A", rows), ("B", rows)]),
        (r"row 3: cannot read 'x' in column 'kW'", [("A", [*rows[:2], [rows[2][0], "x"], rows[3]])]),
        ("no column of timestamps", [("A", [["a"], ["b"]])]),
    ):
        refused(words, workbook(tmp_path / "bad.xlsx", *sheets))
    good = workbook(tmp_path / "good.xlsx", ("A", rows))
    with monkeypatch.context() as patch:
        patch.setitem(MOST, "bytes once unpacked", 100)
        refused("good.xlsx: the file has more than 100 bytes once unpacked", good)
    (tmp_path / "cut.xlsx").write_bytes(good.read_bytes()[:-200])
    refused("damaged zip archive or Excel workbook", tmp_path / "cut.xlsx")
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    with pytest.raises(ImportError, match="needs openpyxl; pip install openpyxl"):
        read_meter(good)
