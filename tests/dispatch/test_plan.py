"""Plans: the energy of the optimal policy, a shed that is held, ranges under a stated response."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from helpers import refuses

from dp_ensemble_env.chain.day import half_width
from dp_ensemble_env.cli import main
from dp_ensemble_env.dispatch.plan import hold, make_plan, shed_energy
from dp_ensemble_env.dispatch.settle import read_plan


def test_the_energy_is_that_of_the_optimal_policy_and_the_response(days, plan):
    assert [course.name for course in plan.participants] == list(days)
    for course, day in zip(plan.participants, days.values(), strict=True):
        # $1/kWh is what the penalty was calibrated to.
        told = float(re.search(r"sheds ([\d.]+) %", " ".join(day.notes))[1])
        assert 100 * course.shed_kwh / course.energy(course.forecast) == pytest.approx(told, rel=0.01)
        assert course.energy(course.forecast) == pytest.approx(day.forecast_kwh)
        assert course.shed_kwh == pytest.approx(shed_energy(day, 1.0) * day.model.step_hours)
    np.testing.assert_allclose(plan.total.setpoint, sum(course.setpoint for course in plan.participants))
    assert plan.total.shed_kwh == pytest.approx(sum(course.shed_kwh for course in plan.participants))


def test_one_shed_is_held_from_start_to_end(days, plan):
    for course, day in zip(plan.participants, days.values(), strict=True):
        shed = (course.forecast - course.setpoint) / day.model.loads
        assert (shed[~course.in_event] == 0).all()
        inside, room = shed[course.in_event], (day.path.kw - day.floor_kw)[course.in_event]
        assert (np.isclose(inside, np.maximum(room, 0.0)) | (inside >= 0.9 * inside.max())).all()
    # Half of the intervals near the floor: the others carry what those cannot.
    np.testing.assert_allclose(hold(np.array([1.0, 9.0, 9.0, -3.0]), 11.0), [1.0, 5.0, 5.0, 0.0])
    np.testing.assert_allclose(hold(np.array([1.0, 2.0]), 9.0), [1.0, 2.0])
    np.testing.assert_allclose(hold(np.array([1.0, 2.0]), 0.0), 0.0)


def test_ranges_of_response_and_forecast(days, plan):
    course, day = plan.participants[0], next(iter(days.values()))
    inside = course.in_event
    energy = day.path.errors[:, inside].sum(axis=1), day.path.loads[:, inside].sum(axis=1), day.path.kw[inside].sum()
    assert course.error_kwh == pytest.approx(half_width(*energy) * day.model.step_hours)
    low, high = course.shed_range
    # With a sure forecast: 90 % of a uniform law between 0.5 and 1.5 times.
    sure = replace(course, error_kwh=0.0)
    np.testing.assert_allclose(sure.shed_range, np.array([0.55, 1.45]) * course.shed_kwh, rtol=0.01)
    assert low < 0.551 * course.shed_kwh and high > 1.45 * course.shed_kwh
    nothing = make_plan({n: replace(d, event=replace(d.event, incentive=0.0)) for n, d in days.items()})
    assert nothing.total.shed_range == (0.0, 0.0) and nothing.participants[0].shed_range == (0.0, 0.0)


def test_what_strikes_all_alike_widens_the_total(days, plan):
    """Copies of one load stray as one: four times the range, where four independent ones would have half of that."""
    name, day = next(iter(days.items()))
    copies = make_plan({f"{name} {number}": day for number in range(4)})
    assert copies.total.error_kwh == pytest.approx(4 * copies.participants[0].error_kwh)
    # Errors that share few days are taken to strike all alike, and that is said.
    late = replace(day.path, dates=day.path.dates + np.timedelta64(10_000, "D"))
    apart = make_plan({"a": day, "b": replace(day, path=late)})
    assert apart.total.error_kwh == pytest.approx(2 * apart.participants[0].error_kwh)
    assert "share only 0 past days" in apart.notes[""][0]
    assert plan.total.error_kwh < sum(course.error_kwh for course in plan.participants)


def test_a_target_is_met_and_one_out_of_reach_refused(days, plan):
    wanted = 0.5 * plan.total.shed_kwh / plan.total.hours
    half = make_plan(days, wanted)
    assert half.total.shed_kwh / half.total.hours == pytest.approx(wanted, rel=1e-4)
    assert 0 < half.price < plan.price
    refuses(r"more than the participants can spare: [\d,]+ kW", make_plan, days, 1e6)
    refuses("positive", make_plan, days, -1.0)


def test_command(fleet, tmp_path, capsys):
    folder, words = tmp_path / "plan", ["--meter", fleet.meter]
    assert main(["plan", *words, "--date", "2018-8-15", "--output", str(folder)]) == 0
    with (folder / "dispatch.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    noon = [float(row["setpoint_kw"]) for row in rows if row["start"] == "2018-08-15 12:00:00"]
    total = json.loads((folder / "dispatch.json").read_text())["total"]
    held = total["setpoint_kw"][total["start"].index("2018-08-15T12:00:00")]
    assert len(noon) == 12 and sum(noon) == pytest.approx(held, abs=0.1)
    earlier = read_plan(folder)
    assert (earlier.date, earlier.window) == ("2018-08-15", "11:00-15:00") and len(earlier.setpoints) == 12
    assert main(["settle", *words, "--plan", str(folder), "--date", "2018-08-16"]) == 2
    assert "differs from the plan (2018-08-15)" in capsys.readouterr().err
    (tmp_path / "not.json").write_text("{}")
    refuses("is not a dispatch that dp-ensemble plan wrote", read_plan, tmp_path / "not.json")


def test_the_campus_and_a_day_ahead(tmp_path, capsys):
    assert main(["plan", "--day-ahead", "--signal", "price", "--output", str(tmp_path)]) == 0
    assert "was not measured" not in capsys.readouterr().err  # it was asked for
    assert main(["settle", "--plan", str(tmp_path)]) == 0
