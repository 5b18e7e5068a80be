"""The code blocks of the README and of the documentation run, and print what is promised."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

README = Path(__file__).parent.parent / "README.md"
PAGES = [README, *sorted((README.parent / "docs").glob("*.md"))]


def blocks(page):
    """Pairs of a Python block and the text block that directly follows it, if any."""
    pattern = r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?"
    return re.findall(pattern, page.read_text(encoding="utf-8"), flags=re.DOTALL)


def write_campus(path):
    """The wide hourly file that the page on meter data reads."""
    rng = np.random.default_rng(0)
    start = np.datetime64("2024-05-01T00:00", "s")
    rows = [
        f"{start + np.timedelta64(3600 * i, 's')},{rng.uniform(50, 90):.2f},{rng.uniform(5, 9):.2f}"
        for i in range(4000)
    ]
    path.write_text("timestamp,library,gym\n" + "\n".join(rows) + "\n")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_runs_and_prints_what_it_promises(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_campus(tmp_path / "campus.csv")
    namespace: dict[str, object] = {"__name__": "readme"}
    for code, expected in blocks(page):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(code, str(page), "exec"), namespace)
        if expected:
            assert output.getvalue() == expected
    assert page != README or sum(bool(expected) for _, expected in blocks(page)) >= 1


@pytest.mark.parametrize("name", ["mechanism", "scenario", "basis"])
def test_recipes_are_those_that_the_test_of_the_doors_runs(name):
    doors = (README.parent / "tests" / "test_doors.py").read_text(encoding="utf-8")
    (recipe,) = re.findall(rf"# \[{name}\]\n(.*?)# \[/{name}\]", doors, flags=re.DOTALL)
    quoted = [code for code, _ in blocks(README.parent / "CONTRIBUTING.md")]
    assert recipe in quoted
    # With the imports that stand before it, and nothing else, a recipe runs; in a process of its own, as it registers.
    code = quoted[quoted.index(recipe) - 1] + recipe
    subprocess.run([sys.executable, "-c", code], check=True)


def test_glossary_explains_the_words_of_the_design():
    text = (README.parent / "dp_ensemble_env" / "reporting" / "glossary.md").read_text(encoding="utf-8")
    terms = set(re.findall(r"^([a-z][a-z -]+)$", text, flags=re.MULTILINE))
    words = "behaviour default nature context release tilt floor participant load scenario outcome mechanism ledger"
    assert set(words.split()) | {"score", "adjacency", "epsilon", "delta", "concentration"} <= terms
    assert set(re.findall(r"{term}`(.*?)`", text)) <= terms


def test_first_screen_has_both_commands_and_the_picture():
    first = README.read_text(encoding="utf-8").split("\n## ")[0]
    assert "make demo" in first and "make test" in first
    picture = re.search(r"!\[.*?\]\((.*?)\)", first)
    assert picture is not None and (README.parent / picture.group(1)).is_file()


def test_linked_files_exist():
    for page in [*README.parent.glob("*.md"), *(README.parent / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(((?!https?:)[^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_library_page_is_run_by_an_integration_test():
    tests = "".join(path.read_text() for path in (README.parent / "tests" / "integrations").rglob("test_*.py"))
    pages = sorted(page.stem for page in (README.parent / "docs" / "libraries").glob("*.md"))
    assert pages
    for name in pages:
        assert re.search(rf'(run_page|shell_commands)\("{name}"\)', tests), f"no integration test runs {name}.md"
