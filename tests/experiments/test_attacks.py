"""Attacks on the protection of a participant: held by the mechanisms, broken by every mutant.

A correct mechanism fails one of these tests in less than one of a million runs, whatever the seeds.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers import refuses

from dp_ensemble_env.experiments import attacks
from dp_ensemble_env.experiments.attacks import CONFIDENCE, CanarySettings, attack_participants, claim_of
from dp_ensemble_env.privacy import mechanism
from dp_ensemble_env.privacy.audit import Claim, guess_canary
from dp_ensemble_env.privacy.mechanisms import base, fleet_sums, gaussian
from dp_ensemble_env.privacy.mechanisms.fleet_sums import Layout

CONTROLS = ("estimate, no privacy", "plan, no privacy", "agent, no privacy")


def guess_from_sums(*specs: str, draws: int = 4000, kind: str = "jumps") -> tuple[float, Claim]:
    """Return what the noisy sums of some releases, all with the same seed, show of the canary; and the claim."""
    drawn, fleets = [mechanism(spec) for spec in specs], attacks.make_fleets(CanarySettings(), kind)
    claim, seeds = claim_of(drawn, fleets[1]), np.random.default_rng(0).integers(2**62, size=(2, draws))
    features = [np.array([attacks.draw_sums(drawn, fleet, int(one)) for one in some])
                for fleet, some in zip(fleets, seeds, strict=True)]  # fmt: skip
    return guess_canary(*features, claim, confidence=CONFIDENCE).epsilon, claim


def guess_from_releases(spec: str, draws: int, **settings: int) -> tuple[float, Claim]:
    """Return what releases show of the canary, and the claim."""
    settings = CanarySettings(spec, **settings)
    one, fleets = mechanism(spec), attacks.make_fleets(settings)
    claim = claim_of([one], fleets[1], **attacks.terms_of(one, fleets[1], settings.clip))
    rng, sides = np.random.default_rng(0), []
    for fleet in fleets:
        terms = attacks.terms_of(one, fleet, settings.clip)
        matrices = [one.release(fleet, rng, **terms).matrix for _ in range(draws)]
        sides.append(np.array([attacks.matrix_features(matrix) for matrix in matrices]))
    return guess_canary(*sides, claim, confidence=CONFIDENCE).epsilon, claim


# ------------------------------------------------------------------ what holds
@pytest.mark.parametrize(
    ("spec", "least"), [("gaussian:epsilon=4", 2.4), ("laplace:epsilon=8", 1.0), ("posterior:epsilon=8", 0.2)]
)
def test_the_mechanisms_hold_and_the_attack_is_not_blind(spec, least):
    shown, claim = guess_from_sums(spec, draws=5000)
    assert claim.epsilon == pytest.approx(mechanism(spec).epsilon)
    assert least < shown <= claim.epsilon


def test_every_stage_of_a_private_release_holds_and_no_privacy_is_caught():
    found = {one.attacked: one for one in attack_participants(CanarySettings(draws=2000, releases=400, agents=100))}
    private = [one for name, one in found.items() if name not in CONTROLS]
    assert [one.attacked for one in private] == ["noisy sums", "release", "plan on the release", "agent on the release"]
    assert all(one.good and one.verdict == "held" and one.shown <= one.claimed == pytest.approx(4) for one in private)
    assert [one.draws for one in private] == [2000, 400, 400, 100]
    for name in CONTROLS:
        assert found[name].good and found[name].shown == math.inf and found[name].verdict == "caught"


def test_the_plan_gives_the_release_away():
    """So an attack on the plan is as strong as one on the release."""
    release = mechanism("gaussian:epsilon=4").release(attacks.make_fleets(CanarySettings())[0], rng=0)
    matrix = attacks.plan_features(release.matrix)[:36].reshape(6, 6)
    np.testing.assert_allclose(matrix, release.matrix, atol=1e-10)


# ------------------------------------------------------------------ the positive control
def test_an_environment_that_shows_its_agent_the_truth_is_caught(monkeypatch):
    real = attacks.EnsembleEnv
    monkeypatch.setattr(attacks, "EnsembleEnv", lambda privacy, **settings: real(**settings))
    found = {one.attacked: one for one in attack_participants(CanarySettings(draws=100, releases=100, agents=100))}
    agent = found["agent on the release"]
    assert agent.shown > agent.claimed and agent.verdict == "BROKEN" and not agent.good
    assert found["release"].good and found["plan on the release"].good


# ------------------------------------------------------------------ mutants
def test_half_the_noise_and_a_missing_clip_are_caught(monkeypatch):
    real = fleet_sums.add_noise
    monkeypatch.setattr(fleet_sums, "add_noise", lambda sums, kind, scale, *rest: real(sums, kind, scale / 2, *rest))
    shown, claim = guess_from_sums("gaussian:epsilon=4")
    assert shown > 1.2 * claim.epsilon
    monkeypatch.undo()  # without the clip every participant keeps its full weight, however long its contribution is
    monkeypatch.setattr(Layout, "_weight", lambda self, moved, trust, rho: np.ones(len(moved)))
    assert guess_from_sums("gaussian:epsilon=4")[0] > 1.5 * claim.epsilon


def test_a_support_taken_from_the_data_is_caught(monkeypatch):
    """The canary's jumps are nobody else's, so that they are possible in a release tells of it."""
    spec, settings = "dirichlet:k=10,floor=0.1", {"participants": 200}
    shown, claim = guess_from_releases(spec, 500, **settings)
    assert shown <= claim.epsilon < 1.0

    def mutant(attacked, fleet, clip):
        return {"support": (fleet.counts > 0).any(axis=0), "clip": clip}

    monkeypatch.setattr(attacks, "terms_of", mutant)
    shown, claim = guess_from_releases(spec, 500, **settings)
    assert shown > 2.5 > claim.epsilon


def test_noise_on_the_cells_of_the_data_alone_is_caught(monkeypatch):
    """The same mistake with Gaussian noise: cells that nobody used stay exactly zero."""
    real = gaussian.GaussianMechanism.noisy

    def mutant(self, data, permit, guess=None):
        noisy, used = real(self, data, permit, guess), (data.counts > 0).any(axis=0).ravel()
        noisy[: used.size] *= used
        return noisy

    monkeypatch.setattr(gaussian.GaussianMechanism, "noisy", mutant)
    shown, claim = guess_from_sums("gaussian:epsilon=4", draws=1000, kind="stays")
    assert shown > 2 * claim.epsilon


def test_a_reused_stream_is_caught(monkeypatch):
    """Two releases with the same seed at different ε: with one stream behind them they solve for the data."""
    specs = "gaussian:epsilon=1", "gaussian:epsilon=4"
    shown, claim = guess_from_sums(*specs)
    assert 4.0 < claim.epsilon < 5.0 and 2.0 < shown <= claim.epsilon

    def mutant(event, rng, data):  # the seed, and nothing of the draw
        return base.Permit(event, np.random.default_rng(rng))

    monkeypatch.setattr(attacks, "make_permit", mutant)
    shown, claim = guess_from_sums(*specs, draws=1000)
    assert shown > 5 * claim.epsilon


def test_bad_settings_are_refused():
    refuses("states must be 3 to 8, got 9", CanarySettings, states=9)
    refuses("draws", CanarySettings, draws=50)
    refuses("agents=200 need as many releases", CanarySettings, agents=200, releases=100)
