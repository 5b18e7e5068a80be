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


def test_a_file_that_lost_a_byte_is_shorter(written):
    path, _, three = written
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="is shorter than it was"):
        read(path, three)


def test_a_last_line_without_its_end_is_completed(written):
    path, two, three = written
    whole = path.read_bytes()
    for position, rest in ((START, [{"a": 1}, {"b": 2}, {"c": 3}]), (two, [{"c": 3}])):
        path.write_bytes(whole[:-1])
        assert read(path, position) == (rest, three) and path.read_bytes() == whole
        assert read(path, three) == ([], three)


def test_half_a_line_is_dropped_only_if_the_head_does_not_count_it(written):
    path, two, _ = written
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    with pytest.raises(ValueError, match="entry 3 of the ledger .* is cut short"):
        read(path, START)
    journal._write_head(path, journal._Head(2, two.chain))
    with pytest.warns(UserWarning, match="was cut short"):
        assert read(path, START) == ([{"a": 1}, {"b": 2}], two)
    assert path.stat().st_size == two.offset and head_of(path)["entries"] == 2


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


@pytest.mark.parametrize("number", [1, 2, 3])
def test_an_edited_line_is_named(written, number):
    path, _, _ = written
    lines = path.read_text().splitlines(keepends=True)
    lines[number - 1] = lines[number - 1].replace(str(number), "7", 1)
    path.write_text("".join(lines))
    with pytest.raises(ValueError, match=f"entry {number} of the ledger .* was edited") as refused:
        read(path, START)
    assert ("or lines before it were deleted" in str(refused.value)) == (number > 1)


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


def test_files_without_digests_are_refused(tmp_path):
    path = tmp_path / "old.jsonl"
    path.write_text('{"a": 1}\n{"b": 2}\n')
    with pytest.raises(ValueError, match="is no dp-ensemble-ledger"):
        read(path, START)
    path.write_text('{"format": "dp-ensemble-ledger"}\n{"b": 2}\n')
    with pytest.raises(ValueError, match="has lost its head"):
        read(path, START)
    journal._write_head(path, journal._Head(2, ""))
    with pytest.raises(ValueError, match="entry 1 of the ledger .* is damaged"):
        read(path, START)


def test_nobody_executes_a_lock(tmp_path):
    path = tmp_path / "folder" / "ledger.jsonl"
    with locked(path):
        pass
    assert path.with_name("ledger.jsonl.lock").stat().st_mode & 0o111 == 0
