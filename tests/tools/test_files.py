"""Atomic writes."""

from __future__ import annotations

import os

import pytest

from dp_ensemble_env.tools.files import atomic_write


def test_only_regular_files_are_replaced_and_links_are_followed(tmp_path):
    pipe, real, link = tmp_path / "pipe", tmp_path / "real.txt", tmp_path / "link.txt"
    os.mkfifo(pipe)
    with pytest.raises(ValueError, match="device or the like"), atomic_write(pipe):
        pass
    assert pipe.is_fifo()
    real.write_text("old")
    link.symlink_to(real)
    with atomic_write(link) as stream:
        stream.write("new")
    assert link.is_symlink() and real.read_text() == "new"
