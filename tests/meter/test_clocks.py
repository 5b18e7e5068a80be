"""Hours that clocks skip or repeat, and the clock of a Green Button file."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from helpers import refuses
from meter_files import NAN, at, autumn, hours

from dp_ensemble_env.meter import Gap, read_meter
from dp_ensemble_env.meter.clocks import file_zone, posix_rule

SPRING = [*hours("2024-03-10", [1, 2]), *hours("2024-03-10", [4, 5], first=3)]


@pytest.mark.parametrize("timezone", [None, "America/New_York"])
def test_spring_hour_is_a_gap_of_daylight_saving(reads, timezone):
    series = reads([1, 2, NAN, 4, 5], SPRING, timezone=timezone)
    assert series.gaps == (Gap(at("2024-03-10T02:00"), at("2024-03-10T03:00"), 1, "daylight saving"),)
    assert series.notes == ("The hour skipped in spring is a gap (1 night).",)


def test_the_time_zone_decides_whether_the_hour_was_skipped(file):
    # Europe changed three weeks later, and Phoenix never does.
    for timezone in ("Europe/Berlin", "America/Phoenix", "UTC"):
        assert read_meter(file(SPRING), timezone=timezone).gaps[0].reason == "missing"
    autumn = [*hours("2024-10-06", [1, 2]), *hours("2024-10-06", [4, 5], first=3)]
    assert read_meter(file(autumn)).gaps[0].reason == "missing"
    assert read_meter(file(autumn), timezone="Australia/Sydney").gaps[0].reason == "daylight saving"


def test_a_gap_around_the_skipped_hour(file):
    rows = [*hours("2024-03-10", [1]), *hours("2024-03-10", [5, 6], first=4)]
    assert [gap.reason for gap in read_meter(file(rows)).gaps] == ["missing"]
    reasons = [(gap.reason, gap.intervals) for gap in read_meter(file(rows), timezone="America/New_York").gaps]
    assert reasons == [("missing", 1), ("daylight saving", 1), ("missing", 1)]
    # On other days the same hole is only a hole.
    monday = [*hours("2024-03-11", [1, 2]), *hours("2024-03-11", [4], first=3)]
    assert read_meter(file(monday)).gaps[0].reason == "missing"


@pytest.mark.parametrize("timezone", [None, "America/New_York"])
def test_spring_with_end_stamps(file, timezone):
    # The interval from 01:30 to the change is stamped 03:00.
    rows = [("2024-03-10 01:00", 1), ("2024-03-10 01:30", 2), ("2024-03-10 03:00", 3), ("2024-03-10 03:30", 4)]
    series = read_meter(file(rows, header="end,kW"), timezone=timezone)
    assert [gap.reason for gap in series.gaps] == ["daylight saving"] and series.missing == 2


@pytest.mark.parametrize("timezone", [None, "America/New_York"])
def test_autumn_hour_is_averaged(reads, timezone):
    series = reads([1, 15, 30, 5], autumn("2024-11-03"), timezone=timezone)
    assert series.notes == (
        "2 timestamps of the hour that autumn repeats had two readings (1 night); the two were averaged.",
    )


def test_autumn_hour_keeps_the_reading_that_is_there(reads):
    series = reads([1, 10, 30, 5], autumn("2024-11-03", second=("", 40)))
    assert series.gaps == ()


@pytest.mark.parametrize("timezone", [None, "America/New_York"])
@pytest.mark.parametrize("last", ["01:00", "02:00"])
def test_autumn_with_end_stamps(file, timezone, last):
    # The clock shows 02:00 daylight time as 01:00; some loggers write 02:00 and then go back.
    clocks = ["00:30", "01:00", "01:30", last, *(["01:30"] if last == "01:00" else ["01:30", "02:00"]), "02:30"]
    rows = [(f"2024-11-03 {clock}", i + 1) for i, clock in enumerate(clocks)]
    if last == "01:00":
        rows.insert(-1, ("2024-11-03 02:00", 9))
    series = read_meter(file(rows, header="end,kW"), timezone=timezone)
    expected = [1, 3, 4, 9, 6] if last == "01:00" else [1, 2, 4, 5, 7]
    np.testing.assert_array_equal(series.kw, expected)
    assert series.times[0] == at("2024-11-03T00:00")


def test_utc_stamps_through_a_year_of_clock_changes(file):
    utc = np.arange(at("2024-01-01T05:00"), at("2025-01-01T05:00"), np.timedelta64(3600, "s"))
    rows = [(f"{time}Z", i % 7 + 1) for i, time in enumerate(utc)]
    series = read_meter(file(rows), timezone="America/New_York")
    assert len(series) == 366 * 24 and series.times[0] == at("2024-01-01T00:00")
    assert [(str(g.start), g.reason) for g in series.gaps] == [("2024-03-10T02:00:00", "daylight saving")]
    fold = int(np.flatnonzero(series.times == at("2024-11-03T01:00"))[0])
    at_utc = int(np.flatnonzero(utc == at("2024-11-03T05:00"))[0])
    assert series.kw[fold] == ((at_utc % 7 + 1) + ((at_utc + 1) % 7 + 1)) / 2
    assert series.kw[-1] == (len(utc) - 1) % 7 + 1


#: The second Sunday in March and the first in November, both at 02:00, and the same in Europe and Sydney.
AMERICA = ("360E2000", "B40E2000")


@pytest.mark.parametrize(
    "rules, offset, zone",
    [
        (AMERICA, -18000, "America/New_York"),
        (("3E0E2000", "AE0E3000"), 3600, "Europe/Berlin"),
        (("A40E2000", "440E3000"), 36000, "Australia/Sydney"),
    ],
)
def test_the_rules_of_a_file_give_the_clock_of_its_zone(rules, offset, zone):
    clock = file_zone(offset, 3600, *rules)
    true = ZoneInfo(zone)
    for hour in range(0, 3 * 8766, 1):
        instant = datetime(2022, 1, 1, tzinfo=UTC) + timedelta(hours=hour)
        mine, theirs = instant.astimezone(clock), instant.astimezone(true)
        assert mine.replace(tzinfo=None) == theirs.replace(tzinfo=None), instant
        assert mine.utcoffset() == theirs.utcoffset() and mine.fold == theirs.fold


def test_rules_by_day_of_the_month_and_none():
    assert posix_rule("FFFFFFFF") == "" and file_zone(0, 3600, "FFFFFFFF", AMERICA[1]) is None

    def day(year, kind, number, weekday):
        """The day on which a clock whose saving ends in November goes forward at two."""
        start = f"{(4 << 28) | (kind << 25) | (number << 20) | (weekday << 17) | (2 << 12):08X}"
        zone = file_zone(0, 3600, start, AMERICA[1])
        days = [datetime(year, 4, day, 12, tzinfo=zone) for day in range(1, 31)]
        return next(one.day for one in days if one.utcoffset())

    assert [day(year, 0, 15, 0) for year in (2023, 2024)] == [15, 15]
    for number in (1, 8, 10, 23):  # a weekday on or after a day of the month
        for weekday in range(1, 8):
            true = next(d for d in range(number, number + 7) if datetime(2024, 4, d).isoweekday() == weekday)
            assert day(2024, 1, number, weekday) == true
    for bad in ("xyz", "F0000001", "30002000F"):
        refuses("rule|day of the year", posix_rule, bad)
