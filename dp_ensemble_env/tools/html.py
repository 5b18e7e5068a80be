"""What a notebook shows of an object: a small card, in the colours of the page around it."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


def card(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """Return a titled list of properties as HTML, for an object's `_repr_html_`.

    Colours are inherited, so the card can be read in light and dark notebooks.
    """
    plain = 'style="text-align: left; font-weight: normal; opacity: 0.7"'
    lines = [
        '<table style="border: 0; border-collapse: collapse; color: inherit; background: none">',
        '<caption style="caption-side: top; text-align: left; color: inherit; font-weight: bold">'
        f"{escape(title)}</caption>",
    ]
    for name, value in rows:
        cells = f'<th {plain}>{escape(name)}</th><td style="text-align: left">{escape(value)}</td>'
        lines.append(f'<tr style="background: none">{cells}</tr>')
    return "\n".join([*lines, "</table>"])
