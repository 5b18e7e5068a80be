"""The table of claims on the campus, and that every claim can come out otherwise."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest

from dp_ensemble_env.meter import PowerSeries
from dp_ensemble_env.paper import measures
from dp_ensemble_env.paper.claims import judge_claims
from dp_ensemble_env.paper.data import series_data
from dp_ensemble_env.paper.measures import KS, PAPER_EPSILON, PAPER_L1, RatioSearch, instance_l1, search_ratio
from dp_ensemble_env.paper.study import run_study
from dp_ensemble_env.paper.verdicts import CONTRADICTED, NOT_REPRODUCIBLE, REPRODUCED, SHAPE, counts, show_findings

SEARCH = RatioSearch(3.5, (1.0, 2.0), 1)


def test_golden_verdicts(study):
    """How many claims hold on the campus, and some that must not change unnoticed."""
    findings = judge_claims(study, SEARCH)
    found = {f.claim.id: f.verdict.word for f in findings}
    everywhere = {"without data": judge_claims(None, SEARCH), "campus": findings}
    expected = {REPRODUCED: 10, SHAPE: 10, NOT_REPRODUCIBLE: 1, CONTRADICTED: 5}
    assert counts(everywhere) == counts({"campus": findings}) == expected
    assert counts(everywhere, facts=True) == {REPRODUCED: 8, SHAPE: 1}
    for word, names in {
        NOT_REPRODUCIBLE: "epsilon-pair",
        CONTRADICTED: "decrease stochastic-private average-private fifteen-1 fifteen-2 accurate-policy least-deviation "
        "average-dearer-exact average-dearer-one-step",
        REPRODUCED: "ad-hoc slightly-less stronger average-dearer-one-release average-dearer-leading greater-cost",
    }.items():
        assert {found[name] for name in names.split()} == {word}
    reasons = {f.claim.id: f"{f.ours} {f.verdict.reason}" for f in findings}
    assert "5.4 % of the event's energy" in reasons["ad-hoc"] and "times as strong" in reasons["ad-hoc"]
    assert "14:30, the customer baseline's peak" in reasons["fifteen-1"]
    misprints = {
        "average-dearer-printed": "(E2, E3)",
        "stochastic-private": "(E8)",
        "average-private": "(E9)",
        "decrease": "(E12)",
        "epsilon-pair": "(E13)",
    }
    assert all(words in reasons[name] for name, words in misprints.items())


def test_six_published_distances_on_three_states():
    assert instance_l1() == pytest.approx(PAPER_L1, abs=1e-4)
    assert all(f.verdict.word == REPRODUCED for f in judge_claims(None, SEARCH) if f.claim.id.startswith("L1"))


def test_published_pair_of_epsilon_is_out_of_reach():
    search = search_ratio()
    assert 3 < search.ratio < 4 < PAPER_EPSILON[200.0] / PAPER_EPSILON[50.0]
    assert {f.claim.id: f.verdict.word for f in judge_claims(None, search)}["epsilon-pair"] == NOT_REPRODUCIBLE


def other(study, **changes):
    """Return the verdicts of a study with some results replaced."""
    return {
        f.claim.id: f.verdict.word for f in judge_claims(replace(study, **changes), RatioSearch(9.0, (1.0, 2.0), 1))
    }


def test_every_claim_can_come_out_otherwise(study):
    """Replace the campus's results by opposite ones: the verdicts follow the numbers."""
    flipped = {name: values[::-1] for name, values in study.epsilon.items()}
    words = other(study, epsilon=flipped, attack={50.0: 0.2, 200.0: 0.1}, ceiling=9.0)
    assert words["decrease"] == REPRODUCED and words["stronger"] == words["less-private"] == CONTRADICTED
    assert words["average-private"] == REPRODUCED
    assert words["epsilon-pair"] == CONTRADICTED  # with a search that would allow the ratio
    assert other(study, ceiling=0.1)["average-private"] == NOT_REPRODUCIBLE
    assert other(study, l1={key: 1.0 for key in study.l1})["similar"] == CONTRADICTED
    endless = {**study.epsilon, "average of 1000, composed": [np.inf] * 4}
    assert other(study)["epsilon-by-method"] == REPRODUCED
    assert other(study, epsilon=endless)["epsilon-by-method"] == CONTRADICTED
    words = other(study, l1=dict(PAPER_L1), accuracy={50.0: 0.8, 200.0: 0.9}, recovery={"taylor": 0.1, "digamma": 0.1})
    assert all(words[f"L1-{m}-{k:g}"] == REPRODUCED for m, k in PAPER_L1)
    assert (words["indistinct"], words["distinct"], words["stochastic-private"]) == (
        CONTRADICTED,
        REPRODUCED,
        REPRODUCED,
    )
    events = dict(study.events)
    free = study.uncontrolled
    for k in KS:  # the average curtails 15 % less, everything else as the standard policy or just below
        standard = study.events["standard", 0.0]
        for name, share in (("taylor", 0.99), ("digamma", 0.99), ("average-exact", 0.8415), ("average-sampled", 0.95)):
            events[name, k] = replace(
                standard,
                power_kw=free - share * (free - standard.power_kw),
                curtailed_peak_kw=share * standard.curtailed_peak_kw,
                curtailed_kwh=share * standard.curtailed_kwh,
            )
    words = other(study, events=events)
    assert (words["fifteen-1"], words["fifteen-2"], words["least-deviation"]) == (REPRODUCED,) * 3
    assert words["slightly-less"] == SHAPE  # 16 % is not slight
    for share, word in ((0.85, REPRODUCED), (0.5, SHAPE), (1.2, CONTRADICTED)):  # of what Taylor and Digamma take
        peak = share * np.mean([free[study.peak] - events["taylor", k].power_kw[study.peak] for k in KS])
        plans = {k: (free, peak, 0.001 * peak, 0.0) for k in KS}
        assert other(study, events=events, released=plans)["fifteen-3"] == word
    plans = {k: (free, peak, peak, 0.0) for k in KS}
    assert other(study, events=events, released=plans)["fifteen-3"] == SHAPE  # within the sampling error
    events["ad-hoc", 0.0] = replace(events["ad-hoc", 0.0], curtailed_kwh=1e9)
    events["taylor", 50.0] = replace(events["taylor", 50.0], curtailed_kwh=0.0)
    words = other(study, events=events)
    assert words["ad-hoc"] == CONTRADICTED and words["taylor-digamma"] == SHAPE
    cost = dict(study.cost)
    cost["average-exact"], cost["digamma"] = [900.0, 800.0, 700.0, 600.0], [1.01 * v for v in cost["taylor"]]
    for name in (measures.ONE_STEP, measures.PRINTED):
        cost[name] = [900.0, 800.0, 700.0, 600.0]
    for name in (measures.ONE, measures.LEADING):
        cost[name] = [0.01, 0.01, 0.01, 0.001]
    cost["digamma, paper's formula"] = [0.5 * v for v in cost["taylor, paper's formula"]]
    exact = {name: [1e-4] * 4 for name in study.cost_error}
    words = other(study, cost=cost, cost_error=exact)
    assert words["average-dearer-exact"] == words["digamma-dearer-exact"] == REPRODUCED
    assert words["average-dearer-one-step"] == words["average-dearer-printed"] == REPRODUCED
    assert words["average-dearer-one-release"] == words["average-dearer-leading"] == CONTRADICTED
    assert words["digamma-dearer-paper"] == CONTRADICTED
    vague = {name: [1e4] * 4 for name in study.cost_error}
    words = other(study, cost=cost, cost_error=vague)
    assert words["average-dearer-one-release"] == words["average-dearer-one-step"] == SHAPE
    cost["digamma"] = [0.5 * v for v in cost["taylor"]]
    words = other(study, cost=cost, capacity={name: values[::-1] for name, values in study.capacity.items()})
    assert words["accurate-policy"] == REPRODUCED and words["digamma-dearer-exact"] == CONTRADICTED
    assert words["less-capacity"] == CONTRADICTED
    assert other(study, cost={n: v[::-1] for n, v in study.cost.items()})["greater-cost"] == CONTRADICTED
    assert other(study, deviation=0.2)["buildings"] == SHAPE
    model = study.data.model
    later = replace(model.event, times=model.event.times + np.timedelta64(86400, "s"))
    changes = {"discomfort_penalty": 10.0, "times": later.times, "event": later, "buildings": 50}
    moved = replace(study, data=replace(study.data, model=replace(model, **changes)))
    words = other(moved)
    assert words["penalty"] == words["date"] == words["level"] == NOT_REPRODUCIBLE and words["buildings"] == SHAPE
    short = replace(model.event, in_event=model.event.in_event & (np.arange(model.horizon + 1) > 3))
    moved = replace(study, data=replace(study.data, model=replace(model, event=short)))
    assert other(moved)["event"] == CONTRADICTED
    words = other(study, row=replace(study.row, state=16))
    assert words["successors"] == NOT_REPRODUCIBLE and words["row"] == SHAPE
    worse = {**study.kernel_error, "digamma": 1.0}
    assert other(study, kernel_error=worse)["accurate-kernel"] == CONTRADICTED


def test_a_mechanism_off_the_simplex_is_noticed(study, row, monkeypatch):
    class Leaky(measures.DirichletMechanism):
        def sample_log(self, p, size, rng):
            return super().sample_log(p, size, rng) + np.log(1.01)

    monkeypatch.setattr(measures, "DirichletMechanism", Leaky)
    leaky = {k: measures.release_clouds(row, k, 20, 0) for k in KS}
    assert other(study)["simplex"] == REPRODUCED and other(study, clouds=leaky)["simplex"] == CONTRADICTED


@pytest.mark.slow
def test_powers_of_a_hundred_megawatts(small, quarter_hours, monkeypatch):
    """All tilts are extreme: nothing overflows, no warning, and the claims are judged."""
    monkeypatch.setattr(measures, "has_stable_baselines3", lambda: False)
    series = quarter_hours("2018-06-01", 45)
    large = PowerSeries(series.times, 600 * series.kw, series.step)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = series_data(large, "meter", "m", "m")
        found = judge_claims(run_study(data, small, 0, lambda words: None), SEARCH)
    assert "nan" not in " ".join(f.ours for f in found)
    assert {f.claim.id: f.verdict.word for f in found}["stochastic-private"] == CONTRADICTED


def test_summary_fits_a_narrow_terminal(study, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    show_findings({"without data": judge_claims(None, SEARCH), "synthetic campus": judge_claims(study, SEARCH)})
    out = capsys.readouterr().out
    assert max(len(line) for line in out.splitlines()) <= 80
    text = " ".join(out.split())
    assert "26 claims: 10 reproduced, 10 reproduced in shape, 1 not reproducible, 5 contradicted; of 9 facts" in text
    assert "set-up:" not in text and sum(text.count(mark) for mark in "✓≈∅✗") == 26 + 4  # each once, and the key
