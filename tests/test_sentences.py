"""What used to end in a traceback: each is one sentence, the exit status 2, and nothing is lost."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys

import pytest
from helpers import load

from dp_ensemble_env.privacy import mechanism
from dp_ensemble_env.privacy.ledger import PrivacyLedger
from dp_ensemble_env.reporting.tables import write_csv
from dp_ensemble_env.tools import files as _files
from dp_ensemble_env.tools.files import atomic_write


def one_sentence(capsys, status):
    error = capsys.readouterr().err
    # Progress may say on other lines that it takes long.
    said = [line for line in error.splitlines() if line.startswith("dp-ensemble")]
    assert status == 2 and "Traceback" not in error and len(said) == 1, error
    return said[0]


@pytest.mark.parametrize("missing", ["budget", "rows", "h", "format", "version"])
def test_ledger_header_without_its_fields(missing, tmp_path):
    ledger = PrivacyLedger(tmp_path / "ledger.jsonl")
    ledger.release(mechanism("dirichlet:k=50,floor=0.05"), [[0.5, 0.5], [0.3, 0.7]])
    content = json.loads(ledger.to_json())
    del content[missing]
    with pytest.raises(ValueError, match="this is no ledger"):
        PrivacyLedger.from_json(json.dumps(content))
    lines = ledger.path.read_text().splitlines()
    header = json.loads(lines[0])
    del header[missing]
    ledger.path.write_text("\n".join([json.dumps(header), *lines[1:]]) + "\n")
    with pytest.raises(ValueError, match="ledger"):
        PrivacyLedger(ledger.path).spent(1e-6)


def test_links_that_lead_in_a_circle(tmp_path, capsys):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(ValueError, match="leads in a circle"), atomic_write(loop):
        pass
    with pytest.raises(ValueError, match="circle"), atomic_write(loop / "a.json"):
        pass
    status = load("evaluate").main(["standard", "--json", str(loop / "out.json")])
    assert "circle" in one_sentence(capsys, status)
    assert one_sentence(capsys, load("validate").main(["--meter", str(loop), "--unit", "kW"]))
    with pytest.raises(ValueError, match=r"circle|cannot"):
        PrivacyLedger(loop).release(mechanism("dirichlet:k=50,floor=0.05"), [[0.5, 0.5], [0.3, 0.7]])


# ------------------------------------------------------------------ full disk
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_names_the_file_and_keeps_the_old_one(number, tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    path.write_text("old")

    def full(handle):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(_files.os, "fsync", full)
    with pytest.raises(ValueError, match=r"cannot write .*a\.json: the (disk is full|quota is used up)"):
        with atomic_write(path) as stream:
            stream.write("new")
    assert path.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_a_command_on_a_full_disk(tmp_path):
    """A limit on the size of files stands for a disk without room."""
    code = (
        "import resource, sys; from dp_ensemble_env.cli import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))\n"
        f"sys.exit(main(['evaluate', 'uncontrolled', '--json', {str(tmp_path / 'out.json')!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert f"cannot write {tmp_path / 'out.json'}: it would be too large" in done.stderr
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------------ tables
def test_cells_of_exported_tables_are_no_formulas(tmp_path):
    words = ["=1+1", "+cmd", "-cmd|' /C calc'!A0", "@SUM(A1)", "\tx", "plain", "-1.5", "1e5", "a=b"]
    write_csv(tmp_path / "a.csv", ["=name", "value"], [[word, -2.5] for word in words])
    lines = (tmp_path / "a.csv").read_text().splitlines()
    assert lines[0] == "'=name,value"
    assert [line.rpartition(",")[0] for line in lines[1:]] == [
        "'=1+1", "'+cmd", "'-cmd|' /C calc'!A0", "'@SUM(A1)", "'\tx", "plain", "-1.5", "1e5", "a=b"
    ]  # fmt: skip
    assert all(line.endswith(",-2.5") for line in lines[1:])
