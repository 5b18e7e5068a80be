"""Which columns of a table hold what."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import refuses
from meter_files import NAN, at, stamps, table

from dp_ensemble_env.meter import Gap, meter_columns, read_meter, read_meters
from dp_ensemble_env.meter.identities import is_export


@pytest.mark.parametrize("header, unit, factor", [
    *(("x", unit, factor) for unit, factor in
      (("kW", 1), ("W", 1e-3), ("MW", 1e3), ("kWh", 4), ("Wh", 4e-3), ("MWh", 4e3))),
    *((header, None, factor) for header, factor in
      (("kWh", 4), ("usage (kWh)", 4), ("power_kw", 1), ("EnergyKWh", 4), ("Energy [Wh]", 4e-3), ("P (W)", 1e-3),
       ("demand MW", 1e3), ("power_w", 1e-3))),
])  # fmt: skip
def test_units_are_given_or_stated_and_become_kw_with_the_step(file, header, unit, factor):
    series = read_meter(file(table(f"start,{header}", 2, 3, minutes=15)), unit=unit)
    np.testing.assert_allclose(series.kw, [2 * factor, 3 * factor], rtol=1e-15)


@pytest.mark.parametrize("header, hour", [("interval start", 0), ("start_time", 0), ("Hour Ending", -1),
                                          ("period_end", -1), ("interval end", -1)])  # fmt: skip
def test_the_header_states_the_stamp(reads, header, hour):
    assert reads([1, 2], table(f"{header},kW", 1, 2)).times[0] == at("2024-07-01T00:00") + np.timedelta64(hour, "h")


def test_columns_of_a_wide_file_are_chosen_by_name_and_added(file, reads, refused):
    path = file(table("timestamp,a,b,102,temperature", "1,10,100,20", "2,,200,21"))
    how = {"unit": "kW", "stamp": "start"}
    assert meter_columns(path) == ["a", "b", "102"]  # buildings may have numbers for names
    refused("pass column=.*'a', 'b', '102', 'temperature'", path, **how)
    refused("unknown column of meter.csv 'd'.*choose one of 'a', 'b', '102'", path, column="d", **how)
    refused("each once", path, column=["a", "a"], **how)
    reads([10, NAN], path, column="b", **how)
    reads([101, 202], path, column=["a", "102"], **how)
    notes = reads([111, NAN], path, column="sum", **how).notes
    assert "Left out of the sum, by their names: 'temperature'." in notes
    assert "Added up 3 columns; the sum is missing where one of them is." in notes
    assert "the only load whose name states a unit" in reads([1, 2], table("start,kwh,temp", "1,20", "2,21")).notes[0]
    refused(r"different units \(kW, kWh\)", table("start,a_kw,b_kwh", "1,20", "2,21"), column="sum")


OPOWER = """Name,A PERSON
Address,"1 MAIN ST, NEW YORK NY"
Account Number,123456789
Service,Service 1

TYPE,DATE,START TIME,END TIME,USAGE,UNITS,COST,NOTES
Electric usage,2018-01-01,00:00,00:14,1.5,kWh,$0.30,
Electric usage,2018-01-01,00:15,00:29,2.5,kWh,$0.50,
Electric usage,2018-01-01,00:45,00:59,0.5,kWh,$0.10,
"""


def test_opower(file, reads, refused):
    series = reads([6, 10, NAN, 2], OPOWER)
    assert stamps(series)[0] == "2018-01-01 00:00"
    assert series.gaps == (Gap(at("2018-01-01T00:30"), at("2018-01-01T00:45"), 1, "missing"),)
    refused(r"line 8: the unit is 'therms'", OPOWER.replace("2.5,kWh", "2.5,therms"))
    refused(r"line 8: the interval lasts 30 minutes where most last 15", OPOWER.replace("00:15,00:29", "00:15,00:44"))
    text = "TYPE,DATE,START TIME,END TIME,IMPORT (kWh),EXPORT (kWh),NOTES\n"
    text += "".join(f"Electric usage,2018-01-01,{h:02}:00,{h:02}:59,{h + 1},{h + 5},\n" for h in range(3))
    reads([1, 2, 3], text)
    reads([5, 6, 7], text, column="EXPORT (kWh)")


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


def test_a_nameplate_is_not_the_load(file, reads):
    rows = [f"500,{h}" for h in range(1, 6)]
    series = reads(range(1, 6), table("start,transformer_kw,reading", *rows), unit="kWh")
    assert "Not taken for a load, since it holds one value: 'transformer_kw'." in series.notes
    reads(range(1, 6), table("start,nameplate_kw,load_kw", *rows))
    reads([500] * 5, table("start,nameplate_kw,load_kw", *rows), column="nameplate_kw")
    wide = file(table("start,nameplate_kw,a_kw,b_kw", *(f"{row},{i}" for i, row in enumerate(rows))))
    assert list(read_meters(wide)) == ["a_kw", "b_kw"]


def test_names_of_energy_that_leaves_the_site():
    names = "export kWh,kWh injected,feed-in kWh,PV kWh,Solar production (kWh),generation_kWh,kWh received,A- kWh,"
    names += "Einspeisung kWh,exported_kWh,kWh returned,1-0:2.8.0 kWh,Teruglevering kWh,outgoing_kWh"
    assert all(map(is_export, names.split(",")))
    assert not any(map(is_export, ("import kWh", "A+ kWh", "1-0:1.8.0 kWh", "delivered_kWh", "production line 3")))


@pytest.mark.parametrize("name", ["export kWh", "SolarKWh"])
def test_energy_that_leaves_the_site_is_never_added_to_the_load(file, reads, refused, name):
    path = file(table(f"start,import kWh,{name}", "1,10", "2,20"))
    assert meter_columns(path) == ["import kWh"]
    reads([1, 2], path, column="sum")
    refused("never added to a load", path, column=["import kWh", name])
    stamp = "2024-07-01 0"
    long = file(f"start,channel,kWh\n{stamp}0:00,import,1\n{stamp}0:00,{name},9\n{stamp}1:00,import,2\n", "long.csv")
    reads([1, 2], long, meter_id="sum")
    assert meter_columns(long) == ["import"]
    alone = file(table(f"start,{name}", 1, 2), "alone.csv")
    refuses("is no load by its name; pass column=", read_meters, alone)
    reads([1, 2], alone, column=name)


def test_what_is_no_load_is_refused_and_each_column_has_its_own_unit(file, reads, refused):
    rows = [f"{h},{h + 1},{h + 2},{h + 3}" for h in range(1, 6)]
    mixed = read_meters(file(table("start,a_kW,dry bulb,b_MW,outdoor temperature", *rows)))
    assert {name: series.kw[0] for name, series in mixed.items()} == {"a_kW": 1.0, "b_MW": 3000.0}
    assert "Not read as loads: 'dry bulb', 'outdoor temperature'." in mixed["a_kW"].notes
    refuses(
        "no column is a load by its name", read_meters, file(table("start,wind,price,tariff,HDD", *rows)), unit="kW"
    )
    refuses("'temperature' is no load by its name", read_meters, file(table("start,temperature", 1, 2)), unit="kW")
    refused("'gas' is not electricity", table("start,commodity,usage", "gas,1", "gas,2"), unit="kWh")
    for header in ("gas_usage_kWh", "water (kWh)"):
        refused("is not electricity", table(f"start,{header}", 1, 2), unit="kWh")
    net = file(table("start,net kWh,house_kWh", "-1,2", "2,2"))
    assert meter_columns(net) == ["house_kWh"]
    refused("'net kWh' is net of what was produced on site.*negatives='keep'", net, column="sum")
    reads([-1, 2], net, column="net kWh", negatives="keep")


def test_a_sum_of_nothing_is_an_error_and_a_row_of_nothing_is_none(reads, refused):
    """Two meters that are never read at the same time have no sum."""
    path = table("start,a_kW,b_kW", "1,", ",2", "3,")
    refused("no interval has a reading of every one of the 2 columns", path, column="sum")
    refused("no reading is left", table("start,kW", "NA", ""))
    for row in ("Null,Null\n", ",\n", "NULL,\n"):
        reads([1, 2], table("start,kW", 1, 2) + row)
