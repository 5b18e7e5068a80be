"""Meter files, read into one clean power series.

`read_meter` takes delimited text (one meter, or one column per meter),
Con Edison and Opower exports, campus SCADA exports, Green Button XML, NEM12,
Excel and parquet, and returns a `PowerSeries`: average kW at the interval starts of the
local wall clock, evenly spaced, NaN where a reading is missing. Nothing is
interpolated and nothing is guessed in silence: each rule below leaves a note,
makes a gap, or refuses with the number of the line.

Rules
-----
- *Unit and stamp.* Taken from the format or from the header (``kWh``,
  ``power_kw``, ``interval start``). Otherwise refused until ``unit`` and
  ``stamp`` are passed; a ``unit`` that contradicts the header is refused, too.
  kWh per interval are divided by its length.
- *Interval-end stamps* are moved back by one interval.
- *Order.* Files that are newest first are turned round, others sorted.
- *Step.* The interval that the file states, or else the most common
  difference between stamps. A stamp off that grid is refused.
- *Missing rows, empty cells* and words such as ``NA`` become gaps, counted in
  a note.
- *Spring.* The hour skipped by daylight saving is a gap labelled so: by
  ``timezone``, or else a gap of exactly one hour that starts at 01:00 or
  02:00 on a Sunday in March.
- *Autumn.* The two readings of a stamp that the clock shows twice are
  averaged: by ``timezone``, or else on a Sunday in October or November, from
  00:00 to 03:00, in one block of at most an hour.
- *Other repeated stamps.* Identical readings are kept once, different ones
  refused with both lines.
- *Lumped readings.* One that carries the energy of a whole gap becomes a gap
  itself (``catch_up="spread"`` or ``"keep"``); an autumn hour that carries both
  of its passes is halved.
- *Registers* are differenced (``cumulative``).
- *Several meters* below each other are told apart by a column (``meter_id``).
- *Days, weeks and months* are refused by name, and so is what exceeds the
  limits on the size of a file (``limits``).
- *Negative readings* are refused (``negatives="missing"`` or ``"keep"``).
- *Zeros* are kept and counted; runs of more than six hours are noted as
  possible outages (``zeros="missing"`` makes gaps of all zeros).
- *Spikes.* A reading more than 20 times the ordinary maximum is refused
  (``spikes="missing"`` or ``"keep"``). The ordinary maximum is the highest
  that remains when the top 1 % of the nonzero readings (three at least, a
  quarter at most) are set aside.
- *Sums of columns* are missing where one of the columns is; the rules on
  values apply to each column by itself.
- *Day and month.* Decided by a value above 12 anywhere in the file; else
  month first, or day first with dots, and noted (``date_order``).
- *UTC.* Stamps in UTC need ``timezone``. Stamps with another offset keep the
  local time as written. Fractions of a second are dropped.

This module needs NumPy and the standard library; pyarrow is imported only to
read parquet, openpyxl only to read Excel.
"""

from dp_ensemble_env.meter.read import meter_columns, read_meter, read_meters, register_format
from dp_ensemble_env.meter.series import Gap, PowerSeries
from dp_ensemble_env.meter.settings import ReadSettings

__all__ = [
    "Gap",
    "PowerSeries",
    "ReadSettings",
    "meter_columns",
    "read_meter",
    "read_meters",
    "register_format",
]
