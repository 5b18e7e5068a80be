"""A self-contained HTML page: text, tables and pictures in one file that loads without a network."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from dp_ensemble_env._files import atomic_write

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #ffffff; --line: #d0d0d0; --soft: #f4f4f4;
        --muted: #4a4a4a; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #ececec; --paper: #161616; --line: #444444; --soft: #222222; --muted: #b8b8b8; }
  img { background: #ffffff; padding: 6px; border-radius: 4px; }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
       max-width: 1060px; margin: 0 auto; padding: 1.5rem 1rem 4rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; } h2 { font-size: 1.25rem; margin-top: 2.4rem; }
h3 { font-size: 1.05rem; margin-top: 1.8rem; } dt { font-weight: 600; } dd { margin: 0 0 0.5rem 1.2rem; }
.table { overflow-x: auto; } table { border-collapse: collapse; font-size: 0.9rem; }
th, td { padding: 0.3rem 0.7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child, .left { text-align: left; } th { background: var(--soft); position: sticky; top: 0; }
td.wrap { white-space: normal; text-align: left; min-width: 9.5rem; vertical-align: top; }
td.wrap strong { display: block; } td.wrap:first-child { min-width: 13rem; }
td.wrap ul { margin: 0.2rem 0 0; padding-left: 1rem; }
.table.wide::before { content: "this table scrolls sideways →"; position: sticky; left: 0; display: inline-block;
                      font-size: 0.8rem; color: var(--muted); }
td::before { display: none; }
@media (max-width: 700px) {
  table.stack thead, table.stack td.none { display: none; }
  table.stack, table.stack tbody, table.stack tr, table.stack td { display: block; min-width: 0; }
  table.stack tr { border-bottom: 1px solid var(--line); padding: 0.6rem 0; }
  table.stack td { border: 0; padding: 0.1rem 0; }
  table.stack td:first-child { font-weight: 600; }
  table.stack td[data-label]::before { content: attr(data-label) ": "; display: inline; color: var(--muted); }
  td.wrap strong { display: inline; }
}
th button { font: inherit; color: inherit; background: none; border: 0; padding: 0; cursor: pointer; }
img { max-width: 100%; height: auto; } figure { margin: 1rem 0; }
.column img { width: 38rem; } figcaption { font-size: 0.9rem; color: var(--muted); }
code { background: var(--soft); padding: 0.1rem 0.3rem; border-radius: 3px; overflow-wrap: anywhere; }
"""

# Click a heading to sort by it; numbers as numbers, dashes last. A table wider than its box says so.
_SCRIPT = """
function mark() {
  document.querySelectorAll("div.table").forEach(function (box) {
    box.classList.toggle("wide", box.firstChild.offsetWidth > box.clientWidth);
  });
}
mark();
window.addEventListener("resize", mark);
document.querySelectorAll("th button").forEach(function (button) {
  button.addEventListener("click", function () {
    var th = button.parentNode, body = th.closest("table").tBodies[0];
    var column = Array.prototype.indexOf.call(th.parentNode.children, th), down = th.dataset.down !== "1";
    var value = function (row) {
      var text = row.children[column].textContent.trim(), number = parseFloat(text.replace(/,/g, ""));
      return isNaN(number) ? text : number;
    };
    Array.prototype.slice.call(body.rows).sort(function (a, b) {
      var x = value(a), y = value(b), mixed = typeof x !== typeof y;
      var order = mixed ? (typeof x === "number" ? -1 : 1) : (x < y ? -1 : x > y ? 1 : 0);
      return !mixed && down ? -order : order;
    }).forEach(function (row) { body.appendChild(row); });
    th.dataset.down = down ? "1" : "0";
  });
});
"""


class Cell(NamedTuple):
    """A cell of words that may run over several lines, the first of them bold, with a list at its end."""

    head: str
    body: str = ""
    items: tuple[str, ...] = ()


class Page:
    """Collects the parts of a page in order; `write` puts them into one file."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.parts: list[str] = [f"<h1>{html.escape(title)}</h1>"]

    def heading(self, text: str, level: int = 2) -> None:
        """Begin a section, or a part of one."""
        self.parts.append(f"<h{level}>{html.escape(text)}</h{level}>")

    def text(self, text: str) -> None:
        """Add a paragraph; words between backticks become code."""
        self.parts.append(f"<p>{_marked(text)}</p>")

    def items(self, texts: Iterable[str]) -> None:
        """Add a list."""
        self.parts.append("<ul>" + "".join(f"<li>{_marked(text)}</li>" for text in texts) + "</ul>")

    def definitions(self, terms: Iterable[tuple[str, str]]) -> None:
        """Add a list of terms with what they mean."""
        pairs = (f"<dt>{_marked(term)}</dt><dd>{_marked(meaning)}</dd>" for term, meaning in terms)
        self.parts.append("<dl>" + "".join(pairs) + "</dl>")

    def table(self, headings: Sequence[str], rows: Iterable[Sequence[str | Cell]], stack: bool = False) -> None:
        """Add a table whose columns can be sorted; on a phone `stack` shows each row's cells below one another."""
        lines = [list(row) for row in rows]
        words = {i for row in lines for i, cell in enumerate(row) if isinstance(cell, Cell)}
        head = "".join(
            ('<th class="left">' if i in words else "<th>") + f"<button>{html.escape(h)}</button></th>"
            for i, h in enumerate(headings)
        )
        labels = ["", *headings[1:]] if stack else [""] * len(headings)
        body = "".join("<tr>" + "".join(map(_cell, row, labels)) + "</tr>" for row in lines)
        kind = ' class="stack"' if stack else ""
        self.parts.append(
            f'<div class="table"><table{kind}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        )

    def picture(self, path: Path, caption: str, column: bool = False) -> None:
        """Embed a PNG; one drawn for a journal's column is shown no wider than a column of text."""
        data = base64.b64encode(path.read_bytes()).decode("ascii")
        words = html.escape(caption)
        image = f'<img alt="{words}" src="data:image/png;base64,{data}">'
        kind = ' class="column"' if column else ""
        self.parts.append(f"<figure{kind}>{image}<figcaption>{words}</figcaption></figure>")

    def write(self, path: Path) -> Path:
        """Write the page atomically."""
        with atomic_write(path) as stream:
            stream.write(
                '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
                '<meta name="viewport" content="width=device-width, initial-scale=1">'
                f'<link rel="icon" href="data:,"><title>{html.escape(self.title)}</title>'
                f"<style>{_STYLE}</style></head>\n"
                f"<body>{''.join(self.parts)}<script>{_SCRIPT}</script></body></html>\n"
            )
        return path


def _marked(text: str) -> str:
    pieces = html.escape(text).split("`")
    return "".join(f"<code>{piece}</code>" if i % 2 else piece for i, piece in enumerate(pieces))


def _cell(cell: str | Cell, label: str = "") -> str:
    name = f' data-label="{html.escape(label)}"' if label else ""
    if isinstance(cell, str):
        return f"<td{name}>{html.escape(cell)}</td>"
    if cell == Cell("", "–"):
        return '<td class="wrap none">–</td>'
    head = f"<strong>{html.escape(cell.head)}</strong> " if cell.head else ""
    items = "".join(f"<li>{html.escape(item)}</li>" for item in cell.items)
    return f'<td class="wrap"{name}>{head}{html.escape(cell.body)}{f"<ul>{items}</ul>" if items else ""}</td>'
