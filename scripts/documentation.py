"""Run and check the documentation: ``python scripts/documentation.py notebooks | links FOLDER | readme``.

notebooks
    one source each, a Python file in cells, ``docs/notebooks/*.py``, which is also a program of its own. Runs all of
    them, or those that are named, and writes the ``.ipynb`` with its outputs beside each. A test keeps the two in step.
    Nothing of Jupyter is needed.
links
    checks a built site: every link leads somewhere, every page says what it is, has a footer and fits a telephone.
    Nothing is fetched.
readme
    runs README, quick start and the first notebook as a new user would: installs into the environment of the Python
    that runs it, so give it one of its own, then runs every command and example. `make readme` does it in a fresh
    clone; CI has macOS and Windows, too.
"""

from __future__ import annotations

import base64
import contextlib
import importlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "notebooks"
#: What the head of a page has to say.
TAGS = ("viewport", "description", "og:title", "og:description", "og:type", "og:site_name")
#: What a user types, and what runs it in this environment.
PROGRAMS = {"pip": [sys.executable, "-m", "pip"], "dp-ensemble": [sys.executable, "-m", "dp_ensemble_env"]}


# ------------------------------------------------------------------ notebooks
def cells(text: str) -> list[tuple[str, str]]:
    """Split a file in the percent format into pairs of kind, "markdown" or "code", and source."""
    pairs = []
    for mark, body in re.findall(r"^# %%(.*)\n((?:(?!# %%).*\n?)*)", text, flags=re.MULTILINE):
        kind = "markdown" if "[markdown]" in mark else "code"
        if kind == "markdown":
            body = re.sub(r"^# ?", "", body, flags=re.MULTILINE)
        pairs.append((kind, body.strip()))
    return pairs


def run(sources: list[tuple[str, str]]) -> list[list[dict[str, Any]]]:
    """Execute the code cells one after the other; return the outputs of every cell."""
    os.environ.setdefault("COLUMNS", "80")
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    namespace: dict[str, Any] = {"__name__": "notebook"}
    results = []
    for kind, source in sources:
        outputs: list[dict[str, Any]] = []
        if kind == "code":
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                exec(compile(source, "<cell>", "exec"), namespace)
            if said.getvalue():
                outputs.append(
                    {"output_type": "stream", "name": "stdout", "text": said.getvalue().splitlines(keepends=True)}
                )
            for number in plt.get_fignums():
                stream = io.BytesIO()
                plt.figure(number).savefig(
                    stream, format="png", dpi=100, bbox_inches="tight", metadata={"Software": ""}
                )
                data = {"image/png": base64.b64encode(stream.getvalue()).decode(), "text/plain": ["<Figure>"]}
                outputs.append({"output_type": "display_data", "metadata": {}, "data": data})
            plt.close("all")
        results.append(outputs)
    return results


def notebook(sources: list[tuple[str, str]], outputs: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """Return the notebook, format 4.5."""
    made: list[dict[str, Any]] = []
    for (kind, source), mine in zip(sources, outputs, strict=True):
        lines = source.splitlines(keepends=True)
        cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{len(made)}", "metadata": {}, "source": lines}
        if kind == "code":
            cell |= {"execution_count": 1 + sum("outputs" in before for before in made), "outputs": mine}
        made.append(cell)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def execute(path: Path) -> dict[str, Any]:
    """Run a source in an empty folder and return its notebook."""
    sources = cells(path.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        return notebook(sources, run(sources))


def write_notebooks(names: list[str]) -> None:
    """Write the named notebooks, or all."""
    for path in [FOLDER / f"{name}.py" for name in names] or sorted(FOLDER.glob("*.py")):
        made = json.dumps(execute(path), indent=1, ensure_ascii=False) + "\n"
        path.with_suffix(".ipynb").write_text(made, encoding="utf-8")
        print(path.with_suffix(".ipynb"))


# ------------------------------------------------------------------ links
class Page(HTMLParser):
    """The links, anchors and tags of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.links: list[str] = []
        self.anchors: set[str] = {""}
        self.tags: dict[str, str] = {}
        self.words: list[str] = []
        self.unnamed: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note links, anchors and tags."""
        given = {name: value or "" for name, value in attrs}
        self.links += [given[name] for name in ("href", "src") if name in given]
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "meta":
            self.tags[given.get("name", given.get("property", ""))] = given.get("content", "")
        if tag == "img" and not given.get("alt"):
            self.unnamed.append(given.get("src", "")[:60])

    def handle_data(self, data: str) -> None:
        """Note the words."""
        self.words.append(data)


def problems(folder: Path) -> list[str]:
    """Return what is wrong with a site, a sentence each."""
    pages = {path.resolve(): Page(path) for path in sorted(folder.rglob("*.html"))}
    faults = [] if pages else [f"{folder} has no pages."]
    for path, page in pages.items():
        name = path.relative_to(folder.resolve())
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if parts.scheme not in ("http", "https", "mailto", "data"):
                    faults.append(f"{name} has a link of an unknown kind: {link[:80]}")
                continue
            target = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
            if not target.exists():
                faults.append(f"{name} links to {link}, which is not there.")
            elif target in pages and unquote(parts.fragment) not in pages[target].anchors:
                faults.append(f"{name} links to {link}, and there is no such place on that page.")
        faults += [f"{name} has no {tag}." for tag in TAGS if not page.tags.get(tag)]
        faults += [f"{name} has a picture without a description: {source}" for source in page.unnamed]
        if "Copyright" not in " ".join(page.words):
            faults.append(f"{name} has no footer.")
    return faults


# ------------------------------------------------------------------ as a new user
def commands(text: str) -> list[list[str]]:
    """Return the command lines of a page's shell blocks, without their comments."""
    shell = "".join(re.findall(r"```bash\n(.*?)```", text, flags=re.DOTALL)).replace("\\\n", " ")
    return [words for line in shell.splitlines() if (words := shlex.split(line, comments=True))]


def run_examples(page: Path) -> None:
    """Run the Python blocks of a page one after the other; what a text block below one shows must be printed."""
    namespace: dict[str, Any] = {"__name__": "examples"}
    pattern = r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?"
    for code, promised in re.findall(pattern, page.read_text(encoding="utf-8"), flags=re.DOTALL):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(code, str(page), "exec"), namespace)
        if promised and said.getvalue() != promised:
            raise ValueError(f"{page.name} promises\n{promised}\nand its example prints\n{said.getvalue()}")


def run_readme() -> int:
    """Install as the pages say, then run their commands and examples; the targets of make are CI's other jobs."""
    pages = [ROOT / "README.md", ROOT / "docs" / "quickstart.md"]
    lines = [words for page in pages for words in commands(page.read_text(encoding="utf-8"))]
    lines = [words for i, words in enumerate(lines) if words not in lines[:i] and words[0] in PROGRAMS]
    with tempfile.TemporaryDirectory() as empty, contextlib.chdir(empty):
        for words in sorted(lines, key=lambda words: words[0] != "pip"):
            print("$", *words, flush=True)
            subprocess.run([*PROGRAMS[words[0]], *words[1:]], cwd=ROOT if words[0] == "pip" else empty, check=True)
        importlib.invalidate_caches()  # what was just installed
        for page in pages:
            run_examples(page)
        execute(FOLDER / "first_agent.py")
    listed = subprocess.run([sys.executable, "-m", "pip", "list"], capture_output=True, text=True, check=True).stdout
    if cuda := re.findall(r"^(?:nvidia|cuda)\S*", listed, flags=re.MULTILINE):
        raise ValueError(f"CUDA was installed: {', '.join(cuda)}")
    return 0


def main(words: list[str]) -> int:
    """Run one of the three."""
    if words[:1] == ["notebooks"]:
        write_notebooks(words[1:])
        return 0
    if words[:1] == ["links"] and len(words) == 2:
        faults = problems(Path(words[1]))
        sys.stderr.writelines(f"{problem}\n" for problem in faults)
        return int(bool(faults))
    if words == ["readme"]:
        return run_readme()
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
