"""Progress: silent at first, one live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io
import re
import time

import pytest

from dp_ensemble_env.tools import console
from dp_ensemble_env.tools.console import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def wait_for(words, stream):
    end = time.monotonic() + 20
    while words not in stream.getvalue():
        assert time.monotonic() < end, stream.getvalue()
        time.sleep(0.01)


@pytest.mark.parametrize("kind", [Terminal, io.StringIO])
def test_quick_work_is_silent(kind, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = kind()
    with Progress("quick", 2, stream) as monitor:
        monitor.advance(1, "half")
    assert stream.getvalue() == ""


def test_a_log_gets_plain_lines_of_at_most_80_columns(monkeypatch):
    monkeypatch.setattr(console, "SILENT", 0.05)
    monkeypatch.setattr(console, "PAUSE", 0.05)
    monkeypatch.setenv("FORCE_COLOR", "1")
    stream = io.StringIO()
    with Progress("[red]work", 4, stream) as monitor:
        monitor.advance(1, "1 of 4 done")
        wait_for("1 of 4 done", stream)
        monitor.say("cell [1] is tried again :x:")
        monitor.stage("more", 10, 5)
        monitor.advance(5, "x" * 100)
        wait_for("more, 50 %", stream)
    lines = stream.getvalue().splitlines()
    assert "cell [1] is tried again :x:" in lines
    assert any(re.fullmatch(r"\[red\]work, 25 %, 1 of 4 done, 0:00:0\d left", line) for line in lines)
    assert "\x1b" not in stream.getvalue()
    assert max(map(len, lines)) == 80 and any(line.endswith("x…") for line in lines)


def test_a_terminal_shows_one_line_that_vanishes(monkeypatch):
    monkeypatch.setattr(console, "SILENT", 0.05)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    stream = Terminal()
    with Progress("work", None, stream) as monitor:
        monitor.advance(3, "y" * 150)
        wait_for("y…", stream)
    assert max(map(len, re.split(r"[\r\n]", re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", stream.getvalue())))) == 80
    assert stream.getvalue().endswith("\x1b[1A\x1b[2K")  # the line is wiped


def test_numbers_are_never_cut(capsys):
    """Where names and headings are wide, they wrap, and every number stays whole within 80 columns."""
    names = ["Cockatoo_education_Evangeline", "court"]
    headings = ("meter", "days", "follows the day", "baseline", "baseline, adjusted", "persistence")
    console.table("", headings, [[name, "40", "12.25", "13.25", "14.25", "15.25"] for name in names])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    (row,) = [line for line in lines if line.startswith("court")]
    assert row.split() == ["court", "40", "12.25", "13.25", "14.25", "15.25"]
