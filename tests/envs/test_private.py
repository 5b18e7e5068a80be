"""Releases inside the environments: what is drawn, when, and what it costs."""

from __future__ import annotations

import copy
import math
import operator
import pickle
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from helpers import TiltEnv, TiltVectorEnv

from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy import ledger as ledger_module
from dp_ensemble_env.privacy.ledger import PrivacyBudgetExceeded, PrivacyLedger
from dp_ensemble_env.privacy.mechanisms.dirichlet import DirichletMechanism
from dp_ensemble_env.scenarios.campus import campus_event

CAMPUS, SPEC = "dp_ensemble/CampusEvent-tilt-v1", "dirichlet:k=20,floor=0.1"


def test_dynamics_and_reference_are_one_release(campus: EnsembleModel) -> None:
    env = TiltEnv(campus, privacy="dirichlet:k=50,floor=0.01", release_seed=7)
    expected = DirichletMechanism(50, 0.01).release(campus.default, 7)
    np.testing.assert_array_equal(env.release.matrix, expected.matrix)
    np.testing.assert_array_equal(env.model.default, expected.matrix)
    assert np.abs(env.model.default - campus.default).max() > 0.01
    event = env.release.event
    assert env.model.counts is None and event.k == 50 and event.floor == 0.01
    env.reset(options={"state": 3})
    _, _, _, _, info = env.step(np.zeros(20))
    np.testing.assert_allclose(env.occupancy, expected.matrix[3], atol=1e-14)  # the release moves the loads
    assert info["discomfort"] == 0.0  # and is what the divergence is measured from


def test_a_seed_fixes_the_release_which_no_reset_draws_again(campus: EnsembleModel) -> None:
    one, two = (TiltEnv(campus, privacy=SPEC, release_seed=seed) for seed in (None, 0))
    assert one.release.digest == two.release.digest and one.release.reproducible
    assert one.ledger.knows(two.release) and one.ledger.releases == 1
    assert "seeded" in one._batch.behaviour.line()
    matrix = one.release.matrix
    for seed in (None, 0, 1):
        one.reset(seed=seed)
        assert one.release.matrix is matrix
    assert one.ledger.releases == 1
    assert np.abs(TiltEnv(campus, privacy=SPEC, release_seed=1).release.matrix - matrix).max() > 0.01
    true = TiltEnv(campus)
    assert true.release is None and true.model is campus and "none" in true._batch.behaviour.line()
    assert true.ledger.spent(1e-6) == math.inf and true.ledger.releases == 0
    secret = campus.default.tobytes()
    assert secret not in pickle.dumps(one) and secret in pickle.dumps(true)


def test_redraw_is_charged_once_each(campus: EnsembleModel) -> None:
    env = TiltEnv(campus, privacy=SPEC, redraw="episode", release_seed=3)
    assert env.ledger.releases == 1
    seen = []
    for episode in range(1, 5):
        env.reset(seed=0)
        seen.append(env.release.matrix)
        assert env.ledger.releases == episode
        np.testing.assert_array_equal(env.model.default, env.release.matrix)
        env.step(np.zeros(20))
    assert all(np.abs(a - b).max() > 0.01 for a, b in zip(seen, seen[1:], strict=False))
    again = TiltEnv(campus, privacy=SPEC, redraw="episode", release_seed=3, ledger=PrivacyLedger())
    twin = copy.deepcopy(again)  # a copy in the process spends the same budget
    for one in (again, twin):
        for matrix in seen:
            one.reset()
            np.testing.assert_array_equal(one.release.matrix, matrix)
    assert twin.ledger is again.ledger and again.ledger.releases == 4


def budget_model() -> EnsembleModel:
    default = np.array([[0.5, 0.5, 0.0], [0.3, 0.4, 0.3], [0.0, 0.4, 0.6]])
    return EnsembleModel(default, [1.0, 2.0, 3.0], -np.arange(12.0).reshape(4, 3), 5.0)


def spent_after(releases: int) -> float:
    ledger = PrivacyLedger()
    for _ in range(releases):
        ledger.release(DirichletMechanism(20, 0.1), budget_model().default, 0)
    return ledger.spent(1e-3)


def test_spent_budget_refuses_the_batch_and_leaves_it_as_it_was() -> None:
    budget = (0.5 * (spent_after(2) + spent_after(3)), 1e-3)
    for mode in ("NEXT_STEP", "SAME_STEP"):
        ledger = PrivacyLedger(budget=budget)
        envs = TiltVectorEnv(4, budget_model(), 100, privacy=SPEC, redraw="episode", ledger=ledger, autoreset_mode=mode)
        envs.reset(seed=0)
        action = np.zeros((4, 3))
        with pytest.raises(PrivacyBudgetExceeded):
            for _ in range(30):
                before = (envs.time, envs.occupancy)
                envs.step(action)
        assert envs.ledger.releases == 2  # four sub-environments, one release an episode
        np.testing.assert_array_equal(envs.time, before[0])
        np.testing.assert_array_equal(envs.occupancy, before[1])


def test_environments_with_one_ledger_file_are_charged_once(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    for _ in range(2):
        env = TiltEnv("campus-event", privacy=SPEC, ledger=path)
    assert env.ledger.releases == 1
    TiltEnv("campus-event", privacy=SPEC, ledger=path, release_seed=1)
    assert PrivacyLedger(path).releases == 2


def test_environments_of_one_process_share_a_ledger() -> None:
    settings = {"model": "campus-event", "privacy": "dirichlet:k=50,floor=0.05"}
    one, two = (TiltEnv(release_seed=seed, **settings) for seed in (0, 1))
    alone = TiltEnv(release_seed=0, ledger=PrivacyLedger(), **settings).ledger.spent(1e-6)
    together = PrivacyLedger()
    for seed in (0, 1):
        together.release(DirichletMechanism(50, 0.05), campus_event().default, seed)
    assert one.ledger is two.ledger is PrivacyLedger.of_process()
    assert one.ledger.spent(1e-6) == together.spent(1e-6) > 1.3 * alone
    assert "2 Dirichlet releases" in one._batch.behaviour.line()
    TiltVectorEnv(3, release_seed=1, **settings)  # the same draw: not charged again
    TiltEnv("campus-event")  # the true dynamics: nothing is private there, and nothing is published by running them
    release = DirichletMechanism(50, 0.05).release(campus_event().default)
    for _ in range(2):
        third = TiltEnv("campus-event", privacy=release)
    assert third.ledger is one.ledger and one.ledger.releases == 3 and math.isfinite(one.ledger.spent(1e-6))
    apart = TiltEnv(ledger=PrivacyLedger(budget=(100.0, 1e-6)), **settings)  # told otherwise
    assert apart.ledger is not one.ledger and apart.ledger.releases == 1


def test_a_copy_brings_its_charges_along(monkeypatch: pytest.MonkeyPatch) -> None:
    given = DirichletMechanism(50, 0.05).release(budget_model().default)
    for settings in ({"privacy": SPEC}, {"privacy": SPEC, "redraw": "episode"}, {"privacy": given}):
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(ledger_module, "_OF_PROCESS", PrivacyLedger())
            env = TiltEnv(budget_model(), **settings)
            env.reset()
            env.reset()
            copies = pickle.loads(pickle.dumps(env)), copy.deepcopy(env)
            spent, releases, data = env.ledger.spent(1e-3), env.ledger.releases, pickle.dumps(env)
            assert all(one.ledger is env.ledger for one in copies)  # known there already
            assert env.ledger.releases == releases == (2 if "redraw" in settings else 1)
        with monkeypatch.context() as other_process:
            other_process.setattr(ledger_module, "_OF_PROCESS", PrivacyLedger())
            for _ in range(2):
                away = pickle.loads(data)
            assert away.ledger is ledger_module._OF_PROCESS and away.ledger.releases == releases
            assert away.ledger.spent(1e-3) == spent


def test_a_release_made_elsewhere_is_charged_and_must_be_in_a_ledger_that_is_given(tmp_path: Path) -> None:
    model, ledger = budget_model(), PrivacyLedger(tmp_path / "ledger.jsonl")
    mechanism = DirichletMechanism(20, 0.1)
    charged, smuggled = ledger.release(mechanism, model.default), mechanism.release(model.default)
    env = TiltEnv(model, privacy=charged, ledger=tmp_path / "ledger.jsonl")
    assert env.ledger.releases == 1 and not env.release.reproducible
    np.testing.assert_array_equal(env.model.default, charged.matrix)
    with pytest.raises(ValueError, match="the ledger has no entry for this release"):
        TiltEnv(model, privacy=smuggled, ledger=ledger)
    env = TiltEnv(model, privacy=smuggled.save(tmp_path / "release.json"))
    assert env.ledger.releases == 1 and "repeatable" not in env._batch.behaviour.line()


def test_a_list_of_one_private_model_does_not_leave_in_the_spec() -> None:
    model, entry = budget_model(), "dp_ensemble_env.envs:EnsembleEnv"
    for given in (model, [model], (model,)):
        kwargs = {"model": given, "privacy": SPEC, "release_seed": 7}
        env = gymnasium.make(EnvSpec("Mine-v0", entry_point=entry, kwargs=kwargs)).unwrapped
        assert env.spec.kwargs["model"] is env.model and env.spec.kwargs["privacy"] is env.release
        assert "release_seed" not in env.spec.kwargs and model.default.tobytes() not in pickle.dumps(env)


def test_nothing_is_drawn_before_it_is_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, draw = [], DirichletMechanism.draw

    def watched(self: DirichletMechanism, data: object, permit: object, **terms: object) -> object:
        drawn.append(ledger.releases)
        return draw(self, data, permit, **terms)

    monkeypatch.setattr(DirichletMechanism, "draw", watched)
    ledger = PrivacyLedger(budget=(0.001, 1e-6))
    with pytest.raises(PrivacyBudgetExceeded):
        TiltEnv(budget_model(), privacy=SPEC, ledger=ledger)
    assert drawn == []
    ledger = PrivacyLedger()
    for _ in range(2):
        TiltEnv(budget_model(), privacy=SPEC, ledger=ledger)
    assert drawn == [1, 1] and ledger.releases == 1


def test_a_refusal_among_several_releases_leaves_the_model_in_force() -> None:
    """One sub-environment is ahead: the next reset needs two releases, and the budget allows one."""
    model, one = budget_model(), PrivacyLedger()
    TiltEnv(model, privacy=SPEC, ledger=one)
    event = next(iter(one.charges))
    ledger = PrivacyLedger(budget=(PrivacyLedger().record(event, times=3).spent(1e-3) * (1 + 1e-9), 1e-3))
    settings = {"privacy": SPEC, "redraw": "episode", "ledger": ledger, "autoreset_mode": "DISABLED"}
    envs = TiltVectorEnv(3, model, **settings)
    envs.reset(seed=0)
    envs.reset(options={"reset_mask": np.array([True, False, False])})
    envs.reset(options={"reset_mask": np.array([False, True, False])})  # the same release again
    assert ledger.releases == 2
    envs.reset(options={"reset_mask": np.array([False, False, True])})
    release, time, rows = envs.release, envs.time, list(envs._batch.rows)
    envs._batch._begun[0] += 1  # as if it were one episode ahead
    with pytest.raises(PrivacyBudgetExceeded):
        envs.reset()
    assert envs.release is release and envs.optimal_policy.shape[0] == model.horizon
    assert (envs.time == time).all() and all(map(operator.is_, envs._batch.rows, rows))


def test_another_adjacency_is_charged_again() -> None:
    """The same seeded draw under a wider h protects less: it is an entry of its own."""
    model, ledger = budget_model(), PrivacyLedger()
    narrow = TiltEnv(model, privacy=f"{SPEC},h=0.01", ledger=ledger)
    spent = ledger.spent(1e-3)
    TiltEnv(model, privacy=f"{SPEC},h=0.01", ledger=ledger)
    assert ledger.releases == 1
    wide = TiltEnv(model, privacy=f"{SPEC},h=0.1", ledger=ledger)
    assert ledger.releases == 2 and ledger.spent(1e-3) > spent
    alone = TiltEnv(model, privacy=f"{SPEC},h=0.1", ledger=PrivacyLedger()).ledger.spent(1e-3)
    assert spent < alone <= ledger.spent(1e-3) < math.inf
    np.testing.assert_array_equal(narrow.release.matrix, wide.release.matrix)
    TiltEnv(model, privacy=SPEC, ledger=ledger)  # the ledger's own h
    assert {event.h for event in ledger.charges} == {(0.01,), (0.1,), (0.03,)}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"redraw": "episode"}, "give privacy as well"),
        ({"ledger": PrivacyLedger()}, "give privacy as well"),
        ({"privacy": SPEC, "redraw": "always"}, "unknown redraw"),
        ({"privacy": SPEC, "release_seed": -1}, "release_seed"),
        ({"privacy": SPEC, "ledger": {}}, "ledger must be"),
        ({"privacy": DirichletMechanism(5).release(np.full((3, 3), 1 / 3), 0)}, "shape"),
        ({"privacy": DirichletMechanism(5).release(np.full((20, 20), 0.05), 0), "redraw": "episode"}, "drawn already"),
    ],
)
def test_contradictory_privacy_arguments_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TiltEnv("campus-event", **settings)


def test_the_name_of_a_draw_tells_nothing_without_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [PrivacyLedger(tmp_path / name).name_of("seed and data") for name in ("a", "a", "b")]
    assert names[0] == names[1] != names[2]  # processes that share a file share its key, others do not
    own = PrivacyLedger().name_of("seed and data")
    assert own == PrivacyLedger().name_of("seed and data") and own not in names
    assert not any("key" in vars(ledger) for ledger in (PrivacyLedger(), PrivacyLedger(tmp_path / "a")))
    assert (tmp_path / "a.key").read_text() not in (tmp_path / "a").read_text()
    (tmp_path / "a.key").unlink()
    assert PrivacyLedger(tmp_path / "a").name_of("seed and data") != names[0]  # charged again


def test_draws_that_happen_to_agree_are_charged_each() -> None:
    """Two seeds, one release: the second draw tells something, too."""
    event = DirichletMechanism(20, 0.1).event(budget_model().default, seeding="seed")
    ledger = PrivacyLedger()
    for name in (ledger.name_of("1"), ledger.name_of("2"), ledger.name_of("2")):
        ledger.adopt(name, event, "0" * 64)
    assert ledger.releases == 2
