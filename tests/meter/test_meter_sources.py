"""Green Button XML, parquet and the SimBench profiles."""

from __future__ import annotations

import importlib
import sys

import numpy as np
import pytest
from helpers import fake_simbench
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dp_ensemble_env.meter import meter_columns, read_meter, simbench_profile

NAN = float("nan")
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


@pytest.fixture
def file(tmp_path):
    def write(text, name="usage.xml"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


@pytest.mark.parametrize("type_first", [True, False])
def test_green_button_energy(file, type_first):
    parts = [entry(reading_type(72, 3)), entry(block([1, 2, None, 4]))]
    series = read_meter(file(feed(LOCAL, *(parts if type_first else parts[::-1]))))
    np.testing.assert_array_equal(series.kw, [4, 8, NAN, 16])
    assert series.times[0] == np.datetime64("2024-01-01T00:00:00") and series.step == np.timedelta64(900, "s")
    assert any("UTC-5 h all year" in note for note in series.notes)


def test_green_button_power_and_several_blocks(file):
    text = feed(LOCAL, entry(block([3000, 4000])), entry(reading_type(38)), entry(block([5000], NEW_YEAR + 1800)))
    np.testing.assert_array_equal(read_meter(file(text)).kw, [3, 4, 5])


def test_green_button_negative_power_of_ten_and_utf16(file):
    text = feed(LOCAL, entry(reading_type(72, -3)), entry(block([2_000_000, 1_000_000], step=3600)), head="")
    np.testing.assert_allclose(read_meter(file(text.encode("utf-16"))).kw, [2, 1], rtol=1e-15)


def test_green_button_time_zone(file):
    text = feed(entry(reading_type()), entry(block([1000, 2000], start=1720000800, step=3600)))  # 10:00 UTC
    with pytest.raises(ValueError, match="does not state its time zone; pass timezone="):
        read_meter(file(text))
    summer = read_meter(file(text), timezone="America/New_York")
    assert summer.times[0] == np.datetime64("2024-07-03T06:00:00")
    # The file's own offset is that of standard time.
    text = feed(LOCAL, entry(reading_type()), entry(block([1000, 2000], start=1720000800, step=3600)))
    assert read_meter(file(text)).times[0] == np.datetime64("2024-07-03T05:00:00")


def two_meters():
    related = [
        link("related", "/RT/1") + link("related", "/MR/1/IB"),
        link("related", "/RT/2") + link("related", "/MR/2/IB"),
    ]
    return feed(
        LOCAL,
        entry("<MeterReading/>", link("self", "/MR/1") + related[0], "house"),
        entry("<MeterReading/>", link("self", "/MR/2") + related[1], "garage"),
        entry(block([1000, 2000], step=3600), link("up", "/MR/1/IB")),
        entry(block([7, 8], step=3600), link("up", "/MR/2/IB")),
        entry(reading_type(72, 0), link("self", "/RT/1")),
        entry(reading_type(72, 3), link("self", "/RT/2")),
    )


def test_green_button_meters_are_told_apart_by_their_links(file):
    path = file(two_meters())
    assert meter_columns(path) == ["house", "garage"]
    with pytest.raises(ValueError, match=r"pass column=.*'house' \(delivered, Wh\), 'garage' \(delivered, Wh\)"):
        read_meter(path)
    np.testing.assert_array_equal(read_meter(path, column="house").kw, [1, 2])
    np.testing.assert_array_equal(read_meter(path, column="garage").kw, [7, 8])
    for column in ("sum", ["house", "garage"]):
        np.testing.assert_array_equal(read_meter(path, column=column).kw, [8, 10])


def test_green_button_leaves_out_what_is_not_electricity(file):
    path = file(two_meters().replace("<uom>72</uom>", "<uom>169</uom>", 1))
    assert meter_columns(path) == ["garage"]
    np.testing.assert_array_equal(read_meter(path).kw, [7, 8])
    with pytest.raises(ValueError, match=r"no readings in Wh .*'readings' \(not electricity, uom 169\)"):
        read_meter(file(feed(LOCAL, entry(reading_type(169)), entry(block([1, 2])))))


def test_green_button_without_reading_type_needs_a_unit(file):
    path = file(feed(LOCAL, entry(block([1000, 2000], step=3600))))
    with pytest.raises(ValueError, match="no ReadingType.*pass unit="):
        read_meter(path)
    np.testing.assert_array_equal(read_meter(path, unit="Wh").kw, [1, 2])


BOMB = """<?xml version="1.0"?>
<!DOCTYPE feed [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>
<feed>&b;</feed>"""
GOOD = feed(LOCAL, entry(reading_type()), entry(block([1, 2])))


@pytest.mark.parametrize(
    "text, message",
    [
        (BOMB, r"line 2: the file declares a document type or an entity"),
        ('<!DOCTYPE feed SYSTEM "file:///etc/passwd"><feed/>', "line 1: the file declares a document type"),
        (GOOD[:-30], "the XML is broken"),
        (GOOD.replace("UTF-8", "x-unknown"), "XML declares an encoding|XML is broken .unknown encoding"),
        (GOOD.replace("UTF-8", "utf-7"), "XML declares an encoding"),
        ("<feed/>", "no IntervalReading was found"),
        (GOOD.replace("<value>2", "<value>two"), r"line \d+: cannot read 'two' in <value> as a whole number"),
        (GOOD.replace("<value>2", "<value>" + "9" * 30), "as a whole number"),
        (GOOD.replace(f"<start>{NEW_YEAR + 900}</start>", ""), r"the IntervalReading has no <start>"),
        (GOOD.replace(str(NEW_YEAR + 900), "99999999999"), "not between 1900 and 2200"),
        (GOOD.replace("<duration>900", "<duration>300", 1), r"line \d+: the interval lasts"),
        (GOOD.replace("<powerOfTenMultiplier>0", "<powerOfTenMultiplier>99"), "out of range"),
        (feed(LOCAL, entry(reading_type()), entry(reading_type(38)), entry(block([1, 2]))), "several ReadingTypes"),
        ("<a>" * 200, "nested too deeply"),
    ],
)
def test_green_button_refusals(file, text, message):
    with pytest.raises(ValueError, match=message) as caught:
        read_meter(file(text))
    assert "\n" not in str(caught.value)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(1, 10**6), min_size=2, max_size=40), st.sampled_from([300, 900, 3600]))
def test_green_button_round_trip(tmp_path, values, step):
    path = tmp_path / "usage.xml"
    path.write_text(feed(LOCAL, entry(block(values, step=step)), entry(reading_type())))
    series = read_meter(path, spikes="keep")
    np.testing.assert_allclose(series.kw, np.array(values) * 3.6 / step, rtol=1e-14)


# Parquet -------------------------------------------------------------------


def write_parquet(path, **columns):
    pyarrow = importlib.import_module("pyarrow")
    parquet = importlib.import_module("pyarrow.parquet")
    parquet.write_table(pyarrow.table(columns), path)
    return path


TIMES = np.array(["2024-07-01T00:00", "2024-07-01T00:30", "2024-07-01T01:30"], dtype="datetime64[ms]")


def test_parquet(tmp_path):
    path = write_parquet(tmp_path / "m.parquet", start=TIMES, a_kwh=[1.0, None, 3.0], b_kwh=[10, 20, 30])
    assert meter_columns(path) == ["a_kwh", "b_kwh"]
    np.testing.assert_array_equal(read_meter(path, column="a_kwh").kw, [2, NAN, NAN, 6])
    np.testing.assert_array_equal(read_meter(path, column="sum").kw, [22, NAN, NAN, 66])
    path = write_parquet(tmp_path / "n.parquet", end=[str(t) for t in TIMES], kw=[1.0, -2.0, 3.0])
    with pytest.raises(ValueError, match=r"n.parquet, row 2: the reading -2"):
        read_meter(path)


def test_parquet_time_zones(tmp_path):
    pyarrow = importlib.import_module("pyarrow")
    for zone, argument, first in [
        ("America/New_York", None, "2024-06-30T20:00:00"),
        ("UTC", "America/New_York", "2024-06-30T20:00:00"),
        ("UTC", "UTC", "2024-07-01T00:00:00"),
    ]:
        stamps = pyarrow.array(TIMES, type=pyarrow.timestamp("ms", zone))
        path = write_parquet(tmp_path / "z.parquet", start=stamps, kw=[1.0, 2.0, 3.0])
        assert read_meter(path, timezone=argument).times[0] == np.datetime64(first)
    with pytest.raises(ValueError, match="in UTC; pass timezone="):
        read_meter(path)


def test_parquet_refusals(tmp_path, monkeypatch):
    path = write_parquet(tmp_path / "m.parquet", start=[TIMES[0], None, TIMES[2]], kw=[1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="row 2: the timestamp is empty"):
        read_meter(path)
    with pytest.raises(ValueError, match="no column of timestamps"):
        read_meter(write_parquet(tmp_path / "m.parquet", kw=[1.0, 2.0]))
    path.write_bytes(b"PAR1 and nothing else")
    with pytest.raises(ValueError, match="m.parquet: the parquet file cannot be read"):
        read_meter(path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install pyarrow"):
        read_meter(path)


# SimBench ------------------------------------------------------------------


def test_simbench_profile(tmp_path, monkeypatch):
    fake_simbench(tmp_path, monkeypatch, [f"01.02.2016 00:{15 * i:02};9;0.{i + 1};8;7" for i in range(4)])
    series = simbench_profile(peak_kw=500)
    np.testing.assert_allclose(series.kw, [50, 100, 150, 200], rtol=1e-15)
    assert series.times[0] == np.datetime64("2016-02-01T00:00:00") and series.step == np.timedelta64(900, "s")
    assert series.notes == ("SimBench profile G0-A, per unit, was multiplied by 500 kW.",)
    np.testing.assert_array_equal(simbench_profile("H0-A").kw, [7000] * 4)
    with pytest.raises(ValueError, match="no load profile 'G9'; choose one of 'G0-A', 'G1-A'"):
        simbench_profile("G9")
    with pytest.raises(ValueError, match="peak_kw must be a positive"):
        simbench_profile(peak_kw=0)


def test_simbench_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setattr("dp_ensemble_env.meter.formats.simbench.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"not installed; pip install simbench"):
        simbench_profile()
