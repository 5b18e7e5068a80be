"""Pages, help and messages are in plain English: none of the phrases that once stood here comes back."""

from __future__ import annotations

import ast
import contextlib
import io
import re

import pytest
from helpers import ROOT

from dp_ensemble_env.cli.main import main, names

#: What not to write, as a pattern, and what to write instead.
INSTEAD = {
    # words of our own for standard terms
    r"\bdoors?\b": "registry, entry point",
    r"(?<!control )\brooms?\b": "space, package",
    r"by the clock": "by time of day, time-dependent",
    r"\bmade on\b": "computed from, trained on",
    r"\bdear(er|est)?\b": "expensive",
    r"whoever": "anyone who",
    r"\bwhat is none\b": "if it is not one",
    r"\b(that|those) of\b": "repeat the noun",
    # phrases, and what replaced them
    r"plan on a release": "compute a plan from a release",
    r"that the ids play": "default instance",
    r"cosines spare": "with cosines, no seed got stuck",
    r"what it takes": "actual time, requirements",
    r"State, choose, spend": "compute, calibrate, spend and audit",
    r"hence undone|and so undone": "anyone who knows the seed can remove the noise",
    r"the best possible": "highest achievable",
    r"fails once in a million": "one-in-a-million false-alarm rate",
    r"seems to deliver": "energy credited for doing nothing",
    r"what was computed comes from": "computed from the true matrix",
    r"worth what it scores": "judge it by its score",
    r"command explains itself": "run `dp-ensemble COMMAND --help`",
    r"without a surface": "non-interactively",
    r"repeats at most what": "--resume restarts from the last checkpoint",
    r"the range that was to hold": "the 90 % range covered",
    r"what was shed": "rebound",
    r"nobody else": "only people who",
    r"which is not a participant": "not a participant",
    r"worth their price": "worthwhile only above this score",
    r"who also looks": "state-dependent",
    r"the draw it pays for": "saved before any noise is drawn",
    r"is awake": "idle",
    r"cannot do without": "lower bound",
    r"latest there are": "most recent",
    r"\bbe it\b": "even if",
    r"never half of": "atomic",
    r"\bhence\b": "so",
    r"of others a warning": "warn once about",
    r"nothing tells": "is not known",
    r"\bmisses row\b": "cannot act in this mode",
}
#: Files about thermostats, which do have rooms.
ROOMS = ("thermostats.md", "thermostats.py", "model.md")
CALLS = {"print", "say", "warn", "paragraph", "text", "warning", "append", "note", "stage", "table", "heading", "add"}


def pages():
    folder = ROOT / "docs"
    paths = [*ROOT.glob("*.md"), *folder.rglob("*.md"), *(folder / "notebooks").glob("*.py")]
    return {path: path.read_text(encoding="utf-8") for path in [*paths, ROOT / "dp_ensemble_env/reporting/glossary.md"]}


def messages(source):
    """The texts of exceptions and of what is printed in a module."""
    for node in ast.walk(ast.parse(source)):
        called = isinstance(node, ast.Call) and (getattr(node.func, "id", getattr(node.func, "attr", "")) in CALLS)
        if called or isinstance(node, ast.Raise):
            yield from (
                part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)
            )


def found(text, name=""):
    """The phrases of a text that should be others, each with its surroundings."""
    flat = re.sub(r"\s+", " ", text)
    for pattern, instead in INSTEAD.items():
        if "room" in pattern and name in ROOMS:
            continue
        for hit in re.finditer(pattern, flat, flags=re.IGNORECASE):
            yield f"{name}: …{flat[max(0, hit.start() - 40) : hit.end() + 30]}… (write: {instead})"


def test_pages_are_in_plain_english():
    assert not [hit for path, text in pages().items() for hit in found(text, path.name)]


def test_messages_are_in_plain_english():
    paths = [*(ROOT / "dp_ensemble_env").rglob("*.py"), *(ROOT / "agents").rglob("*.py")]
    texts = {path: "\n".join(messages(path.read_text(encoding="utf-8"))) for path in paths}
    assert sum(map(len, texts.values())) > 20_000
    assert not [hit for path, text in texts.items() for hit in found(text, path.name)]


@pytest.mark.parametrize("command", names())
def test_help_is_in_plain_english(command):
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        main([*command.split(), "--help"])
    text = re.sub(r"[│─╭╮╰╯]", " ", said.getvalue())
    assert "usage" in text
    assert not list(found(text, command))
