"""What simple controllers score, against brute force, theory and the known numbers of the paper's event."""

from __future__ import annotations

import csv
import itertools
import json

import numpy as np
import pytest
from helpers import GENERAL, along_contexts, general_model

from dp_ensemble_env import scenarios
from dp_ensemble_env.cli.main import main
from dp_ensemble_env.context import Context
from dp_ensemble_env.control.policies import as_tilt
from dp_ensemble_env.control.returns import optimal_tilts
from dp_ensemble_env.envs import EnsembleEnv, actions
from dp_ensemble_env.experiments import probes
from dp_ensemble_env.experiments.deployment import score_without_data
from dp_ensemble_env.experiments.probes import Mode, Prober, Probes, probe, record, recorded, with_memory
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.mechanisms.public import public_guess
from dp_ensemble_env.reporting.score import event_outcome, score, start_values


def two_by_two(**changes):
    """Two contexts, two states, two decisions: small enough to try everything."""
    utility = np.array([[[0, 0], [0, 0]], [[0, -1.0], [0, 2.0]], [[0, -2.5], [0, 1.5]]])
    context = Context([[0.8, 0.2], [0.4, 0.6]], start=[0.7, 0.3])
    fields = {"default": [[0.7, 0.3], [0.2, 0.8]], "power_kw": [1.0, 4.0], "utility": utility, "context": context}
    fields |= {"discomfort_penalty": 0.5, "initial": [0.6, 0.4], "spread_start": True, "tilt_scale": [3.0, 2.0]}
    return EnsembleModel(**{**fields, **changes})


# ------------------------------------------------------------------ open loop
@pytest.mark.parametrize("kind", ["paper", "nature", "tracking"])
def test_without_a_context_the_best_open_loop_is_the_optimum(kind):
    assert Prober(GENERAL[kind](), effort=5).open_loop() == pytest.approx(100, abs=1e-4)


def best_pair(value):
    """Try every pair of a grid, then a finer one around the best."""
    grid, fine = np.linspace(-6, 6, 25), np.linspace(-0.5, 0.5, 41)
    _, a, b = max((value(a, b), a, b) for a in grid for b in grid)
    return max(value(a + x, b + y) for x in fine for y in fine)


def test_open_loop_and_constants_are_those_of_brute_force():
    """Two decisions: a tilt is one difference, so an open loop is two numbers and every one of a grid can be tried."""
    model = two_by_two()
    prober, ends = Prober(model), start_values(model)
    units = actions.basis_of(actions.PRICE, model)[:, :, 0]  # (T, c, m)

    def best(many):
        return score(max(along_contexts(model, tilts) for tilts in many), *ends)

    def tilts_of(a, b):
        return np.stack([np.full((2, 2), [0, a]), np.full((2, 2), [0, b])])

    def held(a, b):  # a policy that is held is two numbers, the log odds of going up in each state
        up = 1 / (1 + np.exp([-a, -b]))
        return event_outcome(model, np.tile(np.stack([1 - up, up], axis=1), (2, 2, 1, 1))).mean_return

    tried = best_pair(lambda a, b: along_contexts(model, tilts_of(a, b)))
    assert prober.open_loop() == pytest.approx(score(tried, *ends), abs=0.02)
    assert prober.open_loop() < 70  # the price turns with the context, so feedback is worth a lot
    tilts = best(tilts_of(-6 * x, -4 * x) for x in np.linspace(-1, 1, 401))  # the scale is 3, then 2
    assert prober.constant("tilt") == pytest.approx(tilts, abs=0.02)  # two decisions: one number
    assert prober.constant("price") == pytest.approx(best(x * units for x in np.linspace(-1, 1, 401)), abs=0.02)
    pairs = itertools.product(np.linspace(-1, 1, 41), repeat=2)
    assert 0 <= prober.by_context("price") - best(np.reshape(x, (2, 1)) * units for x in pairs) <= 0.5
    assert -1e-9 <= prober.constant("policy") - score(best_pair(held), *ends) <= 0.05
    ahead = np.einsum("wx,txs->tws", model.context.transition, model.utility[1:]) / model.discomfort_penalty
    assert prober.myopic() == pytest.approx(score(along_contexts(model, ahead), *ends), abs=1e-9)
    choices = actions.DISCRETE.choices
    assert prober.constant("discrete") == pytest.approx(best(x * units for x in choices), abs=1e-9)
    every = (np.reshape(x, (2, 2, 1)) * units for x in itertools.product(choices, repeat=4))
    assert -2 <= prober.ceiling("discrete") - max(prober.score(tilts) for tilts in every) <= 1e-9


# ------------------------------------------------------------------ the other probes
@pytest.mark.parametrize("name", ["signals", "price", "tilt"])
def test_no_action_beats_its_ceiling(name):
    prober = Prober(two_by_two(default=[[0.7, 0.3], [0.4, 0.6]]))
    mode, rng = prober.mode(name), np.random.default_rng(0)
    assert mode.constant <= mode.by_context <= mode.ceiling <= 100 + 1e-9
    for numbers in rng.uniform(-1, 1, (200, 2, 2, prober._size(name))):
        assert prober._played(name, numbers) <= mode.ceiling + 1e-6
    if name == "tilt":
        assert mode.ceiling == pytest.approx(100, abs=1e-4)
        assert Prober(two_by_two(tilt_scale=[0.3, 0.3])).ceiling("tilt") < 90  # the box is too small


@pytest.mark.parametrize("name", actions.names()[:5])
def test_random_actions_and_ones_are_those_of_an_environment(name):
    """A mean field without a context is deterministic, so the scores are those of episodes."""
    model = GENERAL["nature"]()
    prober, env = Prober(model), EnsembleEnv(model, action=name)
    rng, space, chosen = np.random.default_rng(probes.SEED), env.action_space, actions.mode(name)
    draws = np.clip(0.5 * rng.standard_normal((probes.SEQUENCES, model.horizon, prober._size(name))), chosen.low, 1)
    returns = []
    for draw in [*draws, np.ones_like(draws[0])]:
        env.reset(seed=0)
        numbers = actions.nearest_choice(chosen, draw[:, 0]) if chosen.levels else draw.reshape(-1, *space.shape)
        returns.append(sum(env.step(one)[1] for one in numbers))
    assert prober.random(name, 0.5) == pytest.approx(np.mean(returns[:-1]), rel=1e-6, abs=1e-6)
    assert prober.ones(name) == pytest.approx(returns[-1], rel=1e-6, abs=1e-6)


def test_a_memory_is_worth_what_it_keeps():
    """A sign, then silence, then the price that the sign told: with one bit of memory nothing is lost."""
    signs = np.eye(3)[[0, 1, 2, 2]]
    moves = np.array([[0, 0, 1.0, 0], [0, 0, 0, 1.0], [0, 0, 1.0, 0], [0, 0, 0, 1.0]])
    context = Context(moves, start=[0.5, 0.5, 0, 0], features=signs)
    utility = np.zeros((3, 4, 2))
    utility[2, 2, 1], utility[2, 3, 1] = -2.0, 2.0
    model = two_by_two(utility=utility, context=context)
    without = Prober(model).blind()
    assert without < 60 and Prober(two_by_two()).blind() == 100.0  # where the context is shown nothing is hidden
    kept = with_memory(model, [[0, 1, 0], [0, 1, 1]], 0)
    assert start_values(kept) == pytest.approx(start_values(model), abs=1e-12)  # it changes no optimum
    assert Prober(kept).blind() == pytest.approx(100, abs=1e-3)
    assert Prober(with_memory(model, [[0, 0, 0]], 0)).blind() == pytest.approx(without, abs=1e-3)


def test_the_plan_without_data_is_the_textbooks_or_a_fixed_walks():
    model = general_model(3, nature=False)
    distance = np.abs(np.subtract.outer(*[np.arange(model.n_states)] * 2))
    weights = np.where(distance == 0, 0.6, 0.3**distance)
    walk = weights / weights.sum(axis=1, keepdims=True)
    known = Prober(model.override(guess=model.default))
    assert known.public_guess() == pytest.approx(100, abs=1e-6) and "textbook" in known.how["public_guess"]
    ours = Prober(model)
    assert ours.public_guess() == pytest.approx(ours.score(optimal_tilts(model.with_default(walk))), abs=1e-9)
    assert ours.public_guess() < 99 and ours.how["public_guess"].endswith("lazy walk")
    for name in ("campus-event", "call", "feeder"):
        model = scenarios.make(name)
        by_policy = event_outcome(model, as_tilt(public_guess(model), model)).score
        assert Prober(model).public_guess() == pytest.approx(by_policy, abs=1e-6)
        assert score_without_data(model) == pytest.approx(by_policy, abs=1e-6)
        assert recorded(name)[0].public_guess == pytest.approx(by_policy, abs=1e-4)
    played = score_without_data(scenarios.make("spot"))  # that plan leaves the box of the actions
    assert recorded("spot")[0].public_guess == pytest.approx(played, abs=1e-4)


# ------------------------------------------------------------------ the record
@pytest.mark.slow
def test_recorded_probes_can_be_computed_again():
    found = probe(scenarios.make("spot")).to_dict()
    for name, value in recorded("spot")[0].to_dict().items():
        if isinstance(value, float):
            assert found[name] == pytest.approx(value, abs=0.3), name
    for name, mode in recorded("spot")[0].modes.items():
        assert Mode(**found["modes"][name]) == pytest.approx(mode, abs=0.3), name


@pytest.mark.parametrize("name", scenarios.BUILT_IN)
def test_versions_are_frozen(name):
    """The ends of the scale are those that were recorded; whoever moves them gives the scenario a new version."""
    for i, one in enumerate(recorded(name)):
        found = start_values(scenarios.make(name, instance=i))
        np.testing.assert_allclose(found, (one.uncontrolled, one.optimum), rtol=1e-6, atol=1e-4)


def test_the_suite_discriminates():
    found = {name: recorded(name) for name in scenarios.BUILT_IN}
    feedback = sorted(max(one.open_loop for one in instances) for instances in found.values())
    data = sorted(max(one.public_guess for one in instances) for instances in found.values())
    assert feedback[1] <= 50 and feedback[3] <= 85 and data[2] <= 85
    for one in itertools.chain.from_iterable(found.values()):
        assert one.modes["tilt"].ceiling > 99.9 and all(mode.ceiling <= 100.01 for mode in one.modes.values())
        assert one.modes["signals"].ceiling > 70 and one.modes["signals"].one < 0
    # Memory is a ladder: what counts is the number of bulletins that say that the storm comes.
    one = recorded("front")[0]
    rungs = [one.open_loop, one.blind, *one.ladder.values(), 100.0]
    assert len(rungs) == 7 and (np.diff(rungs) > 0.5).all() and rungs[-2] > 95
    assert recorded("spot")[0].blind == 100.0 > recorded("depot")[0].blind


def test_records_of_another_version_are_not_shown(tmp_path, monkeypatch):
    found = Probes.from_dict({**recorded("spot")[0].to_dict(), "open_loop": 12.3})
    path = tmp_path / "probes.json"
    record({"spot": [found]}, path)
    record({"call": [found]}, path)  # what is there of others stays
    content = json.loads(path.read_text(encoding="utf-8"))
    assert list(content) == ["call", "spot"]
    monkeypatch.setattr(scenarios, "RECORD", path)
    scenarios._content.cache_clear()
    try:
        assert recorded("spot") == [found] and recorded("spot")[0].open_loop == 12.3 and recorded("campus-event") == []
        content["spot"]["version"] = 7
        path.write_text(json.dumps(content))
        scenarios._content.cache_clear()
        assert recorded("spot") == [] and scenarios.card("spot").probes is None
    finally:
        scenarios._content.cache_clear()


def test_the_command_prints_and_writes_them(tmp_path, capsys):
    files = ["--json", f"{tmp_path}/p.json", "--csv", f"{tmp_path}/p.csv"]
    assert main(["scenarios", "--probe", "spot", "--effort", "0.02", *files]) == 0
    (row,) = json.loads((tmp_path / "p.json").read_text())
    assert row["scenario"] == "spot" and f"{row['open_loop']:.1f}" in capsys.readouterr().out
    (line,) = csv.DictReader((tmp_path / "p.csv").open())
    assert float(line["public_guess"]) == row["public_guess"]
    assert float(line["signals ceiling"]) == row["modes"]["signals"]["ceiling"]
