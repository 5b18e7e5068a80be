"""Which columns of a table hold what."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import refuses
from meter_files import NAN, stamps

from dp_ensemble_env.meter import Gap, meter_columns, read_meter, read_meters


@pytest.mark.parametrize("unit, factor", [("kW", 1), ("W", 1e-3), ("MW", 1e3), ("kWh", 4), ("Wh", 4e-3), ("MWh", 4e3)])
def test_units_become_kw_with_the_step(file, unit, factor):
    series = read_meter(file("start,x\n2024-07-01 00:00,2\n2024-07-01 00:15,3\n"), unit=unit)
    np.testing.assert_allclose(series.kw, [2 * factor, 3 * factor], rtol=1e-15)


@pytest.mark.parametrize(
    "header, value",
    [
        ("kWh", 4.0),
        ("usage (kWh)", 4.0),
        ("power_kw", 1.0),
        ("EnergyKWh", 4.0),
        ("Energy [Wh]", 4e-3),
        ("P (W)", 1e-3),
        ("demand MW", 1e3),
        ("power_w", 1e-3),
    ],
)
def test_header_states_the_unit(file, header, value):
    series = read_meter(file(f"start,{header}\n2024-07-01 00:00,1\n2024-07-01 00:15,1\n"))
    np.testing.assert_allclose(series.kw, [value, value], rtol=1e-15)


@pytest.mark.parametrize(
    "header, first",
    [
        ("interval start", "01:00"),
        ("start_time", "01:00"),
        ("Hour Ending", "00:00"),
        ("period_end", "00:00"),
        ("interval end", "00:00"),
    ],
)
def test_header_states_the_stamp(file, header, first):
    series = read_meter(file(f"{header},kW\n2024-07-01 01:00,1\n2024-07-01 02:00,2\n"))
    assert stamps(series)[0] == f"2024-07-01 {first}"
    np.testing.assert_array_equal(series.kw, [1, 2])


WIDE = "timestamp,a,b,c,temperature\n2024-07-01 00:00,1,10,100,20\n2024-07-01 01:00,2,,200,21\n"


@pytest.mark.parametrize("column, kw", [("b", [10, NAN]), (["a", "c"], [101, 202]), ("sum", [111, NAN])])
def test_wide_file_columns_are_chosen_and_added(reads, column, kw):
    series = reads(kw, WIDE, column=column, unit="kW", stamp="start")
    if column == "sum":
        assert "Left out of the sum, by their names: 'temperature'." in series.notes
        assert "Added up 3 columns; the sum is missing where one of them is." in series.notes


def test_the_only_column_with_a_unit_is_taken(reads):
    series = reads([1, 2], "start,kwh,temp\n2024-07-01 00:00,1,20\n2024-07-01 01:00,2,21\n")
    assert "the only load whose name states a unit" in series.notes[0]


def test_columns_of_different_units_are_not_added(file, refused):
    path = file("start,a_kw,b_kwh\n2024-07-01 00:00,1,20\n2024-07-01 01:00,2,21\n")
    refused(r"different units \(kW, kWh\)", path, column="sum")


def test_buildings_may_have_numbers_for_names(file, reads):
    path = file("timestamp,101,102\n2024-07-01 00:00,1,2\n2024-07-01 01:00,3,4\n")
    reads([2, 4], path, column="102", unit="kW", stamp="start")


OPOWER = """Name,A PERSON
Address,"1 MAIN ST, NEW YORK NY"
Account Number,123456789
Service,Service 1

TYPE,DATE,START TIME,END TIME,USAGE,UNITS,COST,NOTES
Electric usage,2018-01-01,00:00,00:14,1.5,kWh,$0.30,
Electric usage,2018-01-01,00:15,00:29,2.5,kWh,$0.50,
Electric usage,2018-01-01,00:45,00:59,0.5,kWh,$0.10,
"""


def test_opower(reads):
    series = reads([6, 10, NAN, 2], OPOWER)
    assert stamps(series)[0] == "2018-01-01 00:00"
    gap = Gap(np.datetime64("2018-01-01T00:30:00"), np.datetime64("2018-01-01T00:45:00"), 1, "missing")
    assert series.gaps == (gap,)


def test_opower_column_may_be_chosen(reads):
    text = "TYPE,DATE,START TIME,END TIME,IMPORT (kWh),EXPORT (kWh),NOTES\n"
    text += "".join(f"Electric usage,2018-01-01,{h:02}:00,{h:02}:59,{h + 1},{h + 5},\n" for h in range(3))
    reads([1, 2, 3], text)
    reads([5, 6, 7], text, column="EXPORT (kWh)")


def test_opower_refuses_gas_and_odd_intervals(refused):
    refused(r"line 8: the unit is 'therms'", OPOWER.replace("2.5,kWh", "2.5,therms"))
    refused(r"line 8: the interval lasts 30 minutes where most last 15", OPOWER.replace("00:15,00:29", "00:15,00:44"))


CONEDISON = """account,date_time,consumption,avg_demand
7,01/01/2018 12:15:00 AM,1.5,6.01
7,01/01/2018 12:30:00 AM,2.5,10.02
7,01/01/2018 12:45:00 AM,2.0,8.00
"""


def test_con_edison_interval_export(reads):
    series = reads([6, 10, 8], CONEDISON)
    assert stamps(series) == ["2018-01-01 00:00", "2018-01-01 00:15", "2018-01-01 00:30"]
    assert "Timestamps mark the end of the interval; they were moved back by 15 minutes." in series.notes
    reads([6.01, 10.02, 8], CONEDISON, column="avg_demand")


def test_campus_scada_newest_first_with_a_repeated_hour(reads):
    text = "DateTime,RealPower,ReactivePower\n"
    text += "11/5/2017 2:00,5,1\n11/5/2017 1:30,4,1\n11/5/2017 1:00,6,1\n"
    text += "11/5/2017 1:30,8,1\n11/5/2017 1:00,2,1\n11/5/2017 0:30,3,1\n"
    series = reads([3, 4, 6, 5], text)
    assert stamps(series)[0] == "2017-11-05 00:30"
    assert "The file is newest first; it was turned round." in series.notes
    assert not any("not in order" in note for note in series.notes)


def test_a_nameplate_is_not_the_load(file, reads):
    rows = [f"2024-07-01 {h:02}:00,500,{h + 1}" for h in range(5)]
    series = reads(range(1, 6), ["start,transformer_kw,reading", *rows], unit="kWh")
    assert "Not taken for a load, since it holds one value: 'transformer_kw'." in series.notes
    reads(range(1, 6), ["start,nameplate_kw,load_kw", *rows])
    reads([500] * 5, ["start,nameplate_kw,load_kw", *rows], column="nameplate_kw")
    assert list(read_meters(file(["start,nameplate_kw,a_kw,b_kw", *(f"{r},{i}" for i, r in enumerate(rows))]))) == [
        "a_kw",
        "b_kw",
    ]


@pytest.mark.parametrize("name", ["export kWh", "kWh injected", "feed-in kWh", "PV kWh", "Solar production (kWh)",
                                  "generation_kWh", "kWh received", "Einspeisung kWh", "exported_kWh", "kWh returned",
                                  "1-0:2.8.0 kWh", "A- kWh", "Teruglevering kWh", "outgoing_kWh"])  # fmt: skip
def test_energy_that_leaves_the_site_is_never_added_to_the_load(file, name, refused):
    path = file(f"start,import kWh,{name}\n2024-07-01 00:00,1,10\n2024-07-01 01:00,2,20\n")
    assert meter_columns(path) == ["import kWh"]
    np.testing.assert_allclose(read_meter(path, column="sum").kw, [1, 2])
    refused("never added to a load", path, column=["import kWh", name])
    long = f"start,channel,kWh\n2024-07-01 00:00,import,1\n2024-07-01 00:00,{name},9\n2024-07-01 01:00,import,2\n"
    np.testing.assert_allclose(read_meter(file(long, "long.csv"), meter_id="sum").kw, [1, 2])
    assert meter_columns(file(long, "long.csv")) == ["import"]
    alone = file(f"start,{name}\n2024-07-01 00:00,1\n2024-07-01 01:00,2\n", "alone.csv")
    refuses("is no load by its name; pass column=", read_meters, alone)
    np.testing.assert_allclose(read_meter(alone, column=name).kw, [1, 2])


def test_columns_without_a_load_are_refused_and_each_has_its_own_unit(file):
    rows = [f"2024-07-01 {h:02}:00,{h + 1},{h + 2},{h + 3},{h + 4}" for h in range(5)]
    mixed = read_meters(file(["start,a_kW,dry bulb,b_MW,outdoor temperature", *rows]))
    assert {name: series.kw[0] for name, series in mixed.items()} == {"a_kW": 1.0, "b_MW": 3000.0}
    assert "Not read as loads: 'dry bulb', 'outdoor temperature'." in mixed["a_kW"].notes
    refuses("no column is a load by its name", read_meters, file(["start,wind,price,tariff,HDD", *rows]), unit="kW")
    refuses(
        "'temperature' is no load by its name",
        read_meters,
        file("start,temperature\n2024-07-01 00:00,1\n2024-07-01 01:00,2\n"),
        unit="kW",
    )


def test_net_metering_is_refused_with_the_remedy(file, refused):
    path = file("start,net kWh,house_kWh\n2024-07-01 00:00,-1,2\n2024-07-01 01:00,2,2\n")
    assert meter_columns(path) == ["house_kWh"]
    refused("'net kWh' is net of what was produced on site.*negatives='keep'", path, column="sum")
    np.testing.assert_allclose(read_meter(path, column="net kWh", negatives="keep").kw, [-1, 2])


def test_a_sum_of_nothing_is_an_error(file, refused):
    """Two meters that are never read at the same time have no sum."""
    path = file("start,a_kW,b_kW\n2024-07-01 00:00,1,\n2024-07-01 01:00,,2\n2024-07-01 02:00,3,\n")
    refused("no interval has a reading of every one of the 2 columns", path, column="sum")
    refused("no reading is left", file("start,kW\n2024-07-01 00:00,NA\n2024-07-01 01:00,\n", "empty.csv"))


def test_gas_and_water_are_no_electricity_even_with_a_unit(refused):
    text = "start,commodity,usage\n2024-07-01 00:00,gas,1\n2024-07-01 01:00,gas,2\n"
    refused("'gas' is not electricity", text, unit="kWh")
    for header in ("Gas kWh", "gas_usage_kWh", "water (kWh)"):
        refused("is not electricity", f"start,{header}\n2024-07-01 00:00,1\n2024-07-01 01:00,2\n", unit="kWh")


def test_one_row_of_nulls_does_not_refuse_a_file(file):
    text = "start,kW\n2024-07-01 00:00,1\n2024-07-01 01:00,2\n"
    for row in ("Null,Null\n", ",\n", "NULL,\n"):
        series = read_meter(file(text + row))
        np.testing.assert_allclose(series.kw, [1, 2])
