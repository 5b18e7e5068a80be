"""Green Button XML."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest
from helpers import refuses
from meter_files import NAN, NEW_YEAR, block, entry, feed, kind, link, local, usage

from dp_ensemble_env.meter import meter_columns, read_meter, read_meters
from dp_ensemble_env.meter.origin import MOST

STANDARD = local(rules=None)


def utc(text):
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def test_energy_power_and_their_scales(reads):
    parts = [entry(kind(72, 3)), entry(block([1, 2, None, 4], step=900))]
    for order in (parts, parts[::-1]):
        series = reads([4, 8, NAN, 16], feed(STANDARD, *order))
    assert series.times[0] == np.datetime64("2024-01-01T00:00:00") and series.step == np.timedelta64(900, "s")
    assert any("UTC-5 h all year" in note for note in series.notes)
    reads([3, 4, 5], feed(STANDARD, entry(block([3000, 4000])), entry(kind(38)), entry(block([5000], NEW_YEAR + 7200))))
    text = feed(STANDARD, entry(kind(72, -3)), entry(block([2_000_000, 1_000_000])), head="")
    reads([2, 1], text.encode("utf-16"))


def test_the_clock_is_the_caller_s_or_the_file_s(file, reads, refused):
    start = utc("2024-07-03 10:00")
    refused("does not state its time zone; pass timezone=", feed(entry(kind()), entry(block([1000, 2000], start))))
    for clock, timezone, hour in ((STANDARD, None, 5), (local(), None, 6), (STANDARD, "America/New_York", 6)):
        series = read_meter(file(usage([1000, 2000], start, clock=clock)), timezone=timezone)
        assert series.times[0] == np.datetime64(f"2024-07-03T0{hour}:00:00")
    series = read_meter(file(usage([1000, 2000], start)))
    assert any("UTC-5 h with daylight saving, by the file's own rule" in note for note in series.notes)
    # Across the spring night: 06:00 UTC is 01:00, 07:00 UTC is 03:00.
    spring = reads([1, NAN, 2, 3], usage([1000, 2000, 3000], utc("2024-03-10 06:00")))
    assert spring.gaps[0].reason == "daylight saving"
    broken = usage([1, 2], clock=local(rules=("zz", "B40E2000")))
    refused("the rule for daylight saving cannot be read .*pass timezone=", broken)
    several = usage([1, 2], clock=local() + local(offset=-21600))
    refused("several time zones; pass timezone=", several)
    reads([0.001, 0.002], several, timezone="America/Chicago")


def site(*channels):
    """A feed of channels: (usage point or none, title, values), and what their types say."""
    entries = [local()]
    for point in filter(None, dict.fromkeys(channel[0] for channel in channels)):
        links = link("self", f"/UP/{point}") + link("related", f"/UP/{point}/MR")
        entries.append(entry("<UsagePoint/>", links, f"Service {point}"))
    for i, (point, title, values, about) in enumerate(channels):
        mine, up = f"/UP/{point}/MR/{i}", link("up", f"/UP/{point}/MR") if point else ""
        links = link("self", mine) + up + link("related", f"/RT/{i}") + link("related", f"{mine}/IB")
        step = about.pop("step", 3600)
        entries += [
            entry("<MeterReading/>", links, title),
            entry(block(values, step=step), link("up", f"{mine}/IB")),
            entry(kind(**about), link("self", f"/RT/{i}")),
        ]
    return feed(*entries)


def test_channels_are_told_apart_by_their_links_listed_and_added_up(file, reads, refused):
    gas, roof = ("2", "gas", [7, 7], {"uom": 169}), ("2", "roof", [1, 1], {"flowDirection": 19})
    path = file(site(("1", "flat", [1000, 2000], {}), ("2", "shop", [7, 8], {"power": 3}), gas, roof))
    assert meter_columns(path) == ["flat", "shop"]
    message = (
        r"pass column=.*'flat' \(usage point Service 1, delivered, Wh\), "
        r"'shop' \(usage point Service 2, delivered, Wh\), "
        r"'gas' \(usage point Service 2, not electricity, uom 169\), 'roof' \(usage point Service 2, produced, Wh\)"
    )
    refused(message, path)
    for column, kw in (("flat", [1, 2]), ("shop", [7, 8]), ("sum", [8, 10]), (["flat", "shop"], [8, 10])):
        reads(kw, path, column=column)
    assert {name: one.kw.tolist() for name, one in read_meters(path).items()} == {"flat": [1, 2], "shop": [7, 8]}
    nowhere = site((None, "flat", [1000], {}), (None, "shop", [7], {}))
    refused(r"'flat' \(delivered, Wh\), 'shop' \(delivered, Wh\)", nowhere)


def test_what_is_not_electricity_stays_refused_with_a_unit(reads, refused):
    """Gas in uom 72 or without a known unit: naming one does not make it electricity."""
    refused(r"no readings in Wh .*'readings' \(not electricity, uom 169\)", usage([1, 2], uom=169))
    text = usage([1, 2, 3], commodity=7)
    for unit in (None, "Wh"):
        refused("not electricity", text, unit=unit)
    refused("'readings' .* not electricity", text, column="readings", unit="Wh")
    untyped = feed(STANDARD, entry(block([1000, 2000])))
    refused("no ReadingType.*pass unit=", untyped)
    reads([1, 2], untyped, unit="Wh")


BOMB = '<!DOCTYPE feed [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>\n<feed>&b;</feed>'
GOOD = usage([1, 2])


@pytest.mark.parametrize(
    "text, message",
    [
        (BOMB, r"line 1: the file declares a document type or an entity"),
        ('<!DOCTYPE feed SYSTEM "file:///etc/passwd"><feed/>', "line 1: the file declares a document type"),
        (GOOD[:-30], "the XML is broken"),
        (GOOD.replace("UTF-8", "utf-7"), "XML declares an encoding"),
        (GOOD.replace("<value>2", "<value>two"), r"line \d+: cannot read 'two' in <value> as a whole number"),
        (GOOD.replace(f"<start>{NEW_YEAR + 3600}</start>", ""), r"the IntervalReading has no <start>"),
        (GOOD.replace(str(NEW_YEAR + 3600), "99999999999"), "not between 1900 and 2200"),
        (usage([(1, 1000), 2, 3]), r"line \d+: the interval lasts"),
        (usage([1, 2], power=99), "out of range"),
        (feed(STANDARD, entry(kind()), entry(kind(38)), entry(block([1, 2]))), "several ReadingTypes"),
        ("<a>" * 200, "nested too deeply"),
        # Days of 23 and 25 hours, or months of other lengths, are still days and months.
        (usage([(9, 82800), 9, 9, 9], step=86400), "the readings are daily"),
        (usage([(9, 29 * 86400), 9, 9, 9], step=30 * 86400), "the readings are monthly"),
    ],
)
def test_refusals(refused, text, message):
    refused(message, text)


def test_readings_of_several_intervals(reads):
    # 23:00 in New York; 05:00 and 06:00 UTC are both 01:00.
    text = usage([1000, 2000, (6000, 7200), 4000], utc("2024-11-03 03:00"))
    for timezone in (None, "America/New_York"):
        assert reads([1, 2, 3, 4], text, timezone=timezone).missing == 0
    text = usage([1000, 1000, (6000, 10800), 4000, 4000], utc("2024-07-03 04:00"))
    reads([1, 1, NAN, NAN, NAN, 4, 4], text)
    reads([1, 1, 2, 2, 2, 4, 4], text, catch_up="keep")


def test_registers_are_differenced(reads):
    states = [100_000, 101_000, 103_000, 106_000]
    text = usage(states, utc("2024-07-03 04:00"), accumulationBehaviour=1)
    assert reads([1, 2, 3], text).times[0] == np.datetime64("2024-07-03T00:00:00")
    reads(np.array(states) / 1000, text.replace("<accumulationBehaviour>1<", "<accumulationBehaviour>4<"))
    # Through the autumn night.
    states = 5000 + np.cumsum([0, 3, 1, 4, 1, 5, 9, 2, 6])
    reads([3, 1, (4 + 1) / 2, 5, 9, 2, 6], usage(states, utc("2024-11-03 03:00"), power=3, accumulationBehaviour=1))


def test_fractions_and_one_interval_of_no_seconds_refuse_no_file(file, reads):
    text = usage([1000.5, 2000]).replace(f"<start>{NEW_YEAR}</start>", f"<start>{NEW_YEAR}.0</start>")
    text = text.replace(f"<start>{NEW_YEAR + 3600}</start>", f"<start>{NEW_YEAR + 3599}.9999</start>")
    np.testing.assert_allclose(read_meter(file(text)).kw, [1.0005, 2])
    series = reads([1, 2, 3], usage([1000, 2000, 3000, ("", 0)]).replace("<value></value>", ""))
    assert any("0 seconds" in note for note in series.notes)


def test_what_is_produced_is_no_load(file, reads, refused):
    solar = ("1", "solar", [500, 500], {"flowDirection": 19})
    path = file(site(("1", "used", [1000, 2000], {"flowDirection": 1}), solar))
    series = reads([1, 2], path)
    assert "Left out, since they are not load: 'solar' (usage point Service 1, produced, Wh)." in series.notes
    assert meter_columns(path) == ["used"]
    asked = reads([0.5, 0.5], path, column="solar")
    assert any("produced, not what is used; it was read as asked" in note for note in asked.notes)
    refused("'solar' .* is not a load and cannot be added", path, column=["used", "solar"])
    refused(r"only 'solar' \(usage point Service 1, produced, Wh\)", site(solar))
    net = file(usage([1000, 2000], flowDirection=4))
    refused("net of what was produced.*pass column=", net)
    refuses("net of what was produced", read_meters, net)


def test_sums_that_make_no_sense_are_refused(reads, refused):
    twice = site(("1", "total", [1000, 2000], {}), ("1", "peak", [500, 600], {}))
    refused("measure the same point, so their sum may count energy twice", twice, column="sum")
    reads([1.5, 2.6], twice, column=["total", "peak"])
    units = site(("1", "a", [1000, 2000], {}), ("2", "b", [500, 600], {"uom": 38}))
    refused(r"different units \(W, Wh\)", units, column="sum")
    # A daily channel beside an hourly one is left out.
    reads([1, 2], site(("1", "hourly", [1000, 2000], {}), ("1", "daily", [9000, 9000], {"step": 86400})))


def test_limits(refused, file, monkeypatch):
    text = feed(STANDARD, entry(kind()), entry(block([1, 2])), entry(block([3, 4]), link("up", "/other")))
    for what, most in (("meters", 1), ("readings", 3)):
        with monkeypatch.context() as patch:
            patch.setitem(MOST, what, most)
            refused(f"more than {most} {what}", text)
    monkeypatch.setitem(MOST, "bytes in one XML token", 100_000)
    for token in ('<feed a="', "<feed><!-- ", "<" + "a" * 10):
        refused("more than 100,000 bytes in one XML token", token + "x" * 2_000_000)
