"""Cars: the energy that charging stores, travel by the hour, the unmet need, the habits, and what the probes leave."""

import numpy as np
import pytest

from dp_ensemble_env import scenarios
from dp_ensemble_env.control.policies import centred, competing
from dp_ensemble_env.scenarios import vehicles as ve

B = len(ve.LEVELS)
PLACE = {name: i * B for i, name in enumerate(ve.PLACES)}
CHOICE = {name: i * B for i, name in enumerate(ve.CHOICES)}
ENERGY = np.tile(ve.LEVELS, len(ve.PLACES))


@pytest.fixture(scope="module")
def model():
    return scenarios.make("vehicles")


@pytest.mark.parametrize(("choice", "kw"), [("off", 0.0), ("paused", 0.0), ("slow", 3.7), ("fast", 7.4)])
@pytest.mark.parametrize("hour", [3.0, 7.5, 18.0])
def test_what_is_drawn_is_stored_whether_the_car_stays_or_leaves(choice, kw, hour):
    nature = ve.garage(ve.Day(), hour)
    for level in range(B - 1):
        stored = nature[CHOICE[choice] + level] @ ENERGY - ve.LEVELS[level]
        assert stored == pytest.approx(0.9 * kw * 0.5, abs=1e-12)
    full = nature[CHOICE[choice] + B - 1]
    assert full @ ENERGY == pytest.approx(ve.LEVELS[-1])
    assert full[[PLACE["off"] + B - 1, PLACE["leaving"] + B - 1]].sum() == pytest.approx(1.0)  # draws nothing


def test_a_day_of_the_fleet_balances(model):
    """The batteries gain efficiency times what was drawn, and trips take out what they use, as far as there is any."""
    behaviour, nature, _, _ = model.tables()
    day = ve.Day.draw(ve.streams("vehicles", 0)[0])
    spread, stored, drawn, driven = model.initial, model.initial @ ENERGY, 0.0, 0.0
    mean_use = np.maximum(ve.LEVELS - ve.driving(day) @ ve.LEVELS, 0.0)
    lost_at_the_top = 0.0
    for t in range(model.horizon):
        decided = spread @ behaviour[t, 0]
        for name, kw in (("slow", ve.SLOW_KW), ("fast", ve.FAST_KW)):
            share = decided[CHOICE[name] : CHOICE[name] + B]
            drawn += kw * 0.5 * share.sum()
            lost_at_the_top += share @ (ve.LEVELS + 0.9 * kw * 0.5 - ve.charging(kw) @ ve.LEVELS)
        driven += day.coming((12.0 + t / 2) % 24.0) * decided[:B] @ mean_use
        spread = decided @ nature[t, 0]
    assert drawn > 3.0 and driven > 3.0
    assert spread @ ENERGY - stored == pytest.approx(0.9 * drawn - driven - lost_at_the_top, abs=1e-10)
    assert lost_at_the_top < 0.1 * drawn


def test_need_unmet_counts_once_and_is_the_mean_over_trips(model):
    day = ve.Day.draw(ve.streams("vehicles", 0)[0])
    leaving = model.utility[1:-1, :, PLACE["leaving"] : PLACE["leaving"] + B]
    for place in ("away", "arrived", "paused", "off"):
        assert np.abs(model.utility[1:-1, :, PLACE[place] : PLACE[place] + B]).max() == 0.0
    trips = np.random.default_rng(0).choice(ve.LEVELS[:6], 200_000, p=day.trips)
    for level, energy in enumerate(ve.LEVELS):
        short = np.maximum(trips - energy, 0.0)
        error = 5 * 1.5 * short.std() / np.sqrt(len(trips)) + 1e-12
        assert leaving[:, :, level] == pytest.approx(np.full(leaving.shape[:2], -1.5 * short.mean()), abs=error)


def test_prices_by_hour_and_context(model):
    day = ve.Day.draw(ve.streams("vehicles", 0)[0])
    by_time = {str(time)[11:16]: t for t, time in reversed(list(enumerate(model.times)))}
    for clock, dear in (("16:00", 0.0), ("16:30", 1.0), ("21:00", 1.0), ("21:30", 0.0)):
        for w, spot in enumerate(day.spot):
            value = model.utility[by_time[clock], w, PLACE["fast"] + 2]
            assert value == pytest.approx(-(spot + dear * day.dear) * 7.4 * 0.5)
    assert day.spot[0] < 0 < day.spot[1] < day.spot[2]


def test_cars_of_different_charge_do_not_compete(model):
    groups = competing(model.default).reshape(len(ve.CHOICES), B)
    assert (groups[1:, :-1] == groups[1, :-1]).all() and len(np.unique(groups[1])) == B
    assert not np.isin(groups[0], groups[1:]).any()
    tilts = np.random.default_rng(0).normal(size=(3, model.n_decisions))
    for before, after in zip(tilts, centred(tilts, model.default), strict=True):
        weights = [model.default * np.exp(tilt) for tilt in (before, after)]
        policies = [w / w.sum(axis=1, keepdims=True) for w in weights]
        np.testing.assert_allclose(policies[0], policies[1], atol=1e-13)
        for group in range(groups.max() + 1):
            inside = after[groups.ravel() == group]
            assert inside.max() == pytest.approx(-inside.min(), abs=1e-12)
