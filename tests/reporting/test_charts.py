"""Figures as data."""

import json
import math

import pytest

from dp_ensemble_env.reporting.charts import Chart, Series


def line(**changes):
    return Series(**{"name": "a", "x": [1, 2], "y": [3.14159265, math.nan], **changes})


def test_a_chart_is_plain_and_rounded():
    chart = Chart("t", "x", "y", [line(low=[1, 2], high=[4, math.inf])], x_ticks=[(1, "one")], windows=[(1.0, 2.0)])
    spec = json.loads(json.dumps(chart.spec(), allow_nan=False))
    (series,) = spec["series"]
    assert series["y"] == [3.1416, None] and series["high"] == [4.0, None]
    assert spec["x_ticks"] == [[1.0, "one"]] and spec["windows"] == [[1.0, 2.0]] and spec["rows"] is None
    with pytest.raises(ValueError, match="color must be one of blue"):
        line(color="mauve").spec()
