"""Settlement by hand, and what an audit needs."""

from __future__ import annotations

import json

import numpy as np
import pytest
from helpers import refuses

from dp_ensemble_env.chain.baseline import customer_baseline
from dp_ensemble_env.chain.event import DemandResponseEvent
from dp_ensemble_env.cli import main
from dp_ensemble_env.dispatch.participants import participants
from dp_ensemble_env.dispatch.settle import Programme, add_up, payment, programme, settle
from dp_ensemble_env.meter import PowerSeries
from dp_ensemble_env.scenarios.metered import DaySettings, metered_day

CSRP = programme("csrp")


@pytest.fixture(scope="module")
def bank(fleet):
    return participants(fleet, ["bank_kW"]).used[0]


def test_settlement_by_hand(bank):
    _, series, event, own = bank
    settled = settle("bank", series, event, own.day_settings(), CSRP, planned=np.full(4, 150.0))
    metered = series.kw[series.times.astype("datetime64[D]") == np.datetime64("2018-08-15")][11:15]
    np.testing.assert_allclose(settled.metered, metered)
    inside = event.timeline().in_event
    for against, how in (("baseline", "none"), ("adjusted", "weather")):
        baseline = customer_baseline(series.times, series.kw, event, exclude=["2018-07-04"], adjustment=how)[inside]
        assert settled.delivered(against) == pytest.approx(baseline.sum() - metered.sum())
    assert settled.off("planned") == pytest.approx(100 * np.abs(150 - metered).mean() / metered.mean())
    forecast = metered_day(series, event, own.day_settings()).path.kw[2:6]
    assert settled.delivered("forecast") == pytest.approx(forecast.sum() - metered.sum())
    assert add_up([settled, settled]).delivered() == pytest.approx(2 * settled.delivered())
    ten = settle("bank", series, event, own.day_settings(loads=10), CSRP)
    # A day that is lowered by 20 kW in the event delivers 80 kWh more, by every measure.
    begin, end = event.window
    kw = np.where((series.times >= begin) & (series.times < end), series.kw - 20.0, series.kw)
    lower = settle("bank", PowerSeries(series.times, kw, series.step), event, own.day_settings(), CSRP)
    for against in ("baseline", "adjusted", "forecast"):
        assert ten.delivered(against) == pytest.approx(10 * settled.delivered(against))
        assert lower.delivered(against) == pytest.approx(settled.delivered(against) + 80.0)


def month(minutes, levels, morning, event):
    """June and 2 July 2018 in kW: ten weekdays with a level each, then a day of event with a level from 10:00 on."""
    times = np.arange(np.datetime64("2018-06-01T00:00", "s"), np.datetime64("2018-07-03"), np.timedelta64(minutes, "m"))
    days = times.astype("datetime64[D]")
    weekdays = [day for day in np.unique(days) if np.is_busday(day)][-11:-1]
    kw = np.full(len(times), levels[0])
    for level, day in zip(levels, weekdays, strict=True):
        kw[days == day] = level
    kw[days == np.datetime64("2018-07-02")] = morning
    kw[times >= np.datetime64("2018-07-02T10:00")] = event
    return times, kw, weekdays


def test_a_tower_is_settled_exact_to_the_kilowatt_hour(tmp_path, capsys):
    """Five days of 2,715.5 kW and five lower ones, a warm morning, 9,160 kWh in the event: 1,702 and 3,874 kWh."""
    times, kw, weekdays = month(15, [2000.0, 2715.5] * 5, 1.3 * 2715.5, 2290.0)
    rows = [f"{time},{value}" for time, value in zip(times, kw, strict=True)]
    (tmp_path / "tower.csv").write_text("\n".join(["interval start,kW", *rows]))
    words = ["settle", "--meter", str(tmp_path / "tower.csv"), "--date", "2018-7-2", "--contracted-kw", "2000"]
    assert main([*words, "--json", str(tmp_path / "s.json")]) == 0
    out = " ".join(capsys.readouterr().out.split())
    for number in ("10,862 9,160 1,702 3,874", "426 kW delivered on average of 2,000 kW", "performance factor 0.21"):
        assert number in out
    content = json.loads((tmp_path / "s.json").read_text())
    (one,) = content["participants"]
    assert one["adjustment_factor"] == pytest.approx(1.2) and len(one["intervals"]) == 16
    assert sorted(one["baseline_days"]) == [str(day) for day in weekdays[1::2]]
    # 1,702 kWh / 4 h = 425.5 kW: $18 for each kW of the month, $1 for each kWh.
    assert content["money"]["payment"] == pytest.approx(18 * 425.5 + 1702)


def test_ten_of_ten_worked_by_hand():
    """Ten weekdays of 100 to 109 kW, a morning 30 % above them, 80 kW in the event: 1.2 times 104.5 less 80."""
    event = DemandResponseEvent("2018-07-02", step_minutes=60, notice_minutes=60)
    times, kw, weekdays = month(60, [100.0 + number for number in range(10)], 1.3 * 104.5, 80.0)
    terms = programme("ten-of-ten")
    settled = settle("x", PowerSeries(times, kw, np.timedelta64(3600, "s")), event, DaySettings(), terms)
    np.testing.assert_allclose(settled.baseline, 104.5)
    assert settled.source.factor == pytest.approx(1.2)
    assert settled.delivered("adjusted") == pytest.approx(4 * (1.2 * 104.5 - 80.0))
    assert payment(45.4, 4.0, terms, None)["payment"] == pytest.approx(0.5 * 4 * 45.4)
    assert sorted(settled.source.chosen) == [str(day) for day in weekdays]
    # An hour without a reading delivers nothing by this rule, and is flagged; by Con Edison's it is refused.
    kw[times == np.datetime64("2018-07-02T12")] = np.nan
    gap = PowerSeries(times, kw, np.timedelta64(3600, "s"))
    settled = settle("x", gap, event, DaySettings(), terms)
    assert settled.delivered("adjusted") == pytest.approx(3 * (1.2 * 104.5 - 80.0))
    assert [row["flag"] for row in settled.intervals()] == ["", "reading missing", "", ""]
    refuses("1 of 4 readings missing.*rules of CSRP", settle, "x", gap, event, DaySettings(), CSRP)


def test_the_days_behind_a_baseline_are_told(bank):
    _, series, event, own = bank
    kw = series.kw.copy()
    kw[series.times.astype("datetime64[D]") == np.datetime64("2018-08-10")] = np.nan
    changed = PowerSeries(series.times, kw, series.step)
    settings = own.day_settings(exclude=("2018-08-13",))
    settled = settle("bank", changed, event, settings, Programme(name="x"))
    assert len(settled.source.chosen) == 5
    assert settled.source.rejected["2018-08-10"] == "readings missing"
    assert settled.source.rejected["2018-08-13"] == "excluded"
    assert sum(why == "not among the best 5" for why in settled.source.rejected.values()) == 5
    hour = series.times.astype("datetime64[h]")
    kw[(hour >= np.datetime64("2018-08-15T12")) & (hour < np.datetime64("2018-08-15T19"))] = 77.0
    kw[hour == np.datetime64("2018-08-15T11")] = 0.0
    settled = settle("bank", PowerSeries(series.times, kw, series.step), event, settings, Programme(name="x"))
    assert settled.flags == ("zero", "frozen", "frozen", "frozen")


# Programmes -----------------------------------------------------------------
def test_payment_by_hand():
    terms = programme("csrp")
    assert (terms.reservation, terms.energy, terms.days, terms.best, terms.adjusted) == (18.0, 1.0, 10, 5, False)
    # 100 kW contracted, 60 kW delivered over four hours: 18 * 60 + 60 * 4.
    for delivered, factor, reserved, energy in ((60.0, 0.6, 1080, 240), (150.0, 1.0, 1800, 600), (-20.0, 0.0, 0, 0)):
        money = payment(delivered, 4.0, terms, 100.0)
        assert money["performance_factor"] == pytest.approx(factor)
        assert money["reservation_payment"] == pytest.approx(reserved)
        assert money["energy_payment"] == pytest.approx(energy)
        assert money["payment"] == pytest.approx(reserved + energy)
    assert payment(30.0, 4.0, terms, None)["payment"] == 120.0


def test_another_programme_is_a_file(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('[mine]\nenergy = 0.25\ndays = 3\nbest = 3\nmissing = "nothing"\n')
    terms = programme(str(file))
    assert (terms.name, terms.energy, terms.reservation, terms.days) == ("mine", 0.25, 0.0, 3)
    file.write_text("[mine]\nenergi = 0.25\n")
    refuses("unknown term of the programme .* 'energi' .did you mean 'energy'", programme, str(file))
    refuses("unknown programme 'csp'", programme, "csp")
