"""Tests of `statement`."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from dp_ensemble_env.privacy import (
    DirichletMechanism,
    Fleet,
    NeighboringRelation,
    PrivacyLedger,
    adjacency_from_counts,
    mechanism,
)
from dp_ensemble_env.privacy.adjacency import AGGREGATE_LIMIT
from dp_ensemble_env.privacy.statement import BEFOREHAND, NO_FLOOR, TWO_UNITS, release_guarantee

DEFAULT = np.array([[0.5, 0.3, 0.2], [0.4, 0.6, 0.0], [0.0, 0.0, 1.0]])
MECHANISM = DirichletMechanism(k=50, floor=0.1)
PLAN = MECHANISM.event(DEFAULT)
FLEET = Fleet.simulate(DEFAULT, participants=20, seed=0, steps=50)


def test_the_limit_of_aggregate_power_is_said_where_it_is_met(campus):
    noise, stated, counted = DirichletMechanism(k=50, floor=0.05), PrivacyLedger(), PrivacyLedger()
    stated.release(noise, campus.default, rng=0, h=0.03)
    counted.release(noise, campus.default, rng=0, h=adjacency_from_counts(campus.counts, 1))
    assert AGGREGATE_LIMIT[1:] in str(stated.statement())
    for part in ("one building takes part in all of them", "publish it only if the counts may be public"):
        assert part in str(counted.statement())


def test_the_line_with_and_without_a_floor():
    line = str(PrivacyLedger(budget=(20.0, 1e-6)).record(PLAN, 0.03).statement())
    spent = PrivacyLedger().record(PLAN, 0.03).spent(1e-6)
    assert line.startswith(f"Privacy: ({spent:.4g}, 1e-06)-approximate differential privacy for 1 release at k=50")
    for part in ("two entries by h=0.03", "All 2 drawn rows compose", "public support and floor 0.1"):
        assert part in line
    assert f"{20 - spent:.4g} left" in line
    assert "\n" not in line and "seed" not in line and "Pólya" in line
    assert "one row of each matrix" in str(PrivacyLedger().record(PLAN, 0.03).statement(0.05, rows="parallel"))
    bare = PrivacyLedger().record(DirichletMechanism(50).event(DEFAULT), 0.03).statement()
    assert "no guarantee (epsilon = infinity" in str(bare) and NO_FLOOR[1:] in str(bare) and bare.epsilon == math.inf
    assert "nothing was released" in str(PrivacyLedger().statement())


def test_assumptions_are_said_when_they_are_made():
    """Who is protected by a sum over two units, that settings were fixed beforehand, and that a seed is no secret."""
    ledger = PrivacyLedger()
    for _ in range(2):
        ledger.release(mechanism("gaussian:epsilon=1"), FLEET, np.random.default_rng(0))
    line = str(ledger.statement())
    assert TWO_UNITS[1:] not in line and BEFOREHAND[1:] not in line and "knows the seed can remove the noise" in line
    ledger.release(mechanism("laplace:epsilon=0.5"), FLEET, 0)
    assert BEFOREHAND[1:] in str(ledger.statement()) and BEFOREHAND in ledger.statement().assumptions
    assert TWO_UNITS[1:] not in str(ledger.statement())
    assert TWO_UNITS[1:] in str(ledger.record(PLAN, 0.03).statement())


@pytest.mark.parametrize("rng", [None, 0])
def test_every_number_of_the_card_is_the_ledgers(tmp_path, rng):
    ledger = PrivacyLedger(budget=(3.0, 1e-5))
    release = ledger.release(mechanism("gaussian:epsilon=1,delta=1e-5"), FLEET, rng, guess=np.full((3, 3), 1 / 3))
    card = ledger.statement()
    page, data = card.save(release.save(tmp_path / "release.json"))
    assert (page.name, data.name) == ("release.card.md", "release.card.json")
    content = json.loads(data.read_text())
    assert content["epsilon"] == card.epsilon == ledger.get_epsilon(1e-5) == pytest.approx(1.0, abs=1e-6)
    assert content["delta"] == 1e-5 and 1e-5 == pytest.approx(ledger.get_delta(card.epsilon), rel=1e-3)
    assert content["curve"] == [[delta, ledger.get_epsilon(delta)] for delta in (1e-3, 1e-5, 1e-6, 1e-9)]
    assert content["relation"] == [NeighboringRelation.ADD_OR_REMOVE_ONE.name]
    assert content["declared"] == ["guess"] and content["model"].startswith("central")
    assert "one participant" in content["unit"][0] and any("joint privacy" in one for one in content["not_covered"])
    assert ("cryptographic" in content["noise"][0]) == (rng is None)
    assert any("OpenDP" in one and "zCDP" in one for one in content["assumptions"]) == (rng is None)
    text = page.read_text()
    assert len(text.splitlines()) < 60 and str(card) in text
    for name, value in card.entries():
        assert f"**{name}**" in text and all(part in text for part in value.split("; "))
    assert "dp-accounting" in content["accounting"] and "dp-ensemble-env" in content["implementation"]


def test_a_card_without_a_guarantee_is_plain_json(tmp_path):
    ledger = PrivacyLedger().record_deterministic("a plan").declare("Infinity is a text")
    content = json.loads(ledger.statement().save(tmp_path / "x.json")[1].read_text())
    assert content["epsilon"] == "infinity" and content["curve"][0][1] == "infinity"
    assert content["declared"] == ["Infinity is a text"]
    assert "ε = ∞" in str(ledger.statement())


def test_what_one_dirichlet_release_would_guarantee():
    assert "(12.16, 1e-06)" in release_guarantee(50, 0.03, 0.1, 1e-6, 20)
    assert "in total (L1 distance)" in release_guarantee(50, 0.03, 0.1, 1e-6, 20, entries="any")
    assert "No guarantee" in (text := release_guarantee(50, 0.03, 0.0, 1e-6)) and "set a floor" in text
