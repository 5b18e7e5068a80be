"""Printed tables: within the width, numbers whole, blocks where they are needed."""

import csv
import io
import math
import os
import pty
import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_ensemble_env.reporting.tables import Styled, show_table, show_text, terminal_width, write_csv

HEADINGS = ("controller", "score", "gap, $ per load", "peak, kW", "energy, kWh", "delivered, kWh", "cost, $", "privacy")
ROWS = [
    ("uncontrolled", "0.0", "324.35 ± 12.01", "0", "0", "8,077", "165.35", "nothing is computed"),
    ("average-exact", "98.6 [97.1, 99.4]", "4.68 ± 0.11", "5,364", "37,213,000", "45,290", "112.69",
     "noise-aware, not private: it is computed from the true matrix"),
    ("ppo, price", "-1.3e-15", "9.65", "6,876", "∞", "–", "110.07", "none"),
]  # fmt: skip


def printed(headings, rows, width, title="", **settings):
    stream = io.StringIO()
    show_table(title, headings, rows, width=width, file=stream, **settings)
    return stream.getvalue()


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_lines_fit_and_numbers_are_whole(width):
    text = printed(HEADINGS, ROWS, width, title="A title of quite some length, " * 4, notes=["A note. " * 30])
    assert max(map(len, text.splitlines())) <= width
    for row in ROWS:
        for cell in row[1:-1]:
            assert re.search(rf"(^| ){re.escape(cell)}( |$)", text, re.MULTILINE), cell
    for word in " ".join(row[-1] for row in ROWS).split():
        assert word in text


WORD = st.text("abcdeé", min_size=1, max_size=10)
NUMBER = st.floats(-1e7, 1e7).map(lambda x: f"{x:,.1f}")


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_any_table_fits_80_columns(data):
    count = data.draw(st.integers(1, 12))
    kinds = [data.draw(st.booleans()) for _ in range(count)]
    cell = {True: st.lists(WORD, max_size=12).map(" ".join), False: NUMBER}
    row = st.tuples(*(cell[kind] for kind in kinds))
    rows = data.draw(st.lists(row, max_size=4))
    headings = [f"{i} " + " ".join(data.draw(st.lists(WORD, max_size=4))) for i in range(count)]
    left = [heading for heading, kind in zip(headings, kinds, strict=True) if kind]
    text = printed(headings, rows, 80, left=left, keep=data.draw(st.integers(1, 3)))
    assert max(map(len, text.splitlines())) <= 80
    pieces = text.split()
    for line in rows:
        for content in line:
            assert all(piece in pieces for piece in content.split())


def test_too_wide_a_table_continues_below_with_its_first_column():
    text = printed(HEADINGS, ROWS, 80)
    blocks = text.strip("\n").split("\n\n")
    assert len(blocks) == 2
    for block in blocks:
        assert [line.split("  ")[0] for line in block.splitlines() if line[0] != " "][-3:] == [r[0] for r in ROWS]


def test_wide_terminal_has_one_block_with_one_line_a_row():
    lines = printed(HEADINGS, ROWS, 200).splitlines()
    assert len(lines) == 2 + len(ROWS) + 1 and lines[-1] == ""
    assert re.split(r"\s{2,}", lines[0].strip()) == list(HEADINGS)
    assert re.split(r"\s{2,}", lines[3].strip()) == list(ROWS[1])


def test_words_go_left_and_numbers_right():
    lines = printed(("name", "n"), [("a", "1"), ("bcd", "1,000")], 80).splitlines()
    assert lines == ["name      n", "───────────", "a         1", "bcd   1,000", ""]
    lines = printed(("n", "name"), [("5", "a"), ("10", "b 3")], 80).splitlines()
    assert lines == [" n  name", "────────", " 5  a", "10  b 3", ""]
    # By default "exact" makes a column of words; `left` decides otherwise.
    lines = printed(("name", "error"), [("a", "exact"), ("b", "0.1")], 80, left=("name",)).splitlines()
    assert lines[3] == "b       0.1"


def test_rows_across_and_rules_and_no_headings():
    text = printed(("", ""), [("mean field",), ("score", "1"), (), ("gap", "22")], 80, keep=1)
    assert text.splitlines() == ["mean field", "score   1", "─────────", "gap    22", ""]
    with pytest.raises(ValueError, match="3 cells for 2 headings"):
        printed(("a", "b"), [("1", "2", "3")], 80)


def test_indented_words_wrap_below_themselves():
    text = printed(("claim", "x"), [("  · one two three four five six seven eight nine", "1")], 40)
    assert text.splitlines()[2:4] == ["  · one two three four five six seven  1", "  eight nine"]


def test_wide_characters_count_twice():
    lines = printed(("name", "n"), [("電力", "1"), ("abcd", "2")], 80).splitlines()
    assert lines[2] == "電力  1" and lines[3] == "abcd  2"


def test_long_paths_break_but_stay_complete():
    path = "/home/someone/" + "x" * 90 + "/meter.csv"
    stream = io.StringIO()
    show_text(f"Page: {path}", width=60, file=stream)
    assert max(map(len, stream.getvalue().splitlines())) <= 60
    assert path in stream.getvalue().replace("\n", "")


def test_width_is_that_of_columns_or_80(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert terminal_width(io.StringIO()) == 80
    monkeypatch.setenv("COLUMNS", "132")
    assert terminal_width(io.StringIO()) == 132
    monkeypatch.setenv("COLUMNS", "wide")
    assert terminal_width(io.StringIO()) == 80


def test_terminal_has_its_width_and_colours():
    code = (
        "from dp_ensemble_env.reporting.tables import *\n"
        "print(terminal_width()); show_table('', ('a',), [(Styled('bad', 'bold red'),)])"
    )
    primary, secondary = pty.openpty()
    os.set_inheritable(secondary, True)
    subprocess.run(["stty", "cols", "101"], stdin=secondary, check=True)
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR")} | {"TERM": "xterm"}
    subprocess.run([sys.executable, "-c", code], stdout=secondary, env=environment, check=True)
    os.close(secondary)
    text = os.read(primary, 10_000).decode()
    os.close(primary)
    assert text.startswith("101") and "\x1b[1;31mbad\x1b[0m" in text


def test_no_colours_in_a_file():
    assert "\x1b" not in printed(("a",), [(Styled("bad", "bold red"),)], 80)


def test_old_code_pages_do_not_fail():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    show_table("", ("a", "b"), [("ε", "–")], width=80, file=stream)
    stream.flush()
    assert raw.getvalue().decode("ascii").splitlines()[1:3] == ["----", "?  -"]


def test_needs_no_extra():
    code = (
        "import sys; sys.modules['rich'] = sys.modules['matplotlib'] = None\n"
        "from dp_ensemble_env.reporting.tables import show_table; show_table('', ('a',), [('1',)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["a", "─", "1"]


def test_csv_keeps_precision_and_leaves_out_what_is_not_finite(tmp_path):
    path = write_csv(tmp_path / "t.csv", ("a", "b"), [(1 / 3, math.nan), ("x, y", None)])
    assert list(csv.reader(path.open(newline=""))) == [["a", "b"], [str(1 / 3), ""], ["x, y", ""]]
    assert path.read_bytes().count(b"\r") == 0
    assert write_csv(tmp_path / "empty.csv", (), []).read_bytes() == b""
