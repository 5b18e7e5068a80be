"""Tests of `journal`."""

from __future__ import annotations

import json

import pytest

from dp_ensemble_env.privacy.journal import START, Position, append, begin, is_new, locked, read, write_head


@pytest.fixture
def written(tmp_path):
    """A file of three lines, and the positions after two and after three."""
    path = tmp_path / "ledger.jsonl"
    two = begin(path, [{"a": 1}, {"b": 2}])
    return path, two, append(path, {"c": 3}, two)


def entries_of_head(path):
    return json.loads(path.with_name(path.name + ".head").read_text())["entries"]


def test_what_follows_a_position(written):
    path, two, three = written
    assert (START, two.entries, three.entries) == (Position(0, 0, ""), 2, 3)
    assert three.offset == path.stat().st_size and entries_of_head(path) == 3
    assert read(path, START) == ([{"a": 1}, {"b": 2}, {"c": 3}], three)
    assert read(path, two) == ([{"c": 3}], three) and read(path, three) == ([], three)
    assert not is_new(path)


@pytest.mark.parametrize("since", [0, 2, 3])
def test_a_head_that_lags_behind_is_brought_up_and_one_that_disagrees_refused(written, since):
    path, two, three = written
    position = {0: START, 2: two, 3: three}[since]
    write_head(path, two)
    assert read(path, position)[1] == three and entries_of_head(path) == 3
    for head, words in (
        (Position(0, 4, three.chain), "ends after 3 lines, but its head counts 4"),
        (Position(0, 3, two.chain), "entry 3 of the ledger .* is not the one"),
    ):
        write_head(path, head)
        with pytest.raises(ValueError, match=words):
            read(path, position)


def test_a_file_that_is_gone_had_paid_for_something_or_not(written):
    path, two, _ = written
    path.unlink()
    with pytest.raises(ValueError, match="is gone, but its head counts 3 lines"):
        is_new(path)
    write_head(path, two)
    with pytest.raises(ValueError, match="is gone, but its head counts 2 lines"):
        is_new(path)
    write_head(path, Position(0, 1, ""))
    assert is_new(path)


def test_nobody_executes_a_lock(tmp_path):
    path = tmp_path / "folder" / "ledger.jsonl"
    with locked(path):
        pass
    assert path.with_name("ledger.jsonl.lock").stat().st_mode & 0o111 == 0
