"""Green Button XML."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest
from helpers import refuses
from meter_files import LOCAL, NAN, NEW_YEAR, block, entry, feed, link, reading_type

from dp_ensemble_env.meter import meter_columns, read_meter, read_meters
from dp_ensemble_env.meter.origin import MOST


@pytest.mark.parametrize("type_first", [True, False])
def test_green_button_energy(reads, type_first):
    parts = [entry(reading_type(72, 3)), entry(block([1, 2, None, 4]))]
    series = reads([4, 8, NAN, 16], feed(LOCAL, *(parts if type_first else parts[::-1])))
    assert series.times[0] == np.datetime64("2024-01-01T00:00:00") and series.step == np.timedelta64(900, "s")
    assert any("UTC-5 h all year" in note for note in series.notes)


def test_green_button_power_and_several_blocks(reads):
    text = feed(LOCAL, entry(block([3000, 4000])), entry(reading_type(38)), entry(block([5000], NEW_YEAR + 1800)))
    reads([3, 4, 5], text)


def test_green_button_negative_power_of_ten_and_utf16(file):
    text = feed(LOCAL, entry(reading_type(72, -3)), entry(block([2_000_000, 1_000_000], step=3600)), head="")
    np.testing.assert_allclose(read_meter(file(text.encode("utf-16"))).kw, [2, 1], rtol=1e-15)


def test_green_button_time_zone(file, refused):
    text = feed(entry(reading_type()), entry(block([1000, 2000], start=1720000800, step=3600)))  # 10:00 UTC
    refused("does not state its time zone; pass timezone=", text)
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


def test_green_button_meters_are_told_apart_by_their_links(file, reads, refused):
    path = file(two_meters())
    assert meter_columns(path) == ["house", "garage"]
    refused(r"pass column=.*'house' \(delivered, Wh\), 'garage' \(delivered, Wh\)", path)
    reads([1, 2], path, column="house")
    reads([7, 8], path, column="garage")
    for column in ("sum", ["house", "garage"]):
        reads([8, 10], path, column=column)


def test_green_button_leaves_out_what_is_not_electricity(file, reads, refused):
    path = file(two_meters().replace("<uom>72</uom>", "<uom>169</uom>", 1))
    assert meter_columns(path) == ["garage"]
    reads([7, 8], path)
    refused(
        r"no readings in Wh .*'readings' \(not electricity, uom 169\)",
        feed(LOCAL, entry(reading_type(169)), entry(block([1, 2]))),
    )


def test_green_button_without_reading_type_needs_a_unit(file, reads, refused):
    path = file(feed(LOCAL, entry(block([1000, 2000], step=3600))))
    refused("no ReadingType.*pass unit=", path)
    reads([1, 2], path, unit="Wh")


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


#: The second Sunday in March and the first in November, both at 02:00, and the same in Europe and Sydney.
AMERICA = ("360E2000", "B40E2000")


def local(offset=-18000, saving=3600, rules=AMERICA):
    start, end = rules
    return entry(
        f"<LocalTimeParameters><dstEndRule>{end}</dstEndRule><dstOffset>{saving}</dstOffset>"
        f"<dstStartRule>{start}</dstStartRule><tzOffset>{offset}</tzOffset></LocalTimeParameters>"
    )


def kind(uom=72, power=0, **more):
    tags = "".join(f"<{name}>{value}</{name}>" for name, value in more.items())
    return reading_type(uom, power).replace("</ReadingType>", f"{tags}</ReadingType>")


def utc(text):
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def test_the_file_s_own_daylight_saving_is_applied(file, reads, refused):
    summer = feed(local(), entry(kind()), entry(block([1000, 2000], start=utc("2024-07-03 10:00"), step=3600)))
    series = read_meter(file(summer))
    assert series.times[0] == np.datetime64("2024-07-03T06:00:00")
    assert any("UTC-5 h with daylight saving, by the file's own rule" in note for note in series.notes)
    # Across the spring night: 06:00 UTC is 01:00, 07:00 UTC is 03:00.
    spring = feed(local(), entry(kind()), entry(block([1000, 2000, 3000], start=utc("2024-03-10 06:00"), step=3600)))
    spring = reads([1, NAN, 2, 3], spring)
    assert spring.gaps[0].reason == "daylight saving"
    broken = feed(local(rules=("zz", "B40E2000")), entry(kind()), entry(block([1, 2])))
    refused("the rule for daylight saving cannot be read .*pass timezone=", broken)


def test_the_autumn_hour_of_two_hours(reads):
    start = utc("2024-11-03 03:00")  # 23:00 in New York; 05:00 and 06:00 UTC are both 01:00
    values = block([1000, 2000, 6000, 4000], start=start, step=3600)
    third = f"<duration>3600</duration><start>{start + 2 * 3600}</start>"
    fourth = f"<start>{start + 3 * 3600}</start>"
    assert third in values and fourth in values
    values = values.replace(third, third.replace("3600", "7200", 1)).replace(
        fourth, f"<start>{start + 4 * 3600}</start>"
    )
    for timezone in (None, "America/New_York"):
        series = reads([1, 2, 3, 4], feed(local(), entry(kind()), entry(values)), timezone=timezone)
        assert series.missing == 0


def test_other_long_readings_are_missing_or_kept(file, reads):
    start = utc("2024-07-03 04:00")
    values = block([1000, 1000, 6000, 4000, 4000], start=start, step=3600)
    third = f"<duration>3600</duration><start>{start + 2 * 3600}</start>"
    values = values.replace(third, third.replace("3600", "10800", 1))
    for i in (4, 3):  # those after it come two hours later
        values = values.replace(f"<start>{start + i * 3600}</start>", f"<start>{start + (i + 2) * 3600}</start>")
    path = file(feed(local(), entry(kind()), entry(values)))
    reads([1, 1, NAN, NAN, NAN, 4, 4], path)
    reads([1, 1, 2, 2, 2, 4, 4], path, catch_up="keep")


def test_registers_are_differenced(reads):
    states = [100_000, 101_000, 103_000, 106_000]
    text = feed(local(), entry(kind(accumulationBehaviour=1)), entry(block(states, utc("2024-07-03 04:00"), 3600)))
    series = reads([1, 2, 3], text)
    assert series.times[0] == np.datetime64("2024-07-03T00:00:00")
    # The same values as energy of each interval.
    text = text.replace("<accumulationBehaviour>1<", "<accumulationBehaviour>4<")
    reads(np.array(states) / 1000, text)


def test_a_register_through_the_autumn_night(reads):
    energy = np.array([3, 1, 4, 1, 5, 9, 2, 6])
    states = 5000 + np.concatenate(([0], np.cumsum(energy)))
    text = feed(
        local(), entry(kind(power=3, accumulationBehaviour=1)), entry(block(states, utc("2024-11-03 03:00"), 3600))
    )
    reads([3, 1, (4 + 1) / 2, 5, 9, 2, 6], text)


def test_fractional_starts_and_values(file):
    text = feed(local(), entry(kind()), entry(block([1000, 2000], utc("2024-07-03 04:00"), 3600)))
    first = utc("2024-07-03 04:00")
    text = text.replace(f"<start>{first}</start>", f"<start>{first}.0</start>")
    text = text.replace(f"<start>{first + 3600}</start>", f"<start>{first + 3599}.9999</start>")
    text = text.replace("<value>1000", "<value>1000.5")
    np.testing.assert_allclose(read_meter(file(text)).kw, [1.0005, 2])


def site(*channels):
    """A feed of channels: (usage point, title, uom, flowDirection, values, step)."""
    entries = [local()]
    for point in dict.fromkeys(channel[0] for channel in channels):
        entries.append(
            entry(
                "<UsagePoint/>", link("self", f"/UP/{point}") + link("related", f"/UP/{point}/MR"), f"Service {point}"
            )
        )
    for i, (point, title, uom, flow, values, step) in enumerate(channels):
        mine = f"/UP/{point}/MR/{i}"
        links = link("self", mine) + link("up", f"/UP/{point}/MR") + link("related", f"/RT/{i}")
        entries += [
            entry("<MeterReading/>", links + link("related", f"{mine}/IB"), title),
            entry(block(values, utc("2024-07-03 04:00"), step), link("up", f"{mine}/IB")),
            entry(kind(uom, flowDirection=flow), link("self", f"/RT/{i}")),
        ]
    return feed(*entries)


def test_what_is_produced_is_no_load(file, reads, refused):
    path = file(site(("1", "used", 72, 1, [1000, 2000], 3600), ("1", "solar", 72, 19, [500, 500], 3600)))
    series = reads([1, 2], path)
    assert "Left out, since they are not load: 'solar' (usage point Service 1, produced, Wh)." in series.notes
    assert meter_columns(path) == ["used"]
    asked = reads([0.5, 0.5], path, column="solar")
    assert any("produced, not what is used; it was read as asked" in note for note in asked.notes)
    refused("'solar' .* is no load and cannot be added", path, column=["used", "solar"])
    refused(r"only 'solar' \(usage point Service 1, produced, Wh\)", site(("1", "solar", 72, 19, [500, 500], 3600)))


def test_usage_points_are_listed_and_added_up(file, reads, refused):
    path = file(
        site(
            ("1", "flat", 72, 1, [1000, 2000], 3600),
            ("2", "shop", 72, 1, [5000, 6000], 3600),
            ("2", "gas", 169, 1, [7, 7], 3600),
            ("2", "roof", 72, 19, [1, 1], 3600),
        )
    )
    message = (
        r"'flat' \(usage point Service 1, delivered, Wh\), 'shop' \(usage point Service 2, delivered, Wh\), "
        r"'gas' \(usage point Service 2, not electricity, uom 169\), 'roof' \(usage point Service 2, produced, Wh\)"
    )
    refused(message, path)
    reads([6, 8], path, column="sum")
    assert {name: one.kw.tolist() for name, one in read_meters(path).items()} == {"flat": [1, 2], "shop": [5, 6]}


def test_sums_that_make_no_sense_are_refused(reads, refused):
    twice = site(("1", "total", 72, 1, [1000, 2000], 3600), ("1", "peak", 72, 1, [500, 600], 3600))
    refused("measure the same point, so their sum may count energy twice", twice, column="sum")
    reads([1.5, 2.6], twice, column=["total", "peak"])
    units = site(("1", "a", 72, 1, [1000, 2000], 3600), ("2", "b", 38, 1, [500, 600], 3600))
    refused(r"different units \(W, Wh\)", units, column="sum")


@pytest.mark.parametrize("step, name", [(86400, "daily"), (30 * 86400, "monthly")])
def test_days_and_months_are_refused_by_name(refused, step, name):
    values = block([1000] * 6, utc("2024-01-01 05:00"), step)
    # Days of 23 and 25 hours, or months of other lengths, are still days and months.
    values = values.replace(f"<duration>{step}", f"<duration>{step - 3600}", 1)
    refused(f"the readings are {name}", feed(local(), entry(kind()), entry(values)))


def test_a_daily_channel_beside_an_hourly_one_is_left_out(file, reads):
    path = file(site(("1", "hourly", 72, 1, [1000, 2000], 3600), ("1", "daily", 72, 1, [9000, 9000], 86400)))
    reads([1, 2], path)


def test_a_file_with_several_clocks_needs_one(file, refused):
    text = feed(local(), local(offset=-21600), entry(kind()), entry(block([1, 2])))
    refused("several time zones; pass timezone=", text)
    assert read_meter(file(text), timezone="America/Chicago").kw.tolist() == [0.004, 0.008]


def test_green_button_has_limits(file, monkeypatch, refused):
    text = feed(LOCAL, entry(reading_type()), entry(block([1, 2])), entry(block([3, 4]), link("up", "/other")))
    monkeypatch.setitem(MOST, "meters", 1)
    refused("more than 1 meters", file(text, "u.xml"))
    monkeypatch.setitem(MOST, "meters", 10)
    monkeypatch.setitem(MOST, "readings", 3)
    refused("more than 3 readings", file(text, "u.xml"))
    monkeypatch.setitem(MOST, "readings", 1000)
    monkeypatch.setitem(MOST, "bytes in one XML token", 100_000)
    for token in ('<feed a="', "<feed><!-- ", "<" + "a" * 10):
        refused("more than 100,000 bytes in one XML token", file(token + "x" * 2_000_000, "u.xml"))


def test_what_is_not_electricity_stays_refused_with_a_unit(refused):
    """Gas in uom 72 or without a known unit: naming one does not make it electricity."""
    text = feed(LOCAL, entry(kind(commodity=7)), entry(block([1, 2, 3], step=3600)))
    for unit in (None, "Wh"):
        refused("not electricity", text, unit=unit)
    refused("'readings' .* not electricity", text, column="readings", unit="Wh")


def test_one_interval_of_no_seconds_or_without_a_value_does_not_refuse_a_file(file):
    good = block([1000, 2000, 3000], step=3600)
    end = NEW_YEAR + 3 * 3600
    empty = f"<IntervalReading><timePeriod><duration>0</duration><start>{end}</start></timePeriod></IntervalReading>"
    text = feed(LOCAL, entry(reading_type()), entry(good.replace("</IntervalBlock>", f"{empty}</IntervalBlock>")))
    series = read_meter(file(text))
    np.testing.assert_allclose(series.kw, [1, 2, 3])
    assert any("0 seconds" in note for note in series.notes)


def test_net_metering_is_refused_with_the_remedy(file, refused):
    text = feed(LOCAL, entry(kind(flowDirection=4)), entry(block([1000, 2000], step=3600)))
    refused("net of what was produced.*pass column=", text)
    refuses("net of what was produced", read_meters, file(text))
