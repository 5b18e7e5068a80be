"""Green Button feeds and parquet files for the tests."""

from __future__ import annotations

import importlib
from datetime import datetime, timedelta

import numpy as np

#: 2024-01-01 00:00 in New York.
NEW_YEAR = 1704085200
#: The second Sunday in March and the first in November, both at 02:00.
AMERICA = ("360E2000", "B40E2000")


def entry(content, links="", title=""):
    return f"<entry><title>{title}</title>{links}<content>{content}</content></entry>"


def link(rel, href):
    return f'<link rel="{rel}" href="{href}"/>'


def tags(**content):
    return "".join(f"<{name}>{value}</{name}>" for name, value in content.items())


def block(values, start=NEW_YEAR, step=3600):
    """Readings one after the other, of `step` seconds or of their own, if they are (value, seconds)."""
    readings, first = "", start
    for value in values:
        value, length = value if isinstance(value, tuple) else (value, step)
        if value is not None:
            period = f"<timePeriod>{tags(duration=length, start=start)}</timePeriod>"
            readings += f"<IntervalReading>{period}<value>{value}</value></IntervalReading>\n"
        start += length
    return f"<IntervalBlock><interval>{tags(duration=start - first, start=first)}</interval>{readings}</IntervalBlock>"


def kind(uom=72, power=0, **more):
    return f"<ReadingType>{tags(powerOfTenMultiplier=power, uom=uom, **more)}</ReadingType>"


def local(offset=-18000, rules=AMERICA):
    """The clock of the file; without rules, standard time all year."""
    rules = tags(dstStartRule=rules[0], dstEndRule=rules[1]) if rules else ""
    return entry(f"<LocalTimeParameters>{rules}{tags(dstOffset=3600, tzOffset=offset)}</LocalTimeParameters>")


def feed(*entries, head='<?xml version="1.0" encoding="UTF-8"?>\n'):
    body = "\n".join(entries).replace("<content>", '<content xmlns="http://naesb.org/espi">')
    return f'{head}<feed xmlns="http://www.w3.org/2005/Atom">\n{body}\n</feed>'


def usage(values, start=NEW_YEAR, step=3600, clock=None, **about):
    """A feed of one channel, delivered Wh unless `about` says otherwise."""
    return feed(clock or local(), entry(kind(**about)), entry(block(values, start, step)))


# Parquet -------------------------------------------------------------------


def write_parquet(path, **columns):
    pyarrow = importlib.import_module("pyarrow")
    importlib.import_module("pyarrow.parquet").write_table(pyarrow.table(columns), path)
    return path


NAN = float("nan")


def at(text):
    return np.datetime64(text, "s")


def stamps(series):
    return [str(t).replace("T", " ")[:16] for t in series.times]


def table(header, *cells, minutes=60, first="2024-07-01"):
    """Text with a header and a row a stamp, from midnight on."""
    rows = [f"{t:%Y-%m-%d %H:%M},{c}" for t, c in zip(ticks(first, len(cells), minutes), cells, strict=True)]
    return "\n".join([header, *rows]) + "\n"


def hours(day, values, first=0):
    return [(f"{day} {first + i:02}:00", value) for i, value in enumerate(values)]


def ticks(first, count, minutes):
    return [datetime.fromisoformat(first) + timedelta(minutes=minutes * i) for i in range(count)]


def daily_shape(times):
    """A load with a daily cycle, in kWh per hour of the clock."""
    return np.round(10 + 5 * np.sin((np.array([t.hour + t.minute / 60 for t in times]) - 8) / 24 * 2 * np.pi), 3)


def rows(times, values):
    """Lines of text, to three digits."""
    return [f"{time},{value:.3f}" for time, value in zip(times, values, strict=True)]


def autumn(day, second=(20, 40)):
    rows = [(f"{day} {clock}", v) for clock, v in zip(("00:30", "01:00", "01:30"), (1, 10, 20), strict=True)]
    return [*rows, (f"{day} 01:00", second[0]), (f"{day} 01:30", second[1]), (f"{day} 02:00", 5)]
