"""NEM12 files."""

from __future__ import annotations

import numpy as np
import pytest
from meter_files import at

from dp_ensemble_env.meter import meter_columns, read_meter


def nem12(*channels):
    lines = ["100,NEM12,202407020800,MDP1,RETAILER"]
    for suffix, unit, values, quality in channels:
        lines.append(f"200,NEM1200001,E1B1,1,{suffix},N1,METER1,{unit},30,20240801")
        for day, scale in (("20240701", 1), ("20240702", 2)):
            lines.append(f"300,{day}," + ",".join(str(v * scale) for v in values) + f",{quality},,,20240702120000,")
    return [*lines, "900"]


def test_nem12(file):
    values = [round(0.5 + 0.01 * i, 2) for i in range(48)]
    path = file(nem12(("E1", "kWh", values, "A"), ("B1", "kWh", [9] * 48, "A")))
    series = read_meter(path)
    np.testing.assert_allclose(series.kw, [2 * v * s for s in (1, 2) for v in values], rtol=1e-12)
    assert series.times[0] == at("2024-07-01T00:00") and series.step == np.timedelta64(1800, "s")
    assert any("'NEM1200001 B1' (meter point NEM1200001, produced, kWh)" in note for note in series.notes)
    assert meter_columns(path) == ["NEM1200001 E1"]
    # Adelaide is half an hour behind market time.
    assert read_meter(path, timezone="Australia/Adelaide").times[0] == at("2024-06-30T23:30")
    np.testing.assert_array_equal(read_meter(file(nem12(("E1", "kWh", values, "A"))[1:])).kw, series.kw)


def test_nem12_channels_and_nulls(file, refused):
    values = list(range(1, 49))
    lines = nem12(("E1", "kWh", values, "V"), ("E2", "kWh", values, "A"), ("Q1", "kvarh", values, "A"))
    lines.insert(3, "400,1,2,N")
    lines.insert(4, "400,3,48,A")
    path = file(lines)
    refused("several meters or channels .*'NEM1200001 E1' .*'NEM1200001 E2'", path)
    assert np.flatnonzero(np.isnan(read_meter(path, column="NEM1200001 E1").kw)).tolist() == [0, 1]
    np.testing.assert_array_equal(read_meter(path, column=["NEM1200001 E1", "NEM1200001 E2"]).kw[2:4], [12, 16])


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda t: t.replace(",30,2024", ",7,2024"), "line 2: the record 200 does not state its interval"),
        (lambda t: t.replace("300,20240701,1,", "300,20240701,"), "line 3: .* is infinite|no number|readings where"),
        (lambda t: t.replace("300,20240701,1", "300,20240701,x"), "line 3: a reading is not a number"),
        (lambda t: t.replace("\n900", "\n999,1"), "'999' is not a NEM12 record"),
        (lambda t: "100,NEM12,1,A,B\n300,20240701,1\n", "before any record 200"),
        # A day of 96 quarter hours under a header of 30 minutes would lose half of them, with a quality or without.
        (lambda t: t.replace(",48,A", f",48{',1' * 48},A"), "line 3: the day has 96 readings where the header's 30"),
        (lambda t: t.replace(",48,A", f",48{',1' * 48},"), r"line 3: the day has \d+ readings where"),
    ],
)
def test_nem12_refusals(refused, change, message):
    refused(message, change("\n".join(nem12(("E1", "kWh", list(range(1, 49)), "A")))))
