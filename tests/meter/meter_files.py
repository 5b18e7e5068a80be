"""Green Button feeds and parquet files for the tests."""

from __future__ import annotations

import importlib

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
