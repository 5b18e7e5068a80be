"""The clock of a Green Button file: its offset from UTC, and its own rule for daylight saving.

A rule is eight hexadecimal digits, a bit field (ESPI, ``DstRuleType``):

=====  ====================================================================
bits   meaning
=====  ====================================================================
0-11   seconds within the hour
12-16  hour of the wall clock at which it changes
17-19  day of the week, 1 Monday … 7 Sunday, 0 for none
20-24  day of the month, 0 for none
25-27  0: on the day of the month; 1: on the day of the week on or after it;
       2 … 6: on the first … fifth such day of the week; 7: on the last one
28-31  month
=====  ====================================================================
"""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

_NONE = (0, 0xFFFFFFFF)


@dataclass(frozen=True)
class Rule:
    """A day of the year and a time of the wall clock at which it changes."""

    month: int
    kind: int
    day: int
    weekday: int
    second: int

    def at(self, year: int) -> datetime:
        """Return the change in a year, on the clock before it changes."""
        first, days = calendar.monthrange(year, self.month)
        if self.kind == 0:
            day = min(max(self.day, 1), days)
        else:
            # The first such day of the week on or after `low`.
            low = self.day if self.kind == 1 else 1
            day = low + (self.weekday - 1 - (first + low - 1)) % 7
            if self.kind == 7:
                day += 7 * ((days - day) // 7)
            elif self.kind > 1:
                day += 7 * (self.kind - 2)
        return datetime(year, self.month, 1) + timedelta(days=day - 1, seconds=self.second)


def read_rule(text: str) -> Rule | None:
    """Decode a rule; None where the clock never changes."""
    if not re.fullmatch(r"[0-9A-Fa-f]{1,8}", text):
        raise ValueError(f"{text!r} is no rule of eight hexadecimal digits")
    bits = int(text, 16)
    if bits in _NONE:
        return None
    second, hour, weekday = bits & 0xFFF, bits >> 12 & 31, bits >> 17 & 7
    day, kind, month = bits >> 20 & 31, bits >> 25 & 7, bits >> 28
    if not 1 <= month <= 12 or hour > 24 or (kind and not weekday) or (kind == 1 and not day):
        raise ValueError(f"{text!r} names no day of the year")
    return Rule(month, kind, day, weekday, hour * 3600 + second)


class FileClock(tzinfo):
    """A time zone made of an offset and two rules."""

    def __init__(self, offset: int, saving: int, start: Rule, end: Rule) -> None:
        self.offset, self.saving = timedelta(seconds=offset), timedelta(seconds=saving)
        self.start, self.end = start, end

    def _saves(self, utc: datetime) -> bool:
        """Tell whether daylight saving holds at an instant, given as naive UTC."""
        year = (utc + self.offset).year
        low = self.start.at(year) - self.offset
        high = self.end.at(year) - self.offset - self.saving
        return low <= utc < high if low < high else not high <= utc < low  # the southern summer spans the new year

    def fromutc(self, dt: datetime) -> datetime:
        """Convert an instant."""
        utc = dt.replace(tzinfo=None)
        wall = utc + self.offset + (self.saving if self._saves(utc) else timedelta(0))
        again = self._saves(utc - self.saving) and not self._saves(utc)
        return wall.replace(tzinfo=self, fold=int(again))

    def utcoffset(self, dt: datetime | None) -> timedelta:
        """Return the offset at a wall-clock time."""
        if dt is None:
            return self.offset
        wall = dt.replace(tzinfo=None, fold=0)
        first = self._saves(wall - self.offset - self.saving)
        later = self._saves(wall - self.offset)
        saves = later if dt.fold else first
        return self.offset + (self.saving if saves else timedelta(0))

    def dst(self, dt: datetime | None) -> timedelta:
        """Return how much daylight saving adds."""
        return self.utcoffset(dt) - self.offset

    def tzname(self, dt: datetime | None) -> str:
        """Name the offset."""
        return str(self)

    def __str__(self) -> str:
        return f"the file's own clock (UTC{self.offset.total_seconds() / 3600:+g} h and its daylight saving)"
