"""Tests of `accountant`."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, optimize, stats

from dp_ensemble_env.privacy import (
    Accountant,
    ConcentratedLoss,
    GaussianLoss,
    LaplaceLoss,
    Losses,
    PosteriorLoss,
    PureLoss,
    RowGroup,
    RowLoss,
    composed_epsilon,
    gaussian_delta,
    gaussian_epsilon,
    renyi_divergence,
    renyi_epsilon,
    total_delta,
    total_epsilon,
)
from dp_ensemble_env.privacy.accounting import accountant as module
from dp_ensemble_env.privacy.accounting import compose
from dp_ensemble_env.privacy.accounting.calibrate import ORDERS, renyi_to_epsilon
from dp_ensemble_env.privacy.mechanisms.base import PostProcessing, StoredEvent
from dp_ensemble_env.privacy.mechanisms.gaussian import GaussianEvent

BUDGET = (2.0, 1e-5)


def draw(sigma):
    return GaussianEvent(sigma=sigma, states=3, seeding="seed")


def exact_epsilon(delta: float, epsilon: float, draws: int) -> float:
    """ε of repeated randomised response: its outputs are counts of honest answers, two binomials."""
    p = 1.0 / (1.0 + math.exp(-epsilon))
    k = np.arange(draws + 1)
    log_p, log_q = stats.binom.logpmf(k, draws, p), stats.binom.logpmf(k, draws, 1 - p)

    def excess(total: float) -> float:
        return float(np.maximum(np.exp(log_p) - np.exp(total + log_q), 0.0).sum()) - delta

    return 0.0 if excess(0.0) <= 0 else float(optimize.brentq(excess, 0.0, draws * epsilon + 1e-9))


def least_epsilon(delta: float, epsilons: tuple[float, ...]) -> float:
    """ε of independent randomised responses, over all their outcomes with loss and probability."""
    outcomes = [(0.0, 1.0)]
    for one in epsilons:
        p = 1 / (1 + math.exp(-one))
        outcomes = [(a + s * one, b * (p if s > 0 else 1 - p)) for a, b in outcomes for s in (1, -1)]

    def excess(total: float) -> float:
        return sum(p * max(0.0, -math.expm1(total - loss)) for loss, p in outcomes) - delta

    return float(optimize.brentq(excess, 0.0, 100.0))


def laplace_gaussian_delta(epsilon: float, pure: float, sigma: float) -> float:
    """Integrate the Gaussian's exact curve over the law of the Laplace loss, which has two atoms."""
    # Under the shifted law the loss is `pure` with probability 1/2, else pure - 2t with t exponential, cut off.
    inner, _ = integrate.quad(
        lambda t: 0.5 * math.exp(-t) * gaussian_delta(epsilon - (pure - 2 * t), sigma), 0.0, pure, epsabs=1e-14
    )
    ends = 0.5 * gaussian_delta(epsilon - pure, sigma) + 0.5 * math.exp(-pure) * gaussian_delta(epsilon + pure, sigma)
    return inner + ends


@pytest.mark.parametrize("seed", range(6))
def test_what_fits_a_budget_is_what_the_sum_says(seed):
    """Draws of three sizes in any order: what is remembered of earlier questions never changes an answer."""
    rng, account = np.random.default_rng(seed), Accountant(budget=BUDGET)
    counts: dict[float, int] = {}
    refused = 0
    for _ in range(60):
        sigma, times = float(rng.choice([7.0, 15.0, 40.0])), int(rng.integers(1, 7))
        after = {**counts, sigma: counts.get(sigma, 0) + times}
        epsilon = total_epsilon(BUDGET[1], [(GaussianLoss(s), n) for s, n in after.items()])
        said = account.excess(draw(sigma), times)
        assert (said is None) == (epsilon <= BUDGET[0])
        if said is None and rng.random() < 0.7:  # asked and not always spent
            account.compose(draw(sigma), times)
            counts = after
        refused += said is not None
        if said is not None:
            assert f"epsilon={epsilon:.4g} at delta=1e-05, above the budget of 2" in said
    assert refused and account.get_epsilon(BUDGET[1]) <= BUDGET[0]
    assert sum(counts.values()) == sum(account.charges.values())


def test_the_last_draw_that_fits_is_taken_and_the_next_refused():
    account, fits = Accountant(budget=BUDGET), 0
    while total_epsilon(BUDGET[1], [(GaussianLoss(15.0), fits + 1)]) <= BUDGET[0]:
        fits += 1
    for number in range(fits):
        assert account.excess(draw(15.0), 1) is None, number
        account.compose(draw(15.0))
    assert account.excess(draw(15.0), 1) is not None
    assert account.excess(PostProcessing(), 1000) is None
    assert account.charges == {draw(15.0): fits}
    assert Accountant().excess(draw(0.1), 10**6) is None


@pytest.mark.parametrize(
    ("epsilon", "draws", "delta"), [(1.0, 1, 1e-6), (0.1, 20, 1e-3), (0.5, 7, 1e-6), (0.05, 200, 1e-6)]
)
def test_pure_losses_compose_to_the_exact_value_or_a_little_above(epsilon, draws, delta):
    exact = exact_epsilon(delta, epsilon, draws)
    found = total_epsilon(delta, [(PureLoss(epsilon), draws)])
    # The composition is a fast Fourier transform, whose rounding depends on the processor.
    assert exact - 1e-8 <= found <= exact + 1e-3 * math.sqrt(draws) + 1e-3


def test_pure_losses_add_up_without_delta():
    pure, laplace = PureLoss(0.3), LaplaceLoss(0.7)
    assert total_epsilon(0.0, [(pure, 10), (PureLoss(1.0), 1)]) == pytest.approx(4.0)
    assert total_epsilon(0.0, [(laplace, 2), (pure, 1)]) == pytest.approx(1.7)
    for other in (RowLoss(50, 0.1, 0.03), GaussianLoss(3.0), ConcentratedLoss(0.1)):
        assert total_epsilon(0.0, [(pure, 1), (laplace, 1), (other, 1)]) == math.inf
    assert 0.7 - 1e-3 < total_epsilon(1e-6, [(laplace, 1)]) <= 0.7
    for loss in (PureLoss(0.4), LaplaceLoss(0.4)):
        assert 0.75 < total_epsilon(1e-9, [(loss, 2), (PureLoss(1e-6), 1)]) <= 0.8001
    for epsilon in (30.0, 38.0, 800.0):  # of an answer that is hardly ever the other one
        assert total_epsilon(1e-5, [(PureLoss(epsilon), 1), (PureLoss(1.0), 1)]) == pytest.approx(epsilon + 1.0)
    for wrong in (1.5, -0.1):
        with pytest.raises(ValueError, match="delta must"):
            total_epsilon(wrong, [(laplace, 1), (pure, 1)])


def test_without_the_convolution_the_renyi_bound_stands_in(monkeypatch):
    mixture = ((PureLoss(0.1), 20), (RowLoss(50, 0.1, 0.03), 20))
    tight = total_epsilon(1e-6, mixture)
    monkeypatch.setattr(module, "can_convolve", lambda: False)
    module._mixed_epsilon.cache_clear()
    loose = total_epsilon(1e-6, mixture)
    module._mixed_epsilon.cache_clear()
    assert tight < loose < 1.3 * tight


def test_importing_the_package_loads_no_accountant():
    code = (
        "import sys, dp_ensemble_env.privacy as p; p.PrivacyLedger, p.worst_case_epsilon(.05, 50, .03, .1);"
        "assert not {'dp_accounting', 'matplotlib', 'torch', 'pandas'} & set(sys.modules)"
    )
    root = str(Path(__file__).resolve().parents[2])
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=root)


@pytest.mark.parametrize("delta", [1e-6, 1e-2, 0.1])
def test_randomised_responses_compose_by_enumeration(delta):
    counted = [(PureLoss(0.7), 2), (PureLoss(0.3), 1)]
    exact = least_epsilon(delta, (0.7, 0.7, 0.3))
    assert exact - 1e-9 <= total_epsilon(delta, counted) <= exact + 5e-3


def test_a_total_that_was_charged_does_not_move():
    """The orders at which divergences are added up are part of what a ledger has on record."""
    share = np.r_[np.geomspace(1e-9, 0.5, 400), 1 - np.geomspace(0.5, 1e-9, 200)]
    for groups in (
        [RowGroup(50.0, 0.1, 1e-12)],
        [RowGroup(50.0, 0.1, 0.03, 20)],
        [RowGroup(3.0, 0.2, 0.3), RowGroup(9.0, 0.1, 0.1, 2)],
    ):
        span = min(1e9, *(2 * group.omega / group.h for group in groups))
        for delta in (1e-9, 1e-3, 0.5):
            best = math.inf
            for order in 1 + span * np.unique(share):
                if order > 1 + 1e-6:
                    total = sum(g.number * float(renyi_divergence(order, g.k, g.h, g.omega)) for g in groups)
                    bound = total + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)
                    best = min(best, bound)
            assert renyi_epsilon(delta, groups) == pytest.approx(max(best, 0.0), rel=1e-12)
    grid = 1 + np.r_[np.geomspace(1e-4, 1e4, 600), np.linspace(0.02, 20, 200)]
    np.testing.assert_allclose(ORDERS, np.unique(grid), rtol=1e-14)
    assert (compose.TAIL_MASS, compose.LEAST_CONVOLVED_DELTA) == (1e-20, 1e-11)


def test_gaussian_draws_compose_to_one_gaussian():
    counted = [(GaussianLoss(5.0), 3), (GaussianLoss(8.0), 2)]
    together = (3 / 25 + 2 / 64) ** -0.5
    assert total_epsilon(1e-6, counted) == pytest.approx(gaussian_epsilon(1e-6, together), rel=1e-12)
    direct = pld.from_gaussian_mechanism(5.0).self_compose(3).compose(pld.from_gaussian_mechanism(8.0).self_compose(2))
    assert total_epsilon(1e-6, counted) == pytest.approx(direct.get_epsilon_for_delta(1e-6), rel=1e-3)
    bound = renyi_to_epsilon(1e-6, ORDERS, GaussianLoss(together).renyi(ORDERS))
    assert total_epsilon(1e-6, counted) < bound < 1.3 * total_epsilon(1e-6, counted)


def test_a_laplace_and_a_gaussian_draw_compose_as_the_integral_says():
    epsilon = total_epsilon(1e-6, [(GaussianLoss(4.0), 1), (LaplaceLoss(0.5), 1)])
    assert laplace_gaussian_delta(epsilon, 0.5, 4.0) == pytest.approx(1e-6, rel=0.01)
    assert laplace_gaussian_delta(epsilon, 0.5, 4.0) <= 1e-6


def test_all_kinds_compose_in_one_sum():
    parts = [(GaussianLoss(6.0), 2), (LaplaceLoss(0.3), 1), (PureLoss(0.2), 1), (RowLoss(50.0, 0.1, 0.03), 3)]
    whole = total_epsilon(1e-6, parts)
    singles = [total_epsilon(1e-6, [part]) for part in parts]
    assert 1.01 * max(singles) < whole < sum(total_epsilon(1e-6 / 4, [part]) for part in parts)
    wide, groups = RowLoss(50.0, 0.1, 0.03, "any"), [RowGroup(50.0, 0.1, 0.03), RowGroup(40.0, 0.1, 0.03)]
    both = total_epsilon(1e-4, [(wide, 1), (RowLoss(40.0, 0.1, 0.03, "two"), 1)])  # one "any" makes all "any"
    assert both == composed_epsilon(1e-4, groups, "any") > composed_epsilon(1e-4, groups)
    rounded = [(RowLoss(50.0, 0.1, 0.03, rounding=1e-3), 2), *parts[:3], (RowLoss(50.0, 0.1, 0.03), 1)]
    assert total_epsilon(1e-6, rounded) == pytest.approx(whole + 2e-3, rel=1e-9)
    step = 1e-3
    total = pld.from_gaussian_mechanism(6.0, value_discretization_interval=step).self_compose(2)
    total = total.compose(pld.from_laplace_mechanism(1 / 0.3, value_discretization_interval=step))
    without_rows = total_epsilon(1e-6, parts[:2])
    assert without_rows == pytest.approx(total.get_epsilon_for_delta(1e-6), abs=2e-3)
    # A posterior draw has no convolution, so the whole falls back on Rényi divergences: larger, and finite.
    more = total_epsilon(1e-6, [*parts, (PosteriorLoss(5000.0, 4), 1)])
    assert whole < more < math.inf


# ------------------------------------------------------------------ a total is never below its parts
MIXED = st.lists(
    st.one_of(
        st.builds(PureLoss, st.floats(1e-4, 2.0)),
        st.builds(LaplaceLoss, st.floats(1e-3, 2.0)),
        st.builds(GaussianLoss, st.floats(0.5, 50.0)),
        st.builds(ConcentratedLoss, st.floats(1e-5, 0.5)),
        st.builds(lambda k, omega: RowLoss(k, omega, 0.02), st.floats(1.0, 80.0), st.floats(0.05, 0.3)),
        st.builds(PosteriorLoss, st.floats(50.0, 500.0), st.integers(1, 4)),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=40, deadline=None)
@given(MIXED, st.lists(st.integers(1, 300), min_size=4, max_size=4), st.sampled_from([1e-3, 1e-6]))
def test_a_total_is_never_below_any_of_its_parts(losses, numbers, delta):
    counted = list(zip(losses, numbers, strict=False))
    total = total_epsilon(delta, counted)
    for size in range(len(counted)):
        assert total >= total_epsilon(delta, counted[: size + 1]) * (1 - 2e-4) - 2e-4  # grids differ a little
    assert max(total_epsilon(delta, [one]) for one in counted) <= total * (1 + 2e-4) + 2e-4
    again = total_delta(total, counted)
    assert again <= delta * (1 + 1e-6) or total == 0.0


def integrated(epsilon: float, sigma: float, pure: float, number: int) -> float:
    """Return δ of one Gaussian draw and `number` randomised responses by integration and enumeration."""
    k = np.arange(number + 1)
    p = 1.0 / (1.0 + math.exp(-pure))
    log_p, log_q = stats.binom.logpmf(k, number, p), stats.binom.logpmf(k, number, 1.0 - p)
    x = np.linspace(-12 * sigma, 12 * sigma + 1, 20_001)
    first, second = stats.norm.pdf(x, 1.0, sigma), stats.norm.pdf(x, 0.0, sigma)
    joint = np.maximum(np.outer(np.exp(log_p), first) - math.exp(epsilon) * np.outer(np.exp(log_q), second), 0.0)
    return float(np.trapezoid(joint.sum(axis=0), x))


@pytest.mark.parametrize(
    ("sigma", "pure", "number"), [(4.2247, 4e-4, 2000), (2.0, 0.3, 5), (6.0, 1.0, 1), (1.0, 0.01, 50)]
)
def test_a_mixture_is_never_below_numerical_integration(sigma, pure, number):
    counted = [(GaussianLoss(sigma), 1), (PureLoss(pure), number)]
    for delta in (1e-3, 1e-6):
        epsilon = total_epsilon(delta, counted)
        exact = integrated(epsilon, sigma, pure, number)
        assert exact <= delta * (1 + 1e-4)
        assert integrated(0.98 * epsilon - 2e-3, sigma, pure, number) > delta  # and hardly above it


def test_a_ledger_does_not_forget_what_small_charges_add_to():
    """With (q − eˣp)₊ left out, one Gaussian ε = 1 and 2,000 pure losses of 0.0004 added up to nothing."""
    accountant = Accountant(budget=(1.1, 1e-6)).compose(draw(4.2247))
    small = StoredEvent(of_type="tiny", content="{}", stored=Losses.of({PureLoss(4e-4): 1}), seeding="seed")
    accountant.compose(small, 2000)
    assert accountant.get_epsilon(1e-6) == pytest.approx(1.0077, abs=2e-3)
    assert accountant.get_delta(accountant.get_epsilon(1e-6)) == pytest.approx(1e-6, rel=1e-3)
    assert accountant.would_exceed(draw(4.2247)) and not accountant.would_exceed(small)


def test_losses_too_large_for_a_grid_are_composed_without_one():
    for loss in (LaplaceLoss(1e12), PureLoss(1e300), GaussianLoss(1e-7)):
        assert total_epsilon(1e-6, [(loss, 1), (PureLoss(0.1), 2)]) >= total_epsilon(1e-6, [(PureLoss(0.1), 2)])
    assert total_epsilon(1e-6, [(LaplaceLoss(1e12), 1)]) == pytest.approx(1e12)
