"""The README's code blocks run, and print what the README says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def blocks():
    """Pairs of a Python block and the text block that directly follows it, if any."""
    pattern = r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?"
    return re.findall(pattern, README.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_every_block_runs_and_prints_what_it_promises(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "readme"}
    promised = 0
    for code, expected in blocks():
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(code, str(README), "exec"), namespace)
        if expected:
            promised += 1
            assert output.getvalue() == expected
    assert len(blocks()) >= 3 and promised >= 1


def test_first_screen_has_both_commands_and_the_picture():
    first = README.read_text(encoding="utf-8").split("\n## ")[0]
    assert "make demo" in first and "make test" in first
    picture = re.search(r"!\[.*?\]\((.*?)\)", first)
    assert picture is not None and (README.parent / picture.group(1)).is_file()


def test_linked_files_exist():
    for target in re.findall(r"\]\(((?!https?:)[^)#]+)", README.read_text(encoding="utf-8")):
        assert (README.parent / target).exists(), target
