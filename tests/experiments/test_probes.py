"""What simple controllers score, against brute force, theory and the known numbers of the paper's event."""

from __future__ import annotations

import csv
import itertools
import json

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import rel_entr

from dp_ensemble_env import scenarios
from dp_ensemble_env.chain.walks import lazy_walk
from dp_ensemble_env.cli.main import main
from dp_ensemble_env.context import Context
from dp_ensemble_env.control.policies import tilted_policy
from dp_ensemble_env.coupling import Coupling
from dp_ensemble_env.envs import actions
from dp_ensemble_env.experiments._guesses import lazy_guesses
from dp_ensemble_env.experiments._held import HeldReturn
from dp_ensemble_env.experiments._prober import CHOICES, Prober
from dp_ensemble_env.experiments._tilting import TiltReturn
from dp_ensemble_env.experiments.probes import Probes, probe, record, recorded
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.reporting.outcome import event_outcome, score, start_values

T, N, M, C = 4, 5, 6, 3


def stochastic(rng, shape):
    weights = rng.gamma(0.5, size=shape) * (rng.random(shape) < 0.7)
    weights[..., 0] += 0.05
    return weights / weights.sum(axis=-1, keepdims=True)


def general(seed=0, *, context=True, nature=True, coupling=None, **changes):
    rng = np.random.default_rng(seed)
    m = M if nature else N
    fields = {
        "default": stochastic(rng, (T, C, N, m) if context else (T, N, m)),
        "power_kw": rng.uniform(0, 8, N),
        "utility": 2 * rng.normal(size=(T + 1, C, N) if context else (T + 1, N)),
        "discomfort_penalty": 0.7,
        "nature": stochastic(rng, (T, C, m, N) if context else (m, N)) if nature else None,
        "context": Context(stochastic(rng, (T, C, C)), start=rng.dirichlet(np.ones(C))) if context else None,
        "coupling": coupling,
        "initial": rng.dirichlet(np.ones(N)),
        "spread_start": True,
    }
    return EnsembleModel(**{**fields, **changes})


def two_by_two(**changes):
    """Two contexts, two states, two decisions: small enough to try everything."""
    utility = np.array([[[0, 0], [0, 0]], [[0, -1.0], [0, 2.0]], [[0, -2.5], [0, 1.5]]])
    context = Context([[0.8, 0.2], [0.4, 0.6]], start=[0.7, 0.3])
    fields = {
        "default": [[0.7, 0.3], [0.2, 0.8]],
        "power_kw": [1.0, 4.0],
        "utility": utility,
        "discomfort_penalty": 0.5,
        "initial": [0.6, 0.4],
        "context": context,
        "spread_start": True,
        "tilt_scale": [3.0, 2.0],
    }
    return EnsembleModel(**{**fields, **changes})


def played(model, tilts):
    """Expected return of tilts (T, c, m) by walking every path of contexts: plain NumPy, nothing shared."""
    behaviour, nature, moves, utility = model.tables()
    total = 0.0
    for path in itertools.product(range(model.n_contexts), repeat=model.horizon + 1):
        chance = model.context.start[path[0]] * np.prod([moves[t, path[t], path[t + 1]] for t in range(model.horizon)])
        rho, earned = model.initial, 0.0
        for t in range(model.horizon):
            weights = behaviour[t, path[t]] * np.exp(tilts[t, path[t]])
            policy = weights / weights.sum(axis=1, keepdims=True)
            earned -= model.discomfort_penalty * rho @ rel_entr(policy, behaviour[t, path[t]]).sum(axis=1)
            rho = rho @ policy @ nature[t, path[t]]
            earned += rho @ utility[t + 1, path[t + 1]]
        total += chance * earned
    return total


LEVEL, WEIGHT = np.array([0.0, 2.0, 5.0, 3.0, 4.0]), np.array([0.0, 1.0, 0.5, 2.0, 0.3])
MODELS = {
    "paper": lambda: general(1, context=False, nature=False),
    "nature": lambda: general(2, context=False),
    "context": lambda: general(3, nature=False),
    "both": lambda: general(4),
    "tracking": lambda: general(5, context=False, coupling=Coupling.tracking(LEVEL, WEIGHT)),
    "limit": lambda: general(6, context=False, coupling=Coupling.limit(LEVEL, WEIGHT)),
}


# ------------------------------------------------------------------ value and gradient
@pytest.mark.parametrize("kind", ["context", "both"])
def test_the_return_of_a_tilt_is_that_of_every_path_of_contexts(kind):
    model = MODELS[kind]()
    tilts = np.random.default_rng(0).normal(size=(T, C, model.n_decisions))
    assert TiltReturn(model)(tilts) == pytest.approx(played(model, tilts), rel=1e-12)


@pytest.mark.parametrize("kind", MODELS)
def test_the_return_of_a_tilt_is_that_of_its_policy(kind):
    model = MODELS[kind]()
    tilts = np.random.default_rng(0).normal(size=(T, model.n_contexts, model.n_decisions))
    policy = tilted_policy(model, tilts if model.context is not None else tilts[:, 0])
    returns = TiltReturn(model)
    assert returns(tilts) == pytest.approx(event_outcome(model, policy).mean_return, rel=1e-11)
    assert returns(tilts + 3.0) == pytest.approx(returns(tilts), rel=1e-11)  # a common shift changes nothing
    assert returns.with_gradient(tilts)[0] == pytest.approx(returns(tilts), rel=1e-12)


@pytest.mark.parametrize("kind", MODELS)
def test_the_gradient_is_that_of_finite_differences(kind):
    model = MODELS[kind]()
    returns, rng = TiltReturn(model), np.random.default_rng(1)
    tilts = rng.normal(size=returns.shape)
    gradient, step = returns.with_gradient(tilts)[1].copy(), 1e-5
    numeric = np.empty_like(tilts)
    for place in np.ndindex(tilts.shape):
        change = np.zeros_like(tilts)
        change[place] = step
        numeric[place] = (returns(tilts + change) - returns(tilts - change)) / (2 * step)
    assert np.abs(gradient).max() > 0.1
    assert_allclose(gradient, numeric, atol=1e-7)


@pytest.mark.parametrize("kind", MODELS)
def test_a_policy_that_is_held_returns_what_its_evaluation_says(kind):
    model = MODELS[kind]()
    held, rng = HeldReturn(model), np.random.default_rng(2)
    theta, alone = rng.normal(size=len(held.mean)), rng.random(N) < 0.3
    behaviour = model.tables().behaviour
    weights = np.where(behaviour > 0, 1.0, 0.0)
    weights[..., held.entries[0], held.entries[1]] *= np.exp(theta)
    total = weights.sum(axis=-1, keepdims=True)  # zero where a load can never be
    policy = np.where(alone[:, None], behaviour, np.divide(weights, total, out=behaviour.copy(), where=total > 0))
    expected = event_outcome(model, policy if model.context is not None else policy[:, 0]).mean_return
    value, gradient = held(theta, alone)
    assert value == pytest.approx(expected, rel=1e-11)
    for place in range(len(theta)):
        step = np.where(np.arange(len(theta)) == place, 1e-5, 0.0)
        slope = (held(theta + step, alone)[0] - held(theta - step, alone)[0]) / 2e-5
        if not alone[held.entries[0][place]]:
            assert gradient[place] == pytest.approx(slope, abs=1e-7)


def test_huge_tilts_stay_finite():
    model = MODELS["both"]()
    tilts = np.random.default_rng(0).normal(size=(T, C, M)) * 5000
    value, gradient = TiltReturn(model).with_gradient(tilts)
    assert np.isfinite(value) and np.isfinite(gradient).all()


# ------------------------------------------------------------------ open loop
@pytest.mark.parametrize("kind", ["paper", "nature", "tracking"])
def test_without_a_context_the_best_open_loop_is_the_optimum(kind):
    """By theory; and the search reaches it from no interference alone."""
    prober = Prober(MODELS[kind](), effort=5)
    assert prober.open_loop() == pytest.approx(100, abs=1e-4)
    shape = (T, prober.model.n_decisions)
    from_zero, _ = prober._search(
        "", {"zero": np.zeros(shape)}, lambda x: x.reshape(shape)[:, None], lambda g: g.sum(axis=1).ravel()
    )
    assert from_zero[0] == pytest.approx(100, abs=0.01)


def test_open_loop_and_constants_are_those_of_brute_force():
    """Two decisions: a tilt is one difference, so an open loop is two numbers and every one of a grid can be tried."""
    model = two_by_two()
    low, high = start_values(model)
    grid = np.linspace(-6, 6, 121)

    def tilts(first, second):
        return np.stack([np.full((2, 2), [0, first]), np.full((2, 2), [0, second])])

    tried = max(played(model, tilts(a, b)) for a in grid[::4] for b in grid[::4])
    near = max((played(model, tilts(a, b)), a, b) for a in grid[::4] for b in grid[::4])[1:]
    fine = [near[0] + np.linspace(-0.4, 0.4, 41), near[1] + np.linspace(-0.4, 0.4, 41)]
    tried = max(tried, max(played(model, tilts(a, b)) for a in fine[0] for b in fine[1]))
    prober = Prober(model)
    assert prober.open_loop() == pytest.approx(score(tried, low, high), abs=0.02)
    assert prober.open_loop() < 70  # the price turns with the context, so feedback is worth a lot

    best = max(played(model, tilts(-6 * x, -4 * x)) for x in np.linspace(-1, 1, 401))  # the scale is 3, then 2
    assert prober.constant_price() == pytest.approx(score(best, low, high), abs=0.02)
    assert prober.constant_tilt() == pytest.approx(score(best, low, high), abs=0.02)  # two decisions: one number

    def held(a, b):  # a policy that is held is two numbers, the log odds of going up in each state
        up = 1 / (1 + np.exp([-a, -b]))
        return event_outcome(model, np.tile(np.stack([1 - up, up], axis=1), (2, 2, 1, 1))).mean_return

    _, a, b = max((held(a, b), a, b) for a in grid[::5] for b in grid[::5])
    best = max(held(a + x, b + y) for x in np.linspace(-0.5, 0.5, 21) for y in np.linspace(-0.5, 0.5, 21))
    assert score(best, low, high) - 1e-9 <= prober.constant_policy() <= score(best, low, high) + 0.05

    coarse = max(played(model, tilts(-6 * x, -4 * x)) for x in np.linspace(-1, 1, 11))
    assert prober.constant_discrete() == pytest.approx(score(coarse, low, high), abs=1e-5)  # choices are float32


def test_random_restarts_find_no_better_open_loop():
    prober = Prober(scenarios.make("spot"))
    found, (horizon, _, m) = prober.open_loop(), prober.returns.shape
    for seed in range(3):
        start = {"random": np.random.default_rng(seed).normal(size=(horizon, m))}
        again, _ = prober._search(
            "", start, lambda x: x.reshape(horizon, 1, m), lambda gradient: gradient.sum(axis=1).ravel()
        )
        assert again[0] <= found + 0.01


# ------------------------------------------------------------------ the other probes
def test_price_ceiling_and_bound_bracket_every_price():
    model = two_by_two(default=[[0.7, 0.3], [0.4, 0.6]])
    prober = Prober(model)
    ceiling, discrete = prober.price_ceilings()
    bound = prober.price_bound(np.linspace(-1, 1, 401))
    rng = np.random.default_rng(0)
    for prices in rng.uniform(-1, 1, (200, 2, 2)):
        assert prober.score(prober._price_tilts(prices)) <= ceiling + 1e-6
    every = itertools.product(CHOICES[::2], repeat=4)
    assert max(prober.score(prober._price_tilts(np.reshape(x, (2, 2)))) for x in every) <= discrete + 1e-9 <= ceiling
    assert ceiling <= bound + 1e-3 and bound <= 100 + 1e-9  # the bound is that of a grid of prices
    # Two decisions need one number a context: in a box that is wide enough prices do all that tilts can.
    assert ceiling == pytest.approx(100, abs=0.01) and prober.tilt_ceiling() == pytest.approx(100, abs=1e-4)


def test_the_tilt_ceiling_tells_a_box_that_is_too_small():
    assert Prober(two_by_two(tilt_scale=[0.3, 0.3])).tilt_ceiling() < 90


def test_myopic_looks_one_step_ahead():
    model = two_by_two()
    prober, moves = Prober(model), model.context.transition
    expected = np.einsum("wx,txs->tws", moves, model.utility[1:]) / 0.5  # no nature: a decision is the next state
    low, high = start_values(model)
    assert prober.myopic() == pytest.approx(score(played(model, expected), low, high), abs=1e-9)
    assert prober.myopic() < 99.9
    last = two_by_two(utility=model.utility * np.array([1, 0, 1])[:, None, None], default=[[0.5, 0.5], [0.5, 0.5]])
    assert Prober(last).myopic() == pytest.approx(100, abs=1e-6)  # no memory: nothing to look ahead for


def test_random_search_is_repeatable_and_stays_in_the_box():
    model = MODELS["both"]()
    prober = Prober(model)
    found = prober.random_search()
    assert found == Prober(model).random_search()
    rng = np.random.default_rng(13)
    first = rng.uniform(-1, 1, (100, T, M)) * actions.action_scale(model)[:, None]
    scores = [prober.score(tilts[:, None]) for tilts in first]
    assert found >= max(scores) - 1e-9
    assert f"tilt {max(scores):.1f}" in prober.how["random_search"]


def test_the_right_guess_scores_100_and_a_walk_is_found_in_hindsight():
    walk = lazy_walk(N, 1.0, 0.5, 2)
    assert_allclose(walk[0], np.array([1, 0.5, 0.25, 0, 0]) / 1.75)
    guessed = general(3, nature=False, default=walk)
    lazy, textbook = Prober(guessed).public_guess()
    assert lazy == pytest.approx(100, abs=1e-6) and np.isnan(textbook)
    model = general(3, nature=False)
    known = model.override(guess=model.default)
    assert Prober(known).public_guess()[1] == pytest.approx(100, abs=1e-6)
    assert Prober(known).public_guess()[0] < 99


def test_guesses_know_no_data_and_with_nature_what_is_possible():
    plain = general(1, context=False, nature=False)
    natural = general(7, context=False, default=np.eye(N, M) / 2 + np.eye(N, M, 1) / 2)
    other = plain.with_default(np.roll(plain.default, 1, axis=-2))
    for (name, a), (same, b) in zip(lazy_guesses(plain), lazy_guesses(other), strict=True):
        assert name == same
        np.testing.assert_array_equal(a, b)
    (only,) = lazy_guesses(natural)  # not square: no walk, all possible decisions alike
    assert_allclose(only[1], natural.default)


# ------------------------------------------------------------------ the paper's event
def test_the_numbers_of_the_campus_event(campus):
    prober = Prober(campus, effort=0.25)
    assert prober.open_loop() == pytest.approx(100, abs=0.01)
    assert prober.constant_price() == pytest.approx(94.2, abs=0.05)
    assert prober.price_ceilings()[0] == pytest.approx(98.18, abs=0.02)
    assert 97.1 < prober.public_guess()[0] < 98


def test_one_tilt_for_all_times_of_the_campus_event(campus):
    """The best of them beats every tilt of the optimum that is held, as an independent evaluation sees it."""

    def held(tilt):
        return event_outcome(campus, tilted_policy(campus, np.tile(tilt, (campus.horizon, 1)))).score

    prober = Prober(campus)
    optimum = prober.best[:, 0]
    assert prober.constant_tilt() > 98
    prober.scale = np.full(campus.horizon, 30.0)  # the same nats at all times
    assert max(map(held, optimum)) <= prober.constant_tilt() < 99.5


# ------------------------------------------------------------------ the record
def test_recorded_probes_can_be_computed_again():
    found = probe(scenarios.make("spot")).to_dict()
    for name, value in recorded("spot")[0].to_dict().items():
        if isinstance(value, float):
            assert found[name] == pytest.approx(value, abs=0.3), name


@pytest.mark.parametrize("name", scenarios.BUILT_IN)
def test_versions_are_frozen(name):
    """The ends of the scale are those that were recorded; whoever moves them gives the scenario a new version."""
    for i, one in enumerate(recorded(name)):
        found = start_values(scenarios.make(name, instance=i))
        np.testing.assert_allclose(found, (one.uncontrolled, one.optimum), rtol=1e-6, atol=1e-4)


def test_the_suite_discriminates():
    built_in = [name for name in scenarios.names() if scenarios.card(name).version]
    found = {name: recorded(name) for name in built_in}
    assert all(len(instances) >= 3 for instances in found.values()), "dp-ensemble scenarios --probe --record"
    worst = {
        name: {key: max(getattr(one, key) for one in instances) for key in ("open_loop", "public_guess")}
        for name, instances in found.items()
    }
    feedback = sorted(each["open_loop"] for each in worst.values())
    assert feedback[1] <= 50 and feedback[3] <= 85
    assert sorted(each["public_guess"] for each in worst.values())[2] <= 85
    for name, instances in found.items():
        for one in instances:
            assert one.tilt_ceiling > 99.9 and one.price_ceiling <= 100.01
            if name != "campus-event":
                assert one.constant <= 85, name
                assert one.random_search <= 90, name


def test_records_of_another_version_are_not_shown(tmp_path, monkeypatch):
    found = Probes.from_dict({**recorded("spot")[0].to_dict(), "open_loop": 12.3, "textbook": None})
    path = tmp_path / "probes.json"
    record({"spot": [found]}, path)
    record({"call": [found]}, path)  # what is there of others stays
    content = json.loads(path.read_text(encoding="utf-8"))
    assert list(content) == ["call", "spot"] and content["spot"]["instances"][0]["textbook"] is None
    monkeypatch.setattr(scenarios, "RECORD", path)
    scenarios._content.cache_clear()
    try:
        assert recorded("spot") == [found] or np.isnan(recorded("spot")[0].textbook)
        assert recorded("spot")[0].open_loop == 12.3 and recorded("campus-event") == []
        content["spot"]["version"] = 7
        path.write_text(json.dumps(content))
        scenarios._content.cache_clear()
        assert recorded("spot") == [] and scenarios.card("spot").probes is None
    finally:
        scenarios._content.cache_clear()


def test_the_command_prints_and_writes_them(tmp_path, capsys):
    words = [
        "scenarios",
        "--probe",
        "spot",
        "--effort",
        "0.02",
        "--json",
        f"{tmp_path}/p.json",
        "--csv",
        f"{tmp_path}/p.csv",
    ]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "open" in out and "spot" in out and max(map(len, out.splitlines())) <= 80
    (row,) = json.loads((tmp_path / "p.json").read_text())
    assert row["scenario"] == "spot" and f"{row['open_loop']:.1f}" in out and "lazy_walk" in row["how"]
    (line,) = csv.DictReader((tmp_path / "p.csv").open())
    assert float(line["public_guess"]) == row["public_guess"] and line["textbook"] == ""
    assert main(["scenarios", "spot"]) == 0
    assert "price mode" in capsys.readouterr().out
    assert main(["scenarios", "--record"]) == 2
    assert "--probe" in capsys.readouterr().err
    assert main(["scenarios", "--probe", "spto"]) == 2
    assert "spot" in capsys.readouterr().err
