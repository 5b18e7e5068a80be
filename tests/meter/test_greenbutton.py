"""Green Button files: clocks, directions, registers, usage points and long intervals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from test_meter_sources import block, entry, feed, link, reading_type

from dp_ensemble_env.meter import meter_columns, read_meter, read_meters
from dp_ensemble_env.meter.clocks import FileClock, read_rule

NAN = float("nan")
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


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "usage.xml"
        path.write_text(text)
        return path

    return write


def utc(text):
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


@pytest.mark.parametrize(
    "rules, offset, zone",
    [
        (AMERICA, -18000, "America/New_York"),
        (("3E0E2000", "AE0E3000"), 3600, "Europe/Berlin"),
        (("A40E2000", "440E3000"), 36000, "Australia/Sydney"),
    ],
)
def test_the_rules_of_a_file_give_the_clock_of_its_zone(rules, offset, zone):
    clock = FileClock(offset, 3600, read_rule(rules[0]), read_rule(rules[1]))
    true = ZoneInfo(zone)
    for hour in range(0, 3 * 8766, 1):
        instant = datetime(2022, 1, 1, tzinfo=UTC) + timedelta(hours=hour)
        mine, theirs = instant.astimezone(clock), instant.astimezone(true)
        assert mine.replace(tzinfo=None) == theirs.replace(tzinfo=None), instant
        assert mine.utcoffset() == theirs.utcoffset() and mine.fold == theirs.fold


def test_rules_by_day_of_the_month_and_none():
    assert read_rule("FFFFFFFF") is None
    fixed = read_rule(f"{(4 << 28) | (15 << 20) | (3 << 12):08X}")
    assert fixed.at(2024) == datetime(2024, 4, 15, 3)
    after = read_rule(f"{(3 << 28) | (1 << 25) | (8 << 20) | (7 << 17) | (2 << 12):08X}")  # Sunday on or after the 8th
    assert after.at(2024) == datetime(2024, 3, 10, 2) and after.at(2020) == datetime(2020, 3, 8, 2)
    for bad in ("xyz", "F0000001", "30002000F"):
        with pytest.raises(ValueError, match="rule|day of the year"):
            read_rule(bad)


def test_the_file_s_own_daylight_saving_is_applied(file):
    summer = feed(local(), entry(kind()), entry(block([1000, 2000], start=utc("2024-07-03 10:00"), step=3600)))
    series = read_meter(file(summer))
    assert series.times[0] == np.datetime64("2024-07-03T06:00:00")
    assert any("UTC-5 h with daylight saving, by the file's own rule" in note for note in series.notes)
    # Across the spring night: 06:00 UTC is 01:00, 07:00 UTC is 03:00.
    spring = feed(local(), entry(kind()), entry(block([1000, 2000, 3000], start=utc("2024-03-10 06:00"), step=3600)))
    spring = read_meter(file(spring))
    np.testing.assert_array_equal(spring.kw, [1, NAN, 2, 3])
    assert spring.gaps[0].reason == "daylight saving"
    broken = feed(local(rules=("zz", "B40E2000")), entry(kind()), entry(block([1, 2])))
    with pytest.raises(ValueError, match="the rule for daylight saving cannot be read .*pass timezone="):
        read_meter(file(broken))


def test_the_autumn_hour_of_two_hours(file):
    start = utc("2024-11-03 03:00")  # 23:00 in New York; 05:00 and 06:00 UTC are both 01:00
    values = block([1000, 2000, 6000, 4000], start=start, step=3600)
    third = f"<duration>3600</duration><start>{start + 2 * 3600}</start>"
    fourth = f"<start>{start + 3 * 3600}</start>"
    assert third in values and fourth in values
    values = values.replace(third, third.replace("3600", "7200", 1)).replace(
        fourth, f"<start>{start + 4 * 3600}</start>"
    )
    for timezone in (None, "America/New_York"):
        series = read_meter(file(feed(local(), entry(kind()), entry(values))), timezone=timezone)
        np.testing.assert_array_equal(series.kw, [1, 2, 3, 4])
        assert series.missing == 0


def test_other_long_readings_are_missing_or_spread(file):
    start = utc("2024-07-03 04:00")
    values = block([1000, 1000, 6000, 4000, 4000], start=start, step=3600)
    third = f"<duration>3600</duration><start>{start + 2 * 3600}</start>"
    values = values.replace(third, third.replace("3600", "10800", 1))
    for i in (4, 3):  # those after it come two hours later
        values = values.replace(f"<start>{start + i * 3600}</start>", f"<start>{start + (i + 2) * 3600}</start>")
    path = file(feed(local(), entry(kind()), entry(values)))
    np.testing.assert_array_equal(read_meter(path).kw, [1, 1, NAN, NAN, NAN, 4, 4])
    np.testing.assert_array_equal(read_meter(path, catch_up="spread").kw, [1, 1, 2, 2, 2, 4, 4])


def test_registers_are_differenced(file):
    states = [100_000, 101_000, 103_000, 106_000]
    text = feed(local(), entry(kind(accumulationBehaviour=1)), entry(block(states, utc("2024-07-03 04:00"), 3600)))
    series = read_meter(file(text))
    np.testing.assert_array_equal(series.kw, [1, 2, 3])
    assert series.times[0] == np.datetime64("2024-07-03T00:00:00")
    # The same values as energy of each interval.
    text = text.replace("<accumulationBehaviour>1<", "<accumulationBehaviour>4<")
    np.testing.assert_array_equal(read_meter(file(text)).kw, np.array(states) / 1000)


def test_a_register_through_the_autumn_night(file):
    energy = np.array([3, 1, 4, 1, 5, 9, 2, 6])
    states = 5000 + np.concatenate(([0], np.cumsum(energy)))
    text = feed(
        local(), entry(kind(power=3, accumulationBehaviour=1)), entry(block(states, utc("2024-11-03 03:00"), 3600))
    )
    series = read_meter(file(text))
    np.testing.assert_array_equal(series.kw, [3, 1, (4 + 1) / 2, 5, 9, 2, 6])


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


def test_what_is_produced_is_no_load(file):
    path = file(site(("1", "used", 72, 1, [1000, 2000], 3600), ("1", "solar", 72, 19, [500, 500], 3600)))
    series = read_meter(path)
    np.testing.assert_array_equal(series.kw, [1, 2])
    assert "Left out, since they are not load: 'solar' (usage point Service 1, produced, Wh)." in series.notes
    assert meter_columns(path) == ["used"]
    asked = read_meter(path, column="solar")
    np.testing.assert_array_equal(asked.kw, [0.5, 0.5])
    assert any("produced, not what is used; it was read as asked" in note for note in asked.notes)
    with pytest.raises(ValueError, match="'solar' .* is no load and cannot be added"):
        read_meter(path, column=["used", "solar"])
    with pytest.raises(ValueError, match=r"only 'solar' \(usage point Service 1, produced, Wh\)"):
        read_meter(file(site(("1", "solar", 72, 19, [500, 500], 3600))))


def test_usage_points_are_listed_and_added_up(file):
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
    with pytest.raises(ValueError, match=message):
        read_meter(path)
    np.testing.assert_array_equal(read_meter(path, column="sum").kw, [6, 8])
    assert {name: one.kw.tolist() for name, one in read_meters(path).items()} == {"flat": [1, 2], "shop": [5, 6]}


def test_sums_that_make_no_sense_are_refused(file):
    twice = site(("1", "total", 72, 1, [1000, 2000], 3600), ("1", "peak", 72, 1, [500, 600], 3600))
    with pytest.raises(ValueError, match="measure the same point, so their sum may count energy twice"):
        read_meter(file(twice), column="sum")
    np.testing.assert_array_equal(read_meter(file(twice), column=["total", "peak"]).kw, [1.5, 2.6])
    units = site(("1", "a", 72, 1, [1000, 2000], 3600), ("2", "b", 38, 1, [500, 600], 3600))
    with pytest.raises(ValueError, match=r"different units \(W, Wh\)"):
        read_meter(file(units), column="sum")


@pytest.mark.parametrize("step, name", [(86400, "daily"), (30 * 86400, "monthly")])
def test_days_and_months_are_refused_by_name(file, step, name):
    values = block([1000] * 6, utc("2024-01-01 05:00"), step)
    # Days of 23 and 25 hours, or months of other lengths, are still days and months.
    values = values.replace(f"<duration>{step}", f"<duration>{step - 3600}", 1)
    with pytest.raises(ValueError, match=f"the readings are {name}"):
        read_meter(file(feed(local(), entry(kind()), entry(values))))


def test_a_daily_channel_beside_an_hourly_one_is_left_out(file):
    path = file(site(("1", "hourly", 72, 1, [1000, 2000], 3600), ("1", "daily", 72, 1, [9000, 9000], 86400)))
    np.testing.assert_array_equal(read_meter(path).kw, [1, 2])


def test_a_file_with_several_clocks_needs_one(file):
    text = feed(local(), local(offset=-21600), entry(kind()), entry(block([1, 2])))
    with pytest.raises(ValueError, match="several time zones; pass timezone="):
        read_meter(file(text))
    assert read_meter(file(text), timezone="America/Chicago").kw.tolist() == [0.004, 0.008]
