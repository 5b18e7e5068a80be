"""Figures as data, and their plain pictures."""

import json
import math

import pytest

from dp_ensemble_env.reporting.charts import Chart, Series
from dp_ensemble_env.reporting.plots import draw_chart


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


def test_every_kind_of_chart_is_drawn(tmp_path):
    rows = Chart("t", "x", "", [line(y=[0, 1], line=False, dots=True, notes=["p", "q"])], rows=["r", "s"])
    lines = Chart(
        "t", "x", "y", [line(dash="6 3", low=[1, 1], high=[5, 5]), line(name="b", shown=False)],
        x_ticks=[(1, "one"), (2, "two")], windows=[(1, 2)], marks=[(1.5, "here")],
    )  # fmt: skip
    for number, chart in enumerate((rows, lines)):
        assert draw_chart(chart, tmp_path / f"{number}.png").read_bytes().startswith(b"\x89PNG")
