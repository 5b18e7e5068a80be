"""The words of the glossary, for the pages that explain them where they first appear."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from html import escape
from importlib import resources

#: What a page marks, and the term of the glossary that explains it. Words of everyday English are left alone.
MARKED = {
    "score": "score",
    "scores": "score",
    "release": "release",
    "releases": "release",
    "released": "release",
    "deployed": "deployed",
    "without data": "without data",
    "without any data": "without data",
    "ε": "epsilon",
    "δ": "delta",
    "k": "concentration",
    "tilt": "tilt",
    "tilts": "tilt",
    "participant": "participant",
    "participants": "participant",
    "customer baseline": "baseline",
    "discomfort": "discomfort",
    "set-point": "set-point",
    "set-points": "set-point",
    "rebound": "rebound",
    "performance factor": "performance factor",
    "adjacency": "adjacency",
    "behaviour": "behaviour",
    "mechanism": "mechanism",
    "policy": "policy",
    "policies": "policy",
    "nature": "nature",
    "instances": "instance",
}
_WORDS = "|".join(sorted(map(re.escape, MARKED), key=len, reverse=True))
_FOUND = re.compile(rf"(?<![\w&;-])({_WORDS})(?![\w-])", re.IGNORECASE)


@cache
def definitions() -> dict[str, str]:
    """Return every term of the glossary with what it means, as plain text.

    Examples
    --------
    >>> definitions()["score"][:31]
    '0 for the uncontrolled loads, 1'
    """
    text = (resources.files(__package__) / "glossary.md").read_text(encoding="utf-8")
    entries = re.findall(r"^([a-z][^\n]*)\n((?:  [^\n]*\n)+)", text, flags=re.MULTILINE)
    return {term: _plain(meaning) for term, meaning in entries}


def _plain(meaning: str) -> str:
    words = re.sub(r"{term}`([^`]*)`", r"\1", " ".join(meaning.split()))
    return re.sub(r"\*([^*]+)\*", r"\1", words)


def link_terms(escaped: str, wanted: Callable[[str], bool]) -> str:
    """Link the words of the glossary in a piece of HTML without tags, each if `wanted` says so of its term."""

    def link(match: re.Match[str]) -> str:
        term = MARKED.get(match[1]) or MARKED[match[1].lower()]
        if match[1] == "K":  # a kelvin, not a concentration
            return match[1]
        return f'<a class="term" href="#{anchor(term)}">{match[1]}</a>' if wanted(term) else match[1]

    return _FOUND.sub(link, escaped)


def anchor(term: str) -> str:
    """Return the id of a term on a page."""
    return "term-" + escape(term.replace(" ", "-").replace(",", ""))
