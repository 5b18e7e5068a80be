"""Tests of `journal`."""

from __future__ import annotations

import json

import pytest

from dp_ensemble_env.privacy import journal
from dp_ensemble_env.privacy.journal import START, Position, append, begin, is_new, locked, read


@pytest.fixture
def written(tmp_path):
    """A file of three lines, and the positions after two and after three."""
    path = tmp_path / "ledger.jsonl"
    two = begin(path, [{"a": 1}, {"b": 2}])
    return path, two, append(path, {"c": 3}, two)


def head_of(path):
    return json.loads(path.with_name(path.name + ".head").read_text())


def test_what_follows_a_position(written):
    path, two, three = written
    assert (START, two.entries, three.entries) == (Position(0, 0, ""), 2, 3)
    assert three.offset == path.stat().st_size and head_of(path)["entries"] == 3
    assert read(path, START) == ([{"a": 1}, {"b": 2}, {"c": 3}], three)
    assert read(path, two) == ([{"c": 3}], three) and read(path, three) == ([], three)
    assert not is_new(path)


def test_a_head_that_lags_behind_is_brought_up(written):
    path, two, three = written
    journal._write_head(path, journal._Head(2, two.chain))
    assert read(path, START)[1] == three and head_of(path)["entries"] == 3
    journal._write_head(path, journal._Head(4, three.chain))
    with pytest.raises(ValueError, match="ends after 3 lines, but its head counts 4"):
        read(path, START)
    journal._write_head(path, journal._Head(3, two.chain))
    with pytest.raises(ValueError, match="entry 3 of the ledger .* is not the one"):
        read(path, START)


def test_a_file_that_is_gone_had_paid_for_something_or_not(written):
    path, two, _ = written
    path.unlink()
    with pytest.raises(ValueError, match="is gone, but its head counts 3 lines"):
        is_new(path)
    journal._write_head(path, journal._Head(2, two.chain))
    with pytest.raises(ValueError, match="is gone, but its head counts 2 lines"):
        is_new(path)
    journal._write_head(path, journal._Head(1, ""))
    assert is_new(path)


def test_nobody_executes_a_lock(tmp_path):
    path = tmp_path / "folder" / "ledger.jsonl"
    with locked(path):
        pass
    assert path.with_name("ledger.jsonl.lock").stat().st_mode & 0o111 == 0
