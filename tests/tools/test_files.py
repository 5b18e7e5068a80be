"""Atomic writes; a full disk is one sentence, and nothing is lost."""

from __future__ import annotations

import errno
import os

import pytest

from dp_ensemble_env.tools import files
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


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_names_the_file_and_keeps_the_old_one(number, tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    path.write_text("old")

    def full(handle):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(ValueError, match=r"cannot write .*a\.json: the (disk is full|quota is used up)"):
        with atomic_write(path) as stream:
            stream.write("new")
    assert path.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["a.json"]
