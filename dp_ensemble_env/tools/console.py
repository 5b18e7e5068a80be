"""Tables, paragraphs and progress on the terminal, drawn by rich.

A table fits the terminal, or 80 columns where there is none. Columns of words wrap, numbers are never cut or folded: a
table that is too wide even so continues in a second block below, with its first columns repeated.

Progress is shown on stderr, after two seconds of silence: on a terminal one line that is kept up to date and vanishes
at the end, elsewhere (a log, a pipe) a plain line every half minute.
"""

from __future__ import annotations

import math
import re
import sys
import threading
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Task
    from rich.text import Text

#: Seconds of silence at the beginning, and seconds between two lines where nothing can be overwritten.
SILENT, PAUSE = 2.0, 30.0
#: Longest line of progress, and of prose on a wide terminal.
COLUMNS, PROSE = 80, 110
#: A column of words is not squeezed below this.
COMFORT = 16


# ------------------------------------------------------------------ tables and prose
def table(
    title: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    *,
    keep: int = 1,
    notes: Sequence[str] = (),
) -> None:
    """Print a table on stdout, with its title above and paragraphs of notes below.

    A cell is styled if it is a rich ``Text``; an empty row is a line between rows, and headings that are all empty are
    left out. A column of numbers goes to the right and never wraps. The first `keep` columns are repeated in each block
    of a table that is split.

    Examples
    --------
    >>> table("", ("controller", "score"), [("ad-hoc", "18.9")])
    controller   score
    ──────────────────
    ad-hoc        18.9
    <BLANKLINE>
    """
    from rich import box
    from rich.table import Table

    console, lines = _console(sys.stdout), [list(row) for row in rows]
    columns = [[str(line[i]) for line in lines if line] for i in range(len(headings))]
    numbers = [_numeric(column) for column in columns]
    least = [_least(*about) for about in zip(headings, columns, numbers, strict=True)]
    if title:
        paragraph(title)
    for block in _blocks(least, keep, console.width):
        drawn = Table(box=box.SIMPLE_HEAD, show_header=any(headings), show_edge=False, pad_edge=False)
        natural = [max(map(len, (headings[i], *columns[i], " "))) for i in block]
        for i, width in zip(block, _widths([least[i] for i in block], natural, console.width), strict=True):
            justify = "right" if numbers[i] else "left"
            drawn.add_column(headings[i], justify=justify, width=width, overflow="fold")  # type: ignore[arg-type]
        for line in lines:
            if line:
                drawn.add_row(*(line[i] for i in block))
            else:
                drawn.add_section()
        console.print(drawn)
        console.print()
    for note in notes:
        paragraph(note)
    if notes:
        console.print()


def paragraph(text: str) -> None:
    """Print a paragraph on stdout, broken at spaces."""
    console = _console(sys.stdout)
    console.print(text, width=min(console.width, PROSE))


def _console(stream: TextIO) -> Console:
    from rich.console import Console

    return Console(file=stream, highlight=False, markup=False, emoji=False)


def _numeric(column: list[str]) -> bool:
    """Say whether all cells are numbers, perhaps with a unit of few letters; dashes and nothing count as such."""
    rest = [re.sub(r"[\W\d_]|inf|nan", "", re.sub(r"\d[eE][-+]?\d", "", cell)) for cell in column]
    digits = [any(c.isdecimal() for c in cell) or "inf" in cell for cell in column]
    return any(digits) and all(
        len(words) <= 3 and (digit or not words) for words, digit in zip(rest, digits, strict=True)
    )


def _least(heading: str, column: list[str], numeric: bool) -> int:
    """Return the width below which a column is not squeezed: numbers whole, words in comfort."""
    longest = max(map(len, column), default=0)
    word = max(map(len, heading.split()), default=0)
    return max(word, longest if numeric else min(longest, COMFORT))


def _widths(least: list[int], natural: list[int], width: int) -> list[int]:
    """Give each column its least width, and what is left over to the first ones that would wrap."""
    widths = [min(pair) for pair in zip(least, natural, strict=True)]
    spare = width - sum(widths) - 3 * (len(widths) - 1)
    for i, wanted in enumerate(natural):
        more = max(min(wanted - widths[i], spare), 0)
        widths[i], spare = widths[i] + more, spare - more
    return widths


def _blocks(least: list[int], keep: int, width: int) -> list[list[int]]:
    """Distribute the columns over blocks that fit, the leading ones in each."""
    keys = list(range(min(keep, len(least))))
    blocks = [keys]
    for i in range(len(keys), len(least)):
        if len(blocks[-1]) > len(keys) and sum(least[j] + 3 for j in (*blocks[-1], i)) - 3 > width:
            blocks.append(keys)
        blocks[-1] = [*blocks[-1], i]
    return blocks


# ------------------------------------------------------------------ progress
class Monitor:
    """The receiver of a long computation's reports; this one shows nothing."""

    def stage(self, text: str, total: float | None = None, done: float = 0.0) -> None:
        """Begin a stage of `total` units (None: unknown), `done` of which were done by an earlier run."""

    def advance(self, done: float, note: str = "", total: float | None = None) -> None:
        """Report the units done, with a note about the latest of them."""


class Progress(Monitor):
    """A monitor that writes to a stream, by default stderr, in a ``with`` block; it begins with a first stage."""

    def __init__(self, text: str = "", total: float | None = None, stream: TextIO | None = None) -> None:
        from rich import progress
        from rich.console import Console

        class Line(progress.ProgressColumn):
            def render(self, task: Task) -> Text:
                return _line(task)

        stream = sys.stderr if stream is None else stream
        self._console = Console(file=stream, force_terminal=stream.isatty(), color_system=None, highlight=False)
        self._console.width = min(self._console.width, COLUMNS)
        # The period makes the time left an average over the whole stage.
        self._bar = progress.Progress(
            Line(), console=self._console, transient=True, redirect_stdout=False, speed_estimate_period=math.inf
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._show, daemon=True)
        self.stage(text, total)

    def __enter__(self) -> Progress:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._bar.live.is_started:
            self._bar.stop()

    def stage(self, text: str, total: float | None = None, done: float = 0.0) -> None:
        """Begin a stage, where `done` of its units were done by an earlier run."""
        with self._bar._lock:  # no line is drawn between the two stages
            for task in self._bar.task_ids:
                self._bar.remove_task(task)
            self._task = self._bar.add_task(text, total=total, completed=done, note="")  # type: ignore[arg-type]
            self._bar.advance(self._task, 0.0)  # the time left counts from here

    def advance(self, done: float, note: str = "", total: float | None = None) -> None:
        """Report the units done, with a note about the latest of them."""
        self._bar.update(self._task, completed=done, total=total, note=note)

    def say(self, text: str) -> None:
        """Write a line that stays."""
        self._console.print(text, markup=False, emoji=False, soft_wrap=True)

    def _show(self) -> None:
        pause = SILENT
        while not self._stop.wait(pause):
            if self._console.is_interactive:
                self._bar.start()
                return
            self._console.print(_line(self._bar.tasks[0]), no_wrap=True, overflow="ellipsis")
            pause = PAUSE


def _line(task: Task) -> Text:
    from rich.text import Text

    left = None if task.finished else task.time_remaining
    seconds, word = (task.elapsed or 0.0, "so far") if left is None else (left, "left")
    share = f"{task.percentage:.0f} %" if task.total else ""
    parts = (task.description, share, task.fields["note"], f"{timedelta(seconds=round(seconds))} {word}")
    return Text(", ".join(part for part in parts if part), no_wrap=True, overflow="ellipsis")
