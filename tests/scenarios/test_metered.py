"""A metered day as a problem: its size, its floor, its penalty, and the days it learns from."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from dp_ensemble_env.chain.baseline import customer_baseline
from dp_ensemble_env.chain.event import DemandResponseEvent
from dp_ensemble_env.control.policies import standard_policy
from dp_ensemble_env.scenarios.metered import DaySettings, load_power, metered_day, read_temperature
from dp_ensemble_env.scenarios.problem import ProblemSettings

HOUR = np.timedelta64(3600, "s")
EVENT = DemandResponseEvent("2024-08-14", step_minutes=60, notice_minutes=60)


def office(days=60, seed=0):
    """An office with hot and mild days: enough room above the floor on a hot one."""
    rng = np.random.default_rng(seed)
    first = np.datetime64("2024-08-14") - np.timedelta64(days - 1, "D")
    stamps = first.astype("datetime64[s]") + np.arange(24 * days) * HOUR
    hour = np.arange(24 * days) % 24
    scale = np.repeat(np.append(rng.uniform(0.7, 1.2, days - 1), 1.15), 24)
    kw = scale * (200.0 + 150.0 * np.exp(-0.5 * ((hour - 13) / 3.5) ** 2)) + rng.normal(0.0, 3.0, 24 * days)
    return SimpleNamespace(times=stamps, kw=kw, step=HOUR, source="office", notes=())


def test_an_event_of_a_dollar_sheds_what_the_penalty_was_calibrated_to():
    day = metered_day(office(), EVENT, DaySettings(response=0.1))
    model, inside = day.model, day.in_event
    idle, held = load_power(model, model.default_policy), load_power(model, standard_policy(model))
    assert 1 - held[inside].sum() / idle[inside].sum() == pytest.approx(0.1, abs=1e-4)
    np.testing.assert_allclose(idle, day.path.kw[: model.horizon + 1], rtol=1e-3)
    assert idle[inside].sum() == pytest.approx(day.forecast_kwh, rel=1e-3)
    assert any("an event of $1/kWh sheds 10 % of the energy" in note for note in day.notes)
    half = metered_day(office(), DemandResponseEvent(**{**vars(EVENT), "incentive": 0.5}), DaySettings(response=0.1))
    assert half.model.discomfort_penalty == pytest.approx(model.discomfort_penalty, rel=1e-6)


def test_no_reward_lies_below_the_floor_however_cheap_discomfort_is():
    day = metered_day(office(), EVENT, DaySettings(penalty=0.5))
    held = load_power(day.model, standard_policy(day.model))
    assert held[day.in_event].min() > day.floor_kw - day.path.total_spread.max()
    worth = -day.model.utility[-1] / day.model.event.price[-1]
    assert worth.min() == pytest.approx(min(day.floor_kw, day.path.kw[day.model.horizon]))
    # Occupied hours only: the nights of 140 to 240 kW do not lower it.
    before = office().kw[:-24].reshape(-1, 24)
    assert np.percentile(before[:, 10:17], 1) < day.floor_kw < np.median(before[:, 10:17])
    assert metered_day(office(), EVENT, DaySettings(shed_floor=30.0)).floor_kw > day.floor_kw


def test_the_penalty_can_be_stated_per_kw():
    day = metered_day(office(), EVENT, DaySettings(penalty_per_kw=0.2))
    assert day.model.discomfort_penalty == pytest.approx(0.2 * day.forecast_kw[day.in_event].mean())
    with pytest.raises(ValueError, match="give one of them"):
        DaySettings(penalty=1.0, penalty_per_kw=1.0)


def test_failed_days_and_holidays_are_left_out_of_forecast_and_baseline():
    series = office()
    spoiled = np.where(series.times.astype("datetime64[D]") == np.datetime64("2024-08-12"), 2.0, series.kw)
    bad = SimpleNamespace(times=series.times, kw=spoiled, step=HOUR)
    day = metered_day(bad, EVENT, DaySettings(holidays=("us",)))
    assert {"2024-08-12", "2024-07-04"} <= set(day.skipped)
    assert any("2024-08-12 (outage)" in note or "2024-08-12 (frozen)" in note for note in day.notes)
    wanted = customer_baseline(series.times, series.kw, EVENT, exclude=day.skipped)
    np.testing.assert_allclose(day.model.event.baseline_kw, wanted)


def test_a_day_after_the_data_starts_from_the_usual_load():
    day = metered_day(office(), DemandResponseEvent("2024-08-15", step_minutes=60, notice_minutes=60))
    assert not day.path.measured and (day.model.initial > 1e-3).sum() > 2
    assert any("was not measured" in note for note in day.notes)


def test_commands_build_the_same_problem(tmp_path):
    series = office()
    lines = [f"{stamp},{kw:.6f}" for stamp, kw in zip(series.times, series.kw, strict=True)]
    (tmp_path / "office.csv").write_text("time,power_kw\n" + "\n".join(lines) + "\n")
    settings = ProblemSettings(meter=str(tmp_path / "office.csv"), stamp="start", date="2024-08-14")
    model = settings.build().model
    direct = metered_day(settings.read(), settings.event(settings.read()), DaySettings(holidays=("us",))).model
    assert model.fingerprint == direct.fingerprint and model.loads == 1
    pooled = ProblemSettings(**{**vars(settings), "dynamics": "pooled"}).build().model
    assert pooled.default.ndim == 2 and model.default.ndim == 3


def test_temperatures_are_read_and_bad_lines_named(tmp_path):
    (tmp_path / "t.csv").write_text("time,celsius\n2024-08-02 00:00,20\n2024-08-01 00:00,18.5\n")
    stamps, degrees = read_temperature(tmp_path / "t.csv")
    assert degrees.tolist() == [18.5, 20.0] and stamps[0] == np.datetime64("2024-08-01")
    (tmp_path / "bad.csv").write_text("time,celsius\n2024-08-01 00:00,warm\n")
    with pytest.raises(ValueError, match="line 2 of .*bad.csv is '2024-08-01 00:00,warm'"):
        read_temperature(tmp_path / "bad.csv")
