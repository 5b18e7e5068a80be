"""What the case study measures: numbers that must not move, and the same by other means."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, stats

from dp_ensemble_env.control.policies import average_policy
from dp_ensemble_env.paper import measures
from dp_ensemble_env.paper.data import H
from dp_ensemble_env.paper.measures import KS, largest_shed, peak_time, shed_policy
from dp_ensemble_env.privacy.audit import audit_samples
from dp_ensemble_env.reporting.score import event_outcome


def test_numbers_that_must_not_move(study):
    """Exact methods to six digits; a Monte Carlo mean to five of its standard errors."""
    golden = {
        "taylor": (15.051925, 1.377315),
        "taylor, paper's formula": (45.898545, 13.885608),
        "digamma": (24.705606, 2.308787),
        "digamma, paper's formula": (55.028607, 16.432241),
        "average-exact": (4.682354, 0.850591),
        measures.LEADING: (50.830682, 12.897337),
        measures.PRINTED: (-727.629932, -834.322633),
    }
    for name, values in golden.items():
        assert [study.at(study.cost[name], k) for k in KS] == pytest.approx(values, rel=1e-6), name
    for k, mean in zip(KS, (31.929, 11.647), strict=True):
        error = np.hypot(study.at(study.cost_error[measures.ONE], k), 0.17)  # 0.17: that of the golden mean itself
        assert study.at(study.cost[measures.ONE], k) == pytest.approx(mean, abs=5 * error)
    golden = {
        measures.THEOREM2: (3.0381338, 10.5802422),
        measures.WORST: (0.3266821, 1.0149259),
        measures.PAIR: (0.2167749, 0.7196921),
    }
    for name, values in golden.items():
        assert tuple(study.epsilon_at(name).values()) == pytest.approx(values, rel=1e-6), name
    composed = tuple(study.epsilon_at(measures.COMPOSED).values())
    assert composed == pytest.approx((94.296, 324.73), rel=1e-3)  # the accountant's grid
    distances = {
        "taylor": (0.014754694, 0.010671736),
        "digamma": (0.015221364, 0.011154632),
        "average-exact": (0.008573556, 0.007724275),
    }
    for name, values in distances.items():
        assert [study.l1[name, k] for k in KS] == pytest.approx(values, rel=1e-6), name
    outcomes = {  # score, curtailment at the peak in kW and over the event in kWh
        ("ad-hoc", 0.0): (18.8556, 177.33, 5737.5),
        ("standard", 0.0): (100.0, 6700.17, 38949.0),
        ("taylor", 50.0): (95.3594, 5407.02, 37044.9),
        ("digamma", 50.0): (92.3831, 5004.75, 36421.1),
        ("average-exact", 50.0): (98.5564, 5364.03, 37213.3),
        ("taylor", 200.0): (99.5754, 6365.98, 38454.2),
        ("digamma", 200.0): (99.2882, 6254.63, 38318.4),
        ("average-exact", 200.0): (99.7378, 6151.50, 38338.9),
    }
    for key, values in outcomes.items():
        o = study.events[key]
        assert (o.score, o.curtailed_peak_kw, o.curtailed_kwh) == pytest.approx(values, rel=1e-4), key


def test_peak_and_size_of_the_shed(study):
    """The campus has a baseline, whose peak counts; the ad-hoc practice sheds 5.4 % of the energy."""
    model, baseline = study.data.model, study.data.model.event.baseline_kw
    inside = np.flatnonzero(model.event.in_event)
    assert study.peak == inside[np.argmax(baseline[inside])] and study.peak_clock == "14:30"
    assert study.peak_of == "customer baseline"
    without = replace(model, event=replace(model.event, baseline_kw=None))
    assert peak_time(without, study.uncontrolled) == inside[np.argmax(study.uncontrolled[inside])] != study.peak
    played = event_outcome(model, shed_policy(model, 1.0)).power_kw
    np.testing.assert_allclose(played, study.events["ad-hoc", 0.0].power_kw, rtol=1e-5)
    least = min(o.curtailed_kwh for (_, k), o in study.events.items() if k == 50)
    assert 6 < study.shed_limit < 7.5
    below, above = (event_outcome(model, shed_policy(model, x * study.shed_limit)).curtailed_kwh for x in (0.99, 1.01))
    assert below < least < above
    assert largest_shed(model, 0.0) == 0 and largest_shed(model, 1e9) == np.inf


def test_accuracy_is_the_total_variation_of_two_beta_laws(study, row):
    for k in KS:
        a, b, m = k * row.row[row.down], k * row.row[row.up], k * H / 2
        first, second = stats.beta(a, b).pdf, stats.beta(a - m, b + m).pdf
        gap = integrate.quad(lambda x: abs(first(x) - second(x)), 0, 1, limit=400)[0]  # noqa: B023
        assert study.accuracy[k] == pytest.approx(0.5 + gap / 4, abs=1e-6)


def test_three_successors_of_a_dirichlet_row_are_dirichlet(row):
    """Mean and variance of the rescaled three are those of a Dirichlet law with their share of k."""
    k, part = 50.0, row.row[list(row.triple)]
    cloud, other = map(row.on_triple, measures.release_clouds(row, k, 20_000, seed=1))
    mean, total = part / part.sum(), k * part.sum()
    spread = np.sqrt(mean * (1 - mean) / (total + 1))
    assert np.abs(cloud.mean(axis=0) - mean).max() < 5 * spread.max() / np.sqrt(20_000)
    np.testing.assert_allclose(cloud.std(axis=0), spread, rtol=0.05)
    shift = other.mean(axis=0) - cloud.mean(axis=0)  # the state loses, its upper neighbour gains
    np.testing.assert_allclose(shift, np.array([0, -H / 2, H / 2]) / part.sum(), atol=0.003)


def test_misprints_against_monte_carlo(study):
    for line in study.misprints:
        names = ("exact policy", "Monte Carlo policy", "Monte Carlo policy error")
        exact, mean, error = (np.array(line[name]) for name in names)
        assert (np.abs(exact - mean) < 5 * error + 1e-9).all()
        assert sum(line["corrected policy"]) == pytest.approx(1, abs=1e-9)
        assert line["printed sum"] > 1.04
        assert line["printed cost"] < -100 < 0 < line["Monte Carlo cost"]
    last = study.misprints[-1]  # k = 1000: the leading order is nearly all
    assert last["corrected cost"] == pytest.approx(last["Monte Carlo cost"], rel=0.03)
    off = [np.abs(np.subtract(last[f"{name} policy"], mean)).sum() for name in ("corrected", "printed")]
    assert off[0] < 0.01 < 0.04 < off[1]


def test_digamma_is_the_expected_logarithm_and_both_kernels_give_the_matrix_away(study):
    assert study.kernel_error["digamma"] < 1e-6 < 0.28 < study.kernel_error["taylor"] < 0.29
    assert max(study.recovery.values()) < 1e-12


def test_attacks_show_no_more_than_a_perfect_one(study):
    ones = np.ones(400)
    perfect = audit_samples(ones, -ones, measures.DELTA, confidence=0.99)
    assert measures.attack_ceiling(400) == pytest.approx(perfect.epsilon)
    low, high = 0.005 ** (1 / 200), 1 - 0.005 ** (1 / 200)  # Clopper and Pearson, 200 of 200 and 0 of 200
    assert measures.attack_ceiling(400) == pytest.approx(np.log((low - 0.05) / high))
    for k in KS:  # the attack on the average lies between one draw and all
        one, every = (study.epsilon_at(name)[k] for name in (measures.PAIR, measures.COMPOSED))
        assert one < 1 < 2 < study.attack[k] < every
        assert study.attack[k] <= study.ceiling


def test_drawn_policies_scatter_around_the_average(study, row):
    """With z of their own they need not average to Proposition 3, but to the mean of policies solved elsewhere."""
    for k in KS:
        cloud = study.policy_clouds[k][0]
        average = average_policy(study.data.model, k, "sampled", 2000, 5)[study.time, row.state]
        error = cloud.std(axis=0, ddof=1) * np.sqrt(1 / len(cloud) + 1 / 2000)
        assert (np.abs(cloud.mean(axis=0) - average) < 5 * error + 1e-12).all()
    spread = [study.policy_clouds[k][0].std(axis=0).max() for k in KS]
    assert spread[0] > 1.1 * spread[1]  # more noise at the smaller k; 1.5 with many draws
