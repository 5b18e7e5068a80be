"""A self-contained HTML page: text, tables and pictures in one file that loads without a network."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Sequence
from pathlib import Path

from dp_ensemble_env._files import atomic_write

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #ffffff; --line: #d0d0d0; --soft: #f4f4f4; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #ececec; --paper: #161616; --line: #444444; --soft: #222222; }
  img { background: #ffffff; padding: 6px; border-radius: 4px; }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
       max-width: 1060px; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.6rem; line-height: 1.2; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
.table { overflow-x: auto; } table { border-collapse: collapse; font-size: 0.9rem; }
th, td { padding: 0.3rem 0.7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child, .left { text-align: left; } th { background: var(--soft); position: sticky; top: 0; }
th button { font: inherit; color: inherit; background: none; border: 0; padding: 0; cursor: pointer; }
img { max-width: 100%; height: auto; } figure { margin: 1rem 0; } figcaption { font-size: 0.9rem; opacity: 0.8; }
code { background: var(--soft); padding: 0.1rem 0.3rem; border-radius: 3px; overflow-wrap: anywhere; }
"""

# Click a heading to sort by it; numbers as numbers, dashes last.
_SCRIPT = """
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


class Page:
    """Collects the parts of a page in order; `write` puts them into one file."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.parts: list[str] = [f"<h1>{html.escape(title)}</h1>"]

    def heading(self, text: str) -> None:
        """Begin a section."""
        self.parts.append(f"<h2>{html.escape(text)}</h2>")

    def text(self, text: str) -> None:
        """Add a paragraph; words between backticks become code."""
        pieces = html.escape(text).split("`")
        marked = "".join(f"<code>{piece}</code>" if i % 2 else piece for i, piece in enumerate(pieces))
        self.parts.append(f"<p>{marked}</p>")

    def table(self, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Add a table whose columns can be sorted."""
        head = "".join(f"<th><button>{html.escape(h)}</button></th>" for h in headings)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in row) + "</tr>" for row in rows)
        self.parts.append(
            f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        )

    def picture(self, path: Path, caption: str) -> None:
        """Embed a PNG."""
        data = base64.b64encode(path.read_bytes()).decode("ascii")
        words = html.escape(caption)
        self.parts.append(
            f'<figure><img alt="{words}" src="data:image/png;base64,{data}"><figcaption>{words}</figcaption></figure>'
        )

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
