"""Tables as CSV: numbers at full precision, nothing that a spreadsheet takes for a formula."""

from __future__ import annotations

import csv
import math

from dp_ensemble_env.reporting.tables import number_text, plain, spreadsheet_safe, write_csv


def test_csv_keeps_precision_and_leaves_out_what_is_not_finite(tmp_path):
    path = write_csv(tmp_path / "t.csv", ("a", "b"), [(1 / 3, math.nan), ("x, y", None)])
    assert list(csv.reader(path.open(newline=""))) == [["a", "b"], [str(1 / 3), ""], ["x, y", ""]]
    assert path.read_bytes().count(b"\r") == 0
    assert write_csv(tmp_path / "empty.csv", (), []).read_bytes() == b""


def test_words_that_begin_like_a_formula_get_an_apostrophe(tmp_path):
    path = write_csv(tmp_path / "t.csv", ("=a",), [("@SUM(A1)",), ("-1e5",), (-2.5,), ("+x",)])
    assert path.read_text().splitlines() == ["'=a", "'@SUM(A1)", "-1e5", "-2.5", "'+x"]
    assert spreadsheet_safe("\tx") == "'\tx" and spreadsheet_safe("a-b") == "a-b"


def test_numbers_for_people_and_for_machines():
    assert [number_text(x, 2) for x in (-0.004, 1234.5, math.nan, -0.006)] == ["0.00", "1,234.50", "–", "-0.01"]
    assert [plain(x) for x in (math.inf, 1.5, "x", None)] == [None, 1.5, "x", None]
