"""Meter files, read into one clean power series.

`read_meter` takes delimited text (one meter, or one column per meter), Con Edison and Opower exports, campus SCADA
exports, Green Button XML, NEM12, Excel and parquet, and returns a `PowerSeries`: average kW at the interval starts of
the local wall clock, evenly spaced, NaN where a reading is missing. Nothing is interpolated and nothing is guessed in
silence: each rule of docs/meter_rules.md leaves a note, makes a gap, or refuses with the number of the line.

This module needs NumPy and the standard library; pyarrow is imported only to read parquet, openpyxl only to read Excel.
"""

from dp_ensemble_env.meter.formats import register_format
from dp_ensemble_env.meter.origin import ReadSettings
from dp_ensemble_env.meter.read import meter_columns, read_meter, read_meters
from dp_ensemble_env.meter.series import Gap, PowerSeries

__all__ = ["Gap", "PowerSeries", "ReadSettings", "meter_columns", "read_meter", "read_meters", "register_format"]
