"""The table of claims on the campus, and that every claim can come out otherwise."""

from __future__ import annotations

import warnings
from dataclasses import replace
from itertools import product

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


def check(findings, **verdicts):
    """Check the verdicts of some claims, listed by verdict, and return all of them."""
    found = {finding.claim.id: finding.verdict.word for finding in findings}
    for word, names in verdicts.items():
        assert {name: found[name] for name in names.split()} == dict.fromkeys(names.split(), globals()[word])
    return found


def test_golden_verdicts(study):
    """How many claims hold on the campus, and some that must not change unnoticed."""
    findings = judge_claims(study, SEARCH)
    expected = {REPRODUCED: 10, SHAPE: 10, NOT_REPRODUCIBLE: 1, CONTRADICTED: 5}
    everywhere = {"without data": judge_claims(None, SEARCH), "campus": findings}
    assert counts(everywhere) == counts({"campus": findings}) == expected
    assert counts(everywhere, facts=True) == {REPRODUCED: 8, SHAPE: 1}
    check(
        findings,
        NOT_REPRODUCIBLE="epsilon-pair",
        CONTRADICTED="decrease stochastic-private average-private fifteen-1 fifteen-2 accurate-policy least-deviation "
        "average-dearer-exact average-dearer-one-step",
        REPRODUCED="ad-hoc slightly-less stronger average-dearer-one-release average-dearer-leading greater-cost "
        "epsilon-by-method simplex",
    )
    reasons = {f.claim.id: f"{f.ours} {f.verdict.reason}" for f in findings}
    assert "5.4 % of the event's energy" in reasons["ad-hoc"] and "times as strong" in reasons["ad-hoc"]
    assert "14:30, the customer baseline's peak" in reasons["fifteen-1"]
    misprints = {"average-dearer-printed": "(E2, E3)", "stochastic-private": "(E8)", "epsilon-pair": "(E13)"}
    misprints |= {"average-private": "(E9)", "decrease": "(E12)"}
    assert all(words in reasons[name] for name, words in misprints.items())


def test_six_published_distances_on_three_states():
    assert instance_l1() == pytest.approx(PAPER_L1, abs=1e-4)
    check(judge_claims(None, SEARCH), REPRODUCED=" ".join(f"L1-{m}-{k:g}" for m, k in PAPER_L1))


@pytest.mark.slow
def test_published_pair_of_epsilon_is_out_of_reach():
    search = search_ratio()
    assert 3 < search.ratio < 4 < PAPER_EPSILON[200.0] / PAPER_EPSILON[50.0]
    check(judge_claims(None, search), NOT_REPRODUCIBLE="epsilon-pair")


def test_every_claim_can_come_out_otherwise(study):
    """Replace the campus's results by opposite ones: the verdicts follow the numbers."""

    def turns(changes, **verdicts):
        check(judge_claims(replace(study, **changes), RatioSearch(9.0, (1.0, 2.0), 1)), **verdicts)

    flipped = {name: values[::-1] for name, values in study.epsilon.items()}
    turns(
        {"epsilon": flipped, "attack": {50.0: 0.2, 200.0: 0.1}, "ceiling": 9.0},
        REPRODUCED="decrease average-private",
        CONTRADICTED="stronger less-private epsilon-pair",  # the last with a search that would allow the ratio
    )
    endless = {**study.epsilon, measures.COMPOSED: [np.inf] * 4}
    turns({"ceiling": 0.1, "epsilon": endless}, NOT_REPRODUCIBLE="average-private", CONTRADICTED="epsilon-by-method")
    turns({"l1": {key: 1.0 for key in study.l1}}, CONTRADICTED="similar")
    published = " ".join(f"L1-{m}-{k:g}" for m, k in PAPER_L1)
    known = {"recovery": {"taylor": 0.1, "digamma": 0.1}, "kernel_error": {**study.kernel_error, "digamma": 1.0}}
    turns(
        {"l1": dict(PAPER_L1), "accuracy": {50.0: 0.8, 200.0: 0.9}, **known},
        REPRODUCED=f"{published} distinct stochastic-private",
        CONTRADICTED="indistinct accurate-kernel",
    )
    # The average curtails 15 % less, everything else as the standard policy or just below.
    events, free, standard = dict(study.events), study.uncontrolled, study.events["standard", 0.0]
    shares = {"taylor": 0.99, "digamma": 0.99, "average-exact": 0.8415, "average-sampled": 0.95}
    for (name, share), k in product(shares.items(), KS):
        less = {"power_kw": free - share * (free - standard.power_kw), "curtailed_kwh": share * standard.curtailed_kwh}
        events[name, k] = replace(standard, curtailed_peak_kw=share * standard.curtailed_peak_kw, **less)
    turns({"events": events}, REPRODUCED="fifteen-1 fifteen-2 least-deviation", SHAPE="slightly-less")  # 16 %
    others = np.mean([free[study.peak] - events["taylor", k].power_kw[study.peak] for k in KS])
    for share, error, word in (
        (0.85, 0.001, "REPRODUCED"),
        (0.5, 0.001, "SHAPE"),
        (1.2, 0.001, "CONTRADICTED"),
        (1.2, 1.0, "SHAPE"),  # within the sampling error
    ):
        plans = {k: (free, share * others, error * others, 0.0) for k in KS}
        turns({"events": events, "released": plans}, **{word: "fifteen-3"})
    events["ad-hoc", 0.0] = replace(events["ad-hoc", 0.0], curtailed_kwh=1e9)
    events["taylor", 50.0] = replace(events["taylor", 50.0], curtailed_kwh=0.0)
    turns({"events": events}, CONTRADICTED="ad-hoc", SHAPE="taylor-digamma")
    cost = {**study.cost, "digamma": [1.01 * v for v in study.cost["taylor"]]}
    cost |= dict.fromkeys(("average-exact", measures.ONE_STEP, measures.PRINTED), [900.0, 800.0, 700.0, 600.0])
    cost |= dict.fromkeys((measures.ONE, measures.LEADING), [0.01, 0.01, 0.01, 0.001])
    cost["digamma, paper's formula"] = [0.5 * v for v in cost["taylor, paper's formula"]]
    exact, vague = ({name: [error] * 4 for name in study.cost_error} for error in (1e-4, 1e4))
    turns(
        {"cost": cost, "cost_error": exact},
        REPRODUCED="average-dearer-exact digamma-dearer-exact average-dearer-one-step average-dearer-printed",
        CONTRADICTED="average-dearer-one-release average-dearer-leading digamma-dearer-paper",
    )
    turns({"cost": cost, "cost_error": vague}, SHAPE="average-dearer-one-release average-dearer-one-step")
    cost["digamma"] = [0.5 * v for v in cost["taylor"]]
    backwards = {"capacity": {name: values[::-1] for name, values in study.capacity.items()}}
    turns({"cost": cost, **backwards}, REPRODUCED="accurate-policy", CONTRADICTED="digamma-dearer-exact less-capacity")
    turns({"cost": {n: v[::-1] for n, v in study.cost.items()}}, CONTRADICTED="greater-cost")
    turns({"deviation": 0.2}, SHAPE="buildings")

    def turned(**changes):
        return {"data": replace(study.data, model=replace(study.data.model, **changes))}

    model = study.data.model
    later = replace(model.event, times=model.event.times + np.timedelta64(86400, "s"))
    moved = turned(discomfort_penalty=10.0, times=later.times, event=later, loads=50)
    turns(moved, NOT_REPRODUCIBLE="penalty date level", SHAPE="buildings")
    short = replace(model.event, in_event=model.event.in_event & (np.arange(model.horizon + 1) > 3))
    turns(turned(event=short), CONTRADICTED="event")
    turns({"row": replace(study.row, state=16)}, NOT_REPRODUCIBLE="successors", SHAPE="row")


def test_a_mechanism_off_the_simplex_is_noticed(study, row, monkeypatch):
    class Leaky(measures.DirichletMechanism):
        def sample_log(self, p, size, rng):
            return super().sample_log(p, size, rng) + np.log(1.01)

    monkeypatch.setattr(measures, "DirichletMechanism", Leaky)
    leaky = {k: measures.release_clouds(row, k, 20, 0) for k in KS}
    check(judge_claims(replace(study, clouds=leaky), SEARCH), CONTRADICTED="simplex")


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
    check(found, CONTRADICTED="stochastic-private")


def test_summary_fits_a_narrow_terminal(study, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    show_findings({"without data": judge_claims(None, SEARCH), "synthetic campus": judge_claims(study, SEARCH)})
    out = capsys.readouterr().out
    assert max(len(line) for line in out.splitlines()) <= 80
    assert sum(out.count(mark) for mark in "✓≈∅✗") == 26 + 4  # each once, and the key
