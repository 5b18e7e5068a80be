"""The one template of every report: a self-contained HTML page that loads without a network.

The findings come first, in sentences, beside their figure. A table of contents follows. Figures are interactive where
scripts run, and plain pictures elsewhere. Words of the glossary are explained where they appear.
"""

from __future__ import annotations

import base64
import contextlib
import html
import json
import platform
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import NamedTuple

from dp_ensemble_env import __version__
from dp_ensemble_env.reporting.charts import Chart
from dp_ensemble_env.tools.files import atomic_write

#: A browser that reads this loads nothing from anywhere, whatever else the page says.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
IN_SHORT = "In short"
WORDS = "Words"
_LEFT = ' class="left"'
#: In the names of files that are computed from private meter data.
OWNER_ONLY = "-private"
OWNER_WORDS = (
    "Private: the numbers and pictures of this page were computed from the metered load itself. They are for the owner "
    "of the data; do not publish them beside a private release."
)
#: Packages whose versions a result is kept with.
_PACKAGES = "numpy scipy numba gymnasium matplotlib dp-accounting torch stable-baselines3 sb3-contrib".split()
#: What a page marks, and the term of the glossary that explains it. Words of everyday English are left alone.
_TERMS = (
    "adjacency behaviour deployed discomfort mechanism nature participant policy rebound release score set-point tilt"
).split()
MARKED = {term: term for term in (*_TERMS, "performance factor", "without data")}
MARKED |= {f"{term}s": term for term in ("instance", "participant", "release", "score", "set-point", "tilt")}
MARKED |= {"released": "release", "policies": "policy", "without any data": "without data"}
MARKED |= {"ε": "epsilon", "δ": "delta", "k": "concentration", "customer baseline": "baseline"}
_WORDS = "|".join(sorted(map(re.escape, MARKED), key=len, reverse=True))
_TERM = re.compile(rf"(?<![\w&;-])({_WORDS})(?![\w-])", re.IGNORECASE)


class Cell(NamedTuple):
    """A cell of words that may run over several lines, the first of them bold, with a list at its end."""

    head: str
    body: str = ""
    items: tuple[str, ...] = ()


class Page:
    """Collects the parts of a page in order; `write` puts them into one file."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.parts: list[str] = []
        self.contents: list[tuple[str, str]] = []  # (id, words) of every section
        self._explained: set[str] = set()  # terms that this section has marked already
        self._terms: set[str] = set()  # terms that the page has marked

    # -------------------------------------------------------------- text
    def takeaways(self, sentences: Iterable[str], chart: Chart | None = None, picture: Path | None = None) -> None:
        """Say what was found, most important first, beside the figure that shows it."""
        name = self._section(IN_SHORT)
        words = "".join(f"<li>{self._marked(text)}</li>" for text in sentences)
        box = f'<div class="takeaways"><h2 id="{name}">{IN_SHORT}</h2><ul>{words}</ul></div>'
        figure = "" if chart is None or picture is None else self._figure(chart, picture, "")
        kind = "opening two" if figure else "opening"
        self.parts.append(f'<div class="{kind}">{box}{figure}</div>')

    def warning(self, text: str) -> None:
        """Say what must be known before the page is passed on."""
        self.parts.append(f'<p class="warning" role="note">{_code(text)}</p>')

    def heading(self, text: str, level: int = 2, short: str = "") -> None:
        """Begin a section, which the contents name (by its short name if there is one), or a part of one."""
        name = f' id="{self._section(short or text)}"' if level == 2 else ""
        self.parts.append(f"<h{level}{name}>{html.escape(text)}</h{level}>")

    def text(self, text: str) -> None:
        """Add a paragraph; words between backticks become code."""
        self.parts.append(f"<p>{self._marked(text)}</p>")

    def items(self, texts: Iterable[str]) -> None:
        """Add a list."""
        self.parts.append("<ul>" + "".join(f"<li>{self._marked(text)}</li>" for text in texts) + "</ul>")

    def definitions(self, terms: Iterable[tuple[str, str]]) -> None:
        """Add a list of terms with what they mean."""
        pairs = (f"<dt>{_code(term)}</dt><dd>{_code(meaning)}</dd>" for term, meaning in terms)
        self.parts.append("<dl>" + "".join(pairs) + "</dl>")

    def table(self, headings: Sequence[str], rows: Iterable[Sequence[str | Cell]], stack: bool = False) -> None:
        """Add a table whose columns can be sorted; on a phone `stack` shows each row's cells below one another."""
        lines = [list(row) for row in rows]
        words = {i for row in lines for i, cell in enumerate(row) if isinstance(cell, Cell) or cell[:1].isalpha()}
        head = "".join(
            ('<th class="left">' if i in words else "<th>") + f"<button>{html.escape(h)}</button></th>"
            for i, h in enumerate(headings)
        )
        labels = ["", *headings[1:]] if stack else [""] * len(headings)
        left = [i in words for i in range(len(headings))]
        body = "".join("<tr>" + "".join(map(_cell, row, labels, left)) + "</tr>" for row in lines)
        kind = ' class="stack"' if stack else ""
        self.parts.append(
            f'<div class="table" tabindex="0" role="region" aria-label="Table: {html.escape(headings[0])}">'
            f"<table{kind}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        )

    # -------------------------------------------------------------- figures
    def picture(self, path: Path, caption: str, column: bool = False) -> None:
        """Embed a PNG; one drawn for a journal's column is shown no wider than a column of text."""
        kind = ' class="column"' if column else ""
        words = f"<figcaption>{self._marked(caption)}</figcaption>"
        self.parts.append(f"<figure{kind}>{_image(path, caption)}{words}</figure>")

    def chart(self, chart: Chart, picture: Path, caption: str) -> None:
        """Add a live figure, with the picture that takes its place on paper."""
        self.parts.append(self._figure(chart, picture, caption))

    def _figure(self, chart: Chart, picture: Path, caption: str) -> str:
        words = f"<figcaption>{self._marked(caption)}</figcaption>" if caption else ""
        image = _image(picture, caption or chart.title, ' class="plain"')
        spec = json.dumps(chart.spec(), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        spec = spec.replace("<", "\\u003c")  # no text in it can end the element early
        data = f'<script type="application/json">{spec}</script>'
        return f'<figure class="chart"><div class="live"></div>{image}{words}{data}</figure>'

    # -------------------------------------------------------------- the whole
    def colophon(self, command: str, versions: Mapping[str, str], files: str = "") -> None:
        """Say how the page was made."""
        self.heading("How this was made")
        self.parts.append(f"<p>{_code(f'`{command}`')}{' ' + _code(files) if files else ''}</p>")
        software = ", ".join(f"{name} {value}" for name, value in versions.items())
        self.parts.append(f"<p>Software: {html.escape(software)}.</p>")

    def write(self, path: Path) -> Path:
        """Write the page atomically."""
        with atomic_write(path) as stream:
            stream.write(self._html())
        return path

    def _html(self) -> str:
        words = ""
        if self._terms:
            self.contents.append(("words", WORDS))
            pairs = (
                f'<dt id="{anchor(term)}">{html.escape(term)}</dt><dd>{_code(definitions()[term])}</dd>'
                for term in sorted(self._terms)
            )
            words = f'<h2 id="words">{WORDS}</h2><dl>{"".join(pairs)}</dl>'
        links = "".join(f'<a href="#{name}">{html.escape(text)}</a>' for name, text in self.contents)
        self.contents = [entry for entry in self.contents if entry[0] != "words"]
        bar = f'<nav aria-label="Contents">{links}</nav>' if links else ""
        files = resources.files(__package__)
        style, script = ((files / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
        title = html.escape(self.title)
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
            f'<link rel="icon" href="data:,"><title>{title}</title><style>{style}</style></head>\n'
            f'<body><a class="skip" href="#content">Skip to the content</a><h1>{title}</h1>{bar}'
            f'<main id="content">{"".join(self.parts)}{words}</main><script>{script}</script></body></html>\n'
        )

    def _section(self, text: str) -> str:
        """Enter a section into the contents; return its id."""
        self._explained = set()
        name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "section"
        taken = {entry[0] for entry in self.contents}
        name = next(n for n in (name, *(f"{name}-{i}" for i in range(2, 99))) if n not in taken and n != "words")
        self.contents.append((name, text))
        return name

    def _marked(self, text: str) -> str:
        """Escape a text, set what stands between backticks as code, and link each term once in a section."""

        def wanted(term: str) -> bool:
            new = term not in self._explained
            self._explained.add(term)
            self._terms.add(term)
            return new

        kept = re.sub(r"(?<=[\d%]) %|(?<=\b[kεδ]) = ", lambda match: match[0].replace(" ", "\u00a0"), text)
        pieces = html.escape(kept).split("`")
        return "".join(f"<code>{p}</code>" if i % 2 else link_terms(p, wanted) for i, p in enumerate(pieces))


def _code(text: str) -> str:
    pieces = html.escape(text).split("`")
    return "".join(f"<code>{piece}</code>" if i % 2 else piece for i, piece in enumerate(pieces))


def _image(path: Path, words: str, kind: str = "") -> str:
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    return f'<img{kind} alt="{html.escape(words)}" src="data:image/png;base64,{data}">'


def _cell(cell: str | Cell, label: str, left: bool) -> str:
    name = f' data-label="{html.escape(label)}"' if label else ""
    if isinstance(cell, str):
        return f"<td{name}{_LEFT * left}>{html.escape(cell)}</td>"
    if cell == Cell("", "–"):
        return '<td class="wrap none">–</td>'
    head = f"<strong>{html.escape(cell.head)}</strong> " if cell.head else ""
    items = "".join(f"<li>{html.escape(item)}</li>" for item in cell.items)
    return f'<td class="wrap"{name}>{head}{html.escape(cell.body)}{f"<ul>{items}</ul>" if items else ""}</td>'


@cache
def versions() -> dict[str, str]:
    """Return the versions of Python, of this package and of the installed libraries, and the machine's kind."""
    machine = f"{platform.system()} {platform.machine()}"
    installed = {"python": platform.python_version(), "machine": machine, "dp_ensemble_env": __version__}
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            installed[name] = metadata.version(name)
    return installed


# ------------------------------------------------------------------ words of the glossary
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
    marks = r"{term}`([^`]*)`|\*([^*]+)\*"
    return {term: re.sub(marks, lambda m: m[1] or m[2], " ".join(meaning.split())) for term, meaning in entries}


def link_terms(escaped: str, wanted: Callable[[str], bool]) -> str:
    """Link the words of the glossary in a piece of HTML without tags, each if `wanted` says so of its term."""

    def link(match: re.Match[str]) -> str:
        term = MARKED.get(match[1]) or MARKED[match[1].lower()]
        if match[1] == "K":  # a kelvin, not a concentration
            return match[1]
        return f'<a class="term" href="#{anchor(term)}">{match[1]}</a>' if wanted(term) else match[1]

    return _TERM.sub(link, escaped)


def anchor(term: str) -> str:
    """Return the id of a term on a page."""
    return "term-" + html.escape(term.replace(" ", "-").replace(",", ""))
