"""Plan and settlement: exact expectations, ranges that hold, OpenADR objects that obey the schema, money by hand."""

from __future__ import annotations

import csv
import json
import re
from datetime import datetime
from itertools import pairwise

import numpy as np
import pytest

from dp_ensemble_env import samples
from dp_ensemble_env.chain.event import customer_baseline
from dp_ensemble_env.cli import main
from dp_ensemble_env.experiments.dispatch import PlanSettings, make_plan, together
from dp_ensemble_env.experiments.dispatch_figures import price_explorer
from dp_ensemble_env.experiments.openadr import openadr
from dp_ensemble_env.experiments.participants import participants
from dp_ensemble_env.experiments.settlement import add_up, read_plan, settle
from dp_ensemble_env.meter import read_meter
from dp_ensemble_env.programme import ReliefProgramme
from dp_ensemble_env.scenarios.metered import metered_day
from dp_ensemble_env.scenarios.problem import ProblemSettings

FLEET = str(samples.path("fleet.csv"))
DATE = "2018-08-15"


@pytest.fixture(scope="module")
def days():
    settings = ProblemSettings(meter=FLEET, date=DATE)
    found = {}
    for reading in participants(settings)[:4]:
        name, series, own = reading.read()
        found[name] = metered_day(series, own.event(series), own.day_settings())
    return found


@pytest.fixture(scope="module")
def plan(days):
    return make_plan(days, PlanSettings(draws=1000))


def test_set_points_and_ranges(days, plan):
    assert [course.name for course in plan.participants] == list(days)
    for course, day in zip(plan.participants, days.values(), strict=True):
        # $1/kWh is what the penalty was calibrated to.
        share = course.shed_kwh / course.energy(course.uncontrolled)
        told = float(re.search(r"sheds ([\d.]+) %", " ".join(day.notes))[1])
        assert 100 * share == pytest.approx(told, rel=0.01)
        assert course.energy(course.uncontrolled) == pytest.approx(day.forecast_kwh, rel=1e-3)
        # The first entry was measured, and lies between two levels.
        assert (course.low <= course.setpoint)[1:].all() and (course.setpoint <= course.high)[1:].all()
        # The mean of the simulated days is the expectation, within five standard errors.
        error = course.drawn_kwh.std() / np.sqrt(len(course.drawn_kwh))
        assert abs(course.drawn_kwh.mean() - course.energy(course.setpoint)) < 5 * error
    total = plan.total
    np.testing.assert_allclose(total.setpoint, sum(course.setpoint for course in plan.participants))
    assert total.shed_kwh == pytest.approx(sum(course.shed_kwh for course in plan.participants))
    assert (total.high - total.low).max() < sum((course.high - course.low).max() for course in plan.participants)


def test_what_strikes_all_alike_widens_the_total(days, plan):
    """Copies of one building stray as one: twice the range, where four independent ones would have half of that."""
    name, day = next(iter(days.items()))
    copies = {f"{name} {number}": day for number in range(4)}
    assert together(copies) == pytest.approx(2.0)
    assert together({name: day}) == 1.0
    # By hand, day by day: the squared error of the sum against the sum of the squared errors.
    shared = set.intersection(*(set(day.path.dates.tolist()) for day in days.values()))
    apart = joint = 0.0
    for date in shared:
        missed = []
        for day in days.values():
            errors = day.path.errors[day.path.dates.tolist().index(date)]
            missed.append(sum(errors[t] for t in np.flatnonzero(day.in_event)))
        apart, joint = apart + sum(one**2 for one in missed), joint + sum(missed) ** 2
    wider = together(days)
    assert wider == pytest.approx(np.sqrt(joint / apart)) and wider > 1.0
    drawn = sum(course.drawn_kwh for course in plan.participants)
    assert plan.total.drawn_kwh.std() == pytest.approx(wider * drawn.std())
    assert plan.total.drawn_kwh.mean() == pytest.approx(drawn.mean())


def test_other_prices_lead_through_the_plan(plan):
    """The plan is one of its levels, and more money sheds more, at more discomfort."""
    (own,) = [level for level in plan.levels if level.price == plan.price]
    np.testing.assert_allclose(own.setpoint, plan.total.setpoint)
    assert own.discomfort == pytest.approx(plan.total.discomfort)
    for before, after in pairwise(plan.levels):
        assert plan.total.energy(before.setpoint) > plan.total.energy(after.setpoint)
        assert before.price < after.price and before.discomfort < after.discomfort
    explorer = price_explorer(plan)
    stop, frontier = explorer.stops[explorer.start], explorer.frontier.series[0]
    assert stop.x == plan.price and frontier.y[explorer.start] == pytest.approx(plan.total.shed_kwh / plan.total.hours)


def test_payback_comes_after_the_event_and_is_linear(days, plan):
    none = make_plan(days, PlanSettings(draws=1000, payback=0.0))
    np.testing.assert_allclose(none.total.setpoint[~plan.total.after], plan.total.setpoint[~plan.total.after])
    owed = plan.total.rebound_kwh - none.total.rebound_kwh
    assert owed == pytest.approx(0.3 * plan.total.shed_kwh)


def test_a_target_is_met_and_one_out_of_reach_refused(days, plan):
    wanted = 0.5 * plan.total.shed_kwh / plan.total.hours
    found = make_plan(days, PlanSettings(target_kw=wanted, draws=200))
    assert found.total.shed_kwh / found.total.hours == pytest.approx(wanted, rel=1e-4)
    assert 0 < found.price < plan.price
    with pytest.raises(ValueError, match=r"more than the participants can spare: [\d,]+ kW"):
        make_plan(days, PlanSettings(target_kw=1e6))


def test_money_by_hand(plan):
    money, total = plan.money, plan.total
    delivered = (total.energy(total.baseline) - total.drawn_kwh) / 4.0
    factor = np.clip(delivered / plan.pledge_kw, 0, 1).mean()
    assert money["performance_factor"] == pytest.approx(factor)
    assert money["payment"] == pytest.approx(18 * plan.pledge_kw * factor + np.maximum(delivered, 0).mean() * 4)
    assert plan.pledge_kw == pytest.approx(np.median(delivered), rel=1e-2)


def test_private_plans_say_what_was_spent(days, plan):
    public = make_plan(days, PlanSettings(privacy="public", draws=200))
    assert "ε = 0 at" in public.revealed[0]
    gaussian = make_plan(days, PlanSettings(privacy="gaussian:epsilon=4", draws=200))
    assert "(4, 1e-06)" in gaussian.revealed[0] and "protects everything that one participant" in gaussian.revealed[0]
    assert "without noise" in gaussian.revealed[1]
    assert public.total.shed_kwh > 0 and "Nothing about it is private" in plan.revealed[1]


# ------------------------------------------------------------------ OpenADR 3.1
DURATION = r"^(-?)P(?=\d|T\d)(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)([DW]))?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?$"


def check_period(period):
    assert datetime.fromisoformat(period["start"]).tzinfo is not None
    assert re.match(DURATION, period["duration"])


def check_openadr(content, kind, units):
    program = content["program"]
    assert 1 <= len(program["programName"]) <= 128
    check_period(program["intervalPeriod"])
    for event in content["events"]:
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", event["programID"])
        assert all(1 <= len(target) <= 128 for target in event["targets"])
        check_period(event["intervalPeriod"])
        (descriptor,) = event["payloadDescriptors"]
        assert descriptor["objectType"] == "EVENT_PAYLOAD_DESCRIPTOR"
        assert (descriptor["payloadType"], descriptor["units"]) == (kind, units)
        assert [interval["id"] for interval in event["intervals"]] == list(range(len(event["intervals"])))
        for interval in event["intervals"]:
            (payload,) = interval["payloads"]
            assert payload["type"] == kind and len(payload["values"]) == 1
            assert isinstance(payload["values"][0], float)


def test_openadr_objects_obey_the_schema(plan):
    content = openadr(plan, "setpoint", "America/New_York")
    check_openadr(content, "DISPATCH_SETPOINT", "KW")
    assert [event["targets"] for event in content["events"]] == [[course.name] for course in plan.participants]
    first = content["events"][0]
    assert first["intervalPeriod"] == {"start": f"{DATE}T10:00:00-04:00", "duration": "PT1H"}
    sent = [interval["payloads"][0]["values"][0] for interval in first["intervals"]]
    np.testing.assert_allclose(sent, plan.participants[0].setpoint[1:6], atol=1e-3)
    prices = openadr(plan, "price")
    check_openadr(prices, "PRICE", "KWH")
    (event,) = prices["events"]
    assert event["payloadDescriptors"][0]["currency"] == "USD"
    assert [interval["payloads"][0]["values"][0] for interval in event["intervals"]] == [0.137, *[1.137] * 4]


# ------------------------------------------------------------------ settlement
def test_settlement_by_hand():
    series = read_meter(FLEET, column="bank_kW")
    own = ProblemSettings(meter=FLEET, column="bank_kW", date=DATE)
    event = own.event(series)
    planned = np.full(4, 150.0)
    found = settle("bank", series, event, own.day_settings(), planned=planned)
    day = series.times.astype("datetime64[D]") == np.datetime64(DATE)
    metered = series.kw[day][11:15]
    np.testing.assert_allclose(found.metered, metered)
    baseline = customer_baseline(series.times, series.kw, event, exclude=["2018-07-04"])[event.timeline().in_event]
    assert found.delivered() == pytest.approx(baseline.sum() - metered.sum())
    adjusted = customer_baseline(series.times, series.kw, event, exclude=["2018-07-04"], adjustment="weather")
    assert found.delivered("adjusted") == pytest.approx(adjusted[event.timeline().in_event].sum() - metered.sum())
    assert found.off("planned") == pytest.approx(100 * np.abs(150 - metered).mean() / metered.mean())
    forecast = metered_day(series, event, own.day_settings()).path.kw[2:6]
    assert found.delivered("forecast") == pytest.approx(forecast.sum() - metered.sum())
    total = add_up([found, found])
    assert total.delivered() == pytest.approx(2 * found.delivered())
    ten = settle("bank", series, event, own.day_settings(loads=10))
    assert ten.delivered() == pytest.approx(10 * found.delivered())
    assert ten.delivered("forecast") == pytest.approx(10 * found.delivered("forecast"))


def test_what_is_shed_is_delivered():
    """A day that is lowered by 20 kW in the event delivers 80 kWh more, by every measure."""
    series = read_meter(FLEET, column="bank_kW")
    own = ProblemSettings(meter=FLEET, column="bank_kW", date=DATE)
    event = own.event(series)
    before = settle("bank", series, event, own.day_settings())
    begin, end = event.window
    kw = np.where((series.times >= begin) & (series.times < end), series.kw - 20.0, series.kw)
    after = settle("bank", type(series)(series.times, kw, series.step), event, own.day_settings())
    for against in ("baseline", "adjusted", "forecast"):
        assert after.delivered(against) - before.delivered(against) == pytest.approx(80.0)


# ------------------------------------------------------------------ commands
def test_plan_then_settle(tmp_path, capsys):
    folder = tmp_path / "plan"
    words = ["--meter", FLEET]
    assert main(["plan", *words, "--date", DATE, "--output", str(folder), "--draws", "200"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.split("Page:")[0].splitlines())) <= 80
    assert "doing nothing would settle as" in " ".join(out.split())
    names = sorted(file.name for file in folder.iterdir())
    pictures = ["participants.png", "prices.png", "total.png"]
    assert names == ["dispatch.csv", "dispatch.html", "dispatch.json", "openadr.json", *pictures]
    with (folder / "dispatch.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    parts = [row for row in rows if row["participant"] != "total" and row["start"] == f"{DATE} 12:00:00"]
    (whole,) = [row for row in rows if row["participant"] == "total" and row["start"] == f"{DATE} 12:00:00"]
    assert len(parts) == 12
    assert sum(float(row["setpoint_kw"]) for row in parts) == pytest.approx(float(whole["setpoint_kw"]), abs=0.1)
    check_openadr(json.loads((folder / "openadr.json").read_text()), "DISPATCH_SETPOINT", "KW")
    earlier = read_plan(folder)
    assert (earlier.date, earlier.window) == (DATE, "11:00-15:00") and len(earlier.setpoints) == 12
    assert main(["settle", *words, "--plan", str(folder), "--json", str(tmp_path / "s.json")]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    content = json.loads((tmp_path / "s.json").read_text())
    money = content["money"]
    assert money["pledge_kw"] == earlier.pledge_kw
    kwh = content["total"]["delivered_against_baseline_kwh"]
    terms = ReliefProgramme()
    assert money["payment"] == pytest.approx(float(terms.payment(kwh / 4, earlier.pledge_kw, 4.0)))
    assert main(["settle", *words, "--plan", str(folder), "--date", "2018-08-16"]) == 2
    assert "is not that of the plan" in capsys.readouterr().err
    (tmp_path / "not.json").write_text("{}")
    assert main(["settle", *words, "--plan", str(tmp_path / "not.json")]) == 2
    assert "is not a dispatch that dp-ensemble plan wrote" in capsys.readouterr().err


def test_meters_that_cannot_be_used_are_named_once(tmp_path, capsys):
    """One sentence when all lack the same thing; otherwise a note each, and the others go on."""
    unnamed = tmp_path / "plain.csv"
    unnamed.write_text("time,a,b\n2018-06-01 00:00,1,2\n2018-06-01 01:00,2,3\n", encoding="utf-8")
    assert main(["plan", "--meter", str(unnamed), "--output", str(tmp_path / "out")]) == 2
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith(("note", "dp-ensemble"))]
    assert len(told) == 1 and "none of the 2 meters can be used. For one:" in told[0]
    assert "unit=" in told[0]


def test_the_campus_and_a_day_ahead(tmp_path, capsys):
    assert main(["plan", "--day-ahead", "--signal", "price", "--output", str(tmp_path), "--draws", "200"]) == 0
    assert "was not measured" not in capsys.readouterr().err  # it was asked for
    check_openadr(json.loads((tmp_path / "openadr.json").read_text()), "PRICE", "KWH")
    assert main(["settle", "--plan", str(tmp_path)]) == 0
    assert main(["plan", "--shed", "1e9", "--output", str(tmp_path / "no")]) == 2
    assert "target=1e+09 kW is more than the participants can spare" in capsys.readouterr().err
