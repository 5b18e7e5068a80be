"""Green Button feeds and parquet files for the tests."""

from __future__ import annotations

import importlib
from datetime import datetime, timedelta

import numpy as np

#: 2024-01-01 00:00 in New York.
NEW_YEAR = 1704085200


def entry(content, links="", title=""):
    return f"<entry><title>{title}</title>{links}<content>{content}</content></entry>"


def link(rel, href):
    return f'<link rel="{rel}" href="{href}"/>'


def block(values, start=NEW_YEAR, step=900):
    readings = "".join(
        f"<IntervalReading><timePeriod><duration>{step}</duration><start>{start + step * i}</start></timePeriod>"
        f"<value>{value}</value></IntervalReading>\n"
        for i, value in enumerate(values)
        if value is not None
    )
    period = f"<interval><duration>{step * len(values)}</duration><start>{start}</start></interval>"
    return f"<IntervalBlock>{period}{readings}</IntervalBlock>"


def reading_type(uom=72, power=0):
    return f"<ReadingType><powerOfTenMultiplier>{power}</powerOfTenMultiplier><uom>{uom}</uom></ReadingType>"


LOCAL = entry("<LocalTimeParameters><dstOffset>3600</dstOffset><tzOffset>-18000</tzOffset></LocalTimeParameters>")


def feed(*entries, head='<?xml version="1.0" encoding="UTF-8"?>\n'):
    body = "\n".join(entries).replace("<content>", '<content xmlns="http://naesb.org/espi">')
    return f'{head}<feed xmlns="http://www.w3.org/2005/Atom">\n{body}\n</feed>'


# Parquet -------------------------------------------------------------------


def write_parquet(path, **columns):
    pyarrow = importlib.import_module("pyarrow")
    parquet = importlib.import_module("pyarrow.parquet")
    parquet.write_table(pyarrow.table(columns), path)
    return path


NAN = float("nan")


def at(text):
    return np.datetime64(text, "s")


def stamps(series):
    return [str(t).replace("T", " ")[:16] for t in series.times]


def hours(day, values, first=0):
    return [(f"{day} {first + i:02}:00", value) for i, value in enumerate(values)]


def ticks(first, count, minutes):
    return [datetime.fromisoformat(first) + timedelta(minutes=minutes * i) for i in range(count)]


def daily_shape(times):
    """A load with a daily cycle, in kWh per hour of the clock."""
    hours = np.array([t.hour + t.minute / 60 for t in times])
    return np.round(10 + 5 * np.sin((hours - 8) / 24 * 2 * np.pi), 3)


def autumn(day, second=(20, 40)):
    rows = [(f"{day} {clock}", v) for clock, v in zip(("00:30", "01:00", "01:30"), (1, 10, 20), strict=True)]
    return [*rows, (f"{day} 01:00", second[0]), (f"{day} 01:30", second[1]), (f"{day} 02:00", 5)]
