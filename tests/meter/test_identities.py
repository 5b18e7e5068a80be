"""Several meters below each other."""

from __future__ import annotations

import numpy as np

from dp_ensemble_env.meter import read_meters


def test_rows_of_several_meters_and_their_unit(file, reads, refused):
    header = f"Meter,Date,Unit,{','.join(f'HE{h:02}' for h in range(1, 25))}"
    rows = [f"{m},2024-07-01,kWh," + ",".join(str(k + h) for h in range(24)) for m, k in (("A", 1), ("B", 101))]
    path = file([header, *rows])
    refused(r"column 'Meter' names 2 meters .* pass meter_id= with one name.*'A', 'B'", path)
    reads(101 + np.arange(24), path, meter_id="B")
    reads(102 + 2 * np.arange(24), path, meter_id="sum")
    assert {name: one.kw[0] for name, one in read_meters(path).items()} == {"A": 1, "B": 101}


LONG = [
    "timestamp,meter_id,kWh",
    *(f"2024-07-01 {h:02}:00,{m},{k * (h + 1)}" for h in range(6) for m, k in (("101", 1), ("102", 10))),
]


def test_meters_below_each_other_are_told_from_conflicting_repeats(file, reads, refused):
    path = file(LONG)
    refused(
        r"'meter_id' names 2 meters with readings at the same times, first on lines 2 and 3; pass meter_id=",
        path,
        stamp="start",
    )
    reads(10.0 * np.arange(1, 7), path, stamp="start", meter_id="102")
    reads(11.0 * np.arange(1, 7), path, stamp="start", meter_id="sum")
    refused("unknown meter_id of meter.csv '103'.*'101', '102'", path, stamp="start", meter_id="103")
    refused(
        "no column tells meters apart; leave meter_id= out",
        ["start,kW", "2024-07-01 00:00,1", "2024-07-01 01:00,2"],
        meter_id="A",
    )
    # The same stamp twice in one meter is still a conflict.
    refused("lines 2 and 14 both give .* but differ", [*LONG, "2024-07-01 00:00,101,7"], stamp="start", meter_id="101")


def test_a_meter_that_was_exchanged_is_one_series_and_exports_are_none(reads, refused):
    rows = [f"2024-07-01 {h:02}:00,{'old' if h < 3 else 'new'},{h + 1}" for h in range(6)]
    series = reads(range(1, 7), ["start,meter,kWh", *rows])
    assert any("names 2 meters, one after the other" in note for note in series.notes)
    rows = [f"2024-07-01 {h:02}:00,{c},{h}" for h in range(4) for c in ("export", "solar")]
    refused("no meter is a load by its name; pass meter_id=", ["start,channel,kWh", *rows], meter_id="sum")
