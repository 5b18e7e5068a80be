"""Whose meters: loads and nothing else, one day and one step for all, and reasons for those that are left out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from helpers import refuses

from dp_ensemble_env.cli import main
from dp_ensemble_env.dispatch.participants import participants
from dp_ensemble_env.dispatch.plan import make_plan
from dp_ensemble_env.dispatch.report import openadr
from dp_ensemble_env.scenarios.metered import metered_day
from dp_ensemble_env.scenarios.problem import ProblemSettings

HOURS = np.arange(np.datetime64("2018-05-01T00:00"), np.datetime64("2018-08-01T00:00"), np.timedelta64(1, "h"))


def load(seed, times=HOURS):
    """A daily shape with noise, kW."""
    hour = (times - times.astype("datetime64[D]")) / np.timedelta64(1, "h")
    noise = np.random.default_rng(seed).normal(0, 2, len(times))
    return np.round(100 + 40 * np.sin((hour - 8) / 24 * 2 * np.pi) + noise, 3)


def write(path, columns, times=HOURS):
    rows = zip(times, *columns.values(), strict=True)
    lines = [f"{str(time).replace('T', ' ')},{','.join(map(str, cells))}" for time, *cells in rows]
    path.write_text("\n".join([f"interval start,{','.join(columns)}", *lines]) + "\n")
    return path


def names(path, **settings):
    return [one.name for one in participants(ProblemSettings(meter=str(path), date="2018-07-16", **settings)).used]


def test_a_meter_counts_once_and_a_thermometer_never(tmp_path):
    kw = load(0)
    columns = {"max demand kW": kw + 5, "min demand kW": kw - 5, "avg demand kW": kw, "temperature": kw / 5}
    (one,) = participants(ProblemSettings(meter=str(write(tmp_path / "one.csv", columns)))).used
    assert one.name == "one" and one.series.kw[3] == kw[3]
    columns = {"a_kWh": kw, "b_kWh": kw, "export_kWh": kw, "spot price": kw, "b_max_kW": kw, "feed-in kWh": kw}
    wide = write(tmp_path / "wide.csv", columns)
    assert names(wide) == ["a_kWh", "b_kWh"]
    settings = ProblemSettings(meter=str(wide), date="2018-07-16")
    refuses("there is no participant 'c'; choose among", participants, settings, ["a_kWh", "c"])


def test_long_files_and_folders(tmp_path):
    path = tmp_path / "long.csv"
    rows = [f"{str(t).replace('T', ' ')},{n},{v}" for n in "AB" for t, v in zip(HOURS, load(ord(n)), strict=True)]
    path.write_text("\n".join(["interval start,meter,kW", *rows]) + "\n")
    assert names(path) == ["A", "B"]
    write(tmp_path / "other.csv", {"kW": load(1)})
    assert names(tmp_path) == ["long A", "long B", "other"]
    (tmp_path / "empty").mkdir()
    refuses("holds no meter files", participants, ProblemSettings(meter=str(tmp_path / "empty")))


def test_one_day_and_one_step_for_all(tmp_path):
    """The first in the alphabet decides nothing: quarter hours become hours, the day is that of most."""
    quarters = np.arange(HOURS[0], HOURS[-1] + 60, np.timedelta64(15, "m"))
    write(tmp_path / "a.csv", {"kW": load(0, quarters)}, quarters)
    for name in "bc":
        write(tmp_path / f"{name}.csv", {"kW": load(1)})
    short = HOURS < np.datetime64("2018-06-15")
    write(tmp_path / "0.csv", {"kW": load(2)[short]}, HOURS[short])
    known = participants(ProblemSettings(meter=str(tmp_path)))
    assert {one.event.step_minutes for one in known.used} == {60}
    assert {one.event.date for one in known.used} == {"2018-07-02"}


def test_sites_have_time_zones_of_their_own(tmp_path):
    """11:00 is an instant of each site: stamps in UTC become its own clock, and so does the start that is sent."""
    for name in ("boston", "chicago"):
        write(tmp_path / f"{name}.csv", {"kW": load(0)}, [f"{time}Z" for time in HOURS])
    (tmp_path / "sites.csv").write_text("boston,America/New_York\nchicago,America/Chicago\n")
    settings = ProblemSettings(meter=str(tmp_path), date="2018-07-16")
    east, west = participants(settings).used
    assert east.series.times[0] - west.series.times[0] == np.timedelta64(3600, "s")
    days = {one.name: metered_day(one.series, one.event, one.settings.day_settings()) for one in (east, west)}
    events = openadr(make_plan(days), zones={one.name: one.settings.timezone for one in (east, west)})["events"]
    starts = [event["intervalPeriod"]["start"] for event in events]
    assert starts == ["2018-07-16T11:00:00-04:00", "2018-07-16T11:00:00-05:00"]
    (tmp_path / "sites.csv").write_text("boston\n")
    refuses("write lines such as 'depot,America/Chicago'", participants, settings)


def test_a_dead_meter_and_a_new_customer_are_left_out_and_the_others_go_on(tmp_path, capsys):
    dead, new = load(1), load(2)
    dead[HOURS >= np.datetime64("2018-06-01")] = 0.0
    cells = [str(v) if t >= np.datetime64("2018-07-12") else "" for t, v in zip(HOURS, new, strict=True)]
    path = write(tmp_path / "fleet.csv", {"good_kW": load(0), "dead_kW": dead, "new_kW": cells})
    settings = ProblemSettings(meter=str(path), date="2018-07-16")
    assert "100 % of the 14 days" in participants(settings).refused["dead_kW"]
    assert main(["plan", "--meter", str(path), "--date", "2018-7-16", "--output", str(tmp_path / "plan")]) == 0
    shown = capsys.readouterr()
    assert "note: new_kW is left out: " in shown.err and "note: dead_kW is left out: it shows zero" in shown.err
    assert "good_kW" in shown.out and "new_kW" not in shown.out and "customer baseline" in shown.out
    # Zeros from two weeks before the event on would pass the gate, but there is no baseline from May.
    refuses("shows zero or nothing", participants, replace(settings, column="dead_kW"))
