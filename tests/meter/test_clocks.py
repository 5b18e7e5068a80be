"""Hours that clocks skip or repeat, and the clock of a Green Button file."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from helpers import refuses
from meter_files import AMERICA, NAN, at, autumn, hours

from dp_ensemble_env.meter import Gap, read_meter
from dp_ensemble_env.meter.clocks import file_zone, posix_rule

SPRING = [*hours("2024-03-10", [1, 2]), *hours("2024-03-10", [4, 5], first=3)]
SKIPPED = Gap(at("2024-03-10T02:00"), at("2024-03-10T03:00"), 1, "daylight saving")


@pytest.mark.parametrize(
    ("zone", "written"),
    [
        ("America/New_York", "in UTC"),
        ("America/New_York", "zone not told"),
        ("Europe/London", "zone not told"),
        ("Australia/Sydney", "local"),
    ],
)
@pytest.mark.parametrize("stamp", ["start", "end"])
def test_months_of_clock_changes_against_pythons_own_calendar(file, zone, stamp, written):
    """Readings of equal stamps are averaged, and what no stamp names is the hour that spring skips."""
    hour, timezone = timedelta(hours=1), None if written == "zone not told" else zone
    gaps, notes = [], []
    for month in (3, 10):
        instants = [datetime(2024, month, 1, tzinfo=UTC) + hour * i for i in range(40 * 24)]
        walls = [instant.astimezone(ZoneInfo(zone)).replace(tzinfo=None) for instant in instants]
        stamps = [f"{instant:%Y-%m-%dT%H:%M}Z" for instant in instants] if written == "in UTC" else walls
        values = np.random.default_rng(1).integers(100, 200, len(walls)).tolist()
        series = read_meter(file(list(zip(stamps, values, strict=True)), header=f"{stamp},kW"), timezone=timezone)
        by_stamp: dict[datetime, list[int]] = {}
        for wall, value in zip(walls, values, strict=True):
            by_stamp.setdefault(wall - (hour if stamp == "end" else timedelta(0)), []).append(value)
        grid = [min(by_stamp) + hour * i for i in range(len(series))]
        assert grid[-1] == max(by_stamp) and series.times.tolist() == grid
        means = {time: sum(both) / len(both) for time, both in by_stamp.items()}
        np.testing.assert_array_equal(series.kw, [means.get(time, NAN) for time in grid])
        gaps += [(gap.reason, gap.intervals) for gap in series.gaps]
        notes += [note for note in series.notes if "autumn" in note]
    assert gaps == [("daylight saving", 1)]
    assert notes == ["1 timestamp of the hour that autumn repeats had two readings (1 night); the two were averaged."]


def test_the_time_zone_decides_whether_the_hour_was_skipped(file, reads):
    for timezone in (None, "America/New_York"):
        assert reads([1, 2, NAN, 4, 5], SPRING, timezone=timezone).gaps == (SKIPPED,)
    # Europe changed three weeks later, and Phoenix never does.
    for timezone in ("Europe/Berlin", "America/Phoenix", "UTC"):
        assert read_meter(file(SPRING), timezone=timezone).gaps[0].reason == "missing"
    october = [*hours("2024-10-06", [1, 2]), *hours("2024-10-06", [4, 5], first=3)]
    longer = [*hours("2024-03-10", [1]), *hours("2024-03-10", [5, 6], first=4)]
    for rows in (october, longer):
        assert [gap.reason for gap in read_meter(file(rows)).gaps] == ["missing"]
    assert read_meter(file(october), timezone="Australia/Sydney").gaps[0].reason == "daylight saving"
    reasons = [(gap.reason, gap.intervals) for gap in read_meter(file(longer), timezone="America/New_York").gaps]
    assert reasons == [("missing", 1), ("daylight saving", 1), ("missing", 1)]


@pytest.mark.parametrize("timezone", [None, "America/New_York"])
def test_autumn_with_a_reading_missing_or_a_clock_that_goes_back_late(reads, timezone):
    assert reads([1, 10, 30, 5], autumn("2024-11-03", second=("", 40)), timezone=timezone).gaps == ()
    # Some loggers write the end of daylight time as 02:00 and then go back.
    clocks = ("00:30", "01:00", "01:30", "02:00", "01:30", "02:00", "02:30")
    rows = ["end,kW", *(f"2024-11-03 {clock},{i + 1}" for i, clock in enumerate(clocks))]
    assert reads([1, 2, 4, 5, 7], rows, timezone=timezone).times[0] == at("2024-11-03T00:00")


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
    for hour in range(3 * 8766):
        instant = datetime(2022, 1, 1, tzinfo=UTC) + timedelta(hours=hour)
        mine, theirs = instant.astimezone(clock), instant.astimezone(true)
        assert mine.replace(tzinfo=None) == theirs.replace(tzinfo=None), instant
        assert mine.utcoffset() == theirs.utcoffset() and mine.fold == theirs.fold


def test_rules_that_never_change_the_clock_or_name_no_day_of_the_week():
    assert posix_rule("FFFFFFFF") == "" and file_zone(0, 3600, "FFFFFFFF", AMERICA[1]) is None
    for bad in ("xyz", "F60E2000", "36002000", "360F9000", "30F02000"):
        refuses("rule|day of the week", posix_rule, bad)
