"""Prices by hour and by stamp, and those of an event on its decision times."""

from __future__ import annotations

import pytest
from helpers import refuses
from numpy.testing import assert_allclose

from dp_ensemble_env.chain.event import DemandResponseEvent, EventTimeline, Tariff


def test_tariff_from_csv_by_hour_and_by_stamp(tmp_path):
    by_hour = tmp_path / "hours.csv"
    by_hour.write_text("hour,price\n" + "\n".join(f"{h},{0.1 + h / 1000}" for h in reversed(range(24))))
    assert Tariff.from_csv(by_hour).at(["2018-07-02T11:59"])[0] == pytest.approx(0.111)
    by_stamp = tmp_path / "stamps.csv"
    by_stamp.write_text("2018-07-02 11:00,0.2\n2018-07-02 00:00,0.1\n2018-07-02 12:00,0.3\n")
    tariff = Tariff.from_csv(by_stamp)
    assert_allclose(tariff.at(["2018-07-02T10:59", "2018-07-02T11:00", "2018-07-03T00:00"]), [0.1, 0.2, 0.3])
    refuses("starts at 2018-07-02T00:00:00", tariff.at, ["2018-07-01T23:00"])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "holds no price"),
        ("hour,price\n", "holds no price"),
        ("0,0.1\n1,cheap\n", "line 2"),
        ("0,0.1\n1,0.2\n", "each hour 0"),
        ("0,0.1\nnoon,0.2\n", "line 2"),
        ("2018-07-02 00:00,nan\n2018-07-02 01:00,nan\n", "line 2"),
        ("time,price\n2018-07-02 00:00\n", "line 2"),
    ],
)
def test_bad_tariff_files_name_the_line(tmp_path, content, words):
    path = tmp_path / "tariff.csv"
    path.write_text(content)
    refuses(words, Tariff.from_csv, path)


def test_timeline_refuses_arrays_of_other_lengths():
    line = DemandResponseEvent().timeline()
    refuses("incentive", EventTimeline, line.times, line.energy_price, line.incentive[:-1], line.in_event)
    with pytest.raises(ValueError, match="read-only"):
        line.incentive[0] = 3.0
