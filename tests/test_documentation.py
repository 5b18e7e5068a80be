"""The code blocks of the README and of the documentation run, and print what is promised."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path

import documentation
import numpy as np
import pytest

from dp_ensemble_env import scenarios
from dp_ensemble_env.cli.main import command_class, main, names, parse

#: Where builds of torch without CUDA are.
CPU = "https://download.pytorch.org/whl/cpu"
README = Path(__file__).parent.parent / "README.md"
PAGES = [README, *sorted((README.parent / "docs").glob("*.md"))]


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
    documentation.run_examples(page)


def test_an_example_that_breaks_its_promise_is_refused(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nx = 1\n```\n\n```python\nprint(x)\n```\n\n```text\n1\n```\n", encoding="utf-8")
    documentation.run_examples(page)
    page.write_text(page.read_text().replace("text\n1", "text\n2"), encoding="utf-8")
    with pytest.raises(ValueError, match="page.md promises"):
        documentation.run_examples(page)


def test_glossary_explains_the_words_of_the_design():
    text = (README.parent / "dp_ensemble_env" / "reporting" / "glossary.md").read_text(encoding="utf-8")
    terms = set(re.findall(r"^([a-z][a-z -]+)$", text, flags=re.MULTILINE))
    words = "behaviour default nature context release tilt floor participant load scenario outcome mechanism ledger"
    assert set(words.split()) | {"score", "adjacency", "epsilon", "delta", "concentration"} <= terms
    assert set(re.findall(r"{term}`(.*?)`", text)) <= terms


def commands(page):
    return documentation.commands(page.read_text(encoding="utf-8"))


def test_the_readme_is_short_and_its_pictures_fit_a_phone_and_are_drawn_on_white():
    assert len(README.read_text(encoding="utf-8").split()) <= 600
    image = pytest.importorskip("PIL.Image")
    assert ["make", "demo"] in commands(README) and ["make", "test"] in commands(README)
    pictures = re.findall(r"!\[[^]]*\]\((docs.*?)\)", README.read_text(encoding="utf-8"))
    assert len(pictures) == 2 + len(scenarios.BUILT_IN) and len(set(pictures)) == len(pictures)
    for path in pictures:
        with image.open(README.parent / path) as picture:
            tallest = 2.0 if path.endswith("leaderboard.png") else 1.2  # one line for each agent
            assert 390 <= picture.width <= 800 and 0.5 <= picture.height / picture.width <= tallest
            # Pages may be dark; a picture brings its own background.
            assert picture.convert("RGBA").getpixel((1, 1)) == (255, 255, 255, 255), path


def test_the_commands_of_the_readme_run_and_make_its_pictures(tmp_path, monkeypatch, capsys):
    image = pytest.importorskip("PIL.Image")
    monkeypatch.chdir(tmp_path)
    extras = tomllib.loads((README.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for words in commands(README):
        if words[0] == "dp-ensemble":
            assert main(words[1:]) == 0, words
        elif words[0] == "make":  # the targets exist; the suite that runs this is one of them
            subprocess.run(["make", "--dry-run", *words[1:]], cwd=README.parent, check=True, capture_output=True)
        else:  # what is installed is tested with the wheel
            assert words[:2] == ["pip", "install"]
            assert set(re.findall(r"\w+", words[2])) <= set(extras)
            if "rl" in words[2]:  # PyPI's build of torch for Linux asks for CUDA
                assert words[3:] == ["-c", "constraints.txt", "--extra-index-url", CPU]
    shown = Path("docs/images/event.gif")
    with image.open(shown) as made, image.open(README.parent / shown) as kept:
        assert made.n_frames == kept.n_frames
        assert made.n_frames == 1 + scenarios.make("call").horizon
        for frame in (0, 32, 64):
            made.seek(frame), kept.seek(frame)
            apart = np.abs(np.asarray(made.convert("RGB"), float) - np.asarray(kept.convert("RGB"), float))
            assert (apart.max(axis=2) > 40).mean() < 0.01


def test_every_command_line_of_the_documentation_is_understood():
    pages = [README, README.parent / "CONTRIBUTING.md", *(README.parent / "docs").rglob("*.md")]
    seen = set()
    for page in pages:
        for words in commands(page):
            if words[0] != "dp-ensemble" or words[1:] == ["--help"] or "--help" in words:
                continue
            command = next((" ".join(words[1:n]) for n in (3, 2) if " ".join(words[1:n]) in names()), None)
            assert command, f"{page.name}: {words}"
            parse(command_class(command), words[1 + len(command.split()) :], page.name)
            seen.add(words[1])
    assert {"train", "evaluate", "compare", "plan", "reproduce"} <= seen


NOTEBOOKS = sorted(documentation.FOLDER.glob("*.py"))


def said(notebook):
    return ["".join(text for part in cell.get("outputs", []) for text in part.get("text", [])) for cell in notebook]


@pytest.mark.torch
@pytest.mark.parametrize("source", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_executed_and_say_what_their_pages_show(source, capsys):
    kept = json.loads(source.with_suffix(".ipynb").read_text(encoding="utf-8"))["cells"]
    made = documentation.execute(source)["cells"]
    hint = f"{source.name} has changed; run make notebooks"
    assert [cell["source"] for cell in made] == [cell["source"] for cell in kept], hint
    number = r"[-+−]?\d[\d,]*\.?\d*"
    for mine, theirs in zip(said(made), said(kept), strict=True):
        shapes = [re.sub(r"\s+", " ", re.sub(number, "#", text)) for text in (mine, theirs)]
        assert shapes[0] == shapes[1], hint
        values = [[float(x.replace(",", "").replace("−", "-")) for x in re.findall(number, t)] for t in (mine, theirs)]
        np.testing.assert_allclose(values[0], values[1], rtol=0.03, atol=1.5)  # a PPO differs between processors
    pictures = [sum("image/png" in str(part) for cell in of for part in cell.get("outputs", [])) for of in (made, kept)]
    assert pictures[0] == pictures[1] >= 1


def test_notebooks_are_programs_too():
    # Nothing of IPython's: the file itself runs, as its cells do above.
    for path in NOTEBOOKS:
        text = path.read_text(encoding="utf-8")
        compile(text, path.name, "exec")
        code = "\n".join(source for kind, source in documentation.cells(text) if kind == "code")
        assert not re.search(r"^\s*[%!]", code, flags=re.MULTILINE)
    shown = (README.parent / "docs" / "notebooks.md").read_text(encoding="utf-8")
    assert all(f"(notebooks/{path.stem}.ipynb)" in shown for path in NOTEBOOKS) and len(NOTEBOOKS) >= 6


def test_the_page_on_the_step_quotes_functions_that_exist():
    page = README.parent / "docs" / "one_step.md"
    quoted = re.findall(r"{literalinclude} (\S+)\n:pyobject: (\w+)", page.read_text(encoding="utf-8"))
    assert [name for _, name in quoted] == ["decide_together", "by_nature", "report", "advantage"]
    for path, name in quoted:
        assert f"\ndef {name}(" in (page.parent / path).read_text(encoding="utf-8")


def test_the_documentation_is_short():
    """README, pages and glossary without code blocks and comments; a word has a letter."""
    pages = [*(README.parent / "docs").rglob("*.md"), README.parent / "dp_ensemble_env" / "reporting" / "glossary.md"]
    text = "\n".join(page.read_text(encoding="utf-8").replace("```{glossary}", "") for page in [README, *pages])
    text = re.sub(r"^```.*?^```$|<!--.*?-->", "", text, flags=re.DOTALL | re.MULTILINE)
    assert 10_000 < len([word for word in text.split() if re.search(r"[^\W\d_]", word)]) <= 16_000


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


def test_the_check_of_the_site_sees_what_is_wrong(tmp_path):
    head = "".join(f'<meta name="{tag}" content="words">' for tag in documentation.TAGS)
    good = f'{head}<h1 id="top">A</h1><a href="b.html#end">b</a><img alt="a" src="a.png"><p>Copyright us</p>'
    (tmp_path / "a.html").write_text(good)
    (tmp_path / "b.html").write_text(f'{head}<p id="end">B</p><a href="a.html#top">a</a> Copyright us')
    (tmp_path / "a.png").write_bytes(b"")
    assert documentation.problems(tmp_path) == []
    broken = good.replace("#end", "#nowhere").replace("a.png", "c.png").replace('alt="a"', "").replace("Copyright", "")
    (tmp_path / "a.html").write_text(broken.replace("og:title", "title"))
    found = " ".join(documentation.problems(tmp_path))
    for words in ("no such place", "c.png, which is not there", "without a description", "no footer", "no og:title"):
        assert words in found
    assert len(documentation.problems(tmp_path)) == 5
    assert documentation.problems(tmp_path / "empty") != []
